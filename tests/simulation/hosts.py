"""Hosts: places where a process with an engine runs, dies and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from tenuto.errors import DecryptionFailed
from tenuto.model import Scope
from tenuto.stores.breaker import BreakerPolicy
from tenuto.stores.engine import Engine
from tenuto.stores.engine.breaker_records import BreakerRecords
from tenuto.stores.engine.codec import Codec
from tests.clock import START
from tests.simulation.disk import FolderView
from tests.simulation.loop import Process
from tests.simulation.store import SimClient

if TYPE_CHECKING:
    from tests.simulation.world import World

_CALL_LIMIT = 15.0
_BREAKER = BreakerPolicy(failures=5, reset=timedelta(seconds=30))


class ConnectionLost(Exception):
    """The process died, or is not there."""


class CheckingSealer:
    """Seals with a checksum over body and place: enough to notice what is out of place."""

    def seal(self, plain: bytes, place: tuple[str, ...]) -> bytes:
        return blake2b(repr(place).encode() + plain, digest_size=8).digest() + plain

    def open(self, sealed: bytes, place: tuple[str, ...]) -> bytes:
        if self.seal(sealed[8:], place) != sealed:
            raise DecryptionFailed("was moved")
        return sealed[8:]

    def word_key(self) -> bytes:
        return b"words"


class OneCodec:
    """The same codec for every tenant."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def ready(self, scope: Scope) -> Codec:
        return self._codec

    async def load(self, scope: Scope, *, writing: bool = False, refresh: bool = False) -> Codec:
        return self._codec


class Host:
    """A place where a process runs: it may die and come back, and its clock may be wrong."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"process{number}"
        self.number = number
        self.skew = timedelta(0)
        self.starts = 0
        self.cut_until = 0.0
        self.process: Process | None = None
        self.engine: Engine | None = None
        self.client: SimClient | None = None
        self.calls: list[asyncio.Future[Any]] = []

    def clock(self) -> datetime:
        return START + timedelta(seconds=self.world.loop.time()) + self.skew

    def start(self) -> None:
        world = self.world
        self.starts += 1
        self.process = world.loop.add_process(f"{self.name}.{self.starts}")
        self.client = SimClient(world.server, self.name)
        self.engine = Engine(
            BreakerRecords(self.client, now=world.loop.time, policy=_BREAKER) if world.plan.breaker else self.client,
            clock=self.clock,
            chance=world.stream(f"{self.name}.{self.starts}"),
            codecs=OneCodec(world.codec),
            folder=self._join_folder(self.process) if world.plan.journals else None,
            max_sessions=20 if world.plan.journals else 4,
        )
        world.loop.spawn(self.process, self.engine.__aenter__())
        if self.engine.sessions.journal is not None:
            world.loop.spawn(self.process, self.engine.sessions.journal.run())

    def _join_folder(self, process: Process) -> FolderView:
        world = self.world
        return FolderView(
            world.folder,
            process.name,
            delay=world.disk_delay,
            event=lambda kind: world.event(kind, self),
            spawn=lambda coroutine: world.loop.spawn(process, coroutine),
        )

    def kill(self) -> None:
        if self.process is None or self.client is None:
            return
        self.world.tell(self.name, "killed")
        self.world.loop.kill(self.process)
        self.world.folder.leave(self.process.name)
        self.world.server.clients.remove(self.client)
        self.process = self.engine = self.client = None
        calls, self.calls = self.calls, []
        for call in calls:
            if not call.done():
                call.set_exception(ConnectionLost())

    async def call(self, make: Callable[[Engine], Awaitable[Any]]) -> Any:
        """Run a call in the process, as over a connection: it ends when the process does."""
        world = self.world
        await asyncio.sleep(world.plan.latency * world.luck.random())
        world.event("called", self)
        if self.process is None or self.engine is None:
            raise ConnectionLost
        future: asyncio.Future[Any] = world.loop.create_future()
        self.calls.append(future)
        task = world.loop.spawn(self.process, _run(make, self.engine))
        task.add_done_callback(lambda done: _deliver(done, future), context=Context())
        try:
            result = await asyncio.wait_for(future, _CALL_LIMIT)
        except (asyncio.CancelledError, TimeoutError):
            task.cancel()
            raise
        finally:
            if future in self.calls:
                self.calls.remove(future)
        world.event("acknowledged", self)
        return result


async def _run(make: Callable[[Engine], Awaitable[Any]], engine: Engine) -> Any:
    return await make(engine)


def _deliver(done: asyncio.Task[Any], future: asyncio.Future[Any]) -> None:
    if future.done():
        if not done.cancelled():
            done.exception()
    elif done.cancelled():
        future.cancel()
    elif failure := done.exception():
        future.set_exception(failure)
    else:
        future.set_result(done.result())
