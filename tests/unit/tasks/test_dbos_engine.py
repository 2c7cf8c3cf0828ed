"""Plans run by DBOS on a SQLite file: order, failures, limits of time, people, what is refused and removed."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tenuto.errors import IdempotencyKeyReused, Invalid
from tenuto.model import Scope
from tenuto.model.plan import StepStatus
from tenuto.model.task import NewTask, TaskStatus
from tenuto.task_errors import AgentNotFound, KeyProtected, PlanInvalid, TaskNotFound
from tenuto.tasks.agents import AgentContext
from tests.samples import ANN, begin
from tests.servers import PostgresDatabase
from tests.timeouts import LONG, wait_until

pytest.importorskip("dbos")

from tenuto.tasks.engines._database import make_database
from tests.engines import QUICK, engine_over, plan_of, wait_for_end, wait_for_step
from tests.unit.tasks.engine_workbench import COMPLETED, FAILED, SKIPPED, TASK, EngineWorkbench, step, step_statuses


@pytest.fixture
def harness(tmp_path: Path) -> EngineWorkbench:
    return EngineWorkbench(tmp_path)


@pytest.mark.requirement("E14")
async def test_steps_run_in_order_and_side_by_side_and_share_the_board(harness: EngineWorkbench) -> None:
    plan = plan_of(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c", output_key="answer"))

    async with harness.engine() as engine:
        progress = await harness.run(engine, plan)

    assert progress.task.status is TaskStatus.COMPLETED
    assert progress.task.result == {"answer": {"by": "d", "seen": ["a", "b", "c"]}}
    assert harness.office.calls[0] == "a"
    assert harness.office.calls[3] == "d"
    assert [(run.status, run.attempts, run.agent) for run in progress.steps] == [(COMPLETED, 1, "worker")] * 4
    assert all(run.started_at and run.ended_at and run.started_at <= run.ended_at for run in progress.steps)
    entries = (await harness.tasks.board(ANN, progress.task.id).view()).entries
    assert [(entry.key, entry.writer, entry.version) for entry in entries] == [
        (key, "worker", 1) for key in ("a", "answer", "b", "c")
    ]


async def test_parallel_steps_are_open_at_the_same_time(harness: EngineWorkbench) -> None:
    harness.office.gates = {"b": asyncio.Event(), "c": asyncio.Event()}
    plan = plan_of(step("a"), step("b", "a"), step("c", "a"), step("after-c", "c"))

    async with harness.engine() as engine:
        task = await engine.submit(ANN, TASK, plan)
        await wait_for_step(harness.tasks, ANN, task.id, "b", "running")
        await wait_for_step(harness.tasks, ANN, task.id, "c", "running")
        harness.office.gates["c"].set()
        # A step begins when those before it have ended, whatever runs beside them.
        progress = await wait_for_step(harness.tasks, ANN, task.id, "after-c", "completed")
        assert step_statuses(progress)["b"] is StepStatus.RUNNING
        harness.office.gates["b"].set()
        progress = await wait_for_end(harness.tasks, ANN, task.id)

    assert progress.task.status is TaskStatus.COMPLETED
    assert harness.office.most_at_once == 2


async def test_an_agent_sees_the_goal_the_conversation_and_its_own_memory(harness: EngineWorkbench) -> None:
    turn = await begin(harness.store, ANN, "s", "How long is my notice period?")
    new = NewTask(type="review", goal="g", session_id=turn.session.id)

    async with harness.engine() as engine:
        task = await engine.submit(ANN, new, plan_of(step("a")))
        await wait_for_end(harness.tasks, ANN, task.id)

    context = harness.office.contexts["a"]
    assert (context.step_key, context.goal, context.agent) == (f"{task.id}:a", "g", "worker")
    assert [message.text for message in context.history] == ["How long is my notice period?"]


@pytest.mark.requirement("E15")
async def test_a_failed_optional_step_lets_the_task_go_on_and_a_required_one_ends_it(harness: EngineWorkbench) -> None:
    harness.office.failures = {"b": 1, "c": 1}
    plan = plan_of(step("a"), step("b", "a", required=False), step("c", "b"), step("d", "c"))

    async with harness.engine() as engine:
        progress = await harness.run(engine, plan)

    assert step_statuses(progress) == {"a": COMPLETED, "b": FAILED, "c": FAILED, "d": StepStatus.PENDING}
    assert progress.task.status is TaskStatus.FAILED
    assert progress.task.error is not None
    assert (progress.task.error.code, progress.task.error.step) == ("agent_failed", "c")
    assert re.fullmatch(
        r"ValueError: the secret of a user \(engine_workbench\.py:\d+ in work < \d+ frames of tenuto\)",
        progress.task.error.message,
    )


async def test_a_failed_step_is_repeated_after_pauses(harness: EngineWorkbench) -> None:
    harness.office.failures = {"a": 2}

    async with harness.engine() as engine:
        progress = await harness.run(engine, plan_of(step("a", retries=2, backoff=0.01)))

    assert progress.task.status is TaskStatus.COMPLETED
    assert (progress.steps[0].attempts, progress.steps[0].error) == (3, None)


@pytest.mark.requirement("E24")
async def test_limits_of_time_hold_also_for_agents_that_ignore_them(harness: EngineWorkbench) -> None:
    plan = plan_of(step("a", agent="stubborn", timeout=0.05, required=False), step("b", "a"))
    late = plan_of(step("c", agent="stubborn", required=False), timeout=0.05)

    async with harness.engine() as engine:
        by_step, by_task = await harness.run(engine, plan), await harness.run(engine, late)

    assert by_step.task.status is TaskStatus.COMPLETED
    assert by_step.steps[0].error is not None
    assert by_step.steps[0].error.code == "step_timeout"
    assert by_task.task.status is TaskStatus.FAILED
    assert by_task.task.error is not None
    assert by_task.task.error.code == "task_timeout"


async def test_a_step_whose_condition_does_not_hold_is_skipped(harness: EngineWorkbench) -> None:
    branches = [
        step(name, "route", output_key="opinion", when={"key": "route", "value": name})
        for name in ("labour", "contract")
    ]
    plan = plan_of(step("route", agent="router"), *branches, step("write", "labour", "contract"))

    async with harness.engine() as engine:
        progress = await harness.run(engine, plan)

    assert step_statuses(progress) == {"route": COMPLETED, "labour": COMPLETED, "contract": SKIPPED, "write": COMPLETED}
    assert harness.office.calls == ["route", "labour", "write"]


async def test_outputs_above_the_limit_and_protected_keys_fail_the_step(harness: EngineWorkbench) -> None:
    async with harness.engine() as engine:
        large = await harness.run(engine, plan_of(step("a", agent="chatty", retries=3)))
        meddled = await harness.run(engine, plan_of(step("a", agent="meddler")))

    assert large.steps[0].error is not None
    assert (large.steps[0].error.code, large.steps[0].attempts) == ("too_large", 1)
    assert meddled.task.error is not None
    assert meddled.task.error.code == KeyProtected.code


async def test_a_question_without_an_answer_fails_when_its_time_is_over(harness: EngineWorkbench) -> None:
    async with harness.engine() as engine:
        progress = await harness.run(engine, plan_of(step("ask", human_input="Well?", timeout=0.3)))

    assert progress.task.error is not None
    assert progress.task.error.code == "input_timeout"


async def test_an_answer_is_seen_while_agents_work_beside_it(harness: EngineWorkbench) -> None:
    harness.office.gates = {"slow": asyncio.Event()}
    async with harness.engine() as engine:
        plan = plan_of(step("slow"), step("ask", human_input="Well?"), step("then", "ask"))
        task = await engine.submit(ANN, TASK, plan)
        await wait_for_step(harness.tasks, ANN, task.id, "ask", "waiting")
        await engine.answer(ANN, task.id, "ask", "well")

        progress = await wait_for_step(harness.tasks, ANN, task.id, "then", "completed")
        assert step_statuses(progress)["slow"] is StepStatus.RUNNING
        harness.office.gates["slow"].set()
        progress = await wait_for_end(harness.tasks, ANN, task.id)

    assert progress.task.status is TaskStatus.COMPLETED


@pytest.mark.requirement("E23")
@pytest.mark.parametrize("retries", [1, 2])
async def test_the_last_failure_of_a_remote_step_wakes_its_run(harness: EngineWorkbench, retries: int) -> None:
    """The run that each failure has woken sleeps again when the next one is reported."""

    def rounds() -> int:
        with closing(sqlite3.connect(harness.url.removeprefix("sqlite:///"))) as runs:
            found = runs.execute("SELECT count(*) FROM operation_outputs WHERE function_name = 'advance'")
            return int(found.fetchone()[0])

    async with harness.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("far", remote=True, retries=retries)))
        for failures in range(retries + 1):
            await wait_until(lambda failures=failures: rounds() > failures)  # type: ignore[misc]
            await engine.fail_step(ANN, task.id, "far", agent="worker", code="no_paper")
        progress = await wait_for_end(harness.tasks, ANN, task.id)

    assert progress.task.error is not None
    assert (progress.task.error.code, progress.steps[0].attempts) == ("no_paper", retries + 1)


async def test_an_answer_wakes_a_run_on_postgres_that_does_nothing_but_wait(
    harness: EngineWorkbench, database: PostgresDatabase
) -> None:
    harness.url = database.app_url
    async with harness.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("ask", human_input="Well?")))
        await wait_for_step(harness.tasks, ANN, task.id, "ask", "waiting")
        # The run sleeps now, or in a moment: an answer before that would be found without being woken.
        await asyncio.sleep(1)
        await engine.answer(ANN, task.id, "ask", "well")
        progress = await wait_for_end(harness.tasks, ANN, task.id)

    assert progress.task.status is TaskStatus.COMPLETED


@pytest.mark.requirement("E14", "E24")
async def test_a_worker_takes_few_tasks_at_once_and_those_that_wait_for_a_person_do_not_count(
    harness: EngineWorkbench,
) -> None:
    """What it leaves in the queue is for others, and its time does not run."""
    harness.office.gates = {"a": asyncio.Event()}
    async with harness.engine(replace(QUICK, agents_at_once=4)) as engine:
        waiting = [await engine.submit(ANN, TASK, plan_of(step("ask", human_input="Well?"))) for _ in range(3)]
        for task in waiting:
            await wait_for_step(harness.tasks, ANN, task.id, "ask", "waiting")
        busy = [await engine.submit(ANN, TASK, plan_of(step("a"))) for _ in range(6)]
        await wait_until(lambda: harness.office.at_once >= 2)
        queued = [await harness.tasks.get(ANN, task.id) for task in busy]
        harness.office.gates["a"].set()
        ended = [await wait_for_end(harness.tasks, ANN, task.id) for task in busy]

    # A run counts a moment after it was taken, so a slow machine may take two more.
    assert [task.deadline_at for task in queued].count(None) >= 2
    assert [progress.task.status for progress in ended] == [TaskStatus.COMPLETED] * 6
    assert harness.office.most_at_once <= 4


@pytest.mark.requirement("E14")
async def test_an_assistant_that_waits_for_a_task_of_its_own_needs_no_second_slot(harness: EngineWorkbench) -> None:
    """As `assistant:legal` does; all slots are taken by such steps."""

    async def consult(_: Any, ctx: AgentContext) -> Any:
        inner = await engine.submit(ANN, TASK, plan_of(step("inner")))
        return (await wait_for_end(harness.tasks, ANN, inner.id)).task.result

    policy = replace(QUICK, agents_at_once=2, tasks_at_once=2)
    agents = harness.office.agents()
    async with engine_over(harness.store, harness.tasks, harness.url, agents, policy=policy, call=consult) as engine:
        outer = [await engine.submit(ANN, TASK, plan_of(step("a", agent="assistant:legal"))) for _ in range(2)]
        ended = [await wait_for_end(harness.tasks, ANN, task.id) for task in outer]

    assert [progress.task.result for progress in ended] == [{"a": {"inner": {"by": "inner", "seen": []}}}] * 2


async def test_an_agent_must_be_known_here_or_to_a_running_worker(harness: EngineWorkbench) -> None:
    async with engine_over(harness.store, harness.tasks, harness.url, {}, worker=False) as elsewhere:
        with pytest.raises(AgentNotFound):
            await elsewhere.submit(ANN, TASK, plan_of(step("a")))
        async with harness.engine():
            task = await elsewhere.submit(ANN, TASK, plan_of(step("a")))
            progress = await wait_for_end(harness.tasks, ANN, task.id)

    assert progress.task.status is TaskStatus.COMPLETED


async def test_a_lock_on_an_outputs_key_lasts_no_longer_than_the_task(harness: EngineWorkbench) -> None:
    harness.office.gates = {"a": asyncio.Event()}
    async with harness.engine() as engine:
        task = await engine.submit(ANN, TASK, plan_of(step("a"), timeout=1))
        await wait_for_step(harness.tasks, ANN, task.id, "a", "running")
        await harness.tasks.board(ANN, task.id).lock("a", agent="other", lease=timedelta(hours=1))
        harness.office.gates["a"].set()
        progress = await wait_for_end(harness.tasks, ANN, task.id)

    error = progress.task.error
    assert (progress.task.status, error and error.code) == (TaskStatus.FAILED, "task_timeout")


async def test_an_agent_that_exits_ends_its_step_alone(harness: EngineWorkbench, tmp_path: Path) -> None:
    async def leave(ctx: AgentContext) -> None:
        sys.exit(3)

    async with engine_over(harness.store, harness.tasks, harness.url, {"worker": leave}) as engine:
        progress = await harness.run(engine, plan_of(step("a")))

    assert progress.steps[0].error
    assert progress.steps[0].error.code == "agent_failed"
    assert (tmp_path / "tasks.db").stat().st_mode & 0o777 == 0o600


async def test_what_cannot_run_is_refused_and_a_repeated_key_opens_one_task(harness: EngineWorkbench) -> None:
    plan = plan_of(step("a"))
    async with harness.engine() as engine:
        with pytest.raises(AgentNotFound):
            await engine.submit(ANN, TASK, plan_of(step("a", agent="absent")))
        with pytest.raises(PlanInvalid):
            await engine.submit(ANN, TASK, plan_of(step("a", "b"), step("b", "a")))
        assert (await engine.list(ANN)).tasks == ()

        progress = await harness.run(engine, plan, idempotency_key="one")
        again = await engine.submit(ANN, TASK, plan, idempotency_key="one")
        pending = await engine.submit(ANN, TASK, plan_of(step("a"), step("b", "a")), idempotency_key="two")
        with pytest.raises(IdempotencyKeyReused):
            await engine.submit(ANN, TASK, plan, idempotency_key="two")
        await wait_for_end(harness.tasks, ANN, pending.id)
        with pytest.raises(TaskNotFound):
            await engine.status(Scope(tenant="acme", user="eve"), again.id)

    assert again.id == progress.task.id
    assert harness.office.calls.count("a") == 2


async def test_the_database_of_the_engine_holds_no_user_text(harness: EngineWorkbench, tmp_path: Path) -> None:
    async with harness.engine() as engine:
        plan = plan_of(step("a"), step("ask", "a", human_input="the question"))
        task = await engine.submit(ANN, NewTask(type="review", goal="the goal"), plan)
        await wait_for_step(harness.tasks, ANN, task.id, "ask", "waiting")
        await engine.answer(ANN, task.id, "ask", "the reply")
        await wait_for_end(harness.tasks, ANN, task.id)

    stored = _bytes_in(tmp_path)
    assert task.id.encode() in stored
    assert not [text for text in (b"the question", b"the goal", b"the reply", b"seen") if text in stored]
    assert b"gASV" not in stored  # The beginning of a pickle in base64.


def _bytes_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.glob("tasks.db*"))


async def test_no_agent_reads_the_notes_of_another(harness: EngineWorkbench) -> None:
    found: list[Any] = []

    async def keep(ctx: AgentContext) -> None:
        await ctx.memory.write(ctx.agent, ctx.step)
        found.append(await ctx.memory.values())

    async def keep_too(ctx: AgentContext) -> None:
        await keep(ctx)

    plan = plan_of(step("a", agent="one"), step("b", "a", agent="two"), step("c", "b", agent="one"))
    async with engine_over(harness.store, harness.tasks, harness.url, {"one": keep, "two": keep_too}) as engine:
        progress = await harness.run(engine, plan)

    assert progress.task.status is TaskStatus.COMPLETED
    assert found == [{"one": "a"}, {"two": "b"}, {"one": "c"}]
    assert await harness.tasks.notes(ANN, progress.task.id, "one").list() == ()


async def test_what_the_engine_knows_of_ended_runs_is_removed(harness: EngineWorkbench) -> None:
    async with harness.engine(replace(QUICK, run_retention=timedelta(0))) as engine:
        await harness.run(engine, plan_of(step("a")))
        # A run ends a moment after its task, and the worker's heartbeat may be the first to sweep it.
        async with asyncio.timeout(LONG):
            while await asyncio.to_thread(engine._control.list_workflows, load_input=False, load_output=False):
                await asyncio.to_thread(engine._reaper.sweep)
                await asyncio.sleep(0.02)

        assert await engine.erase(ANN) == 0


async def test_a_process_has_one_worker(harness: EngineWorkbench) -> None:
    async with harness.engine() as engine:
        with pytest.raises(Invalid, match="a worker already"):
            async with harness.engine():
                pass

        progress = await harness.run(engine, plan_of(step("a")))

    assert progress.task.status is TaskStatus.COMPLETED


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


async def test_an_idle_engine_looks_at_its_queues_in_one_thread_and_is_woken_by_what_happens_here(
    harness: EngineWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Looking would be too late for this test: only being woken makes it end.
    monkeypatch.setattr("tenuto.tasks.engines._queues._IDLE", 10 * LONG)

    async with harness.engine() as engine:
        await harness.run(engine, plan_of(step("first")))
        task = await engine.submit(ANN, TASK, plan_of(step("ask", human_input="Well?"), step("a", "ask")))
        await wait_for_step(harness.tasks, ANN, task.id, "ask", "waiting")
        await engine.answer(ANN, task.id, "ask", "yes")
        progress = await wait_for_end(harness.tasks, ANN, task.id)
        names = [thread.name for thread in threading.enumerate()]

    assert progress.task.status is TaskStatus.COMPLETED
    assert not [name for name in names if any(word in name for word in ("queue", "scheduler", "timeout"))]
