"""Stories of running turns that are followed in other processes, over a store that fails, with processes that die.

The engine, the logs and both sides of `SharedTurns` are the real ones; what a turn says comes from the seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

from tenuto.chat import turn_wire
from tenuto.chat.live_turn import LiveTurn
from tenuto.chat.request import ChatEvent, Reply, ReplyFinished, TurnStarted
from tenuto.chat.shared_turns import SharedTurns
from tenuto.errors import TenutoError, TurnInterrupted
from tenuto.model import BeginTurn, FinishTurn, NewSession, OpenTurn, Scope
from tenuto.model.generation import TextDelta
from tenuto.model.scope import site_key
from tenuto.model.stored import Kind, Part, RecordChange
from tenuto.model.turn import trace_id
from tenuto.privacy.redactor import NO_REDACTION
from tenuto.privacy.turn_redaction import TurnRedaction
from tenuto.stores.engine import Engine
from tenuto.stores.engine.codec import Codec
from tests.clock import START
from tests.samples import says
from tests.simulation.hosts import CheckingSealer, OneCodec
from tests.simulation.loop import Process, SimLoop, Stuck
from tests.simulation.store import Fate, SimClient, SimServer

_Result = TypeVar("_Result")
_LEASE = timedelta(seconds=9)
_FAULTS_END = 25.0
_OVER = 90.0
_FAULTS = (Fate.REFUSED, Fate.REQUEST_LOST, Fate.ANSWER_LOST, Fate.LATE)


class Speaker(LiveTurn):
    """A turn of a story."""

    async def say(self, event: ChatEvent) -> None:
        await self._log.emit_event(event)

    def end(self, error: TenutoError | None = None) -> None:
        self._error = error
        self._end()


@dataclass
class Spoken:
    """A turn, and what it said in the end."""

    scope: Scope
    session: str
    host: int
    events: list[ChatEvent] = field(default_factory=list)
    is_ending: bool = False
    is_whole: bool = False
    is_followed: bool = False


@dataclass
class Heard:
    """What a reader was told: events by their numbers, and how it ended."""

    spoken: Spoken
    host: int
    after: int
    events: list[tuple[int, ChatEvent]] = field(default_factory=list)
    end: str = ""
    is_late: bool = False
    """Whether the turn was about to end, or had, when nothing was found."""


class Site:
    """A process with an engine, whose clock may be wrong."""

    def __init__(self, world: LiveWorld, number: int) -> None:
        self.world = world
        self.name = f"process{number}"
        self.process: Process = world.loop.add_process(self.name)
        self.client = SimClient(world.server, self.name)
        codecs = OneCodec(Codec(CheckingSealer()))
        self._skew = timedelta(seconds=world.stream(f"{self.name}'s clock").choice((0, 0, -30, 30)))
        self.engine = Engine(self.client, clock=self.clock, chance=world.stream(self.name), codecs=codecs)
        assert self.engine.turn_logs is not None
        self.shared = SharedTurns(
            self.engine.turn_logs, self.engine.sessions, TurnRedaction(NO_REDACTION), clock=self.clock
        )
        self.is_dead = False
        self.spawn(self._live())

    def clock(self) -> datetime:
        return START + timedelta(seconds=self.world.loop.time()) + self._skew

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.world.loop.spawn(self.process, work)

    async def _live(self) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.engine)
            await stack.enter_async_context(self.shared.running())
            await asyncio.Event().wait()

    def kill(self) -> None:
        self.is_dead = True
        self.world.loop.kill(self.process)
        self.world.server.clients.remove(self.client)


class LiveWorld:
    """One story, by its seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        luck = self.luck = self.stream("world")
        self.loop = SimLoop(self.stream("loop"))
        self.server = SimServer(self.stream("network"), latency=luck.choice((0.0, 0.005, 0.1)))
        self.server.fate = self._fate
        self.trouble = luck.choice((0.0, 0.0, 0.02, 0.15))
        self.kills = luck.random() < 0.4
        self.gaps = luck.random() < 0.4
        self.spoken: list[Spoken] = []
        self.heard: list[Heard] = []
        self.stuck = ""
        self.dead: int | None = None
        self.written = set[bytes]()
        self.logs = dict[bytes, bool]()
        self._spaces = dict[bytes, bytes]()
        self.server.on_commit = self._note

    def _note(self, _process: str, changes: Sequence[RecordChange]) -> None:
        for change in changes:
            if change.index is not None and change.index.kind is Kind.VALUE:
                self.written.add(change.index.space)
                self._spaces[change.key] = change.index.space
            for entry in change.puts:
                if entry.part is Part.EVENTS:
                    # The sealed body begins with a mark and a checksum.
                    is_ended = turn_wire.decode(entry.body[9:]).ended
                    self.logs[self._spaces[change.key]] = is_ended

    def stream(self, purpose: str) -> Random:
        return Random(f"{self.seed} {purpose}")

    def _fate(self, process: str, kind: str) -> Fate:
        if self.loop.time() < _FAULTS_END and self.luck.random() < self.trouble:
            return self.luck.choice(_FAULTS)
        return Fate.FINE

    def run(self) -> LiveWorld:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._run())
        except Stuck as error:
            self.stuck = str(error)
        finally:
            asyncio.set_event_loop(None)
            for task in asyncio.all_tasks(self.loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # they were killed
                with suppress(BaseException):
                    task.get_coro().close()
            self.loop.close()
        return self

    async def _run(self) -> None:
        sites = [Site(self, number) for number in range(self.luck.choice((2, 3)))]
        for number in range(self.luck.choice((1, 2, 3))):
            # The same session ids, of users who must not hear each other.
            scope = Scope(tenant="acme", site=f"site{number}", user=f"user{number}")
            spoken = Spoken(scope, "s", self.luck.randrange(len(sites)))
            self.spoken.append(spoken)
            sites[spoken.host].spawn(self._speak(sites[spoken.host], spoken, number))
            for _ in range(self.luck.choice((0, 1, 2, 3))):
                site = self.luck.randrange(len(sites))
                if site != spoken.host:
                    sites[site].spawn(self._read(sites[site], site, spoken))
        if self.kills:
            await asyncio.sleep(self.luck.uniform(0.5, 20))
            dead = self.luck.choice(sites)
            dead.kill()
            self.dead = sites.index(dead)
        if self.gaps:
            feed = self.luck.choice(sites).client.feed
            feed.disconnect()
            await asyncio.sleep(self.luck.uniform(0.1, 8))
            feed.reconnect()
        await asyncio.sleep(_OVER)
        for heard in self.heard:
            if not heard.end:
                heard.end = "waits"

    async def _speak(self, site: Site, spoken: Spoken, number: int) -> None:
        """Take a turn: begin, speak while the lease is renewed, store the end."""
        chance = self.stream(f"turn {number}")
        begin = BeginTurn(
            session_id=spoken.session,
            turn_id=f"t{number}.shared",
            user_messages=(says("?", id="m"),),
            create=NewSession(),
            lease=_LEASE,
        )
        turn = await _until_stored(lambda: site.engine.sessions.begin_turn(spoken.scope, begin))
        renewing = asyncio.create_task(self._renew(site, turn))
        speaker = Speaker(spoken.scope)
        trace = trace_id(spoken.session, turn.number, turn.id)
        started = TurnStarted(
            session_id="s", trace_id=trace, turn=turn.number, created=True, incarnation=turn.session.incarnation
        )
        # What precedes the answer may take longer than a reader needs to come.
        await asyncio.sleep(chance.choice((0.0, 0.0, 0.7, 2.0)))
        await self._tell(speaker, spoken, started)
        site.shared.offer(speaker)
        for word in range(chance.choice((3, 40, 200))):
            await asyncio.sleep(chance.choice((0.0, 0.02, 0.3)))
            await self._tell(speaker, spoken, TextDelta(text=f"{number}.{word} "))
        spoken.is_ending = True
        await _until_stored(lambda: site.engine.sessions.finish_turn(turn, FinishTurn(reply=())))
        renewing.cancel()
        if chance.random() < 0.7:
            reply = Reply(session_id="s", trace_id=trace, turn=turn.number, assistant="a", text="whole")
            await self._tell(speaker, spoken, ReplyFinished(reply=reply))
        spoken.is_whole = True
        speaker.end(None if isinstance(spoken.events[-1], ReplyFinished) else TenutoError("no answer"))
        site.shared.end(speaker)

    async def _renew(self, site: Site, turn: OpenTurn) -> None:
        while True:
            await asyncio.sleep(_LEASE.total_seconds() / 3)
            with suppress(TenutoError):
                await site.engine.sessions.renew_turn(turn)

    async def _tell(self, speaker: Speaker, spoken: Spoken, event: ChatEvent) -> None:
        spoken.events.append(event)
        await speaker.say(event)

    async def _read(self, site: Site, host: int, spoken: Spoken) -> None:
        """Come at some time, read from some event on, and leave or stay."""
        luck = self.luck
        await asyncio.sleep(luck.uniform(0.0, 6))
        heard = Heard(spoken, host, luck.choice((0, 0, 2, 5)))
        leaves_behind = luck.choice((0, 0, 0, 8))
        try:
            session = await site.engine.sessions.get(spoken.scope, spoken.session)
            spoken.is_followed = True
            self.heard.append(heard)
            turn = await site.shared.find(spoken.scope, session)
            if turn is None:
                heard.end, heard.is_late = "none", spoken.is_ending
                return
            async with aclosing(_events(turn, heard.after)) as events:
                async for pair in events:
                    heard.events.append(pair)
                    if leaves_behind and len(heard.events) >= leaves_behind:
                        heard.end = "left"
                        return
            heard.end = "whole"
        except TenutoError as error:
            heard.end = error.code


async def _events(turn: LiveTurn, after: int) -> AsyncGenerator[tuple[int, ChatEvent], None]:
    async for pair in turn.events(after):
        yield pair


async def _until_stored(call: Callable[[], Awaitable[_Result]]) -> _Result:
    while True:
        try:
            return await call()
        except TenutoError:
            await asyncio.sleep(0.3)


def offences(world: LiveWorld) -> Iterator[str]:
    """What breaks the laws: no event is lost, doubled or of another turn; every reader gets to the right end."""
    if world.stuck:
        yield world.stuck
    yield from world.loop.failures
    for spoken in world.spoken:
        if spoken.is_whole and spoken.host != world.dead and not world.logs.get(site_key(spoken.scope), True):
            yield f"the log of {spoken.scope.site} has no end"
    for heard in world.heard:
        spoken = heard.spoken
        numbers = [number for number, _ in heard.events]
        if numbers != [*range(heard.after + 1, heard.after + 1 + len(numbers))]:
            yield f"events after {heard.after} came as {numbers}"
        for number, event in heard.events:
            if spoken.events[number - 1 : number] != [event]:
                yield f"event {number} of {spoken.scope.site} is {event}"
        yield from _wrong_end(world, heard, heard.after + len(numbers))


def _wrong_end(world: LiveWorld, heard: Heard, read: int) -> Iterator[str]:
    answered = isinstance(heard.spoken.events[-1] if heard.spoken.events else None, ReplyFinished)
    is_all = heard.spoken.is_whole and read >= len(heard.spoken.events)
    match heard.end:
        case "left":
            return
        case "none" if heard.is_late or world.dead == heard.spoken.host or world.trouble:
            return
        case "turn_unreachable" if world.dead == heard.spoken.host or world.trouble:
            return
        case "whole" if is_all and answered:
            return
        case "error" if is_all and not answered:
            return
        case TurnInterrupted.code if world.dead == heard.spoken.host or world.trouble:
            return
        case "waits" if world.dead == heard.host:
            return
        case "unavailable" | "store_unavailable" if world.trouble:
            return
    yield f"a reader that had read {read} of {len(heard.spoken.events)} events ended with {heard.end!r}"


def unasked(world: LiveWorld) -> Iterator[str]:
    """Turns that nobody follows elsewhere and of which something was written."""
    for spoken in world.spoken:
        if not spoken.is_followed and site_key(spoken.scope) in world.written:
            yield f"something was written of {spoken.scope.site}"
