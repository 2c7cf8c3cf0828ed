"""Turns that outlive their readers: joined late, stopped, retried, and ended with their server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tenuto.chat import ChatEvent, LiveTurn, LiveTurns, ReplyFinished, TurnStarted
from tenuto.errors import AssistantFailed, LimitReached, SessionNotFound, TurnInterrupted, TurnStopped, Unavailable
from tenuto.llm import Call, Fail, Hang, Say
from tenuto.model import Content, NewSession
from tenuto.model.attachment import attachment_part
from tenuto.model.generation import TextDelta
from tests.attachments import PNG
from tests.chats import Adder, Talk, ask, helper, talk
from tests.samples import ANN, BOB, EVE
from tests.unit.stored_talks import stored_messages


def live(t: Talk) -> LiveTurns:
    return LiveTurns(t.chat, t.sessions)


async def read(turn: LiveTurn, after: int = 0) -> list[tuple[int, ChatEvent]]:
    return [pair async for pair in turn.events(after)]


def texts(events: list[tuple[int, ChatEvent]]) -> str:
    return "".join(event.text for _, event in events if isinstance(event, TextDelta))


async def test_readers_come_and_go_and_the_turn_goes_on() -> None:
    """Events are numbered; who joins late reads from the number it names; other callers see nothing."""
    t = talk([Say("One ", "two "), hang := Hang(), Say("three.")])
    turns = live(t)
    turn = turns.start(ANN, ask("Count", "s"))
    left = turn.events()
    first = [await anext(left) for _ in range(3)]
    await left.aclose()  # type: ignore[attr-defined]  # a generator by nature
    await hang.reached.wait()

    joined = await turns.find(ANN, "s")
    assert joined is turn
    readers = [asyncio.create_task(read(turn, after)) for after in (0, 2, 99)]
    await asyncio.sleep(0)
    for stranger in (BOB, EVE):
        with pytest.raises(SessionNotFound):
            await turns.find(stranger, "s")
    hang.release.set()
    whole, rest, none = [await reader for reader in readers]

    assert t.model.cancelled == 0
    assert whole[:3] == first
    assert [number for number, _ in whole] == list(range(1, len(whole) + 1))
    assert isinstance(whole[0][1], TurnStarted)
    assert isinstance(whole[-1][1], ReplyFinished)
    assert (texts(whole), whole[2:], none) == ("One two three.", rest, [])
    assert await stored_messages(t, "s") == [("user", "Count"), ("assistant", "One two three.")]
    again = await turns.find(ANN, "s")
    assert again is turn
    assert await read(again, len(whole) - 1) == whole[-1:]


async def test_a_stop_keeps_what_was_said() -> None:
    t = talk(
        [Call("add", {"a": 1, "b": 2})],
        [Say("It ", "is "), hang := Hang(), Say("3.")],
        "More.",
        assistants=[helper(tools=(Adder(),), postprocess=lambda *_: "changed")],
    )
    turns = live(t)
    request = ask("1+2?", "s", idempotency_key="k")
    turn = turns.start(ANN, request)
    await hang.reached.wait()

    reply = await turn.stop()

    assert reply is not None
    assert (reply.text, reply.stopped, reply.model) == ("It is ", True, "scripted")
    assert (await read(turn))[-1][1] == ReplyFinished(reply=reply)
    assert await turn.stop() == reply
    assert t.model.cancelled == 1
    said = (await t.sessions.messages(ANN, "s")).messages
    assert [(message.role.value, message.metadata.get("stopped")) for message in said] == [
        ("user", None), ("assistant", None), ("tool", None), ("assistant", True)
    ]  # fmt: skip
    replayed = await turns.take_turn(ANN, request)
    assert (replayed.text, replayed.stopped, replayed.replayed) == ("It is ", True, True)
    assert (await t.chat.take_turn(ANN, ask("Go on", "s"))).text == "changed"
    assert t.model.requests[-1].messages[-2].text == "It is "


@pytest.mark.parametrize(("words", "early"), [((), True), ((), False), (("Half",), False)])
async def test_a_stop_replaces_no_whole_answer(words: tuple[str, ...], early: bool) -> None:
    """Neither before the first word nor after it; a message that has no answer is left without one."""
    t = talk("Old.", [Say(*words), hang := Hang()], "New.")
    await t.chat.take_turn(ANN, ask("Tell me", "s"))
    turns = live(t)
    turn = turns.start(ANN, ask("", "s", regenerate=True))
    if not early:
        await hang.reached.wait()

    assert await turn.stop() is None
    with pytest.raises(TurnStopped):
        await turn.reply()
    assert await stored_messages(t, "s") == [("user", "Tell me"), ("assistant", "Old.")]
    assert next(trace.error for trace in await t.store.traces.traces(ANN, "s")) == "turn_stopped"


async def test_a_retry_under_the_same_key_joins_the_running_turn() -> None:
    t = talk([hang := Hang(), Say("Once.")])
    turns = live(t)
    request = ask("Tell me", "s", idempotency_key="k")
    gone = asyncio.create_task(turns.take_turn(ANN, request))
    await hang.reached.wait()
    gone.cancel()
    await asyncio.wait([gone])

    again = asyncio.create_task(turns.take_turn(ANN, request))
    await asyncio.sleep(0)
    hang.release.set()

    assert (await again).text == "Once."
    assert (await again).replayed is False
    assert len(t.model.requests) == 1


async def test_a_session_of_the_same_id_does_not_show_the_turn_of_the_one_before() -> None:
    t = talk("Secret.")
    turns = live(t)
    await turns.take_turn(ANN, ask("Hi", "s"))
    await t.sessions.delete(ANN, "s")
    await t.sessions.create(BOB, NewSession(), session_id="s")

    assert await turns.find(BOB, "s") is None


async def test_ended_turns_are_dropped_in_time(later: Callable[[float], None], monkeypatch: Any) -> None:
    monkeypatch.setattr("tenuto.chat.live._MOST_KEPT", 2)
    t = talk("Hi.")
    turns = live(t)
    for name in "abc":
        await turns.take_turn(ANN, ask("Hi", name))
    await asyncio.sleep(0)

    assert [await turns.find(ANN, name) is not None for name in "abc"] == [False, True, True]
    later(61)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [await turns.find(ANN, name) for name in "abc"] == [None] * 3


async def test_pictures_of_a_failed_turn_count_by_their_bytes() -> None:
    """They are not encoded to be counted: that would hold other requests."""
    picture = Content.of(ANN, PNG + bytes(1024 * 1024), "image/png")
    turn = LiveTurn(ANN, ask("What is it?", "a", parts=(attachment_part(picture),), contents=(picture,)))

    assert 0 < turn.kept_bytes - len(picture.data) < 2_000


async def test_turns_hold_a_bounded_memory(monkeypatch: Any) -> None:
    """An answered turn keeps its events alone, within so many bytes, and an owner runs so many turns at a time."""
    monkeypatch.setattr("tenuto.chat.live._MOST_RUNNING", 1)
    t = talk([hang := Hang(), Say("One.")], "Two.", "Three.", Fail(ValueError("none")))
    turns = live(t)
    request = ask("Count", "a", idempotency_key="k")
    first = turns.start(ANN, request)
    await hang.reached.wait()
    assert turns.start(ANN, request) is first
    with pytest.raises(LimitReached):
        turns.start(ANN, ask("Count", "b"))
    assert (await turns.take_turn(BOB, ask("Count", "c"))).text == "Two."
    hang.release.set()
    assert (await first.reply()).text == "One."
    assert request not in vars(first).values()
    await asyncio.sleep(0)

    monkeypatch.setattr("tenuto.chat.live._MOST_BYTES", first.kept_bytes + 10)
    await turns.take_turn(ANN, ask("Count", "b"))
    await asyncio.sleep(0)
    assert [await turns.find(ANN, name) is not None for name in "ab"] == [False, True]
    with pytest.raises(AssistantFailed):
        await turns.take_turn(ANN, ask("Count" * first.kept_bytes, "d"))
    await asyncio.sleep(0)
    assert [await turns.find(ANN, name) for name in "bd"] == [None, None], "an error holds its request"


async def test_a_server_that_ends_leaves_its_turns_to_be_resumed(monkeypatch: Any) -> None:
    monkeypatch.setattr("tenuto.chat.live._GRACE", 0.0)
    t = talk([Say("Half"), hang := Hang()], "Whole.")
    request = ask("Tell me", "s", idempotency_key="k")
    async with live(t) as turns:
        turn = turns.start(ANN, request)
        await hang.reached.wait()

    assert turn.ended
    with pytest.raises(Unavailable):
        await turn.reply()
    assert await stored_messages(t, "s") == [("user", "Tell me")]
    assert (await t.chat.take_turn(ANN, request)).text == "Whole."


async def test_an_interrupted_turn_is_shown_no_more_where_it_was_read() -> None:
    """Another process may have answered it since; what is known of its first attempt would hide that."""
    t = talk([Say("One "), hang := Hang()], "One two.")
    here, elsewhere = live(t), live(t)
    request = ask("Count", "s", idempotency_key="k")
    turn = here.start(ANN, request)
    await hang.reached.wait()
    here.leave()
    with pytest.raises(TurnInterrupted):
        await turn.reply()

    assert (await elsewhere.take_turn(ANN, request)).text == "One two."
    assert await here.find(ANN, "s") is None
