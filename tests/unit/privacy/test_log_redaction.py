"""Log lines behind the privacy policy: private data is redacted, ids and times stay, and no line is lost."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tenuto.cli.running import log_to_stderr
from tenuto.errors import InvalidSetting
from tenuto.logs import bind_log_context
from tenuto.model.privacy import Mode, PrivacyPolicy
from tenuto.privacy.log_redaction import LogRedactor
from tenuto.privacy.tenant_policies import TenantPolicies
from tenuto.server.logs import KeyValueFormatter, request_id

MAIL = "ann.lee@example.com"


def line(clean: Callable[[str], str], message: str, **fields: object) -> str:
    """One formatted record."""
    record = logging.LogRecord("tenuto.chat", logging.WARNING, "somewhere.py", 1, message, None, None)
    record.fields = fields
    return KeyValueFormatter(clean).format(record)


def log_redactor(
    policy: PrivacyPolicy | None = None, tenants: Mapping[str, PrivacyPolicy] | None = None
) -> LogRedactor:
    return LogRedactor(lambda: TenantPolicies(policy or PrivacyPolicy(), tenants))


@pytest.mark.requirement("T10")
def test_private_data_in_a_message_or_a_field_is_redacted() -> None:
    clean = log_redactor()

    shown = line(clean, f"cannot reach {MAIL}", who=MAIL, route="/v1/chat", status=200, number=4242424242424242)

    assert MAIL not in shown
    assert 'msg="cannot reach [REDACTED_EMAIL]"' in shown
    assert "who=[REDACTED_EMAIL] route=/v1/chat status=200" in shown


def test_the_ids_of_a_line_stay_so_that_it_can_be_followed() -> None:
    token = request_id.set("4242424242424242")
    try:
        with bind_log_context(tenant="acme", session="13800138000", turn="3"):
            shown = line(log_redactor(), "late")
    finally:
        request_id.reset(token)

    assert "request=4242424242424242 tenant=acme session=13800138000 turn=3 msg=late" in shown
    assert shown.startswith("time=")


def test_a_line_follows_the_policy_of_the_tenant_it_is_about() -> None:
    clean = log_redactor(tenants={"frank": PrivacyPolicy(log=Mode.KEEP), "shy": PrivacyPolicy(log=Mode.BLOCK)})

    shown = {}
    for tenant in ("acme", "frank", "shy"):
        with bind_log_context(tenant=tenant):
            shown[tenant] = clean(f"to {MAIL}")

    assert shown == {"acme": "to [REDACTED_EMAIL]", "frank": f"to {MAIL}", "shy": "[WITHHELD]"}


def test_a_line_is_written_even_where_the_detector_breaks() -> None:
    class Broken(TenantPolicies):
        def finder(self, scope: object) -> object:  # type: ignore[override]  # a fault that no type foresees
            raise RecursionError

    shown = line(LogRedactor(lambda: Broken(PrivacyPolicy())), f"about {MAIL}", status=500)

    assert "msg=[WITHHELD] status=500" in shown


def test_a_policy_that_is_no_good_leaves_the_line_that_says_so() -> None:
    def unfit() -> TenantPolicies:
        raise InvalidSetting("privacy_file", "is not TOML")

    shown = line(LogRedactor(unfit), f"cannot start: privacy_file: is not TOML near {MAIL}")

    assert 'msg="cannot start: privacy_file: is not TOML near [REDACTED_EMAIL]"' in shown


def test_where_logs_keep_everything_the_detector_is_not_even_loaded() -> None:
    program = """
import sys
from tenuto.model.privacy import Mode, PrivacyPolicy
from tenuto.privacy.log_redaction import LogRedactor
from tenuto.privacy.tenant_policies import TenantPolicies
assert LogRedactor(lambda: TenantPolicies(PrivacyPolicy(log=Mode.KEEP)))("to ann@example.com") == "to ann@example.com"
LogRedactor(lambda: TenantPolicies(PrivacyPolicy()))
print("tenuto.privacy.rules.detector" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)

    assert done.stdout == "False\n"


def test_a_warning_at_the_terminal_passes_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers.clear()
    try:
        log_to_stderr()
        logging.getLogger("tenuto.somewhere").warning("cannot reach %s", MAIL)
    finally:
        root.handlers[:], root.level = before, level

    assert capsys.readouterr().err == "WARNING: cannot reach [REDACTED_EMAIL]\n"
