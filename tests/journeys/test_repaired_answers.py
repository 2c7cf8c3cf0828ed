"""An answer without the demanded form is asked for once more: what was thought for the first is not the second's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenuto.app import open_app
from tenuto.chat import ChatRequest
from tenuto.errors import AnswerInvalid
from tenuto.llm import Say, ScriptedModel, Think
from tenuto.model.generation import REPAIR, ReasoningDelta, StepChanged
from tenuto.model.parameters import AnswerSchema, ModelFacts
from tenuto.server.web_streams.ag_ui_events import AgUiStream
from tenuto.server.web_streams.ai_sdk_chunks import UiStream
from tenuto.settings import Settings
from tests.journeys.http_service import ANN as ANN_HEADERS
from tests.journeys.http_service import http_service, playing
from tests.samples import ANN

NUMBER: Any = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORMED = ModelFacts(schemas=True)
TRIES: tuple[list[Say | Think], ...] = ([Think("Let me ", "see."), Say("Three.")], [Think("As JSON."), Say('{"n": 3}')])


async def events_of(*scripts: Any) -> list[Any]:
    """The events of a streamed turn, up to its failure if it fails."""
    model = ScriptedModel(*scripts, facts=FORMED)
    settings = Settings(store="memory://", model="scripted", summarizer_model="offline")
    events: list[Any] = []
    async with open_app(settings, models={"scripted": model}, run_upkeep=False) as app:
        chat = await app.chat()
        try:
            async for event in chat.stream(ANN, ChatRequest(text="How many?", schema=AnswerSchema(schema=NUMBER))):
                events.append(event)  # noqa: PERF401 (what came before the failure is kept)
        except AnswerInvalid as error:
            events.append(error)
    return events


async def test_a_repair_is_a_step_between_the_thoughts_of_two_answers() -> None:
    events = await events_of(*TRIES)

    told = [event.text if isinstance(event, ReasoningDelta) else getattr(event, "state", None) for event in events]
    assert [one for one in told if one] == ["Let me ", "see.", "started", "As JSON.", "done"]
    assert (events[-1].reply.text, events[-1].reply.reasoning) == ('{"n": 3}', "As JSON.")


async def test_a_repair_that_fails_says_so() -> None:
    events = await events_of("Three.", "Three!")

    [started, failed] = [event for event in events if isinstance(event, StepChanged)]
    assert (started.id, started.state, failed.state, failed.error) == (REPAIR, "started", "failed", "answer_invalid")
    assert isinstance(events[-1], AnswerInvalid)


async def test_pages_show_two_thoughts() -> None:
    events = await events_of(*TRIES)
    ui, ag = UiStream(), AgUiStream(thread_id="t", run_id="r")

    chunks = [chunk for event in events for chunk in ui.encode(event)]
    run = [one for event in events for one in ag.encode(event)]

    begun = [chunk["id"] for chunk in chunks if chunk["type"] == "reasoning-start"]
    thoughts = [one["messageId"] for one in run if one["type"] == "REASONING_START"]
    assert (len(set(begun)), len(set(thoughts))) == (2, 2)


@pytest.mark.parametrize("stored", [True, False])
async def test_the_stream_of_a_response_has_an_item_for_each_thought(stored: bool) -> None:
    form = {"format": {"type": "json_schema", "name": "count", "schema": NUMBER}}
    asked = {"input": "How many?", "stream": True, "text": form, "store": stored}
    async with http_service(**playing(ScriptedModel(*TRIES, facts=FORMED))) as service:
        response = await service.http.post("/v1/responses", headers=ANN_HEADERS, json=asked)
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]

    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    summaries = {item["id"]: item["summary"][0]["text"] for item in done if item["type"] == "reasoning"}
    [last] = [item for item in events[-1]["response"]["output"] if item["type"] == "reasoning"]
    assert [*summaries.values()] == ["Let me see.", "As JSON."]
    assert last["summary"][0]["text"] == "As JSON."


async def test_the_stream_of_a_message_has_a_block_for_each_thought() -> None:
    asked = {
        "model": "helper",
        "max_tokens": 100,
        "stream": True,
        "messages": [{"role": "user", "content": "How many?"}],
        "output_config": {"format": {"type": "json_schema", "schema": NUMBER}},
    }
    async with http_service(**playing(ScriptedModel(*TRIES, facts=FORMED))) as service:
        response = await service.http.post("/v1/messages", headers=ANN_HEADERS, json=asked)
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]

    deltas = [event for event in events if event["type"] == "content_block_delta"]
    thoughts = {event["index"]: "" for event in deltas if event["delta"]["type"] == "thinking_delta"}
    for event in deltas:
        if event["index"] in thoughts:
            thoughts[event["index"]] += event["delta"].get("thinking", "")
    assert [*thoughts.values()] == ["Let me see.", "As JSON."]
