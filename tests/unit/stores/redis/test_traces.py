"""What is particular to traces in Redis: their key, and what damage to it means."""

from __future__ import annotations

import pytest

from tenuto.errors import SessionCorrupt, SessionNotFound, TurnLost
from tenuto.model import ForkRequest, OpenTurn, Truncation
from tenuto.model.scope import session_key
from tenuto.stores.redis import RedisStore
from tests.peek import redis_runner
from tests.samples import ANN, begin, closing, once, trace_of


async def told(store: RedisStore, session_id: str) -> OpenTurn:
    turn = await begin(store, ANN, session_id, "hello")
    await store.sessions.finish_turn(turn, closing("hi", trace=trace_of(turn)))
    return turn


def key_of(store: RedisStore, session_id: str) -> bytes:
    return store.keys.session(session_key(ANN, session_id))[3]


async def test_a_damaged_trace_counts_as_absent_and_takes_nothing_along(store: RedisStore) -> None:
    first, second = await told(store, "s"), await told(store, "s")
    key = key_of(store, "s")
    await store.link.call("ZREMRANGEBYSCORE", key, first.number, first.number, key=key)
    await store.link.call("ZADD", key, first.number, b'1:{"id":', key=key)

    assert await store.traces.trace(ANN, "s", first.number) is None
    assert await store.traces.traces(ANN, "s") == (trace_of(second),)
    assert (await store.sessions.get(ANN, "s")).messages == 4


async def test_a_key_of_another_type_stops_the_whole_end_of_a_turn(store: RedisStore) -> None:
    """Nothing is half-written: the session is set aside as it was before."""
    turn = await begin(store, ANN, "s", "hello")
    key = key_of(store, "s")
    await store.link.call("SET", key, "no traces", key=key)
    log = store.keys.session(session_key(ANN, "s"))[1]
    stored = await store.link.call("ZCARD", log, key=log)

    with pytest.raises(TurnLost):
        await store.sessions.finish_turn(turn, closing("hi", trace=trace_of(turn)))

    aside = store.keys.quarantine(session_key(ANN, "s"), redis_runner(store).now())
    assert await store.link.call("ZCARD", aside[1], key=aside[1]) == stored
    assert await store.link.call("GET", aside[3], key=aside[3]) == b"no traces"
    with pytest.raises(SessionNotFound):
        await store.sessions.get(ANN, "s")


async def test_asking_for_traces_of_another_type_sets_the_session_aside(store: RedisStore) -> None:
    turn = await told(store, "s")
    key = key_of(store, "s")
    await store.link.call("SET", key, "no traces", key=key)

    with pytest.raises(SessionCorrupt):
        await store.traces.trace(ANN, "s", turn.number)
    assert (await begin(store, ANN, "s", "anew")).created


async def test_numbers_that_no_turn_has_find_nothing(store: RedisStore) -> None:
    turn = await told(store, "s")

    for number in (-1, 0, turn.number + 1, 2**53, 2**80):
        assert await store.traces.trace(ANN, "s", number) is None
    assert await store.traces.traces(ANN, "s", before=2**80) == (trace_of(turn),)
    assert await store.traces.traces(ANN, "s", before=1) == ()
    assert await store.traces.traces(ANN, "s", limit=0) == ()


async def test_two_turns_may_be_told_with_the_same_words(store: RedisStore) -> None:
    first = await told(store, "s")
    second = await begin(store, ANN, "s", "again")
    await store.sessions.finish_turn(second, closing("hi", trace=trace_of(first)))

    assert (
        await store.traces.trace(ANN, "s", first.number)
        == await store.traces.trace(ANN, "s", second.number)
        == trace_of(first)
    )


async def test_a_truncation_looks_at_every_message_it_takes(store: RedisStore) -> None:
    """A resumed turn's reply stands after later turns: its number is the lowest, though its message is the last."""
    early = await begin(store, ANN, "s", "hello", idempotency_key=once("k"))
    await store.sessions.finish_turn(early, closing(abandoned=True))
    later = await told(store, "s")
    again = await begin(store, ANN, "s", "hello", idempotency_key=once("k"))
    done = await store.sessions.finish_turn(again, closing("late", trace=trace_of(again)))

    await store.sessions.truncate(ANN, "s", Truncation(after=done.messages[-1].seq - 1))

    assert again.number < later.number
    assert await store.traces.traces(ANN, "s") == ()


async def test_a_key_of_traces_exists_as_long_as_its_session(store: RedisStore) -> None:
    """A cluster that moves a slot serves a call only where all of its keys are together."""
    await begin(store, ANN, "s", "hello")
    await store.sessions.fork(ANN, "s", ForkRequest(new_id="branch"))
    for session_id in ("s", "branch"):
        key = key_of(store, session_id)
        assert await store.link.call("EXISTS", key, key=key) == 1
        await store.sessions.reset(ANN, session_id)
        assert await store.link.call("EXISTS", key, key=key) == 1

        await store.sessions.delete(ANN, session_id)

        assert await store.link.call("EXISTS", key, key=key) == 0
