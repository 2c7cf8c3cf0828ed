"""What is sent twice is stored once: by the caller's key, and by a producer's number."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tenuto.errors import IdempotencyKeyReused, SequenceGap, SessionBusy, SessionNotFound
from tenuto.model import FinishTurn, Producer, TurnState
from tenuto.ports import Store
from tests.clock import FakeClock
from tests.samples import ANN, batch, begin, closing, once, talk, texts


async def test_a_finished_turn_answers_its_key_again(store: Store) -> None:
    await talk(store, ANN, "s", "question", "answer", idempotency_key=once("k"))

    again = await begin(store, ANN, "s", "question", idempotency_key=once("k"))

    assert again.state is TurnState.FINISHED
    assert [message.text for message in again.user_messages] == ["question"]
    assert [message.text for message in again.reply] == ["answer"]
    assert await texts(store, ANN, "s") == ["question", "answer"]
    await begin(store, ANN, "s", "next")
    while_another_runs = await begin(store, ANN, "s", "question", idempotency_key=once("k"))
    assert while_another_runs.state is TurnState.FINISHED


async def test_an_unfinished_turn_is_resumed_by_its_key(store: Store, clock: FakeClock) -> None:
    first = await begin(store, ANN, "s", "question", idempotency_key=once("k"), lease=timedelta(seconds=60))
    with pytest.raises(SessionBusy):
        await begin(store, ANN, "s", "question", idempotency_key=once("k"))
    clock.advance(timedelta(seconds=61))

    second = await talk(store, ANN, "s", "question", "answer", idempotency_key=once("k"))

    assert second.state is TurnState.RESUMED
    assert second.number == first.number
    assert [message.text for message in second.user_messages] == ["question"]
    assert await texts(store, ANN, "s") == ["question", "answer"]


async def test_an_abandoned_turn_is_resumed_by_its_key(store: Store) -> None:
    turn = await begin(store, ANN, "s", "question", idempotency_key=once("k"))
    await store.sessions.finish_turn(turn, FinishTurn(abandoned=True))

    again = await begin(store, ANN, "s", "question", idempotency_key=once("k"))

    assert again.state is TurnState.RESUMED
    assert await texts(store, ANN, "s") == ["question"]


async def test_a_key_with_another_body_is_refused(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch("one", idempotency_key=once("k", "body one")))

    with pytest.raises(IdempotencyKeyReused):
        await store.sessions.append(ANN, "s", batch("two", idempotency_key=once("k", "body two")))
    with pytest.raises(IdempotencyKeyReused):
        await begin(store, ANN, "s", "two", idempotency_key=once("k", "body two"))

    assert await texts(store, ANN, "s") == ["one"]


async def test_a_keyed_append_happens_once_and_tells_what_it_stored(store: Store) -> None:
    first = await store.sessions.append(ANN, "s", batch("one", "two", idempotency_key=once("k")))
    await store.sessions.append(ANN, "s", batch("three"))

    again = await store.sessions.append(ANN, "s", batch("one", "two", idempotency_key=once("k")))

    assert again.duplicate
    assert again.messages == first.messages
    assert await texts(store, ANN, "s") == ["one", "two", "three"]


async def test_many_concurrent_sends_of_one_key_are_one_write(store: Store) -> None:
    results = await asyncio.gather(
        *(store.sessions.append(ANN, "s", batch("one", idempotency_key=once("k"))) for _ in range(10))
    )

    assert sum(not result.duplicate for result in results) == 1
    assert await texts(store, ANN, "s") == ["one"]


async def test_a_keyed_finish_is_recognised_after_later_turns(store: Store) -> None:
    turn = await talk(store, ANN, "s", "one", "reply", idempotency_key=once("k"))
    await talk(store, ANN, "s", "two", "reply two")

    again = await store.sessions.finish_turn(turn, closing("reply"))
    answered = await begin(store, ANN, "s", "one", idempotency_key=once("k"))

    assert again.duplicate
    assert (answered.state, [message.text for message in answered.reply]) == (TurnState.FINISHED, ["reply"])
    assert await texts(store, ANN, "s") == ["one", "reply", "two", "reply two"]


async def test_keys_belong_to_their_session(store: Store) -> None:
    await store.sessions.append(ANN, "a", batch("one", idempotency_key=once("k")))

    other = await store.sessions.append(ANN, "b", batch("one", idempotency_key=once("k")))

    assert not other.duplicate


async def test_keys_are_remembered_for_a_thousand_writes(store: Store) -> None:
    async def keyed(n: int) -> bool:
        """Whether the store knew the key."""
        return (await store.sessions.append(ANN, "s", batch(f"m{n}", idempotency_key=once(f"k{n}")))).duplicate

    for n in range(3):
        await keyed(n)
    for first in range(3, 1002, 111):
        await asyncio.gather(*(keyed(n) for n in range(first, first + 111)))

    assert await keyed(2)
    assert not await keyed(1)
    assert not await keyed(0)


async def test_a_producer_counts_without_gaps(store: Store) -> None:
    def numbered(seq: int) -> Producer:
        return Producer(id="journal", seq=seq)

    await store.sessions.append(ANN, "s", batch("one", producer=numbered(1)))
    await store.sessions.append(ANN, "s", batch("two", producer=numbered(2)))
    again = await store.sessions.append(ANN, "s", batch("two", producer=numbered(2)))
    with pytest.raises(SequenceGap) as gap:
        await store.sessions.append(ANN, "s", batch("four", producer=numbered(4)))

    assert again.duplicate
    assert gap.value.expected == 3
    assert await texts(store, ANN, "s") == ["one", "two"]


async def test_producers_count_apart(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch("one", producer=Producer(id="a", seq=1)))

    other = await store.sessions.append(ANN, "s", batch("two", producer=Producer(id="b", seq=1)))

    assert not other.duplicate


async def test_a_gap_creates_no_session(store: Store) -> None:
    with pytest.raises(SequenceGap):
        await store.sessions.append(ANN, "s", batch("four", producer=Producer(id="journal", seq=4)))
    with pytest.raises(SequenceGap):
        await begin(store, ANN, "s", "four", producer=Producer(id="journal", seq=4))
    with pytest.raises(SessionNotFound):
        await store.sessions.get(ANN, "s")


async def test_a_turn_replayed_by_its_producer_is_stored_once(store: Store) -> None:
    turn = await begin(store, ANN, "s", "question", producer=Producer(id="journal", seq=1))
    await store.sessions.finish_turn(turn, closing("answer", producer=Producer(id="journal", seq=2)))

    words = await store.sessions.append(ANN, "s", batch("question", producer=Producer(id="journal", seq=1)))
    reply = await store.sessions.append(ANN, "s", batch("answer", producer=Producer(id="journal", seq=2)))
    resumed = await begin(store, ANN, "s", "question", producer=Producer(id="journal", seq=1))

    assert words.duplicate
    assert reply.duplicate
    assert (resumed.state, resumed.user_messages) == (TurnState.RESUMED, ())
    assert await texts(store, ANN, "s") == ["question", "answer"]


async def test_a_gap_in_a_reply_leaves_the_turn_open(store: Store) -> None:
    turn = await begin(store, ANN, "s", "question")
    with pytest.raises(SequenceGap):
        await store.sessions.finish_turn(turn, closing("answer", producer=Producer(id="journal", seq=9)))

    await store.sessions.finish_turn(turn, closing("answer"))

    assert await texts(store, ANN, "s") == ["question", "answer"]
