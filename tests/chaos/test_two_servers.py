"""Two servers on one store, clients that choose one at random, and a store that dies again and again.

In the suite the run is short. `CHAOS_TURNS=3000 CHAOS_KILLS=12` makes it as long as that, and `-o log_cli=true
--log-cli-level=INFO` shows its figures.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx
import jwt
import pytest

from tests.chaos.acknowledged import Turn, Verdict, check_all
from tests.journeys.http_service import bearer
from tests.journeys.server_process import WAIT, ServerProcess, running_server
from tests.servers import PostgresServer, RedisServer, start_postgres, start_redis

SECRET = "a secret of at least thirty-two bytes"
WHO = bearer(jwt.encode({"tenant_id": "acme", "sub": "ann", "exp": 2**32}, SECRET, "HS256"))
TURNS = int(os.environ.get("CHAOS_TURNS", "150"))
KILLS = int(os.environ.get("CHAOS_KILLS", "2"))
CLIENTS = 16
TURNS_PER_SESSION = 30
log = logging.getLogger(__name__)


@pytest.fixture(params=["valkey", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer | PostgresServer]:
    """A server of this test's own, to be killed; what it acknowledged survives that."""
    with start_redis(fsync="always") if request.param == "valkey" else start_postgres() as own:
        yield own


@dataclass
class Talks:
    """What the clients have been told."""

    processes: tuple[ServerProcess, ...]
    acknowledged: dict[str, list[Turn]] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    over: bool = False
    drained: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def turns(self) -> int:
        """The number of acknowledged turns."""
        return sum(map(len, self.acknowledged.values()))

    async def run(self, server: RedisServer | PostgresServer) -> None:
        """Talk until there are enough turns and kills."""
        limits = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=WAIT, limits=limits, headers=WHO) as http, asyncio.TaskGroup() as group:
            for client in range(CLIENTS):
                group.create_task(self._client(http, client))
            await self._strike(server)
            await _until(self._has_enough_turns)
            self.over = True

    async def _strike(self, server: RedisServer | PostgresServer) -> None:
        """Kill the store, or freeze it for longer than a call may take; a Postgres call may take five seconds."""
        frozen_for, freezes = (2.5, True) if isinstance(server, RedisServer) else (6.5, KILLS > 2)
        for strike in range(KILLS):
            await asyncio.sleep(random.uniform(0.3, 1))
            if strike % 2 and freezes:
                await asyncio.to_thread(server.freeze)
                await asyncio.sleep(frozen_for)
                await asyncio.to_thread(server.thaw)
            else:
                await asyncio.to_thread(server.kill)
                await asyncio.sleep(random.uniform(0.2, 1.5))
                await asyncio.to_thread(server.start)
            self.kills += 1
            await self.until_replayed()

    async def until_replayed(self) -> None:
        """Wait until no turn is in a journal."""
        since = time.monotonic()
        async with httpx.AsyncClient(timeout=WAIT, headers=bearer(SECRET)) as http:
            for process in self.processes:

                async def is_replayed(metrics: str = f"{process.http.base_url}/metrics") -> bool:
                    return "tenuto_journal_waiting 0.0" in (await http.get(metrics)).text

                await _until(is_replayed)
        self.drained.append(round(time.monotonic() - since, 1))

    async def _has_enough_turns(self) -> bool:
        return self.turns >= TURNS

    async def _client(self, http: httpx.AsyncClient, client: int) -> None:
        """Hold one conversation after the other; a turn follows once the one before it is acknowledged."""
        number = 0
        while not self.over:
            number += 1
            session: str | None = None
            for turn in range(1, TURNS_PER_SESSION + 1):
                question = f"Question {turn} of conversation {client}.{number}?"
                told = await self._turn(http, session, question, f"{client}.{number}.{turn}")
                if told is None:
                    return
                session = str(told["session_id"])
                self.acknowledged.setdefault(session, []).append((question, str(told["answer"])))

    async def _turn(
        self, http: httpx.AsyncClient, session: str | None, question: str, key: str
    ) -> dict[str, object] | None:
        """Repeat a turn, at any server, until it is acknowledged; `None` when all is over."""
        body = {"message": question} | ({"session_id": session} if session else {})
        since = time.monotonic()
        while not self.over:
            process = random.choice(self.processes)
            with suppress(httpx.TransportError):
                answer = await http.post(
                    f"{process.http.base_url}/v1/chat", json=body, headers={"Idempotency-Key": key}
                )
                if answer.status_code == 200:
                    told: dict[str, object] = answer.json()
                    self.statuses["journaled" if told["degraded"] else "200"] += 1
                    self.seconds.append(time.monotonic() - since)
                    return told
                self.statuses[f"{answer.status_code} {answer.json().get('code')}"] += 1
            await asyncio.sleep(random.uniform(0.02, 0.1))
        return None

    def logs(self) -> dict[str, list[tuple[str, str]]]:
        """What the store has."""
        return {session: self._log(session) for session in self.acknowledged}

    def _log(self, session: str) -> list[tuple[str, str]]:
        process = self.processes[0]
        until = time.monotonic() + WAIT
        while True:
            answer = process.http.get(f"/v1/sessions/{session}/messages", params={"limit": 1000}, headers=WHO)
            # A server may find the store a second later than the other one, which has replayed all.
            if answer.status_code != 503 or time.monotonic() > until:
                break
            time.sleep(0.1)
        assert answer.status_code == 200, answer.text
        said = [(message["role"], message["text"]) for message in answer.json()["messages"]]
        return [(role, text) for role, text in said if role in ("user", "assistant")]


def _figures(seconds: list[float]) -> tuple[float, float]:
    return median(seconds), max(seconds)


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT):
        while not await holds():  # noqa: ASYNC110 (another process changes it)
            await asyncio.sleep(0.05)


async def test_turns_at_two_servers_survive_their_store_in_order(
    server: RedisServer | PostgresServer, tmp_path: Path
) -> None:
    """Nothing acknowledged is lost, doubled or reordered, whichever server a client reaches."""
    url = server.url if isinstance(server, RedisServer) else server.app_url
    settings = {
        "TENUTO_JOURNAL": str(tmp_path / "journal"),
        "TENUTO_JWT_SECRET": SECRET,
        "TENUTO_METRICS_TOKEN": SECRET,
        "TENUTO_REQUESTS_PER_MINUTE": "1000000",
    }
    with ExitStack() as first, ExitStack() as second:
        processes = (running_server(tmp_path / "unused", "--store", url, **settings) for _ in range(2))
        starts = (
            asyncio.to_thread(stack.enter_context, process)
            for stack, process in zip((first, second), processes, strict=True)
        )
        talks = Talks(tuple(await asyncio.gather(*starts)))
        await talks.run(server)
        await talks.until_replayed()
        logs = talks.logs()

    verdict = check_all(talks.acknowledged, logs)
    log.info("%s after %d kills; journals empty after %s s", verdict, talks.kills, talks.drained)
    log.info("answers %s; median and longest turn %.2f, %.2f s", dict(talks.statuses), *_figures(talks.seconds))
    if verdict != Verdict(acknowledged=talks.turns):
        for process in talks.processes:
            log.warning("a server said:\n%s", "".join(process.log[-300:]))
    assert verdict == Verdict(acknowledged=talks.turns), talks.statuses
    assert (talks.kills, talks.turns >= TURNS) == (KILLS, True)
    assert talks.statuses["journaled"]
    assert not talks.statuses["404 session_not_found"]
