"""What became of the steps of a plan is recorded once, and a worker that lost a step can store nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tenuto.errors import TooLarge
from tenuto.model import Scope, StateEntry
from tenuto.model.plan import Plan, Step, StepStatus
from tenuto.model.policy import RunPolicy
from tenuto.model.task import TaskError, TaskStatus
from tenuto.model.values import Json
from tenuto.ports import Store
from tenuto.task_errors import StepLost, StepNotWaiting, TaskFinished, TaskRunning
from tenuto.tasks import Tasks
from tenuto.tasks._workspace import BOARD
from tenuto.tasks.agents import AgentContext, Agents
from tenuto.tasks.step_runner import StepRunner
from tenuto.wiring.tasks import make_agent_contexts
from tests.clock import FakeClock
from tests.cut_wires import Wire
from tests.doubles import FlatMemoryStore, MemoryStore
from tests.held_calls import HeldCall
from tests.samples import ANN
from tests.tasks import opened, tasks_over

READ = Step(id="read", agent="reader")
ASK = Step(id="ask", human_input="Is it so?", after=("read",))
PLAN = Plan(steps=(READ, ASK))
BROKEN = TaskError(code="agent_failed", step="read")


@pytest.fixture
def tasks() -> Tasks:
    clock = FakeClock()
    return tasks_over(MemoryStore(clock=clock), clock, max_board_value_bytes=1000)


async def test_a_task_shows_its_plan_and_steps_without_an_engine(tasks: Tasks) -> None:
    task = await opened(tasks, ANN)
    assert await tasks.add_plan(ANN, task.id, PLAN) == PLAN
    _, token = await tasks.steps(ANN, task.id).begin(READ)
    await tasks.steps(ANN, task.id).complete(READ, token, {"months": 6})

    progress = await tasks.progress(ANN, task.id)

    assert progress.plan == PLAN
    assert [(run.step, run.status, run.attempts, run.output) for run in progress.steps] == [
        ("read", StepStatus.COMPLETED, 1, {"months": 6}),
        ("ask", StepStatus.PENDING, 0, None),
    ]


async def test_a_plan_is_given_once(tasks: Tasks) -> None:
    task = await opened(tasks, ANN)
    await tasks.add_plan(ANN, task.id, PLAN)

    assert await tasks.add_plan(ANN, task.id, Plan(steps=(READ,))) == PLAN


async def test_a_worker_that_lost_its_step_stores_nothing(tasks: Tasks) -> None:
    task = await opened(tasks, ANN)
    steps = tasks.steps(ANN, task.id)
    _, frozen = await steps.begin(READ)
    with pytest.raises(StepLost):
        await steps.begin(READ)
    _, token = await steps.begin(READ, take_over=True)

    for late in (steps.complete(READ, frozen, 1), steps.fail(READ, frozen, BROKEN), steps.repeat(READ, frozen, BROKEN)):
        with pytest.raises(StepLost):
            await late
    with pytest.raises(StepLost):
        await steps.check_owner(READ, frozen)

    done = await steps.complete(READ, token, 2)
    assert (done.output, done.attempts) == (2, 2)
    assert (await steps.complete(READ, token, 2)).output == 2
    assert (await steps.begin(READ))[0].output == 2


@pytest.mark.requirement("T16", "T17")
@pytest.mark.parametrize("held", ["task-board:", "task-notes:"])
async def test_a_write_that_was_under_way_when_its_step_was_lost_is_undone(held: str) -> None:
    """The worker froze between the check of its token and the write."""
    store, clock = MemoryStore(clock=FakeClock()), FakeClock()
    holding = HeldCall(store, "write_state", held)
    tasks, slow = tasks_over(store, clock), tasks_over(holding.store, clock)
    task = await opened(tasks, ANN)
    board, notes = tasks.board(ANN, task.id), tasks.notes(ANN, task.id, "reader")
    before = await board.write("months", 6, agent="reader"), await notes.write("months", 6)
    steps = tasks.steps(ANN, task.id)
    fence = partial(steps.check_owner, READ, (await steps.begin(READ))[1])

    write: Coroutine[Any, Any, object] = (
        slow.board(ANN, task.id, fence=fence).write("months", 12, agent="reader")
        if held == "task-board:"
        else slow.notes(ANN, task.id, "reader", fence=fence).write("months", 12)
    )
    frozen = asyncio.create_task(write)
    await holding.come()
    await steps.begin(READ, take_over=True)
    holding.go()

    with pytest.raises(StepLost):
        await frozen
    assert (await board.read_entry("months"), await notes.read_entry("months")) == before


async def test_an_output_above_the_limit_is_refused(tasks: Tasks) -> None:
    task = await opened(tasks, ANN)
    _, token = await tasks.steps(ANN, task.id).begin(READ)

    with pytest.raises(TooLarge):
        await tasks.steps(ANN, task.id).complete(READ, token, "x" * 1001)


async def test_only_a_waiting_step_takes_an_answer_and_only_one(tasks: Tasks) -> None:
    task = await opened(tasks, ANN)
    steps = tasks.steps(ANN, task.id)
    with pytest.raises(StepNotWaiting):
        await steps.answer(ASK, True)
    await steps.begin(ASK, waiting=True)

    run, token = await steps.answer(ASK, True)

    assert (run.status, run.output) == (StepStatus.COMPLETED, True)
    assert await steps.answer(ASK, True) == (run, token)
    with pytest.raises(StepNotWaiting):
        await steps.answer(ASK, False)
    await steps.begin(READ)
    with pytest.raises(StepNotWaiting):
        await steps.answer(READ, True)


async def test_an_ended_task_can_be_run_again_and_its_steps_are_reset(tasks: Tasks) -> None:
    task = await opened(tasks, ANN)
    await tasks.add_plan(ANN, task.id, PLAN)
    await tasks.start_run(ANN, task.id, run=1, timeout=timedelta(minutes=1))
    steps = tasks.steps(ANN, task.id)
    _, token = await steps.begin(READ)
    with pytest.raises(TaskRunning):
        await tasks.start_run(ANN, task.id, run=2, timeout=None)
    await tasks.finish(ANN, task.id, failed=True, error=BROKEN)
    ended = await tasks.progress(ANN, task.id)
    assert (ended.task.error, ended.steps[0].status, ended.steps[0].error) == (BROKEN, StepStatus.FAILED, BROKEN)
    with pytest.raises(TaskFinished):
        await tasks.start_run(ANN, task.id, run=1, timeout=None)

    with pytest.raises(TaskFinished):
        await tasks.start_run(ANN, task.id, run=2, timeout=None)
    seen = await steps.list(PLAN)
    await steps.reset([(READ, replace(seen[0], attempts=2))])
    assert await steps.list(PLAN) == seen, "a step that has changed since is left alone"
    await steps.reset([(READ, seen[0])])
    again = await tasks.start_run(ANN, task.id, run=2, timeout=None, reopen=True)

    assert (again.status, again.runs, again.error, again.deadline_at) == (TaskStatus.RUNNING, 2, None, None)
    with pytest.raises(StepLost):
        await steps.complete(READ, token, 1)
    assert (await tasks.progress(ANN, task.id)).steps[0].status is StepStatus.PENDING


async def test_a_task_that_ended_before_its_first_run_is_not_begun(tasks: Tasks) -> None:
    task = await opened(tasks, ANN)
    await tasks.add_plan(ANN, task.id, PLAN)
    ended = await tasks.finish(ANN, task.id, result="done elsewhere")

    with pytest.raises(TaskFinished):
        await tasks.start_run(ANN, task.id, run=1, timeout=None)

    assert await tasks.get(ANN, task.id) == ended


async def test_a_repeated_write_changes_nothing_though_another_agent_wrote_since(tasks: Tasks) -> None:
    task = await opened(tasks, ANN)
    board = tasks.board(ANN, task.id)
    await board.write("months", 6, agent="reader", idempotency_key="one")
    await board.write("months", 12, agent="lawyer", idempotency_key="two")

    again = await board.write("months", 6, agent="reader", idempotency_key="one")

    assert (again.value, again.writer, again.version) == (12, "lawyer", 2)


async def test_what_a_deleted_task_knew_of_its_steps_is_gone(tasks: Tasks) -> None:
    store = MemoryStore(clock=FakeClock())
    tasks = tasks_over(store, FakeClock())
    task = await opened(tasks, ANN)
    await tasks.add_plan(ANN, task.id, PLAN)
    await tasks.steps(ANN, task.id).begin(READ)

    await tasks.delete(ANN, task.id)

    assert await store.state.state_keys(ANN, f"task-steps:{task.id}") == ()
    assert await store.state.state_keys(ANN, f"task-plan:{task.id}") == ()


async def test_a_task_that_is_deleted_as_a_step_begins_keeps_nothing_of_it() -> None:
    """The runner checks the task once, with the output."""
    store, clock = MemoryStore(clock=FakeClock()), FakeClock()
    holding = HeldCall(store, "write_state", "task-steps:")
    tasks = tasks_over(holding.store, clock)
    task = await opened(tasks, ANN)

    async def answer(ctx: AgentContext) -> str:
        return "an answer"

    known, contexts = Agents({"reader": answer}), make_agent_contexts(tasks, store)
    runner = StepRunner(tasks=tasks, contexts=contexts, agents=known, policy=RunPolicy(), clock=clock)
    running = asyncio.create_task(runner.run_step(ANN, task.id, READ, owns=_never))
    await holding.come()
    await tasks.delete(ANN, task.id)
    holding.go()

    assert (await running).status is None
    for what in ("steps", "board"):
        assert await store.state.state_keys(ANN, f"task-{what}:{task.id}") == ()


class Freezing(FlatMemoryStore):
    """Its first write to a board is answered once others have done `meanwhile`."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        written = await super().write_state(scope, namespace, key, value, if_version)
        if namespace.startswith(BOARD) and self.meanwhile is not None:
            others, self.meanwhile = self.meanwhile, None
            await others()
        return written


@pytest.mark.requirement("E17")
async def test_an_output_that_another_worker_found_and_went_on_from_stays() -> None:
    """The worker that wrote it thaws when the task has ended."""
    clock, store = FakeClock(), Freezing()
    tasks = tasks_over(cast("Store", store), clock)
    task = await opened(tasks, ANN)
    board = tasks.board(ANN, task.id)
    write = partial(board.write, "read", 6, agent="reader", idempotency_key="read:1")

    async def go_on() -> None:
        await write()
        await tasks.begin(ANN, task.id)
        await tasks.finish(ANN, task.id, result={"read": 6})

    store.meanwhile = go_on
    with pytest.raises(TaskFinished):
        await write()

    entry = await board.read_entry("read")
    assert entry is not None
    assert (entry.value, entry.version) == (6, 1)


@pytest.mark.requirement("E14", "E17")
async def test_only_the_agents_own_failures_count_as_attempts_and_takeovers_have_a_bound() -> None:
    """Neither a worker that died nor a store that was away uses up a retry."""
    clock = FakeClock()
    wire = Wire(MemoryStore(clock=clock))
    tasks = tasks_over(cast("Store", wire), clock)
    calls: list[int] = []

    async def stumble(ctx: AgentContext) -> int:
        calls.append(ctx.attempt)
        wire.cut = len(calls) == 1
        try:
            await ctx.board.read("anything")
        finally:
            wire.cut = False
        if len(calls) == 2:
            raise ValueError
        return len(calls)

    step, policy = replace(READ, retries=1, backoff=timedelta(0)), RunPolicy(takeovers=2)
    runner = StepRunner(
        tasks=tasks,
        contexts=make_agent_contexts(tasks, cast("Store", wire)),
        agents=Agents({"reader": stumble}),
        policy=policy,
        clock=clock,
    )
    task, doomed = await opened(tasks, ANN), await opened(tasks, ANN)
    await tasks.steps(ANN, task.id).begin(step)
    for again in range(policy.takeovers + 1):
        await tasks.steps(ANN, doomed.id).begin(step, take_over=again > 0)

    results = [await runner.run_step(ANN, each.id, step, owns=_always) for each in (task, doomed)]

    assert [result.status for result in results] == [StepStatus.COMPLETED, StepStatus.FAILED]
    assert calls == [2, 2, 3], "the worker that died had the first attempt"
    (lost,) = await tasks.steps(ANN, doomed.id).list(Plan(steps=(step,)))
    assert (lost.error and lost.error.code, lost.takeovers) == ("worker_lost", 3)


async def _always() -> bool:
    return True


async def _never() -> bool:
    return False
