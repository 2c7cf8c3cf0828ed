"""Turns that outlive the connection of their caller: they run in tasks of their own, and readers come and go.

A turn numbers its events from 1 and keeps them until a while after its end, so that a reader can join late or again and
miss nothing; the request of an answered one goes at once. A process knows its own turns only.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from tenuto.background import run_in_background
from tenuto.chat.request import ChatEvent, ChatRequest, EventSink, Reply, ReplyFinished, TurnStarted
from tenuto.chat.service import Chat
from tenuto.errors import LimitReached, TenutoError, TurnStopped, Unavailable
from tenuto.logs import describe_exception
from tenuto.model import Scope
from tenuto.model.scope import owner_key, session_key
from tenuto.model.values import replace_valid
from tenuto.sessions import Sessions

# Seconds that the events of a turn stay readable after its end, of how many turns, and their bytes in all.
_KEPT_FOR: Final = 60.0
_MOST_KEPT: Final = 256
_MOST_BYTES: Final = 32 * 1024 * 1024
# Turns of one owner that run or wait at the same time.
_MOST_RUNNING: Final = 256
# Seconds that turns get to end when the server stops; connections have had theirs by then.
_GRACE: Final = 5.0
_log = logging.getLogger(__name__)


class LiveTurn:
    """A turn that runs, or has ended lately. A reader that leaves does not end it."""

    def __init__(self, scope: Scope, request: ChatRequest) -> None:
        self.scope = scope
        self.assistant = request.assistant
        self.reply_metadata = request.reply_metadata
        self.key = request.idempotency_key
        self._request: ChatRequest | None = request
        self._log = _EventLog()
        self._reply: Reply | None = None
        self._error: Exception | None = None
        self._ended = False

    @property
    def started(self) -> TurnStarted | None:
        """The turn's ids; `None` until the user message is stored, and for a turn that is only replayed."""
        return self._log.started

    @property
    def event_count(self) -> int:
        """The number of the last event so far."""
        return len(self._log.events)

    @property
    def ended(self) -> bool:
        """Whether there will be no more events."""
        return self._ended

    @property
    def kept_bytes(self) -> int:
        """About the memory that it takes."""
        request, contents = self._request, 0
        if request is not None:
            # Encoded as well, megabytes of a picture would hold other requests.
            messages = tuple([replace(message, contents=()) for message in request.messages])
            brought = [*request.contents, *(content for one in request.messages for content in one.contents)]
            request = replace_valid(request, contents=(), messages=messages)
            contents = sum([len(content.data) for content in brought])
        try:
            return contents + len(msgspec.json.encode([self._log.events, self.reply_metadata, request], enc_hook=str))
        except (TypeError, ValueError):  # What cannot be sent need not be kept.
            return _MOST_BYTES

    def is_running(self, request: ChatRequest) -> bool:
        """Whether this request is being answered; one with a fingerprint is known by it."""
        own = self._request
        if own is None or self._ended:
            return False
        return own.fingerprint == request.fingerprint if request.fingerprint is not None else own == request

    async def events(self, after: int = 0) -> AsyncIterator[tuple[int, ChatEvent]]:
        """Each event with its number, beginning behind `after`; the last is `ReplyFinished`.

        Raises:
            TenutoError: as in `Chat.take_turn`, once the events before it are read.
            Unavailable: the server stopped; the same idempotency key resumes the turn.
        """
        events, number = self._log.events, max(after, 0)
        while True:
            while number < len(events):
                number += 1
                yield number, events[number - 1]
            if self._ended:
                break
            await self._log.wait()
        if self._error is not None:
            raise self._error

    async def reply(self) -> Reply:
        """Wait for the whole answer.

        Raises:
            TenutoError: as in `events`.
        """
        await self._wait_for_end()
        if self._reply is None:
            raise self._error or AssertionError("a turn ends with a reply or an error")
        return self._reply

    async def stop(self) -> Reply | None:
        """End the turn, and store what it has said so far as its answer.

        Returns that answer, or the whole one of a turn that had ended. `None` if nothing was said, or if the answer
        was to replace another, which then stays: the key of the message or a regeneration makes a new one.
        """
        self._log.stop()
        await self._wait_for_end()
        return self._reply

    def stop_soon(self) -> None:
        """The same without waiting for the end."""
        self._log.stop()

    async def run(self, chat: Chat, on_start: Callable[[LiveTurn], None]) -> None:
        """Take the turn to its end; `LiveTurns` alone calls this, once."""
        assert self._request is not None
        self._log.on_start = lambda: on_start(self)
        try:
            self._reply = await chat.take_turn(self.scope, self._request, self._log)
            await self._log.emit_event(ReplyFinished(reply=self._reply))
        except TenutoError as error:
            self._error = error
        except Exception as error:
            _log.error("a turn failed: %s", describe_exception(error))
            self._error = error
        finally:
            if self._reply is None and self._error is None:
                self._error = Unavailable("the server is stopping; the same request with its key resumes the turn")
            # The traceback of an error holds the request anyway.
            self._request = self._request if self._reply is None else None
            self._ended = True
            self._log.wake()

    async def _wait_for_end(self) -> None:
        while not self._ended:
            await self._log.wait()


class LiveTurns:
    """The running turns of a process. Leaving its context ends them. `on_start` is called when one can be joined."""

    def __init__(self, chat: Chat, sessions: Sessions, on_start: Callable[[LiveTurn], None] = lambda _: None) -> None:
        self._chat = chat
        self._on_start = on_start
        self._sessions = sessions
        # Seconds for running turns at the end; `None` is a few.
        self.grace: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._keyed: dict[tuple[Scope, str], LiveTurn] = {}
        self._by_session: dict[bytes, LiveTurn] = {}
        self._running: Counter[bytes] = Counter()
        # When each may go, and its size.
        self._ended: OrderedDict[LiveTurn, tuple[float, int]] = OrderedDict()
        self._kept_bytes = 0
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def running(self) -> int:
        """How many turns run."""
        return len(self._tasks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give running turns a few seconds to end, then cancel them: their messages stay, and their keys resume."""
        if self._tasks:
            grace = _GRACE if self.grace is None else self.grace
            late = (await asyncio.wait(self._tasks, timeout=grace))[1]
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        if self._sweep is not None:
            self._sweep.cancel()

    def start(self, scope: Scope, request: ChatRequest) -> LiveTurn:
        """Run a turn; the same request under the same key joins its running turn instead.

        Raises:
            LimitReached: too many turns of this owner run.
        """
        key, owner = request.idempotency_key, owner_key(scope)
        running = self._keyed.get((scope, key)) if key is not None else None
        if running is not None and running.is_running(request):
            return running
        if self._running[owner] >= _MOST_RUNNING:
            raise LimitReached(f"{_MOST_RUNNING} turns are already running")
        self._running[owner] += 1
        turn = LiveTurn(scope, request)
        task = run_in_background(turn.run(self._chat, self._register), "turn")
        self._tasks.add(task)
        if key is not None:
            self._keyed[scope, key] = turn
        task.add_done_callback(lambda _: self._keep_ended(turn, task))
        return turn

    async def take_turn(self, scope: Scope, request: ChatRequest) -> Reply:
        """Answer, whole; a caller that leaves does not end the turn.

        Raises:
            TenutoError: as in `Chat.take_turn`.
        """
        return await self.start(scope, request).reply()

    async def find(self, scope: Scope, session_id: str) -> LiveTurn | None:
        """The turn that runs in a session, or its last one if that ended lately.

        Raises:
            SessionNotFound: there is no such session for this caller.
        """
        session = await self._sessions.get(scope, session_id)
        turn = self._by_session.get(session_key(scope, session.id))
        # The id may belong to another session by now.
        known = turn is not None and turn.started is not None and turn.started.incarnation == session.incarnation
        return turn if known else None

    def _register(self, turn: LiveTurn) -> None:
        assert turn.started is not None
        if turn.started.incarnation:
            self._by_session[session_key(turn.scope, turn.started.session_id)] = turn
        self._on_start(turn)

    def _keep_ended(self, turn: LiveTurn, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        owner, size = owner_key(turn.scope), turn.kept_bytes
        self._running[owner] -= 1
        if not self._running[owner]:
            del self._running[owner]
        if turn.key is not None and self._keyed.get((turn.scope, turn.key)) is turn:
            del self._keyed[turn.scope, turn.key]
        self._ended[turn] = asyncio.get_running_loop().time() + _KEPT_FOR, size
        self._kept_bytes += size
        self._drop_ended()

    def _drop_ended(self) -> None:
        """Drop the turns whose time is over or that are too many, and come back for the next."""
        loop = asyncio.get_running_loop()
        while self._ended:
            turn, (until, size) = next(iter(self._ended.items()))
            few = len(self._ended) <= _MOST_KEPT and self._kept_bytes <= _MOST_BYTES
            if until > loop.time() and few:
                break
            del self._ended[turn]
            self._kept_bytes -= size
            if turn.started is not None:
                key = session_key(turn.scope, turn.started.session_id)
                if self._by_session.get(key) is turn:
                    del self._by_session[key]
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep = loop.call_at(next(iter(self._ended.values()))[0], self._drop_ended) if self._ended else None


class _EventLog(EventSink):
    """The events of a turn, kept for readers that come and go. It can stop the turn that fills it."""

    listens = True

    def __init__(self) -> None:
        self.events: list[ChatEvent] = []
        self.started: TurnStarted | None = None
        self.on_start: Callable[[], None] = lambda: None
        self._waiting: list[asyncio.Future[None]] = []
        self._stopped = False
        self._answering: asyncio.Timeout | None = None

    async def emit_event(self, event: ChatEvent) -> None:
        self.events.append(event)
        if isinstance(event, TurnStarted):
            self.started = event
            self.on_start()
        self.wake()

    def wake(self) -> None:
        """Let waiting readers look again."""
        waiting, self._waiting = self._waiting, []
        for reader in waiting:
            if not reader.done():
                reader.set_result(None)

    async def wait(self) -> None:
        """Wait for the next event, or the end."""
        reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(reader)
        await reader

    def stop(self) -> None:
        """End the making of the answer, now or when it begins."""
        if self._answering is not None and not self._stopped:
            self._answering.reschedule(asyncio.get_running_loop().time())
        self._stopped = True

    @asynccontextmanager
    async def until_stopped(self) -> AsyncIterator[None]:
        if self._stopped:
            raise TurnStopped
        # A timeout without a time: the one way of asyncio to cancel a part of a task.
        self._answering = asyncio.timeout(None)
        try:
            async with self._answering:
                yield
        except TimeoutError:
            if self._answering.expired():
                raise TurnStopped from None
            raise
        finally:
            self._answering = None
