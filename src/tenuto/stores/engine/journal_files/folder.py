"""`DiskFolder`: the port of a journal's folder over one SQLite file and shared memory."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from tenuto.background import run_in_background
from tenuto.errors import Unavailable
from tenuto.model import Scope
from tenuto.stores.engine.journal_files import files
from tenuto.stores.engine.journal_files.members import acquire_member, is_alive, living_members
from tenuto.stores.engine.journal_files.shared import SharedMemory
from tenuto.stores.engine.journal_files.thread import FolderThread, is_locked, translate
from tenuto.stores.engine.journal_folder import (
    ALWAYS,
    Callback,
    JournalCounts,
    JournaledSession,
    Offer,
    StoredBase,
    StoredRow,
)

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_POLL: Final = 0.05


class DiskFolder:
    """The folder as one process sees it. It looks every 50 ms for what the others have written to shared memory."""

    def __init__(
        self, path: Path, db: sqlite3.Connection, shared: SharedMemory, member: int, lock: sqlite3.Connection, name: str
    ) -> None:
        self._path = path
        self._shared = shared
        self._member = member
        self._lock = lock
        self._name = name
        self._thread = FolderThread(db, lambda: shared.count_change(member))
        self._locked = set[bytes]()
        self._unlock_later = set[bytes]()
        self._asked = shared.epoch
        self._tasks = set[asyncio.Task[None]]()
        self._seen_changes = -1
        self._others: tuple[int, ...] = ()
        self.counts = JournalCounts()

    @classmethod
    async def open(cls, path: Path) -> DiskFolder:
        """Join the folder, and make it if it is missing.

        Raises:
            Unavailable: it cannot be made, read or written, or a newer release wrote it.
        """
        try:
            folder = cls(path, *await asyncio.to_thread(_join, path))
            unread = await asyncio.to_thread(files.files_from_before, path)
        except (sqlite3.Error, OSError) as error:
            raise translate(error) from error
        if unread:
            _log.error("turns of a development version wait in the journal and are not read: %s", ", ".join(unread))
        try:
            await folder._refresh()
        except BaseException:
            await folder.close()
            raise
        return folder

    async def close(self) -> None:
        """Leave the folder, when nothing watches it any more."""
        for task in self._tasks:
            task.cancel()
        await self._thread.close()
        self._shared.close()
        self._lock.close()

    # State

    @property
    def is_down(self) -> bool:
        return self._shared.is_down

    @property
    def is_shared(self) -> bool:
        return bool(self._others)

    @property
    def are_offers_complete(self) -> bool:
        return all(self._shared.has_offered(member) for member in self._others)

    def mark_offered(self) -> None:
        self._shared.mark_offered(self._member)

    @property
    def may_have_rows(self) -> bool:
        return self.counts.waiting > 0 or self._shared.changes() != self._seen_changes

    async def _refresh(self) -> None:
        """Count the rows, and the processes."""

        def count(db: sqlite3.Connection) -> tuple[int, JournalCounts, tuple[int, ...]]:
            # Read first: what changes meanwhile is seen as a change again.
            changes = self._shared.changes()
            return changes, files.count_rows(db), tuple(living_members(self._path, but=self._member))

        self._seen_changes, self.counts, self._others = await self._thread.run(count)

    # Revisions

    def note(self, key: bytes, revision: int, incarnation: str) -> None:
        self._shared.note(key, revision, incarnation)

    def is_current(self, key: bytes, revision: int, incarnation: str) -> bool:
        return self._shared.is_current(key, revision, incarnation)

    def is_noted(self, key: bytes) -> bool:
        return self._shared.is_noted(key)

    # Rows and records

    async def read_session(self, key: bytes, first: int = 0) -> JournaledSession | None:
        session = await self._thread.run(lambda db: files.read_session(db, key, first))
        if session is None or session.rows or self.is_current(key, session.base.revision, session.base.incarnation):
            return session
        return None

    async def fenced_keys(self) -> tuple[bytes, ...]:
        return await self._thread.run(files.fenced_keys)

    async def offer(self, offers: Sequence[Offer]) -> None:
        def put(db: sqlite3.Connection) -> None:
            if self._shared.is_down:
                current = [one for one in offers if self.is_current(one.key, one.base.revision, one.base.incarnation)]
                files.put_offers(db, current)

        await self._thread.run(put)

    async def append(self, key: bytes, site: Scope, base: StoredBase, row: StoredRow) -> bool:
        return await self._thread.run(lambda db: self._shared.is_down and files.append_row(db, key, site, base, row))

    async def remove(self, key: bytes, through: int, base: StoredBase) -> None:
        await self._thread.run(lambda db: files.remove_rows(db, key, through, base))

    async def set_aside(self, key: bytes, row: StoredRow, reason: str, now: int) -> None:
        await self._thread.run(lambda db: files.set_row_aside(db, key, row, reason, now))

    async def users_aside(self) -> tuple[tuple[Scope, str], ...]:
        return await self._thread.run(files.users_aside)

    async def purge(self, before: int) -> None:
        await self._thread.run(lambda db: files.purge_rows(db, before))

    async def keys_of_user(self, site: Scope, user: str) -> tuple[bytes, ...]:
        return await self._thread.run(lambda db: files.keys_of_user(db, site, user, ALWAYS))

    async def erase(self, site: Scope, user: str, until: int) -> int:
        return await self._thread.run(lambda db: files.erase_user(db, site, user, until))

    # Locks

    async def lock(self, key: bytes) -> bool:
        if key in self._locked:
            return False
        self._locked.add(key)
        is_locked = False
        try:
            is_locked = await self._thread.run(
                lambda db: files.try_lock(db, key, self._name, partial(self._is_gone, db))
            )
        finally:
            if not is_locked:
                self._locked.discard(key)
        return is_locked

    def _is_gone(self, db: sqlite3.Connection, holder: str) -> bool:
        member = files.member_of(db, holder)
        return member is None or not is_alive(self._path, member)

    async def unlock(self, key: bytes) -> None:
        self._locked.discard(key)
        try:
            await self._thread.run(lambda db: files.release(db, key, self._name))
        except Unavailable:
            self._unlock_later.add(key)
            raise

    # Agreement

    def ask(self) -> None:
        self._asked = self._shared.ask()

    def vote(self, is_away: bool) -> None:
        self._shared.vote(self._member, is_away)

    async def is_agreed(self) -> bool | None:
        return await self._thread.run(self._count_votes)

    def _count_votes(self, db: sqlite3.Connection) -> bool | None:
        """Inside a transaction, so that a reopening comes before or after."""
        shared = self._shared
        if shared.is_down:
            return True
        votes = [shared.vote_of(member) for member in living_members(self._path, but=self._member)]
        votes.append(shared.vote_of(self._member))
        if False in votes:
            return False
        if None in votes:
            return None
        # Those of an earlier outage, should they have been left.
        files.drop_offers(db)
        shared.go_down()
        return True

    async def reopen(self) -> None:
        try:
            await self._thread.run(self._reopen)
        except Unavailable as error:
            if is_locked(error):
                raise  # A process may be about to add a row.
            # Nothing can be written here, and calls need not fail for that while the store answers.
            self._shared.go_up()
            raise
        await self._refresh()

    def _reopen(self, db: sqlite3.Connection) -> None:
        self._shared.go_up()
        files.drop_offers(db)

    # What the others do

    async def watch(self, on_asked: Callback, on_change: Callback) -> None:
        was_down, known_joins, shared = False, -1, self._shared
        while True:
            # Read first: what changes meanwhile is seen as a change again.
            is_down, joins = shared.is_down, shared.joins
            try:
                if shared.changes() != self._seen_changes or joins != known_joins:
                    await self._refresh()
                await self._unlock_late()
            except Unavailable as error:
                _log.warning("the journal cannot be used: %s", error)
            if shared.epoch != self._asked:
                self._asked = shared.epoch
                self._spawn(on_asked)
            if is_down != was_down or (is_down and joins != known_joins):
                self._spawn(on_change)
            was_down, known_joins = is_down, joins
            await asyncio.sleep(_POLL)

    async def _unlock_late(self) -> None:
        for key in tuple(self._unlock_later):
            self._unlock_later.discard(key)
            if key not in self._locked:
                await self.unlock(key)

    def _spawn(self, callback: Callback) -> None:
        task = run_in_background(callback(), "journal vote")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _join(path: Path) -> tuple[sqlite3.Connection, SharedMemory, int, sqlite3.Connection, str]:
    """Become a member. The first one begins with empty shared memory, and without records that nothing waits behind:
    others may have changed these sessions since."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(str(path))
    db = files.connect(path)
    shared = SharedMemory(path / "shared")
    lock: sqlite3.Connection | None = None
    try:
        db.execute("BEGIN IMMEDIATE")
        if not living_members(path):
            shared.reset()
            files.drop_offers(db)
        member, lock = acquire_member(path)
        shared.map()
        shared.join(member)
        name = files.enter_member(db, member, secrets.token_hex(8))
        db.execute("COMMIT")
    except BaseException:
        shared.close()
        for connection in (lock, db):
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.close()
        raise
    return db, shared, member, lock, name
