"""A person with many memories: the copy of them is built in a thread, and follows what is said."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from tenuto.model import Scope
from tenuto.model.memory import Memory, MemoryKind, MemoryQuery
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.letter_memories import LetterEmbedder, memories_over, search_texts
from tests.samples import ANN, BOB


async def linked(scope: Scope) -> Sequence[Scope]:
    return (ANN, BOB) if scope == ANN else (BOB, ANN)


async def test_many_memories_of_two_identities_are_searched_and_followed() -> None:
    clock = FakeClock()
    memories = memories_over(MemoryStore(clock=clock), clock, LetterEmbedder(), owners_of=linked)
    for scope in (ANN, BOB):
        many = [
            Memory(id=f"{scope.user}{n}", kind=MemoryKind.FACT, text=f"{scope.user} has boat {n}", said_at=clock())
            for n in range(300)
        ]
        await memories.remember(scope, many)

    before = await search_texts(memories, ANN, "bob boat 7")
    clock.advance(timedelta(days=1))
    said = await memories.add(BOB, "I am allergic to peanuts")
    found = [await search_texts(memories, scope, "peanuts") for scope in (ANN, BOB)]
    await memories.forget(ANN, [said.id])

    assert before[0] == "bob has boat 7"
    assert [texts[0] for texts in found] == ["I am allergic to peanuts"] * 2
    assert "I am allergic to peanuts" not in await search_texts(memories, ANN, "peanuts")
    assert len(await memories.list(ANN, limit=500)) == 500


async def test_what_is_embedded_later_is_found_by_its_meaning_at_the_other_door_too() -> None:
    clock = FakeClock()
    memories = memories_over(MemoryStore(clock=clock), clock, LetterEmbedder(), owners_of=linked)
    embedder, memories.vectors.embedder = memories.vectors.embedder, None
    for scope in (ANN, BOB):
        await memories.add(scope, f"{scope.user} has a boat")
    await search_texts(memories, ANN, "boat")
    memories.vectors.embedder = embedder
    for scope in (ANN, BOB):
        await memories.index_missing(scope)

    assert not (await memories.search(ANN, MemoryQuery(text="boat"))).degraded


async def test_one_memory_is_shown_as_in_the_list_of_the_person() -> None:
    """Who said it, and whether another identity has said something in its place."""
    clock = FakeClock()
    memories = memories_over(MemoryStore(clock=clock), clock, owners_of=linked)
    alone = await memories.add(ANN, "I live in Rome", subject="home")
    clock.advance(timedelta(days=1))
    later = await memories.add(BOB, "I live in Oslo", subject="home")
    edited = await memories.edit(BOB, alone.id, text="I live in Roma")
    listed = {one.id: one for one in await memories.list(BOB, superseded=True)}

    assert edited == await memories.get(ANN, alone.id) == listed[alone.id]
    assert (edited.identity, edited.superseded_by) == (ANN.user, later.id)
    assert await memories.get(ANN, later.id) == listed[later.id]
