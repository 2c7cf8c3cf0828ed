"""The stored index: it finds what the rows find, is current, repairs itself, and holds nothing that was removed."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from tenuto.errors import StateCorrupt
from tenuto.model import Scope, StateChange
from tenuto.model.memory import (
    MEMORIES,
    MEMORY_CHANGES,
    MEMORY_INDEX,
    MEMORY_LOG_TAIL,
    Memory,
    MemoryKind,
    MemoryPolicy,
    MemoryQuery,
)
from tenuto.ports import Store
from tenuto.recall import owner_cache, stored_index
from tenuto.recall.records import MemoryRecords
from tenuto.recall.service import Memories
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.letter_memories import LetterEmbedder, memories_over, memory_texts
from tests.samples import ANN

WORDS = ("apples", "bicycles", "cathedrals", "dolphins", "engines", "fountains", "gardens", "harbours", "islands")
QUERIES = ("apples", "Who likes gardens", "dolphins and engines", "nothing of this", "8 May")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_cache, "_AT_ONCE", 1)
    for module in (owner_cache, stored_index):
        monkeypatch.setattr(module, "BLOCK", 8)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> Store:
    return MemoryStore(clock=clock)


def process(store: Store, clock: FakeClock, **policy: Any) -> Memories:
    return memories_over(store, clock, LetterEmbedder(), MemoryPolicy(**policy))


def some_memories(clock: FakeClock, count: int, start: int = 0) -> list[Memory]:
    return [
        Memory(
            id=f"id{number}",
            kind=MemoryKind.FACT,
            text=f"I like {WORDS[number % 9]} and {WORDS[number // 9 % 9]}, number {number}",
            said_at=clock() + timedelta(minutes=number),
            session_id=f"s{number // 5}",
            seqs=(number,),
            speaker=("", "Bob")[number % 2],
        )
        for number in range(start, start + count)
    ]


async def saved(store: Store, clock: FakeClock, count: int = 30, **policy: Any) -> Memories:
    """A process that has stored the index of so many memories."""
    memories = process(store, clock, **policy)
    await memories.remember(ANN, some_memories(clock, count))
    await memories.drain()
    return memories


async def findings(memories: Memories) -> list[list[tuple[str, float]]]:
    searches = [await memories.search(ANN, MemoryQuery(text=query, limit=9)) for query in QUERIES]
    return [[(hit.memory.id, hit.score) for hit in search.hits] for search in searches]


async def from_rows(store: Store, clock: FakeClock) -> list[list[tuple[str, float]]]:
    """What a process finds that reads every row; there is no stored index afterwards."""
    await drop_index(store)
    return await findings(process(store, clock))


async def drop_index(store: Store) -> None:
    keys = await store.state.state_keys(ANN, MEMORY_INDEX, limit=1000)
    await store.state.change_states(ANN, MEMORY_INDEX, [StateChange(key=key, removes=True) for key in keys])


async def stored_bytes(store: Store) -> bytes:
    """All that the blocks hold, whatever it means."""
    entries = await store.state.list_state(ANN, MEMORY_INDEX, limit=1000)
    return b"".join(b64decode(entry.value) for entry in entries if isinstance(entry.value, str))


async def test_a_process_that_starts_finds_the_same_without_reading_every_memory(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await saved(store, clock)
    listing, namespaces = store.state.list_state, set[str]()

    async def list_state(scope: Any, namespace: str, *where: Any) -> Any:
        namespaces.add(namespace)
        return await listing(scope, namespace, *where)

    monkeypatch.setattr(store.state, "list_state", list_state)
    found = await findings(process(store, clock))

    assert MEMORIES not in namespaces
    assert found == await from_rows(store, clock)
    assert MEMORIES in namespaces


async def edit(memories: Memories) -> None:
    await memories.edit(ANN, "id3", text="My secret is harbours")


async def forget(memories: Memories) -> None:
    await memories.forget(ANN, ["id3", "id4", "id20"])


async def forget_all(memories: Memories) -> None:
    await memories.forget(ANN, everything=True)
    await memories.add(ANN, "I like islands after all")


async def say_again(memories: Memories) -> None:
    await memories.add(ANN, "I like apples and apples, number 0")


async def replace(memories: Memories) -> None:
    await memories.add(ANN, "Works on engines", subject="work")
    await memories.add(ANN, "Works on fountains", subject="work")


async def say_much(memories: Memories) -> None:
    await memories.remember(ANN, some_memories(FakeClock(), 300, start=1000))


@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize("change", [edit, forget, forget_all, say_again, replace, say_much])
async def test_what_changes_is_found_by_the_process_that_starts(
    store: Store, clock: FakeClock, change: Callable[[Memories], Awaitable[None]], saves: bool
) -> None:
    """By another process that knows the stored index or has never seen it, and that ends before it saves, or saves."""
    memories = await saved(store, clock)
    other = process(store, clock)
    await change(memories)
    await change(other)
    if saves:
        for one in (memories, other):
            await one.remember(ANN, some_memories(clock, 20, start=2000))
            await one.drain()
    texts, found = await memory_texts(other, ANN), await findings(process(store, clock))

    assert texts == await memory_texts(memories, ANN) == await memory_texts(process(store, clock), ANN)
    assert found == await from_rows(store, clock)


async def test_what_is_forgotten_or_edited_leaves_the_stored_index_at_once(store: Store, clock: FakeClock) -> None:
    unaware = process(store, clock)
    await unaware.add(ANN, "I like dragonflies")
    memories = await saved(store, clock)
    for word in ("cormorants", "lighthouses", "zeppelins"):
        await memories.add(ANN, f"I like {word}")
    await memories.remember(ANN, some_memories(clock, 10, start=100))
    await memories.drain()
    by_text = {one.text: one.id for one in await memories.list(ANN)}
    before = await stored_bytes(store)

    await memories.edit(ANN, by_text["I like cormorants"], text="I like secrets")
    await memories.forget(ANN, [by_text["I like lighthouses"]])
    after = await stored_bytes(store)
    # This process has seen no block.
    await unaware.forget(ANN, [by_text["I like zeppelins"]])
    at_last = await stored_bytes(store)

    # Neither as a text nor as a term.
    assert all(word in before for word in (b"cormorant", b"lighthouse", b"zeppelin"))
    assert not any(word in after for word in (b"cormorant", b"lighthouse"))
    assert b"zeppelin" in after
    assert b"zeppelin" not in at_last


async def test_what_a_chat_forgets_of_a_person_leaves_the_stored_index(store: Store, clock: FakeClock) -> None:
    await saved(store, clock)
    records = MemoryRecords(store.state, "", lambda: "new")

    await records.remove(ANN, ["id5"])
    await records.restart_log(ANN)

    assert await store.state.state_keys(ANN, MEMORY_INDEX) == ()
    assert "id5" not in {one.id for one in await process(store, clock).list(ANN)}


async def test_an_owner_that_is_erased_while_the_index_is_stored_leaves_nothing(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    memories = process(store, clock)
    write = store.state.write_state

    async def write_state(scope: Any, namespace: str, key: str, *what: Any) -> Any:
        if namespace == MEMORY_INDEX and key == "head":
            for one in (MEMORIES, "memory.vectors", "memory.changes", MEMORY_INDEX):
                for name in await store.state.state_keys(scope, one, limit=1000):
                    await store.state.delete_state(scope, one, name)
        return await write(scope, namespace, key, *what)

    monkeypatch.setattr(store.state, "write_state", write_state)
    await memories.remember(ANN, some_memories(clock, 30))
    await memories.drain()

    assert await store.state.state_keys(ANN, MEMORY_INDEX) == ()


@pytest.mark.parametrize("late", [False, True])
async def test_what_another_process_forgets_while_the_index_is_stored_leaves_it(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    memories, other = process(store, clock), process(store, clock)
    await memories.add(ANN, "I like zeppelins")
    (zeppelins,) = await other.list(ANN)
    write, forgets = store.state.write_state, [True]

    async def write_state(scope: Any, namespace: str, key: str, value: Any, *version: Any) -> Any:
        # Between its last look at the log and its first block, or behind its last block.
        if namespace == MEMORY_INDEX and (key == "head") is late and forgets[0]:
            forgets[0] = False
            await other.forget(ANN, [zeppelins.id])
        return await write(scope, namespace, key, value, *version)

    monkeypatch.setattr(store.state, "write_state", write_state)
    await memories.remember(ANN, some_memories(clock, 30))
    await memories.drain()

    assert forgets == [False]
    assert b"zeppelin" not in await stored_bytes(store)
    assert await findings(process(store, clock)) == await from_rows(store, clock)


async def test_of_two_processes_that_save_at_once_no_block_is_left_over(store: Store, clock: FakeClock) -> None:
    one, other = process(store, clock), process(store, clock)
    await other.add(ANN, "I like islands")
    await one.remember(ANN, some_memories(clock, 30))
    await other.list(ANN)
    await one.drain()
    await other.drain()
    head = await store.state.read_state(ANN, MEMORY_INDEX, "head")

    assert head is not None
    assert set(await store.state.state_keys(ANN, MEMORY_INDEX)) == {"head", *head.value["blocks"]}
    assert await findings(process(store, clock)) == await from_rows(store, clock)


@pytest.mark.parametrize("damage", ["a block", "all blocks", "no block", "the head", "another release", "not base64"])
async def test_a_damaged_index_is_made_again(store: Store, clock: FakeClock, damage: str) -> None:
    await saved(store, clock)
    state = store.state
    first, *_, last = [key for key in await state.state_keys(ANN, MEMORY_INDEX) if key != "head"]
    head = await state.read_state(ANN, MEMORY_INDEX, "head")
    assert head is not None
    if damage == "a block":
        await state.delete_state(ANN, MEMORY_INDEX, first)
    elif damage == "no block":
        await state.write_state(ANN, MEMORY_INDEX, "head", {**head.value, "blocks": []})
    elif damage == "the head":
        await state.write_state(ANN, MEMORY_INDEX, "head", ["nonsense"])
    elif damage == "another release":
        await state.write_state(ANN, MEMORY_INDEX, "head", {**head.value, "made_by": "0"})
    elif damage == "not base64":
        await state.write_state(ANN, MEMORY_INDEX, last, "?")
    else:
        for key in head.value["blocks"]:
            await state.write_state(ANN, MEMORY_INDEX, key, "kpKS")
    memories = process(store, clock)
    found = await findings(memories)
    await memories.remember(ANN, some_memories(clock, 10, start=500))
    await memories.drain()
    again = await findings(process(store, clock))

    assert again == await from_rows(store, clock)
    assert [{one for one, _ in hits} for hits in found] != [set()] * len(found)
    assert len(await process(store, clock).list(ANN)) == 40


async def test_many_memories_at_once_are_read_by_no_process_as_all(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = process(store, clock), process(store, clock)
    for memories in (one, other):
        await memories.remember(ANN, some_memories(clock, 3))

    async def fail(*_: Any) -> None:
        raise AssertionError("every memory was read")

    for memories in (one, other):
        for name in ("load", "load_texts"):
            monkeypatch.setattr(memories._cache._records, name, fail)
    await one.remember(ANN, some_memories(clock, 200, start=10))

    assert len(await one.list(ANN, limit=500)) == len(await other.list(ANN, limit=500)) == 203


async def test_the_oldest_that_leave_are_gone_from_the_stored_index_with_its_next_save(
    store: Store, clock: FakeClock
) -> None:
    memories = process(store, clock, max_memories=30)
    await memories.add(ANN, "I like zeppelins", said_at=clock() - timedelta(days=9))
    await memories.remember(ANN, some_memories(clock, 29))
    await memories.drain()
    before = await stored_bytes(store)
    await memories.remember(ANN, some_memories(clock, 20, start=100))
    await memories.drain()

    assert b"zeppelin" in before
    assert b"zeppelin" not in await stored_bytes(store)
    assert await findings(process(store, clock)) == await from_rows(store, clock)


@pytest.mark.parametrize(("cache_bytes", "stay"), [(1 << 30, 6), (250_000, 2)])
async def test_copies_leave_by_their_bytes_not_by_the_number_of_memories(
    store: Store, clock: FakeClock, cache_bytes: int, stay: int
) -> None:
    memories = process(store, clock, cache_bytes=cache_bytes)
    for user in range(6):
        await memories.remember(Scope(tenant="acme", user=f"user-{user}"), some_memories(clock, 40))

    assert len(memories._cache._owners) == stay


@pytest.mark.parametrize("corrupt", [False, True])
async def test_without_the_tail_of_the_log_a_process_far_behind_compares_all(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, corrupt: bool
) -> None:
    one, other = process(store, clock), process(store, clock)
    await one.remember(ANN, some_memories(clock, 3))
    await other.list(ANN)
    await one.remember(ANN, some_memories(clock, 50, start=10))
    read_states = store.state.read_states

    async def read(scope: Any, namespace: str, keys: Any) -> Any:
        if namespace == MEMORY_CHANGES and corrupt:
            raise StateCorrupt("state value", "cannot be decoded")
        return await read_states(scope, namespace, keys)

    monkeypatch.setattr(store.state, "read_states", read)
    await store.state.write_state(ANN, MEMORY_CHANGES, MEMORY_LOG_TAIL, "no tail")

    assert len(await other.list(ANN, limit=500)) == 53
