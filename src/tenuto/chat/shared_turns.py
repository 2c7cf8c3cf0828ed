"""Running turns between processes: those of this one for readers elsewhere, and those of others for readers here.

Nothing goes through the store until another process asks. Who follows a turn of another process asks for its log, and
asks again while it reads; the process of the turn sees that in the store's feed and appends what happens to the log,
many events in one entry. A stop is asked for in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from tenuto.background import run_in_background, running
from tenuto.chat import turn_wire
from tenuto.chat.live_turn import LiveTurn
from tenuto.chat.request import ChatEvent, Reply, ReplyFinished, ToolFinished, ToolStarted, TurnStarted
from tenuto.errors import (
    ServerStopping,
    SessionBusy,
    SessionNotFound,
    TenutoError,
    TurnInterrupted,
    TurnUnreachable,
    Unavailable,
)
from tenuto.logs import describe_exception
from tenuto.model import Scope, Session
from tenuto.model.generation import StepChanged, TextDelta, ToolCall
from tenuto.model.turn import RunningTurn, turn_id_of
from tenuto.model.values import JsonObject
from tenuto.ports import Clock, LogPlace, TurnAddress, TurnLogs, utc_now
from tenuto.privacy.turn_redaction import TurnRedaction
from tenuto.process_identity import is_held_here, is_holder_gone, is_shared

# Seconds between two entries of a log, and about the bytes of one.
BATCH: Final = 0.08
_ENTRY_BYTES: Final = 64 * 1024
# Seconds that a log is written after a process has asked for it, and between two such questions, also until the first
# answer.
_WATCHED_FOR: Final = 30.0
_ASK_EVERY: Final = 10.0
_ASK_AGAIN: Final = 0.5
# Seconds between two looks at a feed that tells only when it is asked: while this process follows a turn, or runs one.
_LOOK_FOLLOWING: Final = 0.025
_LOOK_RUNNING: Final = 0.2
# Seconds between two looks at the store where the feed tells nothing, and at whether the process of a turn is gone.
_POLL: Final = 1.0
# Seconds that the process of a turn has to tell of it, and to end it when it is asked to.
_ANSWERS_WITHIN: Final = 5.0
_STOPS_WITHIN: Final = 10.0
# Turns that ended a moment ago and can still be asked for; of more, the oldest cannot any more.
_MOST_ENDED: Final = 256
# Seconds without an answer of the store after which a reader is told so, and those of a log behind the turn's end.
_PATIENCE: Final = 15.0
_KEPT_FOR: Final = 60.0
# Seconds that a turn without readers is still followed.
_UNREAD_FOR: Final = 5.0
# Seconds in which a turn that lives renews its lease, and by how many the clocks of two machines may differ.
_RENEWS_WITHIN: Final = 4.5
_SKEW: Final = timedelta(minutes=1)
_BESIDE: Final = (TurnStarted, ToolStarted, ToolFinished, StepChanged)
# Seconds that a process that leaves has to tell the ends of its turns.
_LEAVES_WITHIN: Final = 2.0
# What an answer says, of all that is told of it.
_TYPES: Final = {
    "text": str,
    "reasoning": str,
    "calls": tuple[ToolCall, ...],
    "parts": tuple[JsonObject, ...],
    "data": JsonObject,
}
_log = logging.getLogger(__name__)


class SessionHeads(Protocol):
    """What is asked of sessions here."""

    async def get(self, scope: Scope, session_id: str, /) -> Session:
        """The session's head."""
        ...

    async def running_turn(self, scope: Scope, session_id: str, /) -> RunningTurn | None:
        """The turn that holds it."""
        ...


class FollowedTurn(LiveTurn):
    """A turn of another process, as its log tells it."""

    def __init__(self, address: TurnAddress, running: RunningTurn, turns: SharedTurns) -> None:
        super().__init__(address.scope)
        self.address = address
        self.running = running
        self.withheld = False
        self.news = asyncio.Event()
        self.left_at: float | None = None
        """When it was seen that it holds its session no more."""
        self._loop = asyncio.get_running_loop()
        self.unread_since = self.renewed_at = self._loop.time()
        self._turns = turns
        self._readers = 0

    @property
    def is_own(self) -> bool:
        return False

    @property
    def is_read(self) -> bool:
        """Whether a reader waits for what comes."""
        return self._readers > 0

    async def events(self, after: int = 0) -> AsyncIterator[tuple[int, ChatEvent]]:
        with self.reading():
            # The events of a log without texts have numbers of their own.
            async for pair in super().events(min(after, self.event_count) if self.withheld else after):
                yield pair

    async def reply(self) -> Reply:
        with self.reading():
            return await super().reply()

    async def stop(self) -> Reply | None:
        """As in `LiveTurn`.

        Raises:
            TurnUnreachable: its process did not end it in time.
            TurnInterrupted: its process is gone.
        """
        with self.reading():
            if not self._ended:
                await self._turns.logs.ask(self.address, stop=True)
                try:
                    async with asyncio.timeout(_STOPS_WITHIN):
                        await self._wait_for_end()
                except TimeoutError:
                    raise TurnUnreachable from None
        if isinstance(self._error, TurnInterrupted):
            raise self._error
        return self._reply

    def stop_soon(self) -> None:
        self._turns.run(self._turns.logs.ask(self.address, stop=True))

    async def receive(self, number: int, line: turn_wire.LogLine) -> None:
        """Take what an entry of the log says; its first event has that number."""
        if line.about is not None:
            self.assistant, self.reply_metadata = line.about.assistant, line.about.reply_metadata
            self.withheld, self.key = line.about.withheld, line.about.key
        for event in line.events[self.event_count + 1 - number :]:
            if isinstance(event, ReplyFinished):
                self._reply = event.reply
            await self._log.emit_event(event)
        if line.ended:
            self.end(line.error)

    def end(self, error: TenutoError | None) -> None:
        """There will be no more events."""
        if not self._ended:
            self._error = None if self._reply is not None else error or TurnInterrupted()
            self._end()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """While it is read, its log is asked for."""
        self._readers += 1
        self._turns.follow_on(self)
        try:
            yield
        finally:
            self._readers -= 1
            self.unread_since = self._loop.time()


class _Offer:
    """A turn of this process that others may ask for, and its log, as far as it is written."""

    def __init__(self, turn: LiveTurn, turn_id: str) -> None:
        self.turn = turn
        self.turn_id = turn_id
        self.address: TurnAddress | None = None
        self.asked = 0
        self.watched_until = 0.0
        self.to_look = False
        self.looking: asyncio.Task[None] | None = None
        self.writing: asyncio.Task[None] | None = None
        self.place = LogPlace()
        self.is_whole = False
        self.shown = list[ChatEvent]()
        self.seen = 0


class SharedTurns:
    """The running turns of this process for others, and theirs for this one."""

    def __init__(
        self, logs: TurnLogs, sessions: SessionHeads, redaction: TurnRedaction, *, clock: Clock = utc_now
    ) -> None:
        self.logs = logs
        self._sessions = sessions
        self._redaction = redaction
        self._clock = clock
        self._offers: dict[bytes, _Offer] = {}
        self._keys: dict[LiveTurn, bytes] = {}
        self._ended = deque[bytes]()
        self._followed: dict[bytes, tuple[FollowedTurn, asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._some = asyncio.Event()
        self._hears = True
        self._leaves = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While open, turns are shown and followed; those that ended have been shown whole then."""
        async with self.logs.watch(self._on_change), running(self._look(), "shared turns"):
            try:
                yield
            finally:
                await self._leave()

    # Turns of this process

    def offer(self, turn: LiveTurn) -> None:
        """Show a turn that has begun to those who ask for it."""
        assert turn.started is not None
        offer = _Offer(turn, turn_id_of(turn.started.trace_id))
        key = self.logs.asks_key(TurnAddress(turn.scope, turn.started.session_id, offer.turn_id))
        self._offers[key] = offer
        self._keys[turn] = key
        self._some.set()

    def end(self, turn: LiveTurn) -> None:
        """It has ended: who has asked for it is told so, and who asks just then."""
        key = self._keys.pop(turn, None)
        if key is None:
            return
        offer = self._offers[key]
        if offer.place.through and offer.writing is None:
            self._write(offer)
        asyncio.get_running_loop().call_later(_ANSWERS_WITHIN, self._withdraw, key)
        self._ended.append(key)
        if len(self._ended) > _MOST_ENDED:
            self._withdraw(self._ended[0])

    def _withdraw(self, key: bytes) -> None:
        offer = self._offers.pop(key, None)
        if offer is None:
            return
        self._ended.remove(key)
        if offer.asked:
            asyncio.get_running_loop().call_later(_KEPT_FOR, self._remove, offer)

    def _remove(self, offer: _Offer) -> None:
        if offer.address is not None and not self._leaves:
            self.run(self.logs.remove(offer.address))

    def _look_at(self, offer: _Offer) -> None:
        offer.to_look = True
        if offer.looking is None:
            offer.looking = self.run(self._answer(offer))

    async def _answer(self, offer: _Offer) -> None:
        """Do what others ask."""
        try:
            while offer.to_look:
                offer.to_look = False
                try:
                    asked = await self.logs.asked(await self._address(offer))
                except Unavailable:
                    offer.to_look = True
                    await asyncio.sleep(_POLL)
                    continue
                if asked.stop:
                    offer.turn.stop_soon()
                if asked.count > offer.asked:
                    offer.asked = asked.count
                    offer.watched_until = asyncio.get_running_loop().time() + _WATCHED_FOR
                    if offer.writing is None and not offer.is_whole:
                        self._write(offer)
        except SessionNotFound:
            pass  # It was deleted meanwhile: there is no reader to tell.
        finally:
            offer.looking = None

    async def _address(self, offer: _Offer) -> TurnAddress:
        if offer.address is None:
            assert offer.turn.started is not None
            session = await self._sessions.get(offer.turn.scope, offer.turn.started.session_id)
            offer.address = TurnAddress(session.scope, session.id, offer.turn_id)
        return offer.address

    def _write(self, offer: _Offer) -> None:
        offer.writing = self.run(self._write_log(offer))

    async def _write_log(self, offer: _Offer) -> None:
        """Append what happens to the log, until the turn has ended or no process asks any more."""
        loop, turn = asyncio.get_running_loop(), offer.turn
        try:
            address = await self._address(offer)
            withheld = not self._redaction.keeps_messages(address.scope)
            about = turn_wire.About(turn.assistant, turn.reply_metadata, withheld, turn.key)
            if withheld:
                about.reply_metadata = await self._redaction.as_message(address.scope, turn.reply_metadata)
            while not offer.is_whole and (turn.ended or loop.time() < offer.watched_until):
                ended = turn.ended
                events = await self._shown(offer, address.scope) if withheld else turn.events_after(0)
                new = events[offer.place.through :]
                if not new and not ended:
                    await self._change_of(offer)
                    continue
                first = about if not offer.place.through else None
                body, count = turn_wire.encode(new, first, most=_ENTRY_BYTES, ended=ended, error=turn.error)
                ends = ended and count == len(new)
                try:
                    offer.place, is_made = await self.logs.append(address, offer.place, body, count, ends=ends)
                except Unavailable:
                    if ended and loop.time() > offer.watched_until + _KEPT_FOR:
                        return
                    await asyncio.sleep(_POLL)
                    continue
                offer.is_whole = ends and is_made
                if not ended:
                    await asyncio.sleep(BATCH)
        except SessionNotFound:
            pass
        except Exception as error:
            _log.error("the log of a turn was not written: %s", describe_exception(error))
        finally:
            offer.writing = None

    async def _change_of(self, offer: _Offer) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(offer.watched_until):
                await offer.turn.changed()

    async def _shown(self, offer: _Offer, scope: Scope) -> Sequence[ChatEvent]:
        """The events without what the model says; at the end with the answer as it may be stored."""
        new = offer.turn.events_after(offer.seen)
        offer.seen += len(new)
        for event in new:
            if isinstance(event, _BESIDE):
                offer.shown.append(event)
            elif isinstance(event, ReplyFinished):
                reply = await self._stored(event.reply, scope)
                offer.shown += [TextDelta(text=reply.text), ReplyFinished(reply=reply)]
        return offer.shown

    async def _stored(self, reply: Reply, scope: Scope) -> Reply:
        said = {"text": reply.text, "reasoning": reply.reasoning, "calls": reply.calls, "parts": reply.parts}
        texts = await self._redaction.as_message(scope, msgspec.to_builtins({**said, "data": reply.data}))
        assert isinstance(texts, dict)
        return replace(reply, logprobs=None, **{name: msgspec.convert(texts[name], _TYPES[name]) for name in texts})

    # Turns of other processes

    async def find(self, scope: Scope, session: Session, turn_id: str | None = None) -> LiveTurn | None:
        """The turn that another process runs in a session, or has left there after it told a part of it; with a
        `turn_id` only that one.

        Raises:
            TurnUnreachable: its process does not answer.
        """
        held = await self._sessions.running_turn(scope, session.id)
        if held is None or held.incarnation != session.incarnation or is_held_here(held.id):
            return None
        if not is_shared(held.id) or turn_id not in (None, held.id):
            return None
        address = TurnAddress(session.scope, session.id, held.id)
        known = self._followed.get(self.logs.log_key(address))
        turn = known[0] if known is not None else FollowedTurn(address, held, self)
        with turn.reading():
            try:
                async with asyncio.timeout(_ANSWERS_WITHIN):
                    while not turn.event_count and not turn.ended:
                        await turn.changed()
            except TimeoutError:
                if not await self._is_gone(turn):
                    raise TurnUnreachable from None
        # Nothing is there to read of one that ended just now, or whose process is gone.
        return turn if turn.event_count else None

    async def find_busy(self, scope: Scope, busy: SessionBusy) -> LiveTurn | None:
        """The same for a session that was found busy."""
        return await self.find(scope, await self._sessions.get(scope, busy.session_id))

    def follow_on(self, turn: FollowedTurn) -> None:
        """Follow a turn, unless that is done already."""
        if self._leaves:
            turn.end(ServerStopping())
        key = self.logs.log_key(turn.address)
        if not turn.ended and key not in self._followed:
            self._followed[key] = turn, self.run(self._follow(turn, key))
            self._some.set()

    async def _follow(self, turn: FollowedTurn, key: bytes) -> None:
        """Read the log of a turn, until it ends or has no readers."""
        loop = asyncio.get_running_loop()
        ask_at = look_at = loop.time()
        answered_at = loop.time()
        is_gone = False
        try:
            while not turn.ended and (turn.is_read or loop.time() < turn.unread_since + _UNREAD_FOR):
                turn.news.clear()
                try:
                    if loop.time() >= look_at:
                        is_gone, look_at = await self._is_gone(turn), loop.time() + _POLL
                    if loop.time() >= ask_at and not is_gone:
                        await self.logs.ask(turn.address)
                        # A turn that is not told of yet could not see the question.
                        ask_at = loop.time() + (_ASK_EVERY if turn.event_count else _ASK_AGAIN)
                    entries = await self.logs.read(turn.address, turn.event_count)
                    if entries and entries[0].number > turn.event_count + 1:
                        # It was removed, and begins again.
                        entries = await self.logs.read(turn.address, 0)
                    for entry in entries:
                        await turn.receive(entry.number, turn_wire.decode(entry.body))
                    answered_at = loop.time()
                    if is_gone:
                        # What it wrote has been read.
                        turn.end(TurnInterrupted())
                except Unavailable as error:
                    if loop.time() > answered_at + _PATIENCE:
                        turn.end(error)
                if not turn.ended:
                    pause = _POLL if turn.event_count else _ASK_AGAIN
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause if self._hears else _LOOK_RUNNING):
                            await turn.news.wait()
        except Exception as error:
            _log.error("the log of a turn was not read: %s", describe_exception(error))
            turn.end(TurnInterrupted())
        finally:
            del self._followed[key]

    async def _is_gone(self, turn: FollowedTurn) -> bool:
        """Whether no process will write to the log any more: its end is written shortly after it left its session."""
        if is_holder_gone(turn.running.id):
            return True
        try:
            held = await self._sessions.running_turn(turn.scope, turn.address.session_id)
        except SessionNotFound:
            held = None
        now = asyncio.get_running_loop().time()
        if held is not None and held.id == turn.running.id:
            if held.until != turn.running.until:
                turn.running, turn.renewed_at = held, now
            late = self._clock() - held.until
            # Of one that is renewed, this machine's clock is ahead.
            return late > _SKEW or (late > timedelta(0) and now > turn.renewed_at + _RENEWS_WITHIN)
        if turn.left_at is None:
            turn.left_at = now
        return now > turn.left_at + _ANSWERS_WITHIN

    # Both

    def leave(self) -> None:
        """End what is followed here; what runs here ends by itself."""
        self._leaves = True
        for turn, _ in self._followed.values():
            turn.end(ServerStopping())
            turn.news.set()

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something in the background, until the server stops."""
        task = run_in_background(work, "shared turn")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _on_change(self, key: bytes | None) -> None:
        if key is None:
            for offer in self._offers.values():
                self._look_at(offer)
            for turn, _ in self._followed.values():
                turn.news.set()
        elif key in self._offers:
            self._look_at(self._offers[key])
        elif key in self._followed:
            self._followed[key][0].news.set()

    async def _look(self) -> None:
        """Some feeds tell only when they are asked; where one tells nothing, the store is asked."""
        loop, poll_at = asyncio.get_running_loop(), 0.0
        while True:
            if not (self._offers or self._followed):
                self._some.clear()
                await self._some.wait()
            self._hears = self.logs.look()
            if not self._hears and loop.time() >= poll_at:
                poll_at = loop.time() + _POLL
                for offer in self._offers.values():
                    self._look_at(offer)
            await asyncio.sleep(_LOOK_FOLLOWING if self._followed else _LOOK_RUNNING)

    async def _leave(self) -> None:
        """Tell the ends of turns that others follow, then stop."""
        if writing := [offer.writing for offer in self._offers.values() if offer.writing is not None]:
            await asyncio.wait(writing, timeout=_LEAVES_WITHIN)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
