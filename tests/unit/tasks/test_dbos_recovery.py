"""Runs of DBOS that end early and go on: restarts, dead workers, cancelling and running again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tenuto.model.plan import StepStatus
from tenuto.model.task import TaskStatus
from tenuto.ports import utc_now
from tenuto.task_errors import StepNotFound, StepNotWaiting, TaskFinished, TaskRunning
from tests.samples import ANN
from tests.store_copies import copy_store
from tests.timeouts import LONG, wait_until

pytest.importorskip("dbos")

from tenuto.tasks.engines._database import make_database
from tenuto.tasks.engines._workers import Workers
from tests.engines import plan_of, wait_for_end, wait_for_step
from tests.unit.tasks.engine_workbench import COMPLETED, FAILED, TASK, EngineWorkbench, step, step_statuses


@pytest.fixture
def harness(tmp_path: Path) -> EngineWorkbench:
    return EngineWorkbench(tmp_path)


async def test_a_person_answers_after_a_restart(harness: EngineWorkbench) -> None:
    plan = plan_of(step("a"), step("ask", "a", human_input="Shall I send it?"), step("b", "ask"), step("c", "a"))
    async with harness.engine() as engine:
        task = await engine.submit(ANN, TASK, plan)
        with pytest.raises(StepNotWaiting):
            await engine.answer(ANN, task.id, "b", "no")
        await wait_for_step(harness.tasks, ANN, task.id, "ask", "waiting")
        await wait_for_step(harness.tasks, ANN, task.id, "c", "completed")

    async with harness.engine(worker=False) as elsewhere:
        progress = await elsewhere.answer(ANN, task.id, "ask", "yes")
        assert await elsewhere.answer(ANN, task.id, "ask", "yes") == progress
        with pytest.raises(StepNotFound):
            await elsewhere.answer(ANN, task.id, "nothing", "yes")
    async with harness.engine() as engine:
        progress = await wait_for_end(harness.tasks, ANN, task.id)

    assert progress.task.status is TaskStatus.COMPLETED
    assert harness.office.calls == ["a", "c", "b"]
    entry = await harness.tasks.board(ANN, task.id).read_entry("ask")
    assert entry is not None
    assert (entry.value, entry.writer, entry.version) == ("yes", "human", 1)


@pytest.mark.requirement("E22")
async def test_a_stopped_worker_leaves_its_task_to_the_next_and_ended_steps_stay(harness: EngineWorkbench) -> None:
    harness.office.gates = {"b": asyncio.Event()}
    async with harness.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("a"), step("b", "a"), step("c", "b")))
        await wait_for_step(harness.tasks, ANN, task.id, "b", "running")
    harness.office.gates["b"].set()

    async with harness.engine():
        progress = await wait_for_end(harness.tasks, ANN, task.id)

    assert progress.task.status is TaskStatus.COMPLETED
    assert harness.office.calls == ["a", "b", "b", "c"]
    assert [run.attempts for run in progress.steps] == [1, 2, 1]


@pytest.mark.requirement("E17", "T16")
async def test_two_recoverers_give_a_dead_workers_task_away_once_and_leave_a_living_ones(
    harness: EngineWorkbench,
) -> None:
    """A worker that beats is alive, however long its step takes."""
    harness.office.gates = {"a": asyncio.Event()}
    async with harness.engine(worker=False) as one, harness.engine(worker=False) as other:
        async with harness.engine() as engine:
            task = await engine.submit(ANN, TASK, plan_of(step("a")))
            await wait_for_step(harness.tasks, ANN, task.id, "a", "running")
            assert await one.agents() == frozenset(harness.office.agents())
            assert await one.recover() == 0
        assert await one.agents() == frozenset()

        assert sorted(await asyncio.gather(one.recover(), other.recover())) == [0, 1]

        harness.office.gates["a"].set()
        async with harness.engine():
            progress = await wait_for_end(harness.tasks, ANN, task.id)
    assert (progress.task.status, progress.steps[0].attempts) == (TaskStatus.COMPLETED, 2)


@pytest.mark.requirement("E17")
async def test_a_task_whose_steps_have_all_ended_is_completed_by_its_recovery(harness: EngineWorkbench) -> None:
    """None pending means completed, and no agent is called again."""
    harness.office.gates = {"b": asyncio.Event()}
    plan = plan_of(step("a"), step("b", "a"))
    async with harness.engine() as engine:
        task = await engine.submit(ANN, TASK, plan)
        await wait_for_step(harness.tasks, ANN, task.id, "b", "running")
    # Its worker died between the end of the step and that of the task.
    steps = harness.tasks.steps(ANN, task.id)
    _, token = await steps.begin(plan.steps[1], take_over=True)
    await steps.complete(plan.steps[1], token, "done")

    async with harness.engine():
        progress = await wait_for_end(harness.tasks, ANN, task.id)

    assert (progress.task.status, progress.task.result) == (TaskStatus.COMPLETED, {"b": "done"})
    assert harness.office.calls == ["a", "b"]
    entries = (await harness.tasks.board(ANN, task.id).view()).entries
    assert [(entry.key, entry.version) for entry in entries] == [("a", 1), ("b", 1)]


async def test_a_step_that_has_begun_ends_though_its_condition_holds_no_longer(harness: EngineWorkbench) -> None:
    harness.office.gates = {"labour": asyncio.Event()}
    branch = step("labour", "route", when={"key": "route", "value": "labour"})
    async with harness.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("route", agent="router"), branch))
        await wait_for_step(harness.tasks, ANN, task.id, "labour", "running")
    await harness.tasks.board(ANN, task.id).write("route", "contract", agent="router")
    harness.office.gates["labour"].set()

    async with harness.engine():
        progress = await wait_for_end(harness.tasks, ANN, task.id)

    assert step_statuses(progress) == {"route": COMPLETED, "labour": COMPLETED}


async def test_steps_beside_a_failed_one_come_to_their_end_also_after_a_restart(harness: EngineWorkbench) -> None:
    harness.office.gates, harness.office.failures = {"slow": asyncio.Event()}, {"bad": 1}
    plan = plan_of(step("bad"), step("slow"), step("ask", human_input="Well?"), step("never", "ask"))
    async with harness.engine() as engine:
        task = await engine.submit(ANN, TASK, plan)
        for name, status in (("bad", "failed"), ("slow", "running"), ("ask", "waiting")):
            await wait_for_step(harness.tasks, ANN, task.id, name, status)

    async with harness.engine() as engine:
        harness.office.gates["slow"].set()
        before = await wait_for_step(harness.tasks, ANN, task.id, "slow", "completed")
        await engine.answer(ANN, task.id, "ask", "well")
        progress = await wait_for_end(harness.tasks, ANN, task.id)

    assert not before.task.is_finished
    assert step_statuses(progress) == {"bad": FAILED, "slow": COMPLETED, "ask": COMPLETED, "never": StepStatus.PENDING}
    assert progress.task.error is not None
    assert progress.task.error.step == "bad"
    assert sorted(harness.office.calls) == ["bad", "slow", "slow"]


async def test_a_cancelled_task_fails_at_once_and_its_agent_is_cancelled(harness: EngineWorkbench) -> None:
    harness.office.gates = {"a": asyncio.Event()}
    async with harness.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("a"), step("b", "a")))
        await wait_for_step(harness.tasks, ANN, task.id, "a", "running")

        cancelled = await engine.cancel(ANN, task.id)
        assert await engine.cancel(ANN, task.id) == cancelled
        await wait_until(lambda: not harness.office.at_once)

        progress = await engine.status(ANN, task.id)
        assert cancelled.status is TaskStatus.FAILED
        assert progress.task.error is not None
        assert progress.task.error.code == "task_cancelled"
        assert step_statuses(progress) == {"a": FAILED, "b": StepStatus.PENDING}

        harness.office.gates["a"].set()
        await engine.resume(ANN, task.id)
        progress = await wait_for_end(harness.tasks, ANN, task.id)

    assert (progress.task.status, progress.task.runs) == (TaskStatus.COMPLETED, 2)


async def test_a_task_that_was_cancelled_before_it_began_can_be_resumed(harness: EngineWorkbench) -> None:
    async with harness.engine(worker=False) as elsewhere:
        task = await elsewhere.submit(ANN, TASK, plan_of(step("a")))
        await elsewhere.cancel(ANN, task.id)
        await elsewhere.resume(ANN, task.id)

    async with harness.engine():
        progress = await wait_for_end(harness.tasks, ANN, task.id)

    assert progress.task.status is TaskStatus.COMPLETED
    assert harness.office.calls == ["a"]


async def test_a_run_that_is_resumed_before_the_cancelled_one_has_stopped_keeps_its_steps(
    harness: EngineWorkbench,
) -> None:
    harness.office.gates = {"a": asyncio.Event()}
    async with harness.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("a"), step("b", "a"), step("c", "b")))
        await wait_for_step(harness.tasks, ANN, task.id, "a", "running")
        await engine.cancel(ANN, task.id)
        await engine.resume(ANN, task.id)
        await wait_for_step(harness.tasks, ANN, task.id, "a", "running")
        harness.office.gates["a"].set()
        progress = await wait_for_end(harness.tasks, ANN, task.id)

    assert (progress.task.status, progress.task.runs) == (TaskStatus.COMPLETED, 2)
    assert [run.attempts for run in progress.steps] == [1, 1, 1]


async def test_a_task_that_no_run_goes_on_with_is_resumed(harness: EngineWorkbench) -> None:
    """One that was never queued, and one whose run is gone though the task has not ended; a living one is refused."""
    plan = plan_of(step("ask", human_input="Well?"), step("b", "ask"))
    async with harness.engine() as engine:
        lost = await harness.tasks.open(ANN, TASK)
        await harness.tasks.add_plan(ANN, lost.id, plan_of(step("a")))
        await engine.resume(ANN, lost.id)
        assert (await wait_for_end(harness.tasks, ANN, lost.id)).task.status is TaskStatus.COMPLETED

        left = await engine.submit(ANN, TASK, plan)
        await wait_for_step(harness.tasks, ANN, left.id, "ask", "waiting")
        with pytest.raises(TaskRunning):
            await engine.resume(ANN, left.id)
        await engine.stop(ANN, left.id)
        await engine.resume(ANN, left.id)
        await wait_for_step(harness.tasks, ANN, left.id, "ask", "waiting")
        await engine.answer(ANN, left.id, "ask", "yes")
        assert (await wait_for_end(harness.tasks, ANN, left.id)).task.status is TaskStatus.COMPLETED


@pytest.mark.requirement("T16")
async def test_a_copied_task_goes_on_at_its_new_store(harness: EngineWorkbench, tmp_path: Path) -> None:
    """The engine there knows no run of it: resumed, it does not repeat the steps that have ended."""
    plan = plan_of(step("a"), step("ask", "a", human_input="Well?"), step("b", "ask"))
    async with harness.engine() as engine:
        task = await engine.submit(ANN, TASK, plan)
        await wait_for_step(harness.tasks, ANN, task.id, "ask", "waiting")
    (tmp_path / "there").mkdir()
    there = EngineWorkbench(tmp_path / "there")
    report = await copy_store(harness.store, there.store, utc_now)
    async with there.engine() as engine:
        await engine.resume(ANN, task.id)
        await wait_for_step(there.tasks, ANN, task.id, "ask", "waiting")
        await engine.answer(ANN, task.id, "ask", "yes")
        progress = await wait_for_end(there.tasks, ANN, task.id)

    assert (report.unfinished_tasks, progress.task.status) == (1, TaskStatus.COMPLETED)
    assert (harness.office.calls, there.office.calls) == (["a"], ["b"])


async def test_a_task_whose_records_are_damaged_ends_and_says_so(harness: EngineWorkbench) -> None:
    harness.office.gates = {"a": asyncio.Event()}
    async with harness.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("a"), step("b", "a")))
        await wait_for_step(harness.tasks, ANN, task.id, "a", "running")
        await harness.store.state.write_state(ANN, f"task-steps:{task.id}", "b", {"status": "no such status"})
        harness.office.gates["a"].set()
        async with asyncio.timeout(LONG):
            while not (ended := await harness.tasks.get(ANN, task.id)).is_finished:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    assert (ended.status, ended.error and ended.error.code) == (TaskStatus.FAILED, "state_corrupt")


async def test_a_failed_task_is_resumed_where_it_failed_and_any_from_a_step_on(harness: EngineWorkbench) -> None:
    harness.office.failures = {"b": 1}
    plan = plan_of(step("a"), step("b", "a"), step("c", "b"), step("d", "a"))
    async with harness.engine() as engine:
        progress = await harness.run(engine, plan)
        task_id = progress.task.id
        assert progress.task.status is TaskStatus.FAILED

        await engine.resume(ANN, task_id)
        progress = await wait_for_end(harness.tasks, ANN, task_id)
        assert progress.task.status is TaskStatus.COMPLETED
        assert sorted(harness.office.calls) == ["a", "b", "b", "c", "d"]
        with pytest.raises(TaskFinished):
            await engine.resume(ANN, task_id)
        with pytest.raises(StepNotFound):
            await engine.resume(ANN, task_id, from_step="nothing")

        harness.office.calls.clear()
        await engine.resume(ANN, task_id, from_step="b")
        with pytest.raises(TaskRunning):
            await engine.resume(ANN, task_id)
        progress = await wait_for_end(harness.tasks, ANN, task_id)

    assert harness.office.calls == ["b", "c"]
    assert (progress.task.status, progress.task.runs) == (TaskStatus.COMPLETED, 3)
    entry = await harness.tasks.board(ANN, task_id).read_entry("c")
    assert entry is not None
    assert entry.version == 2


async def test_the_agents_of_a_deleted_task_are_cancelled(harness: EngineWorkbench) -> None:
    harness.office.gates = {"a": asyncio.Event()}
    async with harness.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("a"), step("b", "a")))
        await wait_for_step(harness.tasks, ANN, task.id, "a", "running")
        await harness.tasks.delete(ANN, task.id)
        await engine.stop(ANN, task.id)
        await wait_until(lambda: not harness.office.at_once)
        other = await harness.run(engine, plan_of(step("c")))

        assert other.task.status is TaskStatus.COMPLETED
        assert await engine.erase(ANN) == 2
    assert harness.office.calls == ["a", "c"]


def test_a_worker_is_dead_when_its_row_stays_as_it_is_for_a_lease(tmp_path: Path) -> None:
    now, database = 0.0, make_database(f"sqlite:///{tmp_path}/tasks.db")
    workers = Workers(engine=database, schema=None, lease=5, now=lambda: now)
    workers.create()
    for name in ("here", "there"):
        workers.beat(name)
    assert workers.dead(workers.read()) == set()
    now = 4.9
    workers.beat("here")
    assert workers.dead(workers.read()) == set()
    now = 5.0
    assert workers.dead(workers.read()) == {"there"}

    # After an outage every worker has a whole lease to be seen again.
    workers.forget()
    assert workers.dead(workers.read()) == set()
    workers.remove(["there"])
    now = 20.0
    assert workers.dead(workers.read()) == {"here"}
    database.dispose()
