"""How an answer of a provider ends: what broke off is no answer, whatever the dialect."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.chats import Adder
from tests.journeys.http_service import ANN, at
from tests.journeys.scripted_providers import provided
from tests.providers import Answer, Ending, Failure, ScriptedProvider, Text, ToolCall
from tests.providers.samples import OPEN_SCHEMA

DIALECTS = ("claude", "gpt", "chat")
SUM = ToolCall("add", {"a": 1, "b": 2})
WRITE = {"name": "write", "description": "Writes.", "parameters": OPEN_SCHEMA}


@pytest.mark.parametrize("assistant", DIALECTS)
@pytest.mark.parametrize("part", [Text("The transfer is not ", "allowed."), SUM], ids=["words", "a call"])
async def test_a_stream_that_just_ends_is_no_answer(provider: ScriptedProvider, assistant: str, part: Any) -> None:
    """A proxy closes it in order: nothing but the missing end says that the answer was not whole."""
    provider.plays(Answer(part, ends_early=True))
    adder = Adder()
    async with provided(provider, adder) as service:
        asked = {"message": "May I?", "assistant": assistant, "session_id": None}
        response = await service.http.post("/v1/chat", headers=ANN, json=asked)
        session_id = response.json()["session_id"]
        messages = (await service.http.get(at(session_id, "messages"), headers=ANN)).json()["messages"]

    assert (response.status_code, response.json()["code"]) == (503, "model_failed")
    assert ([one["role"] for one in messages], adder.calls) == (["user"], [])


@pytest.mark.parametrize("assistant", ["gpt", "chat"])
async def test_a_call_that_was_cut_is_not_told_as_a_whole_one(provider: ScriptedProvider, assistant: str) -> None:
    """Its arguments are no JSON: a client that took it for whole would fail on them, or act on a part of them."""
    written = '{"text": "' + "once upon a time " * 500
    provider.plays(Answer(ToolCall("write", written), ending=Ending.LENGTH))
    hi = [{"role": "user", "content": "Hi"}]
    async with provided(provider) as service:

        async def post(route: str, **asked: Any) -> Any:
            return await service.http.post(f"/v1/{route}", headers=ANN, json={"model": assistant, **asked})

        chat = (await post("chat/completions", messages=hi, tools=[{"type": "function", "function": WRITE}])).json()
        streamed = (
            await post("chat/completions", messages=hi, stream=True, tools=[{"type": "function", "function": WRITE}])
        ).text
        response = (await post("responses", input="Hi", tools=[{"type": "function", **WRITE}])).json()
        fetched = (await service.http.get(f"/v1/responses/{response['id']}", headers=ANN)).json()
        tool = {"name": "write", "input_schema": OPEN_SCHEMA}
        message = (await post("messages", messages=hi, max_tokens=16, tools=[tool])).json()

    assert chat["choices"][0]["finish_reason"] == "length"
    assert message["stop_reason"] == "max_tokens"
    assert ('"finish_reason":"length"' in streamed, '"finish_reason":"tool_calls"' in streamed) == (True, False)
    for each in (response, fetched):
        calls = [(item["status"], item["arguments"]) for item in each["output"] if item["type"] == "function_call"]
        assert (each["status"], calls) == ("incomplete", [("incomplete", written)])


@pytest.mark.parametrize(
    ("ending", "ui_reason", "finish"),
    [
        (Ending.DONE, "stop", None),
        (Ending.LENGTH, "length", "length"),
        (Ending.FILTERED, "content-filter", "content_filter"),
    ],
)
async def test_streams_for_pages_say_that_an_answer_was_cut(
    provider: ScriptedProvider, ending: Ending, ui_reason: str, finish: str | None
) -> None:
    provider.plays(Answer(Text("Once upon"), ending=ending))
    parts = [{"type": "text", "text": "Tell."}]
    async with provided(provider) as service:
        asked = {"id": "c1", "messages": [{"id": "u1", "role": "user", "parts": parts}]}
        ui = await service.http.post("/v1/ai-sdk/chat", headers=ANN, json=asked)
        run = {"threadId": "c2", "runId": "r1", "messages": [{"id": "u2", "role": "user", "content": "Tell."}]}
        ag = await service.http.post("/v1/ag-ui/chat", headers=ANN, json=run)

    assert f'"finishReason":"{ui_reason}"' in ui.text
    events = [json.loads(line[6:]) for line in ag.text.splitlines() if line.startswith("data: ")]
    assert events[-1]["result"].get("finish") == finish


@pytest.mark.parametrize("assistant", DIALECTS)
async def test_a_limit_that_lasts_longer_than_the_answer_may_is_told_as_one(
    provider: ScriptedProvider, assistant: str
) -> None:
    """Nothing is waited for that cannot help: else the limit would be told as a model that is too slow."""
    provider.plays(Failure(429, retry_after=7))
    async with provided(provider, model_timeout=timedelta(seconds=6)) as service:
        response = await service.http.post("/v1/chat", headers=ANN, json={"message": "Hi", "assistant": assistant})

    told = (response.status_code, response.json()["code"], response.headers["retry-after"])
    assert (told, len(provider.received)) == ((429, "model_limited", "7"), 1)
