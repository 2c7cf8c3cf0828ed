"""A command starts fast because it imports only what it needs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

import tenuto

HEAVY = {"asyncpg", "cryptography", "fastapi", "httpx", "jwt", "pydantic", "redis", "rich", "starlette", "uvicorn"}

# Runs a command in a process of its own and prints, last on stderr, the packages it has loaded by then.
PROBE = """
import sys
from tenuto.cli import program
try:
    program(sys.argv[1:], prog_name="tenuto")
finally:
    print(*sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def loaded(folder: Path, *args: str) -> set[str]:
    """The heavy packages among those a command loads."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *args], cwd=folder, capture_output=True, text=True, timeout=50, check=True
    )
    return HEAVY & set(done.stderr.splitlines()[-1].split())


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A folder with a store that holds one session."""
    async with tenuto.open(f"sqlite:///{tmp_path}/tenuto.db") as app:
        await app.finish(await app.begin(app.scope(user="ann"), "Hello!"), "Hello Ann.")
    return tmp_path


def typers_own() -> set[str]:
    """What typer itself cannot do without when it reads an option: pydantic, from 0.29 on."""
    return {"pydantic"} if any(line.startswith("pydantic") for line in requires("typer") or ()) else set()


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    assert loaded(tmp_path, "--help") == set()


@pytest.mark.parametrize(
    "args",
    [
        ("sessions", "--help"),
        ("sessions", "list", "--help"),
        ("chat", "--help"),
        ("traces", "--help"),
        ("privacy", "--help"),
        ("privacy", "erase", "--help"),
        ("--version",),
    ],
)
def test_help_on_a_command_loads_nothing_heavy(tmp_path: Path, args: tuple[str, ...]) -> None:
    assert loaded(tmp_path, *args) <= typers_own()


def test_json_output_loads_nothing_heavy(folder: Path) -> None:
    assert loaded(folder, "sessions", "list", "--json") <= typers_own()


def test_a_table_loads_rich_and_nothing_else(folder: Path) -> None:
    assert loaded(folder, "sessions", "list") - typers_own() == {"rich"}


def test_the_keys_commands_load_no_web_framework(folder: Path) -> None:
    assert loaded(folder, "keys", "list", "--json") <= typers_own()
