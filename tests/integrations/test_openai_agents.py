"""The session of the OpenAI Agents SDK: limits, popping, compaction, and runs from other threads.

Frameworks are imported by the tests that need them: every worker of the suite collects every test.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tenuto
from tenuto.errors import Invalid
from tenuto.extras import install_line
from tests.samples import ANN

PAIR: list[Any] = [
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "42"},
]


def said(*texts: str) -> list[Any]:
    return [{"role": "user" if place % 2 == 0 else "assistant", "content": text} for place, text in enumerate(texts)]


async def test_limits_and_popping_count_the_newest_items_of_all_who_write(tmp_path: Path) -> None:
    from tenuto.integrations.openai_agents import TenutoSession

    async with tenuto.open(f"sqlite:///{tmp_path / 'chat.db'}") as app:
        session = TenutoSession("s", app, ANN, session_settings={"limit": 2})
        assert (await session.pop_item(), await session.get_items()) == (None, [])
        await session.add_items(said("one", "two", "three"))
        await app.sessions.append(ANN, "s", tenuto_append(app, "four"))

        assert await session.get_items() == [*said("one", "two", "three")[2:], {"role": "assistant", "content": "four"}]
        assert [len(await session.get_items(limit)) for limit in (0, 1, 3, 9, -1)] == [0, 1, 3, 4, 4]
        other = TenutoSession("s", app, ANN)
        popped = await asyncio.gather(*((session, other)[place % 2].pop_item() for place in range(6)))
        assert sorted(item["content"] for item in popped if item) == ["four", "one", "three", "two"]
        with pytest.raises((TypeError, ValueError)):
            TenutoSession("s", app, ANN, session_settings={"most": 2})


def tenuto_append(app: tenuto.Tenuto, text: str) -> Any:
    from tenuto.sessions import AppendRequest

    return AppendRequest(messages=(app.draft(text),))


async def test_a_compaction_shows_a_summary_and_removes_nothing() -> None:
    """A call stays with its output; the log has every item, and popping under the summary brings items back."""
    from tenuto.integrations.openai_agents import TenutoSession

    async with tenuto.open("memory://") as app:
        session = TenutoSession("s", app, ANN, compact_over=6)
        items = [*said("My cat is called Mia.", "Good."), *said("What is 6 times 7?"), *PAIR, *said("And now?", "Now.")]
        await session.add_items(items)
        await session.run_compaction({"response_id": "r"})
        summary, *rest = await session.get_items()

        assert "Mia" in str(summary["content"])
        assert rest == items[-len(rest) :]
        assert rest[0]["role"] == "user"
        assert await session.get_items(len(rest) + 5) == [summary, *rest]
        assert await session.get_items(1) == items[-1:]
        await session.run_compaction({"force": True})
        assert (await session.get_items())[1:] == items[-2:]
        kept = (await app.sessions.messages(ANN, "s")).messages
        assert len([message for message in kept if message.role != "item"]) == len(items)
        for item in reversed(items):
            assert await session.pop_item() == item
        assert await session.get_items() == []


def run_in_own_loop(run: Callable[[], object]) -> None:
    """The SDK runs in the loop of its thread, and leaves it open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        run()
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def test_runs_from_other_threads_and_loops_share_a_session(tmp_path: Path) -> None:
    from agents import Agent, Runner, set_tracing_disabled
    from agents.testing import ScriptedModel, assistant_message

    from tenuto.integrations.openai_agents import TenutoSession

    set_tracing_disabled(True)
    model = ScriptedModel([[assistant_message(str(number))] for number in range(3)])
    agent = Agent(name="a", model=model)
    async with tenuto.open(f"sqlite:///{tmp_path / 'chat.db'}") as app:
        session = TenutoSession("s", app, ANN)
        await Runner.run(agent, "zero", session=session)
        await asyncio.to_thread(run_in_own_loop, lambda: Runner.run_sync(agent, "one", session=session))
    by_file = TenutoSession("s", tmp_path / "chat.db", ANN)
    streamed = Runner.run_streamed(agent, "two", session=by_file)
    async for _ in streamed.stream_events():
        pass

    texts = [item["content"] for item in await by_file.get_items() if item["role"] == "user"]
    assert texts == ["zero", "one", "two"]
    assert len(model.calls[2].input) == 5
    by_file.close()
    with pytest.raises(Invalid, match="closed"):
        await by_file.get_items()


def test_a_missing_framework_is_named(tmp_path: Path) -> None:
    """Nothing of an adapter is loaded with tenuto itself."""
    program = "import sys, tenuto; sys.modules['agents'] = None; import tenuto.integrations.openai_agents"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert install_line("openai-agents") in done.stderr.splitlines()[-1]
