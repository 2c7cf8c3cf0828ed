"""Encryption at rest over any store of records: what lies there, and what becomes of it without the right key."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from tenuto.errors import DecryptionFailed, IdempotencyKeyReused, SessionNotFound, StoreUnavailable
from tenuto.model import Changes, ForkRequest, NewSession, Page, Producer, Scope, SessionQuery, text_part
from tenuto.model.privacy import KEYS_NAMESPACE, Mode, PrivacyPolicy
from tenuto.model.scope import SYSTEM, session_key
from tenuto.model.stored import Entry, FoundRecord, Part, RecordChange, Refused
from tenuto.model.turn import ToolRun
from tenuto.ports import RecordStore
from tenuto.privacy.compliance.scan import Scanner
from tenuto.privacy.crypto.keyring import KeyRing, MasterKeys
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.stores.engine import Engine, PlainCodecs
from tenuto.stores.engine.codec import FORMAT, SEALED
from tenuto.stores.engine.sealing import SealedCodecs
from tenuto.stores.engine.state import EngineState
from tenuto.stores.memory import InMemoryRecords
from tests.backends import RING
from tests.clock import FakeClock
from tests.record_stores import RECORD_STORES, RecordBackend
from tests.redactors import OTHER_RING, redactor_over
from tests.samples import ACME, ANN, BOB, batch, begin, closing, once, says, talk, texts, trace_of, value_of

# The simulator seals as well, with keys of its own.
EVERY = [backend for backend in RECORD_STORES if backend.name not in ("simulated", "breaker")]
# What is sealed are bytes to a backend: a few of the tests suffice for those on servers.
LOCAL = [backend for backend in EVERY if backend.name in ("memory", "sqlite")]
on_every_backend = pytest.mark.parametrize("records", EVERY, indirect=True, ids=lambda backend: backend.name)


@pytest.fixture(params=LOCAL, ids=lambda backend: backend.name)
async def records(request: pytest.FixtureRequest) -> AsyncIterator[RecordStore]:
    backend: RecordBackend = request.param
    async with backend.open(request.getfixturevalue) as opened:
        yield opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Processes:
    """Opens engines over the same records, as further processes would."""

    def __init__(self, records: RecordStore, clock: FakeClock) -> None:
        self.records = records
        self.clock = clock
        self.plain_state = EngineState(records, PlainCodecs(), Random(9))

    def ciphers(self, ring: KeyRing = RING) -> TenantCiphers:
        return TenantCiphers(store=self.plain_state, ring=ring, clock=self.clock)

    def sealed(self, ring: KeyRing = RING, *, sealing: bool = True, records: RecordStore | None = None) -> Engine:
        codecs = SealedCodecs(self.ciphers(ring), clock=self.clock, sealing=sealing)
        return Engine(records or self.records, clock=self.clock, chance=Random(3), codecs=codecs)

    def plain(self) -> Engine:
        return Engine(self.records, clock=self.clock, chance=Random(4))

    async def replace_bodies(self, session_id: str, *, head: bytes | None = None, puts: Sequence[Entry] = ()) -> None:
        """Write into a record as an attacker could who can write to the backend."""
        key = session_key(ANN, session_id)
        stored = await self.records.load(key, 0)
        assert stored is not None
        change = RecordChange(
            key=key,
            if_revision=stored.revision,
            revision=stored.revision + 1,
            head=stored.head if head is None else head,
            puts=tuple(puts),
        )
        assert await self.records.commit([change]) is None

    async def message(self, session_id: str, number: int) -> Entry:
        page = await self.records.page(session_key(ANN, session_id), Part.MESSAGES, number, number, 1)
        return page.entries[0]


@pytest.fixture
def processes(records: RecordStore, clock: FakeClock) -> Processes:
    return Processes(records, clock)


# What lies in the store

WORDS = [f".{animal}." for animal in ("quokka", "numbat", "bilby", "dibbler", "potoroo", "bettong", "袋熊", "glider")]


async def stored_bodies(records: RecordStore) -> list[tuple[FoundRecord, bytes]]:
    """Every body of every record."""
    bodies = []
    for found in await records.scan(b"", 1000):
        entries = [(await records.page(found.record.key, part, 0, 2**60, 1000)).entries for part in Part]
        bodies += [(found, body) for body in (found.record.head, found.record.profile) if body]
        bodies += [(found, entry.body) for part in entries for entry in part]
    return bodies


@on_every_backend
@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "plain"])
async def test_no_word_lies_in_the_store(processes: Processes, sealed: bool) -> None:
    """Without encryption every marked word is there, so that finding none means something."""
    engine = processes.sealed() if sealed else processes.plain()
    text, title, context, tool, output, state, reply, producer = WORDS
    new = NewSession(title=title, context={"k": context})
    words = (says("", parts=(text_part(text),)),)
    turn = await begin(engine, ANN, "s", user_messages=words, create=new, idempotency_key=once("k"))
    ran = ToolRun(name="search", arguments={"q": tool}, output=[output])
    await engine.sessions.finish_turn(turn, closing(reply, trace=trace_of(turn, tools=(ran,))))
    await engine.sessions.append(ANN, "s", batch(producer, producer=Producer(id="p", seq=1)))
    await engine.state.write_state(ANN, "prefs", "k", {"v": state})
    await engine.state.write_state(SYSTEM, "api-keys", "id", {"hash": "abc"})

    bodies = await stored_bodies(processes.records)
    held = b"\n".join(body for _, body in bodies).decode(errors="replace")
    titles = {found.index.title for found, _ in bodies}

    assert [word for word in WORDS if word in held] == ([] if sealed else WORDS)
    assert titles == ({""} if sealed else {"", title})
    kept_plain = {found.index.namespace for found, body in bodies if body[:1] == FORMAT}
    assert kept_plain == ({"api-keys", "privacy.keys", "privacy.tenants"} if sealed else {"", "prefs", "api-keys"})
    assert await texts(processes.sealed() if sealed else engine, ANN, "s") == [text, reply, producer]


async def test_keys_are_made_by_writing_alone(processes: Processes) -> None:
    engine = processes.sealed()

    with pytest.raises(SessionNotFound):
        await engine.sessions.get(ANN, "s")
    assert (await engine.sessions.list(ANN, SessionQuery())).sessions == ()
    assert await engine.state.read_state(ANN, "prefs", "k") is None

    assert await processes.records.scan(b"", 9) == ()


async def test_ciphers_may_keep_their_keys_in_the_state_they_seal(processes: Processes) -> None:
    engine = processes.sealed()
    await engine.state.write_state(ACME, KEYS_NAMESPACE, "other", "x")

    assert await value_of(processes.plain(), ACME, KEYS_NAMESPACE, "other") == "x"


# Without the right key


async def test_a_session_without_its_key_is_an_error_and_is_not_set_aside(processes: Processes) -> None:
    engine = processes.sealed()
    turn = await begin(engine, ANN, "s", "question")
    await engine.sessions.finish_turn(turn, closing("answer", trace=trace_of(turn, request="q")))
    await engine.state.write_state(ANN, "prefs", "k", "warm")
    wrong = processes.sealed(OTHER_RING)

    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: wrong.sessions.get(ANN, "s"),
        lambda: wrong.sessions.messages(ANN, "s", Page()),
        lambda: wrong.sessions.list(ANN, SessionQuery(title="x")),
        lambda: wrong.traces.trace(ANN, "s", 1),
        lambda: wrong.state.read_state(ANN, "prefs", "k"),
        lambda: wrong.sessions.append(ANN, "s", batch("more")),
        lambda: wrong.sessions.append(ANN, "new", batch("more")),
        lambda: begin(wrong, ANN, "s", "more"),
        lambda: wrong.sessions.patch(ANN, "s", Changes(title="x")),
        lambda: wrong.state.write_state(ANN, "prefs", "k", 1),
    ]
    for call in calls:
        with pytest.raises(DecryptionFailed, match="needs a master key"):
            await call()
    with pytest.raises(SessionNotFound):
        await wrong.sessions.get(ANN, "other")

    with pytest.raises(DecryptionFailed, match="no key is configured"):
        await processes.plain().sessions.get(ANN, "s")
    assert await texts(processes.sealed(), ANN, "s") == ["question", "answer"]


async def test_upkeep_needs_no_key(processes: Processes) -> None:
    """An operator can erase a user whose keys are lost."""
    await talk(processes.sealed(), ANN, "s", "question", "answer")
    await talk(processes.sealed(), BOB, "t", "question", "answer")
    wrong = processes.sealed(OTHER_RING)

    erased = await wrong.upkeep.erase(ANN)
    evicted = await wrong.upkeep.evict(ANN, keep=0)

    assert ([gone.session_id for gone in erased.removed_sessions], erased.messages) == (["s"], 2)
    assert [gone.session_id for gone in evicted] == ["t"]


async def test_a_session_that_does_not_open_is_hidden_from_others_and_can_be_deleted(processes: Processes) -> None:
    await talk(processes.sealed(), ANN, "s", "question", "answer")
    wrong = processes.sealed(OTHER_RING)

    for call in (
        lambda: wrong.sessions.get(BOB, "s"),
        lambda: begin(wrong, BOB, "s", "hello"),
        lambda: wrong.sessions.delete(BOB, "s"),
        lambda: wrong.sessions.delete(ANN, "other"),
    ):
        with pytest.raises(SessionNotFound):
            await call()
    await wrong.sessions.delete(ANN, "s")

    with pytest.raises(SessionNotFound):
        await processes.sealed().sessions.get(ANN, "s")


async def test_retries_store_nothing_where_an_older_master_key_is_missing(processes: Processes) -> None:
    await talk(processes.sealed(), ANN, "s", "hello", "hi")
    both = KeyRing(keys=MasterKeys(current=OTHER_RING.current("acme"), others=(RING.current("acme"),)))
    await processes.ciphers(both).rewrap(SYSTEM)
    await processes.ciphers(both).renew(ANN)
    without_the_older = processes.sealed(OTHER_RING)

    for _ in range(3):
        with pytest.raises(DecryptionFailed, match="needs a master key"):
            await begin(without_the_older, ANN, "s", "again")

    assert await texts(processes.sealed(both), ANN, "s") == ["hello", "hi"]
    assert (await begin(without_the_older, ANN, "new", "question")).created


async def test_what_was_sealed_with_a_destroyed_key_is_never_shown(processes: Processes, clock: FakeClock) -> None:
    await talk(processes.sealed(), ANN, "s", "hello", "hi", create=NewSession(title="Title"))
    await processes.sealed().state.write_state(ANN, "prefs", "k", "warm")
    await processes.ciphers().destroy(ANN)
    after = processes.sealed()
    await after.sessions.append(ANN, "new", batch("life goes on"))

    with pytest.raises(DecryptionFailed):
        await after.sessions.get(ANN, "s")
    with pytest.raises(DecryptionFailed):
        await after.state.read_state(ANN, "prefs", "k")
    titles = {one.id: one.title for one in (await after.sessions.list(ACME, SessionQuery())).sessions}
    with pytest.raises(DecryptionFailed):
        await after.state.write_state(ANN, "prefs", "k", "cold", if_version=1)
    replaced = await after.state.write_state(ANN, "prefs", "k", "cold")

    assert titles == {"s": "[SEALED]", "new": ""}
    assert (await after.state.read_state(ANN, "prefs", "k")) == replaced
    assert replaced.version > 2**20


@pytest.mark.parametrize("what", ["session", "trace", "listing", "value"])
async def test_keys_that_another_process_added_are_found_at_once(processes: Processes, what: str) -> None:
    """Also by a process that has just read the keys."""
    await talk(processes.sealed(), ANN, "s", "hello", "hi")
    await processes.sealed().state.write_state(ANN, "prefs", "k", "warm")
    reader = processes.sealed()
    assert await value_of(reader, ANN, "prefs", "k") == "warm"
    await processes.ciphers().renew(ANN)
    renewed = processes.sealed()
    turn = await begin(renewed, ANN, "s", "again")
    await renewed.sessions.finish_turn(turn, closing("indeed", trace=trace_of(turn, request="q")))
    await renewed.sessions.patch(ANN, "s", Changes(title="New"))
    await renewed.state.write_state(ANN, "prefs", "k", "cold")

    match what:
        case "session":
            assert await texts(reader, ANN, "s") == ["hello", "hi", "again", "indeed"]
        case "trace":
            assert [trace.request for trace in await reader.traces.traces(ANN, "s")] == ["q"]
        case "listing":
            assert [one.title for one in (await reader.sessions.list(ANN, SessionQuery())).sessions] == ["New"]
        case _:
            assert await value_of(reader, ANN, "prefs", "k") == "cold"


async def test_keys_are_trusted_for_a_minute_and_longer_while_the_store_is_away(
    processes: Processes, clock: FakeClock
) -> None:
    """What a journal acknowledges in an outage is sealed, too."""
    ciphers = processes.ciphers()
    codecs = SealedCodecs(ciphers, clock=clock)
    codec = await codecs.load(ANN, writing=True)
    assert codecs.ready(BOB) is codec
    clock.advance(timedelta(minutes=1))
    assert codecs.ready(ANN) is None

    class Away(TenantCiphers):
        async def cipher_for_opening(self, scope: Scope, *, refresh: bool = False) -> Any:
            raise StoreUnavailable

    away = SealedCodecs(Away(store=processes.plain_state, ring=RING, clock=clock), clock=clock)
    with pytest.raises(StoreUnavailable):
        await away.load(ANN)
    ciphers.__class__ = Away

    assert await codecs.load(ANN, writing=True) is codec


class LosesOneAnswer(InMemoryRecords):
    """Makes a commit and does not answer, once."""

    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = table
        self.loses = False
        self.after: Callable[[], None] = lambda: None

    def commit(self, changes: Sequence[RecordChange]) -> Future[Refused | None]:
        done = super().commit(changes)
        if not self.loses:
            return done
        self.loses = False
        self.after()
        lost: Future[Refused | None] = get_running_loop().create_future()
        lost.set_exception(StoreUnavailable())
        return lost


async def test_a_commit_in_doubt_that_does_not_open_is_not_made_again(clock: FakeClock) -> None:
    """It may have been made: the caller learns that, and the call is not sent again with newer keys."""
    table = InMemoryRecords().table
    records = LosesOneAnswer(table)
    processes = Processes(records, clock)
    engine = processes.sealed()
    await engine.sessions.append(ANN, "s", batch("first"))
    heads = []

    def spoil() -> None:
        row = table._rows[session_key(ANN, "s")]
        heads.append(row.head)
        row.head = SEALED + bytes(60)

    records.loses, records.after = True, spoil
    with pytest.raises(StoreUnavailable, match="does not open"):
        await engine.sessions.append(ANN, "s", batch("second"))
    table._rows[session_key(ANN, "s")].head = heads[0]

    assert await texts(processes.sealed(), ANN, "s") == ["first", "second"]


# In the wrong place


async def test_bodies_in_another_place_do_not_open(processes: Processes) -> None:
    engine = processes.sealed()
    for name in "ab":
        await engine.sessions.append(ANN, name, batch(f"one of {name}", f"two of {name}"))
    await engine.sessions.fork(ANN, "b", ForkRequest(new_id="f", at=1))
    await engine.sessions.append(ANN, "f", batch("of f"))
    stolen = await processes.records.load(session_key(ANN, "a"), 0)
    assert stolen is not None
    foreign, swapped = await processes.message("a", 1), await processes.message("b", 2)

    table: list[tuple[str, dict[str, Any]]] = [
        ("b", {"head": stolen.head}),
        ("b", {"puts": (foreign,)}),
        ("b", {"puts": (Entry(part=Part.MESSAGES, number=1, body=swapped.body),)}),
        ("f", {"puts": (foreign,)}),
        ("f", {"puts": (swapped,)}),  # Behind the branch.
    ]
    for name, bodies in table:
        before = await processes.records.load(session_key(ANN, name), 9)
        assert before is not None
        await processes.replace_bodies(name, **bodies)
        for _ in range(2):
            with pytest.raises(DecryptionFailed):
                await begin(processes.sealed(), ANN, name, "again")
        await processes.replace_bodies(name, head=before.head, puts=before.messages)
    assert await texts(processes.sealed(), ANN, "f") == ["one of b", "of f"]
    assert await texts(processes.sealed(), ANN, "b") == ["one of b", "two of b"]


@on_every_backend
async def test_forks_of_forks_open_for_generations(processes: Processes) -> None:
    engine = processes.sealed()
    await talk(engine, ANN, "s0", "q0", "a0")
    await engine.sessions.patch(ANN, "s0", Changes(title="First", attributes={"c": 1}))
    for number in range(5):
        await engine.sessions.fork(ANN, f"s{number}", ForkRequest(new_id=f"s{number + 1}"))
        await talk(engine, ANN, f"s{number + 1}", f"q{number + 1}", f"a{number + 1}")
        await engine.sessions.delete(ANN, f"s{number}")
    reader = processes.sealed()

    session = await reader.sessions.get(ANN, "s5")

    assert (session.title, session.attributes) == ("First", {"c": 1})
    assert await texts(reader, ANN, "s5") == [f"{who}{n}" for n in range(6) for who in "qa"]


# Listings, and switching


async def test_a_head_that_was_changed_is_listed_as_such_and_hides_no_other(processes: Processes) -> None:
    engine = processes.sealed()
    for name in "ab":
        await engine.sessions.append(ANN, name, batch("hello", create=NewSession(title=name, context={"k": name})))
    stolen = await processes.records.load(session_key(ANN, "a"), 0)
    assert stolen is not None
    await processes.replace_bodies("b", head=stolen.head)
    reader = processes.sealed()

    shown = (await reader.sessions.list(ACME, SessionQuery())).sessions
    found = (await reader.sessions.list(ACME, SessionQuery(title="a"))).sessions

    assert {one.id: (one.title, one.context) for one in shown} == {"a": ("a", {"k": "a"}), "b": ("[SEALED]", {})}
    assert [one.id for one in found] == ["a"]


async def test_a_search_by_title_pages_as_the_plain_one_does(processes: Processes, clock: FakeClock) -> None:
    plain = Engine(InMemoryRecords(), clock=clock, chance=Random(5))
    sealed = processes.sealed()
    for number in range(45):
        title = "Wombat talk" if number % 3 == 0 else "Other"
        for engine in (plain, sealed):
            await engine.sessions.append(ANN, f"s{number}", batch(create=NewSession(title=title)))

    async def pages(engine: Engine) -> list[list[str]]:
        found, cursor = [], None
        while True:
            page = await engine.sessions.list(ANN, SessionQuery(title="wOMBAT", limit=4, cursor=cursor))
            found.append([session.id for session in page.sessions])
            cursor = page.cursor
            if cursor is None:
                return found

    assert await pages(sealed) == await pages(plain)
    assert [len(page) for page in await pages(sealed)] == [4, 4, 4, 3]


async def test_encryption_is_switched_on_and_off_over_what_is_there(processes: Processes) -> None:
    """A repeated request is known across the switch, too."""
    plain = processes.plain()
    await talk(plain, ANN, "s", "plain question", "plain answer", create=NewSession(title="Plain"))
    await plain.sessions.append(ANN, "keyed", batch("hello", idempotency_key=once("k", "body")))
    await plain.state.write_state(ANN, "prefs", "k", "plain")

    on = processes.sealed()
    await talk(on, ANN, "s", "sealed question", "sealed answer")
    await talk(on, ANN, "t", "q", "a", create=NewSession(title="Also plain"))
    again = await on.sessions.append(ANN, "keyed", batch("hello", idempotency_key=once("k", "body")))
    with pytest.raises(IdempotencyKeyReused):
        await on.sessions.append(ANN, "keyed", batch("x", idempotency_key=once("k", "another body")))
    assert await value_of(on, ANN, "prefs", "k") == "plain"
    off = processes.sealed(sealing=False)
    await talk(off, ANN, "s", "third question", "third answer")

    marks = [(await processes.message("s", number)).body[:1] for number in range(1, 7)]
    assert marks == [FORMAT, FORMAT, SEALED, SEALED, FORMAT, FORMAT]
    for engine in (processes.sealed(), processes.sealed(sealing=False)):
        assert len(await texts(engine, ANN, "s")) == 6
        found = (await engine.sessions.list(ANN, SessionQuery(title="plain"))).sessions
        assert sorted(one.id for one in found) == ["s", "t"]
    assert again.duplicate


async def test_tenants_have_keys_of_their_own(processes: Processes) -> None:
    eve = Scope(tenant="evil", user="eve")
    engine = processes.sealed()
    for scope in (ANN, eve):
        await engine.sessions.append(scope, "s", batch("hello"))
    await processes.ciphers().destroy(eve)
    reader = processes.sealed()

    with suppress(DecryptionFailed):
        pytest.fail(f"opened: {await texts(reader, eve, 's')}")
    assert await texts(reader, ANN, "s") == ["hello"]


async def test_a_privacy_scan_mends_what_opens_and_counts_what_does_not(processes: Processes) -> None:
    engine = processes.sealed()
    for name in "abc":
        await engine.sessions.append(ANN, name, batch("write to ann@acme.org", "done"))
    swapped = await processes.message("b", 2)
    await processes.replace_bodies("b", puts=(Entry(part=Part.MESSAGES, number=1, body=swapped.body),))
    reader = processes.sealed()
    policy = PrivacyPolicy(message=Mode.REDACT)

    *_, report = [
        report async for report in Scanner(store=reader, redactor=redactor_over(reader, policy)).scan(ACME, fix=True)
    ]

    assert (report.sessions, report.unreadable, report.fixed, report.total) == (2, 1, 2, 2)
    for name in "ac":
        assert await texts(processes.sealed(), ANN, name) == ["write to [REDACTED_EMAIL]", "done"]
