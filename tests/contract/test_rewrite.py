"""Rewriting: other words in the place of stored ones, and nothing else changes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tenuto.errors import Invalid, SessionNotFound, VersionConflict
from tenuto.model import (
    ForkRequest,
    Message,
    NewSession,
    OpenTurn,
    Page,
    Producer,
    Retention,
    Rewrite,
    Session,
    SessionQuery,
    Touch,
    Truncation,
    TurnState,
    text_part,
)
from tenuto.ports import Store
from tests.backends import Backend
from tests.clock import FakeClock
from tests.contract.full_traces import full_trace_of, traced_turn
from tests.samples import ACME, ANN, ANN_ELSEWHERE, BOB, EVE, batch, begin, closing, once, talk, texts


async def log_of(store: Store, session_id: str = "s") -> tuple[Message, ...]:
    return (await store.sessions.messages(ANN, session_id, Page(limit=1000))).messages


def reworded(message: Message, text: str, **fields: object) -> Message:
    """The message with other words, and where asked with other fields."""
    return replace(message, parts=(text_part(text),), **fields)


def kept(session: Session) -> Session:
    """All of a head that a rewriting leaves alone."""
    return replace(session, version=0)


async def test_a_rewritten_message_reads_as_the_new_value_in_its_old_place(store: Store) -> None:
    """Its number, turn and id stay; everything else is what the new value says."""
    await store.sessions.append(ANN, "s", batch("call 555-0100", "noted", "more"))
    first, second, third = await log_of(store)
    new = reworded(first, "call [PHONE_1]", tokens=7, metadata={"redacted": ["PHONE"]}, extra={"x": [1.0, None]})

    session = await store.sessions.rewrite(ANN, "s", Rewrite(messages=(new,)))

    assert await log_of(store) == (new, second, third)
    assert await store.sessions.get(ANN, "s") == session
    window = (await begin(store, ANN, "s", "next", window=4)).window
    assert [message.text for message in window] == ["call [PHONE_1]", "noted", "more", "next"]


async def test_the_head_stays_but_for_its_version(store: Store, clock: FakeClock) -> None:
    """Totals, counters, times and the place in listings: a rewriting is no activity."""
    await store.sessions.append(ANN, "s", batch("a", "b"))
    turn = await begin(store, ANN, "s", "c")
    await store.sessions.finish_turn(turn, closing("d", tokens=40, cost_nanos=9))
    await store.sessions.append(ANN, "later", batch("x"))
    before = await store.sessions.get(ANN, "s")
    clock.advance(timedelta(hours=5))
    log = await log_of(store)

    after = await store.sessions.rewrite(
        ANN, "s", Rewrite(messages=tuple(reworded(message, "-", tokens=99) for message in log))
    )

    assert after == replace(before, version=before.version + 1)
    assert await texts(store, ANN, "s") == ["-"] * 4
    listed = (await store.sessions.list(ANN, SessionQuery())).sessions
    assert {session.id: session.updated_at for session in listed} == {
        "s": before.updated_at,
        "later": before.updated_at,
    }


async def test_no_deadline_moves_however_the_session_is_touched(store: Store, clock: FakeClock) -> None:
    for touch in Touch:
        keeping = Retention(idle=timedelta(days=1), touch=touch)
        await store.sessions.append(ANN, touch.value, batch("a", create=NewSession(retention=keeping)))
        (message,) = (await store.sessions.messages(ANN, touch.value, Page())).messages
        before = await store.sessions.get(ANN, touch.value)
        clock.advance(timedelta(hours=6))

        after = await store.sessions.rewrite(ANN, touch.value, Rewrite(messages=(reworded(message, "b"),)))

        assert (after.expires_at, after.updated_at) == (before.expires_at, before.updated_at)


async def test_what_is_gone_or_another_is_passed_over(store: Store) -> None:
    """A scan may work with what it read a while ago: what it does not find is simply not there any more."""
    await store.sessions.append(ANN, "s", batch("a", "b", "c", create=NewSession(retention=Retention(max_messages=2))))
    await store.sessions.append(ANN, "s", batch("d"))
    dropped = (await store.sessions.append(ANN, "t", batch("a"))).messages[0]
    third, fourth = await log_of(store)
    before = await store.sessions.get(ANN, "s")
    elsewhere = [
        reworded(dropped, "?"),  # its number has slid out of the log
        reworded(replace(third, id="another"), "?"),
        reworded(replace(fourth, seq=99), "?"),
        reworded(replace(fourth, seq=0), "?"),
        reworded(replace(fourth, seq=2**53), "?"),
        reworded(replace(third, id=third.id[:-1]), "?"),
        reworded(replace(third, id=third.id + "0"), "?"),
    ]

    nothing = await store.sessions.rewrite(ANN, "s", Rewrite(messages=tuple(elsewhere)))
    something = await store.sessions.rewrite(ANN, "s", Rewrite(messages=(*elsewhere, reworded(fourth, "D"))))

    assert nothing == before
    assert something == replace(before, version=before.version + 1)
    assert await texts(store, ANN, "s") == ["c", "D"]
    assert await store.sessions.rewrite(ANN, "s", Rewrite()) == something


async def test_a_rewrite_on_another_version_is_refused(store: Store) -> None:
    """Two callers who each take out a part of one message cannot undo each other."""
    (message,) = (await store.sessions.append(ANN, "s", batch("a"))).messages
    before = await store.sessions.get(ANN, "s")

    changes = Rewrite(messages=(reworded(message, "b"),), if_version=before.version)
    after = await store.sessions.rewrite(ANN, "s", changes)
    with pytest.raises(VersionConflict) as excinfo:
        await store.sessions.rewrite(ANN, "s", replace(changes, messages=(reworded(message, "c"),)))

    assert (excinfo.value.expected, excinfo.value.actual) == (before.version, after.version)
    assert await texts(store, ANN, "s") == ["b"]
    with pytest.raises(SessionNotFound):
        await store.sessions.rewrite(BOB, "s", changes)


async def test_many_at_once_are_one_change_and_of_two_for_one_place_the_later_holds(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch(*(f"w{n}" for n in range(300))))
    log = await log_of(store)
    before = await store.sessions.get(ANN, "s")
    first = reworded(log[0], "forgotten at once")

    after = await store.sessions.rewrite(
        ANN, "s", Rewrite(messages=(first, *(reworded(message, f"n{message.seq}") for message in log)))
    )

    assert after.version == before.version + 1
    assert await texts(store, ANN, "s") == [f"n{message.seq}" for message in log]


async def test_a_message_may_be_replaced_by_its_equal(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch("a", "b"))
    log = await log_of(store)

    await store.sessions.rewrite(ANN, "s", Rewrite(messages=log))

    assert await log_of(store) == log


async def test_any_id_is_found_again(store: Store, subtests: pytest.Subtests) -> None:
    for place, odd in enumerate(['quo"te', "back\\slash", "ключ-🎎", "a,b", '","role":"']):
        with subtests.test(message=odd):
            session_id = f"s{place}"
            draft = replace(batch("a").messages[0], id=odd)
            await store.sessions.append(ANN, session_id, batch("x", messages=(draft,)))
            (message,) = await log_of(store, session_id)

            await store.sessions.rewrite(ANN, session_id, Rewrite(messages=(reworded(message, "b"),)))

            assert await texts(store, ANN, session_id) == ["b"]


async def test_a_turn_number_in_the_new_value_changes_nothing(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch("a", "b"))
    first, second = await log_of(store)

    await store.sessions.rewrite(ANN, "s", Rewrite(messages=(reworded(first, "A", turn=77),)))

    assert await log_of(store) == (reworded(first, "A"), second)


async def test_a_running_turn_goes_on_and_its_window_is_the_new_one(store: Store) -> None:
    """A turn holds the session for minutes; removing private data does not wait for it, nor cut it."""
    await store.sessions.append(ANN, "s", batch("secret", "ok"))
    turn = await begin(store, ANN, "s", "secret too")
    old = turn.window
    await store.sessions.rewrite(ANN, "s", Rewrite(messages=tuple(reworded(message, "-") for message in old)))

    renewed = await store.sessions.renew_turn(turn)
    done = await store.sessions.finish_turn(renewed, closing("answer"))

    assert [message.text for message in done.messages] == ["answer"]
    assert await texts(store, ANN, "s") == ["-", "-", "-", "answer"]
    again = await begin(store, ANN, "s", "next", window=10)
    assert [message.text for message in again.window] == ["-", "-", "-", "answer", "next"]


async def test_a_turn_known_to_this_process_sees_the_new_words(store: Store) -> None:
    """Turn after turn on one session, some stores tell only what is new; rewritten words are new."""
    for n in range(3):
        await talk(store, ANN, "s", f"q{n}", f"a{n}", window=10)
        log = await log_of(store)
        await store.sessions.rewrite(ANN, "s", Rewrite(messages=(reworded(log[-2], f"Q{n}"),)))

    turn = await begin(store, ANN, "s", "last", window=10)

    assert [message.text for message in turn.window] == ["Q0", "a0", "Q1", "a1", "Q2", "a2", "last"]


async def test_a_finished_turn_replays_with_the_new_words(store: Store) -> None:
    """The idempotency key stays, and stands for what is stored now."""
    asked = {"idempotency_key": once("k"), "window": 5}
    await talk(store, ANN, "s", "my card is 4111", "your card 4111 is noted", **asked)
    question, answer = await log_of(store)

    await store.sessions.rewrite(
        ANN, "s", Rewrite(messages=(reworded(question, "my card is [CC]"), reworded(answer, "[CC] is noted")))
    )
    replayed = await begin(store, ANN, "s", "my card is 4111", **asked)

    assert replayed.state is TurnState.FINISHED
    assert [message.text for message in (*replayed.user_messages, *replayed.reply)] == [
        "my card is [CC]",
        "[CC] is noted",
    ]
    assert (await store.sessions.get(ANN, "s")).messages == 2


async def test_an_unfinished_turn_resumes_with_the_new_words(store: Store, clock: FakeClock) -> None:
    asked = {"idempotency_key": once("k"), "window": 5}
    turn = await begin(store, ANN, "s", "secret", **asked)
    await store.sessions.rewrite(ANN, "s", Rewrite(messages=(reworded(turn.user_messages[0], "-"),)))
    clock.advance(timedelta(minutes=5))

    resumed = await begin(store, ANN, "s", "secret", **asked)

    assert resumed.state is TurnState.RESUMED
    assert [message.text for message in resumed.user_messages] == ["-"]
    assert [message.text for message in resumed.window] == ["-"]


async def test_a_repeated_append_tells_the_new_words_and_producers_go_on(store: Store) -> None:
    keyed = batch("secret", idempotency_key=once("k"))
    stored = await store.sessions.append(ANN, "s", keyed)
    await store.sessions.append(ANN, "s", batch("more", producer=Producer(id="p", seq=1)))
    await store.sessions.rewrite(ANN, "s", Rewrite(messages=(reworded(stored.messages[0], "-"),)))

    again = await store.sessions.append(ANN, "s", keyed)
    further = await store.sessions.append(ANN, "s", batch("and more", producer=Producer(id="p", seq=2)))

    assert again.duplicate
    assert [message.text for message in again.messages] == ["-"]
    assert [message.seq for message in further.messages] == [3]


async def test_a_fork_copies_the_new_words(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch("secret", "ok"))
    first, _ = await log_of(store)
    await store.sessions.rewrite(ANN, "s", Rewrite(messages=(reworded(first, "-"),)))

    await store.sessions.fork(ANN, "s", ForkRequest(new_id="branch"))

    assert await texts(store, ANN, "branch") == ["-", "ok"]


async def test_caps_and_truncations_work_on_a_rewritten_log(store: Store) -> None:
    keeping = Retention(max_messages=4, max_turns=2)
    await store.sessions.append(ANN, "s", batch("a", "b", create=NewSession(retention=keeping)))
    log = await log_of(store)
    await store.sessions.rewrite(ANN, "s", Rewrite(messages=tuple(reworded(message, "-") for message in log)))

    turns = [await begin(store, ANN, "s", "c")]
    await store.sessions.finish_turn(turns[0], closing("d"))
    await store.sessions.truncate(ANN, "s", Truncation(after=3))

    assert await texts(store, ANN, "s") == ["-", "-", "c"]
    await store.sessions.append(ANN, "s", batch("e", "f"))
    assert await texts(store, ANN, "s") == ["c", "e", "f"]


async def test_a_trace_is_rewritten_by_its_turn_and_id(store: Store) -> None:
    first, second = await traced_turn(store, "s"), await traced_turn(store, "s")
    before = await store.sessions.get(ANN, "s")
    new = full_trace_of(first, request="[REDACTED]", answer="", data={})
    strange = replace(full_trace_of(second), id="another", request="?")
    gone = replace(full_trace_of(second), number=99, request="?")

    nothing = await store.sessions.rewrite(ANN, "s", Rewrite(traces=(strange, gone)))
    session = await store.sessions.rewrite(ANN, "s", Rewrite(traces=(new, strange, gone)))

    assert nothing == before
    assert session == replace(before, version=before.version + 1)
    assert await store.traces.traces(ANN, "s") == (full_trace_of(second), new)


async def test_messages_and_traces_together_are_one_change(store: Store) -> None:
    turn: OpenTurn = await traced_turn(store, "s", "secret")
    before = await store.sessions.get(ANN, "s")
    log = await log_of(store)

    session = await store.sessions.rewrite(
        ANN, "s", Rewrite(messages=(reworded(log[0], "-"),), traces=(full_trace_of(turn, request="-"),))
    )

    assert session.version == before.version + 1
    assert kept(session) == kept(before)
    trace = await store.traces.trace(ANN, "s", turn.number)
    assert trace is not None
    assert trace.request == "-"


@pytest.mark.requirement("A7", "A25")
async def test_outside_its_scope_a_session_is_not_rewritten(store: Store) -> None:
    """For rewriting: strangers, other sites and other tenants find nothing; the tenant itself reaches it."""
    await store.sessions.append(ANN, "s", batch("a"))
    (message,) = await log_of(store)
    rewriting = Rewrite(messages=(reworded(message, "b"),))

    for scope in (BOB, EVE, ANN_ELSEWHERE):
        with pytest.raises(SessionNotFound):
            await store.sessions.rewrite(scope, "s", rewriting)
    with pytest.raises(SessionNotFound):
        await store.sessions.rewrite(ANN, "absent", rewriting)
    assert await texts(store, ANN, "s") == ["a"]

    await store.sessions.rewrite(ACME, "s", rewriting)
    assert await texts(store, ANN, "s") == ["b"]


async def test_an_expired_session_is_not_rewritten(store: Store, clock: FakeClock) -> None:
    await store.sessions.append(ANN, "s", batch("a", create=NewSession(retention=Retention(idle=timedelta(hours=1)))))
    (message,) = await log_of(store)
    clock.advance(timedelta(hours=2))

    with pytest.raises(SessionNotFound):
        await store.sessions.rewrite(ANN, "s", Rewrite(messages=(reworded(message, "b"),)))


async def test_a_damaged_session_is_set_aside_by_whoever_rewrites_it(store: Store, backend: Backend) -> None:
    if backend.damage is None:
        return  # Nothing in this process's memory can be damaged.
    await store.sessions.append(ANN, "s", batch("a"))
    (message,) = await log_of(store)
    await backend.damage(store, ANN, "s")

    with pytest.raises(SessionNotFound):
        await store.sessions.rewrite(ANN, "s", Rewrite(messages=(reworded(message, "b"),)))
    await store.sessions.append(ANN, "s", batch("fresh"))

    assert await texts(store, ANN, "s") == ["fresh"]


async def test_words_that_no_store_can_keep_are_refused(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch("a"))
    (message,) = await log_of(store)

    with pytest.raises(Invalid):
        Rewrite(messages=(reworded(message, "\0"),))
