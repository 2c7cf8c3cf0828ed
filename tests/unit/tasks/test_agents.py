"""Agents are functions with a name, from a folder or from a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tenuto
from tenuto.errors import Invalid, InvalidSetting
from tenuto.task_errors import AgentNotFound
from tenuto.tasks.agents import Agents, load_agents

READER = """
import tenuto

@tenuto.agent("reader")
async def read(ctx: tenuto.AgentContext) -> str:
    return ctx.goal
"""


async def work(ctx: Any) -> str:
    return str(ctx.step)


def test_a_folder_gives_the_named_functions_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "reading.py").write_text(READER)
    (tmp_path / "writing.py").write_text(
        READER.replace("reader", "writer") + "from tenuto_agents_reading import read as other\n"
    )
    (tmp_path / "_shared.py").write_text("raise RuntimeError")

    found = load_agents(tmp_path)

    assert sorted(found) == ["reader", "writer"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "raises ZeroDivisionError at line 1 when it is read: division by zero"),
        (
            "\nimport no_such_module",
            "(No module named 'no_such_module' at line 2) needs a package that is not installed",
        ),
        ("def", "SyntaxError at line 1"),
        (READER.replace("async def", "def"), "neither an `async def` function"),
        (READER.replace("ctx: tenuto.AgentContext", ""), "must take one argument"),
        (READER.replace('"reader"', '"human"'), "no agent may be named human"),
    ],
)
def test_a_file_that_does_not_fit_is_named_with_the_reason(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "mine.py").write_text(text)

    with pytest.raises(InvalidSetting, match=r"agents: mine\.py\b") as excinfo:
        load_agents(tmp_path)

    assert said in str(excinfo.value)


@pytest.mark.requirement("T20")
async def test_a_folder_that_is_not_there_stops_the_start() -> None:
    """A server would serve without its agents."""
    with pytest.raises(InvalidSetting, match="agents: there is no folder /does/not/exist"):
        async with tenuto.open("memory://", agents="/does/not/exist"):
            pass


def test_two_agents_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(READER)

    with pytest.raises(InvalidSetting, match="two agents named reader"):
        load_agents(tmp_path)
    with pytest.raises(InvalidSetting, match=r"no folder .*nowhere"):
        load_agents(tmp_path / "nowhere")


def test_a_program_registers_agents_by_name() -> None:
    agents = Agents({"worker": work})

    assert agents.get("worker") is work
    assert agents.names == {"worker"}
    with pytest.raises(AgentNotFound):
        agents.get("reader")
    with pytest.raises(Invalid, match="two agents"):
        agents.register("worker", tenuto.agent("other")(lambda_of(work)))


def lambda_of(function: Any) -> Any:
    async def other(ctx: Any) -> Any:
        return await function(ctx)

    return other
