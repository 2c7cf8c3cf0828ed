"""A real store dies in the middle of a talk, then the server does; both come back, and every word is there once.

As users live it: through the HTTP door of a server process.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tenuto.model import Scope
from tenuto.stores.engine import Engine
from tenuto.stores.engine.journal_files import DiskFolder, count_journal
from tenuto.stores.engine.journal_folder import JournalCounts
from tenuto.stores.factory import open_records
from tenuto.stores.redis import ConnectionPolicy, RedisRecords
from tests.chaos.replaying import SECRET, WHO, until_replayed
from tests.journeys.server_process import ServerProcess, running_server
from tests.samples import begin, closing, talk, texts
from tests.servers import PostgresServer, RedisServer, start_postgres, start_redis
from tests.timeouts import LONG

pytestmark = pytest.mark.requirement("T7")


ANN = Scope(tenant="acme", user="ann")
# Tokens are checked without a look at the store; whether keys exist, a server that starts in an outage cannot know.


@pytest.fixture(params=["valkey", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer | PostgresServer]:
    """A server of this test's own, to be killed; what it acknowledged survives that."""
    with start_redis(fsync="always") if request.param == "valkey" else start_postgres() as own:
        yield own


def _url(server: RedisServer | PostgresServer) -> str:
    return server.url if isinstance(server, RedisServer) else server.app_url


def _say(process: ServerProcess, message: str, session: str | None, key: str) -> dict[str, Any]:
    body = {"message": message} | ({"session_id": session} if session else {})
    answer = process.http.post("/v1/chat", json=body, headers={**WHO, "Idempotency-Key": key})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def _log(process: ServerProcess, session: str) -> list[tuple[str, str]]:
    answer = process.http.get(f"/v1/sessions/{session}/messages", params={"limit": 100}, headers=WHO)
    assert answer.status_code == 200, answer.text
    return [(message["role"], message["text"]) for message in answer.json()["messages"]]


async def _elsewhere(server: RedisServer | PostgresServer, session: str, question: str, answer: str) -> None:
    """Another process writes to the store itself."""
    engine = Engine(await open_records(_url(server)), chance=Random())
    await talk(engine, ANN, session, question, answer)
    await engine.close()


@pytest.mark.requirement("T7", "S6")
async def test_a_talk_survives_its_store_and_its_server(server: RedisServer | PostgresServer, tmp_path: Path) -> None:
    """In order, once, after what others wrote, with the older talk in sight all the time."""
    journal = tmp_path / "journal"
    settings = {
        "TENUTO_JOURNAL": str(journal),
        "TENUTO_BREAKER_RESET": "1s",
        "TENUTO_JWT_SECRET": SECRET,
        "TENUTO_METRICS_TOKEN": SECRET,
    }
    options = ("--store", _url(server))
    said: list[tuple[str, str]] = []

    def says(process: ServerProcess, message: str, session: str | None, key: str) -> dict[str, Any]:
        told = _say(process, message, session, key)
        said.extend([("user", message), ("assistant", told["answer"])])
        return told

    with running_server(tmp_path, *options, **settings) as first:
        session = says(first, "My favourite colour is green.", None, "k1")["session_id"]
        until_replayed(first)
        # Should the machine have stood still since, the talk is in doubt until the store tells of it again.
        assert _log(first, session) == said
        server.kill()
        away = [says(first, "What is my favourite colour?", session, "k2")]
        away.append(says(first, "My cat is called Tom.", session, "k3"))
        new = _say(first, "A new talk begins here.", None, "k0")
        assert first.end(signal.SIGKILL) == -signal.SIGKILL

    with running_server(tmp_path, *options, **settings) as second:
        again = _say(second, "My cat is called Tom.", session, "k3")
        away.append(says(second, "What is my cat called?", session, "k4"))
        shown = _log(second, session)
        assert second.end(signal.SIGKILL) == -signal.SIGKILL

    server.start()
    await _elsewhere(server, session, "Is anybody there?", "Elsewhere, yes.")
    with running_server(tmp_path, *options, **settings) as third:
        until_replayed(third)
        kept, kept_new = _log(third, session), _log(third, new["session_id"])
        repeated = _say(third, "What is my cat called?", session, "k4")

    assert [turn["degraded"] for turn in away] == [["recall", "journal"]] * 3
    assert ("green" in away[0]["answer"], "Tom" in away[2]["answer"]) == (True, True)
    assert (again["replayed"], again["answer"]) == (True, away[1]["answer"])
    assert shown == said
    other = [("user", "Is anybody there?"), ("assistant", "Elsewhere, yes.")]
    assert kept == [*said[:2], *other, *said[2:]]
    assert kept_new == [("user", "A new talk begins here."), ("assistant", new["answer"])]
    assert (repeated["replayed"], repeated["answer"]) == (True, away[2]["answer"])
    assert [count_journal(path.parent) for path in journal.rglob("journal.db")] == [JournalCounts()]


async def test_what_a_frozen_server_carries_out_later_is_not_stored_twice(tmp_path: Path) -> None:
    """A call that was given up arrives all the same, once the server goes on."""
    with start_redis(fsync="no") as server:
        records = await RedisRecords.open(server.url, policy=ConnectionPolicy(call_timeout=0.3))
        folder = await DiskFolder.open(tmp_path)
        async with Engine(records, chance=Random(), folder=folder) as engine:
            journal = engine.sessions.journal
            assert journal is not None
            running = asyncio.create_task(journal.run())
            await talk(engine, ANN, "s", "one", "1", journaled=True)
            server.freeze()
            turn = await begin(engine, ANN, "s", "two", journaled=True)
            done = await engine.sessions.finish_turn(turn, closing("2"))
            server.thaw()
            async with asyncio.timeout(LONG):
                while not await journal.replay():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            running.cancel()
        await folder.close()
        await records.close()
        patient = Engine(await RedisRecords.open(server.url), chance=Random())
        log = await texts(patient, ANN, "s")
        await patient.close()

    assert done.journaled
    assert log == ["one", "1", "two", "2"]
