"""Memories under concurrent change: no edit is lost, nothing forgotten returns, no turn waits for upkeep."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from tenuto.errors import Invalid, Unavailable
from tenuto.model import Scope
from tenuto.model.memory import (
    MEMORIES,
    MEMORY_CHANGES,
    MEMORY_LOG,
    VECTORS,
    Memory,
    MemoryKind,
    MemoryPolicy,
    MemoryQuery,
)
from tenuto.ports import Store
from tenuto.recall import owner_cache, service
from tenuto.recall.index import MemoryIndex
from tenuto.recall.owner_cache import OwnerMemories
from tenuto.recall.prepared_search import RecallResult
from tenuto.recall.records import StoredMemory
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.letter_memories import LetterEmbedder, memories_over, memory_texts, search_texts
from tests.samples import ANN, BOB

HOME = "I live in Bologna with my two cats"


@pytest.fixture
def store(clock: FakeClock) -> Store:
    return MemoryStore(clock=clock)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Held(LetterEmbedder):
    """An embedder that waits for the test."""

    def __init__(self, *, remote: bool = True) -> None:
        super().__init__(remote=remote)
        self.asked_for, self.go = asyncio.Event(), asyncio.Event()
        self.waits = False

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.waits:
            self.asked_for.set()
            await self.go.wait()
        return await super().embed(texts)


async def vectors_of(store: Store, scope: Scope) -> tuple[str, ...]:
    return await store.state.state_keys(scope, VECTORS)


@pytest.mark.parametrize("forgets", [True, False])
async def test_a_mention_does_not_undo_what_another_process_did_meanwhile(
    store: Store, clock: FakeClock, forgets: bool
) -> None:
    held = Held()
    slow, other = memories_over(store, clock, held), memories_over(store, clock)
    first = await slow.add(ANN, HOME)
    held.waits = True
    mention = asyncio.create_task(slow.add(ANN, HOME.upper()))
    await held.asked_for.wait()
    if forgets:
        await other.forget(ANN, [first.id])
    else:
        await other.edit(ANN, first.id, text="I live in Ferrara")
    held.go.set()
    await mention

    expected = {HOME.upper()} if forgets else {"I live in Ferrara", HOME.upper()}
    assert await memory_texts(other, ANN) == await memory_texts(slow, ANN) == expected


async def test_other_calls_have_their_turn_while_many_memories_change(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another process has changed them: that of a user with many waits for no single call."""
    longest = changes = 0

    def count(change: Callable[..., None]) -> Callable[..., None]:
        def counting(*given: Any) -> None:
            nonlocal longest, changes
            changes += 1
            longest = max(longest, changes)
            change(*given)

        return counting

    async def take_turns() -> None:
        nonlocal changes
        while True:
            changes = 0
            await asyncio.sleep(0)

    for name in ("put", "remove"):
        monkeypatch.setattr(MemoryIndex, name, count(getattr(MemoryIndex, name)))
    others = asyncio.create_task(take_turns())
    here, there = memories_over(store, clock), memories_over(store, clock)
    texts = [f"I keep boat number{number} in harbour number{number}" for number in range(700)]
    await here.add(ANN, HOME)
    made = [
        Memory(id=f"boat{place}", kind=MemoryKind.FACT, text=text, said_at=clock()) for place, text in enumerate(texts)
    ]
    await there.remember(ANN, made)
    assert len(await memory_texts(here, ANN)) == 100
    assert await here.forget(ANN, [f"boat{number}" for number in range(300)]) == 300
    assert await here.forget(ANN, everything=True) == 401
    assert await memory_texts(there, ANN) == set()
    others.cancel()

    assert longest <= 64


async def test_a_removal_that_is_cancelled_halfway_leaves_no_copy_of_what_is_gone(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_cache, "CHANGES_AT_ONCE", 1)
    memories = memories_over(store, clock)
    for number in range(30):
        await memories.add(ANN, f"I keep {number} boats in harbour {number}")
    remove = OwnerMemories.remove

    def remove_and_cancel(owner: OwnerMemories, memory_id: str) -> None:
        remove(owner, memory_id)
        removal.cancel()

    monkeypatch.setattr(OwnerMemories, "remove", remove_and_cancel)
    removal = asyncio.create_task(memories.forget(ANN, everything=True))
    await asyncio.wait({removal})

    assert removal.cancelled()
    assert await memory_texts(memories, ANN) == set()


async def test_what_is_said_again_while_another_process_removes_it_is_remembered(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is gone, and the log does not tell it yet."""
    slow, other = memories_over(store, clock), memories_over(store, clock)
    first = await slow.add(ANN, HOME)
    read = slow._records.read

    async def read_after_removal(scope: Scope, memory_id: str) -> StoredMemory | None:
        monkeypatch.setattr(slow._records, "read", read)
        await other.forget(ANN, [first.id])
        return await read(scope, memory_id)

    monkeypatch.setattr(slow._records, "read", read_after_removal)
    again = await slow.add(ANN, HOME)

    assert again.id != first.id
    assert await memory_texts(other, ANN) == await memory_texts(slow, ANN) == {HOME}


async def test_all_that_is_forgotten_is_also_what_cannot_be_decoded(store: Store, clock: FakeClock) -> None:
    memories = memories_over(store, clock)
    await memories.add(ANN, HOME)
    await store.state.write_state(
        ANN, MEMORIES, "later", {"text": "I live in Rome", "kind": "a kind of a later release"}
    )

    assert await memories.forget(ANN, everything=True, dry_run=True) == 2
    assert await memories.forget(ANN, everything=True) == 2
    assert await store.state.state_keys(ANN, MEMORIES) == ()


async def test_a_vector_does_not_outlive_its_memory(store: Store, clock: FakeClock) -> None:
    held = Held()
    await memories_over(store, clock).add(ANN, HOME)
    slow, other = memories_over(store, clock, held), memories_over(store, clock)
    held.waits = True
    indexing = asyncio.create_task(slow.index_missing(ANN))
    await held.asked_for.wait()
    # A turn of the owner does not wait for it.
    assert await memory_texts(slow, ANN) == {HOME}
    await other.forget(ANN, everything=True)
    held.go.set()
    await indexing
    await slow.drain()

    assert await vectors_of(store, ANN) == ()
    assert await memory_texts(slow, ANN) == set()


async def test_an_edited_text_is_not_found_by_the_meaning_of_the_old_one(store: Store, clock: FakeClock) -> None:
    one = await memories_over(store, clock, LetterEmbedder()).add(ANN, HOME)
    await memories_over(store, clock).edit(ANN, one.id, text="zzz")
    letters = LetterEmbedder()
    later = memories_over(store, clock, letters)
    await memory_texts(later, ANN)
    await later.drain()

    assert letters.asked == ["zzz"]


async def test_what_a_dead_process_stored_but_did_not_announce_is_there(store: Store, clock: FakeClock) -> None:
    one = await memories_over(store, clock).add(ANN, HOME)
    await store.state.delete_state(ANN, MEMORY_CHANGES, MEMORY_LOG)

    assert await memory_texts(memories_over(store, clock), ANN) == {HOME}
    assert await memories_over(store, clock).forget(ANN, everything=True) == 1
    assert await store.state.read_state(ANN, MEMORIES, one.id) is None


async def test_facts_of_one_message_stand_beside_each_other_and_what_was_replaced_holds_again(
    store: Store, clock: FakeClock
) -> None:
    memories = memories_over(store, clock)

    def said(name: str, text: str, seq: int, *, replaces: bool = False) -> Memory:
        fact = {"kind": MemoryKind.FACT, "said_at": clock(), "session_id": "s", "seqs": (seq,)}
        return Memory(id=name, text=text, subject="allergy", replaces=replaces, **fact)  # type: ignore[arg-type]

    await memories.remember(ANN, [said("a", "Peanuts", 1, replaces=True), said("b", "Penicillin", 1, replaces=True)])
    await memories.remember(ANN, [said("c", "Pollen", 3)])
    beside = await memory_texts(memories, ANN)
    await memories.remember(ANN, [said("d", "Nothing at all", 5, replaces=True)])
    replaced = await memory_texts(memories, ANN)
    await memories.forget(ANN, ["d"])

    assert beside == {"Peanuts", "Penicillin", "Pollen"}
    assert replaced == {"Nothing at all"}
    assert await memory_texts(memories, ANN) == beside


async def test_memories_added_together_meet_as_if_one_by_one(store: Store, clock: FakeClock) -> None:
    """Each takes the place of the one before it, a repeated text is counted; a failed store leaves no trace of them."""
    memories = memories_over(store, clock)

    def said(seq: int, text: str) -> Memory:
        at = clock() + timedelta(minutes=seq)
        return Memory(
            id=f"m{seq}",
            kind=MemoryKind.FACT,
            text=text,
            said_at=at,
            session_id="s",
            seqs=(seq,),
            subject="job",
            replaces=True,
        )

    first, second, third = said(1, "I work at A"), said(2, "I work at B"), said(3, "I work at C")
    await memories.remember(ANN, [first])
    await memories.remember(ANN, [second, third, said(4, "I work at C")])
    for one in (memories, memories_over(store, clock)):
        chain = {each.id: each for each in await one.list(ANN, superseded=True)}
        assert (chain["m1"].superseded_by, chain["m1"].valid_until) == ("m2", second.said_at)
        assert (chain["m2"].superseded_by, chain["m2"].valid_until) == ("m3", third.said_at)
        assert (len(chain), chain["m3"].mentions, chain["m3"].superseded_by) == (3, 2, "")

    liked = [Memory(id=f"p{n}", kind=MemoryKind.PREFERENCE, text=f"Taste {n}", said_at=clock()) for n in range(201)]
    with pytest.raises(Invalid):
        await memories.remember(ANN, liked)
    assert await memory_texts(memories, ANN) == {"I work at C"}


async def test_who_owes_whom_is_not_the_same(store: Store, clock: FakeClock) -> None:
    memories = memories_over(store, clock)
    for text in ("Clara owes me 20 euros", "I owe Clara 20 euros"):
        await memories.add(ANN, text)

    assert len(await memory_texts(memories, ANN)) == 2


async def test_a_cancelled_search_leaves_no_thread_in_the_index(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_cache, "_AT_ONCE", 1)
    memories = memories_over(store, clock)
    for number in range(20):
        await memories.add(ANN, f"Note {number} about tea and number {number}")
    for _ in range(20):
        search = asyncio.create_task(memories.search(ANN, MemoryQuery(text="tea")))
        await asyncio.sleep(0.001)
        search.cancel()
        await memories.add(ANN, f"Another tea {_}")
        await asyncio.wait({search})

    assert len(await memories.list(ANN, limit=100)) == 40
    assert await search_texts(memories, ANN, "another tea 7")


async def test_copies_are_bounded_also_for_owners_without_memories(store: Store, clock: FakeClock) -> None:
    memories = memories_over(store, clock, policy=MemoryPolicy(cache_bytes=10 * owner_cache._OWNER_BYTES))
    for number in range(50):
        await memories.list(Scope(tenant="acme", user=f"user {number}"))
    await memories.add(BOB, HOME)

    assert len(memories._cache._owners) <= 10
    assert await memory_texts(memories, BOB) == {HOME}


async def test_copies_are_bounded_also_for_owners_whose_memories_cannot_be_read(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an outage every user who asks would leave a copy behind that counts nowhere."""
    memories = memories_over(store, clock, policy=MemoryPolicy(cache_bytes=3 * owner_cache._OWNER_BYTES))

    async def fail(*_: object) -> None:
        raise Unavailable("session store")

    monkeypatch.setattr(memories._cache._records, "changed_since", fail)
    for number in range(9):
        with pytest.raises(Unavailable):
            await memories._cache.load(Scope(tenant="acme", user=f"user-{number}"))

    assert len(memories._cache._owners) == 3


async def test_what_is_forgotten_leaves_nothing_in_a_copy(store: Store, clock: FakeClock) -> None:
    memories = memories_over(store, clock)
    for number in range(3):
        added = await memories.add(ANN, f"I live in town number {number} with my cats")
        await memories.forget(ANN, [added.id])
    owner = await memories._cache.load(ANN)

    assert (owner.memories, owner.embedded, owner._by_text, owner.saved.gone) == ({}, set(), {}, set())


async def test_a_log_that_cannot_be_read_and_many_changes_at_once_cost_a_reload(store: Store, clock: FakeClock) -> None:
    one, other = memories_over(store, clock), memories_over(store, clock)
    await one.add(ANN, HOME)
    await memory_texts(other, ANN)
    many = [
        Memory(id=f"many{number}", kind=MemoryKind.FACT, text=f"Fact {number} of many", said_at=clock())
        for number in range(200)
    ]
    await one.remember(ANN, many)
    entry = await store.state.read_state(ANN, MEMORY_CHANGES, MEMORY_LOG)

    assert entry is not None
    assert sum(map(len, entry.value["changes"])) <= 32
    assert len(await other.list(ANN, limit=500)) == 201
    await store.state.write_state(ANN, MEMORY_CHANGES, MEMORY_LOG, "no log")
    assert len(await other.list(ANN, limit=500)) == 201


async def test_preferences_are_bounded(store: Store, clock: FakeClock) -> None:
    memories = memories_over(store, clock)
    for number in range(200):
        await memories.add(ANN, f"Likes number {number} best", kind=MemoryKind.PREFERENCE)

    with pytest.raises(Invalid):
        await memories.add(ANN, "Likes one more", kind=MemoryKind.PREFERENCE)
    assert len(await memories.preferences(ANN)) == 200


async def test_a_load_goes_on_without_its_caller_and_the_next_one_joins_it(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also that of a copy which is too old to be kept current by the log."""
    memories, other = memories_over(store, clock), memories_over(store, clock)
    await other.add(ANN, HOME)
    reads, go = 0, asyncio.Event()

    def wait_before(read: Callable[[Scope], AsyncIterator[Any]]) -> Callable[[Scope], AsyncIterator[Any]]:
        async def load(scope: Scope) -> AsyncIterator[Any]:
            nonlocal reads
            reads += 1
            await go.wait()
            async for one in read(scope):
                yield one

        return load

    for name in ("load", "load_texts"):
        records = memories._cache._records
        monkeypatch.setattr(records, name, wait_before(getattr(records, name)))
    found: list[list[str]] = []
    for count in (1, 2):
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await memories.search(ANN, MemoryQuery(text="Bologna"))
        assert reads == count
        go.set()
        found.append(await search_texts(memories, ANN, "Bologna"))
        assert reads == count
        go.clear()
        await other.add(ANN, "I drink tea")
        await other._records.restart_log(ANN)

    assert found == [[HOME]] * 2


async def test_a_load_that_fails_is_tried_again_and_one_under_way_ends_with_the_process(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    memories = memories_over(store, clock)
    await memories_over(store, clock).add(ANN, HOME)
    listing, failing, hanging = store.state.list_state, [True], [False]

    async def list_state(*where: Any) -> Any:
        if failing[0]:
            raise Unavailable("session store")
        if hanging[0]:
            await asyncio.Event().wait()
        return await listing(*where)

    monkeypatch.setattr(store.state, "list_state", list_state)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await memory_texts(memories, ANN)
    failing[0] = False
    after = await memory_texts(memories, ANN)
    memories.clear_cache()
    hanging[0] = True
    waiting = asyncio.create_task(memory_texts(memories, ANN))
    await asyncio.sleep(0.01)
    await memories.close()

    assert after == {HOME}
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_copy_is_loaded_anew_after_ten_minutes_in_the_background(store: Store, clock: FakeClock) -> None:
    memories = memories_over(store, clock)
    one = await memories.add(ANN, HOME)
    # As a process that dies before it tells of its change.
    await store.state.delete_state(ANN, MEMORIES, one.id)
    before = await memory_texts(memories, ANN)
    clock.advance(timedelta(minutes=11))
    await memory_texts(memories, ANN)
    await memories.drain()

    assert before == {HOME}
    assert await memory_texts(memories, ANN) == set()


async def test_work_that_is_ended_before_it_began_leaves_nothing_behind(store: Store, clock: FakeClock) -> None:
    """A process that closes right after a search; what was not awaited would be reported when it is collected."""
    await memories_over(store, clock).add(ANN, HOME)
    closing = memories_over(store, clock, LetterEmbedder())
    await memory_texts(closing, ANN)
    await closing.close()
    gc.collect()


async def test_a_search_waits_for_an_embedder_that_loads_and_then_says_that_words_decide(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def search(seconds: float) -> RecallResult:
        held = Held(remote=False)
        held.waits = not seconds
        monkeypatch.setattr(service, "_LOADING_SECONDS", seconds)
        opened = memories_over(store, clock, held)
        found = await opened.search(ANN, MemoryQuery(text="Where do I live?"))
        # What was stored before the weights were there is embedded beside the search.
        await (opened.drain() if seconds else opened.close())
        return found

    nothing = await search(0)
    await memories_over(store, clock).add(ANN, HOME)
    loading, _, ready, late = await search(0), await search(60), await search(60), await search(0)

    assert [result.degraded for result in (nothing, loading, ready, late)] == [False, True, False, True]
    assert [hit.memory.text for hit in loading.hits] == [HOME]
    assert ready.hits[0].scores.cosine > 0
    assert late.hits[0].scores.cosine == 0
