"""What records in Redis do beyond the port: the feed's revisions, and places in the indexes around crashes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import nullcontext

import pytest
from msgspec.structs import replace

from tenuto.errors import InvalidSetting, SessionCorrupt, StoreFull, StoreRejected, StoreUnavailable, Unavailable
from tenuto.model import SessionQuery
from tenuto.model.scope import SYSTEM, owner_key, session_key, site_key, state_key
from tenuto.model.stored import (
    UNKNOWN_REVISION,
    Action,
    Drop,
    FoundRecord,
    IndexColumns,
    IndexOrder,
    IndexQuery,
    Kind,
    LogCopy,
    Part,
    RecordChange,
    Refused,
)
from tenuto.stores.redis import RedisRecords
from tenuto.stores.redis._index import Call
from tenuto.stores.redis._keys import RecordKeys, value_place
from tenuto.stores.redis._resp import CallFailed, RedisConnectionLost, Reply
from tenuto.stores.redis._resp import Part as Word
from tenuto.stores.redis.records import ClusterRecords
from tests.backends import redis_engine
from tests.record_changes import A, B, index_columns, message_entries, record_change
from tests.samples import ANN, BOB, fresh, talk
from tests.servers import RedisCluster, RedisServer
from tests.timeouts import wait_until

NEWEST = IndexQuery(order=IndexOrder.NEWEST, space=site_key(ANN))


@pytest.fixture
async def records(valkey: RedisServer) -> AsyncIterator[RedisRecords]:
    opened = await RedisRecords.open(valkey.url, prefix=fresh("unit"))
    yield opened
    await opened.close()


@pytest.fixture
async def other(valkey: RedisServer, records: RedisRecords) -> AsyncIterator[RedisRecords]:
    """The same records, as another process has them."""
    opened = await RedisRecords.open(valkey.url, prefix=records.prefix)
    yield opened
    await opened.close()


async def test_a_refused_login_is_called_one(valkey: RedisServer) -> None:
    """The server does answer."""
    address = valkey.url.replace("redis://", "redis://nobody:wrong@", 1)

    with pytest.raises(Unavailable, match="refuses the login: check user and password"):
        await RedisRecords.open(address)
    with pytest.raises(Unavailable, match=r"refuses the request \(ERR\)"):
        await RedisRecords.open(f"redis://127.0.0.1:{valkey.port}/999")


@pytest.mark.parametrize("kind", ["sessions", "API keys"])
async def test_data_from_before_the_first_release_is_refused(valkey: RedisServer, kind: str) -> None:
    """API keys that are not found would let every caller in."""
    prefix = fresh("unit")
    drawer = state_key(SYSTEM, "api-keys").hex()
    name = f"{prefix}:l" if kind == "sessions" else f"{prefix}:n:{{{drawer}}}"
    valkey.call("ZADD", name, 0, "anything")

    with pytest.raises(Unavailable, match="from before the first release"):
        await RedisRecords.open(valkey.url, prefix=prefix)


@pytest.mark.parametrize("prefix", ["", "a{b", "a}b", "a*", "a b", "\N{LATIN SMALL LETTER E WITH ACUTE}"])
def test_a_prefix_that_could_reach_elsewhere_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidSetting):
        RecordKeys(prefix)


async def test_two_prefixes_are_two_installations(valkey: RedisServer, records: RedisRecords) -> None:
    await records.commit([record_change(A, 0, 1)])
    other = await RedisRecords.open(f"{valkey.url}?prefix={fresh('unit')}")

    assert await other.load(A, 0) is None
    assert await other.list(NEWEST) == await other.scan(b"", 9) == ()
    await other.close()


async def test_a_turn_is_two_calls_and_no_request_searches_keys(valkey: RedisServer) -> None:
    async with redis_engine(f"{valkey.url}?prefix={fresh('unit')}") as engine:
        await talk(engine, ANN, "warm", "one", "two")
        valkey.call("CONFIG", "RESETSTAT")
        await talk(engine, ANN, "s", "one", "two")
        turn = valkey.info("commandstats")
        await engine.sessions.list(ANN, SessionQuery(title="u"))
        await engine.sessions.delete(ANN, "s")

    assert turn["cmdstat_evalsha"]["calls"] == 2
    assert not valkey.info("commandstats").keys() & {"cmdstat_keys", "cmdstat_scan", "cmdstat_eval"}


# The feed


async def test_own_commits_are_heard_with_their_revision_and_others_without(
    records: RedisRecords, other: RedisRecords
) -> None:
    heard = list[tuple[bytes | None, int]]()
    async with records.feed.watch(lambda key, revision: heard.append((key, revision))):
        await wait_until(records.feed.caught_up)
        heard.clear()

        await records.commit([record_change(A, 0, 5)])
        await records.commit([record_change(A, 5, 6), record_change(B, 0, 9)])
        assert heard == [(A, 5), (A, 6), (B, 9)]
        heard.clear()
        await other.commit([record_change(A, 6, 7)])
        assert records.feed.caught_up()
        assert heard == [(A, UNKNOWN_REVISION)]
        heard.clear()
        await records.commit([RecordChange(key=A, if_revision=7, action=Action.REMOVE)])
        assert heard[0] == (A, 0)


async def test_a_change_that_comes_before_a_refused_commit_is_not_taken_for_it(
    records: RedisRecords, other: RedisRecords
) -> None:
    await records.commit([record_change(A, 0, 5)])
    heard = list[int]()
    async with records.feed.watch(lambda _, revision: heard.append(revision)):
        await wait_until(records.feed.caught_up)
        heard.clear()
        foreign, own = other.commit([record_change(A, 5, 6)]), records.commit([record_change(A, 4, 5)])

        assert await foreign is None
        assert await own is not None
        # What another connection was told may be on its way yet.
        await wait_until(lambda: records.feed.caught_up() and UNKNOWN_REVISION in heard)


# Turns


async def test_processes_that_change_one_record_take_turns(records: RedisRecords, other: RedisRecords) -> None:
    """One that was refused twice has the next commit for itself; another one waits, and learns what stands then."""
    async with records.feed.watch(lambda *_: None):
        await wait_until(records.feed.caught_up)
        await check_turns(records, other)


async def check_turns(records: RedisRecords, other: RedisRecords) -> None:
    await records.commit([record_change(A, 0, 1)])
    refusals = [await other.commit([record_change(A, 7, 8)]) for _ in range(2)]
    assert [refused and refused.has_turn for refused in refusals] == [False, True]

    waiting = records.commit([record_change(A, 1, 2, head=b"too early")])
    await wait_until(lambda: A in records._commits._queued)
    assert await other.commit([record_change(A, 1, 2)]) is None

    refused = await waiting
    assert refused is not None
    assert refused.has_turn
    assert refused.standing[0] is not None
    assert (refused.standing[0].revision, refused.standing[0].head) == (2, b"head 2")
    assert await records.commit([record_change(A, 2, 3)]) is None
    assert await records.client.call("HEXISTS", records.keys.record(A), "q", key=records.keys.record(A)) == 0


async def test_a_process_that_lets_its_turn_pass_stops_nobody(records: RedisRecords, other: RedisRecords) -> None:
    """Without a feed nothing is heard of turns: it is asked again."""
    await records.commit([record_change(A, 0, 1)])
    for _ in range(2):
        await other.commit([record_change(A, 7, 8)])

    assert await records.commit([record_change(A, 1, 2)]) is None
    assert await other.commit([record_change(A, 2, 3)]) is None


# The places in the indexes


async def names(records: RedisRecords, query: IndexQuery) -> list[str]:
    found: tuple[FoundRecord, ...] = await records.list(query)
    return [one.index.name for one in found]


@pytest.mark.parametrize(
    "index", [index_columns(), index_columns(kind=Kind.VALUE, drawer=b"d" * 16)], ids=["session", "value"]
)
async def test_places_without_a_record_are_skipped_and_removed(records: RedisRecords, index: IndexColumns) -> None:
    """A writer died between the places and the record, or between the record's removal and theirs."""
    queries = [IndexQuery(order=IndexOrder.DEADLINE, kind=index.kind, due=9)]
    if index.kind is Kind.SESSION:
        queries.append(IndexQuery(order=IndexOrder.NEWEST, space=index.space))
        queries.append(IndexQuery(order=IndexOrder.OLDEST, owner=index.owner))
    else:
        queries.append(IndexQuery(order=IndexOrder.PLACE, kind=Kind.VALUE, space=index.space))
        queries.append(IndexQuery(order=IndexOrder.PLACE, kind=Kind.VALUE, drawer=index.drawer))

    async def found() -> list[int]:
        return [len(await records.list(query)) for query in queries]

    await records.commit([record_change(A, 0, 1, index=index, deadline=9)])
    assert await found() == [1, 1, 1]
    await records.client.call("DEL", records.keys.record(A), key=records.keys.record(A))

    assert await found() == [0, 0, 0]
    assert (await records.scan(b"", 9), await records.sites(b"", 9)) == ((), ())
    # An empty list of drawers is removed by the second that looks.
    await found()
    assert await records.client.call("KEYS", f"{records.prefix}:*") == []
    await records.commit([record_change(A, 0, 2, index=index, deadline=9)])
    assert await found() == [1, 1, 1]
    assert len(await records.sites(b"", 9)) == 1


async def test_a_record_is_not_created_again_while_its_places_are_removed(records: RedisRecords) -> None:
    assert await records._servers.run("hold", (records.keys.record(A),), 60_000)

    creating = records.commit([record_change(A, 0, 1)])
    await asyncio.sleep(0.05)
    assert not creating.done()
    await records._servers.run("hold", (records.keys.record(A),), 0)

    assert await creating is None
    assert await names(records, NEWEST) == ["s"]


@pytest.mark.parametrize("removes", [True, False], ids=["removal", "listing"])
async def test_a_record_that_is_created_when_the_mark_has_ended_keeps_its_places(
    records: RedisRecords, other: RedisRecords, monkeypatch: pytest.MonkeyPatch, removes: bool
) -> None:
    """Who removed the places stood still for longer than it kept the record from being created."""
    await records.commit([record_change(A, 0, 1, deadline=9)])
    before, call, name = await indexes(records), records._servers.call, records.keys.record(A)
    if not removes:
        await records.client.call("DEL", name, key=name)

    async def call_late(*words: Word) -> Reply:
        if words[0] == "ZREM" and await records.client.call("HDEL", name, "gone", key=name):
            assert await other.commit([record_change(A, 0, 2, deadline=9)]) is None
        return await call(*words)

    monkeypatch.setattr(records._servers, "call", call_late)
    if removes:
        await records.commit([RecordChange(key=A, if_revision=1, action=Action.REMOVE)])
    else:
        await records.list(NEWEST)

    assert await indexes(records) == before


@pytest.mark.requirement("A5")
async def test_a_record_is_due_by_its_deadline_whatever_it_was_before(records: RedisRecords) -> None:
    async def due(until: int) -> int:
        return len(await records.list(IndexQuery(order=IndexOrder.DEADLINE, due=until)))

    await records.commit([record_change(A, 0, 1, deadline=100)])
    await records.commit([record_change(A, 1, 2, deadline=300)])
    assert [await due(99), await due(299), await due(300)] == [0, 0, 1]
    await records.commit([record_change(A, 2, 3, deadline=50)])
    assert [await due(49), await due(50)] == [0, 1]
    await records.commit([record_change(A, 3, 4, deadline=None)])
    assert await due(2**50) == 0
    await records.commit([record_change(A, 4, 5, deadline=70)])
    assert [await due(69), await due(70)] == [0, 1]


async def test_a_record_that_changes_hands_leaves_its_owners_list(records: RedisRecords) -> None:
    await records.commit([record_change(A, 0, 1)])
    await records.commit([record_change(A, 1, 2, replaces=True, index=index_columns(BOB, "s"))])

    mine, theirs = (IndexQuery(order=IndexOrder.NEWEST, owner=owner_key(one)) for one in (ANN, BOB))
    assert (await names(records, mine), await names(records, theirs)) == ([], ["s"])
    assert await records.client.call("EXISTS", records.keys.owner(owner_key(ANN))) == 0


def test_names_of_values_are_in_order_of_their_code_points() -> None:
    given = ["", "\0", "\0\0", "\0a", "\x01", "a", "a\0", "a\x01", "a%", "aa", "é", "\ud800", "\U00010000"]
    for key in (b"\0" * 16, b"\xff" * 16):
        assert sorted(given, key=lambda name: value_place(name, key)) == sorted(given)


async def test_a_full_server_refuses_a_commit_and_says_so(valkey: RedisServer, records: RedisRecords) -> None:
    await records.commit([record_change(A, 0, 1)])
    valkey.call("CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(StoreFull):
            await records.commit([record_change(A, 1, 2)])
        with pytest.raises(StoreFull):
            await records.commit([record_change(B, 0, 2)])
    finally:
        valkey.call("CONFIG", "SET", "maxmemory", 0)
    record = await records.load(A, 0)
    assert record is not None
    assert record.revision == 1


async def test_a_denied_command_is_a_refusal_that_changes_nothing(valkey: RedisServer) -> None:
    async with redis_engine(f"{valkey.url}?prefix={fresh('unit')}") as engine:
        await talk(engine, ANN, "s", "one", "two")
        commits = engine.sessions.context.commits
        records = engine.records
        await records.commit([record_change(A, 0, 1, puts=message_entries(1, 2))])
        valkey.call("ACL", "SETUSER", "default", "-hset")
        try:
            with pytest.raises(StoreRejected, match="NOPERM"):
                await talk(engine, ANN, "s", "three", "four")
            drop = Drop(part=Part.MESSAGES, first=1)
            with pytest.raises(StoreRejected, match="NOPERM"):
                await records.commit([record_change(A, 1, 2, drops=(drop,))])
            assert (await records.page(A, Part.MESSAGES, 0, 9, 9)).entries == message_entries(1, 2)
            assert await records.commit([RecordChange(key=A, if_revision=1, action=Action.REMOVE)]) is None
        finally:
            valkey.call("ACL", "SETUSER", "default", "+hset")

        assert engine.sessions.context.commits == commits + 1
        await talk(engine, ANN, "s", "three", "four")


async def test_a_key_of_another_type_is_an_unusable_store(records: RedisRecords) -> None:
    await records.client.call("SET", records.keys.record(A), "text", key=records.keys.record(A))

    with pytest.raises(Unavailable, match="another type"):
        await records.load(A, 0)
    with pytest.raises(Unavailable, match="another type"):
        await records.commit([record_change(A, 0, 1)])


# Damage


async def damage(records: RedisRecords, key: bytes) -> None:
    name = records.keys.record(key)
    await records.client.call("HSET", name, "r", b"\xc1", key=name)


async def test_one_commit_of_a_call_that_fails_keeps_no_other_from_being_made(records: RedisRecords) -> None:
    damaged, other_type, value = (bytes(4) + bytes([n]) * 12 for n in (4, 5, 6))
    await asyncio.gather(*(records.commit([record_change(key, 0, 1, profile=b"p")]) for key in (A, B, damaged)))
    await records.commit([record_change(value, 0, 1)])
    for key in (damaged, value):
        await damage(records, key)
    await records.client.call("SET", records.keys.record(other_type), "text", key=records.keys.record(other_type))

    keys = (A, damaged, other_type, value, B)
    ends = await asyncio.gather(*(records.commit([record_change(key, 1, 2)]) for key in keys), return_exceptions=True)

    assert (ends[0], ends[3], ends[4]) == (None, None, None)
    assert isinstance(ends[1], Refused)
    assert ends[1].standing[0] is not None
    assert (ends[1].standing[0].revision, ends[1].standing[0].head) == (1, b"")
    assert isinstance(ends[2], Unavailable)
    loaded = await records.load_all([A, damaged, value, B])
    assert [one and (one.revision, one.head) for one in loaded] == [
        (2, b"head 2"),
        (1, b""),
        (2, b"head 2"),
        (2, b"head 2"),
    ]


@pytest.mark.parametrize("is_held", [True, False])
async def test_a_session_whose_entries_are_damaged_is_set_aside(valkey: RedisServer, is_held: bool) -> None:
    async with redis_engine(f"{valkey.url}?prefix={fresh('unit')}") as engine:
        records = engine.records
        assert isinstance(records, RedisRecords)
        for name in ("read", "written", "removed"):
            await talk(engine, ANN, name, "one", "two")
            await damage(records, session_key(ANN, name))
        if not is_held:
            engine.cache.clear()

        with pytest.raises(SessionCorrupt):
            await talk(engine, ANN, "written", "three", "four")
        await talk(engine, ANN, "written", "anew", "answer")
        if not is_held:
            with pytest.raises(SessionCorrupt):
                await engine.sessions.get(ANN, "read")
        erased = await engine.upkeep.erase(ANN)

        assert {one.session_id for one in erased.removed_sessions} >= {"written", "removed"}
        assert erased.quarantined == (1 if is_held else 2)
        assert await records.client.call("KEYS", f"{records.prefix}:*") == [records.keys.sites]


async def test_a_copy_in_a_cluster_is_taken_back_if_its_source_changes_meanwhile(
    redis_cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = await RedisRecords.open(redis_cluster.url, prefix=fresh("unit"))
    target = b"far away" * 2
    await records.commit([record_change(A, 0, 4, puts=message_entries(1, 2, 3))])
    check_source = records._check_source

    async def check_late(changes: Sequence[RecordChange]) -> Refused | None:
        assert await records.commit([RecordChange(key=A, if_revision=4, action=Action.REMOVE)]) is None
        return await check_source(changes)

    monkeypatch.setattr(records, "_check_source", check_late)
    refused = await records.commit(
        [record_change(target, 0, 1, copies=LogCopy(source=A, revision=4, first=1, through=2))]
    )

    assert refused == Refused(standing=(None,), source_changed=True)
    assert await records.load(target, 9) is None
    assert await records.list(NEWEST) == ()
    await records.close()


@pytest.mark.parametrize(
    "index", [index_columns(), index_columns(kind=Kind.VALUE, drawer=b"d" * 16)], ids=["session", "value"]
)
@pytest.mark.parametrize("answered", [True, False])
async def test_a_listing_between_the_places_and_the_record_loses_none(
    redis_cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch, index: IndexColumns, answered: bool
) -> None:
    """It removes places without a record; the writer goes on when all that is over."""
    records = await RedisRecords.open(redis_cluster.url, prefix=fresh("unit"))
    add, send = records._places.add, records._commits.add

    async def add_early(places: Iterable[tuple[Sequence[Call], Sequence[Call]]]) -> None:
        monkeypatch.setattr(records._places, "add", add)
        await add(places)
        order = IndexOrder.NEWEST if index.kind is Kind.SESSION else IndexOrder.PLACE
        for query in (
            IndexQuery(order=order, kind=index.kind, space=index.space),
            IndexQuery(order=order, kind=index.kind, space=index.space, owner=index.owner),
            IndexQuery(order=IndexOrder.DEADLINE, kind=index.kind, due=9),
        ):
            assert await records.list(query) == ()
        assert (await records.scan(b"", 9), await records.sites(b"", 9)) == ((), ())
        assert await records.sites(b"", 9) == ()
        assert await indexes(records) == {}

    def send_unheard(
        changes: Sequence[RecordChange],
        on_reply: Callable[[Reply], None],
        on_failure: Callable[[CallFailed], None],
        *,
        indexed: bool = False,
    ) -> None:
        def lose(reply: Reply) -> None:
            on_reply(reply) if answered else on_failure(RedisConnectionLost("the answer is lost"))

        send(changes, lose, on_failure, indexed=indexed)

    monkeypatch.setattr(records._places, "add", add_early)
    monkeypatch.setattr(records._commits, "add", send_unheard)
    with nullcontext() if answered else pytest.raises(StoreUnavailable):
        assert await records.commit([record_change(A, 0, 1, index=index, deadline=9)]) is None

    assert len(await indexes(records)) == 5
    assert len(await records.scan(b"", 9)) == len(await records.sites(b"", 9)) == 1
    await records.close()


async def test_places_that_a_server_has_lost_are_put_back(redis_cluster: RedisCluster) -> None:
    """Of every index, those of records that stand; a removed one's stay away."""
    records = await RedisRecords.open(redis_cluster.url, prefix=fresh("unit"))
    assert isinstance(records, ClusterRecords)
    value = index_columns(kind=Kind.VALUE, drawer=b"d" * 16, name="key")
    gone, aside = b"gone" * 4, b"side" * 4
    await records.commit([record_change(A, 0, 1, deadline=9)])
    await records.commit([record_change(B, 0, 1, index=value)])
    await asyncio.gather(*(records.commit([record_change(key, 0, 1)]) for key in (gone, aside)))
    await records.commit([RecordChange(key=gone, if_revision=1, action=Action.REMOVE)])
    await records.commit([RecordChange(key=aside, if_revision=1, action=Action.SET_ASIDE)])
    await records.repair.ensure()
    before = await indexes(records)
    for name in (*before, records.keys.repaired):
        await records.client.call("DEL", name, key=name)

    assert await records.list(NEWEST) == ()
    assert len(await records.list(replace(NEWEST, order=IndexOrder.OLDEST, owner=owner_key(ANN)))) == 1
    assert await indexes(records) == before
    assert len(before) == 8, "one of each kind"
    await records.close()


async def test_damaged_columns_of_one_record_keep_no_other_from_its_places(
    redis_cluster: RedisCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing tells the places of such a record; it can be removed and set aside."""
    records = await RedisRecords.open(redis_cluster.url, prefix=fresh("unit"))
    assert isinstance(records, ClusterRecords)
    keys = (A, B, b"side" * 4, b"gone" * 4)
    await asyncio.gather(*(records.commit([record_change(key, 0, 1, deadline=9)]) for key in keys))
    await records.repair.ensure()
    for key in keys[1:]:
        name = records.keys.record(key)
        await records.client.call("HSET", name, "i", b"\xc1", key=name)
    assert await records.commit([RecordChange(key=keys[2], if_revision=1, action=Action.SET_ASIDE)]) is None
    assert await records.commit([RecordChange(key=keys[3], if_revision=1, action=Action.REMOVE)]) is None
    for name in (*await indexes(records), records.keys.repaired):
        await records.client.call("DEL", name, key=name)

    await records.repair.ensure()

    found = await indexes(records)
    assert found[records.keys.owner(owner_key(ANN))][::2] == [A]
    assert len(found[records.keys.asides]) == 2
    assert len(found) == 6
    assert "cannot be decoded" in caplog.text
    assert [one and one.revision for one in await records.load_all(keys)] == [1, 1, None, None]
    await records.close()


async def test_full_servers_are_swept_before_places_are_put_back(redis_cluster: RedisCluster) -> None:
    """An erasure that might miss a session is refused."""
    records = await RedisRecords.open(redis_cluster.url, prefix=fresh("unit"))
    assert isinstance(records, ClusterRecords)
    await records.commit([record_change(A, 0, 1, deadline=9)])
    await records.repair.ensure()
    await records.client.call("DEL", records.keys.repaired, key=records.keys.repaired)
    try:
        for node in redis_cluster.nodes:
            node.call("CONFIG", "SET", "maxmemory", 1)
        assert len(await records.list(IndexQuery(order=IndexOrder.DEADLINE, due=9))) == 1
        with pytest.raises(StoreFull):
            await records.list(IndexQuery(order=IndexOrder.OLDEST, owner=owner_key(ANN)))
    finally:
        for node in redis_cluster.nodes:
            node.call("CONFIG", "SET", "maxmemory", 0)
        await records.close()


async def indexes(records: RedisRecords) -> dict[bytes, list[bytes]]:
    """What is in the indexes."""
    client, found = records.client, dict[bytes, list[bytes]]()
    for server in await client.primaries():
        for name in await client.call_node(server, "KEYS", f"{records.prefix}:*"):
            if await client.call("TYPE", name, key=name) == b"zset":
                found[name] = await client.call("ZRANGE", name, 0, -1, "WITHSCORES", key=name)
    return found
