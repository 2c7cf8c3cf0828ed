"""Thoughts as items of the Responses API, with the OpenAI SDK: streamed, handed back by the client, and stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.chats import Adder
from tests.journeys.http_service import ANN
from tests.journeys.scripted_providers import provided, thoughts_sent
from tests.providers import Answer, Reasoning, ScriptedProvider, Text, ToolCall
from tests.servers.loopback import serving

TOOL: Any = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": False}
OUTPUT = "It rains."
LOOP = (
    Answer(Reasoning("I must ", "look."), ToolCall("weather", id="call_w1")),
    Answer(Reasoning("It rains."), Text("Take an ", "umbrella.")),
)


@asynccontextmanager
async def openai_client(provider: ScriptedProvider, *tools: Any, **given: Any) -> AsyncIterator[AsyncOpenAI]:
    async with (
        provided(provider, *tools, **given) as service,
        serving(service.app) as url,
        AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, default_headers=ANN) as client,
    ):
        yield client


def output_of(call_id: str) -> Any:
    return {"type": "function_call_output", "call_id": call_id, "output": OUTPUT}


@pytest.mark.parametrize("model", ["claude", "haiku", "bound", "gpt"])
@pytest.mark.parametrize("way", ["chain", "conversation", "items", "items, streamed"])
async def test_a_client_that_runs_the_tools_keeps_the_thoughts(
    provider: ScriptedProvider, model: str, way: str
) -> None:
    """The provider refuses the output of a call without the thoughts behind the call."""
    provider.plays(*LOOP)
    asked: dict[str, Any] = {"model": model, "tools": [TOOL]}
    question: Any = {"role": "user", "content": "An umbrella?"}
    async with openai_client(provider) as client:
        if way == "conversation":
            asked["conversation"] = (await client.conversations.create()).id
        elif way != "chain":
            asked |= {"store": False, "include": ["reasoning.encrypted_content"]}
        first = await client.responses.create(**asked, input=[question])
        assert [item.type for item in first.output] == ["reasoning", "function_call"]
        answer = [output_of("call_w1")]
        if way == "chain":
            asked["previous_response_id"] = first.id
        elif "store" in asked:
            answer = [question, *[item.to_dict() for item in first.output], *answer]
        if way == "items, streamed":
            async with client.responses.stream(**asked, input=answer) as stream:
                second = await stream.get_final_response()
        else:
            second = await client.responses.create(**asked, input=answer)

    assert [item.type for item in second.output] == ["reasoning", "message"]
    assert second.output_text == "Take an umbrella."
    assert thoughts_sent(provider) == ["I must look."]


@pytest.mark.parametrize("model", ["claude", "gpt"])
async def test_the_stream_of_a_thought_is_what_the_api_defines(provider: ScriptedProvider, model: str) -> None:
    provider.plays(Answer(Reasoning("I ", "think."), Text("So.")))
    async with openai_client(provider) as client:
        stream = await client.responses.create(model=model, input="Why?", stream=True)
        events = [event.to_dict() async for event in stream]
        final: Any = events[-1]["response"]
        stored = (await client.responses.retrieve(final["id"])).to_dict()
        items = [one.to_dict() async for one in client.responses.input_items.list(final["id"])]

    thought = [event for event in events if "reasoning" in str(event.get("type")) or event.get("output_index") == 0]
    assert [event["type"] for event in thought] == [
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
    ]
    assert [event["delta"] for event in thought if "delta" in event] == ["I ", "think."]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == final["output"] == stored["output"]
    assert final["output"][0]["summary"] == [{"type": "summary_text", "text": "I think."}]
    assert final["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    assert [item["type"] for item in items] == ["message"]


async def test_thoughts_before_own_tools_end_in_the_stream_and_are_none_of_the_answer(
    provider: ScriptedProvider,
) -> None:
    provider.plays(
        Answer(Reasoning("First."), ToolCall("add", {"a": 1, "b": 2})), Answer(Reasoning("Then."), Text("Three."))
    )
    async with openai_client(provider, Adder()) as client:
        stream = await client.responses.create(model="claude", input="1 + 2?", stream=True)
        events: list[Any] = [event.to_dict() async for event in stream]

    done = [event["item"]["summary"] for event in events if event.get("item", {}).get("type") == "reasoning"]
    assert [summary[0]["text"] for summary in done if summary] == ["First.", "Then."]
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["reasoning", "message"]


async def test_items_of_a_conversation_that_began_at_openai_go_on_there(provider: ScriptedProvider) -> None:
    provider.plays(*LOOP)
    question: Any = {"role": "user", "content": "An umbrella?"}
    asked: dict[str, Any] = {"tools": [TOOL], "store": False}
    async with AsyncOpenAI(base_url=provider.openai_url, api_key=provider.key) as openai:
        said = {"effort": "medium", "summary": "auto"}
        first: Any = await openai.responses.create(model="gpt-5-mini", input=[question], reasoning=said, **asked)  # type: ignore[call-overload]
    talk = [question, *[item.to_dict() for item in first.output], output_of("call_w1")]
    async with openai_client(provider) as client:
        second = await client.responses.create(model="gpt", input=talk, **asked)

    assert second.output_text == "Take an umbrella."
    assert thoughts_sent(provider) == ["I must look."]


async def test_a_thought_whose_text_a_client_changed_does_not_go_back(provider: ScriptedProvider) -> None:
    provider.plays(Answer(Reasoning("Mine."), Text("So.")))
    async with openai_client(provider) as client:
        own = (await client.responses.create(model="claude", input="Why?", store=False)).output[0].to_dict()
        said: Any = [{"role": "user", "content": "Why?"}, own, {"role": "assistant", "content": "So."}]
        changed = [said[0], {**own, "summary": [{"type": "summary_text", "text": "Yours."}]}, said[2]]
        sent = []
        for talk in (said, changed):
            await client.responses.create(model="claude", input=[*talk, said[0]], store=False)
            sent.append(thoughts_sent(provider))

    assert sent == [["Mine."], []]


async def test_withheld_thoughts_are_items_without_text(provider: ScriptedProvider) -> None:
    provider.plays(*LOOP)
    async with openai_client(provider, show_reasoning=False) as client:
        asked: dict[str, Any] = {"model": "gpt", "tools": [TOOL]}
        stream = await client.responses.create(**asked, input="An umbrella?", stream=True)
        events: list[Any] = [event.to_dict() async for event in stream]
        first = events[-1]["response"]
        await client.responses.create(**asked, input=[output_of("call_w1")], previous_response_id=first["id"])

    assert "look" not in str(events)
    assert first["output"][0]["summary"] == []
    assert thoughts_sent(provider) == ["I must look."]
