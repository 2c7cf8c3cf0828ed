"""The log of a thread: a session whose entries are records, and a cache of its newest checkpoints.

A cached namespace is brought up to date before each use by the newest page of the session, which the store's own cache
usually has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from tenuto.app import Tenuto
from tenuto.client.api import TenutoApi
from tenuto.compare_and_set import write_if_unchanged
from tenuto.errors import Invalid, SessionNotFound
from tenuto.integrations.langgraph.projection import Dump, Load, Projection, State
from tenuto.integrations.langgraph.records import Put, Record, Snapshot, Writes, from_message, to_draft, to_part
from tenuto.lru_cache import LruCache
from tenuto.model import AppendBatch, Message, NewSession, Page, Rewrite, Scope, Session, SessionQuery, Truncation
from tenuto.ports import utc_now
from tenuto.sessions import derived_id, fresh_id

THREAD: Final = "langgraph_thread"
"""The key of a session's metadata that holds the id of its thread."""
_TITLE_CHARACTERS: Final = 80
_TAIL: Final = 16
_CHUNK: Final = 500
_MOST_IDS: Final = 1024
_MOST_CACHED: Final = 1024
_MOST_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class CachedProjection:
    """A namespace of a thread, with the number of messages that its session had then."""

    projection: Projection
    messages: int

    def precedes(self, session: Session) -> bool:
        """Whether the session has only grown since."""
        growth = session.last_seq - self.projection.last_seq
        return session.incarnation == self.projection.incarnation and session.messages - self.messages == growth


class ProjectionCache(LruCache[tuple[str, ...], CachedProjection]):
    """The newest checkpoints of threads that were used lately. One that has grown is to be put again."""

    def __init__(self) -> None:
        super().__init__(_MOST_CACHED, most_weight=_MOST_BYTES, weigh=lambda entry: entry.projection.memory_bytes())


def in_process(app: TenutoApi) -> Tenuto:
    """The installation of this process.

    Raises:
        Invalid: it is a server's, whose routes do not have what LangGraph needs.
    """
    if not isinstance(app, Tenuto):
        raise Invalid("LangGraph's checkpoints and items need a store that this process opens, not a server")
    return app


def session_id_of(scope: Scope, thread_id: str) -> str:
    """The session of a thread. Two users' threads of the same name are different ones."""
    return derived_id("lg-", *scope.owner, thread_id)


@dataclass(slots=True)
class History:
    """Every checkpoint of a thread, by namespace and id, with the entry of the log that holds it, and all writes."""

    session: Session
    entries: list[tuple[Message, Record | None]] = field(default_factory=list)
    states: dict[str, dict[str, State]] = field(default_factory=dict)
    heads: dict[str, State] = field(default_factory=dict)
    writes: dict[tuple[str, str], list[Writes]] = field(default_factory=dict)


class ThreadLogs:
    """The logs of the threads of one scope."""

    def __init__(self, app: Tenuto, scope: Scope, cache: ProjectionCache) -> None:
        self._app = app
        self._scope = scope
        self._sessions = app.store.sessions
        self._cache = cache
        self._ids: dict[str, str] = {}
        # Sessions that were there a while ago: they need no initial values, which the privacy policy looks at.
        self._created: set[str] = set()
        self._retention = replace(app.policies.sessions.retention, max_messages=None, max_turns=None)

    def session_id(self, thread_id: str) -> str:
        """The session of a thread."""
        name = self._ids.get(thread_id)
        if name is None:
            if len(self._ids) >= _MOST_IDS:
                self._ids.clear()
                self._created.clear()
            name = self._ids[thread_id] = session_id_of(self._scope, thread_id)
        return name

    # Reading

    async def newest(self, thread_id: str, ns: str, load: Load) -> Projection | None:
        """A namespace of a thread as it is stored now; `None` without the thread."""
        session_id, key = self.session_id(thread_id), self._key(thread_id, ns)
        try:
            page = await self._sessions.messages(self._scope, session_id, Page(limit=_TAIL))
            entry = self._cache.get(key)
            if entry is None or not entry.precedes(page.session):
                return await self._load(session_id, key, ns, load)
            missing = page.session.last_seq - entry.projection.last_seq
            if missing > len(page.messages):
                if missing > _CHUNK:
                    return await self._load(session_id, key, ns, load)
                page = await self._sessions.messages(self._scope, session_id, Page(limit=_CHUNK))
        except SessionNotFound:
            self._cache.pop(key)
            return None
        if missing > 0:
            _apply(entry, page.session, page.messages, ns)
            self._cache.put(key, entry)
        return entry.projection

    async def _load(self, session_id: str, key: tuple[str, ...], ns: str, load: Load) -> Projection:
        """Read the log back to the newest snapshot, or to its beginning."""
        messages: list[Message] = []
        session: Session | None = None
        projection: Projection | None = None
        before: int | None = None
        while projection is None:
            page = await self._sessions.messages(self._scope, session_id, Page(limit=_CHUNK, before=before))
            session = session or page.session
            messages[:0] = page.messages
            projection = _base(messages, ns, load, session.incarnation, is_complete=not page.more_before)
            before = messages[0].seq if messages else None
        assert session is not None
        entry = CachedProjection(projection, 0)
        _apply(entry, session, messages, ns)
        self._cache.put(key, entry)
        return projection

    async def history(self, thread_id: str, load: Load, only: tuple[str, str] | None = None) -> History | None:
        """The whole thread, or what one checkpoint of a namespace needs and its writes; `None` without the thread."""
        history: History | None = None
        projections: dict[str, Projection] = {}
        try:
            async for session, message in self._all(self.session_id(thread_id)):
                history = history or History(session)
                history.session = session
                record = from_message(message)
                if only is None:
                    history.entries.append((message, record))
                elif record is not None and not _is_for(record, *only, history):
                    continue
                _add_to_history(history, projections, message.seq, record, load)
        except SessionNotFound:
            return None
        return history

    async def _all(self, session_id: str) -> AsyncIterator[tuple[Session, Message]]:
        after, more = 0, True
        while more:
            page = await self._sessions.messages(self._scope, session_id, Page(limit=_CHUNK, after=after))
            for message in page.messages:
                yield page.session, message
            more = page.more_after
            after = page.messages[-1].seq if page.messages else after

    async def threads(self) -> AsyncIterator[str]:
        """The ids of the scope's threads, latest change first."""
        cursor: str | None = None
        while True:
            page = await self._sessions.list(self._scope, SessionQuery(limit=100, cursor=cursor))
            for session in page.sessions:
                thread_id = session.metadata.get(THREAD)
                if isinstance(thread_id, str) and session.id == self.session_id(thread_id):
                    yield thread_id
            cursor = page.cursor
            if cursor is None:
                return

    # Writing

    def due_snapshot(self, thread_id: str, ns: str, dump: Dump) -> Snapshot | None:
        """What the next checkpoint should carry, so that reading the thread stays short."""
        entry = self._cache.get(self._key(thread_id, ns))
        return entry.projection.snapshot(dump) if entry is not None and entry.projection.wants_snapshot() else None

    async def append(
        self, thread_id: str, record: Record, load: Load, lists: Mapping[str, Sequence[Any]] | None = None
    ) -> str:
        """Append a record in one atomic step, whatever other writers append meanwhile.

        Returns the incarnation of the session that has it.
        """
        session = await self.append_all(thread_id, (record,))
        key, seq = self._key(thread_id, record.ns), session.last_seq
        entry = self._cache.get(key)
        if entry is None and seq == 1:
            entry = CachedProjection(Projection(load, session.incarnation), 0)
        if (
            entry is not None
            and entry.projection.incarnation == session.incarnation
            and entry.projection.last_seq + 1 == seq
        ):
            entry.projection.apply(seq, record, lists)
            entry.messages = session.messages
            self._cache.put(key, entry)
        return session.incarnation

    async def append_all(self, thread_id: str, records: Sequence[Record]) -> Session:
        """Append records in one atomic step; the first ones of a thread create its session."""
        drafts = tuple(to_draft(record, utc_now) for record in records)
        batch = AppendBatch(id=fresh_id(), messages=drafts)
        session_id = self.session_id(thread_id)
        if session_id in self._created:
            with suppress(SessionNotFound):  # It was deleted, or has expired.
                return (await self._sessions.append(self._scope, session_id, batch)).session
        title = " ".join(thread_id.split())[:_TITLE_CHARACTERS]
        create = NewSession(retention=self._retention, title=title, metadata={THREAD: thread_id})
        result = await self._sessions.append(self._scope, session_id, replace(batch, create=create))
        self._created.add(session_id)
        return result.session

    async def keep_only(self, history: History, replacements: Mapping[int, Record | None]) -> bool:
        """Remove all entries but those at these sequence numbers; a record given there replaces the stored one.

        False if the thread has changed meanwhile: nothing was removed then.
        """
        session = history.session
        replaced_messages = tuple(
            replace(message, parts=(to_part(new),))
            for message, _ in history.entries
            if (new := replacements.get(message.seq)) is not None
        )
        if replaced_messages:
            # They say the same as before, so a failure of the next step does no harm.
            change = Rewrite(messages=replaced_messages, if_version=session.version)
            rewritten = await write_if_unchanged(self._sessions.rewrite(self._scope, session.id, change))
            if rewritten is None:
                return False
            session = rewritten
        truncation = Truncation(after=0, keep_seqs=tuple(replacements), if_version=session.version)
        return await write_if_unchanged(self._sessions.truncate(self._scope, session.id, truncation)) is not None

    async def delete(self, thread_id: str) -> None:
        """Remove the session of a thread, if there is one."""
        try:
            await self._app.sessions.delete(self._scope, self.session_id(thread_id))
        except SessionNotFound:
            return

    def _key(self, thread_id: str, ns: str) -> tuple[str, ...]:
        return (self._scope.tenant, self._scope.site, self.session_id(thread_id), ns)


def _apply(entry: CachedProjection, session: Session, messages: Sequence[Message], ns: str) -> None:
    """Add what follows to a cached namespace; without a wait, so that callers do not get into each other's way."""
    for message in messages:
        if message.seq > entry.projection.last_seq:
            record = from_message(message)
            if record is not None and record.ns == ns:
                entry.projection.apply(message.seq, record)
    if entry.projection.last_seq <= session.last_seq:
        entry.projection.last_seq, entry.messages = session.last_seq, session.messages


def _base(
    messages: Sequence[Message], ns: str, load: Load, incarnation: str, *, is_complete: bool
) -> Projection | None:
    """The fold that the messages continue; `None` if they do not reach back to a snapshot."""
    for message in reversed(messages):
        record = from_message(message)
        snapshot = record.snapshot if isinstance(record, Put) and record.ns == ns else None
        # A run that goes on after its thread was deleted may have brought one of the deleted session.
        if snapshot is not None and snapshot.incarnation == incarnation:
            return (
                Projection.from_snapshot(load, snapshot) if messages[0].seq <= snapshot.seq + 1 or is_complete else None
            )
    return Projection(load, incarnation) if is_complete else None


def _is_for(record: Record, ns: str, checkpoint_id: str, history: History) -> bool:
    """Whether a record has to do with a checkpoint: it comes before, or belongs to it."""
    before = isinstance(record, Put) and checkpoint_id not in history.states.get(ns, {})
    return record.ns == ns and (before or record.id == checkpoint_id)


def _add_to_history(
    history: History, projections: dict[str, Projection], seq: int, record: Record | None, load: Load
) -> None:
    if record is None:
        return
    projection = projections.setdefault(record.ns, Projection(load, history.session.incarnation))
    state = projection.apply(seq, record)
    if projection.head is not None:
        history.heads[record.ns] = projection.head
    if isinstance(record, Writes):
        history.writes.setdefault((record.ns, record.id), []).append(record)
    elif state is not None and state.put.id == record.id:
        history.states.setdefault(record.ns, {})[record.id] = state
