"""Privacy beside the words: parameters in traces, answers that come as calls, refusals, and what tools show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenuto.app import Tenuto, open_app
from tenuto.assistants import Assistant
from tenuto.chat import ChatRequest
from tenuto.llm import Call, Say, ScriptedModel
from tenuto.model.attachment import MediaInputs
from tenuto.model.generation import ToolContext, ToolOutput, ToolSpec
from tenuto.model.parameters import AnswerSchema, ModelFacts, ModelParameters
from tenuto.model.privacy import AttachmentMode, Mode
from tenuto.model.values import JsonObject
from tenuto.settings import Settings
from tests.chats import helper
from tests.journeys.http_service import ANN as ANN_HEADERS
from tests.journeys.scripted_providers import provided
from tests.providers import Answer, Refusal, ScriptedProvider
from tests.samples import ANN

MAIL = "ann@example.org"
SCHEMA = AnswerSchema(schema={"type": "object", "properties": {"mail": {"type": "string"}}, "required": ["mail"]})
PICTURE: JsonObject = {"type": "image", "url": "https://pictures.example/a.png"}
SEES = ModelFacts(media=MediaInputs(links=frozenset({"image"})))


class Looking:
    """A tool that shows a picture."""

    spec = ToolSpec(name="look", description="Looks.", parameters={"type": "object", "properties": {}})

    async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
        return ToolOutput(output=[{"type": "text", "text": "There."}, PICTURE])


def opened(model: ScriptedModel, *assistants: Assistant, **settings: Any) -> Any:
    named: dict[str, Any] = {"assistant": assistants[0].name} if assistants else {}
    given = Settings(store="memory://", model="scripted", summarizer_model="offline", **named, **settings)
    return open_app(given, models={"scripted": model}, assistants=assistants, run_upkeep=False)


async def traced(app: Tenuto, **fields: Any) -> Any:
    reply = await app.ask(ANN, ChatRequest(text="Hi", **fields))
    return await app.store.traces.trace(ANN, reply.session_id, reply.turn)


async def test_a_trace_has_parameters_as_its_policy_allows() -> None:
    given = ModelParameters(
        user=MAIL,
        stop=(MAIL,),
        provider_metadata={"from": MAIL},
        prediction={"type": "content", "content": f"Write to {MAIL}."},
        seed=7,
    )
    async with opened(ScriptedModel("Hello.")) as app:
        trace = await traced(app, parameters=given)

    assert MAIL not in json.dumps(trace.parameters)
    assert (trace.parameters["seed"], set(trace.parameters)) == (7, set(given.given))


async def test_a_trace_has_no_whole_file_that_is_predicted() -> None:
    predicted = {"type": "content", "content": "word " * 20_000}
    async with opened(ScriptedModel("Hello.")) as app:
        trace = await traced(app, parameters=ModelParameters(prediction=predicted))

    assert len(json.dumps(trace.parameters)) < 10_000


@pytest.mark.parametrize("schemas", [True, False], ids=["by itself", "as a call"])
async def test_an_answer_in_a_demanded_form_is_redacted_however_it_comes(schemas: bool) -> None:
    said = Say(json.dumps({"mail": MAIL})) if schemas else Call("answer", {"mail": MAIL})
    model = ScriptedModel(said, facts=ModelFacts(schemas=schemas))
    async with opened(model, privacy_answer=Mode.REDACT) as app:
        reply = await app.ask(ANN, ChatRequest(text="My address?", schema=SCHEMA))

    assert json.loads(reply.text) == {"mail": "[REDACTED_EMAIL]"}


@pytest.mark.parametrize(
    ("facts", "mode", "arrives"),
    [
        (SEES, AttachmentMode.KEEP, True),
        (SEES, AttachmentMode.DROP, False),
        (SEES, AttachmentMode.BLOCK, False),
        (ModelFacts(), AttachmentMode.KEEP, False),
    ],
    ids=["seen", "dropped", "blocked", "without eyes"],
)
async def test_a_model_gets_what_a_tool_shows_as_it_gets_what_a_user_shows(
    facts: ModelFacts, mode: AttachmentMode, arrives: bool
) -> None:
    model = ScriptedModel(Call("look"), "I see.", facts=facts)
    async with opened(model, helper(tools=(Looking(),)), privacy_attachments_model=mode) as app:
        reply = await app.ask(ANN, ChatRequest(text="Look."))

    [result] = model.requests[-1].messages[-1].parts
    assert (PICTURE in result["output"], reply.degraded) == (arrives, () if arrives else ("attachment",))


@pytest.mark.parametrize("route", ["chat/completions", "responses"])
async def test_a_refusal_that_is_redacted_stays_one_in_its_stream(provider: ScriptedProvider, route: str) -> None:
    provider.plays(Answer(Refusal("I write to no one at ann@exam", "ple.org.")))
    asked: dict[str, Any] = {"model": "chat", "stream": True, "input": "Hi"}
    if route == "chat/completions":
        asked = {"model": "chat", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    async with provided(provider, privacy_answer=Mode.REDACT) as service:
        response = await service.http.post(f"/v1/{route}", headers=ANN_HEADERS, json=asked)
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]

    if route == "responses":
        deltas = [event for event in events if event["type"].endswith(".delta")]
        said = {event["type"]: event["delta"] for event in deltas}
        assert said == {"response.refusal.delta": "I write to no one at [REDACTED_EMAIL]."}
    else:
        pieces = [event["choices"][0]["delta"] for event in events]
        assert not any(piece.get("content") for piece in pieces)
        assert "".join(piece.get("refusal", "") for piece in pieces) == "I write to no one at [REDACTED_EMAIL]."
