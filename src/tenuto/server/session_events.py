"""What changes in the caller's sessions, as it happens: so a second tab, or another client, stays in step.

Changes of this process come with their session. Those of other processes come from the store's change feed, which
knows digests only: they are reported to streams that name the session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenuto.chat import LiveTurn
from tenuto.errors import LimitReached
from tenuto.model import Scope
from tenuto.model.scope import owner_key, session_key
from tenuto.model.store_reports import Invalidation
from tenuto.model.values import View
from tenuto.ports import ChangeFeed
from tenuto.server.auth import asking, sessions
from tenuto.server.json_io import parse_query
from tenuto.server.openapi import Router, describe
from tenuto.server.requests import SessionEventsQuery
from tenuto.server.streams import ServerSentEvent, event_stream
from tenuto.sessions import EventKind, SessionEvent

routes = Router("sessions", prefix="/v1")

# Streams of one owner at the same time, and events that wait for a slow one.
_MOST_STREAMS: Final = 32
_MOST_QUEUED: Final = 256
# Seconds between looks at the feed, and until a stream ends so that its credential is checked again.
_LOOK_EVERY: Final = 1.0
_LASTS: Final = 900.0
_KINDS: Final = (EventKind.CREATED, EventKind.UPDATED, EventKind.EXPIRED, EventKind.DELETED, EventKind.EVICTED)
_EXAMPLE: Final = 'event: session\ndata: {"session_id":"s-1","kind":"updated","changed":["messages"]}\n\n'
_STREAM: Final = {"text/event-stream": {"example": _EXAMPLE}}


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


class _Stream:
    """What one client is to be told."""

    def __init__(self, scope: Scope, session_id: str | None) -> None:
        self.scope = scope
        self.session_id = session_id
        self.key = session_key(scope, session_id) if session_id is not None else None
        self._queued: deque[View] = deque([Ready()])
        self._some = asyncio.Event()

    def covers(self, scope: Scope, session_id: str) -> bool:
        """Whether the client may know of this session: its own, or the one that it has named and was let into."""
        if (scope.tenant, scope.site) != (self.scope.tenant, self.scope.site):
            return False
        return session_id == self.session_id or self.scope.reaches(scope)

    def put(self, event: View) -> None:
        if len(self._queued) >= _MOST_QUEUED:
            self._queued.clear()
            event = Ready()
        if event not in self._queued:
            self._queued.append(event)
        self._some.set()

    async def events(self) -> AsyncIterator[View]:
        clock = asyncio.get_running_loop().time
        ends_at = clock() + _LASTS
        while True:
            while self._queued:
                yield self._queued.popleft()
            if (left := ends_at - clock()) <= 0:
                return
            self._some.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._some.wait(), left)


class SessionEvents:
    """The open streams of this process."""

    def __init__(self, feed: ChangeFeed | None = None) -> None:
        self._feed = feed
        self._streams: set[_Stream] = set()
        self._owners: Counter[bytes] = Counter()
        self._opened = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While open, changes of other processes are reported."""
        if self._feed is None:
            yield
            return
        async with self._feed.watch(self._on_invalidate):
            task = asyncio.create_task(self._look(self._feed), name="tenuto session events")
            try:
                yield
            finally:
                task.cancel()
                await asyncio.wait([task])

    async def on_session_event(self, event: SessionEvent) -> None:
        """Report what this process did."""
        if event.kind in _KINDS:
            change = SessionChange(session_id=event.session_id, kind=event.kind, changed=event.changed)
            self._report(event.scope, event.session_id, change)

    def on_turn_started(self, turn: LiveTurn) -> None:
        """Report a turn that can be joined."""
        if turn.started is not None and turn.started.trace_id:
            started = turn.started
            begun = TurnBegun(session_id=started.session_id, turn=started.turn, trace_id=started.trace_id)
            self._report(turn.scope, started.session_id, begun)

    def follow(self, scope: Scope, session_id: str | None) -> AsyncIterator[View]:
        """The events for one client, until it leaves.

        Raises:
            LimitReached: this owner has too many streams open.
        """
        if self._owners[owner_key(scope)] >= _MOST_STREAMS:
            raise LimitReached(f"{_MOST_STREAMS} streams of events are open already")
        return self._events(owner_key(scope), _Stream(scope, session_id))

    async def _events(self, owner: bytes, stream: _Stream) -> AsyncIterator[View]:
        self._owners[owner] += 1
        self._streams.add(stream)
        self._opened.set()
        try:
            async for event in stream.events():
                yield event
        finally:
            self._streams.discard(stream)
            self._owners -= Counter({owner: 1})

    def _report(self, scope: Scope, session_id: str, event: View) -> None:
        for stream in self._streams:
            if stream.covers(scope, session_id):
                stream.put(event)

    def _on_invalidate(self, news: Invalidation | None) -> None:
        for stream in self._streams:
            if news is None:
                stream.put(Ready())
            elif not news.local and stream.session_id is not None and stream.key in news.keys:
                stream.put(SessionChange(session_id=stream.session_id, kind=EventKind.UPDATED))

    async def _look(self, feed: ChangeFeed) -> None:
        """Some feeds report only when they are asked; without a stream nothing is."""
        while True:
            self._opened.clear()
            if not self._streams:
                await self._opened.wait()
            feed.drain_invalidations()
            await asyncio.sleep(_LOOK_EVERY)


_FOLLOW = describe(None, query=SessionEventsQuery, content=_STREAM)


@routes.get("/events", _FOLLOW)
async def follow_sessions(request: Request) -> Response:
    """What changes in the caller's sessions, as server-sent events: `ready`, `session`, `turn`. With `session_id` also
    what other processes change in that session. The stream ends after a quarter of an hour; connect again."""
    scope, query = await asking(request), parse_query(request, SessionEventsQuery)
    if query.session_id is not None:
        await sessions(request).get(scope, query.session_id)
    hub: SessionEvents = request.app.state.session_events
    return await event_stream(request, hub.follow(scope, query.session_id), _encode, endless=True)


def _encode(event: View) -> ServerSentEvent:
    return ServerSentEvent(_NAMES[type(event)], msgspec.json.encode(event))


_NAMES: Final[dict[type[View], str]] = {SessionChange: "session", TurnBegun: "turn", Ready: "ready"}
