"""Memories on every backend: what one process remembers, every process finds, once, and no other owner."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tenuto.model import Scope
from tenuto.model.memory import Memory, MemoryKind
from tenuto.ports import Store
from tenuto.recall.unread_marks import ReadThrough, claim_marks, is_claimed, set_mark
from tests.clock import FakeClock
from tests.letter_memories import LetterEmbedder, memories_over, memory_texts, search_texts
from tests.samples import ANN, ANN_ELSEWHERE, BOB, EVE, SENT_AT

pytestmark = pytest.mark.requirement("T10", "A27")


BOLOGNA = "I live in Bologna with my two cats"
PEANUTS = "I am allergic to peanuts"
GROUP = Scope(tenant="acme", user="ann", channel="lark", chat="team")


async def test_what_one_process_remembers_another_finds_and_no_other_owner(store: Store) -> None:
    one, other = memories_over(store), memories_over(store)
    assert await search_texts(other, ANN, "Bologna") == []

    await one.add(ANN, BOLOGNA)
    await one.add(GROUP, "The team meets in Bologna on Mondays")
    await other.add(ANN, PEANUTS)

    assert [await search_texts(each, ANN, "Where in Bologna do I live?") for each in (one, other)] == [[BOLOGNA]] * 2
    assert await memory_texts(one, ANN) == await memory_texts(other, ANN) == {BOLOGNA, PEANUTS}
    for stranger in (BOB, EVE, ANN_ELSEWHERE):
        assert await memory_texts(other, stranger) == set()


async def test_forgotten_and_erased_memories_leave_every_process(store: Store, clock: FakeClock) -> None:
    """Also the copy of a process that has not heard of it, and one that knew a log of the same length."""
    one, other = memories_over(store, clock), memories_over(store, clock)
    peanuts = await one.add(ANN, PEANUTS)
    assert await memory_texts(other, ANN) == {PEANUTS}

    assert await one.forget(ANN, [peanuts.id]) == 1
    after_forgetting = await memory_texts(other, ANN)
    await one.add(ANN, BOLOGNA)
    await memory_texts(other, ANN)
    while (await store.upkeep.erase(ANN)).more:
        pass
    await memories_over(store, clock).add(ANN, "A new life")
    await memories_over(store, clock).add(ANN, "begins")
    await memories_over(store, clock).add(ANN, "today")

    assert after_forgetting == set()
    assert await memory_texts(other, ANN) == {"A new life", "begins", "today"}


@pytest.mark.requirement("D10")
async def test_two_processes_that_capture_the_same_turn_make_one_memory(store: Store) -> None:
    several = [memories_over(store) for _ in range(3)]
    captured = Memory(id="turn-1", kind=MemoryKind.FACT, text=BOLOGNA, said_at=SENT_AT, session_id="s", seqs=(1,))

    await asyncio.gather(*(each.remember(ANN, [captured]) for each in several for _ in range(3)))
    await asyncio.gather(*(each.add(ANN, f"Fact of process {n}") for n, each in enumerate(several)))

    for each in (*several, memories_over(store)):
        assert await memory_texts(each, ANN) == {BOLOGNA, *(f"Fact of process {n}" for n in range(3))}
    (stored,) = [one for one in await several[0].list(ANN) if one.text == BOLOGNA]
    assert (stored.session_id, stored.seqs) == ("s", (1,))


async def test_a_later_fact_takes_the_place_of_the_earlier_one_with_its_dates(store: Store, clock: FakeClock) -> None:
    memories = memories_over(store, clock)
    first = await memories.add(ANN, "I work at Acme", subject="employer")
    clock.advance(timedelta(days=30))
    again = await memories.add(ANN, "i work at acme.", subject="employer")
    second = await memories.add(ANN, "I work at Bolt", subject="employer")

    was, holds = await memories.get(ANN, first.id), await memories.get(ANN, second.id)

    assert (again.id, again.mentions) == (first.id, 2)
    assert (was.valid_until, was.superseded_by) == (clock(), second.id)
    assert (holds.valid_until, holds.superseded_by) == (None, "")
    assert await memory_texts(memories, ANN) == {"I work at Bolt"}
    assert {one.text for one in await memories_over(store, clock).list(ANN, superseded=True)} == {
        "I work at Acme",
        "I work at Bolt",
    }


async def test_vectors_of_two_embedders_never_mix_and_missing_ones_are_added(store: Store, clock: FakeClock) -> None:
    away = LetterEmbedder(away=True)
    first = memories_over(store, clock, away)
    await first.add(ANN, PEANUTS)
    by_words = await search_texts(first, ANN, "peanuts")
    away.away = False
    clock.advance(timedelta(minutes=1))
    await memory_texts(first, ANN)
    await first.drain()
    assert away.asked == ["peanuts", PEANUTS] or away.asked == [PEANUTS]

    other = LetterEmbedder(name="other")
    second = memories_over(store, clock, other)
    await memory_texts(second, ANN)
    await second.drain()

    assert by_words == [PEANUTS]
    assert other.asked == [PEANUTS]
    assert await search_texts(second, ANN, "stun a pea") == [PEANUTS]


@pytest.mark.requirement("D13")
async def test_what_is_to_be_read_for_memories_is_known_to_every_process_and_claimed_by_one(store: Store) -> None:
    """A mark that is set while a session is read outlives the reading."""
    clock = FakeClock()
    one, other = memories_over(store, clock), memories_over(store, clock)
    await one.add(ANN, BOLOGNA)

    marked = (await one.change_marks(ANN, set_mark("s", clock(), isolated=False))).unread["s"]
    claims = await asyncio.gather(
        *(each.change_marks(ANN, claim_marks(["s"], f"{each}", clock())) for each in (one, other))
    )
    reader = claims[0].unread["s"].reader
    again = (await other.change_marks(ANN, set_mark("s", clock(), isolated=False))).unread["s"]
    await one.remember(ANN, [], {"s": ReadThrough(4, marked.number)})
    kept = await one.last_log(ANN)
    await other.remember(ANN, [], {"s": ReadThrough(6, again.number)})
    ends = await memories_over(store, clock).last_log(ANN)

    assert {claim.unread["s"].reader for claim in claims} == {reader}
    assert is_claimed(claims[0].unread["s"], "a third one", clock())
    assert not is_claimed(claims[0].unread["s"], "a third one", clock() + timedelta(hours=1))
    assert again.number > marked.number
    assert (kept.unread["s"].number, kept.captured) == (again.number, {"s": 4})
    assert (ends.unread, ends.captured) == ({}, {"s": 6})
    assert await memory_texts(other, ANN) == {BOLOGNA}
