"""Sessions: limits, waiting, access and events on top of the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import datetime
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from tenuto.compare_and_set import retry_on_conflict
from tenuto.errors import Invalid, SessionCorrupt, SessionForeign, SessionNotFound, Unavailable
from tenuto.model import (
    AppendBatch,
    AppendResult,
    Attachment,
    Changes,
    Content,
    Draft,
    EraseResult,
    FinishTurn,
    ForkRequest,
    IdempotencyKey,
    Message,
    MessagePage,
    NewSession,
    OpenTurn,
    Page,
    Rewrite,
    Scope,
    SearchPage,
    SearchQuery,
    Session,
    SessionPage,
    SessionQuery,
    SessionStats,
    Truncation,
)
from tenuto.model.policy import OnMissing, SessionPolicy
from tenuto.model.session import CONTEXT_SINCE, PARTNER, PRIVACY_ALSO, Status, check_attribute_name
from tenuto.model.turn import RunningTurn, TurnState
from tenuto.model.values import Json, check_id, check_int, check_text, check_type
from tenuto.pauses import pause_exactly_until
from tenuto.ports import Clock, SessionStore, StoreUpkeep, utc_now
from tenuto.sessions.ageing import list_sessions, mark_stale, search_sessions, with_current_status
from tenuto.sessions.assistant_cap import AssistantCap
from tenuto.sessions.attachments import AttachmentLimits, prepare_contents
from tenuto.sessions.events import EventEmitter, EventKind
from tenuto.sessions.ids import digest_of, fresh_id, session_id_for_name
from tenuto.sessions.lease import begin_when_free, release_on_error
from tenuto.sessions.limits import check_head_size, check_message_sizes, check_messages, with_retention
from tenuto.sessions.media_parts import brings_media
from tenuto.sessions.requests import AppendRequest, TurnRequest
from tenuto.sessions.transfer import ExportedSession, import_as, with_exported_contents

_Result = TypeVar("_Result")
_log = logging.getLogger(__name__)
# Longer than any store takes to find that a session does not exist or belongs to another user.
_EVEN_SECONDS = 0.005
_MOST_REMOVED: Final = 2**31
_MESSAGES: Final = ("messages",)


class Sessions:
    """The sessions of an installation, under one `policy` unless a request has its own."""

    def __init__(
        self,
        *,
        store: SessionStore,
        upkeep: StoreUpkeep,
        policy: SessionPolicy,
        events: EventEmitter,
        clock: Clock = utc_now,
    ) -> None:
        self._store = store
        self._clock = clock
        self._upkeep = upkeep
        self.policy = policy
        self._events = events
        self._assistant_cap = AssistantCap(store=store, clock=clock)
        self._attachments = AttachmentLimits(store=store, upkeep=upkeep)

    # Turns

    async def begin(self, scope: Scope, request: TurnRequest) -> OpenTurn:
        """Open a turn: find or create its session by the policy's `on_missing`, and wait a while if it is busy.

        Raises:
            SessionNotFound: there is no such session for this caller, and the policy creates none.
            SessionBusy: another turn still ran when the wait was over.
            SessionElsewhere: another process still held turns of the session when the wait was over.
            TooLarge: a message, or the initial values of a new session, are above the size limit.
        """
        check_type(scope, Scope, "scope")
        check_type(request, TurnRequest, "the request")
        policy = request.policy or self.policy
        # `BeginTurn` itself checks everything but the size.
        begin = request.to_begin_turn(scope, policy)
        check_message_sizes(request.user_messages, policy)
        messages = await self._attachments.prepare(scope, begin.session_id, begin.user_messages, policy)
        begin = begin if messages is begin.user_messages else replace(begin, user_messages=messages)
        try:
            turn = await begin_when_free(self._store, scope, begin, policy.busy_wait, request)
        except SessionNotFound as error:
            await self._events.emit_refused(scope, begin.session_id, error)
            if request.session_id is not None and policy.on_missing is OnMissing.ERROR:
                raise
            if not isinstance(error, SessionCorrupt):
                # A corrupt session is quarantined by now, so its id is free.
                # An adopted id is a name: under another user's, this caller has one session, not one for each turn.
                name = request.session_id if policy.on_missing is OnMissing.ADOPT else None
                begin = replace(begin, session_id=session_id_for_name(scope, name or request.idempotency_key or None))
            begin = replace(begin, create=with_retention(request.new_session, policy))
            turn = await begin_when_free(self._store, scope, begin, policy.busy_wait, request)
        if turn.state is not TurnState.FINISHED:
            announcing = self._announce_written(scope, turn.session, policy, created=turn.created, expired=turn.expired)
            await release_on_error(self._store.finish_turn, turn, announcing)
            turn = mark_stale(turn, policy.stale_after)
        return turn

    async def finish(self, turn: OpenTurn, request: FinishTurn, policy: SessionPolicy | None = None) -> AppendResult:
        """Store the reply and release the session, under the policy the turn began with.

        Raises:
            TurnLost: another turn took over; the user message stays stored.
            TooLarge: a message, or the head with the turn's changes, is above the size limit; the turn goes on.
        """
        check_type(turn, OpenTurn, "the turn")
        policy = policy or self.policy
        if turn.session.status is Status.INACTIVE:
            changes = request.changes or Changes()
            if changes.status is msgspec.UNSET:
                request = replace(request, changes=replace(changes, status=Status.ACTIVE))
        if turn.stale_before:
            changes = request.changes or Changes()
            if changes.window_start is msgspec.UNSET:
                request = replace(request, changes=replace(changes, window_start=turn.stale_before))
        # `FinishTurn` itself has checked everything but the size.
        check_message_sizes(request.reply, policy)
        if any(draft.contents for draft in request.reply):
            request = replace(request, reply=await prepare_contents(turn.scope, request.reply, policy))
        if request.changes is not None and request.changes.sets_values:
            await self._check_growth(turn, request.changes, policy)
        result = await self._store.finish_turn(turn, request)
        if not result.duplicate:
            changed = (*_MESSAGES, *(request.changes.fields if request.changes is not None else ()))
            await self._events.emit_event(EventKind.UPDATED, result.session.scope, result.session.id, changed=changed)
        return result

    async def check_attachments(self, scope: Scope, session_id: str, drafts: Sequence[Draft]) -> None:
        """Refuse contents that `append` would refuse: for messages of others that the end of a turn stores.

        Raises:
            Invalid: a type is not taken.
            AttachmentLimit: there would be too many, or too many bytes.
        """
        await self._attachments.check(scope, session_id, drafts, self.policy)

    async def renew(self, turn: OpenTurn) -> OpenTurn:
        """Extend the lease of a long turn."""
        check_type(turn, OpenTurn, "the turn")
        return await self._store.renew_turn(turn)

    async def running_turn(self, scope: Scope, session_id: str) -> RunningTurn | None:
        """The turn that holds a session, in any process; also one whose process is gone, until another replaces it."""
        return await self._store.running_turn(scope, session_id)

    async def append(self, scope: Scope, session_id: str, request: AppendRequest) -> AppendResult:
        """Append messages to a session that exists, by the caller's key or producer number at most once."""
        check_type(scope, Scope, "scope")
        check_type(request, AppendRequest, "the request")
        batch = request.to_batch()
        check_message_sizes(request.messages, self.policy)
        messages = await self._attachments.prepare(scope, session_id, batch.messages, self.policy)
        batch = batch if messages is batch.messages else replace(batch, messages=messages)
        result = await self._with_even_timing(scope, session_id, self._store.append(scope, session_id, batch))
        if not result.duplicate:
            await self._events.emit_event(EventKind.UPDATED, scope, session_id, changed=_MESSAGES)
        return result

    # Heads

    async def create(
        self,
        scope: Scope,
        new: NewSession | None = None,
        session_id: str | None = None,
        idempotency_key: str | None = None,
        fingerprint: str | None = None,
        policy: SessionPolicy | None = None,
    ) -> tuple[Session, bool]:
        """Create a session, or return the caller's own of that id; the flag says whether it is new.

        An id that belongs to another user is not reported as taken: the caller gets another id, derived from owner and
        id (A8). The same `idempotency_key` creates one session.

        Raises:
            IdempotencyKeyReused: the key came before with other values.
        """
        check_type(scope, Scope, "scope")
        if new is not None:
            check_type(new, NewSession, "what the session starts with")
        if idempotency_key is not None:
            check_text(idempotency_key, "the key")
        if session_id:
            check_id(session_id, "the session id")
        policy = policy or self.policy
        fallback_id = session_id_for_name(scope, session_id or idempotency_key or None)
        target_id = session_id or fallback_id
        if session_id is not None:
            try:
                return await self._store.get(scope, target_id), False
            except SessionNotFound as error:
                await self._events.emit_refused(scope, target_id, error)
                if isinstance(error, SessionForeign):
                    target_id = fallback_id
        request_key = (
            IdempotencyKey(key=idempotency_key, fingerprint=fingerprint or digest_of(new)) if idempotency_key else None
        )
        batch = AppendBatch(id=fresh_id(), create=with_retention(new, policy), idempotency_key=request_key)
        result = await self._create_in_store(scope, target_id, batch, fallback_id)
        if not result.duplicate:
            await self._announce_written(scope, result.session, policy, created=result.created, expired=result.expired)
        return result.session, result.created

    async def _create_in_store(
        self, scope: Scope, target_id: str, batch: AppendBatch, fallback_id: str
    ) -> AppendResult:
        try:
            return await self._store.append(scope, target_id, batch)
        except SessionNotFound as error:
            # Another caller has taken the id meanwhile; or a corrupt session was there and is quarantined by now.
            await self._events.emit_refused(scope, target_id, error)
            if not isinstance(error, SessionCorrupt):
                target_id = fallback_id if fallback_id != target_id else fresh_id()
            return await self._store.append(scope, target_id, batch)

    async def get(self, scope: Scope, session_id: str) -> Session:
        """The session's head."""
        check_type(scope, Scope, "scope")
        session = await self._with_even_timing(scope, session_id, self._store.get(scope, session_id))
        return self._with_current_status(session)

    async def find_named(self, scope: Scope, name: str) -> str:
        """The id of the caller's session of this name: the name, or the id derived from owner and name that the session
        has where the name is another user's id. The name, too, if the caller has neither, or the store is away."""
        try:
            return await self._with_even_timing(scope, name, self._first_own(scope, name))
        except (SessionNotFound, Unavailable):
            return name

    async def _first_own(self, scope: Scope, name: str) -> str:
        try:
            return (await self._store.get(scope, name)).id
        except SessionCorrupt:
            raise
        except (SessionNotFound, Unavailable):
            return (await self._store.get(scope, session_id_for_name(scope, name))).id

    async def messages(self, scope: Scope, session_id: str, query: Page | None = None) -> MessagePage:
        """A page of its messages, oldest first; by default the newest page."""
        check_type(scope, Scope, "scope")
        query = Page() if query is None else query
        check_type(query, Page, "the page")
        page = await self._with_even_timing(scope, session_id, self._store.messages(scope, session_id, query))
        return replace(page, session=self._with_current_status(page.session))

    async def iter_pages(self, scope: Scope, session: Session, size: int = 200) -> AsyncIterator[tuple[Message, ...]]:
        """All messages up to the head's `last_seq`, page by page."""
        after = 0
        while after < session.last_seq:
            page = await self.messages(scope, session.id, Page(limit=size, after=after))
            yield tuple(message for message in page.messages if message.seq <= session.last_seq)
            if not page.more_after:
                return
            after = page.messages[-1].seq

    async def list(self, scope: Scope, query: SessionQuery | None = None) -> SessionPage:
        """The caller's sessions, latest change first. A page may have fewer than its limit and still a cursor."""
        check_type(scope, Scope, "scope")
        query = SessionQuery() if query is None else query
        check_type(query, SessionQuery, "the query")
        return await list_sessions(self._store, scope, query, self._with_current_status, self.policy)

    async def search(self, scope: Scope, query: SearchQuery | str) -> SearchPage:
        """The caller's sessions that have all words of a text in their titles and messages, latest change first.

        Words count without their endings, and those that carry no subject do not count. Of Chinese, each character
        counts with one of its neighbours. Where no session has the words, the newest whose titles contain the text as
        it is are found: it may be the beginning of a word.

        Raises:
            SearchOff: `session_search` is off; `list` finds titles all the same.
        """
        check_type(scope, Scope, "scope")
        query = SearchQuery(text=query) if isinstance(query, str) else query
        check_type(query, SearchQuery, "the query")
        return await search_sessions(self._store, scope, query, self._with_current_status, self.policy)

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        """Change title, status, context, attributes or metadata.

        Raises:
            TooLarge: context, attributes and metadata would grow beyond the size limit.
        """
        check_type(scope, Scope, "scope")
        check_type(changes, Changes, "the changes")
        patching = self._patch_within_limit(scope, session_id, changes)
        return await self._change(scope, session_id, patching, changes.fields)

    async def set_attribute(self, scope: Scope, session_id: str, name: str, value: Json) -> bool:
        """Set one attribute; returns False if there is no such session (B14)."""
        check_attribute_name(name)
        try:
            await self.patch(scope, session_id, Changes(attributes={name: value}))
        except SessionNotFound:
            return False
        return True

    async def get_attribute(self, scope: Scope, session_id: str, name: str) -> Json:
        """One attribute, `None` when it or its session is absent (B14)."""
        try:
            return (await self.get(scope, session_id)).attributes.get(name)
        except SessionNotFound:
            return None

    async def reset(self, scope: Scope, session_id: str, *, context_since: datetime | None = None) -> Session:
        """Remove the messages and keep the session with its assistant; a running turn is lost.

        What others wrote in a chat before `context_since`, by default now, is no context any more.
        """
        check_type(scope, Scope, "scope")
        return await self._change(scope, session_id, self._reset(scope, session_id, context_since or self._clock()))

    async def _reset(self, scope: Scope, session_id: str, context_since: datetime) -> Session:
        session = await self._store.reset(scope, session_id, keep_metadata=(*PARTNER, PRIVACY_ALSO))
        if session.scope.chat is None:
            return session
        # The platform still lists what was said there.
        return await self._store.patch(scope, session_id, Changes(metadata={CONTEXT_SINCE: context_since.isoformat()}))

    async def truncate(self, scope: Scope, session_id: str, request: Truncation) -> Session:
        """Remove what follows a message, except for the messages numbered in `keep_seqs`.

        A running turn is lost, unless it is `within_turn`.

        Raises:
            VersionConflict: the session has changed since `if_version`; nothing was removed.
            TurnLost: `within_turn` has lost its lease; nothing was removed.
        """
        check_type(scope, Scope, "scope")
        check_type(request, Truncation, "the truncation")
        return await self._change(scope, session_id, self._store.truncate(scope, session_id, request))

    async def rewrite(self, scope: Scope, session_id: str, request: Rewrite) -> Session:
        """Replace the text of stored messages; a running turn goes on.

        No size limit applies: a placeholder may be longer than the private value.
        """
        check_type(scope, Scope, "scope")
        check_type(request, Rewrite, "the rewriting")
        return await self._change(scope, session_id, self._store.rewrite(scope, session_id, request))

    async def fork(
        self, scope: Scope, session_id: str, at: int | None = None, new_id: str | None = None, title: str | None = None
    ) -> Session:
        """Copy a session up to a message into a new one.

        Raises:
            SessionExists: the caller has a session of that id already.
        """
        check_type(scope, Scope, "scope")
        request = ForkRequest(new_id=new_id or fresh_id(), at=at, title=title)
        try:
            fork = await self._store.fork(scope, session_id, request)
        except SessionNotFound as error:
            await self._events.emit_refused(scope, error.session_id, error)
            if error.session_id != request.new_id:
                raise
            fork = await self._store.fork(scope, session_id, replace(request, new_id=fresh_id()))
        await self._announce_written(scope, fork, self.policy, created=True, expired=False)
        return fork

    async def delete(self, scope: Scope, session_id: str) -> None:
        """Remove the session and everything of it."""
        check_type(scope, Scope, "scope")
        await self._with_even_timing(scope, session_id, self._store.delete(scope, session_id))
        await self._events.emit_event(EventKind.DELETED, scope, session_id)

    async def attachments(self, scope: Scope, session_id: str) -> tuple[Attachment, ...]:
        """What is known of the session's attachments, in the order in which they came."""
        check_type(scope, Scope, "scope")
        return await self._with_even_timing(scope, session_id, self._store.attachments(scope, session_id))

    async def attachment(self, scope: Scope, session_id: str, attachment_id: str) -> Content:
        """One attachment with its bytes.

        Raises:
            AttachmentNotFound: the session has none of this id.
        """
        check_type(scope, Scope, "scope")
        reading = self._store.attachment(scope, session_id, attachment_id)
        return await self._with_even_timing(scope, session_id, reading)

    async def remove_attachment(self, scope: Scope, session_id: str, attachment_id: str) -> Session:
        """Remove an attachment; the messages that showed it stay, with a mark in its place.

        Raises:
            AttachmentNotFound: the session has none of this id.
        """
        check_type(scope, Scope, "scope")
        return await self._change(scope, session_id, self._store.remove_attachment(scope, session_id, attachment_id))

    async def restore(self, scope: Scope, saved: ExportedSession, session_id: str | None = None) -> Session:
        """Import an exported session, with all its messages or not at all; without an id under a fresh one.

        It belongs to the caller; if the tenant itself imports it, to the user or the chat of the export.

        Raises:
            SessionExists: the owner has a session of that id already.
            Invalid: it is the session of a chat and the scope a user's: its messages are not one member's alone.
        """
        check_type(scope, Scope, "scope")
        check_type(saved, ExportedSession, "what was saved")
        if any(brings_media(draft.parts) for draft in saved.messages):
            saved = await asyncio.to_thread(with_exported_contents, scope, saved, self.policy)
        check_messages(saved.messages, self.policy)
        saved = replace(saved, messages=await prepare_contents(scope, saved.messages, self.policy))
        if not scope.owner:
            scope = replace(scope, user=saved.user, channel=saved.channel, chat=saved.chat, thread=saved.thread)
        elif saved.chat is not None and scope.chat is None:
            raise Invalid("this is the session of a chat: import it for a chat, or as the tenant itself")
        create = with_retention(saved.new, self.policy)
        await self._attachments.check(scope, session_id or fresh_id(), saved.messages, self.policy)
        batch = AppendBatch(id=fresh_id(), messages=saved.messages, usage=saved.usage, create=create)
        if session_id is None:
            session = (await self._store.append(scope, fresh_id(), batch)).session
        else:
            session = await import_as(self._store, scope, session_id, batch)
        if saved.status is not session.status:
            session = await self._store.patch(scope, session.id, Changes(status=saved.status))
        await self._announce_written(scope, session, self.policy, created=True, expired=False)
        return session

    async def stats(self, scope: Scope) -> SessionStats:
        """Totals of the caller's sessions."""
        check_type(scope, Scope, "scope")
        return await self._upkeep.stats(scope)

    async def sweep(self, limit: int = 1000) -> int:
        """Remove expired sessions of all tenants; returns how many."""
        check_int(limit, 1, _MOST_REMOVED, "limit")
        gone = await self._upkeep.sweep(limit)
        await self._events.emit_removed(EventKind.EXPIRED, gone)
        return len(gone)

    @property
    def over_cap(self) -> bool:
        """Whether an assistant may have more sessions than its own policy keeps."""
        return self._assistant_cap.due

    async def trim(self) -> None:
        """Remove a portion of the sessions that an assistant has beyond the number of its own policy."""
        async with contextlib.aclosing(self._assistant_cap.remove_excess()) as removing:
            async for gone in removing:
                await self._events.emit_removed(EventKind.EVICTED, (gone,))

    async def index_words(self) -> int:
        """Index the words of what this process has written to sessions that rest; returns how many sessions."""
        return await self._upkeep.index_words()

    async def index_all(self) -> tuple[int, int]:
        """Index all sessions of all tenants; how many are, and how many could not be changed. With `session_search`
        off, the index of each is removed instead."""
        return await self._upkeep.index_all()

    async def erase(self, scope: Scope, limit: int = 100) -> EraseResult:
        """Remove up to so many sessions of the scope's user, then the user's state; see the port."""
        check_type(scope, Scope, "scope")
        check_int(limit, 1, _MOST_REMOVED, "limit")
        erased = await self._upkeep.erase(scope, limit)
        await self._events.emit_removed(EventKind.DELETED, erased.removed_sessions)
        return erased

    # The rules

    def _with_current_status(self, session: Session) -> Session:
        return with_current_status(session, self.policy, self._clock())

    async def _patch_within_limit(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        """Patch the head if it stays within its size, judged on the version that was read; a changed one is retried."""
        if not changes.sets_values:
            return await self._store.patch(scope, session_id, changes)

        async def attempt() -> Session:
            head = await self._store.get(scope, session_id)
            check_head_size(head, changes, self.policy)
            expected = head.version if changes.if_version is None else changes.if_version
            return await self._store.patch(scope, session_id, replace(changes, if_version=expected))

        return await (attempt() if changes.if_version is not None else retry_on_conflict(attempt))

    async def _check_growth(self, turn: OpenTurn, changes: Changes, policy: SessionPolicy) -> None:
        """Refuse a turn's changes that would make the head too large, judged by the head that the turn began with.

        Concurrent patches are not counted: with them the head can exceed the limit once, by less than the limit.
        """
        head = turn.session
        if not head.version:  # A turn restored from its ticket has no head.
            try:
                head = await self._store.get(turn.scope, turn.session.id)
            except SessionNotFound:
                return  # `finish_turn` raises the fitting error.
        check_head_size(head, changes, policy)

    async def _change(
        self, scope: Scope, session_id: str, change: Awaitable[Session], changed: tuple[str, ...] = _MESSAGES
    ) -> Session:
        """Wait for a change of one session and announce it."""
        session = await self._with_even_timing(scope, session_id, change)
        await self._events.emit_event(EventKind.UPDATED, scope, session_id, changed=changed)
        return session

    async def _with_even_timing(self, scope: Scope, session_id: str, call: Awaitable[_Result]) -> _Result:
        """Wait for a call about one session. Not found is raised after a fixed time, which does not reveal the reason.

        A session found corrupt is announced.
        """
        started = asyncio.get_running_loop().time()
        try:
            return await call
        except SessionNotFound as error:
            if isinstance(error, SessionCorrupt):
                await self._events.emit_refused(scope, session_id, error)
            await pause_exactly_until(started + _EVEN_SECONDS)
            raise

    async def _announce_written(
        self, scope: Scope, session: Session, policy: SessionPolicy, *, created: bool, expired: bool
    ) -> None:
        """Announce the change, and keep to the number of sessions.

        The installation's number counts all sessions of the site. That of an assistant's own policy counts the sessions
        of this assistant: it must not remove those of others.
        """
        if expired:
            await self._events.emit_event(EventKind.EXPIRED, scope, session.id)
        kind = EventKind.CREATED if created else EventKind.UPDATED
        await self._events.emit_event(kind, scope, session.id, changed=() if created else _MESSAGES)
        if created and self.policy.max_sessions is not None:
            await self._evict(scope, self.policy.max_sessions, session.id)
        if created and policy.max_sessions not in (None, self.policy.max_sessions):
            self._assistant_cap.note(session, policy)

    async def _evict(self, scope: Scope, keep: int, new: str) -> None:
        """Remove the oldest sessions. The new one is stored, so a store that fails now must not fail the caller."""
        try:
            gone = await self._upkeep.evict(scope, keep, keep_session=new)
        except Unavailable as error:
            _log.warning("sessions beyond max_sessions were not evicted: %s", error)
            return
        await self._events.emit_removed(EventKind.EVICTED, gone)
