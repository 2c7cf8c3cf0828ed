"""Processes on one machine with a journal, and a store that goes away when a test says so."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest

from tenuto.stores.breaker import BreakerPolicy
from tenuto.stores.engine import Engine
from tenuto.stores.engine import journal as journal_module
from tenuto.stores.engine.breaker_records import BreakerRecords
from tenuto.stores.engine.codec import Codec
from tenuto.stores.engine.journal_files import DiskFolder, count_journal
from tests.clock import FakeClock
from tests.simulation.hosts import CheckingSealer, OneCodec
from tests.simulation.store import Fate, SimClient, SimServer
from tests.timeouts import LONG, wait_until


class Machine:
    """Processes on one machine, their folder, and a store that can be away."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = FakeClock()
        self.server = SimServer(Random(1))
        self.server.fate = self._fate
        self._is_away = False
        self.cut = ""
        self.codec = Codec(CheckingSealer())
        self._stack = AsyncExitStack()
        self._stops = dict[Engine, AsyncExitStack]()

    @property
    def is_away(self) -> bool:
        """Whether the store is; with it all feeds lose their connections, and tell so at once."""
        return self._is_away

    @is_away.setter
    def is_away(self, is_away: bool) -> None:
        self._is_away = is_away
        for client in self.server.clients:
            client.feed.disconnect() if is_away else client.feed.reconnect()

    def lose(self, process: str) -> None:
        """Cut a process off from the store and its feed; with an empty name it has them back."""
        for client in self.server.clients:
            if client.process in (process, self.cut):
                client.feed.disconnect() if client.process == process else client.feed.reconnect()
        self.cut = process

    def _fate(self, process: str, _kind: str) -> Fate:
        return Fate.REFUSED if self.is_away or self.cut == process else Fate.FINE

    async def start(self, name: str, breaker: BreakerPolicy | None = None) -> Engine:
        stack = AsyncExitStack()
        client = SimClient(self.server, name)
        folder = await DiskFolder.open(self.path)
        stack.push_async_callback(folder.close)
        engine = Engine(
            client if breaker is None else BreakerRecords(client, now=time.monotonic, policy=breaker),
            clock=self.clock,
            chance=Random(name),
            codecs=OneCodec(self.codec),
            folder=folder,
        )
        await stack.enter_async_context(engine)
        assert engine.sessions.journal is not None
        running = asyncio.create_task(engine.sessions.journal.run())
        stack.callback(running.cancel)
        await asyncio.sleep(0)
        self._stops[engine] = stack
        return engine

    async def stop(self, engine: Engine) -> None:
        await self._stops.pop(engine).aclose()

    def elsewhere(self) -> Engine:
        """An engine on another machine, with no journal."""
        return Engine(
            SimClient(self.server, "elsewhere"),
            chance=Random(2),
            clock=self.clock,
            codecs=OneCodec(self.codec),
            tells_machines=True,
        )

    async def close(self) -> None:
        for engine in tuple(self._stops):
            await self.stop(engine)

    @property
    def waiting(self) -> int:
        """The turns on disk that wait for the store."""
        return count_journal(self.path).waiting

    async def until_stored(self, engine: Engine) -> None:
        """The store is back, and nothing waits for it."""
        self.is_away = False
        folder = engine.sessions.journal._folder  # type: ignore[union-attr]  # it has one
        await wait_until(lambda: not folder.is_down and not folder.may_have_rows)


def be_quick(patch: pytest.MonkeyPatch) -> None:
    """Have journals look for the store often, and wait long for each other."""
    patch.setattr(journal_module, "_PROBE_EVERY", 0.02)
    for limit in ("_AGREED_WITHIN", "_OFFERED_WITHIN"):
        patch.setattr(journal_module, limit, LONG)
