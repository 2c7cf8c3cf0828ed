"""An operator's desk: commands typed in an empty folder, and messages with private data from before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from tenuto.cli import program
from tests.samples import CARD

MAIL = "ann.lee@example.com"
PRIVATE_TEXT = f"My mail is {MAIL}, my card is {CARD}."
KEEP_SETTINGS = {f"TENUTO_PRIVACY_{sink}": "keep" for sink in ("TITLE", "TRACE")}
PSEUDONYM_SETTINGS = {"TENUTO_PRIVACY_MESSAGE": "pseudonym", "TENUTO_PRIVACY_KEY_FILE": "key.toml"}


def run_command(*args: str, env: Mapping[str, str] | None = None, words: str | None = None) -> Result:
    """Type a command, in this process."""
    return CliRunner().invoke(program, list(args), env=dict(env or {}), input=words, catch_exceptions=False)


def run_json(*args: str, env: Mapping[str, str] | None = None, ends: int = 0) -> Any:
    """What a command answers as JSON."""
    result = run_command(*args, "--json", env=env)
    assert result.exit_code == ends, result.output
    return json.loads(result.stdout)


def chat_session_id(text: str = PRIVATE_TEXT, env: Mapping[str, str] | None = None, user: str = "ann") -> str:
    """Say something, and tell the session it began."""
    session: str = run_json("chat", text, "--user", user, env=env)["session_id"]
    return session


def key_ring_settings(folder: Path, own: str) -> tuple[dict[str, str], dict[str, str]]:
    """Settings with a key file in which a tenant has its own key, and with one that has lost it."""
    general, theirs = "11" * 32, "22" * 32
    ring = f'current = "m"\n[keys]\nm = "{general}"\n'
    files = {
        "both.toml": f'{ring}[tenants.{own}]\ncurrent = "t"\n[tenants.{own}.keys]\nt = "{theirs}"\n',
        "one.toml": ring,
    }
    for name, text in files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    return {"TENUTO_PRIVACY_KEY_FILE": "both.toml"}, {"TENUTO_PRIVACY_KEY_FILE": "one.toml"}
