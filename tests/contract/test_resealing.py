"""Stored records sealed again: under a new key, from plain to sealed and back, while servers go on."""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from random import Random

import pytest
from msgspec.structs import replace

from tenuto.errors import Conflict
from tenuto.model import Changes, ForkRequest, NewSession, Page, Retention, Scope, SessionQuery
from tenuto.model.privacy import KEYS_ENTRY, KEYS_NAMESPACE, VAULT
from tenuto.model.scope import SYSTEM, session_key
from tenuto.model.stored import FoundRecord, Part, RecordChange, Refused
from tenuto.ports import RecordStore
from tenuto.privacy.crypto.keyring import KeyRing
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.stores.copy_reports import COPIES
from tenuto.stores.engine import Engine, PlainCodecs
from tenuto.stores.engine import resealing as module
from tenuto.stores.engine.codec import FORMAT, SEALED
from tenuto.stores.engine.resealing import Resealer, ResealReport
from tenuto.stores.engine.sealing import SealedCodecs
from tenuto.stores.engine.state import EngineState
from tenuto.stores.memory import InMemoryRecords
from tenuto.stores.sealed_state import has_sealed_records, mark_sealed
from tests.backends import RING, damage_row
from tests.clock import FakeClock
from tests.record_stores import RECORD_STORES, RecordBackend
from tests.redactors import OTHER_RING
from tests.samples import ACME, ANN, BOB, EVE, batch, talk, texts, value_of
from tests.store_copies import check_goes_on, copy_store, fill

# A cluster walks as its nodes do.
WALKED = [backend for backend in RECORD_STORES if backend.name in ("memory", "sqlite", "redis", "postgres")]
TENANTS = ("acme", "evil", SYSTEM.tenant)
PLAIN_ALWAYS = {KEYS_NAMESPACE, "privacy.tenants", "encryption", VAULT, COPIES}


@pytest.fixture(params=WALKED, ids=lambda backend: backend.name)
async def records(request: pytest.FixtureRequest) -> AsyncIterator[RecordStore]:
    backend: RecordBackend = request.param
    async with backend.open(request.getfixturevalue) as opened:
        yield opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that logs take several commits, and stores several pages."""
    monkeypatch.setattr(module, "_ENTRIES", 300)
    monkeypatch.setattr(module, "_RECORDS", 5)


class Installation:
    """Records with keys, and the processes that use them."""

    def __init__(self, records: RecordStore, clock: FakeClock) -> None:
        self.records = records
        self.clock = clock
        self.state = EngineState(records, PlainCodecs(), Random(9))

    def ciphers(self, ring: KeyRing = RING) -> TenantCiphers:
        return TenantCiphers(store=self.state, ring=ring, clock=self.clock)

    def codecs(self, ring: KeyRing = RING, *, sealing: bool = True) -> SealedCodecs:
        return SealedCodecs(self.ciphers(ring), clock=self.clock, sealing=sealing)

    def engine(self, *, sealing: bool = True) -> Engine:
        return Engine(self.records, clock=self.clock, chance=Random(3), codecs=self.codecs(sealing=sealing))

    async def reseal(self, *, sealing: bool = True) -> ResealReport:
        return await Resealer(self.records, state=self.state, codecs=self.codecs(sealing=sealing)).run()

    async def marks(self) -> dict[bytes, int]:
        """How many bodies begin with each mark and data key, without those that are always plain."""
        marks = dict[bytes, int]()
        for found in await self.records.scan(b"", 1000):
            key = found.record.key
            pages = [(await self.records.page(key, part, 0, 2**60, 10_000)).entries for part in Part]
            bodies = [found.record.head, found.record.profile, *[entry.body for page in pages for entry in page]]
            for body in bodies:
                if body and found.index.namespace not in PLAIN_ALWAYS:
                    mark = body[:1] + (body[1:9] if body[:1] == SEALED else b"")
                    marks[mark] = marks.get(mark, 0) + 1
        return marks

    async def key_names(self) -> set[bytes]:
        """The data keys in use."""
        names = set()
        for tenant in TENANTS:
            entry = await self.state.read_state(Scope(tenant=tenant), KEYS_NAMESPACE, KEYS_ENTRY)
            if entry is not None:
                names.add(SEALED + bytes.fromhex(entry.value["current"]))
        return names


async def write(engine: Engine, clock: FakeClock) -> None:
    """Records of every kind, one with a log of several pages."""
    whole = NewSession(retention=Retention(max_messages=None))
    await engine.sessions.append(EVE, "whole", batch(*map(str, range(700)), create=whole))
    await fill(engine, clock)


@pytest.fixture
def place(records: RecordStore, clock: FakeClock) -> Installation:
    return Installation(records, clock)


async def test_records_are_sealed_renewed_and_made_plain_again(place: Installation, clock: FakeClock) -> None:
    """Everything reads as before at each step, and a second run has nothing to do."""
    await mark_sealed(place.state)
    await write(place.engine(sealing=False), clock)
    await place.state.write_state(ACME, VAULT, "s", {"held": {}})
    await place.state.write_state(ACME, COPIES, "s", [1])
    assert {*await place.marks()} == {FORMAT}

    sealed = await place.reseal()
    names = await place.key_names()
    assert {*await place.marks()} == names
    titles = {found.index.title for found in await place.records.scan(b"", 100)}
    for tenant in TENANTS:
        await place.ciphers().renew(Scope(tenant=tenant))
    renewed = await place.reseal()
    assert {*await place.marks()} == await place.key_names()
    assert not names & await place.key_names()
    again = await place.reseal()
    assert await has_sealed_records(place.state)
    plain = await place.reseal(sealing=False)

    assert {*await place.marks()} == {FORMAT}
    assert (renewed.written, again.written, plain.written) == (sealed.written, 0, sealed.written)
    assert (titles, sealed.vaults, sealed.unopened, sealed.is_complete) == ({""}, 1, 0, True)
    assert not await has_sealed_records(place.state)
    without_a_key = Engine(place.records, clock=clock, chance=Random(4))
    found = await without_a_key.sessions.list(ANN, SessionQuery(title="ärger"))
    assert [session.id for session in found.sessions] == ["talk"]
    await check_goes_on(without_a_key, "plain again")


async def test_what_was_sealed_again_goes_on(clock: FakeClock) -> None:
    """Also where a fork has messages from a session that is gone, and a server holds what it has read before."""
    place = Installation(InMemoryRecords(), clock)
    server = place.engine(sealing=False)
    await write(server, clock)
    await server.sessions.fork(ANN, "talk", ForkRequest(new_id="branch of talk"))

    await place.reseal()
    await place.ciphers().renew(ANN)
    await place.engine().sessions.fork(ANN, "branch of talk", ForkRequest(new_id="twig"))
    await place.engine().sessions.delete(ANN, "branch of talk")
    await place.reseal()

    server.cache.on_change(None, 0)  # As its feed tells.
    await check_goes_on(place.engine(), "sealed")
    assert await texts(place.engine(), ANN, "twig") == ["When?", "At nine.", "And now?"]
    assert (await server.sessions.messages(BOB, "branch", Page())).messages[-1].text == "a2"


class Interrupted(InMemoryRecords):
    """Does something else before each of its commits."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[Sequence[RecordChange]], None] = lambda changes: None

    def commit(self, changes: Sequence[RecordChange]) -> Future[Refused | None]:
        self.before(changes)
        return super().commit(changes)


class PowerCut(Exception):
    """The process ends here."""


@pytest.mark.parametrize("at", [1, 6, 10, 16, 18, 20])
async def test_a_run_that_ends_anywhere_is_resumed(clock: FakeClock, at: int) -> None:
    records = Interrupted()
    place = Installation(records, clock)
    await write(place.engine(sealing=False), clock)
    made = list[None]()

    def cut(changes: Sequence[RecordChange]) -> None:
        made.append(None)
        if len(made) == at:
            raise PowerCut

    records.before = cut
    with pytest.raises(PowerCut):
        await place.reseal()
    records.before = lambda changes: None
    assert await texts(place.engine(), EVE, "whole") == [*map(str, range(700))]
    rest = await place.reseal()

    assert rest.resumed is (at > 16)
    assert {*await place.marks()} == await place.key_names()
    assert rest.is_complete
    await check_goes_on(place.engine(), "resumed")


async def test_a_run_to_another_end_begins_at_the_beginning(clock: FakeClock) -> None:
    records = Interrupted()
    place = Installation(records, clock)
    await write(place.engine(sealing=False), clock)
    made = list[None]()

    def cut(changes: Sequence[RecordChange]) -> None:
        made.append(None)
        if len(made) == 18:
            raise PowerCut

    records.before = cut
    with pytest.raises(PowerCut):
        await place.reseal()
    records.before = lambda changes: None
    assert len(await place.marks()) > 1

    report = await place.reseal(sealing=False)

    assert (report.resumed, {*await place.marks()}) == (False, {FORMAT})


class Meets(InMemoryRecords):
    """Does something once, while a run is at its last page."""

    def __init__(self) -> None:
        super().__init__()
        self.meet: Callable[[], Awaitable[object]] | None = None

    async def scan(self, after: bytes, limit: int) -> tuple[FoundRecord, ...]:
        page = await super().scan(after, limit)
        if len(page) < limit and self.meet is not None:
            meet, self.meet = self.meet, None
            await meet()
        return page


async def test_a_run_begins_anew_when_a_key_is_added(clock: FakeClock) -> None:
    records = Meets()
    place = Installation(records, clock)
    await write(place.engine(), clock)
    records.meet = lambda: place.ciphers().renew(ANN)

    report = await place.reseal()

    assert (report.restarts, {*await place.marks()}) == (1, await place.key_names())


async def test_a_run_ends_where_another_one_has_begun(clock: FakeClock) -> None:
    records = Meets()
    place = Installation(records, clock)
    await write(place.engine(sealing=False), clock)

    async def another() -> None:
        await place.state.write_state(SYSTEM, "encryption", "resealing", {"sealing": True})

    records.meet = another
    with pytest.raises(Conflict, match="another process"):
        await place.reseal()


async def test_servers_go_on_meanwhile(clock: FakeClock) -> None:
    """What they store between the reading of a record and its commit is kept."""
    records = Interrupted()
    place = Installation(records, clock)
    server = place.engine(sealing=False)
    await talk(server, ANN, "s", "q", "a")
    await server.state.write_state(ANN, "prefs", "k", 1)
    key, said = session_key(ANN, "s"), list[int]()

    def go_on(changes: Sequence[RecordChange]) -> None:
        if changes[0].key == key and not said:
            said.append(1)
            stored = records.table.load(key, 0)
            assert stored is not None
            change = RecordChange(
                key=key,
                if_revision=stored.revision,
                revision=stored.revision + 1,
                head=stored.head,
                deadline=2 * 10**15,
            )
            assert records.table.commit([change]) is None

    records.before = go_on
    report = await place.reseal()

    stored = records.table.load(key, 0)
    assert stored is not None
    assert (said, stored.deadline, report.written, report.is_complete) == ([1], 2 * 10**15, 2, True)
    assert await texts(place.engine(), ANN, "s") == ["q", "a"]


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_a_copy_sees_what_was_sealed_again(clock: FakeClock, busy: bool) -> None:
    """Also where the head was plain before and after, and a server changed the record in between."""
    records, copied = Interrupted(), InMemoryRecords()
    place = Installation(records, clock)
    source, target = place.engine(sealing=False), Engine(copied, clock=clock, chance=Random(8))
    await talk(place.engine(), ANN, "s", "sealed", "a")
    await source.sessions.patch(ANN, "s", Changes(title="Plain"))
    await copy_store(source, target, clock)
    commits = list[int]()

    def go_on(changes: Sequence[RecordChange]) -> None:
        if changes[0].key == session_key(ANN, "s"):
            commits.append(1)
            if busy and len(commits) == 2:
                assert records.table.commit([replace(changes[0], index=None, profile=None)]) is None

    records.before = go_on
    await place.reseal(sealing=False)
    records.before = lambda changes: None
    await copy_store(source, target, clock)

    assert len(commits) == 2 + busy
    assert await texts(target, ANN, "s") == ["sealed", "a"]


async def test_what_cannot_be_sealed_again_is_counted_and_the_rest_is_done(clock: FakeClock) -> None:
    """A tenant without its key, a damaged record, a value of a site of which nothing else is known."""
    records = InMemoryRecords()
    place = Installation(records, clock)
    await mark_sealed(place.state)
    await talk(place.engine(), ANN, "s", "q", "a")
    other = Engine(records, clock=clock, chance=Random(3), codecs=place.codecs(OTHER_RING))
    await talk(other, EVE, "t", "q", "a")
    await talk(place.engine(sealing=False), BOB, "damaged", "q", "a")
    damage_row(records, session_key(BOB, "damaged"))
    nowhere = Scope(tenant="acme", site="attic")
    await place.engine(sealing=False).state.write_state(nowhere, "prefs", "k", 1)
    alone = Scope(tenant="has no session")
    await place.engine().state.write_state(alone, "prefs", "k", 1)

    report = await place.reseal(sealing=False)

    assert (report.unopened, report.unreadable, report.unknown, report.is_complete) == (1, 1, 1, False)
    assert list(report.failures) == ["evil"]
    assert "needs a master key" in report.failures["evil"]
    assert await texts(Engine(records, clock=clock, chance=Random(4)), ANN, "s") == ["q", "a"]
    assert await texts(other, EVE, "t") == ["q", "a"]
    assert await value_of(place.engine(), nowhere, "prefs", "k") == 1
    assert await value_of(Engine(records, clock=clock, chance=Random(4)), alone, "prefs", "k") == 1
    assert await has_sealed_records(place.state), "the store must not be opened without a key yet"
    await other.sessions.append(EVE, "t", batch("more"))
