"""Plans run by DBOS on a SQLite file: order, failures, limits of time, people, cancelling and running again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.errors import (
    AgentNotFound,
    IdempotencyKeyReused,
    Invalid,
    KeyProtected,
    PlanInvalid,
    StepNotFound,
    StepNotWaiting,
    TaskFinished,
    TaskNotFound,
    TaskRunning,
)
from tenuto.model import Scope
from tenuto.model.plan import Plan, StepStatus, TaskProgress
from tenuto.model.policy import RunPolicy
from tenuto.model.task import NewTask, TaskStatus
from tenuto.ports import utc_now
from tenuto.stores.memory import MemoryStore
from tenuto.tasks.agents import AgentContext, AgentFunction
from tests.patience import LONG, until
from tests.samples import ANN, begin
from tests.servers import PostgresDatabase
from tests.tasks import tasks_over

pytest.importorskip("dbos")

from tenuto.tasks.engines._database import make_database
from tenuto.tasks.engines._workers import Workers
from tenuto.tasks.engines.dbos_engine import DbosEngine
from tests.engines import QUICK, engine_over, plan_of, wait_for_end, wait_for_step

TASK = NewTask(type="review", goal="Find the notice period")
COMPLETED, FAILED, SKIPPED = StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.SKIPPED


class Office:
    """Agents whose doings a test controls and counts."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.failures: dict[str, int] = {}
        self.contexts: dict[str, AgentContext] = {}
        self.at_once = self.most_at_once = 0

    async def work(self, ctx: AgentContext) -> Any:
        self.calls.append(ctx.step)
        self.contexts[ctx.step] = ctx
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if ctx.step in self.gates:
                await self.gates[ctx.step].wait()
            if self.failures.get(ctx.step, 0):
                self.failures[ctx.step] -= 1
                raise ValueError("the secret of a user")
            return {"by": ctx.step, "seen": sorted(await ctx.board.values())}
        finally:
            self.at_once -= 1

    async def route(self, ctx: AgentContext) -> str:
        self.calls.append(ctx.step)
        return "labour"

    async def stubborn(self, ctx: AgentContext) -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.calls.append("cancelled")
                if self.calls.count("cancelled") > 1:
                    raise

    async def chatty(self, ctx: AgentContext) -> str:
        return "x" * 100_000

    async def meddle(self, ctx: AgentContext) -> None:
        await ctx.board.write("final_decision", "mine")

    def agents(self) -> dict[str, AgentFunction]:
        return {
            "worker": self.work,
            "router": self.route,
            "stubborn": self.stubborn,
            "chatty": self.chatty,
            "meddler": self.meddle,
        }


def step(name: str, *after: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, **({} if "human_input" in fields else {"agent": "worker"}), "after": list(after), **fields}


class House:
    """A store and its tasks, on which engines are opened one after the other."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore(clock=utc_now)
        self.tasks = tasks_over(self.store, utc_now)
        self.office = Office()
        self.url = f"sqlite:///{folder}/tasks.db"

    def engine(self, policy: RunPolicy = QUICK, worker: bool = True) -> AbstractAsyncContextManager[DbosEngine]:
        return engine_over(self.store, self.tasks, self.url, self.office.agents(), policy=policy, worker=worker)

    async def run(self, engine: DbosEngine, plan: Plan, **fields: Any) -> TaskProgress:
        task = await engine.submit(ANN, TASK, plan, **fields)
        return await wait_for_end(self.tasks, ANN, task.id)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def ends(progress: TaskProgress) -> dict[str, StepStatus]:
    return {run.step: run.status for run in progress.steps}


async def test_steps_run_in_order_and_side_by_side_and_share_the_board(house: House) -> None:
    plan = plan_of(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c", output_key="answer"))

    async with house.engine() as engine:
        progress = await house.run(engine, plan)

    assert progress.task.status is TaskStatus.COMPLETED
    assert progress.task.result == {"answer": {"by": "d", "seen": ["a", "b", "c"]}}
    assert house.office.calls[0] == "a"
    assert house.office.calls[3] == "d"
    assert [(run.status, run.attempts, run.agent) for run in progress.steps] == [(COMPLETED, 1, "worker")] * 4
    assert all(run.started_at and run.ended_at and run.started_at <= run.ended_at for run in progress.steps)
    entries = (await house.tasks.board(ANN, progress.task.id).view()).entries
    assert [(entry.key, entry.writer, entry.version) for entry in entries] == [
        (key, "worker", 1) for key in ("a", "answer", "b", "c")
    ]


async def test_parallel_steps_are_open_at_the_same_time(house: House) -> None:
    house.office.gates = {"b": asyncio.Event(), "c": asyncio.Event()}
    plan = plan_of(step("a"), step("b", "a"), step("c", "a"), step("after-c", "c"))

    async with house.engine() as engine:
        task = await engine.submit(ANN, TASK, plan)
        await wait_for_step(house.tasks, ANN, task.id, "b", "running")
        await wait_for_step(house.tasks, ANN, task.id, "c", "running")
        house.office.gates["c"].set()
        # A step begins when those before it have ended, whatever runs beside them.
        progress = await wait_for_step(house.tasks, ANN, task.id, "after-c", "completed")
        assert ends(progress)["b"] is StepStatus.RUNNING
        house.office.gates["b"].set()
        progress = await wait_for_end(house.tasks, ANN, task.id)

    assert progress.task.status is TaskStatus.COMPLETED
    assert house.office.most_at_once == 2


async def test_an_agent_sees_the_goal_the_conversation_and_its_own_memory(house: House) -> None:
    turn = await begin(house.store, ANN, "s", "How long is my notice period?")
    new = NewTask(type="review", goal="g", session_id=turn.session.id)

    async with house.engine() as engine:
        task = await engine.submit(ANN, new, plan_of(step("a")))
        await wait_for_end(house.tasks, ANN, task.id)

    context = house.office.contexts["a"]
    assert (context.step_key, context.goal, context.agent) == (f"{task.id}:a", "g", "worker")
    assert [message.text for message in context.history] == ["How long is my notice period?"]


async def test_a_failed_optional_step_lets_the_task_go_on_and_a_required_one_ends_it(house: House) -> None:
    house.office.failures = {"b": 1, "c": 1}
    plan = plan_of(step("a"), step("b", "a", required=False), step("c", "b"), step("d", "c"))

    async with house.engine() as engine:
        progress = await house.run(engine, plan)

    assert ends(progress) == {"a": COMPLETED, "b": FAILED, "c": FAILED, "d": StepStatus.PENDING}
    assert progress.task.status is TaskStatus.FAILED
    assert progress.task.error is not None
    assert (progress.task.error.code, progress.task.error.step) == ("agent_failed", "c")
    assert "ValueError at test_dbos_engine.py" in progress.task.error.message
    assert "secret" not in progress.task.error.message


async def test_a_failed_step_is_repeated_after_pauses(house: House) -> None:
    house.office.failures = {"a": 2}

    async with house.engine() as engine:
        progress = await house.run(engine, plan_of(step("a", retries=2, backoff=0.01)))

    assert progress.task.status is TaskStatus.COMPLETED
    assert (progress.steps[0].attempts, progress.steps[0].error) == (3, None)


async def test_limits_of_time_hold_also_for_agents_that_ignore_them(house: House) -> None:
    plan = plan_of(step("a", agent="stubborn", timeout=0.05, required=False), step("b", "a"))
    late = plan_of(step("c", agent="stubborn", required=False), timeout=0.05)

    async with house.engine() as engine:
        by_step, by_task = await house.run(engine, plan), await house.run(engine, late)

    assert by_step.task.status is TaskStatus.COMPLETED
    assert by_step.steps[0].error is not None
    assert by_step.steps[0].error.code == "step_timeout"
    assert by_task.task.status is TaskStatus.FAILED
    assert by_task.task.error is not None
    assert by_task.task.error.code == "task_timeout"


async def test_a_step_whose_condition_does_not_hold_is_skipped(house: House) -> None:
    branches = [
        step(name, "route", output_key="opinion", when={"key": "route", "value": name})
        for name in ("labour", "contract")
    ]
    plan = plan_of(step("route", agent="router"), *branches, step("write", "labour", "contract"))

    async with house.engine() as engine:
        progress = await house.run(engine, plan)

    assert ends(progress) == {"route": COMPLETED, "labour": COMPLETED, "contract": SKIPPED, "write": COMPLETED}
    assert house.office.calls == ["route", "labour", "write"]


async def test_outputs_above_the_limit_and_protected_keys_fail_the_step(house: House) -> None:
    async with house.engine() as engine:
        large = await house.run(engine, plan_of(step("a", agent="chatty", retries=3)))
        meddled = await house.run(engine, plan_of(step("a", agent="meddler")))

    assert large.steps[0].error is not None
    assert (large.steps[0].error.code, large.steps[0].attempts) == ("too_large", 1)
    assert meddled.task.error is not None
    assert meddled.task.error.code == KeyProtected.code


async def test_a_person_answers_after_a_restart(house: House) -> None:
    plan = plan_of(step("a"), step("ask", "a", human_input="Shall I send it?"), step("b", "ask"), step("c", "a"))
    async with house.engine() as engine:
        task = await engine.submit(ANN, TASK, plan)
        with pytest.raises(StepNotWaiting):
            await engine.answer(ANN, task.id, "b", "no")
        await wait_for_step(house.tasks, ANN, task.id, "ask", "waiting")
        await wait_for_step(house.tasks, ANN, task.id, "c", "completed")

    async with house.engine(worker=False) as elsewhere:
        progress = await elsewhere.answer(ANN, task.id, "ask", "yes")
        assert await elsewhere.answer(ANN, task.id, "ask", "yes") == progress
        with pytest.raises(StepNotFound):
            await elsewhere.answer(ANN, task.id, "nothing", "yes")
    async with house.engine() as engine:
        progress = await wait_for_end(house.tasks, ANN, task.id)

    assert progress.task.status is TaskStatus.COMPLETED
    assert house.office.calls == ["a", "c", "b"]
    entry = await house.tasks.board(ANN, task.id).read_entry("ask")
    assert entry is not None
    assert (entry.value, entry.writer, entry.version) == ("yes", "human", 1)


async def test_a_question_without_an_answer_fails_when_its_time_is_over(house: House) -> None:
    async with house.engine() as engine:
        progress = await house.run(engine, plan_of(step("ask", human_input="Well?", timeout=0.3)))

    assert progress.task.error is not None
    assert progress.task.error.code == "input_timeout"


async def test_a_stopped_worker_leaves_its_task_to_the_next_and_ended_steps_stay(house: House) -> None:
    house.office.gates = {"b": asyncio.Event()}
    async with house.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("a"), step("b", "a"), step("c", "b")))
        await wait_for_step(house.tasks, ANN, task.id, "b", "running")
    house.office.gates["b"].set()

    async with house.engine():
        progress = await wait_for_end(house.tasks, ANN, task.id)

    assert progress.task.status is TaskStatus.COMPLETED
    assert house.office.calls == ["a", "b", "b", "c"]
    assert [run.attempts for run in progress.steps] == [1, 2, 1]


async def test_two_recoverers_give_a_dead_workers_task_away_once_and_leave_a_living_ones(house: House) -> None:
    """E17, T16: a worker that beats is alive, however long its step takes."""
    house.office.gates = {"a": asyncio.Event()}
    async with house.engine(worker=False) as one, house.engine(worker=False) as other:
        async with house.engine() as engine:
            task = await engine.submit(ANN, TASK, plan_of(step("a")))
            await wait_for_step(house.tasks, ANN, task.id, "a", "running")
            assert await one.agents() == frozenset(house.office.agents())
            assert await one.recover() == 0
        assert await one.agents() == frozenset()

        assert sorted(await asyncio.gather(one.recover(), other.recover())) == [0, 1]

        house.office.gates["a"].set()
        async with house.engine():
            progress = await wait_for_end(house.tasks, ANN, task.id)
    assert (progress.task.status, progress.steps[0].attempts) == (TaskStatus.COMPLETED, 2)


async def test_a_task_whose_steps_have_all_ended_is_completed_by_its_recovery(house: House) -> None:
    """E17: none pending means completed, and no agent is called again."""
    house.office.gates = {"b": asyncio.Event()}
    plan = plan_of(step("a"), step("b", "a"))
    async with house.engine() as engine:
        task = await engine.submit(ANN, TASK, plan)
        await wait_for_step(house.tasks, ANN, task.id, "b", "running")
    # Its worker died between the end of the step and that of the task.
    steps = house.tasks.steps(ANN, task.id)
    _, token = await steps.begin(plan.steps[1], take_over=True)
    await steps.complete(plan.steps[1], token, "done")

    async with house.engine():
        progress = await wait_for_end(house.tasks, ANN, task.id)

    assert (progress.task.status, progress.task.result) == (TaskStatus.COMPLETED, {"b": "done"})
    assert house.office.calls == ["a", "b"]
    entries = (await house.tasks.board(ANN, task.id).view()).entries
    assert [(entry.key, entry.version) for entry in entries] == [("a", 1), ("b", 1)]


async def test_a_step_that_has_begun_ends_though_its_condition_holds_no_longer(house: House) -> None:
    house.office.gates = {"labour": asyncio.Event()}
    branch = step("labour", "route", when={"key": "route", "value": "labour"})
    async with house.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("route", agent="router"), branch))
        await wait_for_step(house.tasks, ANN, task.id, "labour", "running")
    await house.tasks.board(ANN, task.id).write("route", "contract", agent="router")
    house.office.gates["labour"].set()

    async with house.engine():
        progress = await wait_for_end(house.tasks, ANN, task.id)

    assert ends(progress) == {"route": COMPLETED, "labour": COMPLETED}


async def test_steps_beside_a_failed_one_come_to_their_end_also_after_a_restart(house: House) -> None:
    house.office.gates, house.office.failures = {"slow": asyncio.Event()}, {"bad": 1}
    plan = plan_of(step("bad"), step("slow"), step("ask", human_input="Well?"), step("never", "ask"))
    async with house.engine() as engine:
        task = await engine.submit(ANN, TASK, plan)
        for name, status in (("bad", "failed"), ("slow", "running"), ("ask", "waiting")):
            await wait_for_step(house.tasks, ANN, task.id, name, status)

    async with house.engine() as engine:
        house.office.gates["slow"].set()
        before = await wait_for_step(house.tasks, ANN, task.id, "slow", "completed")
        await engine.answer(ANN, task.id, "ask", "well")
        progress = await wait_for_end(house.tasks, ANN, task.id)

    assert not before.task.is_finished
    assert ends(progress) == {"bad": FAILED, "slow": COMPLETED, "ask": COMPLETED, "never": StepStatus.PENDING}
    assert progress.task.error is not None
    assert progress.task.error.step == "bad"
    assert sorted(house.office.calls) == ["bad", "slow", "slow"]


async def test_an_answer_is_seen_while_agents_work_beside_it(house: House) -> None:
    house.office.gates = {"slow": asyncio.Event()}
    async with house.engine() as engine:
        plan = plan_of(step("slow"), step("ask", human_input="Well?"), step("then", "ask"))
        task = await engine.submit(ANN, TASK, plan)
        await wait_for_step(house.tasks, ANN, task.id, "ask", "waiting")
        await engine.answer(ANN, task.id, "ask", "well")

        progress = await wait_for_step(house.tasks, ANN, task.id, "then", "completed")
        assert ends(progress)["slow"] is StepStatus.RUNNING
        house.office.gates["slow"].set()
        progress = await wait_for_end(house.tasks, ANN, task.id)

    assert progress.task.status is TaskStatus.COMPLETED


async def test_an_answer_wakes_a_run_on_postgres_that_does_nothing_but_wait(
    house: House, database: PostgresDatabase
) -> None:
    house.url = database.app_url
    async with house.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("ask", human_input="Well?")))
        await wait_for_step(house.tasks, ANN, task.id, "ask", "waiting")
        # The run sleeps now, or in a moment: an answer before that would be found without being woken.
        await asyncio.sleep(1)
        await engine.answer(ANN, task.id, "ask", "well")
        progress = await wait_for_end(house.tasks, ANN, task.id)

    assert progress.task.status is TaskStatus.COMPLETED


async def test_a_worker_takes_few_tasks_at_once_and_those_that_wait_for_a_person_do_not_count(house: House) -> None:
    """E14, E24: what it leaves in the queue is for others, and its time does not run."""
    house.office.gates = {"a": asyncio.Event()}
    async with house.engine(replace(QUICK, agents_at_once=4)) as engine:
        waiting = [await engine.submit(ANN, TASK, plan_of(step("ask", human_input="Well?"))) for _ in range(3)]
        for task in waiting:
            await wait_for_step(house.tasks, ANN, task.id, "ask", "waiting")
        busy = [await engine.submit(ANN, TASK, plan_of(step("a"))) for _ in range(6)]
        await until(lambda: house.office.at_once >= 2)
        queued = [await house.tasks.get(ANN, task.id) for task in busy]
        house.office.gates["a"].set()
        ended = [await wait_for_end(house.tasks, ANN, task.id) for task in busy]

    # A run counts a moment after it was taken, so a slow machine may take two more.
    assert [task.deadline_at for task in queued].count(None) >= 2
    assert [progress.task.status for progress in ended] == [TaskStatus.COMPLETED] * 6
    assert house.office.most_at_once <= 4


async def test_an_assistant_that_waits_for_a_task_of_its_own_needs_no_second_slot(house: House) -> None:
    """E14: as `assistant:legal` does; all slots are taken by such steps."""

    async def consult(_: Any, ctx: AgentContext) -> Any:
        inner = await engine.submit(ANN, TASK, plan_of(step("inner")))
        return (await wait_for_end(house.tasks, ANN, inner.id)).task.result

    policy = replace(QUICK, agents_at_once=2, tasks_at_once=2)
    agents = house.office.agents()
    async with engine_over(house.store, house.tasks, house.url, agents, policy=policy, call=consult) as engine:
        outer = [await engine.submit(ANN, TASK, plan_of(step("a", agent="assistant:legal"))) for _ in range(2)]
        ended = [await wait_for_end(house.tasks, ANN, task.id) for task in outer]

    assert [progress.task.result for progress in ended] == [{"a": {"inner": {"by": "inner", "seen": []}}}] * 2


async def test_an_agent_must_be_known_here_or_to_a_running_worker(house: House) -> None:
    async with engine_over(house.store, house.tasks, house.url, {}, worker=False) as elsewhere:
        with pytest.raises(AgentNotFound):
            await elsewhere.submit(ANN, TASK, plan_of(step("a")))
        async with house.engine():
            task = await elsewhere.submit(ANN, TASK, plan_of(step("a")))
            progress = await wait_for_end(house.tasks, ANN, task.id)

    assert progress.task.status is TaskStatus.COMPLETED


async def test_a_cancelled_task_fails_at_once_and_its_agent_is_cancelled(house: House) -> None:
    house.office.gates = {"a": asyncio.Event()}
    async with house.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("a"), step("b", "a")))
        await wait_for_step(house.tasks, ANN, task.id, "a", "running")

        cancelled = await engine.cancel(ANN, task.id)
        assert await engine.cancel(ANN, task.id) == cancelled
        await until(lambda: not house.office.at_once)

        progress = await engine.status(ANN, task.id)
        assert cancelled.status is TaskStatus.FAILED
        assert progress.task.error is not None
        assert progress.task.error.code == "task_cancelled"
        assert ends(progress) == {"a": FAILED, "b": StepStatus.PENDING}

        house.office.gates["a"].set()
        await engine.resume(ANN, task.id)
        progress = await wait_for_end(house.tasks, ANN, task.id)

    assert (progress.task.status, progress.task.runs) == (TaskStatus.COMPLETED, 2)


async def test_a_task_that_was_cancelled_before_it_began_can_be_resumed(house: House) -> None:
    async with house.engine(worker=False) as elsewhere:
        task = await elsewhere.submit(ANN, TASK, plan_of(step("a")))
        await elsewhere.cancel(ANN, task.id)
        await elsewhere.resume(ANN, task.id)

    async with house.engine():
        progress = await wait_for_end(house.tasks, ANN, task.id)

    assert progress.task.status is TaskStatus.COMPLETED
    assert house.office.calls == ["a"]


async def test_a_run_that_is_resumed_before_the_cancelled_one_has_stopped_keeps_its_steps(house: House) -> None:
    house.office.gates = {"a": asyncio.Event()}
    async with house.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("a"), step("b", "a"), step("c", "b")))
        await wait_for_step(house.tasks, ANN, task.id, "a", "running")
        await engine.cancel(ANN, task.id)
        await engine.resume(ANN, task.id)
        await wait_for_step(house.tasks, ANN, task.id, "a", "running")
        house.office.gates["a"].set()
        progress = await wait_for_end(house.tasks, ANN, task.id)

    assert (progress.task.status, progress.task.runs) == (TaskStatus.COMPLETED, 2)
    assert [run.attempts for run in progress.steps] == [1, 1, 1]


async def test_a_task_that_no_run_goes_on_with_is_resumed(house: House) -> None:
    """One that was never queued, and one whose run is gone though the task has not ended; a living one is refused."""
    plan = plan_of(step("ask", human_input="Well?"), step("b", "ask"))
    async with house.engine() as engine:
        lost = await house.tasks.open(ANN, TASK)
        await house.tasks.add_plan(ANN, lost.id, plan_of(step("a")))
        await engine.resume(ANN, lost.id)
        assert (await wait_for_end(house.tasks, ANN, lost.id)).task.status is TaskStatus.COMPLETED

        left = await engine.submit(ANN, TASK, plan)
        await wait_for_step(house.tasks, ANN, left.id, "ask", "waiting")
        with pytest.raises(TaskRunning):
            await engine.resume(ANN, left.id)
        await engine.stop(ANN, left.id)
        await engine.resume(ANN, left.id)
        await wait_for_step(house.tasks, ANN, left.id, "ask", "waiting")
        await engine.answer(ANN, left.id, "ask", "yes")
        assert (await wait_for_end(house.tasks, ANN, left.id)).task.status is TaskStatus.COMPLETED


async def test_a_lock_on_an_outputs_key_lasts_no_longer_than_the_task(house: House) -> None:
    house.office.gates = {"a": asyncio.Event()}
    async with house.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("a"), timeout=1))
        await wait_for_step(house.tasks, ANN, task.id, "a", "running")
        await house.tasks.board(ANN, task.id).lock("a", agent="other", lease=timedelta(hours=1))
        house.office.gates["a"].set()
        progress = await wait_for_end(house.tasks, ANN, task.id)

    error = progress.task.error
    assert (progress.task.status, error and error.code) == (TaskStatus.FAILED, "task_timeout")


async def test_an_agent_that_exits_ends_its_step_alone(house: House, tmp_path: Path) -> None:
    async def leave(ctx: AgentContext) -> None:
        sys.exit(3)

    async with engine_over(house.store, house.tasks, house.url, {"worker": leave}) as engine:
        progress = await house.run(engine, plan_of(step("a")))

    assert progress.steps[0].error
    assert progress.steps[0].error.code == "agent_failed"
    assert (tmp_path / "tasks.db").stat().st_mode & 0o777 == 0o600


async def test_a_task_whose_records_are_damaged_ends_and_says_so(house: House) -> None:
    house.office.gates = {"a": asyncio.Event()}
    async with house.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("a"), step("b", "a")))
        await wait_for_step(house.tasks, ANN, task.id, "a", "running")
        await house.store.state.write_state(ANN, f"task-steps:{task.id}", "b", {"status": "no such status"})
        house.office.gates["a"].set()
        async with asyncio.timeout(LONG):
            while not (ended := await house.tasks.get(ANN, task.id)).is_finished:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    assert (ended.status, ended.error and ended.error.code) == (TaskStatus.FAILED, "state_corrupt")


async def test_a_failed_task_is_resumed_where_it_failed_and_any_from_a_step_on(house: House) -> None:
    house.office.failures = {"b": 1}
    plan = plan_of(step("a"), step("b", "a"), step("c", "b"), step("d", "a"))
    async with house.engine() as engine:
        progress = await house.run(engine, plan)
        task_id = progress.task.id
        assert progress.task.status is TaskStatus.FAILED

        await engine.resume(ANN, task_id)
        progress = await wait_for_end(house.tasks, ANN, task_id)
        assert progress.task.status is TaskStatus.COMPLETED
        assert sorted(house.office.calls) == ["a", "b", "b", "c", "d"]
        with pytest.raises(TaskFinished):
            await engine.resume(ANN, task_id)
        with pytest.raises(StepNotFound):
            await engine.resume(ANN, task_id, from_step="nothing")

        house.office.calls.clear()
        await engine.resume(ANN, task_id, from_step="b")
        with pytest.raises(TaskRunning):
            await engine.resume(ANN, task_id)
        progress = await wait_for_end(house.tasks, ANN, task_id)

    assert house.office.calls == ["b", "c"]
    assert (progress.task.status, progress.task.runs) == (TaskStatus.COMPLETED, 3)
    entry = await house.tasks.board(ANN, task_id).read_entry("c")
    assert entry is not None
    assert entry.version == 2


async def test_what_cannot_run_is_refused_and_a_repeated_key_opens_one_task(house: House) -> None:
    plan = plan_of(step("a"))
    async with house.engine() as engine:
        with pytest.raises(AgentNotFound):
            await engine.submit(ANN, TASK, plan_of(step("a", agent="absent")))
        with pytest.raises(PlanInvalid):
            await engine.submit(ANN, TASK, plan_of(step("a", "b"), step("b", "a")))
        assert (await engine.list(ANN)).tasks == ()

        progress = await house.run(engine, plan, idempotency_key="one")
        again = await engine.submit(ANN, TASK, plan, idempotency_key="one")
        pending = await engine.submit(ANN, TASK, plan_of(step("a"), step("b", "a")), idempotency_key="two")
        with pytest.raises(IdempotencyKeyReused):
            await engine.submit(ANN, TASK, plan, idempotency_key="two")
        await wait_for_end(house.tasks, ANN, pending.id)
        with pytest.raises(TaskNotFound):
            await engine.status(Scope(tenant="acme", user="eve"), again.id)

    assert again.id == progress.task.id
    assert house.office.calls.count("a") == 2


async def test_the_agents_of_a_deleted_task_are_cancelled(house: House) -> None:
    house.office.gates = {"a": asyncio.Event()}
    async with house.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("a"), step("b", "a")))
        await wait_for_step(house.tasks, ANN, task.id, "a", "running")
        await house.tasks.delete(ANN, task.id)
        await engine.stop(ANN, task.id)
        await until(lambda: not house.office.at_once)
        other = await house.run(engine, plan_of(step("c")))

        assert other.task.status is TaskStatus.COMPLETED
        assert await engine.erase(ANN) == 2
    assert house.office.calls == ["a", "c"]


async def test_the_database_of_the_engine_holds_no_user_text(house: House, tmp_path: Path) -> None:
    async with house.engine() as engine:
        plan = plan_of(step("a"), step("ask", "a", human_input="the question"))
        task = await engine.submit(ANN, NewTask(type="review", goal="the goal"), plan)
        await wait_for_step(house.tasks, ANN, task.id, "ask", "waiting")
        await engine.answer(ANN, task.id, "ask", "the reply")
        await wait_for_end(house.tasks, ANN, task.id)

    stored = _bytes_in(tmp_path)
    assert task.id.encode() in stored
    assert not [text for text in (b"the question", b"the goal", b"the reply", b"seen") if text in stored]
    assert b"gASV" not in stored  # The beginning of a pickle in base64.


def _bytes_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.glob("tasks.db*"))


async def test_no_agent_reads_the_notes_of_another(house: House) -> None:
    found: list[Any] = []

    async def keep(ctx: AgentContext) -> None:
        await ctx.memory.write(ctx.agent, ctx.step)
        found.append(await ctx.memory.values())

    async def keep_too(ctx: AgentContext) -> None:
        await keep(ctx)

    plan = plan_of(step("a", agent="one"), step("b", "a", agent="two"), step("c", "b", agent="one"))
    async with engine_over(house.store, house.tasks, house.url, {"one": keep, "two": keep_too}) as engine:
        progress = await house.run(engine, plan)

    assert progress.task.status is TaskStatus.COMPLETED
    assert found == [{"one": "a"}, {"two": "b"}, {"one": "c"}]
    assert await house.tasks.notes(ANN, progress.task.id, "one").list() == ()


async def test_what_the_engine_knows_of_ended_runs_is_removed(house: House) -> None:
    async with house.engine(replace(QUICK, run_retention=timedelta(0))) as engine:
        await house.run(engine, plan_of(step("a")))
        async with asyncio.timeout(LONG):
            while await asyncio.to_thread(engine._reaper.sweep) == 0:  # noqa: ASYNC110 (a run ends a moment after its task)
                await asyncio.sleep(0.02)

        assert await engine.erase(ANN) == 0


async def test_a_process_has_one_worker(house: House) -> None:
    async with house.engine() as engine:
        with pytest.raises(Invalid, match="a worker already"):
            async with house.engine():
                pass

        progress = await house.run(engine, plan_of(step("a")))

    assert progress.task.status is TaskStatus.COMPLETED


def test_a_worker_is_dead_when_its_row_stays_as_it_is_for_a_lease(tmp_path: Path) -> None:
    now, database = 0.0, make_database(f"sqlite:///{tmp_path}/tasks.db")
    workers = Workers(engine=database, schema=None, lease=5, now=lambda: now)
    workers.create()
    for name in ("here", "there"):
        workers.beat(name)
    assert workers.dead() == set()
    now = 4.9
    workers.beat("here")
    assert workers.dead() == set()
    now = 5.0
    assert workers.dead() == {"there"}

    # After an outage every worker has a whole lease to be seen again.
    workers.forget()
    assert workers.dead() == set()
    workers.remove(["there"])
    now = 20.0
    assert workers.dead() == {"here"}
    database.dispose()


def test_other_databases_are_refused_plainly() -> None:
    with pytest.raises(Invalid, match="Postgres for workers on several machines"):
        make_database("redis://localhost")


def test_a_server_without_tasks_loads_no_engine(tmp_path: Path) -> None:
    program = """
import asyncio, sys, httpx, tenuto, tenuto.cli.tasks
from tenuto.server import create_app
from tenuto.settings import read_settings
async def main():
    app = create_app(read_settings(store="sqlite:///t.db"))
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost")
    async with app.router.lifespan_context(app), client as http:
        for path, body in (("/v1/chat", {"message": "Hello!"}), ("/v1/tasks", {"type": "x"})):
            (await http.post(path, json=body)).raise_for_status()
        (await http.get("/readyz")).raise_for_status()
asyncio.run(main())
print([name for name in ("dbos", "sqlalchemy", "psycopg") if name in sys.modules])
"""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=True)

    assert done.stdout.strip() == "[]"
