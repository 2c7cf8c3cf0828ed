"""Copies of whole stores of records between any two backends."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from random import Random

import pytest
from msgspec.structs import replace

from tenuto.model import Truncation
from tenuto.model.stored import Action, Known, Part, RecordChange, Refused, StoredRecord
from tenuto.ports import Clock, RecordStore
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.stores.copy_reports import CopyPolicy, CopyReport
from tenuto.stores.engine import Engine, PlainCodecs
from tenuto.stores.engine.copying import RecordCopier
from tenuto.stores.engine.sealing import SealedCodecs
from tenuto.stores.engine.state import EngineState
from tenuto.stores.memory import InMemoryRecords
from tests.backends import RING
from tests.clock import FakeClock
from tests.record_stores import RECORD_STORES, RecordBackend
from tests.samples import ANN, batch, begin, listed, talk, texts
from tests.store_copies import check_goes_on, compare_stores, copy_store, fill

COPIED = [backend for backend in RECORD_STORES if backend.name not in ("simulated", "breaker")]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[dict[str, RecordStore]]:
    """An empty store of each backend, and a second one of the first."""
    async with AsyncExitStack() as stack:
        server = request.getfixturevalue
        stores = {backend.name: await stack.enter_async_context(backend.open(server)) for backend in COPIED}
        stores["another"] = await stack.enter_async_context(COPIED[0].open(server))
        yield stores


def plain(records: RecordStore, clock: Clock) -> Engine:
    return Engine(records, clock=clock, chance=Random(1))


def sealed(records: RecordStore, clock: Clock) -> Engine:
    """The same store as its servers see it, with the key of all tests."""
    ciphers = TenantCiphers(store=EngineState(records, PlainCodecs(), Random(2)), ring=RING, clock=clock)
    return Engine(records, clock=clock, chance=Random(3), codecs=SealedCodecs(ciphers, clock=clock))


async def empty(records: RecordStore) -> None:
    while page := await records.scan(b"", 100):
        for found in page:
            removal = RecordChange(key=found.record.key, if_revision=found.record.revision, action=Action.REMOVE)
            assert await records.commit([removal]) is None


@pytest.mark.requirement("T19")
async def test_a_copy_from_backend_to_backend_differs_in_its_address_alone(
    opened: dict[str, RecordStore], clock: FakeClock
) -> None:
    """Sealed records, leases, keys, producers and versions arrive as they are, once round all backends, and each goes
    on with them."""
    names = list(opened)
    await fill(sealed(opened[names[0]], clock), clock)
    for source, target in pairwise([*names, names[0]]):
        await empty(opened[target])
        await copy_store(plain(opened[source], clock), plain(opened[target], clock), clock)
        compared = await compare_stores(plain(opened[source], clock), plain(opened[target], clock), clock)
        differing = [here for here, there in compared.sites.values() if here != there]
        assert (compared.named, compared.different, differing) == ([], 0, []), f"{source} to {target}"

    for name, records in opened.items():
        await check_goes_on(sealed(records, clock), name)


class Interrupted(InMemoryRecords):
    """Does something else before each of its commits."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[Sequence[RecordChange]], None] = lambda changes: None

    def commit(self, changes: Sequence[RecordChange]) -> Future[Refused | None]:
        self.before(changes)
        return super().commit(changes)


class PowerCut(Exception):
    """The copying process ends here."""


@pytest.mark.requirement("T19")
@pytest.mark.parametrize("at", range(1, 8))
async def test_a_copy_that_ends_anywhere_is_resumed(clock: FakeClock, at: int) -> None:
    """As if nothing had happened: nothing is left as changed in the target, wherever the first run ended."""
    source, target, made = plain(InMemoryRecords(), clock), Interrupted(), list[None]()
    for name in "ab":
        await talk(source, ANN, name, "q", "a")
    await source.state.write_state(ANN, "prefs", "k", 1)
    filled = plain(target, clock)
    await copy_store(source, filled, clock)
    await talk(source, ANN, "a", "more", "a")
    await source.sessions.truncate(ANN, "b", Truncation(after=1))
    await talk(source, ANN, "c", "q", "a")

    def cut(changes: Sequence[RecordChange]) -> None:
        made.append(None)
        if len(made) == at:
            raise PowerCut

    target.before = cut
    try:
        await copy_store(source, filled, clock)
    except PowerCut:
        target.before = lambda changes: None
        report = await copy_store(source, filled, clock)
        assert report.left == []
    else:
        assert at == 7, "the cuts before it reach from the first commit to the last"
    assert (await compare_stores(source, filled, clock)).named == []


async def test_what_changes_meanwhile_is_copied_as_it_is_then(clock: FakeClock) -> None:
    """A server goes on with the source between the listing of a record and the reading of its entries."""

    talks = list[RecordChange]()

    class Busy(InMemoryRecords):
        def load(self, key: bytes, tail: int, known: Known | None = None) -> Future[StoredRecord | None]:
            if talks and tail > 1000:
                self.table.commit([talks.pop(0)])
            return super().load(key, tail, known)

    records = Busy()
    source, target = plain(records, clock), plain(InMemoryRecords(), clock)
    await source.sessions.append(ANN, "s", batch("q", "a"))
    (found,) = await records.scan(b"", 9)
    stored = found.record
    for revision in (stored.revision, stored.revision + 1):
        change = RecordChange(key=stored.key, if_revision=revision, revision=revision + 1, head=stored.head)
        talks.append(replace(change, totals=found.totals))

    report = await RecordCopier(
        records, target.records, name="x", policy=CopyPolicy(), clock=clock, chance=Random(1)
    ).copy()

    assert (talks, report.sessions, report.unchanged, report.left) == ([], 1, 0, [])
    assert await texts(target, ANN, "s") == ["q", "a"]


@pytest.mark.parametrize("backend", [one for one in COPIED if one.name != "memory"], ids=lambda one: one.name)
async def test_servers_that_write_to_the_source_are_noticed(
    backend: RecordBackend, request: pytest.FixtureRequest, clock: FakeClock
) -> None:
    async with backend.open(request.getfixturevalue) as records:
        source = plain(records, clock)
        for name in "ab":
            await talk(source, ANN, name, "q", "a")

        async def copied(during: Callable[[], Awaitable[object]]) -> CopyReport:
            class Watched(InMemoryRecords):
                async def load_all(self, keys: Sequence[bytes]) -> tuple[StoredRecord | None, ...]:
                    await during()
                    return await super().load_all(keys)

            copier = RecordCopier(records, Watched(), name="x", policy=CopyPolicy(), clock=clock, chance=Random(1))
            return await copier.copy()

        async def nothing() -> None:
            return None

        async def write() -> None:
            if (await source.sessions.get(ANN, "a")).messages > 2:
                return
            await talk(source, ANN, "a", "more", "a")
            await asyncio.sleep(0.1)  # Servers tell of it on another connection.

        assert [(await copied(during)).changed for during in (nothing, write)] == [0, 1]


async def test_a_sealed_source_needs_no_key(clock: FakeClock) -> None:
    """And a damaged entry of a plain session is found before it is copied."""
    source, target = InMemoryRecords(), plain(InMemoryRecords(), clock)
    await talk(sealed(source, clock), ANN, "s", "q", "a")
    await talk(plain(source, clock), ANN, "torn", "q", "a")
    turn = await begin(plain(source, clock), ANN, "other", "q")
    for found in await source.scan(b"", 9):
        if found.index.name == "torn":
            del source.table._rows[found.record.key].parts[Part.MESSAGES][1]

    report = await copy_store(plain(source, clock), target, clock)

    assert (report.sessions, report.unreadable) == (2, 1)
    assert await texts(sealed(target.records, clock), ANN, "s") == ["q", "a"]
    assert sorted(await listed(sealed(target.records, clock), ANN)) == ["other", "s"]
    assert turn.created


async def test_what_was_equal_already_follows_the_source(clock: FakeClock) -> None:
    """A target that was restored from a backup of the source is filled further, not held for changed there."""
    source, target = plain(InMemoryRecords(), clock), plain(InMemoryRecords(), clock)
    await talk(source, ANN, "s", "q", "a")
    restored = RecordCopier(
        source.records, target.records, name="backup", policy=CopyPolicy(), clock=clock, chance=Random(1)
    )
    await restored.copy()

    await copy_store(source, target, clock, merge=True)
    await talk(source, ANN, "s", "more", "a")
    report = await copy_store(source, target, clock)

    assert (report.sessions, report.left) == (1, [])
