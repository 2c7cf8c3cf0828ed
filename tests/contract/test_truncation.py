"""Truncations: of one version alone, so that no words are lost that came meanwhile; and what they may spare."""

from __future__ import annotations

import asyncio

import pytest

from tenuto.errors import SessionBusy, TurnLost, VersionConflict
from tenuto.model import Changes, FinishTurn, Page, Truncation, TurnState
from tenuto.ports import Store
from tests.samples import ANN, batch, begin, closing, once, talk, texts, trace_of


async def test_a_truncation_of_another_version_is_refused_and_forgets_nothing(store: Store) -> None:
    seen = (await store.sessions.append(ANN, "s", batch("a", "b"))).session
    await store.sessions.append(ANN, "s", batch("from elsewhere"))

    with pytest.raises(VersionConflict) as excinfo:
        await store.sessions.truncate(ANN, "s", Truncation(after=1, if_version=seen.version))

    assert (excinfo.value.expected, excinfo.value.actual) == (seen.version, seen.version + 1)
    assert await texts(store, ANN, "s") == ["a", "b", "from elsewhere"]
    assert (await store.sessions.get(ANN, "s")).version == seen.version + 1


async def test_a_truncation_of_the_version_that_was_seen_is_made(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch("a", "b", "c"))
    seen = (await store.sessions.messages(ANN, "s", Page())).session

    cut = await store.sessions.truncate(ANN, "s", Truncation(after=1, if_version=seen.version))

    assert cut.version == seen.version + 1
    assert cut.messages == 1
    assert await texts(store, ANN, "s") == ["a"]


async def test_a_running_turn_outlives_a_truncation_that_was_refused(store: Store) -> None:
    turn = await begin(store, ANN, "s", "question")
    with pytest.raises(VersionConflict):
        await store.sessions.truncate(ANN, "s", Truncation(after=0, if_version=turn.session.version - 1))

    await store.sessions.finish_turn(turn, closing("answer"))

    assert await texts(store, ANN, "s") == ["question", "answer"]
    with pytest.raises(VersionConflict):
        await store.sessions.truncate(ANN, "s", Truncation(after=1, if_version=turn.session.version))


async def test_every_word_makes_a_new_version(store: Store) -> None:
    """What a guarded truncation relies on, whichever way words come in; repetitions bring none, and change nothing."""
    versions = [(await store.sessions.append(ANN, "s", batch("a"))).session.version]
    turn = await begin(store, ANN, "s", "b", idempotency_key=once("k"))
    versions.append(turn.session.version)
    versions.append((await store.sessions.append(ANN, "s", batch("c", idempotency_key=once("l")))).session.version)
    versions.append((await store.sessions.patch(ANN, "s", Changes(title="t"))).version)
    versions.append((await store.sessions.finish_turn(turn, closing("d"))).session.version)

    again = await begin(store, ANN, "s", "b", idempotency_key=once("k"))
    repeated = await store.sessions.append(ANN, "s", batch("c", idempotency_key=once("l")))

    assert versions == sorted(set(versions))
    assert (again.state, repeated.duplicate) == (TurnState.FINISHED, True)
    assert again.session.version == repeated.session.version == versions[-1]


async def test_words_that_come_while_others_are_taken_back_are_kept(store: Store) -> None:
    """Many look and cut while others append; whatever was acknowledged after a look is there, or was looked at."""
    await store.sessions.append(ANN, "s", batch("first"))
    kept: set[str] = set()
    taken: set[str] = set()

    async def write(name: str) -> None:
        for number in range(6):
            said = await store.sessions.append(ANN, "s", batch(f"{name}{number}"))
            kept.update(message.text for message in said.messages)

    async def cut() -> None:
        for _ in range(6):
            page = await store.sessions.messages(ANN, "s", Page(limit=100))
            try:
                await store.sessions.truncate(ANN, "s", Truncation(after=1, if_version=page.session.version))
            except VersionConflict:
                continue
            taken.update(message.text for message in page.messages if message.seq > 1)

    await asyncio.gather(write("a"), write("b"), cut(), cut())

    assert set(await texts(store, ANN, "s")) == {"first"} | (kept - taken)


async def test_a_truncation_spares_what_it_is_told_to(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch("a", "b", "c", "d", "e"))

    cut = await store.sessions.truncate(ANN, "s", Truncation(after=1, keep_seqs=(3, 5, 99, 2**60)))
    more = await store.sessions.append(ANN, "s", batch("f"))

    assert cut.messages == 3
    assert [message.seq for message in more.messages] == [6]
    assert await texts(store, ANN, "s") == ["a", "c", "e", "f"]


async def test_a_log_may_begin_with_what_was_spared(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch("a", "b", "c", "d"))

    await store.sessions.truncate(ANN, "s", Truncation(after=0, keep_seqs=(3,)))

    page = await store.sessions.messages(ANN, "s", Page(after=2))
    turn = await begin(store, ANN, "s", "e", window=10)
    assert ([message.text for message in page.messages], page.more_before) == (["c"], False)
    assert [message.text for message in turn.window] == ["c", "e"]
    assert turn.session.messages == 2


async def test_what_was_spared_counts_under_the_cap_as_everything_does(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch("a", "b", "c", "d"))
    await store.sessions.truncate(ANN, "s", Truncation(after=1, keep_seqs=(4,)))

    for word in ("e", "f"):
        await talk(store, ANN, "s", word, word.upper())

    assert await texts(store, ANN, "s") == ["a", "d", "e", "E", "f", "F"]
    await store.sessions.truncate(ANN, "s", Truncation(after=4))
    assert await texts(store, ANN, "s") == ["a", "d"]


async def test_a_spared_message_s_key_goes_with_the_others(store: Store) -> None:
    await store.sessions.append(ANN, "s", batch("a"))
    await store.sessions.append(ANN, "s", batch("b", idempotency_key=once("k")))
    await store.sessions.append(ANN, "s", batch("c", idempotency_key=once("l")))

    await store.sessions.truncate(ANN, "s", Truncation(after=1, keep_seqs=(2,)))

    assert not (await store.sessions.append(ANN, "s", batch("b", idempotency_key=once("k")))).duplicate
    assert await texts(store, ANN, "s") == ["a", "b", "b"]


async def test_a_guarded_truncation_that_is_made_ends_a_running_turn(store: Store) -> None:
    turn = await begin(store, ANN, "s", "one")
    patched = await store.sessions.patch(ANN, "s", Changes(title="Title"))

    await store.sessions.truncate(ANN, "s", Truncation(after=0, if_version=patched.version))

    with pytest.raises(TurnLost):
        await store.sessions.finish_turn(turn, closing("late"))


async def test_a_turn_that_makes_room_for_its_reply_goes_on(store: Store) -> None:
    """An answer made anew: the old one goes when the new one is there, and the key it came under brings that."""
    await talk(store, ANN, "s", "question", "old", idempotency_key=once("said"))
    again = await begin(store, ANN, "s", idempotency_key=once("anew"))

    cut = await store.sessions.truncate(
        ANN, "s", Truncation(after=1, if_version=again.session.version, within_turn=again)
    )
    with pytest.raises(SessionBusy):
        await begin(store, ANN, "s", "in between")
    renewed = await store.sessions.renew_turn(again)
    done = await store.sessions.finish_turn(renewed, closing("new", trace=trace_of(again)))

    assert (cut.messages, cut.version) == (1, again.session.version + 1)
    assert await texts(store, ANN, "s") == ["question", "new"]
    assert [message.turn for message in done.messages] == [again.number]
    repeated = await begin(store, ANN, "s", idempotency_key=once("anew"))
    assert (repeated.state, [message.text for message in repeated.reply]) == (TurnState.FINISHED, ["new"])
    assert await store.traces.trace(ANN, "s", again.number) is not None
    assert (await begin(store, ANN, "s", "question", idempotency_key=once("said"))).state is TurnState.RESUMED


async def test_a_turn_that_was_given_up_after_it_made_room_is_taken_up_by_its_key(store: Store) -> None:
    await talk(store, ANN, "s", "question", "old")
    again = await begin(store, ANN, "s", idempotency_key=once("anew"))
    await store.sessions.truncate(ANN, "s", Truncation(after=1, within_turn=again))
    await store.sessions.finish_turn(again, FinishTurn(abandoned=True))

    resumed = await begin(store, ANN, "s", idempotency_key=once("anew"))
    await store.sessions.finish_turn(resumed, closing("new"))
    following = await begin(store, ANN, "s", "more", idempotency_key=once("other"))

    assert (resumed.state, resumed.number) == (TurnState.RESUMED, again.number)
    assert [message.text for message in following.window] == ["question", "new", "more"]
    assert following.state is TurnState.OPENED


async def test_only_the_turn_that_holds_the_session_makes_room_in_it(store: Store) -> None:
    await talk(store, ANN, "s", "question", "old")
    late = await begin(store, ANN, "s")
    await store.sessions.finish_turn(late, FinishTurn(abandoned=True))
    with pytest.raises(TurnLost):
        await store.sessions.truncate(ANN, "s", Truncation(after=1, within_turn=late))
    running = await begin(store, ANN, "s")

    with pytest.raises(TurnLost):
        await store.sessions.truncate(ANN, "s", Truncation(after=1, within_turn=late))

    await store.sessions.finish_turn(running, closing("another"))
    assert await texts(store, ANN, "s") == ["question", "old", "another"]
