"""Thoughts between Pydantic AI's parts and ours: what protocols without a scripted provider demand back."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, PartEndEvent, TextPart, ThinkingPart, ToolCallPart

from tenuto.llm.provider_parameters import Dialect
from tenuto.llm.pydantic_ai_messages import to_messages
from tenuto.llm.pydantic_ai_reasoning import Thinker, ThoughtEnds
from tenuto.model import Role, text_part, tool_call, tool_result
from tenuto.model.generation import ReasoningDelta, ReasoningDone
from tenuto.model.prompt import PromptMessage
from tenuto.model.values import JsonObject

GOOGLE = Thinker("google", Dialect.OTHER, "gemini")
SERVER = Thinker("openai-compatible", Dialect.OPENAI_CHAT, "qwen")
ASKED = PromptMessage(role=Role.USER, parts=(text_part("1 + 2?"),))
ANSWERED = PromptMessage(role=Role.TOOL, parts=(tool_result("c", 3),))


def thoughts_of(thinker: Thinker, *parts: Any) -> list[JsonObject]:
    ended = thinker.ended(ModelResponse(parts=list(parts)))
    return [event.part for event in ended if isinstance(event, ReasoningDone)]


def sent_by(thinker: Thinker, *messages: PromptMessage) -> list[ModelMessage]:
    return to_messages(thinker.prompt(messages)[0])


@pytest.mark.parametrize(
    ("thinker", "details"),
    [(GOOGLE, {"thought_signature": "c2ln"}), (SERVER, {"extra_content": {"google": {"thought_signature": "c2ln"}}})],
    ids=["google", "over chat completions"],
)
def test_a_signed_call_goes_back_signed(thinker: Thinker, details: dict[str, Any]) -> None:
    call = ToolCallPart("add", {}, "c", provider_name=thinker.system, provider_details=details)
    parts = (*thoughts_of(thinker, call), tool_call("c", "add", {}))

    sent = sent_by(thinker, ASKED, PromptMessage(role=Role.ASSISTANT, parts=parts), ANSWERED)[1]

    assert sent.parts == [call]


def test_an_unsigned_thought_goes_back_between_calls_alone() -> None:
    thought = ThinkingPart("Add.", id="reasoning_content", provider_name=SERVER.system)
    parts = (*thoughts_of(SERVER, thought), tool_call("c", "add", {}))
    called = PromptMessage(role=Role.ASSISTANT, parts=parts)

    between, later = sent_by(SERVER, ASKED, called, ANSWERED), sent_by(SERVER, ASKED, called, ANSWERED, ASKED)

    assert between[1].parts[0] == thought
    assert [type(part) for part in later[1].parts] == [ToolCallPart]


def test_a_thought_that_led_to_nothing_in_the_prompt_stays_out() -> None:
    [part] = thoughts_of(GOOGLE, ThinkingPart("Add.", signature="s", provider_name="google"))
    alone = PromptMessage(role=Role.ASSISTANT, parts=(part,))

    prompt, foreign = GOOGLE.prompt([ASKED, alone])

    assert (prompt[1].parts, foreign) == ((), 0)


def test_the_end_of_a_thought_waits_for_what_is_shown_and_is_told_again_with_the_calls() -> None:
    """Until then another model may answer. Raw text that was not streamed comes once."""
    thought = ThinkingPart("", id="t", signature="s", provider_details={"raw_content": ["Add."]})
    ends = ThoughtEnds(SERVER)
    ends.hear(PartEndEvent(index=0, part=thought))
    ends.hear(PartEndEvent(index=1, part=TextPart("Three.")))

    waiting, nothing = ends.take(), ends.take()
    again = list(SERVER.ended(ModelResponse(parts=[thought]), ends.indexes))

    assert [type(event) for event in waiting] == [ReasoningDelta, ReasoningDone]
    assert nothing == []
    assert again == waiting[1:]
