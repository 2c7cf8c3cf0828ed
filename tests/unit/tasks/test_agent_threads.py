"""Agents of files run in a thread of their own: one that blocks its event loop stops nothing but itself."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenuto.logs import about
from tenuto.model.plan import Plan, Step, StepStatus
from tenuto.model.policy import RunPolicy
from tenuto.ports import utc_now
from tenuto.task_errors import StepLost
from tenuto.tasks.agent_threads import AgentThreads
from tenuto.tasks.agents import AgentContext, Agents
from tenuto.tasks.step_runner import StepResult, StepRunner
from tenuto.wiring.tasks import make_agent_contexts
from tests.doubles import MemoryStore
from tests.samples import ANN
from tests.tasks import opened, tasks_over
from tests.timeouts import LONG, wait_until


class Office:
    """Agents that a test holds up and lets go; none of them can be awaited from the loop of the test."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.calls: list[str] = []

    async def block(self, ctx: AgentContext) -> None:
        self.calls.append("block")
        self.release.wait()

    async def spin(self, ctx: AgentContext) -> None:
        self.calls.append("spin")
        while not self.release.is_set():
            pass

    async def doze(self, ctx: AgentContext) -> str:
        """Waits without blocking, for ever if it is the first call."""
        self.calls.append("doze")
        await asyncio.sleep(3600 if self.calls.count("doze") == 1 else 0)
        return "awake"

    async def ignore(self, ctx: AgentContext) -> None:
        self.calls.append("ignore")
        while not self.release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                self.calls.append("cancelled")

    async def read(self, ctx: AgentContext) -> Any:
        assert about()["agent"] == ctx.agent
        await ctx.board.write("by", ctx.agent)
        await ctx.memory.write("doubt", "none")
        assert await ctx.messages() == ()
        return [await ctx.board.values(), await ctx.memory.values()]


@pytest.fixture
def office() -> Iterator[Office]:
    office = Office()
    yield office
    office.release.set()


PROGRAM = """
import asyncio, threading, time
from types import SimpleNamespace
from tenuto.tasks.agent_threads import AgentThreads

async def sleep(ctx):
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
    begun.set()
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass

async def main():
    threads = AgentThreads(end=0.1)
    call = asyncio.create_task(threads.call(sleep, SimpleNamespace(agent="a", step="s")))
    await asyncio.to_thread(begun.wait)
    call.cancel()
    await asyncio.sleep(0)
    await threads.close()

begun = threading.Event()
asyncio.run(main())
"""


def test_a_process_ends_though_an_agent_ignores_it_and_a_function_in_a_thread_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=LONG, check=True)

    assert done.stderr == "agent a ignores its cancellation; its thread was abandoned\n"


def context(agent: str) -> AgentContext:
    return cast("AgentContext", SimpleNamespace(agent=agent, step="a"))


@pytest.mark.requirement("E15", "E18", "E24")
async def test_an_agent_that_blocks_fails_alone_and_other_tasks_go_on(office: Office) -> None:
    """Its limit of time holds, and an agent that was running beside it is called again."""
    store = MemoryStore(clock=utc_now)
    tasks = tasks_over(store, utc_now)
    loaded = {"blocker": office.block, "dozer": office.doze, "reader": office.read}
    known, contexts = Agents(from_files=loaded), make_agent_contexts(tasks, store)
    runner = StepRunner(tasks=tasks, contexts=contexts, agents=known, policy=RunPolicy(), clock=utc_now)
    opens = {name: (await opened(tasks, ANN)).id for name in loaded}

    def run(name: str) -> asyncio.Task[StepResult]:
        step = Step(id="a", agent=name, timeout=timedelta(seconds=0.2 if name == "blocker" else 60))
        return asyncio.create_task(runner.run_step(ANN, opens[name], step, owns=_always))

    dozing = run("dozer")
    await wait_until(lambda: "doze" in office.calls)
    blocking = run("blocker")
    await wait_until(lambda: "block" in office.calls)
    ended = {"reader": await run("reader"), "blocker": await blocking, "dozer": await dozing}
    shown = {name: await tasks.steps(ANN, opens[name]).list(Plan(steps=(Step(id="a", agent=name),))) for name in loaded}
    office.release.set()
    await runner.close()

    assert {name: result.status for name, result in ended.items()} == {
        "reader": StepStatus.COMPLETED,
        "blocker": StepStatus.FAILED,
        "dozer": StepStatus.COMPLETED,
    }
    assert shown["reader"][0].output == [{"by": "reader"}, {"doubt": "none"}]
    assert shown["blocker"][0].error is not None
    assert shown["blocker"][0].error.code == "step_timeout"
    assert (shown["dozer"][0].attempts, shown["dozer"][0].takeovers) == (2, 1)


async def _always() -> bool:
    return True


async def test_a_blocked_thread_is_replaced_and_ended_when_the_time_of_its_agent_is_over(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    threads = AgentThreads(cancel_timeout=0.1)
    dozing = asyncio.create_task(threads.call(office.doze, context("dozer")))
    await wait_until(lambda: "doze" in office.calls)
    blocking = asyncio.create_task(threads.call(office.spin, context("blocker")))
    await wait_until(lambda: "spin" in office.calls)

    with caplog.at_level(logging.WARNING):
        assert await threads.call(office.doze, context("dozer")) == "awake"
    assert [record.getMessage() for record in caplog.records] == [
        "agent blocker blocks its event loop; other agents go on in another thread"
    ]
    assert not dozing.done(), "the block may end in time"

    blocking.cancel()
    with pytest.raises(StepLost):
        await dozing
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(blocking, LONG)
    await threads.close()
    await wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "tenuto-agents"])


async def test_the_end_does_not_wait_for_an_agent_that_ignores_its_cancellation(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    threads = AgentThreads(cancel_timeout=0.1, end=0.1)
    dozing = asyncio.create_task(threads.call(office.doze, context("dozer")))
    call = asyncio.create_task(threads.call(office.ignore, context("stubborn")))
    await wait_until(lambda: "ignore" in office.calls)
    call.cancel()
    await wait_until(lambda: "cancelled" in office.calls)
    _, waiting = await asyncio.wait({dozing}, timeout=0.3)
    assert waiting, "a thread that is not blocked is not lost"
    dozing.cancel()

    with caplog.at_level(logging.WARNING):
        await threads.close()
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert caplog.messages == ["agent stubborn ignores its cancellation; its thread was abandoned"]
