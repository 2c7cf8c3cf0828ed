"""Proof by raw bytes: of a person who was erased, no word and no name is left in what a backend keeps.

The same search finds every one of those words before, and another person's afterwards: it can fail.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
import pytest
import redis
from msgspec.structs import replace

from tenuto.errors import SessionNotFound
from tenuto.model import (
    AppendBatch,
    Changes,
    ForkRequest,
    IdempotencyKey,
    NewSession,
    Page,
    Producer,
    Retention,
    Rewrite,
    Scope,
    SearchQuery,
    Truncation,
    text_part,
    tool_call,
    tool_result,
)
from tenuto.model.memory import MEMORY_INDEX, VECTORS, Memory, MemoryKind, MemoryQuery
from tenuto.model.privacy import Mode, PrivacyPolicy
from tenuto.model.scope import session_key, site_key, speaker_tag
from tenuto.model.stored import Part
from tenuto.ports import RecordStore, Store, utc_now
from tenuto.privacy.compliance.compaction import CompactionStatus
from tenuto.privacy.compliance.service import PrivacyService
from tenuto.privacy.crypto.keyring import load_key_ring
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.recall import owner_cache, stored_index
from tenuto.recall.lexical import terms
from tenuto.stores.engine import Engine
from tenuto.stores.engine.codec import PLAIN
from tenuto.stores.engine.sealing import SealedCodecs
from tenuto.stores.engine.state import record_key
from tenuto.stores.postgres import PostgresRecords
from tenuto.stores.redis import RedisRecords
from tenuto.upkeep.memory_sweep import erase_chat_memories
from tests.backends import POSTGRES, REDIS, SQLITE, Backend, Place, engine_over, records_behind
from tests.clock import FakeClock
from tests.contract.full_traces import full_trace_of
from tests.internals import sqlite_writer
from tests.letter_memories import LetterEmbedder, memories_over, memory_texts
from tests.redactors import MASTER_KEY, redactor_over
from tests.samples import batch, begin, closing, fresh, says
from tests.servers import RedisCluster, RedisServer, start_redis
from tests.tasks import opened, tasks_over

Search = Callable[[], AsyncIterator[tuple[str, bytes]]]
"""Everything a backend keeps, as bytes, with the kind of place they are in."""


@dataclass(frozen=True)
class Proof:
    """A store, what it keeps, and in which kinds of places words that are stored, or were once, must be found."""

    store: Store
    search: Search
    holds: tuple[str, ...]
    held: tuple[str, ...]
    damage: Callable[[Store, Scope, str], Any]


class Marks:
    """Words that no text holds by chance, by what they stand for."""

    def __init__(self) -> None:
        self._made: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        return self._made.setdefault(name, f"zq{name}{secrets.token_hex(8)}")

    @property
    def all(self) -> set[str]:
        return set(self._made)

    def found_in(self, raw: bytes) -> set[str]:
        hexed = raw.lower()
        return {
            name for name, mark in self._made.items() if mark.encode() in raw or mark.encode().hex().encode() in hexed
        }


async def live(store: Store, scope: Scope, mark: Marks) -> None:
    """A turn with everything a turn may have, and state beside it."""
    words = replace(
        says("x"),
        parts=(text_part(mark("words")), tool_call("c", "look", {"for": mark("argument")})),
        metadata={"note": mark("note")},
        extra={"foreign": mark("extra")},
        speaker=mark("speaker"),
    )
    new = NewSession(title=mark("title"), context={"place": mark("context")}, metadata={"m": mark("metadata")})
    turn = await begin(store, scope, mark("session"), user_messages=(words,), create=new)
    trace = full_trace_of(turn, request=mark("request"), answer=mark("answer"), data={"x": mark("data")})
    reply = replace(says(mark("reply")), parts=(tool_result("c", [mark("output")]), text_part(mark("reply"))))
    await store.sessions.finish_turn(turn, replace(closing(trace=trace), reply=(reply,)))
    await store.sessions.patch(scope, mark("session"), Changes(attributes={mark("name"): mark("attribute")}))
    await store.sessions.append(
        scope, mark("session"), batch(mark("appended"), idempotency_key=IdempotencyKey(key="k", fingerprint="f"))
    )
    await store.sessions.append(scope, mark("session"), batch(mark("produced"), producer=Producer(id="p", seq=1)))
    await store.state.write_state(scope, "prefs", mark("key"), {"tone": mark("value")})
    await store.state.write_state(scope, mark("drawer"), "k", mark("remembered"))


async def leave_traces(proof: Proof, scope: Scope, mark: Marks, clock: FakeClock) -> None:
    """What was set aside, expired, and has words that were taken back."""
    store = proof.store
    broken, over, removed, edited = (mark(f"id{n}") for n in range(4))
    turn = await begin(store, scope, broken, mark("damaged"), create=NewSession(title=mark("damagedtitle")))
    await store.sessions.finish_turn(turn, closing("hi", trace=full_trace_of(turn, request=mark("damagedtrace"))))
    await proof.damage(store, scope, broken)
    with pytest.raises(SessionNotFound):
        await store.sessions.get(scope, broken)
    hour = NewSession(retention=Retention(idle=timedelta(hours=1)))
    await store.sessions.append(scope, over, batch(mark("expired"), create=hour))
    clock.advance(timedelta(hours=2))
    await store.sessions.append(scope, removed, batch(mark("deleted")))
    await store.sessions.delete(scope, removed)
    await store.sessions.append(scope, edited, batch(mark("reworded")))
    page = await store.sessions.messages(scope, edited, Page())
    redacted = replace(page.messages[0], parts=(text_part("[REDACTED]"),))
    await store.sessions.rewrite(scope, edited, Rewrite(messages=(redacted,)))


async def found(proof: Proof, mark: Marks) -> dict[str, set[str]]:
    """Which marks are where."""
    places: dict[str, set[str]] = {}
    async for kind, raw in proof.search():
        places.setdefault(kind, set()).update(mark.found_in(raw))
    return places


def on_disk(files: Iterable[Path]) -> list[tuple[str, bytes]]:
    return [("files", file.read_bytes()) for file in files if file.is_file()]


@asynccontextmanager
async def sqlite(place: Place) -> AsyncIterator[Proof]:
    async def search() -> AsyncIterator[tuple[str, bytes]]:
        assert (place.folder / "records.db-wal").exists()
        for item in on_disk(place.folder.iterdir()):
            yield item

    async with SQLITE.open(place) as store:
        assert isinstance(store, Engine)
        # Some builds of SQLite wipe what they delete, and some do not.
        await sqlite_writer(store).run_outside_transaction(
            lambda db, _: db.execute("PRAGMA secure_delete = OFF").fetchone()
        )
        yield Proof(store, search, ("files",), ("files",), _damage_of(SQLITE))


def in_redis(servers: Sequence[RedisServer]) -> Search:
    async def search() -> AsyncIterator[tuple[str, bytes]]:
        for server in servers:
            with redis.Redis(port=server.port, protocol=2) as client:
                for key in client.scan_iter(count=1000):
                    yield "keys", key
                    yield "keys", client.dump(key) or b""
            for item in on_disk(file for file in server.folder.rglob("*") if file.name != "server.conf"):
                yield item

    return search


@asynccontextmanager
async def redis_with_snapshots(place: Place) -> AsyncIterator[Proof]:
    """A server that keeps a log of commands and snapshots too. Compressed, a word could not be found in them."""
    with start_redis(fsync="no", rdbcompression="no", save="3600 1") as server:
        search = in_redis([server])

        async def saved() -> AsyncIterator[tuple[str, bytes]]:
            async for item in search():
                yield item
            assert (server.folder / "dump.rdb").exists()

        async def damage(of: Store, scope: Scope, session_id: str) -> None:
            await _damage_of(REDIS)(of, scope, session_id)
            server.call("SAVE")

        async with engine_over(await RedisRecords.open(server.url), place.clock) as store:
            yield Proof(store, saved, ("keys", "files"), ("files",), damage)


@asynccontextmanager
async def redis_cluster(place: Place) -> AsyncIterator[Proof]:
    cluster = place.server("redis_cluster")
    assert isinstance(cluster, RedisCluster)
    for node in cluster.nodes:
        node.call("CONFIG", "SET", "rdbcompression", "no")
    records = await RedisRecords.open(cluster.url, prefix=fresh("remains"))
    async with engine_over(records, place.clock) as store:
        yield Proof(store, in_redis(cluster.nodes), ("keys", "files"), ("files",), _damage_of(REDIS))


@asynccontextmanager
async def postgres(place: Place) -> AsyncIterator[Proof]:
    """Every row as the superuser sees it, and the samples of rows that ANALYZE keeps. Files are the server's matter."""
    admin = place.server("postgres").admin_url

    async def search() -> AsyncIterator[tuple[str, bytes]]:
        connection: asyncpg.Connection[Any] = await asyncpg.connect(admin)
        try:
            await connection.execute("ANALYZE")
            tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'contract'")
            assert len(tables) >= 2
            for (table,) in tables:
                for (row,) in await connection.fetch(f"SELECT kept::text FROM contract.{table} kept"):
                    yield "rows", row.encode()
            for (row,) in await connection.fetch("SELECT sample::text FROM pg_stats sample"):
                yield "samples", row.encode()
        finally:
            await connection.close()

    async with POSTGRES.open(place) as store:
        yield Proof(store, search, ("rows",), (), _damage_of(POSTGRES))


def _damage_of(backend: Backend) -> Callable[[Store, Scope, str], Any]:
    assert backend.damage is not None
    return backend.damage


TAKEN_BACK = {"id2", "deleted", "reworded"}
"""Marks of what is not stored any more when the person asks to be erased; files may still hold it."""

PROOFS: dict[str, Callable[[Place], AbstractAsyncContextManager[Proof]]] = {
    "sqlite": sqlite,
    "redis": redis_with_snapshots,
    "redis cluster": redis_cluster,
    "postgres": postgres,
}


@pytest.fixture(params=list(PROOFS.values()), ids=list(PROOFS))
async def proof(request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Proof]:
    async with request.param(Place(clock=clock, folder=tmp_path, server=request.getfixturevalue)) as opened:
        yield opened


async def test_nothing_of_an_erased_person_remains(proof: Proof, clock: FakeClock) -> None:
    theirs, others = Marks(), Marks()
    person, other = (Scope(tenant="acme", user=mark("user")) for mark in (theirs, others))
    for scope, mark in ((person, theirs), (other, others)):
        await live(proof.store, scope, mark)
        await leave_traces(proof, scope, mark, clock)
    before = await found(proof, theirs)

    erased = await proof.store.upkeep.erase(person)
    await proof.store.upkeep.compact()
    after, kept = await found(proof, theirs), await found(proof, others)

    assert all(before[place] >= theirs.all - TAKEN_BACK for place in proof.holds)
    assert all(before[place] >= TAKEN_BACK for place in proof.held)
    assert before.get("samples", set()) == set()  # They outlive their rows, so nothing may ever get there.
    assert (len(erased.removed_sessions), erased.quarantined, erased.states, erased.more) == (3, 1, 2, False)
    assert {place: names for place, names in after.items() if names} == {}
    assert all(kept[place] == others.all - TAKEN_BACK for place in proof.holds)


async def test_what_a_cap_evicted_from_a_group_does_not_remain(proof: Proof, clock: FakeClock) -> None:
    """Evicted messages are removed in batches, so their words may still be stored where nobody sees them."""
    theirs, others, sessions = Marks(), Marks(), proof.store.sessions
    group, talk, fork = Scope(tenant="acme", channel="lark", chat=fresh("room")), fresh("talk"), fresh("fork")
    capped = NewSession(retention=Retention(max_messages=4))
    for mark, count in ((theirs, 6), (others, 5)):
        for _ in range(count):
            said = (says(mark("words"), speaker=mark("user")),)
            await sessions.append(group, talk, AppendBatch(id=fresh("batch"), messages=said, create=capped))
    await sessions.fork(group, talk, ForkRequest(new_id=fork))
    await proof.store.upkeep.compact()  # Now it is in every kind of file that there is.
    before = await found(proof, theirs)

    office = PrivacyService(
        store=proof.store,
        redactor=redactor_over(proof.store, PrivacyPolicy()),
        erase=proof.store.upkeep.erase,
        clock=clock,
    )
    person = Scope(tenant="acme", user=theirs("user"))
    async for _ in office.erasing(person, by="otto"):
        pass
    after, kept = await found(proof, theirs), await found(proof, others)

    assert any(before.values())
    assert {place: names for place, names in after.items() if names} == {}
    assert any(kept.values())
    for session_id in (talk, fork):
        page = await sessions.messages(group, session_id, Page())
        assert [message.text for message in page.messages] == [others("words")] * 4


async def test_words_that_were_rewritten_do_not_remain(proof: Proof, clock: FakeClock) -> None:
    """Private data taken out of a message afterwards is out of the file too, once it is compacted."""
    mark = Marks()
    person = Scope(tenant="acme", user=mark("user"))
    await leave_traces(proof, person, mark, clock)

    await proof.store.upkeep.compact()

    places = await found(proof, mark)
    assert TAKEN_BACK.isdisjoint(set().union(*places.values()))
    assert all("user" in places[place] for place in proof.holds)


async def test_no_digest_of_words_remains_that_are_gone(proof: Proof) -> None:
    """By which a session is found: of an erased person, and of what was deleted, removed, rewritten or evicted."""
    store, (ann, bob) = proof.store, [Scope(tenant="acme", user=fresh("someone")) for _ in range(2)]
    names = ("erased", "deleted", "removed", "reworded", "evicted", "renamed", "kept")
    words = {name: "zq" + secrets.token_hex(8) for name in names}

    async def say(scope: Scope, *said: str, **new: Any) -> str:
        session_id = fresh("said")
        await store.sessions.append(scope, session_id, batch(*[words[name] for name in said], create=NewSession(**new)))
        return session_id

    await say(ann, "erased")
    deleted, removed, reworded = (
        await say(bob, "deleted"),
        await say(bob, "kept", "removed"),
        await say(bob, "reworded"),
    )
    capped = await say(bob, "evicted", "kept", title=words["renamed"], retention=Retention(max_messages=2))
    for scope, name in ((ann, "erased"), (bob, "kept")):
        assert (await store.sessions.search(scope, SearchQuery(text=words[name]))).unsearched == 0
    await store.upkeep.compact()  # Now it is in every kind of file that there is.
    (stems,) = zip(*map(terms, words.values()), strict=True)
    digests = dict(zip(words, PLAIN.digest_terms(stems, site_key(ann)), strict=True))
    before = await _which(proof, list(digests.values()))

    await store.upkeep.erase(ann)
    await store.sessions.delete(bob, deleted)
    await store.sessions.truncate(bob, removed, Truncation(after=1))
    (message,) = (await store.sessions.messages(bob, reworded, Page())).messages
    await store.sessions.rewrite(bob, reworded, Rewrite(messages=(replace(message, parts=(text_part("[REDACTED]"),)),)))
    await store.sessions.append(bob, capped, batch("tea"))
    await store.sessions.patch(bob, capped, Changes(title="tea"))
    assert len((await store.sessions.search(bob, SearchQuery(text=words["kept"]))).found) == 2
    await store.upkeep.compact()

    assert before == set(digests.values())
    assert await _which(proof, list(digests.values())) == {digests["kept"]}


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "encrypted"])
async def test_what_a_scan_took_out_of_several_sites_does_not_remain(proof: Proof, sealed: bool) -> None:
    """The bytes of every site go, not of the first one alone: of sealed ones, what was sealed."""
    # Servers are shared: no other test may have written the same.
    store, plain = proof.store, f"{fresh('lee')}@example.com"
    sites = [
        Scope(tenant=tenant, site=site, user="ann") for tenant, site in (("acme", ""), ("acme", "b"), ("evil", ""))
    ]
    ring = load_key_ring(key=MASTER_KEY)
    assert ring is not None
    assert isinstance(store, Engine)
    codecs = SealedCodecs(TenantCiphers(store=store.state, ring=ring), clock=utc_now)
    seen = Engine(store.records, chance=Random(2), codecs=codecs) if sealed else store
    for scope in sites:
        await seen.sessions.append(scope, "s", batch(f"write to {plain}"))
        await seen.state.write_state(scope, "facts", "mail", f"writes from {plain}")
    raw = [
        body for scope in sites for body in (await _stored_bodies(store.records, scope) if sealed else [plain.encode()])
    ]
    await store.upkeep.compact()  # Now it is in every kind of file that there is.
    before = await _which(proof, raw)

    redactor = redactor_over(seen, PrivacyPolicy(message=Mode.REDACT))
    office = PrivacyService(store=seen, redactor=redactor, erase=seen.upkeep.erase, clock=utc_now)
    on_postgres = isinstance(records_behind(store), PostgresRecords)
    *_, summary = [summary async for summary in office.scan_all(fix=True, by="otto")]

    assert before == set(raw)
    assert await _which(proof, raw) == set()
    assert (summary.fixed, summary.memories, len(summary.reports)) == (6, 3, 3)
    assert summary.compaction is (CompactionStatus.PARTLY if on_postgres else CompactionStatus.DONE)


async def test_nothing_of_an_erased_persons_tasks_remains(proof: Proof, clock: FakeClock) -> None:
    """Task, board, notes, and the list of deadlines that names whose they are; another person's stay."""
    theirs, others = Marks(), Marks()
    tasks = tasks_over(proof.store, clock)
    for mark in (theirs, others):
        scope = Scope(tenant="acme", user=mark("user"))
        task = await opened(tasks, scope, type=mark("type"), goal=mark("goal"))
        board, notes = tasks.board(scope, task.id), tasks.notes(scope, task.id, "agent")
        await board.write(mark("key"), {"said": mark("value")}, agent=mark("agent"))
        await board.lock("locked", agent=mark("holder"))
        await notes.write(mark("note"), mark("noted"))
    await proof.store.upkeep.compact()  # Now it is in every kind of file that there is.
    before = await found(proof, theirs)

    async def deadlines(person: Scope) -> dict[str, int]:
        return {"task_deadlines": await tasks.drop_user_deadlines(person)}

    office = PrivacyService(
        store=proof.store,
        redactor=redactor_over(proof.store, PrivacyPolicy()),
        erase=proof.store.upkeep.erase,
        clock=clock,
        elsewhere=(deadlines,),
    )
    person = Scope(tenant="acme", user=theirs("user"))
    *_, receipt = [receipt async for receipt in office.erasing(person, by="otto")]
    after, kept = await found(proof, theirs), await found(proof, others)

    assert all(before[place] == theirs.all for place in proof.holds)
    assert {place: names for place, names in after.items() if names} == {}
    assert all(kept[place] == others.all for place in proof.holds)
    assert receipt.counts["task_deadlines"] >= 2


async def test_nothing_of_an_erased_persons_memories_remains(
    proof: Proof, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts, subjects, superseded ones, vectors, logs, the stored index, and what a chat remembers of the person."""
    monkeypatch.setattr(owner_cache, "_AT_ONCE", 0)
    monkeypatch.setattr(stored_index, "BLOCK", 1)
    theirs, others = Marks(), Marks()
    team = Scope(tenant="acme", channel="lark", chat=fresh("team"))
    one, two = (memories_over(proof.store, clock, LetterEmbedder()) for _ in range(2))
    for mark in (theirs, others):
        scope = Scope(tenant="acme", user=mark("user"))
        await one.add(scope, f"I like {mark('forgotten')}.")
        await one.forget(scope, everything=True)
        await one.add(scope, f"I work at {mark('before')}.", subject=mark("subject"))
        clock.advance(timedelta(days=1))
        await one.add(scope, f"I work at {mark('after')}.", subject=mark("subject"))
        tag = speaker_tag("acme", mark("user"))
        said = Memory(
            id=mark("id"), kind=MemoryKind.FACT, text=f"I bring {mark('cake')}.", said_at=clock(), speaker=tag
        )
        await one.remember(team, (said,))
    person, other = (Scope(tenant="acme", user=mark("user")) for mark in (theirs, others))
    known = [await memory_texts(two, scope) for scope in (person, other, team)]
    vectors = await proof.store.state.list_state(person, VECTORS)
    for process in (one, two):
        await process.drain()
    indexed = [len(await proof.store.state.state_keys(scope, MEMORY_INDEX)) for scope in (person, other, team)]
    await proof.store.upkeep.compact()  # Now it is in every kind of file that there is.
    before = await found(proof, theirs)

    async def chats(whom: Scope) -> dict[str, int]:
        return await erase_chat_memories(proof.store, whom, lambda: fresh("epoch"))

    office = PrivacyService(
        store=proof.store,
        redactor=redactor_over(proof.store, PrivacyPolicy()),
        erase=proof.store.upkeep.erase,
        clock=clock,
        elsewhere=(chats,),
    )
    *_, receipt = [receipt async for receipt in office.erasing(person, by="otto")]
    after, kept = await found(proof, theirs), await found(proof, others)

    assert all(before[place] >= theirs.all - {"forgotten"} for place in proof.holds)
    assert (len(vectors), [len(each) for each in known]) == (2, [1, 1, 2])
    assert {place: names for place, names in after.items() if names} == {}
    assert all(kept[place] == others.all - {"forgotten"} for place in proof.holds)
    # Two memories, their vectors, the log, and the stored index.
    assert min(indexed) > 1
    assert (receipt.counts["states"], receipt.counts["chat_memories"]) == (5 + indexed[0], 1)
    left = [len(await proof.store.state.state_keys(scope, MEMORY_INDEX)) for scope in (person, other, team)]
    assert left == [0, indexed[1], 0]
    # Nor does another process answer from its copy.
    assert await memory_texts(two, person) == set()
    assert (await two.search(person, MemoryQuery(text="work"))).hits == ()
    assert [await memory_texts(two, scope) for scope in (other, team)] == [known[1], {f"I bring {others('cake')}."}]


async def _stored_bodies(records: RecordStore, scope: Scope) -> list[bytes]:
    """A part of the one message, and of what is remembered, as the backend has them."""
    page = await records.page(session_key(scope, "s"), Part.MESSAGES, 1, 1, 1)
    (value,) = await records.load_all([record_key(scope, "facts", "mail")])
    assert value is not None
    return [page.entries[0].body[20:40], value.head[20:40]]


async def _which(proof: Proof, wanted: Iterable[bytes]) -> set[bytes]:
    hexed = {body: body.hex().encode() for body in wanted}
    return {
        body
        async for _, raw in proof.search()
        for body, as_hex in hexed.items()
        if body in raw or as_hex in raw.lower()
    }
