"""Workers killed or frozen at any moment: tasks end right, and each step's end is recorded once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Final

import pytest

pytest.importorskip("dbos")

import tenuto
from tenuto.model import Scope
from tenuto.model.plan import StepStatus
from tenuto.model.task import NewTask, TaskStatus
from tests.engines import wait_for_end, wait_for_step
from tests.servers import start_postgres
from tests.shared_stores import SHARED, SharedStore, until_it_answers
from tests.task_worker import FREEZES, PLAN, RESULT
from tests.timeouts import LONG
from tests.warm_start import open_program

pytestmark = pytest.mark.requirement("T16", "E17", "S8")


ANN: Final = Scope(tenant="acme", user="ann")
TOP: Final = Path(__file__).parents[2]
# Forty tasks and ten kills take some minutes.
TASKS: Final = 6
KILLS: Final = 3
BOTH: Final = [shared for shared in SHARED if shared.name in ("sqlite", "postgres")]


class Workers:
    """Processes that work on tasks."""

    def __init__(self, *args: str) -> None:
        self._args = args
        self.running: list[Popen[bytes]] = []

    async def start(self) -> None:
        process = open_program("-m", "tests.task_worker", *self._args, str(os.getpid()), cwd=TOP, stdout=PIPE)
        self.running.append(process)
        assert process.stdout is not None
        assert await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), 2 * LONG) == b"ready\n"

    def kill(self, process: Popen[bytes]) -> None:
        self.running.remove(process)
        with process:
            process.kill()


@asynccontextmanager
async def two_workers(*args: str) -> AsyncIterator[Workers]:
    workers = Workers(*args)
    try:
        await asyncio.gather(workers.start(), workers.start())
        yield workers
    finally:
        for process in tuple(workers.running):
            workers.kill(process)


@pytest.fixture(params=BOTH, ids=lambda shared: shared.name)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, Path]:
    """The store, the engine's database, and the file of the agents' calls."""
    assert isinstance(request.param, SharedStore)
    url = request.param.url(request.getfixturevalue, tmp_path)
    return url, url if url.startswith("postgres") else f"sqlite:///{tmp_path / 'tasks.db'}", tmp_path / "calls"


async def test_tasks_of_killed_workers_end_right_and_each_step_is_recorded_once(place: tuple[str, str, Path]) -> None:
    url, database, calls = place
    chance = random.Random(17)
    async with tenuto.open(url, tasks_database=database) as app, two_workers(url, database, str(calls)) as workers:
        engine = await app.engine(worker=False)
        tasks = [await engine.submit(ANN, NewTask(type="sum"), PLAN) for _ in range(TASKS)]
        for _ in range(KILLS):
            await asyncio.sleep(chance.uniform(0.3, 1.2))
            workers.kill(chance.choice(workers.running))
            await workers.start()
        ended = [await wait_for_end(app.tasks, ANN, task.id) for task in tasks]
        boards = [(await app.tasks.board(ANN, task.id).view()).entries for task in tasks]

    assert [progress.task.status for progress in ended] == [TaskStatus.COMPLETED] * TASKS
    assert [progress.task.result for progress in ended] == [RESULT] * TASKS
    assert {run.status for progress in ended for run in progress.steps} == {StepStatus.COMPLETED}
    # An output is written once, whatever died between the writing and the recording.
    outputs = [entry for board in boards for entry in board if not entry.key.startswith("note.")]
    assert {entry.version for entry in outputs} == {1}
    assert len(outputs) == TASKS * len(PLAN.steps)
    # What ran twice was running in a worker that was killed.
    ran = Counter(calls.read_text().split())
    attempts = {f"{each.task.id}:{run.step}": run.attempts for each in ended for run in each.steps}
    assert ran.keys() == attempts.keys()
    assert all(ran[step] <= attempts[step] for step in attempts)
    assert sum(ran.values()) < 2 * len(ran)


async def test_tasks_go_on_after_a_crash_of_postgres_itself(tmp_path: Path) -> None:
    """Store and engine are away at once; both processes live on, and no step is lost or ended twice."""
    calls = tmp_path / "calls"
    with start_postgres() as server:
        url = server.new_database().app_url
        async with tenuto.open(url, breaker_failures=0) as app, two_workers(url, url, str(calls)) as workers:
            engine = await app.engine(worker=False)
            tasks = [await engine.submit(ANN, NewTask(type="sum"), PLAN) for _ in range(TASKS)]
            await wait_for_step(app.tasks, ANN, tasks[0].id, "s0", "completed")
            server.kill()
            server.restart()
            await until_it_answers(app.store)
            ended = [await wait_for_end(app.tasks, ANN, task.id) for task in tasks]
            boards = [(await app.tasks.board(ANN, task.id).view()).entries for task in tasks]
            assert [process.poll() for process in workers.running] == [None, None]

    assert [progress.task.result for progress in ended] == [RESULT] * TASKS
    outputs = [entry for board in boards for entry in board if not entry.key.startswith("note.")]
    assert [entry.version for entry in outputs] == [1] * TASKS * len(PLAN.steps)
    assert sum(Counter(calls.read_text().split()).values()) < 2 * TASKS * len(PLAN.steps)


async def test_a_frozen_worker_that_thaws_after_its_step_was_taken_writes_nothing(place: tuple[str, str, Path]) -> None:
    url, database, calls = place
    async with tenuto.open(url, tasks_database=database) as app, two_workers(url, database, str(calls)) as workers:
        engine = await app.engine(worker=False)
        task = await engine.submit(ANN, NewTask(type="sum", goal=FREEZES), PLAN)
        await wait_for_step(app.tasks, ANN, task.id, "s3", "completed")
        note = await app.tasks.board(ANN, task.id).read_entry("note.s3")
        assert note is not None
        (frozen,) = [process for process in workers.running if process.pid == note.value]
        frozen.send_signal(signal.SIGSTOP)

        progress = await wait_for_end(app.tasks, ANN, task.id)
        before = await app.tasks.board(ANN, task.id).view()
        frozen.send_signal(signal.SIGCONT)
        await asyncio.sleep(4)  # The time in which it would do harm.

        assert (progress.task.status, progress.task.result) == (TaskStatus.COMPLETED, RESULT)
        assert await app.tasks.board(ANN, task.id).view() == before
        assert await app.tasks.progress(ANN, task.id) == progress
        assert {entry.key: entry.value for entry in before.entries}["note.s1"] != frozen.pid
        assert progress.steps[1].attempts == 2
