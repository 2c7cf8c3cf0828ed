"""Runs of agents on every store: added up by parallel writers, private, expired by time, gone with their task."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tenuto.model.agent_run import AgentRun
from tenuto.model.plan import parse_plan
from tenuto.ports import Store
from tenuto.tasks import Tasks
from tenuto.tasks.runs import RunRecorder
from tests.clock import FakeClock
from tests.samples import ANN
from tests.tasks import opened

pytestmark = pytest.mark.requirement("E4")


PLAN = parse_plan({"steps": [{"id": "a", "agent": "reader"}, {"id": "b", "agent": "reader", "after": ["a"]}]})


def made(text: str) -> RunRecorder:
    recorder = RunRecorder()
    recorder.add_usage(input_tokens=3, output_tokens=2, cost_nanos=10_000_000_001)
    recorder.add_tool_call("search", ok=False, seconds=1.5, arguments={"q": text})
    recorder.add_message("user", text)
    return recorder


async def begun(tasks: Tasks) -> str:
    task = await opened(tasks, ANN)
    await tasks.add_plan(ANN, task.id, PLAN)
    await tasks.steps(ANN, task.id).begin(PLAN.steps[0])
    return task.id


async def run_of(tasks: Tasks, task_id: str, agent: str | None = "reader") -> AgentRun:
    (run,) = await tasks.runs(ANN, task_id, agent=agent)
    return run


async def test_parallel_reports_of_a_run_lose_nothing(tasks: Tasks) -> None:
    task_id = await begun(tasks)

    await asyncio.gather(*(tasks.record_run(ANN, task_id, "a", made(str(number))) for number in range(4)))

    run = await run_of(tasks, task_id)
    assert (run.requests, run.input_tokens, run.output_tokens, run.cost_nanos) == (4, 12, 8, 40_000_000_004)
    assert sorted(message.text for message in run.messages) == ["0", "1", "2", "3"]
    assert {(call.name, call.ok, call.seconds) for call in run.tool_calls} == {("search", False, 1.5)}
    assert (await run_of(tasks, task_id, None)).messages == ()


@pytest.mark.requirement("E6", "E21")
async def test_private_parts_expire_and_the_rest_goes_with_the_task(
    tasks: Tasks, clock: FakeClock, store: Store
) -> None:
    """An hour, and nothing is left of a deleted task."""
    task_id = await begun(tasks)
    await tasks.record_run(ANN, task_id, "a", made("secret"))
    clock.advance(timedelta(hours=1))

    run = await run_of(tasks, task_id)
    assert (run.messages, [call.arguments for call in run.tool_calls], run.requests) == ((), [None], 1)
    clock.advance(timedelta(minutes=20))
    await tasks.sweep()
    notes = await store.state.list_state(ANN, f"task-notes:{task_id}")
    assert "secret" not in repr(notes)

    await tasks.delete(ANN, task_id)
    for kind in ("runs", "notes", "steps"):
        assert await store.state.state_keys(ANN, f"task-{kind}:{task_id}") == ()
