"""The law of search: it finds what a plain scan with the same terms finds, whatever came before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tenuto.errors import SearchOff, SessionNotFound
from tenuto.model import (
    Changes,
    ForkRequest,
    NewSession,
    Page,
    Retention,
    Rewrite,
    Scope,
    SearchQuery,
    SessionQuery,
    Truncation,
    text_part,
)
from tenuto.model.scope import session_key, site_scope
from tenuto.ports import Store
from tenuto.recall.lexical import terms
from tenuto.stores.engine import Engine, changes
from tenuto.stores.engine.rules import words
from tenuto.stores.engine.searching import count_groups, wanted_groups
from tenuto.stores.memory import InMemoryRecords
from tests.backends import engine_over
from tests.clock import FakeClock
from tests.samples import ANN, BOB, batch, fresh

Step: TypeAlias = Callable[[Store, FakeClock], Coroutine[Any, Any, object]]
OWNERS = {"a": ANN, "b": ANN, "c": BOB}
WORDS = ("kyoto", "hotels", "tea", "京都", "旅行", "京都旅行")
names = st.sampled_from(sorted(OWNERS))
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that indexing takes several steps, and messages are evicted."""
    monkeypatch.setattr(words, "_AT_ONCE", 3)
    monkeypatch.setattr(words, "_CHARACTERS_AT_ONCE", 40)
    monkeypatch.setattr(changes, "EVICTION_BATCH", 2)


def append(name: str, said: list[str]) -> Step:
    new = NewSession(retention=Retention(idle=timedelta(hours=1), max_messages=4))
    return lambda store, _: store.sessions.append(OWNERS[name], name, replace(batch(*said), create=new))


def rename(name: str, title: str) -> Step:
    return lambda store, _: store.sessions.patch(OWNERS[name], name, Changes(title=title))


def truncate(name: str, after: int) -> Step:
    return lambda store, _: store.sessions.truncate(OWNERS[name], name, Truncation(after=after))


def edit(name: str, text: str) -> Step:
    async def step(store: Store, _: FakeClock) -> None:
        page = await store.sessions.messages(OWNERS[name], name, Page(touch=False))
        some = tuple(replace(message, parts=(text_part(text),)) for message in page.messages[:1])
        await store.sessions.rewrite(OWNERS[name], name, Rewrite(messages=some))

    return step


def fork(name: str, at: int) -> Step:
    async def step(store: Store, _: FakeClock) -> None:
        new_id = fresh("fork")
        await store.sessions.fork(OWNERS[name], name, ForkRequest(new_id=new_id, at=at))

    return step


def reset(name: str) -> Step:
    return lambda store, _: store.sessions.reset(OWNERS[name], name)


def delete(name: str) -> Step:
    return lambda store, _: store.sessions.delete(OWNERS[name], name)


def erase(name: str) -> Step:
    return lambda store, _: store.upkeep.erase(OWNERS[name])


def search(name: str, text: str) -> Step:
    return lambda store, _: store.sessions.search(OWNERS[name], SearchQuery(text=text))


def switch(*, searchable: bool) -> Step:
    async def step(store: Store, _: FakeClock) -> None:
        assert isinstance(store, Engine)
        store.sessions.context.searchable = searchable

    return step


def wait(minutes: int) -> Step:
    async def step(store: Store, clock: FakeClock) -> None:
        clock.advance(timedelta(minutes=minutes))
        await store.upkeep.index_words()
        await store.upkeep.sweep()

    return step


steps = st.one_of(
    *[st.builds(append, names, st.lists(texts, min_size=1, max_size=5))] * 3,
    st.builds(rename, names, texts),
    st.builds(truncate, names, st.integers(0, 8)),
    st.builds(edit, names, texts),
    st.builds(fork, names, st.integers(0, 8)),
    st.builds(search, names, texts),
    st.builds(wait, st.sampled_from((1, 30))),
    st.builds(reset, names),
    st.builds(delete, names),
    st.builds(erase, names),
    st.builds(switch, searchable=st.booleans()),
)


async def scan(store: Store, scope: Scope, text: str) -> set[str]:
    """The sessions that have all terms, by looking at everything."""
    found = set[str]()
    wanted = wanted_groups(text)
    for session in (await store.sessions.list(scope, SessionQuery())).sessions:
        page = await store.sessions.messages(scope, session.id, Page(limit=500, touch=False))
        said = [session.title, *[message.text for message in page.messages]]
        if count_groups(wanted, {term for one in said for term in terms(one, singles=True)}) == len(wanted):
            found.add(session.id)
    return found


def words_of(records: InMemoryRecords, key: bytes) -> set[bytes]:
    return records.table._rows[key].words


@settings(max_examples=150)
@given(st.lists(steps, min_size=4, max_size=16), texts, st.booleans())
def test_a_search_finds_what_a_plain_scan_finds(history: list[Step], text: str, always_indexed: bool) -> None:
    async def tell() -> None:
        clock, records = FakeClock(), InMemoryRecords()
        async with engine_over(records, clock, seals=True) as store:
            for step in history:
                with suppress(SessionNotFound, SearchOff):
                    await step(store, clock)
                if always_indexed and store.sessions.context.searchable:
                    await store.sessions.search(site_scope(ANN), SearchQuery(text=WORDS[0]))
            was_switched = any(one.__qualname__.startswith("switch.") for one in history)
            if was_switched:
                store.sessions.context.searchable = True
                await store.upkeep.index_all()
            for scope in (ANN, BOB, site_scope(ANN)):
                for asked in (text, *WORDS):
                    page = await store.sessions.search(scope, SearchQuery(text=asked, limit=100))
                    assert {one.session.id for one in page.found} == await scan(store, scope, asked)
                    assert page.unsearched == 0
            await check_words(store, records)

    asyncio.run(tell())


async def check_words(store: Engine, records: InMemoryRecords) -> None:
    """By which digests a session is found: those of its own words and no others."""
    for session in (await store.sessions.list(site_scope(ANN), SessionQuery())).sessions:
        page = await store.sessions.messages(session.scope, session.id, Page(limit=500, touch=False))
        said = [session.title, *[message.text for message in page.messages]]
        wanted = {term for one in said for term in terms(one, singles=True)}
        assert len(words_of(records, session_key(session.scope, session.id))) == len(wanted)
