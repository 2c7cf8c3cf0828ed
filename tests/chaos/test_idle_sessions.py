"""Quiet sessions of any length go on when the store dies, whatever titles and summaries were made of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import tenuto
from tenuto.chat import Reply
from tenuto.llm import ScriptedModel
from tests.internals import hears_news
from tests.samples import ANN
from tests.servers import PostgresServer, RedisServer
from tests.timeouts import wait_until

pytestmark = pytest.mark.usefixtures("tried_again_at_once", "trustful")

# Three summaries long: what follows them repeats.
LONGEST = 30


async def test_quiet_sessions_of_any_length_go_on_in_an_outage(
    server: RedisServer | PostgresServer, tmp_path: Path
) -> None:
    """Issue 15: those at turns 16, 22, 28 and so on were refused, since a summary had been appended to them."""
    url = server.url if isinstance(server, RedisServer) else server.app_url
    models = {"mine": ScriptedModel("An answer.")}
    async with tenuto.open(url, model="mine", models=models, journal=str(tmp_path)) as app:
        journal = app.stores.journal
        assert journal is not None
        await wait_until(lambda: hears_news(journal))

        async def talk(turns: int) -> str:
            session: str | None = None
            for _ in range(turns):
                session = (await app.ask(ANN, "A question?", session_id=session)).session_id
            assert session is not None
            return session

        sessions = await asyncio.gather(*(talk(turns) for turns in range(1, LONGEST + 1)))
        await app.upkeep.drain()
        server.kill()
        replies: list[Reply | BaseException] = await asyncio.gather(
            *(app.ask(ANN, "And now?", session_id=session) for session in sessions), return_exceptions=True
        )

    refused = [turns for turns, reply in enumerate(replies, 1) if isinstance(reply, BaseException)]
    assert refused == []
    assert all(isinstance(reply, Reply) and "journal" in reply.degraded for reply in replies)
