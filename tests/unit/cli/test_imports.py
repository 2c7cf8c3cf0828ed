"""A command starts fast because it imports only what it needs."""

from __future__ import annotations

import subprocess
import sys
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
    except SystemExit as error:
        assert not error.code, (line, error.code)
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


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    assert loaded(tmp_path, "--help") == set()


COMMANDS = ("sessions", "sessions list", "chat", "traces", "privacy", "privacy erase")
HELPS = (*(f"{command} --help" for command in COMMANDS), "--version")


def test_help_on_a_command_loads_nothing_heavy(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for command, packages in zip(HELPS, loaded_by_each(tmp_path, *HELPS), strict=True):
        with subtests.test(command):
            assert packages == set()


def modules_after(folder: Path, *args: str) -> set[str]:
    """All modules of a process that ran a command."""
    probe = """import atexit, runpy, sys
atexit.register(lambda: print(*sys.modules))
runpy.run_module("tenuto", run_name="__main__")"""
    done = subprocess.run(
        [sys.executable, "-c", probe, *args],
        cwd=folder, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split())


def test_the_version_is_told_without_the_application(tmp_path: Path) -> None:
    loaded = modules_after(tmp_path, "--version")

    assert loaded.isdisjoint({"asyncio", "tenuto.app", "tenuto.cli.running", "tenuto.cli.chat"})


def test_a_command_loads_no_other_command(tmp_path: Path) -> None:
    loaded = modules_after(tmp_path, "chat", "hello")

    assert "tenuto.cli.conversation" in loaded
    assert loaded.isdisjoint({"pydantic", "tenuto.cli.doctor", "tenuto.cli.keys", "tenuto.cli.privacy"})


def test_json_output_loads_nothing_heavy(folder: Path) -> None:
    assert loaded(folder, "sessions list --json") == set()


def test_a_table_loads_rich_and_nothing_else(folder: Path) -> None:
    assert loaded(folder, "sessions list") == {"rich"}


def test_the_keys_commands_load_no_web_framework(folder: Path) -> None:
    assert loaded(folder, "keys list --json") == set()
