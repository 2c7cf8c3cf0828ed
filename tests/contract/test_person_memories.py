"""The memories of a person with several identities, on every backend: read as one, stored where each was said."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tenuto.access import People, PersonNews
from tenuto.errors import MemoryNotFound
from tenuto.model import Scope
from tenuto.model.memory import MemoryKind
from tenuto.model.values import JsonObject
from tenuto.ports import Store
from tenuto.recall.service import Memories
from tests.backends import KEEPING_STATE
from tests.clock import FakeClock
from tests.letter_memories import LetterEmbedder, memories_over, memory_texts, search_texts
from tests.samples import ANN, BOB

pytestmark = pytest.mark.parametrize("backend", KEEPING_STATE, ids=lambda backend: backend.name)
WEB, LARK = ANN, Scope(tenant="acme", user="ou_ann")
GROUP = Scope(tenant="acme", user="ou_ann", channel="lark", chat="team")
BOLOGNA, PEANUTS, MONDAYS = (
    "I live in Bologna with my two cats",
    "I am allergic to peanuts",
    "The team meets on Mondays",
)


async def note_nothing(scope: Scope, news: PersonNews, by: str, about: JsonObject) -> None:
    """No audit."""


@pytest.fixture
def people(store: Store, clock: FakeClock) -> People:
    return People(state=store.state, note=note_nothing, clock=clock, code_life=timedelta(minutes=10))


@pytest.fixture
def memories(store: Store, clock: FakeClock, people: People) -> Memories:
    return memories_over(store, clock, LetterEmbedder(), owners_of=people.scopes_of)


async def test_what_was_said_at_one_door_is_found_at_the_other_until_they_are_parted(
    memories: Memories, people: People
) -> None:
    await memories.add(WEB, BOLOGNA)
    await memories.add(LARK, PEANUTS)
    await memories.add(GROUP, MONDAYS)
    await people.link(WEB, "ou_ann", by="otto")
    await memories.add(WEB, "I play the cello", kind=MemoryKind.PREFERENCE)

    found = [await search_texts(memories, one, "peanuts") for one in (WEB, LARK)]
    preferences = [[one.text for one in await memories.preferences(scope)] for scope in (WEB, LARK)]
    said_by = {one.text: one.identity for one in await memories.list(WEB)}
    linked = [await memory_texts(memories, one) for one in (WEB, LARK, GROUP, BOB)]
    await people.unlink(LARK, by="otto")
    parted = [await memory_texts(memories, one) for one in (WEB, LARK, GROUP)]

    assert [texts[0] for texts in found] == [PEANUTS, PEANUTS]
    assert said_by == {BOLOGNA: "ann", PEANUTS: "ou_ann", "I play the cello": "ann"}
    assert preferences == [["I play the cello"]] * 2
    assert linked == [{BOLOGNA, PEANUTS, "I play the cello"}] * 2 + [{MONDAYS}, set()]
    assert parted == [{BOLOGNA, "I play the cello"}, {PEANUTS}, {MONDAYS}]


async def test_a_person_edits_and_forgets_what_was_said_at_another_door(memories: Memories, people: People) -> None:
    bologna, peanuts = await memories.add(WEB, BOLOGNA), await memories.add(LARK, PEANUTS)
    await people.link(WEB, "ou_ann", by="otto")

    read = await memories.get(WEB, peanuts.id)
    await memories.edit(WEB, peanuts.id, text="I am allergic to nuts")
    counts = [await memories.forget(LARK, [bologna.id]), await memories.forget(WEB, everything=True, dry_run=True)]
    await people.unlink(LARK, by="otto")

    assert (read, counts) == (replace(peanuts, identity="ou_ann"), [1, 1])
    assert [await memory_texts(memories, one) for one in (WEB, LARK)] == [set(), {"I am allergic to nuts"}]
    with pytest.raises(MemoryNotFound):
        await memories.get(WEB, peanuts.id)


async def test_what_was_said_later_at_another_door_holds_while_they_are_linked(
    memories: Memories, people: People, clock: FakeClock
) -> None:
    """By its subject or in the same words; nothing of this is stored."""
    for scope, text, subject in (
        (WEB, "I work at Acme", "employer"), (LARK, "I work at Bolt", "employer"), (LARK, PEANUTS, ""),
        (WEB, "i am allergic to peanuts.", ""), (WEB, BOLOGNA, ""),
    ):  # fmt: skip
        await memories.add(scope, text, subject=subject)
        clock.advance(timedelta(days=1))
    await people.link(WEB, "ou_ann", by="otto")

    holding = await memory_texts(memories, WEB)
    everything = {one.text: one for one in await memories.list(WEB, superseded=True)}
    await memories.forget(WEB, [everything["I work at Bolt"].id])
    again = await memory_texts(memories, LARK)
    await people.unlink(LARK, by="otto")

    assert holding == {"I work at Bolt", "i am allergic to peanuts.", BOLOGNA}
    assert everything["I work at Acme"].superseded_by == everything["I work at Bolt"].id
    assert everything["I work at Acme"].valid_until == everything["I work at Bolt"].said_at
    assert again == {"I work at Acme", "i am allergic to peanuts.", BOLOGNA}
    assert await memory_texts(memories, LARK) == {PEANUTS}


async def test_preferences_are_replaced_for_the_whole_person(memories: Memories, people: People) -> None:
    await memories.set_preferences(WEB, ["Answer in Italian."])
    await memories.set_preferences(LARK, ["Keep answers short."])
    await people.link(WEB, "ou_ann", by="otto")

    await memories.set_preferences(WEB, ["Keep answers short.", "Be frank."])
    await people.unlink(LARK, by="otto")

    held = [{one.text for one in await memories.preferences(scope)} for scope in (WEB, LARK)]
    assert held == [{"Be frank."}, {"Keep answers short."}]
