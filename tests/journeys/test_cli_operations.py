"""Setting up and looking after an installation, through the real `tenuto` process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest


class Machine:
    """A machine on which tenuto was just installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("TENUTO_", "MEMORY_"))}
        self.env.pop("PORT", None)
        self.env.pop("REDIS_URL", None)

    def start(self, *args: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Type a command and do not wait."""
        return subprocess.Popen(
            [sys.executable, "-m", "tenuto", *args],
            cwd=self.folder,
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        """Type a command and wait: exit code, output, errors."""
        with self.start(*args, env=env) as process:
            out, err = process.communicate(timeout=120)
        assert "Traceback" not in err, err
        return process.returncode, out, err

    def ask(self, *args: str) -> Any:
        """What a command answers as JSON."""
        code, out, err = self.run(*args, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """With an empty folder."""
    return Machine(tmp_path)


def test_a_key_lives_from_create_to_revoke(machine: Machine) -> None:
    store = ("--store", "sqlite:///data/chat.db")
    code, out, err = machine.run("keys", "create", "--tenant", "acme", "--user", "ann", "--name", "laptop", *store)
    secret = re.search(r"^tnt_\w+_\S+$", out, re.MULTILINE)
    assert (code, err) == (0, "")
    assert secret is not None
    assert "never shown again" in out

    key = machine.ask("keys", "list", *store)["keys"][0]
    listed = machine.run("keys", "list", *store)[1]
    assert listed.split()[8:14] == [key["id"], "acme", "any", "ann", "member", "laptop"]
    assert secret[0] not in listed
    assert secret[0].encode() not in (machine.folder / "data" / "chat.db").read_bytes()

    assert machine.run("keys", "revoke", key["id"], *store)[:2] == (0, f"Key {key['id']} opens nothing any more.\n")
    assert machine.ask("keys", "list", *store)["keys"][0]["revoked_at"] is not None
    assert machine.run("keys", "revoke", "nobody", *store) == (
        1,
        "",
        "api_key_not_found: no API key has the id nobody\n",
    )


def test_a_key_made_beside_a_running_server_closes_it(machine: Machine) -> None:
    """Server, command line and library share one default store."""
    with machine.start("serve", "--port", "0") as process:
        try:
            assert process.stderr is not None
            found = next(filter(None, (re.search(r"http://127\.0\.0\.1:\d+", line) for line in process.stderr)))
            assert httpx.get(f"{found[0]}/v1/sessions", timeout=20).status_code == 200

            code, out, err = machine.run("keys", "create", "--tenant", "acme")

            deadline = time.monotonic() + 20
            while (status := httpx.get(f"{found[0]}/v1/sessions", timeout=20).status_code) == 200:
                assert time.monotonic() < deadline
        finally:
            process.kill()

    assert (code, err, status) == (0, "", 401)
    assert re.search(rf"^store +{machine.folder}/data/tenuto.db$", out, re.MULTILINE)
    assert [path.name for path in machine.folder.iterdir()] == ["data"]


def test_a_command_tells_at_a_terminal_which_store_it_opened(machine: Machine) -> None:
    machine.run("keys", "create", "--tenant", "acme")
    command = [sys.executable, "-m", "tenuto", "stats", "--json"]
    outer, inner = os.openpty()
    try:
        for options in ((), ("--store", "sqlite:///data/tenuto.db")):
            called = [*command, *options]
            subprocess.run(called, cwd=machine.folder, env=machine.env, stderr=inner, check=True, timeout=120)
        told = os.read(outer, 4096).decode()
    finally:
        os.close(inner)
        os.close(outer)

    assert told == f"store: {machine.folder}/data/tenuto.db\r\n"


def test_make_serve_names_no_store_of_its_own() -> None:
    root = Path(__file__).parents[2]
    assert "TENUTO_STORE=" not in (root / "Makefile").read_text()


def test_the_doctor_finds_a_new_installation_well(machine: Machine) -> None:
    code, out, err = machine.run("doctor")

    assert (code, err) == (0, "")
    assert re.search(r"^ok +round trip +written, read and deleted in [\d.]+ ms$", out, re.MULTILINE)
    assert re.search(r"^store +sqlite:///data/tenuto.db$", out, re.MULTILINE)
    assert out.endswith("\nAll is well.\n")


def test_the_doctor_finds_what_is_wrong(machine: Machine) -> None:
    (machine.folder / "notes.db").write_bytes(b"this is a letter to my aunt and not a database " * 30)

    for env, says in (
        ({"TENUTO_PORT": "many"}, "error    settings  TENUTO_PORT"),
        ({"TENUTO_STORE": "sqlite:///notes.db"}, "error    store"),
        ({"TENUTO_STORE": "sqlite:///gone/chat.db"}, "error    store"),
        ({"TENUTO_STORE": "redis://ann:hunter2@127.0.0.1:1/0"}, "error    store"),
    ):
        code, out, err = machine.run("doctor", env=env)
        assert (code, err) == (1, "")
        assert re.search(says.replace(" ", " +"), out), out
        assert "-> " in out
        assert "hunter2" not in out


def test_the_server_starts_answers_and_stops(machine: Machine) -> None:
    with machine.start("serve", "--port", "0", "--store", "sqlite:///data/below/chat.db") as process:
        try:
            assert process.stderr is not None
            found = next(filter(None, (re.search(r"http://127\.0\.0\.1:\d+", line) for line in process.stderr)))
            health = httpx.get(f"{found[0]}/healthz", timeout=20)
        finally:
            process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=120)

    assert health.status_code == 200
    assert process.returncode == 0
    assert "Traceback" not in rest
    assert (machine.folder / "data" / "below" / "chat.db").is_file()
    assert machine.ask("stats", "--store", "sqlite:///data/below/chat.db")["sessions"] == 0


def test_no_folders_are_made_along_a_path_that_leads_nowhere(machine: Machine) -> None:
    code, _, err = machine.run("serve", "--port", "0", "--store", f"sqlite:///{machine.folder}/a/b/chat.db")

    assert code == 1
    assert err.splitlines()[-1].startswith("invalid_setting: store: cannot make the folder")
    assert not (machine.folder / "a").exists()


def test_the_server_refuses_to_stand_open(machine: Machine) -> None:
    code, out, err = machine.run("serve", "--port", "0", "--host", "0.0.0.0")

    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("invalid_setting: host: 0.0.0.0 can be reached from other machines")
