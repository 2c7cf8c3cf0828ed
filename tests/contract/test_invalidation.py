"""What one process rewrites or erases, another one's L1 does not show any more."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from tenuto.errors import SessionNotFound, TenutoError
from tenuto.model import Changes, Page, Rewrite, Truncation, text_part
from tenuto.stores.engine import Engine
from tenuto.stores.factory import open_records
from tests.backends import engine_over
from tests.samples import ANN, batch, talk, texts
from tests.shared_stores import SHARED, SharedStore
from tests.timeouts import LONG


@pytest.fixture(params=SHARED, ids=lambda shared: shared.name)
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Engine, Engine]]:
    """Two engines on one store, each over a connection of its own, as two processes have them."""
    assert isinstance(request.param, SharedStore)
    url = request.param.url(request.getfixturevalue, tmp_path)
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(engine_over(await open_records(url))) for _ in range(2)]
        yield engines[0], engines[1]


async def warmed(engine: Engine, session_id: str) -> None:
    """Read until the cache answers by itself: else nothing old could be shown, and the test would show nothing."""
    hits = engine.cache.hits
    async with asyncio.timeout(LONG):
        while engine.cache.hits == hits:
            assert "secret" in await texts(engine, ANN, session_id)
            await asyncio.sleep(0.02)


async def settled(store: Engine, session_id: str, wanted: list[str]) -> None:
    """Read until a session says what it should, or nothing where there is none, once the news are there.

    Redis sends them right behind the writer's answer, on another connection.
    """
    async with asyncio.timeout(LONG):
        while await said(store, session_id) != wanted:  # noqa: ASYNC110 (nobody tells a cache's reader)
            await asyncio.sleep(0.02)


async def said(store: Engine, session_id: str) -> list[str]:
    try:
        return await texts(store, ANN, session_id)
    except SessionNotFound:
        return []


async def test_a_rewriting_is_heard(pair: tuple[Engine, Engine]) -> None:
    here, there = pair
    await talk(here, ANN, "s", "secret", "ok")
    await warmed(there, "s")
    log = (await here.sessions.messages(ANN, "s", Page())).messages

    await here.sessions.rewrite(ANN, "s", Rewrite(messages=(replace(log[0], parts=(text_part("-"),)),)))

    await settled(there, "s", ["-", "ok"])
    # A turn there builds on the new words as well.
    await talk(there, ANN, "s", "next", "fine")
    await settled(here, "s", ["-", "ok", "next", "fine"])


async def test_a_change_behind_our_own_turn_is_heard(pair: tuple[Engine, Engine]) -> None:
    """What our own calls left in the cache is served as long as no other process changes the session."""
    here, there = pair
    for number in range(5):
        await talk(here, ANN, "s", "secret", f"{number}")
        await warmed(here, "s")
        await there.sessions.append(ANN, "s", batch(f"elsewhere {number}"))

        await settled(here, "s", await texts(there, ANN, "s"))
        assert (await texts(here, ANN, "s"))[-1] == f"elsewhere {number}"


async def _changes(store: Engine, luck: random.Random) -> None:
    """One change of the session or a read of it; one in ten is given up."""
    steps: list[Callable[[], Awaitable[object]]] = [
        lambda: talk(store, ANN, "s", "q", "a"),
        lambda: store.sessions.append(ANN, "s", batch("note")),
        lambda: store.sessions.patch(ANN, "s", Changes(title=str(luck.random()))),
        lambda: store.sessions.truncate(ANN, "s", Truncation(after=5)),
        lambda: store.sessions.messages(ANN, "s", Page(limit=10)),
    ]
    patience = luck.random() / 1000 if luck.random() < 0.1 else LONG
    with suppress(TenutoError, TimeoutError):
        async with asyncio.timeout(patience):
            await luck.choices(steps, weights=[8, 4, 4, 1, 3])[0]()


async def _is_outdated(engine: Engine) -> bool:
    """Whether a read says other than what stands in the store."""
    page = Page(limit=10)
    shown = await engine.sessions.messages(ANN, "s", page)
    engine.sessions.serves_reads = False
    stored = await engine.sessions.messages(ANN, "s", page)
    engine.sessions.serves_reads = True
    return shown != stored


async def test_caches_come_to_agree_with_the_store(pair: tuple[Engine, Engine]) -> None:
    """Whatever both processes do at once: no cache serves what is out of date from then on."""
    luck = random.Random(4)
    await talk(pair[0], ANN, "s", "q", "a")
    for number in range(40):
        await asyncio.gather(*[_changes(engine, luck) for engine in (*pair, pair[number % 2])])
        async with asyncio.timeout(LONG):
            for engine in pair:
                while await _is_outdated(engine):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


async def test_an_erasure_is_heard(pair: tuple[Engine, Engine]) -> None:
    here, there = pair
    for n in range(3):
        await here.sessions.append(ANN, f"s{n}", batch("secret"))
        await warmed(there, f"s{n}")

    await here.upkeep.erase(ANN)

    for n in range(3):
        await settled(there, f"s{n}", [])
