"""The world of a story: processes with an engine each, one store, clients that talk, and the faults of the plan."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from random import Random

from tenuto.stores.engine import changes, codec, lane
from tenuto.stores.engine.codec import Codec
from tenuto.stores.engine.rules import keys
from tests.simulation.clients import Client, Operation, Reading, Said
from tests.simulation.disk import SimFolder
from tests.simulation.faults import Faults
from tests.simulation.hosts import CheckingSealer, Host
from tests.simulation.loop import SimLoop, Stuck
from tests.simulation.plan import ClientPlan, ClientStep, Plan
from tests.simulation.store import SimServer

_SETTLED = 30.0


class World:
    """One run of a plan. What happened stands in `said`, `operations`, `readings` and `story` afterwards."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.luck = self.stream("world")
        self.loop = SimLoop(self.stream("loop"))
        self.server = SimServer(self.stream("network"), plan.latency)
        self.faults = Faults(self)
        self.server.fate = self.faults.fate
        self.server.on_commit = lambda process, changes: self.event("commit", self.host_named(process))
        self.folder = SimFolder()
        self.codec = Codec(CheckingSealer() if plan.sealed else None)
        self.hosts = [Host(self, number) for number in range(plan.processes)]
        self.said: dict[str, Said] = {}
        self.operations: list[Operation] = []
        self.readings: list[Reading] = []
        self.sessions: dict[str, None] = {}
        self.story: list[str] = []
        self.counts: Counter[str] = Counter()
        self.torn = 0
        self.orphaned: set[str] = set()
        self.is_over = False
        self.stuck: list[str] = []

    def stream(self, purpose: str) -> Random:
        """Chance for one purpose, so that leaving out a step does not move the rest."""
        return Random(f"{self.plan.seed} {purpose}")

    def host_named(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def disk_delay(self) -> float:
        """How long the disk takes."""
        return self.plan.disk * (0.5 + self.luck.random())

    def tell(self, who: str, what: str) -> None:
        self.story.append(f"{self.loop.time():9.3f} {who}: {what}")

    @property
    def digest(self) -> str:
        """The same for two runs that went the same way."""
        return blake2b("\n".join(self.story).encode(), digest_size=8).hexdigest()

    def run(self) -> World:
        """Run the story to its end."""
        asyncio.set_event_loop(self.loop)
        try:
            with _small_limits():
                self.loop.run_until_complete(self._run())
        except Stuck as error:
            self.stuck.append(str(error))
        finally:
            asyncio.set_event_loop(None)
            self._abandon_tasks()
        return self

    def _abandon_tasks(self) -> None:
        """What killed processes left has not run on, and does not fail the next story."""
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # they were killed
            with suppress(BaseException):
                task.get_coro().close()
        self.loop.close()

    async def _run(self) -> None:
        for host in self.hosts:
            host.start()
        self.faults.start()
        await asyncio.gather(*[Client(self, plan).run() for plan in self.plan.clients])
        self.is_over = True
        self.faults.outage_until = 0.0
        self.folder.is_full = False
        for host in self.hosts:
            host.cut_until = 0.0
            if host.process is None:
                host.start()
            host.process.frozen_until = 0.0  # type: ignore[union-attr]  # it was started
            host.client.feed.reconnect()  # type: ignore[union-attr]
        await asyncio.sleep(_SETTLED)
        await self._end()

    async def _end(self) -> None:
        """Every session takes a turn now, wherever; then all is read."""
        checker = Client(self, ClientPlan(name="checker", process=0, moves=True, steps=()))
        for session in list(self.sessions):
            step = ClientStep(kind="turn", session=session)
            await checker.take(step)
            if not checker.was_answered:
                self.stuck.append(f"{session} takes no turn")
            await checker.take(ClientStep(kind="read", session=session))
        if self.folder.rows:
            self.stuck.append(f"{self.folder.rows} rows wait in the journal")
        for host in self.hosts:
            assert host.engine is not None
            if host.engine.sessions.context.lanes:
                self.stuck.append(f"{host.name} has lanes that do not end")

    def event(self, kind: str, host: Host) -> None:
        """Something happened in a process: faults may be tied to it."""
        self.counts[kind] += 1
        self.counts[f"{kind} {host.name}"] += 1
        self.tell(host.name, kind)
        self.faults.on_event(kind, host, self.counts[f"{kind} {host.name}"])


@contextmanager
def _small_limits() -> Iterator[None]:
    """So small that logs outgrow their tails, keys their heads, and evictions come due within one story."""
    small = (
        (keys, "IN_HEAD", 3),
        (keys, "PAGE", 2),
        (changes, "EVICTION_BATCH", 3),
        (lane, "LOADED", 4),
        (codec, "TAIL", 4),
    )
    with ExitStack() as stack:
        for module, name, value in small:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        yield
