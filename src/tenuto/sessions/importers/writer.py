"""Writes what readers found: each session whole or not at all, and none twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeAlias

from msgspec.structs import replace

from tenuto.errors import Invalid, LimitReached, MemoryNotFound, SessionExists, SessionNotFound
from tenuto.model import Draft, Scope
from tenuto.model.memory import Memory, MemoryKind
from tenuto.model.values import Value
from tenuto.recall.service import Memories
from tenuto.sessions.importers.records import FoundMemory, FoundSession, Record, Skipped
from tenuto.sessions.limits import check_messages
from tenuto.sessions.service import Sessions

CountTokens: TypeAlias = Callable[[tuple[Draft, ...]], tuple[Draft, ...]]
_END: Final = object()


class ImportReport(Value, frozen=True, kw_only=True):
    """How much was imported, was there already (`existing` sessions and memories), and was `skipped`, by reason."""

    sessions: int = 0
    messages: int = 0
    memories: int = 0
    existing: int = 0
    skipped: dict[str, int] = {}


async def import_records(
    records: Iterator[Record],
    *,
    scope: Scope,
    sessions: Sessions,
    memories: Callable[[], Awaitable[Memories]],
    count_tokens: CountTokens = lambda drafts: drafts,
    dry_run: bool = False,
    on_progress: Callable[[int], None] = lambda _: None,
) -> ImportReport:
    """Import records of a reader for the scope; as the tenant itself, for the users that the source names.

    A session keeps the id that it has in the source, so that a second import finds it and adds nothing. In a `dry_run`
    nothing is written. `on_progress` gets the number of records so far.
    """
    importer = _Importer(scope, sessions, memories, count_tokens, dry_run)
    done = 0
    # In a thread, since readers wait for the disk; one record at a time is in memory.
    while (record := await asyncio.to_thread(next, records, _END)) is not _END:
        await importer.take(record)
        done += 1
        on_progress(done)
    return importer.report()


class _Importer:
    def __init__(
        self,
        scope: Scope,
        sessions: Sessions,
        memories: Callable[[], Awaitable[Memories]],
        count_tokens: CountTokens,
        dry_run: bool,
    ) -> None:
        self._scope = scope
        self._sessions = sessions
        self._memories = memories
        self._count_tokens = count_tokens
        self._dry_run = dry_run
        self._counts: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()

    def report(self) -> ImportReport:
        """The counts so far."""
        names = ("sessions", "messages", "memories", "existing")
        return ImportReport(**{name: self._counts[name] for name in names}, skipped=dict(self._skipped))

    async def take(self, record: object) -> None:
        """Import one record, or count why not."""
        match record:
            case Skipped():
                self._skipped[f"{record.kind}: {record.reason}"] += record.count
            case FoundSession():
                await self._take_session(record)
            case FoundMemory():
                await self._take_memory(record)

    async def _take_session(self, found: FoundSession) -> None:
        if not found.saved.messages:
            self._skipped["session: it has no messages"] += 1
            return
        try:
            stored = await (self._try_session(found) if self._dry_run else self._write_session(found))
        except SessionExists:
            self._counts["existing"] += 1
        except (Invalid, LimitReached) as error:
            self._skipped[f"session: {error.code}"] += 1
        else:
            self._counts.update(sessions=1, messages=stored)
            if stored < len(found.saved.messages):
                self._skipped["message: older than max_messages keeps"] += len(found.saved.messages) - stored

    async def _write_session(self, found: FoundSession) -> int:
        """Store it; returns how many of its messages are kept."""
        check_messages(found.saved.messages, self._sessions.policy)
        saved = replace(found.saved, messages=self._count_tokens(found.saved.messages))
        return (await self._sessions.restore(self._scope, saved, session_id=found.id)).messages

    async def _try_session(self, found: FoundSession) -> int:
        """How many of its messages would be kept."""
        check_messages(found.saved.messages, self._sessions.policy)
        try:
            await self._sessions.get(self._scope, found.id)
        except SessionNotFound:
            most = self._sessions.policy.retention.max_messages
            return min(len(found.saved.messages), most or len(found.saved.messages))
        raise SessionExists(found.id)

    async def _take_memory(self, found: FoundMemory) -> None:
        owner = self._scope if self._scope.owner else replace(self._scope, user=found.user)
        memories = await self._memories()
        if not memories.policy.covers(owner):
            self._skipped["memory: it belongs to no user"] += 1
            return
        try:
            await memories.get(owner, found.id)
        except MemoryNotFound:
            await self._add_memory(memories, owner, found)
        else:
            self._counts["existing"] += 1

    async def _add_memory(self, memories: Memories, owner: Scope, found: FoundMemory) -> None:
        try:
            memory = Memory(id=found.id, kind=MemoryKind.FACT, text=found.text, said_at=found.said_at)
            kept = (memory,) if self._dry_run else await memories.remember(owner, (memory,))
        except Invalid as error:
            self._skipped[f"memory: {error.code}"] += 1
            return
        if kept:
            self._counts["memories"] += 1
        else:
            self._skipped["memory: private data"] += 1
