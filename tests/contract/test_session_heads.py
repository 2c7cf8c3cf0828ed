"""Heads: patches that do not undo each other, listings that page, resets, truncations and forks."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tenuto.errors import InvalidCursor, TurnLost, VersionConflict
from tenuto.model import (
    Changes,
    FinishTurn,
    ForkRequest,
    NewSession,
    Producer,
    SessionQuery,
    Status,
    Truncation,
    TurnState,
)
from tenuto.ports import Store
from tests.clock import FakeClock
from tests.samples import ACME, ANN, BOB, EVE, batch, begin, closing, listed, once, talk, texts


async def test_a_patch_changes_only_what_it_names(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch("hello"))
    await store.sessions.patch(
        ANN, "s", Changes(title="Old", context={"a": 1, "b": [1.5, None]}, attributes={"x": "y"})
    )

    patched = await store.sessions.patch(
        ANN, "s", Changes(context={"a": None, "c": {"deep": []}}, status=Status.ARCHIVED)
    )

    assert patched.title == "Old"
    assert patched.context == {"b": [1.5, None], "c": {"deep": []}}
    assert patched.attributes == {"x": "y"}
    assert patched.status is Status.ARCHIVED
    assert patched == await store.sessions.get(ANN, "s")


async def test_concurrent_patches_of_different_keys_are_all_kept(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch("hello"))

    await asyncio.gather(*(store.sessions.patch(ANN, "s", Changes(attributes={f"k{n}": n})) for n in range(20)))

    assert (await store.sessions.get(ANN, "s")).attributes == {f"k{n}": n for n in range(20)}


async def test_a_patch_of_another_version_is_refused(store: Store) -> None:
    first = (await store.sessions.append(ANN, "s", batch("hello"))).session
    await store.sessions.patch(ANN, "s", Changes(title="one", if_version=first.version))

    with pytest.raises(VersionConflict) as excinfo:
        await store.sessions.patch(ANN, "s", Changes(title="two", if_version=first.version))

    assert (excinfo.value.expected, excinfo.value.actual) == (first.version, first.version + 1)
    assert (await store.sessions.get(ANN, "s")).title == "one"


async def test_listing_shows_the_latest_change_first(store: Store, clock: FakeClock) -> None:
    for session_id in ("a", "b", "c"):
        await store.sessions.append(ANN, session_id, batch("hello"))
        clock.advance(timedelta(seconds=1))
    await store.sessions.patch(ANN, "a", Changes(title="again"))

    page = await store.sessions.list(ANN, SessionQuery())

    assert [session.id for session in page.sessions] == ["a", "c", "b"]
    assert page.cursor is None


async def test_listing_pages_without_gaps_or_repeats(store: Store, clock: FakeClock) -> None:
    for n in range(7):
        await store.sessions.append(ANN, f"s{n}", batch("hello"))
        clock.advance(timedelta(seconds=n % 2))

    seen: list[str] = []
    cursor = None
    for _ in range(5):
        page = await store.sessions.list(ANN, SessionQuery(limit=2, cursor=cursor))
        seen += [session.id for session in page.sessions]
        cursor = page.cursor
        if cursor is None:
            break

    assert sorted(seen) == [f"s{n}" for n in range(7)]
    assert cursor is None


async def test_listing_keeps_owners_apart(store: Store) -> None:
    await store.sessions.append(ANN, "a", batch("hello"))
    await store.sessions.append(BOB, "b", batch("hello"))
    await store.sessions.append(EVE, "e", batch("hello"))

    assert await listed(store, ANN) == ["a"]
    assert await listed(store, BOB) == ["b"]
    assert sorted(await listed(store, ACME)) == ["a", "b"]
    assert await listed(store, EVE) == ["e"]


async def test_listing_finds_titles_in_any_case_and_script(store: Store) -> None:
    for session_id, title in (("a", "Ménage À Trois"), ("b", "杭州三日游"), ("c", "100% _sure_")):
        await store.sessions.append(ANN, session_id, batch("hello"))
        await store.sessions.patch(ANN, session_id, Changes(title=title))

    assert await listed(store, ANN, title="ménage à") == ["a"]
    assert await listed(store, ANN, title="三日") == ["b"]
    assert await listed(store, ANN, title="% _SURE") == ["c"]
    assert await listed(store, ANN, title="%%") == []


@pytest.mark.requirement("E2")
async def test_listing_filters_by_status(store: Store) -> None:
    await store.sessions.append(ANN, "a", batch("hello"))
    await store.sessions.append(ANN, "b", batch("hello"))
    await store.sessions.patch(ANN, "b", Changes(status=Status.ARCHIVED))

    assert await listed(store, ANN, status=Status.ARCHIVED) == ["b"]


async def test_listing_leaves_out_deleted_and_expired_sessions(store: Store, clock: FakeClock) -> None:
    await store.sessions.append(ANN, "old", batch("hello"))
    clock.advance(timedelta(days=29))
    await store.sessions.append(ANN, "deleted", batch("hello"))
    await store.sessions.append(ANN, "new", batch("hello"))
    await store.sessions.delete(ANN, "deleted")
    clock.advance(timedelta(days=1))

    assert await listed(store, ANN) == ["new"]


async def test_a_foreign_cursor_is_refused(store: Store, subtests: pytest.Subtests) -> None:
    for cursor in ["", "x", "not base64 at all!", "AAAA", "é"]:
        with subtests.test(cursor=cursor), pytest.raises(InvalidCursor):
            await store.sessions.list(ANN, SessionQuery(cursor=cursor))


@pytest.mark.requirement("D20")
async def test_a_reset_forgets_the_talk_and_keeps_the_session(store: Store) -> None:
    """Messages, context and metadata go; title, attributes and totals stay."""
    turn = await begin(store, ANN, "s", "one", idempotency_key=once("k"))
    await store.sessions.finish_turn(turn, closing("reply", tokens=9))
    await store.sessions.patch(ANN, "s", Changes(title="T", context={"c": 1}, metadata={"m": 1}, attributes={"a": 1}))

    session = await store.sessions.reset(ANN, "s")
    following = await begin(store, ANN, "s", "two", idempotency_key=once("k"))

    assert (session.messages, session.context, session.metadata) == (0, {}, {})
    assert (session.title, session.attributes, session.tokens) == ("T", {"a": 1}, 9)
    assert following.state is TurnState.OPENED
    assert [message.seq for message in following.window] == [3]


async def test_a_reset_keeps_the_metadata_it_is_told_to(store: Store) -> None:
    metadata = {"assistant": "goods", "assist": 1, "title": {"by": "rules"}, "odd": [1.0, {"a": None}]}
    await store.sessions.append(
        ANN, "s", batch("a", create=NewSession(metadata=metadata, context={"assistant": "mine"}))
    )

    reset = await store.sessions.reset(ANN, "s", keep_metadata=("assistant", "odd", "persona"))

    assert reset.metadata == {"assistant": "goods", "odd": [1.0, {"a": None}]}
    assert type(reset.metadata["odd"][0]) is float
    assert reset.context == {}
    assert await store.sessions.get(ANN, "s") == reset
    assert (await store.sessions.reset(ANN, "s")).metadata == {}


async def test_a_reset_keeps_producers_marks(store: Store) -> None:
    """A journal that replays after a reset neither doubles nor finds a gap."""
    await store.sessions.append(ANN, "s", batch("one", producer=Producer(id="journal", seq=1)))
    await store.sessions.reset(ANN, "s")

    again = await store.sessions.append(ANN, "s", batch("one", producer=Producer(id="journal", seq=1)))

    assert again.duplicate


@pytest.mark.requirement("D20", "S9")
async def test_a_reset_during_a_turn_wins(store: Store) -> None:
    """The running turn cannot bring the old talk back."""
    turn = await begin(store, ANN, "s", "one")
    await store.sessions.reset(ANN, "s")

    with pytest.raises(TurnLost):
        await store.sessions.finish_turn(turn, closing("late"))

    assert await texts(store, ANN, "s") == []


async def test_a_truncation_forgets_the_tail_and_never_reuses_numbers(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch("a", "b", "c", "d"))

    session = await store.sessions.truncate(ANN, "s", Truncation(after=2))
    more = await store.sessions.append(ANN, "s", batch("e"))

    assert session.messages == 2
    assert [message.seq for message in more.messages] == [5]
    assert await texts(store, ANN, "s") == ["a", "b", "e"]


async def test_a_truncation_during_a_turn_wins(store: Store) -> None:
    turn = await begin(store, ANN, "s", "one")
    await store.sessions.truncate(ANN, "s", Truncation(after=0))

    with pytest.raises(TurnLost):
        await store.sessions.finish_turn(turn, closing("late"))


async def test_a_truncated_reply_makes_its_key_resume_and_a_question_forgets_it(store: Store) -> None:
    for session, after, state in (("reply", 1, TurnState.RESUMED), ("question", 0, TurnState.OPENED)):
        await talk(store, ANN, session, "question", "answer", idempotency_key=once("k"))
        await store.sessions.truncate(ANN, session, Truncation(after=after))

        again = await begin(store, ANN, session, "question", idempotency_key=once("k"))

        assert again.state is state
        assert await texts(store, ANN, session) == ["question"]


async def test_a_fork_copies_up_to_a_message_and_goes_its_own_way(store: Store) -> None:
    await talk(store, ANN, "s", "q1", "a1")
    await talk(store, ANN, "s", "q2", "a2")
    await store.sessions.patch(ANN, "s", Changes(title="Original", context={"c": 1}, attributes={"a": [1, 2.0]}))

    fork = await store.sessions.fork(ANN, "s", ForkRequest(new_id="f", at=2))
    await talk(store, ANN, "f", "other", "way")

    assert (fork.title, fork.context, fork.attributes) == ("Original", {"c": 1}, {"a": [1, 2.0]})
    assert fork.forked_from is not None
    assert (fork.forked_from.session_id, fork.forked_from.seq) == ("s", 2)
    assert (fork.messages, fork.turns, fork.last_seq, fork.tokens) == (2, 1, 2, 0)
    assert await texts(store, ANN, "f") == ["q1", "a1", "other", "way"]
    assert await texts(store, ANN, "s") == ["q1", "a1", "q2", "a2"]


async def test_a_fork_outlives_its_source(store: Store) -> None:
    await talk(store, ANN, "s", "q1", "a1")
    await store.sessions.fork(ANN, "s", ForkRequest(new_id="f", title="Branch"))
    await store.sessions.delete(ANN, "s")

    assert await texts(store, ANN, "f") == ["q1", "a1"]
    assert (await store.sessions.get(ANN, "f")).title == "Branch"
    assert await listed(store, ANN) == ["f"]


async def test_a_fork_at_nothing_is_empty(store: Store) -> None:
    await talk(store, ANN, "s", "q1", "a1")

    fork = await store.sessions.fork(ANN, "s", ForkRequest(new_id="f", at=0))

    assert (fork.messages, fork.last_seq) == (0, 0)
    assert await texts(store, ANN, "f") == []


async def test_a_fork_during_a_turn_holds_no_lease(store: Store) -> None:
    turn = await begin(store, ANN, "s", "q1")
    await store.sessions.fork(ANN, "s", ForkRequest(new_id="f"))

    await begin(store, ANN, "f", "q2")
    await store.sessions.finish_turn(turn, FinishTurn())

    assert await texts(store, ANN, "f") == ["q1", "q2"]
