"""What the doctor says of private data: policy, key and encryption, changed keys, a detector that is of little help."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import tenuto
from tenuto.model import Scope
from tenuto.model.privacy import KEYS_NAMESPACE
from tests.journeys.cli_runs import PSEUDONYM_SETTINGS, run_command, run_json

pytestmark = pytest.mark.usefixtures("own_environment")


def test_the_doctor_tells_of_policy_key_and_encryption(tmp_path: Path) -> None:
    run_command("privacy", "new-key", "key.toml")
    well = run_command("doctor", env=PSEUDONYM_SETTINGS).stdout
    keyless = run_command("doctor", env={"TENUTO_PRIVACY_MESSAGE": "pseudonym"})
    (tmp_path / "key.toml").chmod(0o644)
    open_to_all = run_command("doctor", env=PSEUDONYM_SETTINGS)

    assert "pseudonym: message" in well
    assert "privacy key" in well
    assert "in key.toml" in well
    assert keyless.exit_code == 1
    assert "privacy_key: is needed for pseudonyms" in keyless.stdout
    assert open_to_all.exit_code == 1
    assert "chmod 600" in open_to_all.stdout
    assert "correct or unset TENUTO_PRIVACY_KEY_FILE" in open_to_all.stdout


def test_the_doctor_finds_an_outside_detector_that_does_not_answer() -> None:
    ill = run_command("doctor", env={"TENUTO_PRIVACY_DETECTOR": "http://ann:hunter2@127.0.0.1:9"})

    assert ill.exit_code == 1
    assert "127.0.0.1:9 does not answer" in ill.stdout
    assert "hunter2" not in ill.output


def test_no_setting_that_is_shown_shows_a_key() -> None:
    stdout = run_command("doctor", env={"TENUTO_PRIVACY_KEY": "cd" * 32}).stdout

    assert "cd" * 32 not in stdout


@pytest.mark.parametrize("tenant", ["~tenuto", "acme"], ids=["the installation's", "a tenant's"])
def test_keys_that_were_changed_in_the_store_are_told_from_a_missing_master_key(tenant: str) -> None:
    run_command("privacy", "new-key", "key.toml")
    sealing = {"TENUTO_ENCRYPTION": "true", "TENUTO_PRIVACY_KEY_FILE": "key.toml"}
    run_json("chat", "Hello.", "--user", "ann", "--tenant", "acme", env=sealing)
    asyncio.run(_damage(Scope(tenant=tenant)))

    ill = run_command("doctor", env=sealing)

    assert ill.exit_code == 1
    assert "the tenant's data keys were changed in the store, or are another tenant's" in " ".join(ill.stdout.split())
    assert f"the record of tenant {tenant}'s keys in the store is damaged: restore" in " ".join(ill.stdout.split())
    assert "to the key that encrypted this store" not in ill.stdout
    assert "put that key back" not in ill.stdout


async def _damage(scope: Scope) -> None:
    """Change one letter of a tenant's wrapped data key."""
    async with tenuto.open(privacy_key_file="key.toml") as app:
        entry = await app.stores.plain_state.read_state(scope, KEYS_NAMESPACE, "data")
        assert entry is not None
        (key,) = entry.value["data"].values()
        key["text"] = key["text"][:20] + ("A" if key["text"][20] != "A" else "B") + key["text"][21:]
        await app.stores.plain_state.write_state(scope, KEYS_NAMESPACE, "data", entry.value)


class English(BaseHTTPRequestHandler):
    """An analyzer with a model for English alone, as the stock one."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200 if asked["language"] == "en" else 500)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the server gave it
        """Without a listener."""


@contextmanager
def analyzer_of_english() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), English) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_the_doctor_tries_every_language_that_the_outside_detector_is_sent() -> None:
    with analyzer_of_english() as url:
        patient = {"TENUTO_PRIVACY_DETECTOR": url, "TENUTO_PRIVACY_DETECTOR_TIMEOUT": "1m"}
        well = run_command("doctor", env=patient)
        ill = run_command("doctor", env={**patient, "TENUTO_PRIVACY_DETECTOR_LANGUAGES": "en,zh"})

    assert well.exit_code == 0
    assert ill.exit_code == 1
    assert "fails on zh text" in ill.stdout
    assert "TENUTO_PRIVACY_DETECTOR_LANGUAGES" in ill.stdout
