"""Sessions in Redis while servers die, fill up, refuse writes and change places."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tenuto.errors import StoreReadOnly, Unavailable
from tenuto.model import SessionQuery
from tenuto.model.scope import session_key
from tenuto.ports import Store
from tenuto.stores.redis import RedisRecords
from tenuto.stores.redis._cluster import key_slot
from tests.backends import records_behind, redis_engine
from tests.samples import ANN, batch, begin, closing, once, talk, texts
from tests.servers import RedisServer, start_cluster, start_redis, start_sentinel
from tests.shared_stores import until_it_answers
from tests.unit.stores.redis.test_cluster import begin_move, end_move, move_keys


@pytest.fixture
def server() -> Iterator[RedisServer]:
    # Without fsync the log is written before the answer; with it, a busy disk has it written later.
    with start_redis(fsync="no") as started:
        yield started


async def test_a_turn_outlives_the_server_it_began_on(server: RedisServer) -> None:
    """The server is killed between the question and the answer; what was acknowledged is there."""
    async with redis_engine(server.url) as store:
        turn = await begin(store, ANN, "s", "one")
        server.kill()
        with pytest.raises(Unavailable):
            await store.sessions.get(ANN, "s")
        server.restart()
        await until_it_answers(store)

        await store.sessions.finish_turn(turn, closing("two"))
        assert await texts(store, ANN, "s") == ["one", "two"]


async def test_a_keyed_write_whose_fate_was_unknown_is_stored_once(server: RedisServer) -> None:
    """The reply to the write is lost; asking again with the key tells that it happened."""
    async with redis_engine(server.url) as store:
        await talk(store, ANN, "s", "one", "two")
        for number in range(20):
            write = asyncio.ensure_future(
                store.sessions.append(ANN, "s", batch("keyed", idempotency_key=once(f"k{number}")))
            )
            await asyncio.sleep(0)
            server.call("CLIENT", "KILL", "TYPE", "normal")
            await write
        assert (await store.sessions.get(ANN, "s")).messages == 22


async def test_a_replica_can_be_read_and_not_written() -> None:
    with start_sentinel() as group:
        async with redis_engine(group.url) as store:
            await talk(store, ANN, "s", "one", "two")
            group.wait_until_copied()
        async with redis_engine(group.replica.url) as store:
            assert await texts(store, ANN, "s") == ["one", "two"]
            with pytest.raises(StoreReadOnly):
                await begin(store, ANN, "s", "three")


async def test_a_conversation_goes_on_after_a_failover() -> None:
    with start_sentinel() as group:
        async with redis_engine(group.url) as store:
            turn = await begin(store, ANN, "s", "one")
            group.wait_until_copied()
            await asyncio.to_thread(group.fail_over)
            await until_it_answers(store)

            await store.sessions.finish_turn(turn, closing("two"))
            assert await texts(store, ANN, "s") == ["one", "two"]


def _record_key(store: Store, session_id: str) -> bytes:
    """The key that decides on the server of a session."""
    records = records_behind(store)
    assert isinstance(records, RedisRecords)
    return records.keys.record(session_key(ANN, session_id))


async def test_a_conversation_goes_on_while_its_slot_moves() -> None:
    with start_cluster() as cluster:
        async with redis_engine(cluster.url) as store:
            await talk(store, ANN, "s", "one", "two")
            slot = key_slot(_record_key(store, "s"))
            source, target = begin_move(cluster, slot)
            talking = asyncio.ensure_future(talk(store, ANN, "s", "three", "four"))
            move_keys(source, target, slot, 10)
            await talking
            end_move(cluster, slot, target)
            await talk(store, ANN, "s", "five", "six")

            assert await texts(store, ANN, "s") == ["one", "two", "three", "four", "five", "six"]
            assert len((await store.sessions.list(ANN, SessionQuery())).sessions) == 1


async def test_a_lost_cluster_node_takes_only_its_own_sessions_along() -> None:
    with start_cluster() as cluster:
        async with redis_engine(cluster.url) as store:
            for number in range(12):
                await talk(store, ANN, f"s{number}", "one", "two")
            down = cluster.nodes[1]
            held = {f"s{number}": cluster.owner_of(_record_key(store, f"s{number}").decode()) for number in range(12)}
            down.kill()

            for session_id, node in held.items():
                if node is down:
                    with pytest.raises(Unavailable):
                        await store.sessions.get(ANN, session_id)
                else:
                    assert (await store.sessions.get(ANN, session_id)).messages == 2
            down.restart()
            cluster.wait_until_whole()
            await until_it_answers(store)
            assert (await store.upkeep.stats(ANN)).sessions == 12
