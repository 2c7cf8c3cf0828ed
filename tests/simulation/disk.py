"""A folder that the simulated processes of a machine share, with what is in it when they die.

It keeps the contract of `JournalFolder`; its disk may be slow, full, or tear a row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from tenuto.errors import Unavailable
from tenuto.model import Scope
from tenuto.stores.engine.journal_folder import JournalCounts, JournaledSession, Offer, StoredBase, StoredRow

Callback = Callable[[], Awaitable[None]]


@dataclass
class _Aside:
    site: Scope
    row: StoredRow
    reason: str
    at: int


@dataclass
class SimFolder:
    """What is on the disk of the machine, and what its shared memory says."""

    is_down: bool = False
    is_full: bool = False
    sessions: dict[bytes, JournaledSession] = field(default_factory=dict)
    order: list[bytes] = field(default_factory=list)
    aside: list[_Aside] = field(default_factory=list)
    revisions: dict[bytes, tuple[int, str]] = field(default_factory=dict)
    votes: dict[str, bool] = field(default_factory=dict)
    offered: set[str] = field(default_factory=set)
    locks: dict[bytes, str] = field(default_factory=dict)
    views: dict[str, FolderView] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(len(session.rows) for session in self.sessions.values())

    def leave(self, name: str) -> None:
        """A process died: its locks and its vote go with it, and with the last one what only memory says."""
        self.views.pop(name, None)
        self.votes.pop(name, None)
        self.locks = {key: holder for key, holder in self.locks.items() if holder != name}
        if not self.views:
            self.is_down = False
            self.revisions.clear()
            self.drop_offers()

    def drop_offers(self) -> None:
        self.sessions = {key: session for key, session in self.sessions.items() if session.rows}

    def forget_order(self, key: bytes) -> None:
        if key in self.order and not (key in self.sessions and self.sessions[key].rows):
            self.order.remove(key)
            self.sessions.pop(key, None)


class FolderView:
    """The folder as one process sees it; `event` hears of rows written and stored, `spawn` runs as the process."""

    def __init__(
        self,
        folder: SimFolder,
        name: str,
        *,
        delay: Callable[[], float] = lambda: 0.0,
        event: Callable[[str], None] = lambda kind: None,
        spawn: Callable[[Any], object] = asyncio.ensure_future,
    ) -> None:
        self._folder = folder
        self._delay = delay
        self._event = event
        self._spawn = spawn
        self._on_asked: Callback | None = None
        self._on_change: Callback | None = None
        self.name = name
        folder.views[name] = self
        folder.offered.add(name)
        if folder.is_down:
            self._tell_all()

    @property
    def is_down(self) -> bool:
        return self._folder.is_down

    @property
    def is_shared(self) -> bool:
        return len(self._folder.views) > 1

    @property
    def may_have_rows(self) -> bool:
        return bool(self._folder.order)

    @property
    def counts(self) -> JournalCounts:
        rows = [row for session in self._folder.sessions.values() for row in session.rows]
        return JournalCounts(
            waiting=len({row.turn for row in rows}),
            oldest=min([row.at for row in rows], default=None),
            quarantined=len({aside.row.turn for aside in self._folder.aside}),
        )

    @property
    def are_offers_complete(self) -> bool:
        return not self._folder.views.keys() - self._folder.offered - {self.name}

    def mark_offered(self) -> None:
        self._folder.offered.add(self.name)

    # Revisions

    def note(self, key: bytes, revision: int, incarnation: str) -> None:
        known = self._folder.revisions.get(key)
        if known is not None and known[1] == incarnation:
            revision = max(revision, known[0])
        self._folder.revisions[key] = revision, incarnation

    def is_current(self, key: bytes, revision: int, incarnation: str) -> bool:
        return self._folder.revisions.get(key, (revision, incarnation)) == (revision, incarnation)

    def is_noted(self, key: bytes) -> bool:
        return key in self._folder.revisions

    # Rows and records

    async def read_session(self, key: bytes, first: int = 0) -> JournaledSession | None:
        await asyncio.sleep(0)
        session = self._folder.sessions.get(key)
        if session is not None and first:
            session = replace(session, rows=tuple(row for row in session.rows if row.number >= first))
        if session is None or session.rows or self.is_current(key, session.base.revision, session.base.incarnation):
            return session
        return None

    async def fenced_keys(self) -> tuple[bytes, ...]:
        await asyncio.sleep(0)
        return tuple(self._folder.order)

    async def offer(self, offers: Sequence[Offer]) -> None:
        await self._write()
        for offer in offers:
            if self._folder.is_down and self.is_current(offer.key, offer.base.revision, offer.base.incarnation):
                session = self._folder.sessions.get(offer.key) or JournaledSession(site=offer.site, base=offer.base)
                self._folder.sessions[offer.key] = replace(session, base=offer.base)

    async def append(self, key: bytes, site: Scope, base: StoredBase, row: StoredRow) -> bool:
        await self._write()
        folder = self._folder
        session = folder.sessions.get(key) or JournaledSession(site=site, base=base)
        newest = session.rows[-1].number if session.rows else 0
        stands = (session.base.revision, session.base.incarnation) == (base.revision, base.incarnation)
        if not folder.is_down or row.number != newest + 1 or not stands:
            return False
        folder.sessions[key] = replace(session, rows=(*session.rows, row))
        if key not in folder.order:
            folder.order.append(key)
        self._event("row")
        await asyncio.sleep(self._delay())
        return True

    async def remove(self, key: bytes, through: int, base: StoredBase) -> None:
        await self._write()
        session = self._folder.sessions.get(key)
        if session is None:
            return
        left = tuple(row for row in session.rows if row.number > through)
        self._event("replayed")
        self._folder.sessions[key] = replace(session, base=base, rows=left)
        self._folder.forget_order(key)

    async def set_aside(self, key: bytes, row: StoredRow, reason: str, now: int) -> None:
        await self._write()
        session = self._folder.sessions.get(key)
        place = (row.number, row.turn, row.at)
        gone = [one for one in session.rows if (one.number, one.turn, one.at) == place] if session is not None else []
        if session is None or not gone:
            return
        self._folder.aside.append(_Aside(session.site, gone[0], reason, now))
        self._folder.sessions[key] = replace(session, rows=tuple(row for row in session.rows if row is not gone[0]))
        self._folder.forget_order(key)

    async def users_aside(self) -> tuple[tuple[Scope, str], ...]:
        await asyncio.sleep(0)
        return tuple(sorted({(one.site, user) for one in self._folder.aside for user in one.row.users}, key=repr))

    async def purge(self, before: int) -> None:
        await self._write()
        self._folder.aside = [aside for aside in self._folder.aside if aside.at >= before]

    async def keys_of_user(self, site: Scope, user: str) -> tuple[bytes, ...]:
        await asyncio.sleep(0)
        return tuple(
            key
            for key, session in self._folder.sessions.items()
            if session.site == site and any(user in row.users for row in session.rows)
        )

    async def erase(self, site: Scope, user: str, until: int) -> int:
        await self._write()
        folder, count = self._folder, 0
        for key, session in list(folder.sessions.items()):
            if session.site == site:
                left = tuple(row for row in session.rows if user not in row.users or row.at > until)
                count += len(session.rows) - len(left)
                folder.sessions[key] = replace(session, rows=left)
                if not left:
                    del folder.sessions[key]
                folder.forget_order(key)
        kept = [one for one in folder.aside if one.site != site or user not in one.row.users or one.row.at > until]
        count += len(folder.aside) - len(kept)
        folder.aside = kept
        return count

    # Locks

    async def lock(self, key: bytes) -> bool:
        await asyncio.sleep(0)
        if key in self._folder.locks:
            return False
        self._folder.locks[key] = self.name
        return True

    async def unlock(self, key: bytes) -> None:
        if self._folder.locks.get(key) == self.name:
            del self._folder.locks[key]

    # Agreement

    def ask(self) -> None:
        """Each process is asked in a moment of its own."""
        self._folder.votes.clear()
        for view in self._folder.views.values():
            if view is not self and view._on_asked is not None:
                view._spawn(view._on_asked())

    def vote(self, is_away: bool) -> None:
        self._folder.votes[self.name] = is_away

    async def is_agreed(self) -> bool | None:
        await asyncio.sleep(0)
        folder = self._folder
        if folder.is_down:
            return True
        votes = [folder.votes.get(name) for name in folder.views]
        if False in votes:
            return False
        if not all(votes):
            return None
        folder.is_down = True
        folder.offered.clear()
        self._event("away")
        self._tell_all()
        return True

    async def reopen(self) -> None:
        await asyncio.sleep(self._delay())
        if self._folder.is_down:
            self._folder.is_down = False
            self._folder.votes.clear()
            self._folder.drop_offers()
            self._tell_all()

    async def watch(self, on_asked: Callback, on_change: Callback) -> None:
        self._on_asked, self._on_change = on_asked, on_change
        if self._folder.is_down:
            await on_change()
        await asyncio.Event().wait()

    def _tell_all(self) -> None:
        for view in self._folder.views.values():
            if view._on_change is not None:
                view._spawn(view._on_change())

    async def _write(self) -> None:
        await asyncio.sleep(self._delay())
        if self._folder.is_full:
            raise Unavailable("journal", "has no space left on its disk")
