"""What the tab key offers besides commands and options: ids of sessions, names of assistants.

Completion runs while a person types, so it is quick or offers nothing, and it never prints an error.
"""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from random import SystemRandom
from typing import Final

import typer

from tenuto.cli.terminal import visible
from tenuto.errors import TenutoError
from tenuto.model import Scope, Session, SessionQuery
from tenuto.settings import Settings, read_settings

SHIPPED: Final = ("general", "goods", "npc", "legal", "plain")
_TIMEOUT_SECONDS: Final = 1.0
_MOST: Final = 50
# Shells split or expand other characters.
_PLAIN: Final = re.compile(r"[\w.@-]+", re.ASCII)


def complete_session(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of the sessions that changed last, with their titles, of the store and caller that the line names."""
    scope_parts = {name: ctx.params.get(name) for name in ("tenant", "site", "user")}
    try:
        scope = Scope(tenant=scope_parts["tenant"] or "local", site=scope_parts["site"] or "", user=scope_parts["user"])
        settings = read_settings(store=ctx.params.get("store"))
        sessions = asyncio.run(_newest(scope, settings.store))
    except (TenutoError, TimeoutError, OSError):
        return []
    return [
        (session.id, "" if settings.encryption else visible(session.title))
        for session in sessions
        if session.id.startswith(incomplete) and _PLAIN.fullmatch(session.id)
    ]


async def _newest(scope: Scope, url: str) -> tuple[Session, ...]:
    # Only where an id is completed.
    from tenuto.cli.running import sqlite_file
    from tenuto.stores.engine import Engine
    from tenuto.stores.factory import open_records

    file = sqlite_file(url)
    if file is not None and not file.exists():
        return ()
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        records = await open_records(url, read_only=True)
        try:
            page = await Engine(records, chance=SystemRandom()).sessions.list(scope, SessionQuery(limit=_MOST))
        finally:
            await records.close()
    return tuple(page.sessions)


def complete_assistant(incomplete: str) -> list[str]:
    """Names of the shipped assistants and of those in the folder of the settings."""
    try:
        names = [*SHIPPED, *_own_names(read_settings())]
    except (TenutoError, OSError, ValueError):
        names = [*SHIPPED]
    return [name for name in names if name.startswith(incomplete)]


def _own_names(settings: Settings) -> Iterator[str]:
    """As the files are read, without running any of their code."""
    for path in sorted(Path(settings.assistants).iterdir()) if settings.assistants else ():
        if path.suffix == ".toml":
            yield str(tomllib.loads(path.read_text()).get("name") or path.stem)
        elif path.suffix == ".py" and not path.with_suffix(".toml").exists():
            yield path.stem
