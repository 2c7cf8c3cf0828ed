"""What becomes of a memory that its owner edits."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tenuto.errors import Invalid, InvalidCursor, MemoryNotFound
from tenuto.model.memory import Memory, MemoryKind, MemoryPolicy, MemoryQuery, MemorySource
from tenuto.recall.cursors import next_cursor
from tenuto.recall.service import Memories
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.letter_memories import memories_over
from tests.samples import ANN

HOME = "I live in Bologna with my two cats."


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def memories(clock: FakeClock) -> Memories:
    return memories_over(MemoryStore(clock=clock), clock, policy=MemoryPolicy(episode_life=timedelta(days=1)))


def quoted(clock: FakeClock, kind: MemoryKind = MemoryKind.FACT) -> Memory:
    source = MemorySource.QUOTE
    return Memory(id="q", kind=kind, text=HOME, said_at=clock(), source=source, session_id="s", seqs=(1,))


async def test_an_edited_text_is_no_quotation_any_more(memories: Memories, clock: FakeClock) -> None:
    await memories.remember(ANN, (quoted(clock),))

    same = await memories.edit(ANN, "q", text=HOME)
    edited = await memories.edit(ANN, "q", text="I live in Ferrara.")

    assert same.source is MemorySource.QUOTE
    assert (edited.source, edited.session_id, edited.seqs) == (MemorySource.WRITTEN, "s", (1,))


async def test_another_kind_has_its_own_expiry(memories: Memories, clock: FakeClock) -> None:
    (episode,) = await memories.remember(ANN, (quoted(clock, MemoryKind.EPISODE),))

    fact = await memories.edit(ANN, "q", kind=MemoryKind.FACT)

    assert (episode.expires_at, fact.expires_at) == (clock() + timedelta(days=1), None)


async def test_an_expired_memory_cannot_be_edited(memories: Memories, clock: FakeClock) -> None:
    await memories.remember(ANN, (quoted(clock, MemoryKind.EPISODE),))
    clock.advance(timedelta(days=2))

    with pytest.raises(MemoryNotFound):
        await memories.edit(ANN, "q", kind=MemoryKind.FACT)


async def test_a_listing_goes_on_where_it_ended_whatever_is_forgotten_meanwhile(
    memories: Memories, clock: FakeClock
) -> None:
    for number in ("one", "two", "three"):
        await memories.add(ANN, f"I have {number} red boats in Genoa harbour, number {number}.")
        clock.advance(timedelta(minutes=1))
    newest = await memories.list(ANN, limit=1)
    cursor = next_cursor(newest, 1)
    await memories.forget(ANN, [newest[0].id])
    await memories.add(ANN, "I sold the newest boat.")

    rest = await memories.list(ANN, limit=5, cursor=cursor)

    assert [memory.text.split()[2] for memory in rest] == ["two", "one"]
    assert next_cursor(rest, 5) is None


@pytest.mark.parametrize("cursor", ["", "x", "bm9wZQ==", "MjAyNi0wMS0wMSB4", "☃"])
async def test_a_cursor_of_elsewhere_is_refused(memories: Memories, cursor: str) -> None:
    with pytest.raises(InvalidCursor):
        await memories.list(ANN, cursor=cursor)


async def test_a_query_bounds_instants_with_a_time_zone(clock: FakeClock) -> None:
    with pytest.raises(Invalid, match="since"):
        MemoryQuery(text="x", since=clock().replace(tzinfo=None))
