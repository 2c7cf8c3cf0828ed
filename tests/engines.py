"""A task engine over any store, as tests open it: the database of the engine is a file, the store may be another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from tenuto.model import Scope
from tenuto.model.plan import Plan, TaskProgress, parse_plan
from tenuto.model.policy import RunPolicy
from tenuto.ports import Clock, Store, utc_now
from tenuto.sessions import fresh_id
from tenuto.tasks import Tasks
from tenuto.tasks.agents import AgentCaller, Agents
from tenuto.tasks.engines.dbos_engine import DbosEngine, open_dbos_engine
from tenuto.tasks.step_runner import StepRunner
from tenuto.wiring.tasks import make_agent_contexts
from tests.timeouts import LONG

QUICK = RunPolicy(heartbeat=timedelta(seconds=0.2), lease=timedelta(seconds=1))


@asynccontextmanager
async def engine_over(
    store: Store,
    tasks: Tasks,
    url: str,
    agents: Mapping[str, Any],
    *,
    policy: RunPolicy = QUICK,
    clock: Clock = utc_now,
    worker: bool = True,
    call: AgentCaller | None = None,
    loaded: Mapping[str, Any] = MappingProxyType({}),
) -> AsyncIterator[DbosEngine]:
    known = Agents(agents, from_files=loaded, call=call)
    contexts = make_agent_contexts(tasks, store)
    runner = StepRunner(tasks=tasks, contexts=contexts, agents=known, policy=policy, clock=clock)
    async with open_dbos_engine(
        url, tasks=tasks, runner=runner, agents=known, policy=policy, new_id=fresh_id(), worker=worker
    ) as engine:
        yield engine


def plan_of(*steps: dict[str, Any], **fields: Any) -> Plan:
    return parse_plan({"steps": list(steps), **fields})


async def wait_for_end(tasks: Tasks, scope: Scope, task_id: str) -> TaskProgress:
    """The progress of a task that has ended."""
    async with asyncio.timeout(LONG):
        while True:
            progress = await tasks.progress(scope, task_id)
            if progress.task.is_finished:
                return progress
            await asyncio.sleep(0.02)


async def wait_for_step(tasks: Tasks, scope: Scope, task_id: str, step: str, status: str) -> TaskProgress:
    """The progress of a task one of whose steps has a status."""
    async with asyncio.timeout(LONG):
        while True:
            progress = await tasks.progress(scope, task_id)
            if any(run.step == step and run.status == status for run in progress.steps):
                return progress
            await asyncio.sleep(0.02)
