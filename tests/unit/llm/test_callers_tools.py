"""Tools of the caller with the offline model and with Pydantic AI's: called, run elsewhere, and answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.models.test import TestModel

import tenuto
from tenuto.model import Page
from tenuto.model.generation import ToolSpec
from tenuto.model.values import Json, JsonObject
from tenuto.sessions import fresh_id
from tenuto.sessions.items import draft_from_item
from tests.clock import START
from tests.redactors import MASTER_KEY

CITY: JsonObject = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolSpec(name="getWeather", description="Tells how warm a place is.", parameters=CITY)
TIMETABLE = ToolSpec(name="list_trains", description="Departures of a station.", parameters={"type": "object"})
QUESTION = "How is the weather in Oslo?"


def message(item: JsonObject) -> Any:
    return draft_from_item(item, new_id=fresh_id, now=START)


@pytest.mark.parametrize("model", ["offline", "test"])
async def test_a_tool_is_called_and_its_output_answered(model: str) -> None:
    """With a model that has no language, too."""
    async with tenuto.open("memory://", model=model, models={"test": TestModel(call_tools=["getWeather"])}) as t:
        ann = t.scope(user="ann")
        reply = await t.ask(ann, QUESTION, tools=(TIMETABLE, WEATHER))
        (call,) = reply.calls
        output = {"type": "function_call_output", "call_id": call.id, "output": "Rain, 9 degrees."}
        told = await t.ask(
            ann, "", messages=(message(output),), session_id=reply.session_id, tools=(TIMETABLE, WEATHER)
        )

    assert (call.name, call.arguments) == ("getWeather", {"city": QUESTION if model == "offline" else "a"})
    assert not told.calls
    assert "Rain, 9 degrees." in told.text


CHOICES: list[tuple[str, str, list[str]]] = [
    ("Which trains leave soon?", "auto", ["list_trains"]),
    ("My name is Ann.", "auto", []),
    ("My name is Ann.", "required", ["getWeather"]),
    ("My name is Ann.", "list_trains", ["list_trains"]),
    ("How is the weather?", "none", []),
]
PLACE = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
VALUES: list[tuple[JsonObject, Json]] = [
    ({"type": "string"}, QUESTION),
    ({"enum": ["low", "high"]}, "low"),
    ({"type": ["integer", "null"]}, 0),
    ({"type": "boolean"}, False),
    ({"type": "array", "items": {}}, []),
    ({"anyOf": [{"type": "null"}, {"type": "number"}]}, 0),
    ({"$ref": "#/$defs/Place"}, {"name": QUESTION}),
    ({"$ref": "#/nowhere"}, None),
    ({}, QUESTION),
]


async def test_the_offline_model_calls_what_a_question_names_or_a_choice_demands() -> None:
    """By shared words, with arguments by their schema, and only those that are required."""
    fields = {f"x{number}": schema for number, (schema, _) in enumerate(VALUES)}
    parameters = {"properties": {**fields, "other": {}}, "required": [*fields], "$defs": {"Place": PLACE}}
    tool = ToolSpec(name="weather", description="", parameters=parameters)

    async with tenuto.open("memory://") as t:
        ann = t.scope(user="ann")
        asked = [
            await t.ask(ann, question, tools=(WEATHER, TIMETABLE), tool_choice=choice)
            for question, choice, _ in CHOICES
        ]
        filled = await t.ask(ann, QUESTION, tools=(tool,))

    assert [[call.name for call in reply.calls] for reply in asked] == [called for _, _, called in CHOICES]
    assert filled.calls[0].arguments == {f"x{number}": value for number, (_, value) in enumerate(VALUES)}


async def test_arguments_and_outputs_are_private_to_all_but_the_caller() -> None:
    """A model that may not see an address gets a placeholder, also back from the caller's tool."""
    seen: list[str] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        seen.append(str(messages))
        if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            yield "Sent."
            return
        assert info.model_settings is not None
        assert info.model_settings["tool_choice"] == "required"
        address = next(word for word in str(messages).replace("'", " ").split() if "EMAIL" in word)
        yield {0: DeltaToolCall("send", f'{{"to": "{address}"}}', tool_call_id="c1")}

    send = ToolSpec(name="send", description="", parameters={"type": "object"})
    given: dict[str, Any] = {"privacy_model": "pseudonym", "privacy_message": "pseudonym", "privacy_key": MASTER_KEY}
    given |= {"models": {"m": FunctionModel(stream_function=stream)}, "model": "m", "summarizer_model": "offline"}
    async with tenuto.open("memory://", **given) as t:
        ann = t.scope(user="ann")
        asking: dict[str, Any] = {"tools": (send,), "tool_choice": "required", "idempotency_key": "k"}
        replies = [await t.ask(ann, "Write to ann@example.org", **asking) for _ in range(2)]
        output = {"role": "tool", "tool_call_id": "c1", "content": "sent to ann@example.org"}
        session_id = replies[0].session_id
        told = await t.ask(ann, "", messages=(message(output),), session_id=session_id)
        stored = str((await t.store.sessions.messages(ann, session_id, Page())).messages)

    assert [call.arguments for reply in replies for call in reply.calls] == [{"to": "ann@example.org"}] * 2
    assert told.text == "Sent."
    assert len(seen) == 2
    assert "ann@example.org" not in "".join([*seen, stored])
