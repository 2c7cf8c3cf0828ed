"""What changes in the caller's sessions, as it happens: so a second tab, or another client, stays in step.

Changes of this process come with their session. Those of other processes come from the store's change feed, which
knows digests only: they are reported to streams that name the session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenuto.background import running
from tenuto.chat import LiveTurn
from tenuto.errors import SessionNotFound, Unavailable
from tenuto.model import Scope, Session
from tenuto.model.scope import owner_key, session_key
from tenuto.model.turn import RunningTurn, trace_id
from tenuto.model.values import View
from tenuto.ports import Clock, ElsewhereFeed, StateStore, utc_now
from tenuto.process_identity import is_held_here, is_holder_gone, is_shared
from tenuto.server.open_streams import OpenStreams
from tenuto.server.openapi import EventStream, Router
from tenuto.server.requests import SessionEventsQuery
from tenuto.server.streams import ServerSentEvent, event_stream
from tenuto.sessions import EventKind, SessionEvent, Sessions

routes = Router("sessions", prefix="/v1")

# The head of a session that this scope reaches.
Lookup: TypeAlias = Callable[[Scope, str], Awaitable[Session]]
# The turn that holds it.
TurnLookup: TypeAlias = Callable[[Scope, str], Awaitable[RunningTurn | None]]
# Streams of one owner at the same time, and events that wait for a slow one.
_MOST_STREAMS: Final = 32
_MOST_QUEUED: Final = 256
# Seconds between looks at the feed, and until a stream ends, so that what it names is looked up again.
_LOOK_EVERY: Final = 1.0
_LASTS: Final = 900.0
_REMOVED: Final = (EventKind.EXPIRED, EventKind.DELETED, EventKind.EVICTED)
_KINDS: Final = (EventKind.CREATED, EventKind.UPDATED, *_REMOVED)


class SessionChange(View, frozen=True, kw_only=True):
    """The `session` event; `changed` is empty where it is not known what another process changed."""

    session_id: str
    kind: EventKind
    changed: tuple[str, ...] = ()


class TurnBegun(View, frozen=True, kw_only=True):
    """The `turn` event: an answer is being made that `GET /v1/sessions/{id}/stream` joins."""

    session_id: str
    turn: int
    trace_id: str


class Ready(View, frozen=True, kw_only=True):
    """The `ready` event, at the beginning and wherever events may be missing: what is shown should be read anew."""


class _Elsewhere(View, frozen=True, kw_only=True):
    """Another process changed the session that a stream names; not sent as it is."""


class _Stream(AsyncIterator[View]):
    """What one client is to be told. `named` is the session that it has named, until that is removed."""

    def __init__(self, hub: SessionEvents, scope: Scope, session: Session | None) -> None:
        self._hub = hub
        self.scope = scope
        self.named = session
        self._named_owner = session.scope.owner if session is not None else None
        self.key = session_key(scope, session.id) if session is not None else None
        self._ends_at = asyncio.get_running_loop().time() + _LASTS
        self._queued: deque[View] = deque([Ready()])
        self._some = asyncio.Event()
        self._last_turn = ""

    def covers(self, scope: Scope, session_id: str) -> bool:
        """Whether the client may know what `scope` does with this session: one of its own, or the one that it has
        named, as long as that one's owner or the tenant itself does it."""
        if self.scope.reaches(scope):
            return True
        return self.names(scope, session_id) and scope.owner in ((), self._named_owner)

    def names(self, scope: Scope, session_id: str) -> bool:
        """Whether it is the session that the client has named."""
        same_site = (scope.tenant, scope.site) == (self.scope.tenant, self.scope.site)
        return same_site and self.named is not None and session_id == self.named.id

    def put(self, event: View) -> None:
        if len(self._queued) >= _MOST_QUEUED:
            self._queued.clear()
            event = Ready()
        if event not in self._queued:
            self._queued.append(event)
        self._some.set()

    async def __anext__(self) -> View:
        clock = asyncio.get_running_loop().time
        while True:
            while self._queued:
                event = self._queued.popleft()
                found = await self._look_up() if isinstance(event, _Elsewhere) else event
                if found is not None:
                    return found
            if (left := self._ends_at - clock()) <= 0:
                raise StopAsyncIteration
            self._some.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._some.wait(), left)

    async def _look_up(self) -> View | None:
        """What another process did: the feed does not tell whether it is still the session that was named."""
        named = self.named
        if named is None:
            return None
        try:
            found = await self._hub.lookup(self.scope, named.id)
        except SessionNotFound:
            found = None
        except Unavailable:
            return Ready()
        if found is not None and found.incarnation == named.incarnation:
            await self._look_for_turn(named)
            return SessionChange(session_id=named.id, kind=EventKind.UPDATED)
        self.named = None
        return SessionChange(session_id=named.id, kind=EventKind.DELETED)

    async def _look_for_turn(self, session: Session) -> None:
        """Tell of a turn that another process has begun."""
        try:
            held = await self._hub.running_turn(self.scope, session.id)
        except (SessionNotFound, Unavailable):
            return
        if held is None or held.id == self._last_turn:
            return
        self._last_turn = held.id
        if is_shared(held.id) and not is_held_here(held.id) and not is_holder_gone(held.id):
            named = trace_id(session.id, held.number, held.id)
            self._queued.appendleft(TurnBegun(session_id=session.id, turn=held.number, trace_id=named))

    async def aclose(self) -> None:
        """Release its place."""
        await self._hub.release(self)


class SessionEvents:
    """The open streams of this process. Without a `state` no other process counts those of an owner."""

    def __init__(
        self,
        lookup: Lookup,
        running_turn: TurnLookup,
        feed: ElsewhereFeed | None = None,
        *,
        state: StateStore | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self.lookup = lookup
        self.running_turn = running_turn
        self._feed = feed
        self._streams: set[_Stream] = set()
        self._owners = OpenStreams(lasts=timedelta(seconds=_LASTS), state=state, clock=clock)
        self._opened = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While open, changes of other processes are reported."""
        if self._feed is None:
            yield
            return
        async with self._feed.watch(self._on_change), running(self._look(self._feed), "session events"):
            yield

    async def on_session_event(self, event: SessionEvent) -> None:
        """Report what this process did."""
        if not self._streams:
            return
        if event.kind in _KINDS:
            change = SessionChange(session_id=event.session_id, kind=event.kind, changed=event.changed)
            self._report(event.scope, event.session_id, change)
        if event.kind in _REMOVED:
            self._end_named(event.scope, event.session_id, event.kind)

    def on_turn_started(self, turn: LiveTurn) -> None:
        """Report a turn that can be joined."""
        started = turn.started if self._streams else None
        if started is not None and started.trace_id:
            event = TurnBegun(session_id=started.session_id, turn=started.turn, trace_id=started.trace_id)
            self._report(turn.scope, started.session_id, event)

    async def follow(self, scope: Scope, session: Session | None = None) -> AsyncIterator[View]:
        """The events for one client, until it is closed. It counts from now on.

        Raises:
            LimitReached: this owner has too many streams open.
        """
        await self._owners.add(owner_key(scope), _MOST_STREAMS)
        stream = _Stream(self, scope, session)
        self._streams.add(stream)
        self._opened.set()
        return stream

    async def release(self, stream: _Stream) -> None:
        """Count a stream no longer."""
        if stream in self._streams:
            self._streams.remove(stream)
            await self._owners.remove(owner_key(stream.scope))

    def _report(self, scope: Scope, session_id: str, event: View) -> None:
        for stream in self._streams:
            if stream.covers(scope, session_id):
                stream.put(event)

    def _end_named(self, scope: Scope, session_id: str, kind: EventKind) -> None:
        """Its id may be given to another user's session: what naming it allowed ends, and the client is told."""
        for stream in self._streams:
            if stream.names(scope, session_id):
                stream.put(SessionChange(session_id=session_id, kind=kind))
                stream.named = None

    def _on_change(self, key: bytes | None) -> None:
        for stream in self._streams:
            if key is None:
                stream.put(Ready())
            elif stream.named is not None and stream.key == key:
                stream.put(_Elsewhere())

    async def _look(self, feed: ElsewhereFeed) -> None:
        """Some feeds report only when they are asked; without a stream nothing is."""
        while True:
            self._opened.clear()
            if not self._streams:
                await self._opened.wait()
            feed.look()
            await asyncio.sleep(_LOOK_EVERY)


_FOLLOW: Final = EventStream(
    "Server-sent events: `ready` (read again what is shown), `session` (`SessionChange`) and `turn` (`TurnBegun`).",
    example='event: session\ndata: {"session_id":"s-1","kind":"updated","changed":["messages"]}\n\n',
    events=(SessionChange, TurnBegun),
)


@routes.get("/events", stream=_FOLLOW)
async def follow_sessions(request: Request, scope: Scope, sessions: Sessions, query: SessionEventsQuery) -> Response:
    """Follow changes of the caller's sessions.

    Server-sent events `ready`, `session` and `turn`; with `session_id`, also what other processes change in that
    session. The stream ends after 15 minutes; connect again.
    """
    named = await sessions.get(scope, query.session_id) if query.session_id is not None else None
    hub: SessionEvents = request.app.state.session_events
    return await event_stream(request, await hub.follow(scope, named), _encode, endless=True)


def _encode(event: View) -> ServerSentEvent:
    return ServerSentEvent(_NAMES[type(event)], msgspec.json.encode(event))


_NAMES: Final[dict[type[View], str]] = {SessionChange: "session", TurnBegun: "turn", Ready: "ready"}
