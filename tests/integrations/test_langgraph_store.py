"""LangGraph's store over tenuto's state: namespaces, filters, search by meaning, times to live, and whose it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp, SearchOp

import tenuto
from tenuto.app import Tenuto
from tenuto.errors import Invalid, InvalidJson
from tenuto.integrations.langgraph import TenutoStore
from tenuto.integrations.langgraph.items import is_within, namespace_key, read_key, state_key
from tests.clock import FakeClock

TEXTS = st.text(st.sampled_from("a\x1b\x1d\x1e\x1f012é"), min_size=1, max_size=3)
LABELS = st.lists(TEXTS, min_size=1, max_size=3)


class Letters(Embeddings):
    """A vector of how often each letter occurs."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[float(text.count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Tenuto]:
    async with tenuto.open(f"sqlite:///{tmp_path}/lg.db") as opened:
        yield opened


@pytest.mark.requirement("T18")
@settings(max_examples=40)
@given(LABELS, LABELS, TEXTS)
def test_keys_keep_namespaces_apart(one: list[str], other: list[str], name: str) -> None:
    """No label or key can leave its namespace, and a prefix finds exactly what is inside."""
    key = state_key(tuple(one), name)

    assert read_key(key) == (tuple(one), name)
    assert is_within(key, namespace_key(tuple(other))) is (one[: len(other)] == other)


async def test_items_are_found_by_key_prefix_filter_and_meaning(app: Tenuto) -> None:
    store = TenutoStore(app, user="ann", index={"dims": 26, "embed": Letters(), "fields": ["text"]})
    goods: dict[str, Any] = {
        "tea": {"text": "green tea", "price": 4, "maker": {"land": "cn"}},
        "tee": {"text": "t-shirt", "price": 20, "maker": {"land": "pt"}},
        "jam": {"text": "plum jam", "price": 4.5},
    }
    for name, value in goods.items():
        await store.aput(("shop", "goods"), name, value)
    await store.aput(("shop", "goods", "old"), "pot", {"text": "a pot", "price": 9}, index=False)
    await store.aput(("shop2",), "pot", {"price": 1})

    async def found(**query: Any) -> list[str]:
        return [item.key for item in await store.asearch(("shop",), **query)]

    assert await found() == ["pot", "jam", "tee", "tea"]
    assert await found(limit=2, offset=1) == ["jam", "tee"]
    assert await found(filter={"price": {"$gte": 4, "$lt": 9}}) == ["jam", "tea"]
    assert await found(filter={"maker": {"land": "cn"}}) == ["tea"]
    assert await found(filter={"maker.land": {"$ne": "cn"}, "price": 20}) == ["tee"]
    assert await found(query="jumpal m", limit=1) == ["jam"]
    assert (await found(query="tea green"))[0] == "tea"
    assert (await found(query="x"))[-1] == "pot"
    assert await store.alist_namespaces(prefix=("shop",)) == [("shop", "goods"), ("shop", "goods", "old")]
    assert await store.alist_namespaces(suffix=("*", "old"), max_depth=1) == [("shop",)]
    first = await store.aget(("shop", "goods"), "tea")
    await store.aput(("shop", "goods"), "tea", {"text": "black tea"})
    second = await store.aget(("shop", "goods"), "tea")
    assert first is not None
    assert second is not None
    assert (second.value, second.created_at) == ({"text": "black tea"}, first.created_at)
    await store.adelete(("shop", "goods"), "tea")
    assert await store.aget(("shop", "goods"), "tea") is None
    with pytest.raises(InvalidNamespaceError):
        await store.abatch([PutOp(("ok",), "k", {}), PutOp(("a.b",), "k", {})])
    read, _, listed = await store.abatch([GetOp(("ok",), "k"), PutOp(("ok",), "k", {"a": 1}), SearchOp(("ok",))])
    assert (read, listed) == (None, [])


async def test_items_expire_unless_they_are_read(app: Tenuto, fake_clock: FakeClock) -> None:
    store = TenutoStore(app, user="ann", ttl={"default_ttl": 10}, clock=fake_clock)
    for name, ttl in (("short", 1.0), ("usual", 10.0), ("read", 10.0), ("ever", None)):
        await store.aput(("n",), name, {"name": name}, ttl=ttl)

    fake_clock.advance(timedelta(minutes=6))
    assert await store.aget(("n",), "short") is None
    assert await store.aget(("n",), "read") is not None
    fake_clock.advance(timedelta(minutes=6))

    assert {item.key for item in await store.asearch(("n",), refresh_ttl=False)} == {"read", "ever"}
    assert await store.asweep_ttl() == 2
    fake_clock.advance(timedelta(minutes=11))
    assert await store.asweep_ttl() == 1
    assert await store.alist_namespaces() == [("n",)]


async def test_searches_and_sweeps_spare_what_was_put_meanwhile(
    app: Tenuto, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer puts an item between the page that a scan has read and what follows from it."""
    store, other = (TenutoStore(app, user="ann", clock=fake_clock) for _ in range(2))
    scan = store._scan

    async def overtaken(prefix: Any) -> AsyncIterator[Any]:
        async for found in scan(prefix):
            await other.aput(("n",), "k", {"by": "other"}, ttl=5)
            yield found

    monkeypatch.setattr(store, "_scan", overtaken)
    for pause in (0, 2):
        await store.aput(("n",), "k", {"by": "me"}, ttl=1)
        fake_clock.advance(timedelta(minutes=pause))
        await (store.asweep_ttl() if pause else store.asearch(("n",)))

        left = await other.aget(("n",), "k")
        assert left is not None
        assert left.value == {"by": "other"}


@pytest.mark.requirement("T1")
async def test_items_belong_to_their_user_and_pass_the_privacy_policy(app: Tenuto) -> None:
    """Another user or tenant sees none; private data is redacted as in memories; an erasure leaves nothing."""
    ann, bob = TenutoStore(app, user="ann"), TenutoStore(app, user="bob")
    other = TenutoStore(app, user="ann", tenant="other")
    for store in (ann, bob):
        await store.aput(("facts",), "mail", {"text": "write to ann.lee@example.com"})

    kept = await ann.aget(("facts",), "mail")
    assert kept is not None
    assert kept.value == {"text": "write to [REDACTED_EMAIL]"}
    assert await other.asearch(()) == []
    await app.privacy.erase(ann.scope, by="test")
    assert await ann.asearch(()) == []
    assert len(await bob.asearch(())) == 1


async def test_writers_at_the_same_time_lose_nothing(app: Tenuto) -> None:
    store = TenutoStore(app, user="ann")

    await asyncio.gather(*(store.aput(("n",), f"{number}", {"number": number}) for number in range(64)))

    found = await store.asearch(("n",), limit=100)
    assert len(found) == 64
    # Callers at the same time share a batch: one that is refused or cancelled does not touch the others.
    puts: dict[str, Any] = {"refused": {"x": float("nan")}, "cancelled": {}, "1": {"again": 1}, "2": {"again": 2}}
    refused, cancelled, *rest = (asyncio.create_task(store.aput(("n",), *one)) for one in puts.items())
    await asyncio.sleep(0)
    cancelled.cancel()
    ended = await asyncio.gather(refused, cancelled, *rest, return_exceptions=True)
    assert [type(one) for one in ended] == [InvalidJson, asyncio.CancelledError, type(None), type(None)]
    first, second = [await store.aget(("n",), key) for key in ("1", "2")]
    assert first is not None
    assert second is not None
    assert (first.value, second.value) == ({"again": 1}, {"again": 2})
    assert first.created_at == next(item.created_at for item in found if item.key == "1")


def test_a_program_without_an_event_loop_has_the_blocking_methods(tmp_path: Path) -> None:
    store = TenutoStore(tmp_path / "lg.db", user="ann")
    with closing(store):
        store.put(("n",), "k", {"a": 1}, ttl=5)

        assert [item.value for item in store.search(("n",))] == [{"a": 1}]
        assert store.sweep_ttl() == 0
    with pytest.raises(Invalid):
        store.get(("n",), "k")
