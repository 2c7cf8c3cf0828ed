"""Setting up and looking after an installation at the terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from tests.journeys.terminal import Shell


def test_a_key_lives_from_create_to_revoke(shell: Shell) -> None:
    store = ("--store", "sqlite:///data/chat.db")
    made = shell.run_process("keys", "create", "--tenant", "acme", "--user", "ann", "--name", "laptop", *store)
    secret = re.search(r"^tnt_\w+_\S+$", made.stdout, re.MULTILINE)
    assert (made.returncode, made.stderr) == (0, "")
    assert secret is not None
    assert "never shown again" in made.stdout

    key = shell.ask("keys", "list", *store)["keys"][0]
    listed = shell.run("keys", "list", *store).stdout
    assert listed.split()[10:17] == [key["id"], "acme", "any", "ann", "-", "member", "laptop"]
    assert secret[0] not in listed
    assert secret[0].encode() not in (shell.folder / "data" / "chat.db").read_bytes()

    assert shell.run("keys", "revoke", key["id"], *store).stdout == f"Key {key['id']} is revoked.\n"
    assert shell.ask("keys", "list", *store)["keys"][0]["revoked_at"] is not None
    nobody = shell.run("keys", "revoke", "nobody", *store)
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert nobody.stderr == "api_key_not_found: there is no API key with this id\n"


def _address(process: subprocess.Popen[bytes]) -> str:
    """Where a server listens, as its log says."""
    assert process.stderr is not None
    return next(told[0].decode() for line in process.stderr if (told := re.search(rb"http://127\.0\.0\.1:\d+", line)))


def test_a_key_made_beside_a_running_server_closes_it(shell: Shell) -> None:
    """Server, command line and library share one default store."""
    with shell.start("serve", "--port", "0") as process:
        try:
            address = _address(process)
            assert httpx.get(f"{address}/v1/sessions", timeout=20).status_code == 200

            made = shell.run("keys", "create", "--tenant", "acme")

            deadline = time.monotonic() + 20
            while (status := httpx.get(f"{address}/v1/sessions", timeout=20).status_code) == 200:
                assert time.monotonic() < deadline
        finally:
            process.kill()

    assert (made.returncode, made.stderr, status) == (0, "", 401)
    assert re.search(rf"^store +{shell.folder}/data/tenuto.db$", made.stdout, re.MULTILINE)
    assert [path.name for path in shell.folder.iterdir()] == ["data"]


def test_a_command_tells_at_a_terminal_which_store_it_opened(shell: Shell) -> None:
    shell.run("keys", "create", "--tenant", "acme")
    outer, inner = os.openpty()
    try:
        for options in ((), ("--store", "sqlite:///data/tenuto.db")):
            with shell.start("stats", "--json", *options, stderr=inner) as process:
                assert process.wait(120) == 0
        told = os.read(outer, 4096).decode()
    finally:
        os.close(inner)
        os.close(outer)

    assert told == f"store: {shell.folder}/data/tenuto.db\r\n"


def test_make_serve_names_no_store_of_its_own() -> None:
    root = Path(__file__).parents[2]
    assert "TENUTO_STORE=" not in (root / "Makefile").read_text()


def test_the_doctor_finds_a_new_installation_well(shell: Shell) -> None:
    early = shell.run_process("doctor")
    assert (early.returncode, "does not exist yet" in early.stdout, list(shell.folder.glob("data/*"))) == (0, True, [])
    shell.ask("keys", "create", "--tenant", "acme")

    well = shell.run_process("doctor")

    assert (well.returncode, well.stderr) == (0, "")
    assert re.search(r"^ok +round trip +written, read and deleted in [\d.]+ ms$", well.stdout, re.MULTILINE)
    assert re.search(r"^ok +store +sqlite:///data/tenuto.db answers", well.stdout, re.MULTILINE)
    # Without credentials there is a warning, and with one all is not simply well.
    assert early.stdout.endswith("\nNo errors, 2 warnings.\n")
    assert well.stdout.endswith("\nAll is well.\n")


def test_the_doctor_finds_what_is_wrong(shell: Shell) -> None:
    (shell.folder / "notes.db").write_bytes(b"this is a letter to my aunt and not a database " * 30)

    for env, says in (
        ({"TENUTO_PORT": "many"}, "error    settings  TENUTO_PORT"),
        ({"TENUTO_STORE": "sqlite:///notes.db"}, "error    store"),
        ({"TENUTO_STORE": "sqlite:///gone/chat.db"}, "error    store"),
        ({"TENUTO_STORE": "redis://ann:hunter2@127.0.0.1:1/0"}, "error    store"),
    ):
        ill = shell.run("doctor", env=env)
        assert (ill.returncode, ill.stderr) == (1, "")
        assert re.search(says.replace(" ", " +"), ill.stdout), ill.stdout
        assert "-> " in ill.stdout
        assert "hunter2" not in ill.stdout


def test_the_server_starts_answers_and_stops(shell: Shell) -> None:
    with shell.start("serve", "--port", "0", "--store", "sqlite:///data/below/chat.db") as process:
        try:
            health = httpx.get(f"{_address(process)}/healthz", timeout=20)
        finally:
            process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=120)

    assert health.status_code == 200
    assert process.returncode == 0
    assert b"Traceback" not in rest
    assert (shell.folder / "data" / "below" / "chat.db").is_file()
    assert shell.ask("stats", "--store", "sqlite:///data/below/chat.db")["sessions"] == 0


def test_no_folders_are_made_along_a_path_that_leads_nowhere(shell: Shell) -> None:
    refused = shell.run_process("serve", "--port", "0", "--store", f"sqlite:///{shell.folder}/a/b/chat.db")

    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith("invalid_setting: store: cannot make the folder")
    assert not (shell.folder / "a").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_the_server_refuses_to_stand_open(shell: Shell, host: str) -> None:
    refused = shell.run_process("serve", "--port", "0", "--host", host)

    assert (refused.returncode, refused.stdout) == (1, "")
    told = refused.stderr.splitlines()[-1]
    assert told.startswith(f"invalid_setting: host: {host} can be reached from other machines")
