"""Invalid policy files: the error names the setting, the tenant and the entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import InvalidSetting
from tenuto.model.privacy import CustomPattern, Mode, PrivacyPolicy
from tenuto.privacy.policy_file import load_policy_file
from tenuto.settings import read_settings

STAFF = '[[patterns]]\nname = "STAFF"\n'
MODES = "expected one of keep, redact, pseudonym, block"

UNFIT = {
    'message = "hide"': f"message: 'hide' is not a mode; {MODES}",
    'message = "REDACT"': f"message: 'REDACT' is not a mode; {MODES}",
    "message = true": f"message: the value is not a mode; {MODES}",
    '[tenants.acme]\ntrace = "no"': f"tenants.acme: trace: 'no' is not a mode; {MODES}",
    '[tenants.acme]\nlog = "pseudonym"': (
        "tenants.acme: log: cannot be pseudonym: no session's vault goes with that text"
    ),
    'mesage = "redact"': "there is no 'mesage'; did you mean message?",
    'privacy_message = "redact"': "there is no 'privacy_message'; did you mean message?",
    '[tenants.acme]\nallowed = ["@a.example"]': "tenants.acme: there is no 'allowed'; did you mean allow?",
    'allow = "@a.example"': 'allow: is a list of texts: allow = ["...", "..."]',
    "also = [1]": 'also: is a list of texts: also = ["...", "..."]',
    'unvaulted = "SECRET"': 'unvaulted: is a list of texts: unvaulted = ["...", "..."]',
    'unvaulted = ["PASSWORD"]': "unvaulted: 'PASSWORD' is neither a type nor a pattern of the policy",
    'also = ["PERSON"]\n[tenants.acme]\nnever = ["PERSON"]': "tenants.acme: never: PERSON is listed in also, too",
    'allow = ["*"]': "allow: entry 1 is not a value; only *.example.com may represent several",
    'patterns = ["S-[0-9]{6}"]': "patterns: are sections of their own: [[patterns]]",
    '[tenants.acme.patterns]\nname = "STAFF"': (
        "tenants.acme: patterns: are sections of their own: [[tenants.acme.patterns]]"
    ),
    STAFF + 'regex = "S"': "patterns: number 1 has 'regex'; available: name, pattern, ignore_case",
    STAFF + 'pattern = "S-1"\nignorecase = true': (
        "patterns: number 1 has 'ignorecase'; available: name, pattern, ignore_case"
    ),
    STAFF: "patterns: number 1 needs name and pattern as texts, ignore_case as true or false",
    STAFF + 'pattern = "S-1"\n[[tenants.acme.patterns]]\nname = "STAFF"\npattern = "T-1"': (
        "tenants.acme: patterns: STAFF appears twice"
    ),
    'tenants = ["acme"]': "tenants are sections: [tenants.acme]",
    '[tenants]\nacme = "redact"': "tenants are sections: [tenants.acme]",
    '[tenants."~all"]\nmessage = "redact"': "tenants.'~all': a tenant id may not start with '~'",
}


def read(folder: Path, said: str | bytes) -> tuple[PrivacyPolicy, dict[str, PrivacyPolicy]]:
    path = folder / "privacy.toml"
    path.write_bytes(said.encode() if isinstance(said, str) else said)
    return load_policy_file(path, PrivacyPolicy())


@pytest.mark.parametrize(("said", "why"), UNFIT.items())
def test_what_does_not_fit_is_named_as_its_author_wrote_it(tmp_path: Path, said: str, why: str) -> None:
    with pytest.raises(InvalidSetting) as excinfo:
        read(tmp_path, said)

    assert str(excinfo.value) == f"privacy_file: {why}"
    assert excinfo.value.setting == "privacy_file", "that is what the start, and the doctor, ask to be corrected"


@pytest.mark.parametrize(
    ("also", "tenant"), [(["NAME"], ""), (["person"], ""), (["NAME"], "[tenants.acme]\n")], ids=str
)
def test_a_type_that_is_none_is_told_with_those_that_are(tmp_path: Path, also: list[str], tenant: str) -> None:
    with pytest.raises(InvalidSetting, match=f"also: '{also[0]}' is not a type; expected one of ADDRESS, ") as excinfo:
        read(tmp_path, f"{tenant}also = {also}")

    assert ("tenants.acme: " in str(excinfo.value)) == bool(tenant)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for said, why in ((b"message = redact", "is not TOML: "), (b'message = "\xff"', "is not text in UTF-8")):
        with pytest.raises(InvalidSetting, match=why) as excinfo:
            read(tmp_path, said)
        assert str(tmp_path / "privacy.toml") in str(excinfo.value)
    with pytest.raises(InvalidSetting, match=r"nowhere\.toml cannot be read: No such file"):
        load_policy_file(tmp_path / "nowhere.toml", PrivacyPolicy())


def test_a_tenants_section_replaces_modes_and_adds_to_lists(tmp_path: Path) -> None:
    said = 'message = "redact"\nalso = ["PERSON"]\n[tenants.acme]\nmessage = "keep"\nalso = ["ADDRESS"]\nunvaulted = []'

    general, tenants = read(tmp_path, said)

    assert (general.message, general.also) == (Mode.REDACT, ("PERSON",))
    assert (tenants["acme"].message, tenants["acme"].also) == (Mode.KEEP, ("PERSON", "ADDRESS"))
    assert tenants["acme"].unvaulted == ()


def test_an_outside_detector_without_time_to_answer_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="privacy_detector_timeout: must be greater than zero"):
        read_settings({"TENUTO_PRIVACY_DETECTOR_TIMEOUT": "0"})


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"message": None}, "privacy_message"),
        ({"trace": "redact"}, "privacy_trace"),
        ({"also": None}, "also"),
        ({"never": "IP"}, "never"),
        ({"allow": (None,)}, "allow"),
        ({"unvaulted": 7}, "unvaulted"),
    ],
)
def test_a_policy_made_in_a_program_is_checked_as_well(given: dict[str, Any], setting: str) -> None:
    """A plain str looks like a mode but is none: private data would be kept, or vaulted, by accident."""
    with pytest.raises(InvalidSetting) as excinfo:
        PrivacyPolicy(**given)

    assert excinfo.value.setting == setting
    assert PrivacyPolicy(patterns=(CustomPattern(name="STAFF", pattern="S"),)).message is Mode.KEEP
