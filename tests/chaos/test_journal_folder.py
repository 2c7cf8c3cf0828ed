"""Real processes that share a journal's folder: the store is killed, so is a process, and clients choose one at random.

Nothing acknowledged is lost, doubled or reordered, nothing waits for ever, and few calls are refused.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from tenuto.stores.engine.journal_files import count_journal
from tests.samples import fresh
from tests.servers import RedisServer, start_redis
from tests.timeouts import LONG
from tests.warm_start import open_program

TURNS = int(os.environ.get("CHAOS_TURNS", "120"))
SESSIONS = 6
# Each session may have one turn on its way when the store dies, and one when the process does.
_UNKNOWN_OUTCOMES = 2 * SESSIONS


class Worker:
    """A process; an order ends with its answer, or `None` when the process dies."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.child = child
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[dict[str, Any] | None]] = {}
        self._reading = asyncio.create_task(self._read())

    async def ask(self, **order: Any) -> dict[str, Any] | None:
        number = next(self._numbers)
        future: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        assert self.child.stdin is not None
        try:
            self.child.stdin.write(json.dumps({"n": number, **order}).encode() + b"\n")
            self.child.stdin.flush()
        except OSError:
            return None
        async with asyncio.timeout(LONG):
            return await future

    async def _read(self) -> None:
        assert self.child.stdout is not None
        while line := await asyncio.to_thread(self.child.stdout.readline):
            told = json.loads(line)
            self._waiting.pop(told.pop("n")).set_result(told)
        for future in self._waiting.values():
            future.set_result(None)

    def kill(self) -> None:
        self.child.send_signal(signal.SIGKILL)

    async def end(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.close()
        await self._reading
        await asyncio.to_thread(self.child.wait)
        assert self.child.stdout is not None
        self.child.stdout.close()


class Talks:
    """Clients with one session each, and what they were told."""

    def __init__(self, server: RedisServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.workers: list[Worker] = []
        self.acknowledged: dict[str, list[str]] = {}
        self.answers: Counter[str] = Counter()
        self.refused: set[str] = set()
        """The turns that were refused during the outage, however often each was sent."""
        self.is_away = self.is_over = False
        self._prefix = fresh("journal")
        self._stack = AsyncExitStack()

    async def start_worker(self) -> None:
        top = Path(__file__).parents[2]
        program = ("-m", "tests.chaos.journal_process", self.server.url, self._prefix, str(self.folder))
        child = await asyncio.to_thread(open_program, *program, stdin=PIPE, stdout=PIPE, cwd=top)
        worker = Worker(child)
        self._stack.push_async_callback(worker.end)
        assert await worker.ask(do="status") is not None
        self.workers.append(worker)

    async def client(self, session: str) -> None:
        """One turn after the other, each sent until it is acknowledged."""
        for number in itertools.count():
            key = f"{session}.{number}"
            while True:
                if self.is_over:
                    return
                told = await random.choice(self.workers).ask(do="turn", session=session, key=key)
                during = "away" if self.is_away else "there"
                if told is not None and "error" not in told:
                    self.answers[f"journaled {told['journaled']} {during}"] += 1
                    self.acknowledged.setdefault(session, []).append(key)
                    break
                # A busy session is that of the attempt of a killed process, and no refusal for the outage.
                answer = f"{'killed' if told is None else told['error']} {during}"
                self.answers[answer] += 1
                if answer.startswith(("unavailable away", "circuit")):
                    self.refused.add(key)
                await asyncio.sleep(0.05)

    async def until_turns(self, count: int) -> None:
        async with asyncio.timeout(LONG):
            while sum(map(len, self.acknowledged.values())) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def until_stored(self) -> None:
        async with asyncio.timeout(LONG):
            while count_journal(self.folder).waiting:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        await self._stack.aclose()


@asynccontextmanager
async def talks(path: Path) -> AsyncIterator[Talks]:
    with start_redis(fsync="no") as server:
        opened = Talks(server, path / "journal")
        try:
            yield opened
        finally:
            await opened.close()


@pytest.mark.requirement("T7")
async def test_two_processes_outlive_their_store_and_one_of_them(tmp_path: Path) -> None:
    async with talks(tmp_path) as all_talks:
        await asyncio.gather(all_talks.start_worker(), all_talks.start_worker())
        async with asyncio.TaskGroup() as clients:
            for number in range(SESSIONS):
                clients.create_task(all_talks.client(f"s{number}"))
            await all_talks.until_turns(TURNS // 4)
            all_talks.server.kill()
            all_talks.is_away = True
            await all_talks.until_turns(TURNS // 2)
            all_talks.workers.pop(0).kill()
            await all_talks.until_turns(3 * TURNS // 4)
            await all_talks.start_worker()
            all_talks.is_away = False
            all_talks.server.start()
            await all_talks.until_turns(TURNS)
            all_talks.is_over = True
        await all_talks.until_stored()
        logs = {
            session: await all_talks.workers[0].ask(do="read", session=session) for session in all_talks.acknowledged
        }
        statuses = [await worker.ask(do="status") for worker in all_talks.workers]

    for session, keys in all_talks.acknowledged.items():
        log = (logs[session] or {})["texts"]
        assert [text for text in log if text in set(keys)] == keys, session
        assert [text for text in log if text.removesuffix("!") in set(keys)] == [
            text for key in keys for text in (key, f"{key}!")
        ]
    assert [status and status["quarantined"] for status in statuses] == [0, 0]
    assert all_talks.answers["journaled True away"] > TURNS // 4
    assert len(all_talks.refused) <= _UNKNOWN_OUTCOMES, all_talks.answers
