"""Retention: what moves a deadline, what expiry means, and how much of a log is kept."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tenuto.errors import SessionNotFound
from tenuto.model import AppendBatch, Changes, NewSession, Page, Retention, Touch, TurnState
from tenuto.ports import Store
from tests.clock import FakeClock
from tests.samples import ANN, BOB, batch, begin, closing, once, talk, texts

MONTH = timedelta(days=30)


def kept(**fields: object) -> NewSession:
    return NewSession(retention=Retention(**fields))  # type: ignore[arg-type]  # each caller names real fields


@pytest.mark.requirement("A5", "T5")
async def test_a_write_moves_the_deadline(store: Store, clock: FakeClock) -> None:
    """Written at 29 days, alive at 58."""
    await store.sessions.append(ANN, "s", batch("one", create=kept(idle=MONTH, touch=Touch.WRITE)))
    clock.advance(timedelta(days=29))
    await store.sessions.append(ANN, "s", batch("two"))
    clock.advance(timedelta(days=29))

    assert await texts(store, ANN, "s") == ["one", "two"]


@pytest.mark.requirement("B4", "T5")
async def test_a_read_moves_the_deadline_where_reads_touch(store: Store, clock: FakeClock) -> None:
    """Read at 29 days, alive at 58."""
    await store.sessions.append(ANN, "s", batch("one", create=kept(idle=MONTH, touch=Touch.READ)))
    version = (await store.sessions.get(ANN, "s")).version
    clock.advance(timedelta(days=29))
    touched = await store.sessions.get(ANN, "s")
    clock.advance(timedelta(days=29))
    await store.sessions.messages(ANN, "s", Page())
    clock.advance(timedelta(days=29))

    session = await store.sessions.get(ANN, "s")
    assert touched.expires_at == touched.updated_at + timedelta(days=59)
    assert session.version == version


async def test_a_read_without_touch_moves_no_deadline(store: Store, clock: FakeClock) -> None:
    """What scans all sessions must not keep them alive."""
    await store.sessions.append(ANN, "s", batch("one", create=kept(idle=MONTH, touch=Touch.READ)))
    clock.advance(timedelta(days=29))
    for query in (Page(touch=False), Page(after=0, touch=False)):
        page = await store.sessions.messages(ANN, "s", query)
        assert (page.messages[0].text, page.session.expires_at) == ("one", page.session.updated_at + MONTH)
    clock.advance(timedelta(days=1))

    with pytest.raises(SessionNotFound):
        await store.sessions.get(ANN, "s")


async def test_only_what_touches_moves_a_deadline(store: Store, clock: FakeClock) -> None:
    """A read moves nothing where writes touch, and neither moves an absolute deadline."""
    for session, touch in (("s", Touch.WRITE), ("absolute", Touch.NEVER)):
        await store.sessions.append(ANN, session, batch("one", create=kept(idle=MONTH, touch=touch)))
        clock.advance(timedelta(days=29))
        if touch is Touch.NEVER:
            await store.sessions.append(ANN, session, batch("two"))
        await store.sessions.get(ANN, session)
        clock.advance(timedelta(days=1))

        with pytest.raises(SessionNotFound):
            await store.sessions.get(ANN, session)


async def test_without_retention_a_session_never_expires(store: Store, clock: FakeClock) -> None:
    await store.sessions.append(ANN, "s", batch("one", create=kept(idle=None)))
    clock.advance(timedelta(days=36_500))

    session = await store.sessions.get(ANN, "s")

    assert session.expires_at is None


@pytest.mark.requirement("T5")
async def test_an_expired_session_is_not_revived(store: Store, clock: FakeClock) -> None:
    """What comes after the deadline starts anew, with nothing of the old."""
    turn = await begin(store, ANN, "s", "old", idempotency_key=once("k"))
    await store.sessions.finish_turn(turn, closing("reply", tokens=5))
    await store.sessions.patch(ANN, "s", Changes(title="Old", attributes={"a": 1}))
    clock.advance(MONTH)

    fresh = await begin(store, ANN, "s", "new", idempotency_key=once("k"))

    assert (fresh.state, fresh.created, fresh.expired) == (TurnState.OPENED, True, True)
    assert (fresh.session.title, fresh.session.attributes, fresh.session.tokens) == ("", {}, 0)
    assert [(message.seq, message.text) for message in fresh.window] == [(1, "new")]


async def test_an_expired_id_is_free_for_another_owner(store: Store, clock: FakeClock) -> None:
    await talk(store, ANN, "s", "old", "reply")
    clock.advance(MONTH)

    turn = await begin(store, BOB, "s", "new")

    assert turn.created
    assert turn.session.scope == BOB


@pytest.mark.requirement("A9")
async def test_the_stored_cap_slides(store: Store) -> None:
    """The newest 500 messages stay."""
    for n in range(0, 520, 20):
        await store.sessions.append(
            ANN, "s", batch(*(f"m{m}" for m in range(n, n + 20)), create=kept(max_messages=500))
        )

    session = await store.sessions.get(ANN, "s")
    said = await texts(store, ANN, "s")
    assert said == [f"m{n}" for n in range(20, 520)]
    assert (session.messages, session.last_seq) == (500, 520)


@pytest.mark.requirement("B9")
async def test_the_cap_may_count_turns(store: Store) -> None:
    """The last 10 turns stay, whatever their number of messages."""
    new = kept(max_turns=10, max_messages=None)
    await store.sessions.append(ANN, "s", AppendBatch(id="b", create=new))
    for n in range(12):
        turn = await begin(store, ANN, "s", f"q{n}")
        await store.sessions.finish_turn(turn, closing(*(f"a{n}.{part}" for part in range(n % 3))))

    page = await store.sessions.messages(ANN, "s", Page(limit=1000))
    questions = [message.text for message in page.messages if message.text.startswith("q")]
    assert questions == [f"q{n}" for n in range(2, 12)]
    assert page.messages[0].text == "q2"
    assert page.session.messages == len(page.messages)


async def test_a_batch_larger_than_the_cap_keeps_its_end(store: Store) -> None:
    appended = await store.sessions.append(ANN, "s", batch(*"abcdef", create=kept(max_messages=4)))

    assert len(appended.messages) == 6
    assert await texts(store, ANN, "s") == list("cdef")


async def test_a_clock_that_goes_backwards_disorders_nothing(store: Store, clock: FakeClock) -> None:
    first = (await store.sessions.append(ANN, "s", batch("one"))).session
    clock.advance(timedelta(hours=-3))
    second = (await store.sessions.append(ANN, "s", batch("two"))).session

    assert second.updated_at >= first.updated_at
    assert second.version > first.version
    assert await texts(store, ANN, "s") == ["one", "two"]


async def test_times_are_kept_to_the_microsecond(store: Store, clock: FakeClock) -> None:
    clock.advance(timedelta(microseconds=123_457))
    created: datetime = clock()

    await store.sessions.append(ANN, "s", batch("one"))

    session = await store.sessions.get(ANN, "s")
    assert (session.created_at, session.updated_at) == (created, created)
    assert session.expires_at == created + MONTH
