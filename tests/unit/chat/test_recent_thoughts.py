"""Thoughts that are held for a caller without a session."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from tenuto.chat.recent_thoughts import RecentThoughts
from tenuto.chat.request import Reply
from tenuto.model import Draft, Role, Scope, text_part
from tenuto.model.generation import ToolCall
from tenuto.model.message import tool_call
from tenuto.model.values import JsonObject
from tests.clock import FakeClock

ANN = Scope(tenant="acme", user="ann")
THOUGHT: JsonObject = {"type": "reasoning", "text": "Look.", "signature": "s", "provider": "anthropic", "model": "m"}
CALL = tool_call("c1", "look", {"text": "a"})
REPLY = Reply(
    session_id="",
    trace_id="",
    turn=1,
    assistant="plain",
    text="",
    calls=(ToolCall(id="c1", name="look", arguments={"text": "a"}),),
    parts=(THOUGHT, CALL),
)


def called(clock: FakeClock) -> Draft:
    """The call as a client of chat completions repeats it."""
    function: JsonObject = {"name": "look", "arguments": '{"text": "a"}'}
    parts: tuple[JsonObject, ...] = ({"type": "function", "id": "c1", "function": function},)
    return Draft(id="m1", role=Role.ASSISTANT, sent_at=clock(), parts=parts)


def test_an_answer_comes_back_as_it_was_given_for_an_hour_after_its_last_use() -> None:
    clock = FakeClock()
    thoughts = RecentThoughts(clock)
    thoughts.keep(ANN, REPLY)

    [given] = thoughts.give_back(ANN, [called(clock)])
    clock.advance(timedelta(minutes=59))
    [later] = thoughts.give_back(ANN, [called(clock)])
    clock.advance(timedelta(minutes=61))
    [late] = thoughts.give_back(ANN, [called(clock)])

    assert given.parts == later.parts == (THOUGHT, CALL)
    assert late.parts == called(clock).parts


def test_a_caller_that_brings_thoughts_gets_no_others() -> None:
    clock = FakeClock()
    thoughts = RecentThoughts(clock)
    thoughts.keep(ANN, REPLY)
    brought = Draft(id="m0", role=Role.ASSISTANT, sent_at=clock(), parts=(THOUGHT,))

    assert thoughts.give_back(ANN, [brought, called(clock)]) == (brought, called(clock))


def test_nothing_is_held_of_answers_whose_thoughts_no_provider_takes_back() -> None:
    clock = FakeClock()
    thoughts = RecentThoughts(clock)
    thoughts.keep(ANN, replace(REPLY, parts=({**THOUGHT, "signature": ""}, CALL)))
    thoughts.keep(ANN, replace(REPLY, calls=(), parts=(THOUGHT, text_part("A cat."))))

    assert thoughts.give_back(ANN, [called(clock)]) == (called(clock),)
