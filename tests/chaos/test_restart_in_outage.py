"""A process ends in the middle of an outage, and the next one begins before the store is back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from tenuto.app import Tenuto, open_app
from tenuto.errors import StoreUnavailable, Unavailable
from tenuto.model import Page
from tenuto.model.scope import SYSTEM
from tenuto.settings import Settings
from tenuto.stores.sealed_state import mark_sealed
from tests.internals import hears_news
from tests.samples import ANN
from tests.servers import PostgresServer, RedisServer
from tests.timeouts import LONG, wait_until

pytestmark = pytest.mark.usefixtures("tried_again_at_once", "trustful")

SAID = ["one", "1", "two", "2", "three", "3", "four", "4"]


def _settings(server: RedisServer | PostgresServer, folder: Path) -> Settings:
    url = server.url if isinstance(server, RedisServer) else server.app_url
    return Settings(store=url, journal=str(folder), breaker_reset=timedelta(milliseconds=20))


@asynccontextmanager
async def _opened(server: RedisServer | PostgresServer, folder: Path) -> AsyncIterator[Tenuto]:
    async with open_app(_settings(server, folder), run_upkeep=False) as app:
        yield app


async def _turn(app: Tenuto, words: str, reply: str, session_id: str | None = None) -> str:
    turn = await app.begin(ANN, words, session_id=session_id)
    await app.finish(turn, reply)
    return turn.session.id


async def _said(app: Tenuto, session_id: str) -> list[str]:
    page = await app.store.sessions.messages(ANN, session_id, Page(limit=100))
    return [message.text for message in page.messages]


async def _until_it_hears(app: Tenuto) -> None:
    """What is seen before the store's news can be heard is not trusted."""
    journal = app.stores.journal
    assert journal is not None
    await wait_until(lambda: hears_news(journal))


async def _until_all_is_there(app: Tenuto) -> None:
    assert app.stores.journal is not None
    async with asyncio.timeout(LONG):
        while app.stores.journal.status.waiting:
            await app.stores.journal.replay()
            await asyncio.sleep(0.02)


@pytest.mark.requirement("T7")
async def test_a_talk_goes_on_in_a_process_that_begins_during_the_outage(
    server: RedisServer | PostgresServer, tmp_path: Path
) -> None:
    """With everything that the journal knows of it, and in the store it is whole."""
    async with _opened(server, tmp_path) as app:
        await _until_it_hears(app)
        session_id = await _turn(app, "one", "1")
        server.kill()
        await _turn(app, "two", "2", session_id)

    async with _opened(server, tmp_path) as app:
        turn = await app.begin(ANN, "three", session_id=session_id)
        await app.finish(turn, "3")
        assert [message.text for message in turn.window] == SAID[:5]

        server.start()
        await _until_all_is_there(app)
        await _turn(app, "four", "4", session_id)
        assert await _said(app, session_id) == SAID

    async with _opened(server, tmp_path) as app:
        assert await _said(app, session_id) == SAID


async def test_without_waiting_turns_a_start_fails_as_ever(
    server: RedisServer | PostgresServer, tmp_path: Path
) -> None:
    """A wrong address must not look like an outage."""
    server.kill()

    with pytest.raises(StoreUnavailable):
        async with _opened(server, tmp_path):
            pass


async def test_what_an_opening_looks_at_is_looked_at_when_the_store_is_back(
    server: RedisServer | PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that turns out to hold sealed records is not written to without their key."""
    async with _opened(server, tmp_path) as app:
        await _until_it_hears(app)
        session_id = await _turn(app, "one", "1")
        await mark_sealed(app.stores.plain_state)
        server.kill()
        await _turn(app, "two", "2", session_id)

    caplog.set_level(logging.WARNING)
    async with _opened(server, tmp_path) as app:
        server.start()
        with pytest.raises(Unavailable, match="encrypted records"):
            async with asyncio.timeout(LONG):
                await _read(app)
        assert app.stores.journal is not None
        assert app.stores.journal.status.waiting == 1


async def _read(app: Tenuto) -> None:
    while True:
        try:
            await app.store.state.read_state(SYSTEM, "any", "key")
        except StoreUnavailable:
            await asyncio.sleep(0.02)
