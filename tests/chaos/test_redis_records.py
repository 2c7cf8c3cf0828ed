"""Records in Redis while servers die and change places: nothing acknowledged is lost, and no commit is made by half."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tenuto.errors import StoreReadOnly, Unavailable
from tenuto.model import Page
from tenuto.model.scope import owner_key, session_key, site_key
from tenuto.model.stored import Entry, IndexColumns, IndexOrder, IndexQuery, Part, RecordChange
from tenuto.stores.engine import Engine, journal, journal_replay
from tenuto.stores.engine.journal_folder import JournalState
from tenuto.stores.engine.journal_replay import ERASURES
from tenuto.stores.engine.state import record_key
from tenuto.stores.redis import RedisRecords
from tenuto.stores.redis._cluster import key_slot
from tenuto.stores.redis._keys import RecordKeys
from tests.backends import engine_over, records_behind, redis_engine
from tests.samples import ACME, ANN, batch, begin, closing, listed, once, talk, texts
from tests.servers import RedisServer, start_cluster, start_redis, start_sentinel
from tests.servers.slot_moves import begin_move, end_move, move_keys
from tests.shared_stores import until_it_answers
from tests.timeouts import wait_until

_KILLS = 3
_BEFORE_A_KILL = 60


@pytest.fixture
def server() -> Iterator[RedisServer]:
    # Without fsync the log is written before the answer; with it, a busy disk has it written later.
    with start_redis(fsync="no") as started:
        yield started


class Pair:
    """Two records that are always changed together, each with two more messages at every revision."""

    def __init__(self, number: int) -> None:
        self.keys = tuple(bytes([number]) * 15 + bytes([place]) for place in (0, 1))
        self.acknowledged = 0
        self.tried = 0

    async def write(self, records: RedisRecords) -> None:
        """Commit until the server fails; go on from what it says."""
        standing = await records.load(self.keys[0], 0)
        revision = 0 if standing is None else standing.revision
        while True:
            self.tried = max(self.tried, revision + 1)
            refused = await records.commit([_change(key, revision) for key in self.keys])
            assert refused is None
            revision += 1
            self.acknowledged = revision

    async def check(self, records: RedisRecords) -> None:
        """Both are at one revision that was acknowledged or tried, whole, and listed."""
        found = await records.load_all(self.keys)
        assert len({None if one is None else one.revision for one in found}) == 1
        for one in found:
            revision = 0 if one is None else one.revision
            assert self.acknowledged <= revision <= self.tried
            if one is not None:
                assert one.head == b"%d" % revision
                page = await records.page(one.key, Part.MESSAGES, 0, 2**62, 2**31)
                assert [entry.number for entry in page.entries] == list(range(2 * revision))
        self.acknowledged = self.tried = 0 if found[0] is None else found[0].revision


def _change(key: bytes, revision: int) -> RecordChange:
    puts = [Entry(part=Part.MESSAGES, number=2 * revision + more, body=b"m") for more in (0, 1)]
    index = IndexColumns(space=site_key(ANN), owner=owner_key(ANN), scope=ANN, name=key.hex(), listed_at=revision)
    # Every tenth moves its place in the listings, which takes other steps.
    return RecordChange(
        key=key,
        if_revision=revision,
        revision=revision + 1,
        head=b"%d" % (revision + 1),
        puts=tuple(puts),
        index=index if revision % 10 == 0 else None,
    )


async def test_a_killed_server_loses_no_acknowledged_commit_and_none_by_half(server: RedisServer) -> None:
    records = await RedisRecords.open(server.url)
    pairs = [Pair(number) for number in range(8)]
    for _ in range(_KILLS):
        writing = [asyncio.ensure_future(pair.write(records)) for pair in pairs]
        before = sum(pair.acknowledged for pair in pairs)
        await wait_until(lambda: sum(pair.acknowledged for pair in pairs) >= before + _BEFORE_A_KILL)  # noqa: B023
        server.kill()
        ends = await asyncio.gather(*writing, return_exceptions=True)
        assert all(isinstance(end, Unavailable) for end in ends), ends
        server.restart()

        for pair in pairs:
            await pair.check(records)
    listed = await records.list(IndexQuery(order=IndexOrder.OLDEST, space=site_key(ANN)))
    assert {one.record.key for one in listed} == {key for pair in pairs for key in pair.keys}
    await records.close()


async def test_a_turn_outlives_the_server_it_began_on(server: RedisServer) -> None:
    async with redis_engine(server.url) as engine:
        turn = await begin(engine, ANN, "s", "one")
        server.kill()
        with pytest.raises(Unavailable):
            await engine.sessions.get(ANN, "s")
        server.restart()
        await until_it_answers(engine)

        await engine.sessions.finish_turn(turn, closing("two"))
        assert await texts(engine, ANN, "s") == ["one", "two"]


async def test_a_keyed_append_whose_reply_is_lost_is_stored_once(server: RedisServer) -> None:
    async with redis_engine(server.url) as engine:
        await talk(engine, ANN, "s", "one", "two")
        for number in range(20):
            write = asyncio.ensure_future(
                engine.sessions.append(ANN, "s", batch("keyed", idempotency_key=once(f"k{number}")))
            )
            await asyncio.sleep(0)
            server.call("CLIENT", "KILL", "TYPE", "normal")
            await write

        assert len((await engine.sessions.messages(ANN, "s", Page(limit=100))).messages) == 22


async def test_a_replica_can_be_read_and_a_turn_goes_on_where_it_took_over() -> None:
    with start_sentinel() as group:
        async with redis_engine(group.url) as engine, redis_engine(group.replica.url) as reader:
            turn = await begin(engine, ANN, "s", "one")
            group.wait_until_copied()
            assert await texts(reader, ANN, "s") == ["one"]
            with pytest.raises(StoreReadOnly):
                await begin(reader, ANN, "t", "three")

            await asyncio.to_thread(group.fail_over)
            await until_it_answers(engine)
            await engine.sessions.finish_turn(turn, closing("two"))
            assert await texts(engine, ANN, "s") == ["one", "two"]


async def test_sessions_go_on_while_a_slot_moves_and_others_while_a_server_is_down() -> None:
    with start_cluster() as cluster:
        async with redis_engine(cluster.url) as engine:
            await talk(engine, ANN, "s", "one", "two")
            slot = key_slot(record_name(engine, "s"))
            source, target = begin_move(cluster, slot)
            talking = asyncio.ensure_future(talk(engine, ANN, "s", "three", "four"))
            move_keys(source, target, slot, 10)
            await talking
            end_move(cluster, slot, target)
            await talk(engine, ANN, "s", "five", "six")

            assert await texts(engine, ANN, "s") == ["one", "two", "three", "four", "five", "six"]
            assert await listed(engine, ANN) == ["s"]

            others = [f"s{n}" for n in range(12)]
            for other in others:
                await talk(engine, ANN, other, "one", "two")
            on_target = {one for one in others if cluster.owner_of(record_name(engine, one).decode()) is target}
            target.kill()
            for one in (*others, "s"):
                if one in on_target or one == "s":
                    with pytest.raises(Unavailable):
                        await engine.sessions.get(ANN, one)
                else:
                    assert len(await texts(engine, ANN, one)) == 2
            target.restart()
            cluster.wait_until_whole()
            await until_it_answers(engine)
            assert (await engine.upkeep.stats(ANN)).sessions == 13


async def test_sessions_are_found_whose_places_a_failover_has_lost() -> None:
    """The replica that takes over lacks the latest places of the owner; their records are on other servers."""
    with start_cluster() as cluster:
        owned = RecordKeys("tenuto").owner(owner_key(ANN)).decode()
        primary = cluster.owner_of(owned)
        async with redis_engine(cluster.url) as engine:
            with cluster.start_replica(primary) as replica:
                replica.stop()
                names = [f"s{number}" for number in range(20)]
                for name in names:
                    await talk(engine, ANN, name, "one", "two")
                await engine.upkeep.sweep()
                stand = [one for one in names if cluster.owner_of(record_name(engine, one).decode()) is not primary]
                primary.kill()
                replica.start()
                cluster.take_over(replica)
                await until_it_answers(engine)
                assert replica.call("ZCARD", owned) == 0

                erased = await engine.upkeep.erase(ANN, limit=3)
                gone = {one.session_id for one in erased.removed_sessions}
                assert (len(gone), erased.more) == (3, True)
                assert gone.union(await listed(engine, ANN)) == set(stand)


@pytest.mark.usefixtures("tried_again_at_once")
async def test_one_server_of_three_is_no_outage_and_two_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a ping asks does not depend on chance, and rows that wait for one server keep no others from the store."""
    monkeypatch.setattr(journal, "_PROBE_EVERY", 0.02)
    monkeypatch.setattr(journal_replay, "_AT_ONCE", 2)
    with start_cluster() as cluster:
        records = await RedisRecords.open(cluster.url)
        opened = engine_over(records, journal=tmp_path / "journal")
        async with opened as engine, running_journal(engine) as status:
            # Where it is noted who was erased, all rows of the site wait for.
            erasures = records.keys.record(record_key(ACME, ERASURES, "any")).decode()
            first, second, third = sorted(cluster.nodes, key=lambda node: node is not cluster.owner_of(erasures))
            names = {node.port: list[str]() for node in cluster.nodes}
            for number in range(30):
                node = cluster.owner_of(record_name(engine, f"s{number}").decode())
                names[node.port].append(f"s{number}")
                await talk(engine, ANN, f"s{number}", "one", "1", journaled=True)
            on_first, on_second, on_third = (names[node.port] for node in (first, second, third))
            assert len(on_second) > 2

            first.kill()
            for name in on_first:
                with pytest.raises(Unavailable):
                    await begin(engine, ANN, name, "two", journaled=True)
            assert not status().away
            for name in on_second:
                assert not (await talk(engine, ANN, name, "two", "2", journaled=True)).journaled

            second.kill()
            for name in (*on_second, on_third[0]):
                turn = await begin(engine, ANN, name, "three", journaled=True)
                await engine.sessions.finish_turn(turn, closing("3"))
            await wait_until(lambda: status().away and status().waiting == len(on_second) + 1)

            first.restart()
            await wait_until(lambda: not status().away and status().waiting == len(on_second))
            assert await texts(engine, ANN, on_third[0]) == ["one", "1", "three", "3"]
            second.restart()
            await wait_until(lambda: not status().waiting)
            assert await texts(engine, ANN, on_second[0]) == ["one", "1", "two", "2", "three", "3"]


@asynccontextmanager
async def running_journal(engine: Engine) -> AsyncIterator[Callable[[], JournalState]]:
    """Tells the state of the journal, which runs."""
    journal = engine.sessions.journal
    assert journal is not None
    running = asyncio.create_task(journal.run())
    yield lambda: journal.status
    running.cancel()


def record_name(engine: Engine, session_id: str) -> bytes:
    """The key that decides on the server of a session."""
    records = records_behind(engine)
    assert isinstance(records, RedisRecords)
    return records.keys.record(session_key(ANN, session_id))
