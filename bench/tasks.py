"""What a plan costs beside raw DBOS, which runs as many steps on the same kind of database; and what a board costs.

python -m bench.tasks raw|ours URL     runs flows of steps in a process of its own, and prints seconds for one step
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final

import tenuto
from bench.grounds import Ground
from tenuto.model.plan import Plan, Step
from tenuto.settings import read_settings
from tenuto.wiring.tasks import engine_database

_ROOT: Final = Path(__file__).parents[1]
STEPS: Final = 20
FLOWS: Final = 8
_LONG: Final = 300
KEYS: Final = (10, 1000)
_WRITES: Final = 300
# How often both look whether a flow has ended, in seconds.
_LOOK: Final = 0.2
_Run = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class StepCost:
    """Wall and processor seconds for one step, of all rounds."""

    backend: str
    who: str
    wall: list[float]
    cpu: list[float]


@dataclass(frozen=True, slots=True)
class BoardCost:
    """Wall seconds for an update of a board's key, by the number of its keys."""

    backend: str
    seconds: dict[int, float]

    @property
    def ratio(self) -> float:
        """The cost on the large board against the small one."""
        return self.seconds[KEYS[-1]] / self.seconds[KEYS[0]]


def measure_steps(up: Ground, rounds: int) -> list[StepCost]:
    """Both in turn, each time in a process and on a database of their own."""
    costs = [StepCost(up.backend, who, [], []) for who in ("raw", "ours")]
    for _ in range(rounds):
        for cost in costs:
            command = [sys.executable, "-m", "bench.tasks", cost.who, up.new_url()]
            done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=_LONG)
            if done.returncode:
                raise RuntimeError(done.stderr[-300:])
            wall, cpu = json.loads(done.stdout)
            cost.wall.append(wall)
            cost.cpu.append(cpu)
    return costs


async def measure_board(up: Ground) -> BoardCost:
    """Updates of one key, on boards of different sizes in turn."""
    took: dict[int, list[float]] = {keys: [] for keys in KEYS}
    async with tenuto.open(up.new_url()) as app:
        scope = app.scope(user="ann")
        boards = {keys: app.tasks.board(scope, (await app.tasks.open(scope, _new())).id) for keys in KEYS}
        for keys, board in boards.items():
            for number in range(keys):
                await board.write(f"key-{number}", number, agent="writer")
        for number in range(_WRITES):
            for keys, board in boards.items():
                started = perf_counter()
                await board.write("key-3", number, agent="writer")
                took[keys].append(perf_counter() - started)
    return BoardCost(up.backend, {keys: median(times) for keys, times in took.items()})


def _new() -> tenuto.NewTask:
    return tenuto.NewTask(type="bench", goal="Count to twenty")


# One process


@asynccontextmanager
async def _ours(url: str) -> AsyncIterator[_Run]:
    plan = Plan(steps=tuple(Step(id=f"s{n}", agent="worker", after=(f"s{n - 1}",) if n else ()) for n in range(STEPS)))

    async def work(ctx: tenuto.AgentContext) -> str:
        return ctx.step

    async with tenuto.open(url) as app:
        app.agents.register("worker", work)
        engine, scope = await app.engine(), app.scope(user="ann")

        async def run() -> None:
            task = await engine.submit(scope, _new(), plan)
            while not (await app.tasks.get(scope, task.id)).is_finished:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK)

        yield run


@asynccontextmanager
async def _raw(url: str) -> AsyncIterator[_Run]:
    from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer

    from tenuto.tasks.engines._database import make_database

    async def work(name: str) -> str:
        return name

    @DBOS.workflow()
    async def flow() -> None:
        for number in range(STEPS):
            await DBOS.run_step_async({"name": f"s{number}"}, work, f"s{number}")

    config: DBOSConfig = {
        "name": "bench",
        "system_database_engine": make_database(engine_database(read_settings(store=url))),
        "serializer": DBOSPortableJSONSerializer(),
        "log_level": "WARNING",
    }

    def launch() -> None:
        DBOS(config=config)
        DBOS.listen_queues(["bench"])
        DBOS.launch()
        DBOS.register_queue("bench", polling_interval_sec=0.2)

    # In a thread, as our engine does it: flows run in the loop of DBOS then.
    await asyncio.to_thread(launch)

    async def run() -> None:
        handle = await DBOS.enqueue_workflow_async("bench", flow)
        while (await handle.get_status()).status != "SUCCESS":  # noqa: ASYNC110
            await asyncio.sleep(_LOOK)

    try:
        yield run
    finally:
        await asyncio.to_thread(DBOS.destroy)


async def _measure(who: str, url: str) -> tuple[float, float]:
    async with (_ours if who == "ours" else _raw)(url) as run:
        await run()
        wall, cpu = perf_counter(), process_time()
        await asyncio.gather(*(_to_coroutine(run) for _ in range(FLOWS)))
        steps = FLOWS * STEPS
        return (perf_counter() - wall) / steps, (process_time() - cpu) / steps


def _to_coroutine(run: _Run) -> Coroutine[Any, Any, None]:
    async def call() -> None:
        await run()

    return call()


if __name__ == "__main__":
    for name in [name for name in os.environ if name.startswith("TENUTO_")]:
        del os.environ[name]
    print(json.dumps(asyncio.run(_measure(sys.argv[1], sys.argv[2]))))
