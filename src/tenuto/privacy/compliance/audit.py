"""The audit log, in the tenant's state: who revealed values, looked at notes, erased, linked or parted whom."""

from __future__ import annotations

import secrets
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from tenuto.model import Scope
from tenuto.model.scope import site_scope
from tenuto.model.values import JsonObject, Value
from tenuto.ports import Clock, StateStore

AUDIT: Final = "privacy.audit"
# Limits one entry.
MOST_MARKS: Final = 100
_PAGE: Final = 1000


class Act(StrEnum):
    """The audited action."""

    REVEALED = "revealed"
    ERASED = "erased"
    FIXED = "fixed"
    VIEWED = "viewed"
    LINKED = "linked"
    UNLINKED = "unlinked"


class AuditNote(Value, frozen=True, kw_only=True):
    """One line of the audit. `about` has ids, placeholders and counts, never a value or user text."""

    id: str
    at: datetime
    act: Act
    by: str
    about: JsonObject = {}


class AuditLog:
    """The entries of each tenant's site, oldest first."""

    def __init__(self, *, state: StateStore, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    async def note(self, scope: Scope, act: Act, *, by: str, about: JsonObject) -> AuditNote:
        """Add an entry; it is stored when this returns."""
        at = self._clock()
        # Keys sort by time.
        key = f"{at.astimezone().timestamp():017.6f}-{secrets.token_hex(4)}"
        note = AuditNote(id=key, at=at, act=act, by=by, about=about)
        await self._state.write_state(site_scope(scope), AUDIT, key, msgspec.to_builtins(note), if_version=0)
        return note

    async def notes(self, scope: Scope, *, after: str = "", limit: int = 100) -> tuple[AuditNote, ...]:
        """Entries after the key `after`."""
        entries = await self._state.list_state(site_scope(scope), AUDIT, after, min(limit, _PAGE))
        return tuple(msgspec.convert(entry.value, AuditNote) for entry in entries)
