"""SIGKILL in the middle of writing: what was acknowledged is there, once and in order."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import pytest

from tenuto.model import Page, Role
from tenuto.model.turn import TRACES_KEPT
from tenuto.ports import Store
from tests.backends import sqlite_engine
from tests.samples import ACME, ANN, batch, texts
from tests.warm_start import open_program

pytestmark = pytest.mark.requirement()


SESSIONS = 6
ROUNDS = 4

TALKER = """
import asyncio, sys
from datetime import timedelta
from random import SystemRandom
from tenuto.model import BeginTurn, NewSession, FinishTurn, Usage, IdempotencyKey, Scope, Page, Retention
from tenuto.model.turn import Trace
from tenuto.ports import utc_now
from tenuto.stores.engine import Engine
from tenuto.stores.sqlite import SqliteRecords
from tests.samples import ANN, SENT_AT, says, answers

NEW = NewSession(retention=Retention(max_messages=None))

async def talk(store, name, start):
    # Few enough that one page holds what all rounds said, however late we are killed.
    for n in range(start, start + 1000):
        turn = await store.sessions.begin_turn(ANN, BeginTurn(
            session_id=name, turn_id=f"{name}.{n}.{start}", user_messages=(says(f"q{n}"),), create=NEW,
            idempotency_key=IdempotencyKey(key=f"k{n}", fingerprint=f"q{n}"), lease=timedelta(microseconds=1),
        ))
        if turn.state == "finished":
            continue
        trace = Trace(
            id=turn.id, session_id=name, turn_id=turn.id, number=turn.number, began_at=SENT_AT, assistant="general",
            answer=f"a{n}",
        )
        end = FinishTurn(reply=(answers(f"a{n}"),), usage=Usage(tokens=1), trace=trace)
        await store.sessions.finish_turn(turn, end)
        print(name, n, flush=True)
    await asyncio.Event().wait()

async def main():
    store = Engine(await SqliteRecords.open(sys.argv[1]), clock=utc_now, chance=SystemRandom())
    async with asyncio.TaskGroup() as group:
        for place in range(int(sys.argv[2])):
            group.create_task(talk(store, f"s{place}", int(sys.argv[3])))

asyncio.run(main())
"""


def talk_until_killed(path: Path, start: int, acknowledgements: int) -> dict[str, int]:
    """The last turn each session heard acknowledged before the process was killed."""
    talker = open_program("-c", TALKER, str(path), str(SESSIONS), str(start), stdout=subprocess.PIPE, text=True)
    assert talker.stdout is not None
    heard: dict[str, int] = {}
    try:
        for _ in range(acknowledgements):
            name, n = talker.stdout.readline().split()
            heard[name] = int(n)
    finally:
        os.kill(talker.pid, signal.SIGKILL)
    # What was printed before the kill was acknowledged too.
    for name, n in re.findall(r"^(\S+) (\d+)\n", talker.stdout.read(), re.MULTILINE):
        heard[name] = int(n)
    talker.stdout.close()
    assert talker.wait(30) == -signal.SIGKILL
    return heard


async def traced(store: Store, name: str) -> list[str]:
    """The answers that traces tell of, oldest first."""
    return [trace.answer for trace in reversed(await store.traces.traces(ANN, name, limit=1000))]


async def answered(store: Store, name: str) -> list[str]:
    """The answers in the log that are young enough to have a trace."""
    page = await store.sessions.messages(ANN, name, Page(limit=10_000))
    replies = [message for message in page.messages if message.role is Role.ASSISTANT]
    return [reply.text for reply in replies if reply.turn > replies[-1].turn - TRACES_KEPT]


async def test_what_was_acknowledged_survives_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    acknowledged: dict[str, set[int]] = defaultdict(set)
    for round_ in range(ROUNDS):
        first = round_ * 10_000
        for name, last in talk_until_killed(path, first, 40 + 17 * round_).items():
            acknowledged[name] |= set(range(first, last + 1))

    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    async with sqlite_engine(path) as store:
        for name in (f"s{place}" for place in range(SESSIONS)):
            said = await texts(store, ANN, name)
            session = await store.sessions.get(ANN, name)
            numbers = [int(text[1:]) for text in said]
            assert len(said) == len(set(said)), "nothing is stored twice"
            assert numbers == sorted(numbers), "nothing is out of order"
            assert acknowledged[name] <= {int(text[1:]) for text in said if text.startswith("a")}, "nothing is lost"
            assert session.messages == session.last_seq == len(said)
            assert session.tokens == sum(text.startswith("a") for text in said)
            assert await traced(store, name) == await answered(store, name), "a trace is stored with its answer"
        assert (await store.upkeep.stats(ACME)).sessions == SESSIONS
        await store.sessions.append(ANN, "s0", batch("after the crash"))
