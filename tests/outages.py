"""A store that goes away when a test says so, and a process with a journal in front of it that dies and comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Any, cast

from tenuto.errors import StoreUnavailable, Unavailable
from tenuto.model import FinishTurn, OpenTurn, Page, Scope
from tenuto.model.scope import session_key
from tenuto.model.store_reports import Invalidation
from tenuto.ports import Ciphers, Store
from tenuto.stores.cached import CachedStore
from tenuto.stores.journaled import JournaledStore, Outbox
from tests.clock import FakeClock
from tests.doubles import MemoryStore, OwnPorts, port_with
from tests.samples import begin, closing


class Killed(BaseException):
    """The process ends here."""


async def full_disk(*_: object) -> Any:
    """In the place of what the journal writes."""
    raise Unavailable("journal", "cannot be written")


class Fate(Enum):
    """What becomes of a call: refused, carried out but unanswered, or the end of the process before or after it."""

    REFUSED = "refused"
    UNANSWERED = "unanswered"
    KILLED_BEFORE = "killed before"
    KILLED_AFTER = "killed after"


class Wire(OwnPorts):
    """The way to a store: it can be cut, and one call of those to come can have a fate of its own."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.cut = False
        self.calls: list[str] = []
        self._fates: dict[int, Fate] = {}
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        self.tell: Callable[[list[bytes]], None] = lambda _: None

    def strike(self, at: int, fate: Fate) -> None:
        """The call that is `at` calls away, 0 for the next one."""
        self._fates[len(self.calls) + at] = fate

    def spare(self) -> None:
        """Whatever was planned, does not happen."""
        self._fates.clear()

    @property
    def traces(self) -> Any:
        return self.store.traces

    def __getattr__(self, name: str) -> Any:
        step = getattr(port_with(self.store, name), name)

        async def call(*args: Any, **rest: Any) -> Any:
            fate = self._fates.pop(len(self.calls), None)
            self.calls.append(name)
            if fate is Fate.KILLED_BEFORE:
                raise Killed
            if self.cut or fate is Fate.REFUSED:
                raise StoreUnavailable
            before = self._version(name, args)
            answer = await step(*args, **rest)
            if self._version(name, args) != before:
                self.tell([_key(name, args)])
            if fate is Fate.KILLED_AFTER:
                raise Killed
            if fate is Fate.UNANSWERED:
                if self.meanwhile is not None:
                    await self.meanwhile()
                raise StoreUnavailable
            return answer

        return call

    def _version(self, name: str, args: tuple[Any, ...]) -> int | None:
        """How often the session of a turn, or of a patch, was changed."""
        if not isinstance(self.store, MemoryStore) or name not in ("begin_turn", "finish_turn", "patch"):
            return None
        record = self.store.sessions.record(_key(name, args))
        return None if record is None else int(record.session.version)


def _key(name: str, args: tuple[Any, ...]) -> bytes:
    if name == "finish_turn":
        return session_key(args[0].scope, args[0].session.id)
    return session_key(args[0], args[1].session_id if name == "begin_turn" else args[1])


class Told:
    """A feed that tells what a test has it tell, and hears nothing when a test says so."""

    def __init__(self) -> None:
        self.listening = True
        self._told: list[Callable[[Invalidation | None], None]] = []

    @asynccontextmanager
    async def watch(self, on_invalidate: Callable[[Invalidation | None], None]) -> AsyncIterator[None]:
        self._told.append(on_invalidate)
        yield
        self._told.remove(on_invalidate)

    def drain_invalidations(self) -> bool:
        return self.listening

    def tell(self, keys: Iterable[bytes], *, taken_away: bool = False, ours: bool | None = None) -> None:
        self._tell(Invalidation(keys=tuple(keys), removed=taken_away, local=ours))

    def lose_track(self) -> None:
        self._tell(None)

    def _tell(self, news: Invalidation | None) -> None:
        for told in self._told:
            told(news)


class Process:
    """A process with a journal; nothing happens in it by itself, but that the feed tells of its own changes."""

    def __init__(
        self,
        folder: Path,
        *,
        store: Any = None,
        clock: FakeClock | None = None,
        ciphers: Callable[[Store], Ciphers] | None = None,
        echoing: bool = True,
        serves_reads: bool = False,
    ) -> None:
        self.clock = clock or FakeClock()
        self.folder = folder
        self.memory = store or MemoryStore(clock=self.clock)
        self.wire = Wire(self.memory)
        self.feed = Told()
        if echoing:
            self.wire.tell = self.feed.tell
        self.now = 0.0
        self._ciphers = ciphers
        self._serves_reads = serves_reads
        self.outbox: Outbox
        self.cached: CachedStore
        self.store: JournaledStore

    async def start(self) -> None:
        self.outbox = await Outbox.open(self.folder)
        behind = cast(Store, self.wire)
        self.cached = CachedStore(
            store=behind, feed=self.feed, clock=self.clock, serves_reads=self._serves_reads, monotonic=lambda: self.now
        )
        await self.cached.__aenter__()
        self.store = JournaledStore(
            store=self.cached,
            outbox=self.outbox,
            ciphers=self._ciphers(behind) if self._ciphers is not None else None,
            clock=self.clock,
            monotonic=lambda: self.now,
            auto_replay=False,
        )
        await self.store.__aenter__()

    async def die(self) -> None:
        """What is in memory goes; what was not on disk was not there."""
        await self.store.__aexit__(None, None, None)
        await self.cached.__aexit__(None, None, None)
        await self.outbox.close()

    async def restart(self) -> None:
        await self.die()
        await self.start()

    def goes_away(self) -> None:
        self.wire.cut = True

    def comes_back(self) -> None:
        """The store answers, and the pause before it is asked again is over."""
        self.wire.cut = False
        self.now += 10

    async def replay(self) -> bool:
        self.now += 10
        return await self.store.replay()

    async def catch_up(self) -> None:
        """The store answers again, and the journal is replayed."""
        self.comes_back()
        await self.replay()

    async def begin(self, scope: Scope, session_id: str, *words: str, **rest: Any) -> OpenTurn:
        return await begin(self.store, scope, session_id, *words, **{"journaled": True, **rest})

    async def turn(self, scope: Scope, session_id: str, question: str, answer: str, **rest: Any) -> OpenTurn:
        turn = await self.begin(scope, session_id, question, **rest)
        await self.store.sessions.finish_turn(turn, closing(answer))
        return turn

    async def finish(self, turn: OpenTurn, *words: str, **rest: Any) -> FinishTurn:
        end = closing(*words, **rest)
        await self.store.sessions.finish_turn(turn, end)
        return end

    async def is_unknown(self, scope: Scope, session_id: str) -> bool:
        """Whether nothing of the session is shown when the store goes away now."""
        self.goes_away()
        try:
            await self.store.sessions.get(scope, session_id)
        except StoreUnavailable:
            return True
        return False

    async def log(self, scope: Scope, session_id: str) -> list[str]:
        """What the store itself has."""
        page = await self.memory.sessions.messages(scope, session_id, Page(limit=10_000))
        return [message.text for message in page.messages]


@asynccontextmanager
async def process(folder: Path, **rest: Any) -> AsyncIterator[Process]:
    """A process that runs."""
    running = Process(folder, **rest)
    await running.start()
    try:
        yield running
    finally:
        await running.die()
