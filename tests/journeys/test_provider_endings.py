"""How an answer of a provider ends: what broke off is no answer, whatever the dialect."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chats import Adder
from tests.journeys.http_service import ANN, at
from tests.journeys.scripted_providers import provided
from tests.providers import Answer, ScriptedProvider, Text, ToolCall

DIALECTS = ("claude", "gpt", "chat")
SUM = ToolCall("add", {"a": 1, "b": 2})


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
