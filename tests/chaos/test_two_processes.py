"""Two processes on one store, each with a hot L1: nothing lost, doubled, foreign or raised from the dead."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

import tenuto
from tenuto.chat import ChatRequest
from tenuto.errors import Conflict
from tenuto.llm import ScriptedModel
from tenuto.model import Page, Role
from tests.timeouts import LONG
from tests.warm_start import open_program

WORKERS, TURNS = 4, 15


class Process:
    """A second process that does what it is told, line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    async def ask(self, **order: Any) -> Any:
        """Send one order and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        line = await asyncio.wait_for(asyncio.to_thread(self._process.stdout.readline), 2 * LONG)
        assert line, "the second process died"
        return json.loads(line)


@asynccontextmanager
async def process(url: str) -> AsyncIterator[Process]:
    """Start a process that has the store open behind an L1."""
    top = Path(__file__).parents[2]
    with open_program("-m", "tests.second_process", url, stdin=PIPE, stdout=PIPE, cwd=top) as child:
        try:
            yield Process(child)
        finally:
            assert child.stdin is not None
            child.stdin.close()
            await asyncio.to_thread(child.wait)


@asynccontextmanager
async def two(url: str) -> AsyncIterator[tuple[Process, Process]]:
    async with process(url) as first, process(url) as second:
        yield first, second


@pytest.mark.requirement("T3")
async def test_appends_of_two_processes_are_all_kept(url: str) -> None:
    """N x M messages, no duplicates, pairs together, totals exact; a rename in parallel is kept too."""
    async with two(url) as (first, second):
        await first.ask(do="create", id="s")
        await asyncio.gather(
            first.ask(do="append", id="s", workers=WORKERS, turns=TURNS, mark="a", rename="renamed"),
            second.ask(do="append", id="s", workers=WORKERS, turns=TURNS, mark="b"),
        )
        turns = 2 * WORKERS * TURNS
        seen = [await _settled(each, "s", partial(_whole, turns=turns), url) for each in (first, second)]

    for log in seen:
        assert len(log["texts"]) == 2 * turns
        assert len(set(log["texts"])) == 2 * turns
        assert all(log["texts"][i][:-1] == log["texts"][i + 1][:-1] for i in range(0, 2 * turns, 2))
        assert (log["tokens"], log["cost_nanos"], log["title"]) == (3 * turns, 5 * turns, "renamed")
    assert seen[0]["texts"] == seen[1]["texts"]


@pytest.mark.requirement("T4")
async def test_a_session_deleted_by_one_is_gone_for_the_other(url: str) -> None:
    """Hot in the other's L1, deleted here, appended to there: it stays deleted."""
    async with two(url) as (first, second):
        for n in range(20):
            await first.ask(do="create", id=f"s{n}")
            await second.ask(do="read", id=f"s{n}")
            await second.ask(do="read", id=f"s{n}")
            await first.ask(do="delete", id=f"s{n}")
            read = await _settled(second, f"s{n}", lambda answer: "error" in answer, url)
            late = await second.ask(do="append", id=f"s{n}", workers=1, turns=1, mark="late")
            again = await first.ask(do="read", id=f"s{n}")

            assert read == {"error": "session_not_found"}
            assert late == {"error": "session_not_found"}
            assert again == {"error": "session_not_found"}


async def test_what_one_appends_the_other_reads(url: str) -> None:
    """A hot L1 never hides an append that was acknowledged elsewhere."""
    async with two(url) as (first, second):
        await first.ask(do="create", id="s")
        for n in range(1, 31):
            writer, reader = (first, second) if n % 2 else (second, first)
            await reader.ask(do="read", id="s")
            await writer.ask(do="append", id="s", workers=1, turns=1, mark=f"m{n}-")
            log = await _settled(reader, "s", partial(_says, count=2 * n), url)

            assert len(log["texts"]) == 2 * n


@pytest.mark.requirement("T3")
async def test_words_one_appends_outlive_the_answers_another_makes_anew(url: str) -> None:
    """Appending takes no lease: a new answer takes back answers alone, whenever the other process writes."""
    model = ScriptedModel("An answer.")
    async with process(url) as other, tenuto.open(url, model="mine", models={"mine": model}) as t:
        await other.ask(do="create", id="s")
        await other.ask(do="append", id="s", workers=1, turns=1, mark="first")
        chat, ann, writing = await t.chat(), t.scope(tenant="acme", user="ann"), asyncio.Event()

        async def answer_anew() -> None:
            while not writing.is_set():
                # Messages came in between: nothing was removed, and it is tried again.
                with contextlib.suppress(Conflict):
                    await chat.take_turn(ann, ChatRequest(session_id="s", regenerate=True))

        going = asyncio.create_task(answer_anew())
        await other.ask(do="append", id="s", workers=WORKERS, turns=2 * TURNS, mark="b")
        writing.set()
        await going
        await chat.take_turn(ann, ChatRequest(session_id="s", regenerate=True))
        log = await t.sessions.messages(ann, "s", Page(limit=1000))

    said = {message.text for message in log.messages if message.role is Role.USER}
    assert said == {"first0.0?", *(f"b{worker}.{turn}?" for worker in range(WORKERS) for turn in range(2 * TURNS))}


@pytest.mark.requirement("T1")
async def test_a_hot_session_is_foreign_to_others_in_both(url: str) -> None:
    """Across processes."""
    async with two(url) as (first, second):
        await first.ask(do="create", id="s")
        for each in (first, second):
            await each.ask(do="read", id="s")
            assert await each.ask(do="read", id="s", user="bob") == {"error": "session_not_found"}
            assert await each.ask(do="read", id="s", tenant="evil") == {"error": "session_not_found"}


def _says(log: dict[str, Any], count: int) -> bool:
    return len(log["texts"]) == count


def _whole(log: dict[str, Any], turns: int) -> bool:
    return (len(log["texts"]), log["tokens"], log["title"]) == (2 * turns, 3 * turns, "renamed")


async def _settled(reader: Process, session_id: str, wanted: Callable[[Any], bool], url: str) -> Any:
    """Ask once where the news come before the answer (SQLite); elsewhere they come beside it: ask until they are there.

    Redis writes both one right after the other, Postgres sends them on their own way, and either may be held up.
    """
    answer: Any = None
    for attempt in range(1 if url.startswith("sqlite") else 500):
        if attempt:
            await asyncio.sleep(timedelta(milliseconds=20).total_seconds())
        answer = await reader.ask(do="read", id=session_id)
        if wanted(answer):
            break
    return answer
