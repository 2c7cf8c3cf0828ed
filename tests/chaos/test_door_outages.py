"""The store dies behind the HTTP door: who needs no memory goes on answering, for as long as it takes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest

from tenuto.stores.redis import _node
from tests.journeys.door import Door, code, served
from tests.servers import PostgresServer, RedisServer, start_postgres, start_redis

QUESTION = {"npc_id": "ancestor_yan", "query": "严氏家训有哪些？", "session_id": "visit-1"}
TALK = {"assistant": "npc", "persona": "ancestor_yan", "message": "严氏家训有哪些？", "session_id": "visit-1"}
# More than the seconds that a door trusts what it saw, so that each call would look again.
APART = 3.0
CALLS = 12


@pytest.fixture(autouse=True)
def tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is gone is tried again after a second at the most; here that would be half a minute in all."""
    monkeypatch.setattr(_node, "_LONGEST_PAUSE", 0.02)


@pytest.fixture(params=["valkey", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer | PostgresServer]:
    """A server of this test's own, to be killed."""
    with start_redis(fsync="no") if request.param == "valkey" else start_postgres() as own:
        yield own


@asynccontextmanager
async def _door(server: RedisServer | PostgresServer, *, locked: bool = False) -> AsyncIterator[Door]:
    url = server.url if isinstance(server, RedisServer) else server.app_url
    async with served(store=url, locked=locked) as door:
        yield door


async def _asked(door: Door, headers: dict[str, str]) -> list[httpx.Response]:
    """Many questions in both shapes, with time between them."""
    answers: list[httpx.Response] = []
    for _ in range(CALLS // 2):
        door.ticks.now += APART
        answers.append(await door.http.post("/v1/npc/chat", headers=headers, json=QUESTION))
        door.ticks.now += APART
        answers.append(await door.http.post("/v1/chat", headers=headers, json=TALK))
    return answers


async def test_a_character_answers_on_while_the_store_of_an_open_door_is_dead(
    server: RedisServer | PostgresServer,
) -> None:
    """C13, promise 8: without memory, and it says so; what needs the store is refused."""
    async with _door(server) as door:
        before = await door.http.post("/v1/npc/chat", json=QUESTION)

        server.kill()
        answers = await _asked(door, {})
        refused = await door.http.get("/v1/sessions")

        assert (before.status_code, before.json()["degraded"]) == (200, [])
        assert [answer.status_code for answer in answers] == [200] * CALLS
        assert all("store" in answer.json()["degraded"] for answer in answers)
        assert all(answer.json()["trace_id"] is None for answer in answers)
        assert code(refused) == (503, "unavailable")


async def test_a_key_seen_lately_reaches_characters_while_the_store_is_dead(
    server: RedisServer | PostgresServer,
) -> None:
    """C13: a key nobody could look up is told to come back, not let in and not called wrong."""
    async with _door(server, locked=True) as door:
        known, unknown = await door.key(), await door.key()
        await door.http.post("/v1/npc/chat", headers=known, json=QUESTION)

        server.kill()
        answers = await _asked(door, known)
        stranger = await door.http.post("/v1/npc/chat", headers=unknown, json=QUESTION)
        nobody = await door.http.post("/v1/npc/chat", json=QUESTION)

        assert [answer.status_code for answer in answers] == [200] * CALLS
        assert code(stranger) == (503, "unavailable")
        assert code(nobody) == (401, "invalid_credential")
