"""A worker in a process of its own, whose agents take their time; it may be killed at any moment.

Each call of an agent leaves a line in a file, so that a test can count what ran how often.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path
from typing import Final

from msgspec.structs import replace

import tenuto
from tenuto.model.plan import Plan, Step
from tenuto.ports import utc_now
from tenuto.tasks.agents import AgentContext, AgentFunction
from tenuto.wiring.tasks import open_engine
from tests.engines import QUICK
from tests.timeouts import lengthen_store_timeouts

# Each step adds one to the sum of those that it comes after: 1, 2, 2, 2, 5, 6, 9.
AFTER: Final = {"s0": (), "s1": ("s0",), "s2": ("s0",), "s3": ("s0",), "s4": ("s1", "s2"), "s5": ("s4",)} | {
    "s6": ("s3", "s5")
}
RESULT: Final = {"s6": 9}
PLAN: Final = Plan(steps=tuple(Step(id=name, agent="adder", after=after) for name, after in AFTER.items()))
FREEZES: Final = "freezes"
"""A goal with which the first call of `s1` takes long."""


def make_adder(calls: Path) -> AgentFunction:
    """The agent of the plan."""

    async def add(ctx: AgentContext) -> int:
        first = ctx.step_key not in (calls.read_text() if calls.exists() else "")  # noqa: ASYNC240 (a small file)
        with calls.open("a") as file:
            file.write(f"{ctx.step_key}\n")
        await asyncio.sleep(4 if first and ctx.goal == FREEZES and ctx.step == "s1" else random.uniform(0.02, 0.2))
        await ctx.board.write(f"note.{ctx.step}", os.getpid())
        return 1 + sum([await ctx.board.get(key, int) or 0 for key in AFTER[ctx.step]])

    return add


async def main(url: str, database: str, calls: str, parent: str) -> None:
    """Work until the process is killed, or its parent is gone."""
    policy = replace(QUICK, tasks_at_once=4)
    async with tenuto.open(url, tasks_database=database, sqlite_synchronous="normal") as app:
        app.agents.register("adder", make_adder(Path(calls)))
        async with open_engine(
            app.settings,
            tasks=app.tasks,
            contexts=app.agent_contexts,
            agents=app.agents,
            clock=utc_now,
            worker=True,
            redactor=app.redactor,
            policy=policy,
        ):
            print("ready", flush=True)  # noqa: T201
            while os.getppid() == int(parent):  # noqa: ASYNC110
                await asyncio.sleep(0.2)


if __name__ == "__main__":
    lengthen_store_timeouts()
    asyncio.run(main(*sys.argv[1:]))
