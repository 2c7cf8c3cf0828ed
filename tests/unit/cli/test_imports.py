"""A command starts fast because it imports only what it needs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

import tenuto

HEAVY = {"asyncpg", "cryptography", "httpx", "jwt", "pydantic", "redis", "rich", "starlette", "uvicorn"}

# Runs commands one after the other in a process of its own and prints after each one, on a line of stderr that
# begins with "loaded", the packages that are there by then.
PROBE = """
import sys
from tenuto.cli import program
for line in sys.argv[1:]:
    try:
        program(line.split(), prog_name="tenuto")
    except SystemExit as end:
        assert not end.code, (line, end.code)
    print("loaded", *sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def loaded_by_each(folder: Path, *commands: str) -> list[set[str]]:
    """The heavy packages among those a process holds after each of its commands."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *commands], cwd=folder, capture_output=True, text=True, timeout=120, check=True
    )
    told = [line.split() for line in done.stderr.splitlines()]
    return [HEAVY & set(words) for words in told if words[:1] == ["loaded"]]


def loaded(folder: Path, command: str) -> set[str]:
    """The heavy packages among those a command loads."""
    (packages,) = loaded_by_each(folder, command)
    return packages


@pytest.fixture
async def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store that holds one session."""
    monkeypatch.chdir(tmp_path)
    async with tenuto.open() as app:
        await app.finish(await app.begin(app.scope(user="ann"), "Hello!"), "Hello Ann.")
    return tmp_path


def typers_own() -> set[str]:
    """What typer itself cannot do without when it reads an option: pydantic, from 0.29 on."""
    return {"pydantic"} if any(line.startswith("pydantic") for line in requires("typer") or ()) else set()


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    assert loaded(tmp_path, "--help") == set()


COMMANDS = ("sessions", "sessions list", "chat", "traces", "privacy", "privacy erase")
HELPS = (*(f"{command} --help" for command in COMMANDS), "--version")


def test_help_on_a_command_loads_nothing_heavy(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for command, packages in zip(HELPS, loaded_by_each(tmp_path, *HELPS), strict=True):
        with subtests.test(command):
            assert packages <= typers_own()


def test_json_output_loads_nothing_heavy(folder: Path) -> None:
    assert loaded(folder, "sessions list --json") <= typers_own()


def test_a_table_loads_rich_and_nothing_else(folder: Path) -> None:
    assert loaded(folder, "sessions list") - typers_own() == {"rich"}


def test_the_keys_commands_load_no_web_framework(folder: Path) -> None:
    assert loaded(folder, "keys list --json") <= typers_own()
