"""Tools that OpenAI runs by itself, with the OpenAI SDK: passed on, their items shown, stored and sent back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from tenuto.model.privacy import Mode
from tests.journeys.http_service import ANN, HttpService, at, http_service
from tests.journeys.scripted_providers import MODELS, provided, thoughts_sent
from tests.providers import Answer, ProviderItem, Reasoning, ScriptedProvider, Text, ToolCall
from tests.servers.loopback import serving

SEARCH: Any = {"type": "web_search", "search_context_size": "low"}
FUNCTION: Any = {
    "type": "function",
    "name": "note",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}
MCP: Any = {
    "type": "mcp",
    "server_label": "wiki",
    "server_url": "https://wiki.example/mcp",
    "require_approval": "never",
    "headers": {"Authorization": "Bearer xyz"},
}
TOOLS: Any = [
    FUNCTION,
    SEARCH,
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    MCP,
]
INCLUDE: Any = ["web_search_call.action.sources", "file_search_call.results", "code_interpreter_call.outputs"]
CITED = {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 3, "end_index": 9}
FILE = {"type": "file_citation", "file_id": "file_1", "filename": "a.txt", "index": 9}
SOURCES = [{"type": "url", "url": "https://a.example"}]
SEARCHED = ProviderItem("web_search_call", {"action": {"type": "search", "query": "rain", "sources": SOURCES}})
# What OpenAI did, of each kind, between two thoughts and around a text.
ALL = Answer(
    Reasoning("I look."),
    SEARCHED,
    ProviderItem("file_search_call", {"queries": ["rain"], "results": [{"file_id": "file_1", "text": "wet"}]}),
    Reasoning("I count."),
    ProviderItem(
        "code_interpreter_call", {"code": "1", "container_id": "cntr_1", "outputs": [{"type": "logs", "logs": "1"}]}
    ),
    ProviderItem("mcp_list_tools", {"server_label": "wiki", "tools": [{"name": "read", "input_schema": {}}]}),
    ProviderItem(
        "mcp_call", {"server_label": "wiki", "name": "read", "arguments": "{}", "output": "dry", "error": None}
    ),
    Text("It ", "rains.", cites=[CITED, FILE]),
)
KINDS = [
    *("reasoning", "web_search_call", "file_search_call", "reasoning"),
    *("code_interpreter_call", "mcp_list_tools", "mcp_call", "message"),
]


@asynccontextmanager
async def clients(
    provider: ScriptedProvider, *tools: Any, **given: Any
) -> AsyncIterator[tuple[AsyncOpenAI, HttpService]]:
    async with (
        provided(provider, *tools, **given) as service,
        serving(service.app) as url,
        AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, default_headers=ANN) as client,
    ):
        yield client, service


def sent_items(provider: ScriptedProvider) -> list[Any]:
    """The provider's own items in its newest request."""
    return [
        item
        for item in provider.last.body["input"]
        if str(item.get("type")).endswith(("_call", "_tools")) and item["type"] != "function_call"
    ]


def as_input(items: list[Any]) -> list[Any]:
    """The items as OpenAI takes them back: of a search without what it found."""
    made = [item for item in items if item["type"] in KINDS and item["type"] not in ("reasoning", "message")]
    searched = {"action": {"type": "search", "query": "rain"}}
    return [{**item, **(searched if item["type"] == "web_search_call" else {})} for item in made]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("way", ["chain", "conversation", "items"])
async def test_items_come_back_in_their_order_and_go_to_openai_again(
    provider: ScriptedProvider, way: str, streamed: bool
) -> None:
    provider.plays(ALL, Answer(Text("Yes.")))
    asked: dict[str, Any] = {"model": "gpt", "tools": TOOLS, "include": INCLUDE, "tool_choice": {"type": "file_search"}}
    question: Any = {"role": "user", "content": "Rain?"}
    async with clients(provider) as (client, _):
        if way == "conversation":
            asked["conversation"] = (await client.conversations.create()).id
        elif way == "items":
            asked["store"] = False
        if streamed:
            stream = await client.responses.create(**asked, input=[question], stream=True)
            events: list[Any] = [event.to_dict() async for event in stream]
            first = events[-1]["response"]
            done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
            assert sorted(done, key=str) == sorted(first["output"], key=str)
        else:
            first = (await client.responses.create(**asked, input=[question])).to_dict()
        output: Any = first["output"]
        tools_sent, choice = provider.last.body["tools"], provider.last.body["tool_choice"]
        if way == "chain":
            assert (await client.responses.retrieve(str(first["id"]))).to_dict()["output"] == output
            asked["previous_response_id"] = first["id"]
        elif way == "conversation":
            listed = [
                item.to_dict() async for item in client.conversations.items.list(asked["conversation"], order="asc")
            ]
            assert listed[1:] == output
        again = [question, *output, question] if way == "items" else [question]
        await client.responses.create(**asked, input=again)

    assert [item["type"] for item in output] == KINDS
    assert output[1]["action"]["sources"] == SOURCES
    assert output[-1]["content"][0]["annotations"] == [CITED, FILE]
    assert [tool for tool in tools_sent if tool["type"] != "function"] == TOOLS[1:]
    assert choice == {"type": "file_search"}
    assert sent_items(provider) == as_input(output)
    kinds = [item.get("type", "message") for item in provider.last.body["input"]]
    assert [kind for kind in kinds if kind in KINDS[:-1]] == KINDS[:-1]
    assert "Bearer" not in str(first)


async def test_the_stream_of_an_item_is_what_the_api_defines(provider: ScriptedProvider) -> None:
    provider.plays(Answer(SEARCHED, Text("It ", "rains.", cites=[CITED])))
    async with clients(provider) as (client, _):
        stream = await client.responses.create(model="gpt", input="Rain?", tools=[SEARCH], stream=True)
        events: list[Any] = [event.to_dict() async for event in stream]

    assert [(event["type"].removeprefix("response."), event["output_index"]) for event in events[2:-1]] == [
        ("output_item.added", 0),
        ("web_search_call.in_progress", 0),
        ("web_search_call.completed", 0),
        ("output_item.done", 0),
        ("output_item.added", 1),
        ("content_part.added", 1),
        ("output_text.delta", 1),
        ("output_text.delta", 1),
        ("output_text.annotation.added", 1),
        ("output_text.done", 1),
        ("content_part.done", 1),
        ("output_item.done", 1),
    ]
    assert events[2]["item"]["status"] == "in_progress"


async def test_items_survive_a_restart_and_a_fork_and_are_dropped_for_other_models(
    provider: ScriptedProvider, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    provider.plays(ALL, Answer(Text("Yes.")))
    async with clients(provider, store=store) as (client, _):
        conversation = (await client.conversations.create()).id
        first = await client.responses.create(model="gpt", input="Rain?", tools=TOOLS, conversation=conversation)
    items = as_input([item.to_dict() for item in first.output])
    async with clients(provider, store=store) as (_, service):
        fork = (await service.http.post(at(conversation, "fork"), headers=ANN, json={})).json()["id"]
        sent = {}
        for session, assistant in ((fork, "gpt"), (conversation, "claude"), (conversation, "gpt")):
            body = {"message": "Sure?", "session_id": session, "assistant": assistant}
            reply = (await service.http.post("/v1/chat", headers=ANN, json=body)).json()
            trace = (await service.http.get(f"/v1/traces/{reply['trace_id']}", headers=ANN)).json()
            sent[session, assistant] = (
                trace["dropped_items"],
                items == sent_items(provider) if assistant == "gpt" else None,
            )

    assert sent == {(fork, "gpt"): (0, True), (conversation, "claude"): (5, None), (conversation, "gpt"): (0, True)}


@pytest.mark.parametrize("sink", ["privacy_message", "privacy_answer", "privacy_model"])
async def test_what_the_policy_changes_does_not_go_back_and_is_counted(provider: ScriptedProvider, sink: str) -> None:
    """OpenAI refuses an item without the thought before it, and a thought without what it led to."""
    mail = "ann@example.org"
    provider.plays(
        Answer(
            Reasoning(f"Write to {mail}."),
            SEARCHED,
            Reasoning("I look."),
            ProviderItem("web_search_call", {"action": {"type": "search", "query": mail}}),
            Text("Done: ", mail, cites=[CITED]),
        ),
        Answer(Text("Bye.")),
    )
    async with clients(provider, **{sink: Mode.REDACT}) as (client, service):
        first = await client.responses.create(model="gpt", input="Hi", tools=[SEARCH])
        second = await client.responses.create(model="gpt", input="Bye", previous_response_id=first.id)
        trace = (await service.http.get(f"/v1/traces/{second.id.removeprefix('resp_')}", headers=ANN)).json()

    assert (mail in str(first)) == (sink != "privacy_answer")
    assert (sent_items(provider), thoughts_sent(provider), trace["dropped_items"]) == ([], [], 2)
    content: Any = first.output[-1]
    assert bool(content.content[0].annotations) == (sink != "privacy_answer")


async def test_a_turn_goes_on_behind_items_and_own_functions(provider: ScriptedProvider) -> None:
    """The provider refuses the output of a call without the items between it and the thought."""
    provider.plays(Answer(Reasoning("Hm."), SEARCHED, ToolCall("note", id="call_1")), Answer(Text("Noted.")))
    async with clients(provider) as (client, _):
        first = await client.responses.create(model="gpt", input="Rain?", tools=[FUNCTION, SEARCH])
        output: Any = [{"type": "function_call_output", "call_id": "call_1", "output": "ok"}]
        second = await client.responses.create(
            model="gpt", input=output, tools=[FUNCTION, SEARCH], previous_response_id=first.id
        )

    assert [item.type for item in first.output] == ["reasoning", "web_search_call", "function_call"]
    assert second.output_text == "Noted."
    kinds = [item.get("type") for item in provider.last.body["input"]]
    assert kinds[-4:] == ["reasoning", "web_search_call", "function_call", "function_call_output"]


@pytest.mark.parametrize("choice", ["none", "required", {"type": "allowed_tools", "mode": "auto", "tools": [SEARCH]}])
async def test_a_choice_reaches_the_model_as_it_is(provider: ScriptedProvider, choice: Any) -> None:
    provider.plays(Answer(Text("Hm.")))
    async with clients(provider) as (client, _):
        await client.responses.create(model="gpt", input="Rain?", tools=[SEARCH], tool_choice=choice)

    assert (provider.last.body["tools"], provider.last.body["tool_choice"]) == ([SEARCH], choice)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("claude", {"tools": [FUNCTION, SEARCH]}, "tools[1].type"),
    ("chat", {"tools": [SEARCH]}, "tools[0].type"),
    ("claude", {"tools": [SEARCH], "store": False, "stream": True}, "tools[0].type"),
    ("gpt", {"tools": [FUNCTION, {"type": "computer_use_preview"}]}, "tools[1].type"),
    ("gpt", {"tools": [{**MCP, "require_approval": "always"}]}, "tools[0].require_approval"),
    ("gpt", {"tools": [SEARCH], "include": ["web_search_call.results"]}, "include[0]"),
]


@pytest.mark.parametrize(("model", "given", "place"), REFUSED, ids=[f"{one[0]} {one[2]}" for one in REFUSED])
async def test_what_does_not_run_there_is_refused_by_its_place(
    provider: ScriptedProvider, model: str, given: dict[str, Any], place: str
) -> None:
    async with clients(provider) as (client, service):
        with pytest.raises(BadRequestError) as refused:
            await client.responses.create(model=model, input="Rain?", **given)
        sessions = (await service.http.get("/v1/sessions", headers=ANN)).json()["sessions"]

    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", place)
    assert (sessions, provider.received) == ([], [])


async def test_chat_completions_refuse_other_tools_than_functions(provider: ScriptedProvider) -> None:
    function: Any = {"type": "function", "function": {"name": "note", "parameters": {"type": "object"}}}
    async with clients(provider) as (client, _):
        with pytest.raises(BadRequestError) as refused:
            await client.chat.completions.create(
                model="gpt", messages=[{"role": "user", "content": "Rain?"}], tools=[function, SEARCH]
            )

    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", "tools[1].type")
    assert provider.received == []


async def test_tools_run_for_a_model_that_is_opened_by_its_name(
    provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", provider.openai_url)
    monkeypatch.setenv("OPENAI_API_KEY", provider.key)
    provider.plays(Answer(SEARCHED, Text("It rains.")))
    async with (
        http_service(model=f"openai:{MODELS['gpt']}", summarizer_model="offline") as service,
        serving(service.app) as url,
        AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, default_headers=ANN) as client,
    ):
        first = await client.responses.create(input="Rain?", tools=[SEARCH])
        await client.responses.create(input="And now?", tools=[SEARCH], previous_response_id=first.id)

    assert [item.type for item in first.output] == ["web_search_call", "message"]
    assert len(sent_items(provider)) == 1


async def test_a_schema_goes_as_it_is_to_a_model_that_a_program_hands_over(provider: ScriptedProvider) -> None:
    """Pydantic AI makes a schema fit the strict mode, so that answers have another form than the one asked for."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string", "minLength": 1}}}
    provider.plays(Answer(Text('{"a": "x"}')))
    async with clients(provider) as (client, _):
        form: Any = {"format": {"type": "json_schema", "name": "pair", "schema": schema}}
        await client.responses.create(model="gpt", input="A pair.", text=form)

    assert provider.last.body["text"]["format"]["schema"] == schema
