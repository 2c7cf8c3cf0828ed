"""A turn that outlives the connection of its caller: it runs in a task of its own, and readers come and go.

It numbers its events from 1 and keeps them until a while after its end, so that a reader can join late or again and
miss nothing; the request of an answered one goes at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from msgspec.structs import replace

from tenuto.chat.request import ChatEvent, ChatRequest, EventSink, Reply, ReplyFinished, TurnStarted
from tenuto.chat.service import Chat
from tenuto.errors import ServerStopping, SessionBusy, TenutoError, TurnInterrupted, TurnStopped, Unavailable
from tenuto.logs import describe_exception
from tenuto.model import Scope
from tenuto.model.values import JsonObject, replace_valid

# The bytes that a turn counts where they cannot be told.
MANY_BYTES: Final = 32 * 1024 * 1024
_log = logging.getLogger(__name__)


class LiveTurn:
    """A turn that runs, or has ended lately. A reader that leaves does not end it."""

    def __init__(self, scope: Scope, request: ChatRequest | None = None) -> None:
        self.scope = scope
        self.assistant = None if request is None else request.assistant
        self.reply_metadata: JsonObject = {} if request is None else request.reply_metadata
        self.key = None if request is None else request.idempotency_key
        self._request = request
        self._log = _EventLog()
        self._other: LiveTurn | None = None
        self._reply: Reply | None = None
        self._error: Exception | None = None
        self._ended = False
        self._was_read = False

    @property
    def started(self) -> TurnStarted | None:
        """The turn's ids; `None` until the user message is stored, and for a turn that is only replayed."""
        return self._log.started

    @property
    def event_count(self) -> int:
        """The number of the last event so far."""
        return len(self._log.events)

    @property
    def error(self) -> Exception | None:
        """What ended it without an answer."""
        return self._error

    @property
    def is_own(self) -> bool:
        """Whether this process makes the answer."""
        return self._other is None

    @property
    def ended(self) -> bool:
        """Whether there will be no more events."""
        return self._ended

    @property
    def has_news(self) -> bool:
        """Whether who comes back is to read it: it runs, or its process is gone and the session has nothing of it."""
        return not self._ended or isinstance(self._error, TurnInterrupted)

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
            return MANY_BYTES

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
            TurnInterrupted: the process stopped; the same idempotency key resumes the turn.
        """
        events, number = self._log.events, max(after, 0)
        while True:
            while number < len(events):
                number, self._was_read = number + 1, True
                yield number, events[number - 1]
            if self._ended:
                break
            await self._log.wait()
        if self._error is not None:
            raise self._error

    def events_after(self, number: int) -> Sequence[ChatEvent]:
        """The events so far behind one."""
        return self._log.events[number:]

    async def changed(self) -> None:
        """Wait for the next event, or the end."""
        if not self._ended:
            await self._log.wait()

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
        if self._other is not None:
            await self._other.stop()
        await self._wait_for_end()
        return self._reply

    def stop_soon(self) -> None:
        """The same without waiting for the end."""
        self._log.stop()

    async def run(
        self,
        chat: Chat,
        on_start: Callable[[LiveTurn], None],
        follow: Callable[[Scope, SessionBusy], Awaitable[LiveTurn | None]] | None = None,
    ) -> None:
        """Take the turn to its end; `LiveTurns` alone calls this, once. With `follow`, one that another process is
        taking under the same key is followed instead."""
        self._log.on_start = lambda: on_start(self)
        self._log.shared = self._log.joins_running = follow is not None
        try:
            self._reply = await self._take(chat, follow)
            await self._log.emit_event(ReplyFinished(reply=self._reply))
        except TenutoError as error:
            self._error = error
        except Exception as error:
            _log.error("a turn failed: %s", describe_exception(error))
            self._error = error
        finally:
            if self._reply is None and self._error is None:
                self._error = self._interrupted()
            # The traceback of an error holds the request anyway.
            self._request = self._request if self._reply is None else None
            self._end()

    async def _take(
        self, chat: Chat, follow: Callable[[Scope, SessionBusy], Awaitable[LiveTurn | None]] | None
    ) -> Reply:
        assert self._request is not None
        while True:
            try:
                return await chat.take_turn(self.scope, self._request, self._log)
            except SessionBusy as error:
                if follow is None or not error.same_key:
                    raise
                try:
                    other = await follow(self.scope, error)
                except Unavailable:
                    other = None
            if other is None:
                # It ends, or tells nothing: it is waited for in the store.
                follow, self._log.joins_running = None, False
                continue
            try:
                return await self._relay(other)
            except TurnInterrupted:
                # The turn is resumed here, unless a reader has been told a part of its first attempt.
                if self._was_read:
                    raise
                self._log.events.clear()
                self._other = None

    async def _relay(self, other: LiveTurn) -> Reply:
        """The events of the same turn in another process, as those of this one."""
        self._other = other
        self.assistant, self.reply_metadata = other.assistant, other.reply_metadata
        if self._log.stopped:
            await other.stop()
        async for _, event in other.events():
            if isinstance(event, ReplyFinished):
                return event.reply
            await self._log.emit_event(event)
        raise AssertionError("a turn ends with a reply or an error")

    def _interrupted(self) -> TurnInterrupted:
        """What readers are told when this process gives the turn up."""
        error = TurnInterrupted() if self._other is None else ServerStopping()
        if self.started is not None:
            error.ids = {"session_id": self.started.session_id, "trace_id": self.started.trace_id}
        return error

    def _end(self) -> None:
        self._ended = True
        self._log.wake()

    async def _wait_for_end(self) -> None:
        while not self._ended:
            await self._log.wait()


class _EventLog(EventSink):
    """The events of a turn, kept for readers that come and go. It can stop the turn that fills it."""

    listens = True

    def __init__(self) -> None:
        self.events: list[ChatEvent] = []
        self.started: TurnStarted | None = None
        self.shared = self.joins_running = False
        self.on_start: Callable[[], None] = lambda: None
        self._waiting: list[asyncio.Future[None]] = []
        self.stopped = False
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
        if self._answering is not None and not self.stopped:
            self._answering.reschedule(asyncio.get_running_loop().time())
        self.stopped = True

    @asynccontextmanager
    async def until_stopped(self) -> AsyncIterator[None]:
        if self.stopped:
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
