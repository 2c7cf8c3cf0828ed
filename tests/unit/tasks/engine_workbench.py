"""A store with its tasks, and agents whose doings a test controls, for tests of the engine."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tenuto.model.plan import Plan, StepStatus, TaskProgress
from tenuto.model.policy import RunPolicy
from tenuto.model.task import NewTask
from tenuto.ports import utc_now
from tenuto.tasks.agents import AgentContext, AgentFunction
from tests.doubles import MemoryStore
from tests.samples import ANN
from tests.tasks import tasks_over

pytest.importorskip("dbos")

from tenuto.tasks.engines.dbos_engine import DbosEngine
from tests.engines import QUICK, engine_over, wait_for_end

TASK = NewTask(type="review", goal="Find the notice period")
COMPLETED, FAILED, SKIPPED = StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.SKIPPED


class CountedAgents:
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


class EngineWorkbench:
    """A store and its tasks, on which engines are opened one after the other."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore(clock=utc_now)
        self.tasks = tasks_over(self.store, utc_now)
        self.office = CountedAgents()
        self.url = f"sqlite:///{folder}/tasks.db"

    def engine(self, policy: RunPolicy = QUICK, worker: bool = True) -> AbstractAsyncContextManager[DbosEngine]:
        return engine_over(self.store, self.tasks, self.url, self.office.agents(), policy=policy, worker=worker)

    async def run(self, engine: DbosEngine, plan: Plan, **fields: Any) -> TaskProgress:
        task = await engine.submit(ANN, TASK, plan, **fields)
        return await wait_for_end(self.tasks, ANN, task.id)


def step_statuses(progress: TaskProgress) -> dict[str, StepStatus]:
    return {run.step: run.status for run in progress.steps}
