"""Frameworks that speak the OpenAI API, unmodified: the Agents SDK and Pydantic AI, with tools and typed answers."""

from __future__ import annotations

from typing import Any

import agents
import pytest
from agents import Agent, OpenAIConversationsSession, OpenAIResponsesModel, Runner, function_tool
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIResponsesModel as PydanticModel
from pydantic_ai.models.openai import OpenAIResponsesModelSettings
from pydantic_ai.providers.openai import OpenAIProvider

from tests.journeys.openai_clients import OpenAIService, openai_served

TOM, CAT = "My cat is called Tom.", "What is my cat called?"


class Parcel(BaseModel):
    """An answer of a fixed form."""

    order: str
    late: bool


@function_tool
def find_parcel(number: str) -> str:
    """Find a parcel by its number."""
    return f"the parcel is at the depot ({len(number)} signs)"


def agent(opened: OpenAIService, **fields: Any) -> Agent[None]:
    model = OpenAIResponsesModel(model="gpt-5", openai_client=opened.ann)
    return Agent(name="helper", instructions="Be short.", model=model, **fields)


async def test_the_agents_sdk_keeps_its_conversation_on_the_server() -> None:
    """By conversation, by chain, and with its own session class; its tools are run and their outputs come back."""
    agents.set_tracing_disabled(True)
    async with openai_served() as opened:
        helper = agent(opened)
        conversation = (await opened.ann.conversations.create()).id
        told, asked = [await Runner.run(helper, text, conversation_id=conversation) for text in (TOM, CAT)]
        assert told.final_output != asked.final_output
        assert "Tom" in str(asked.final_output)
        first = await Runner.run(helper, TOM, auto_previous_response_id=True)
        asked = await Runner.run(helper, CAT, previous_response_id=first.last_response_id)
        assert "Tom" in str(asked.final_output)
        session = OpenAIConversationsSession(openai_client=opened.ann)
        _, asked = [await Runner.run(helper, text, session=session) for text in (TOM, CAT)]
        assert "Tom" in str(asked.final_output)
        assert len(await session.get_items()) == 4
        popped = await session.pop_item()
        assert popped is not None
        assert len(await session.get_items(limit=2)) == 2

        working = agent(opened, tools=[find_parcel])
        for how in ({"conversation_id": conversation}, {"auto_previous_response_id": True}, {}):
            streamed = Runner.run_streamed(working, "Find the parcel 4711", **how)
            async for _ in streamed.stream_events():
                pass
            assert "at the depot" in str(streamed.final_output)


async def test_pydantic_ai_calls_its_tools_and_gets_typed_answers() -> None:
    async with openai_served() as opened:
        model = PydanticModel("gpt-5", provider=OpenAIProvider(openai_client=opened.ann))
        working: PydanticAgent[None, str] = PydanticAgent(model)

        @working.tool_plain
        def find_parcel(number: str) -> str:
            """Find a parcel by its number."""
            return "the parcel is at the depot"

        told = await working.run("Find the parcel 4711")
        assert "at the depot" in told.output
        chain = OpenAIResponsesModelSettings(openai_previous_response_id="auto")
        plain = PydanticAgent(model, model_settings=chain)
        first = await plain.run(TOM)
        second = await plain.run(CAT, message_history=first.all_messages())
        assert "Tom" in second.output
        typed = PydanticAgent(model, output_type=Parcel)
        assert isinstance((await typed.run("Where is order 4711?")).output, Parcel)


async def test_a_typed_answer_is_parsed_by_the_sdk() -> None:
    async with openai_served() as opened:
        ann = opened.ann
        parsed = await ann.responses.parse(model="gpt-5", input="Where is order 4711?", text_format=Parcel)
        assert parsed.output_parsed == Parcel(order="Where is order 4711?", late=False)
        assert (await ann.responses.retrieve(parsed.id)).output_text == parsed.output_text
        later = await ann.responses.create(model="gpt-5", input="Thank you.", previous_response_id=parsed.id)
        assert later.output_text
        completed = await ann.chat.completions.parse(
            model="gpt-5", messages=[{"role": "user", "content": "Where is order 4711?"}], response_format=Parcel
        )
        assert completed.choices[0].message.parsed == parsed.output_parsed


TOOL: dict[str, Any] = {
    "name": "find_parcel",
    "description": "Find a parcel",
    "parameters": {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]},
}


@pytest.mark.requirement("A8")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_completion_calls_tools_with_and_without_a_session(stream: bool) -> None:
    """The session of another user is left alone, and the caller gets one of its own."""
    tools: Any = [{"type": "function", "function": TOOL}]
    async with openai_served() as opened:
        ann = opened.ann
        for headers in ({}, {"Tenuto-Session": "talk"}):
            talk: list[Any] = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Find parcel 4"}]
            asked: dict[str, Any] = {"model": "gpt-5", "tools": tools, "extra_headers": headers}
            choice: Any = None
            for expected in ("tool_calls", "stop"):
                if stream:
                    async with ann.chat.completions.stream(messages=talk, **asked) as events:
                        choice = (await events.get_final_completion()).choices[0]
                else:
                    choice = (await ann.chat.completions.create(messages=talk, **asked)).choices[0]
                assert choice.finish_reason == expected
                if choice.message.tool_calls:
                    talk.append(choice.message.to_dict())
                    (call,) = choice.message.tool_calls
                    talk.append({"role": "tool", "tool_call_id": call.id, "content": "It is at the depot."})
            assert "at the depot" in choice.message.content
        items = [item.type async for item in ann.conversations.items.list("talk", order="asc")]
        assert items == ["message", "function_call", "function_call_output", "message"]
        _, bobs = await opened.service.keys.create(tenant="acme", user="bob")
        other = await ann.with_options(api_key=bobs).chat.completions.with_raw_response.create(
            model="gpt-5", messages=[{"role": "user", "content": "Hello"}], extra_headers={"Tenuto-Session": "talk"}
        )
        assert other.headers["Tenuto-Session"] != "talk"
        assert len([item async for item in ann.conversations.items.list("talk")]) == len(items)
