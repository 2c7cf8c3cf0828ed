"""What a search asks for, and what it shows of a message."""

from __future__ import annotations

from asyncio import Future, create_task, get_running_loop, sleep
from collections.abc import Sequence
from datetime import timedelta
from random import Random

import pytest

from tenuto.errors import StoreReadOnly
from tenuto.model import Changes, NewSession, Scope, SearchQuery, Status
from tenuto.model.scope import site_key
from tenuto.model.stored import RecordChange, Refused
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.recall import lexical
from tenuto.recall.lexical import find_terms
from tenuto.stores.engine import Engine, PlainCodecs, searching
from tenuto.stores.engine.codec import PLAIN
from tenuto.stores.engine.resealing import Resealer
from tenuto.stores.engine.sealing import SealedCodecs
from tenuto.stores.engine.searching import count_groups, wanted_groups
from tenuto.stores.engine.state import EngineState
from tenuto.stores.memory import InMemoryRecords
from tests.backends import RING
from tests.clock import FakeClock
from tests.samples import ANN, batch
from tests.store_copies import copy_store


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("Hotels in Kyoto, hotels", [["hotel"], ["kyoto"]]),
        ("京都", [["京都"]]),
        ("京都酒店", [["京都"], ["酒店"]]),
        ("京都老酒店", [["京都"], ["都老", "老酒"], ["酒店"]]),
        ("京都的酒店 tea", [["京都"], ["酒店"], ["tea"]]),
        ("盐是什么", [["盐"]]),
        ("what is the", []),
    ],
)
def test_words_of_a_query(text: str, groups: list[list[str]]) -> None:
    assert set(wanted_groups(text)) == {frozenset(group) for group in groups}


def test_each_character_of_a_run_counts_with_a_neighbour() -> None:
    wanted = wanted_groups("京都老酒店")

    assert count_groups(wanted, {"京都", "老酒", "酒店"}) == len(wanted)
    assert count_groups(wanted, {"京都", "酒店"}) < len(wanted)


@pytest.mark.parametrize(
    ("text", "terms", "found"),
    [
        ("The Hotels' garden, hotel", {"hotel"}, ["Hotels", "hotel"]),
        ("去京都住酒店", {"京都", "酒店"}, ["京都", "酒店"]),
        ("Ｋｙｏｔｏ!", {"kyoto"}, ["Ｋｙｏｔｏ"]),
        ("nothing", {"else"}, []),
    ],
)
def test_terms_are_found_where_they_stand(text: str, terms: set[str], found: list[str]) -> None:
    assert [text[start:end] for start, end in find_terms(text, terms)] == found


async def say(store: Engine, session_id: str, *texts: str) -> None:
    await store.sessions.append(ANN, session_id, batch(*texts, create=NewSession(title=session_id)))


async def test_other_calls_have_their_turn_while_long_messages_are_indexed_and_looked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    longest = texts = 0
    terms = lexical.terms

    def count_terms(text: str, *, singles: bool = False) -> list[str]:
        nonlocal longest, texts
        texts += len(text)
        longest = max(longest, texts)
        return terms(text, singles=singles)

    async def take_turns() -> None:
        nonlocal texts
        while True:
            texts = 0
            await sleep(0)

    store = Engine(InMemoryRecords(), clock=FakeClock(), chance=Random(1))
    await say(store, "s", "the rare tea", *["京都的酒店" * 1_000] * 60)
    monkeypatch.setattr(lexical, "terms", count_terms)
    others = create_task(take_turns())
    (found,) = (await store.sessions.search(ANN, SearchQuery(text="rare tea"))).found
    others.cancel()

    assert found.matches[0].seq == 1
    assert longest <= 60_000


async def found(store: Engine, text: str, scope: Scope = ANN) -> list[str]:
    page = await store.sessions.search(scope, SearchQuery(text=text))
    assert page.unsearched == 0
    return [one.session.id for one in page.found]


async def test_what_was_copied_is_found_in_the_target(fake_clock: FakeClock) -> None:
    source, target = (Engine(InMemoryRecords(), clock=fake_clock, chance=Random(n)) for n in (1, 2))
    await say(source, "trip", "a hotel in Kyoto")
    assert await found(source, "hotels") == ["trip"]

    await copy_store(source, target, fake_clock)

    assert await found(target, "hotels") == ["trip"]
    await say(target, "trip", "and a garden")
    assert await found(target, "gardens") == ["trip"]


async def test_sessions_are_found_before_and_after_encryption_is_switched(fake_clock: FakeClock) -> None:
    records = InMemoryRecords()
    state = EngineState(records, PlainCodecs(), Random(9))

    def codecs(*, sealing: bool) -> SealedCodecs:
        ciphers = TenantCiphers(store=state, ring=RING, clock=fake_clock)
        return SealedCodecs(ciphers, clock=fake_clock, sealing=sealing)

    def engine(*, sealing: bool) -> Engine:
        return Engine(records, clock=fake_clock, chance=Random(3), codecs=codecs(sealing=sealing))

    await say(engine(sealing=False), "trip", "a hotel in Kyoto")
    assert await found(engine(sealing=False), "kyoto hotels") == ["trip"]
    await say(engine(sealing=True), "trip", "and a garden")
    await say(engine(sealing=True), "tea", "a garden")
    assert await found(engine(sealing=True), "hotel gardens") == ["trip"]
    plain = set(PLAIN.digest_terms(("trip", "hotel", "kyoto", "garden", "tea"), site_key(ANN)))

    for sealing in (True, False):
        await Resealer(records, state=state, codecs=codecs(sealing=sealing)).run()
        assert await found(engine(sealing=sealing), "hotel gardens") == ["trip"]
        assert sorted(await found(engine(sealing=sealing), "garden")) == ["tea", "trip"]
        stored = {word for row in records.table._rows.values() for word in row.words}
        assert len(stored) == len(plain)
        assert stored.isdisjoint(plain) if sealing else stored == plain


class Full(InMemoryRecords):
    """A store that takes sessions and no words."""

    def commit(self, changes: Sequence[RecordChange]) -> Future[Refused | None]:
        if not any(change.words is not None and change.if_revision for change in changes):
            return super().commit(changes)
        refused: Future[Refused | None] = get_running_loop().create_future()
        refused.set_exception(StoreReadOnly())
        return refused


async def test_a_store_that_takes_no_words_is_searched_all_the_same(fake_clock: FakeClock) -> None:
    store = Engine(Full(), clock=fake_clock, chance=Random(1))
    await say(store, "trip", "a hotel in Kyoto")
    await say(store, "tea", "a garden")

    assert await found(store, "kyoto hotels") == ["trip"]
    assert await found(store, "garden trip") == []
    archived = SearchQuery(text="garden", status=Status.ARCHIVED)
    assert (await store.sessions.search(ANN, archived)).found == ()


async def test_a_search_says_how_many_sessions_it_left_out(
    fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "_MOST_INDEXED", 2)
    store = Engine(InMemoryRecords(), clock=fake_clock, chance=Random(1))
    for n in range(3):
        fake_clock.advance(timedelta(seconds=1))
        await say(store, f"s{n}", "tea")

    pages = [await store.sessions.search(ANN, SearchQuery(text="tea")) for _ in range(2)]

    assert [(len(page.found), page.unsearched) for page in pages] == [(2, 1), (3, 0)]


async def test_another_process_finds_what_one_wrote_and_was_killed(fake_clock: FakeClock) -> None:
    records = InMemoryRecords()
    await say(Engine(records, clock=fake_clock, chance=Random(1)), "trip", "a hotel")
    other = Engine(records, clock=fake_clock, chance=Random(2))

    assert await found(other, "hotel") == ["trip"]

    await other.sessions.patch(ANN, "trip", Changes(title="tea"))
    assert (await found(other, "trip"), await found(other, "tea hotel")) == ([], ["trip"])
