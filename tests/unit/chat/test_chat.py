"""One turn, from words to answer: what is stored, what the model sees, and what is told of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenuto.chat import ReplyFinished, TurnStarted
from tenuto.errors import AssistantNotFound, IdempotencyKeyReused, Invalid, SessionNotFound
from tenuto.llm import Call, Say
from tenuto.model.generation import TextDelta
from tests.chats import Adder, ask, helper, talk
from tests.samples import ANN
from tests.unit.stored_talks import stored_messages, stored_trace


@pytest.mark.requirement("D4")
async def test_a_turn_stores_words_and_answer_and_tells_how_it_went() -> None:
    t = talk("Hello Ann.")

    reply = await t.chat.take_turn(ANN, ask("Hello, I am Ann."))

    assert reply.text == "Hello Ann."
    assert reply.created
    assert await stored_messages(t, reply.session_id) == [("user", "Hello, I am Ann."), ("assistant", "Hello Ann.")]
    trace = await stored_trace(t, reply)
    assert (trace.request, trace.answer, trace.model, trace.error) == (
        "Hello, I am Ann.",
        "Hello Ann.",
        "scripted",
        None,
    )
    assert trace.manifest == reply.manifest
    assert {"begin", "assemble", "model"} <= set(trace.steps)
    assert [ended.session.id for ended in t.ended] == [reply.session_id]


@pytest.mark.requirement("D4")
async def test_the_model_sees_what_was_said_before() -> None:
    t = talk("First.", "Second.")
    first = await t.chat.take_turn(ANN, ask("One?"))

    await t.chat.take_turn(ANN, ask("Two?", first.session_id))

    seen = [(message.role.value, message.text) for message in t.model.requests[-1].messages]
    assert seen == [("system", "You help."), ("user", "One?"), ("assistant", "First."), ("user", "Two?")]


async def test_what_is_streamed_is_what_is_stored() -> None:
    t = talk([Say("Hel", "lo ", "Ann.")])

    events = [event async for event in t.chat.stream(ANN, ask("Hi"))]

    assert isinstance(events[0], TurnStarted)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Hel", "lo ", "Ann."]
    assert isinstance(events[-1], ReplyFinished)
    assert await stored_messages(t, events[0].session_id) == [("user", "Hi"), ("assistant", "Hello Ann.")]
    assert events[-1].reply.trace_id == events[0].trace_id


async def test_a_retry_with_the_same_key_brings_the_same_reply_and_asks_no_model() -> None:
    adder = Adder()
    t = talk([Call("add", {"a": 1, "b": 2})], "Three.", assistants=[helper(tools=(adder,))])
    first = await t.chat.take_turn(ANN, ask("1+2?", idempotency_key="k"))

    again = await t.chat.take_turn(ANN, ask("1+2?", idempotency_key="k"))

    assert len(t.model.requests) == 2
    assert again.replayed
    assert replace(again, replayed=False, created=True, steps=first.steps) == first
    with pytest.raises(IdempotencyKeyReused):
        await t.chat.take_turn(ANN, ask("2+2?", idempotency_key="k"))


async def test_unknown_assistants_and_characters_are_said_and_nothing_is_stored() -> None:
    t = talk("Hi.")

    with pytest.raises(AssistantNotFound, match="helper"):
        await t.chat.take_turn(ANN, ask("Hi", "s", assistant="nobody"))
    with pytest.raises(AssistantNotFound, match="character"):
        await t.chat.take_turn(ANN, ask("Hi", "s", persona="nobody"))
    with pytest.raises(SessionNotFound):
        await t.sessions.get(ANN, "s")


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_question_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="empty"):
        ask(text)


@pytest.mark.requirement("E2", "E12")
async def test_a_profile_and_style_reach_the_prompt_and_are_kept() -> None:
    t = talk("Hi.")
    reply = await t.chat.take_turn(ANN, ask("Hi", profile={"name": "Ann", "response_style": "brief"}))

    await t.chat.take_turn(ANN, ask("Again", reply.session_id))

    for asking in t.model.requests:
        words = "\n".join(message.text for message in asking.messages)
        assert "Ann" in words
        assert "brief" in words


async def test_a_trace_keeps_only_so_much_of_long_words() -> None:
    t = talk("long " * 5000)

    reply = await t.chat.take_turn(ANN, ask("many " * 5000, "s"))

    trace = await stored_trace(t, reply)
    assert max(len(trace.request), len(trace.answer)) <= 8000
    assert reply.text == "long " * 5000
