"""Sessions in Redis, one script for each method; and the traces of their turns."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence

from msgspec.structs import replace

from tenuto.errors import SessionBusy, TurnLost, VersionConflict
from tenuto.model import (
    AppendBatch,
    AppendResult,
    BeginTurn,
    Changes,
    FinishTurn,
    ForkRequest,
    MessagePage,
    OpenTurn,
    Page,
    Rewrite,
    Scope,
    Session,
    SessionPage,
    SessionQuery,
    Truncation,
)
from tenuto.model.scope import session_key
from tenuto.model.turn import Trace
from tenuto.stores.codec import Undecodable, from_micros
from tenuto.stores.redis._listing import SessionListing
from tenuto.stores.redis._records import MICROSECOND, NEWEST, numbers_epoch, read_traces, trace_range
from tenuto.stores.redis._resp import Reply
from tenuto.stores.redis._runner import NOTHING, OTHER_FORMATS, ScriptRunner, refusal
from tenuto.stores.redis._script_io import (
    Ask,
    append,
    begin_turn_args,
    finish,
    page_of,
    pages,
    parse_append_result,
    parse_finish_result,
    parse_finished_turn,
    parse_open_turn,
    parse_session,
    patch,
    plant,
    reply_numbers,
    reset,
    rewrite,
    snapshot,
    truncate,
)
from tenuto.stores.redis._sweeper import Sweeper
from tenuto.stores.redis._window_cache import CachedWindow, WindowCache


class RedisSessions:
    """The `SessionStore` port over Redis or Valkey."""

    def __init__(self, asking: ScriptRunner, windows: WindowCache, shelves: SessionListing, sweeping: Sweeper) -> None:
        self._asking = asking
        self._windows = windows
        self._shelves = shelves
        self._sweeping = sweeping

    # Turns

    async def begin_turn(self, scope: Scope, request: BeginTurn) -> OpenTurn:
        now = self._asking.now()
        lease_until = now + request.lease // MICROSECOND
        key = session_key(scope, request.session_id)
        seen = self._windows.get(key, request.window)
        try:
            reply = await self._run_begin_turn(scope, request, key, now, lease_until, seen)
            if seen is not None and reply[0] in (b"absent", b"expired"):
                # It is gone: send the arguments of a new session.
                self._windows.drop(key)
                seen = None
                reply = await self._run_begin_turn(scope, request, key, now, lease_until, seen)
            if reply[0] == b"busy":
                held, incarnation = (
                    bytes(field or b"").partition(b"\0")[0].decode(errors="replace") for field in reply[2:]
                )
                raise SessionBusy(request.session_id, (int(reply[1]) - now) * MICROSECOND, held, incarnation)
            if reply[0] == b"finished":
                return parse_finished_turn(scope, reply)
            if type(reply) is not bytes and reply[0] not in (b"opened", b"resumed", b"repeated"):
                raise refusal(reply, request.session_id, request.producer)
            turn, log, fresh = parse_open_turn(scope, request, reply, lease_until, seen)
        except Undecodable as damage:
            raise await self._sweeping.corrupt(key, request.session_id, damage) from damage
        numbers = reply_numbers(reply)
        self._windows.keep(key, turn.session, numbers_epoch(numbers), log, fresh, request.window)
        if self._asking.sharded:
            await self._shelves.update_after_write(key, turn.session, numbers)
        return turn

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        # Repeating the call is recognized for a finished turn, not for an abandoned one.
        key = session_key(turn.scope, turn.session.id)
        seen = self._windows.get(key)
        reply = await self._run_for_turn(
            "finish_turn", turn, key, finish(turn, request, seen), safe=not request.abandoned
        )
        if reply[0] == b"gap":
            raise refusal(reply, turn.session.id, request.producer)
        if type(reply) is not bytes and reply[0] not in (b"ok", b"duplicate"):
            raise TurnLost(turn.session.id, turn.id)
        try:
            appended = parse_finish_result(turn, request, reply, seen)
        except Undecodable as damage:
            await self._sweeping.corrupt(key, turn.session.id, damage)
            raise TurnLost(turn.session.id, turn.id) from damage
        if not appended.duplicate:
            await self._after_append(key, appended, reply_numbers(reply))
        return appended

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        now = self._asking.now()
        lease_until = now + turn.lease // MICROSECOND
        ask = Ask((lease_until,), (turn.session.incarnation, turn.id))
        key = session_key(turn.scope, turn.session.id)
        reply = await self._run_for_turn("renew_turn", turn, key, ask, now=now)
        if reply[0] != b"ok":
            raise TurnLost(turn.session.id, turn.id)
        return replace(turn, lease_until=from_micros(lease_until))

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
        key = session_key(scope, session_id)
        safe = batch.idempotency_key is not None or batch.producer is not None
        now = self._asking.now()
        ask = append(scope, session_id, batch, now)
        try:
            reply = await self._asking.session("append", key, scope, ask, safe=safe, now=now)
            if reply[0] not in (b"ok", b"duplicate"):
                raise refusal(reply, session_id, batch.producer)
            appended = parse_append_result(batch, reply)
        except Undecodable as damage:
            raise await self._sweeping.corrupt(key, session_id, damage) from damage
        if not appended.duplicate:
            await self._after_append(key, appended, reply[1])
        return appended

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        return await self._run_for_session("get", scope, session_id)

    async def messages(self, scope: Scope, session_id: str, query: Page) -> MessagePage:
        key = session_key(scope, session_id)
        try:
            reply = await self._asking.session("messages", key, scope, pages(query))
            if reply[0] != b"ok":
                raise refusal(reply, session_id)
            return page_of(query, reply)
        except Undecodable as damage:
            raise await self._sweeping.corrupt(key, session_id, damage) from damage

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        return await self._shelves.page(scope, query, self._asking.now())

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        expected = changes.if_version
        return await self._run_for_session("patch", scope, session_id, patch(changes), expected=expected, safe=False)

    async def reset(self, scope: Scope, session_id: str, *, keep_metadata: Sequence[str] = ()) -> Session:
        self._windows.clear()
        # A repetition would lose concurrent writes: reset, truncate and patch are sent once.
        return await self._run_for_session("reset", scope, session_id, reset(keep_metadata), safe=False)

    async def fork(self, scope: Scope, session_id: str, request: ForkRequest) -> Session:
        key = session_key(scope, session_id)
        now = self._asking.now()
        try:
            reply = await self._asking.session("snapshot", key, scope, snapshot(request), now=now)
            if reply[0] != b"ok":
                raise refusal(reply, session_id)
            ask = plant(request, reply, now)
        except Undecodable as damage:
            raise await self._sweeping.corrupt(key, session_id, damage) from damage
        return await self._run_for_session("plant", scope, request.new_id, ask, safe=False)

    async def truncate(self, scope: Scope, session_id: str, request: Truncation) -> Session:
        self._windows.drop(session_key(scope, session_id))
        expected, within = request.if_version, request.within_turn
        ask = truncate(request)
        return await self._run_for_session(
            "truncate", scope, session_id, ask, expected=expected, within=within, safe=False
        )

    async def rewrite(self, scope: Scope, session_id: str, request: Rewrite) -> Session:
        self._windows.drop(session_key(scope, session_id))
        ask, expected = rewrite(request), request.if_version
        return await self._run_for_session("rewrite", scope, session_id, ask, expected=expected, safe=False)

    async def delete(self, scope: Scope, session_id: str) -> None:
        key = session_key(scope, session_id)
        self._windows.drop(key)
        try:
            reply = await self._asking.session("delete", key, scope, safe=False)
            if reply[0] != b"ok":
                raise refusal(reply, session_id)
        except Undecodable as damage:
            raise await self._sweeping.corrupt(key, session_id, damage) from damage
        await self._shelves.clear(key, reply[2])

    # What the methods share

    def _run_begin_turn(
        self, scope: Scope, opening: BeginTurn, key: bytes, now: int, lease_until: int, seen: CachedWindow | None
    ) -> Coroutine[None, None, Reply]:
        ask = begin_turn_args(scope, opening, now, lease_until, seen)
        return self._asking.session("begin_turn", key, scope, ask, safe=False, now=now)

    async def _run_for_session(
        self,
        name: str,
        scope: Scope,
        session_id: str,
        ask: Ask = NOTHING,
        *,
        expected: int | None = None,
        within: OpenTurn | None = None,
        safe: bool = True,
    ) -> Session:
        """Run a script whose reply is the head alone."""
        key = session_key(scope, session_id)
        try:
            reply = await self._asking.session(name, key, scope, ask, safe=safe)
            if reply[0] == b"version" and expected is not None:
                raise VersionConflict(expected, reply[1])
            if reply[0] == b"lost" and within is not None:
                raise TurnLost(session_id, within.id)
            if reply[0] != b"ok":
                raise refusal(reply, session_id)
            session = parse_session(reply)
        except Undecodable as damage:
            raise await self._sweeping.corrupt(key, session_id, damage) from damage
        if name != "get":
            self._windows.extend(key, session, numbers_epoch(reply[1]))
            await self._shelves.update_after_write(key, session, reply[1])
        return session

    async def _after_append(self, key: bytes, appended: AppendResult, numbers: bytes) -> None:
        """Update the cached window, and in a cluster the listings."""
        self._windows.extend(key, appended.session, numbers_epoch(numbers), appended.messages)
        if self._asking.sharded:
            await self._shelves.update_after_write(key, appended.session, numbers)

    async def _run_for_turn(
        self, name: str, turn: OpenTurn, key: bytes, ask: Ask, *, safe: bool = True, now: int | None = None
    ) -> Reply:
        """Run a script of an open turn. A corrupt session means a lost turn."""
        try:
            reply = await self._asking.session(name, key, turn.scope, ask, safe=safe, now=now)
            if reply[0] in (b"corrupt", *OTHER_FORMATS):
                raise refusal(reply, turn.session.id)
        except Undecodable as damage:
            await self._sweeping.corrupt(key, turn.session.id, damage)
            raise TurnLost(turn.session.id, turn.id) from damage
        return reply


class RedisTraces:
    """The `TraceStore` port over Redis or Valkey."""

    def __init__(self, asking: ScriptRunner, sweeping: Sweeper) -> None:
        self._asking = asking
        self._sweeping = sweeping

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        found = await self._read_traces(scope, session_id, Ask(trace_range(1, number, number)))
        return found[0] if found else None

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        highest = NEWEST if before is None else before - 1
        return await self._read_traces(scope, session_id, Ask(trace_range(limit, 1, highest)))

    async def _read_traces(self, scope: Scope, session_id: str, ask: Ask) -> tuple[Trace, ...]:
        key = session_key(scope, session_id)
        try:
            reply = await self._asking.session("traces", key, scope, ask)
            if reply[0] != b"ok":
                raise refusal(reply, session_id)
        except Undecodable as damage:
            raise await self._sweeping.corrupt(key, session_id, damage) from damage
        return tuple(read_traces(reply[1]))
