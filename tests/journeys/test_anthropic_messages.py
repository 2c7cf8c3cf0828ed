"""The Anthropic SDK, unmodified, on messages: whole and streamed, tools, pictures, thoughts, sessions and errors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import AsyncAnthropic

from tenuto.errors import FailureReason, ModelFailed, ModelLimited, ModelRefused, ModelTimeout
from tenuto.llm import Call, Fail, Hang, Say, ScriptedModel
from tenuto.llm.scripted import Think
from tenuto.model.generation import ModelDone
from tenuto.model.parameters import FinishReason
from tenuto.model.prompt import PromptPolicy
from tests.attachments import PDF, PNG, base64, contents_of
from tests.chats import Adder
from tests.journeys.anthropic_clients import anthropic_provided, anthropic_served
from tests.journeys.http_service import ANN, at, http_service, playing
from tests.journeys.scripted_providers import thoughts_sent
from tests.providers import Answer, Reasoning, ScriptedProvider, Text, ToolCall
from tests.servers.loopback import serving

HI: Any = {"role": "user", "content": "Hi"}
ASKED: dict[str, Any] = {"model": "helper", "max_tokens": 500}
WEATHER: Any = {
    "name": "weather",
    "description": "Tells the weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
    "cache_control": {"type": "ephemeral"},
}
PICTURE: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64(PNG)}}
LINK: Any = {"type": "image", "source": {"type": "url", "url": "https://example.com/tea.png"}}
FILE: Any = {
    "type": "document",
    "title": "plan.pdf",
    "source": {"type": "base64", "media_type": "application/pdf", "data": base64(PDF)},
}
NOTES: Any = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Tea at four."}}


async def streamed(client: AsyncAnthropic, **asked: Any) -> tuple[list[dict[str, Any]], Any]:
    """The events of a stream as they came, and the message that the SDK makes of them."""
    events = [event.to_dict() async for event in await client.messages.create(**asked, stream=True)]
    async with client.messages.stream(**asked) as stream:
        return events, await stream.get_final_message()


def block_result(call_id: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


async def test_a_message_is_answered_whole_and_as_a_stream() -> None:
    model = ScriptedModel([Say("Hel", "lo.")], ended=ModelDone(model="m", input_tokens=20, cached_tokens=5))
    async with anthropic_served(**playing(model)) as (_, _, ann):
        asked = {**ASKED, "messages": [HI], "system": [{"type": "text", "text": "Be short."}]}
        whole = await ann.messages.create(**asked)
        events, final = await streamed(ann, **asked)

    assert [event["type"] for event in events] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    for message in (whole, final):
        assert [block.to_dict() for block in message.content] == [{"type": "text", "text": "Hello.", "citations": None}]
        assert (message.model, message.role, message.stop_reason) == ("helper", "assistant", "end_turn")
        assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (15, 5)
        assert message.id.startswith("msg_")
    assert whole._request_id
    assert "Be short." in model.requests[0].messages[0].text


@pytest.mark.parametrize(
    ("finish", "reason"),
    [(FinishReason.LENGTH, "max_tokens"), (FinishReason.CONTENT_FILTER, "refusal"), (FinishReason.REFUSAL, "refusal")],
)
async def test_an_answer_says_why_it_ended(finish: FinishReason, reason: str) -> None:
    model = ScriptedModel("No.", ended=ModelDone(model="m", finish=finish))
    async with anthropic_served(**playing(model)) as (_, _, ann):
        whole = await ann.messages.create(**ASKED, messages=[HI])
        _, final = await streamed(ann, **ASKED, messages=[HI])

    assert whole.stop_reason == final.stop_reason == reason


WHY: dict[str, tuple[Exception, int, str]] = {
    "busy": (ModelLimited("m", "is asked too often"), 429, "rate_limit_error"),
    "no money": (ModelRefused("m", "has no quota left", FailureReason.LIMIT), 402, "billing_error"),
    "slow": (ModelTimeout("m"), 504, "timeout_error"),
    "away": (ModelFailed("m", "cannot be reached", FailureReason.UNREACHABLE), 503, "api_error"),
}


@pytest.mark.parametrize("why", WHY)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_that_fails_has_a_status_also_where_a_stream_was_asked_for(why: str, stream: bool) -> None:
    error, status, kind = WHY[why]
    async with anthropic_served(**playing(ScriptedModel(Fail(error)))) as (_, _, ann):
        with pytest.raises(anthropic.APIStatusError) as raised:
            await ann.messages.create(**ASKED, messages=[HI], stream=stream)

    body: Any = raised.value.body
    assert (raised.value.status_code, body["type"], body["error"]["type"]) == (status, "error", kind)
    assert body["request_id"] == raised.value.request_id != ""


async def test_a_failure_in_the_middle_of_a_stream_is_an_event() -> None:
    async with anthropic_served(**playing(ScriptedModel([Say("Half"), Fail(ModelTimeout("m"))]))) as (_, _, ann):
        stream = await ann.messages.create(**ASKED, messages=[HI], stream=True)
        events = [(await anext(stream)).type for _ in range(3)]
        with pytest.raises(anthropic.APIStatusError) as raised:
            await anext(stream)

    assert events == ["message_start", "content_block_start", "content_block_delta"]
    body: Any = raised.value.body
    assert (body["error"]["type"], body["error"]["details"]["error_code"]) == ("timeout_error", "model_timeout")


async def test_a_silent_model_has_its_stream_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.server.anthropic.messages._SILENCE", 0.0)
    hang = Hang()
    async with anthropic_served(**playing(ScriptedModel([hang, Say("At last.")]))) as (_, _, ann):
        stream = await ann.messages.create(**ASKED, messages=[HI], stream=True)
        first = (await anext(stream)).type
        hang.release.set()
        rest = [event.type async for event in stream]

    assert (first, rest[0]) == ("message_start", "content_block_start")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "role": ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    "block": ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
    "server block": (
        {"messages": [HI, {"role": "assistant", "content": [{"type": "server_tool_use"}]}, HI]},
        "messages[1].content[0].type",
    ),
    "no messages": ({"messages": []}, "messages"),
    "server tool": ({"tools": [WEATHER, {"type": "web_search_20250305", "name": "web_search"}]}, "tools[1].type"),
    "unknown tool": ({"tools": [{"type": "teleport_1", "name": "go"}]}, "teleport_1"),
    "choice": ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice"),
    "result without a call": (
        {"messages": [HI, {"role": "user", "content": [block_result("c", "x")]}]},
        "messages[1].content[0].tool_use_id",
    ),
    "call without a result": (
        {
            "messages": [
                HI,
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "n", "input": {}}]},
                HI,
            ]
        },
        "messages[1].content[0]",
    ),
    "base64": (
        {"messages": [{"role": "user", "content": [{**PICTURE, "source": {**PICTURE["source"], "data": "!"}}]}]},
        "messages[0].content[0].source.data",
    ),
    "citations": (
        {"messages": [{"role": "user", "content": [{**NOTES, "citations": {"enabled": True}}]}]},
        "citations",
    ),
    "field": ({"mcp_servers": []}, "mcp_servers"),
    "stops": ({"stop_sequences": ["a"] * 5}, "stop_sequences"),
    "temperature": ({"temperature": 2}, "temperature"),
    "max_tokens": ({"max_tokens": 0}, "max_tokens"),
    "thinking": ({"thinking": {"type": "deep"}}, "thinking.type"),
    "schema": ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
}


@pytest.mark.parametrize("what", BAD)
async def test_what_no_model_would_get_is_refused_by_its_name(what: str) -> None:
    fields, place = BAD[what]
    async with http_service(**playing(ScriptedModel("Never."))) as service:
        response = await service.http.post("/v1/messages", headers=ANN, json={**ASKED, "messages": [HI], **fields})

    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error"), response.text
    assert place in response.json()["error"]["message"]


async def test_a_system_prompt_that_does_not_fit_is_refused_with_both_sizes() -> None:
    small = PromptPolicy(budget=1200, reply_tokens=100)
    async with anthropic_served(**playing(ScriptedModel("Never."), prompt=small)) as (_, _, ann):
        with pytest.raises(anthropic.BadRequestError) as raised:
            await ann.messages.create(**ASKED, messages=[HI], system="Be kind. " * 2000)

    body: Any = raised.value.body
    assert body["error"]["details"]["error_code"] == "instructions_too_long"
    assert "prompt.budget raises it" in body["error"]["message"]


async def test_errors_have_the_shape_of_the_api_that_is_asked() -> None:
    version = {"anthropic-version": "2023-06-01"}
    async with http_service(locked=True) as service:
        key = (await service.key())["Authorization"].removeprefix("Bearer ")

        async def tell(method: str, path: str, headers: dict[str, str]) -> tuple[int, Any]:
            response: httpx.Response = await service.http.request(method, path, headers=headers)
            return response.status_code, response.json()

        wrong = await tell("POST", "/v1/messages", {"x-api-key": "wrong"})
        told = [
            await tell("GET", "/v1/messages/batches", {}),
            await tell("GET", "/v1/files", version),
            await tell("GET", "/v1/models/none", {**version, "x-api-key": key}),
            await tell("POST", "/v1/messages", {"x-api-key": key}),
        ]
        unknown, own = await tell("GET", "/v1/nothing", {}), await tell("GET", "/v1/sessions/s/nothing", version)

    assert (wrong[0], wrong[1]["error"]["type"]) == (401, "authentication_error")
    assert [status for status, _ in told] == [404, 404, 404, 400]
    assert {body["type"] for _, body in told} == {"error"}
    assert (unknown[0], unknown[1]["error"]["code"]) == (404, "not_found")
    assert (own[0], own[1]["type"]) == (404, "urn:tenuto:problem:not_found")


async def test_a_key_may_stand_where_clients_of_anthropic_put_it() -> None:
    async with http_service(locked=True, **playing(ScriptedModel("Hello."))) as service, serving(service.app) as url:
        _, secret = await service.keys.create(tenant="acme", user="ann")
        for credential in ({"api_key": secret}, {"auth_token": secret}):
            async with AsyncAnthropic(base_url=url, max_retries=0, **credential) as client:
                answer = await client.beta.messages.create(**ASKED, messages=[HI], betas=["context-1m-2025-08-07"])
                assert answer.content[0].type == "text"


async def test_a_client_runs_its_tools_and_the_model_learns_what_failed() -> None:
    calls: Any = [
        Say("I look."),
        Call("weather", {"city": "Rome"}, "toolu_1"),
        Call("weather", {"city": "Bari"}, "toolu_2"),
    ]
    model = ScriptedModel(calls, calls, "Rain.")
    async with anthropic_served(**playing(model)) as (_, _, ann):
        asked: dict[str, Any] = {**ASKED, "tools": [WEATHER], "messages": [HI]}
        choice: Any = {"type": "any", "disable_parallel_tool_use": True}
        events, first = await streamed(ann, **asked, tool_choice=choice)
        results = [
            block_result("toolu_1", [{"type": "text", "text": "wet"}]),
            block_result("toolu_2", "no such city", is_error=True),
        ]
        said: Any = [HI, first.to_param(), {"role": "user", "content": [*results, {"type": "text", "text": "So?"}]}]
        second = await ann.messages.create(**{**asked, "messages": said})

    assert first.stop_reason == "tool_use"
    assert [block.type for block in first.content] == ["text", "tool_use", "tool_use"]
    assert first.content[1].to_dict() == {
        "type": "tool_use",
        "id": "toolu_1",
        "name": "weather",
        "input": {"city": "Rome"},
    }
    assert "input_json_delta" in str(events)
    assert (model.requests[0].tool_choice, model.requests[0].parameters.parallel_tool_calls) == ("required", False)
    parts = [part for message in model.requests[-1].messages for part in message.parts]
    outputs = {
        part["call_id"]: (part["output"], part.get("is_error")) for part in parts if part["type"] == "tool_result"
    }
    assert outputs == {"toolu_1": ("wet", None), "toolu_2": ("no such city", True)}
    assert parts[-1]["text"] == "So?"
    assert second.content[0].to_dict()["text"] == "Rain."


async def test_tools_of_the_assistant_run_on_the_server() -> None:
    model = ScriptedModel([Think("Add."), Say("Wait. "), Call("add", {"a": 1, "b": 2})], [Think("So."), Say("Three.")])
    async with anthropic_served(**playing(model, tools=[Adder()])) as (_, _, ann):
        whole = await ann.messages.create(**ASKED, messages=[HI])
        model.requests.clear()
        _, final = await streamed(ann, **ASKED, messages=[HI])

    assert [block.type for block in whole.content] == ["thinking", "text"]
    assert whole.content[1].to_dict()["text"] == "Three."
    assert final.content[-1].text == "Three."


async def test_pictures_and_documents_reach_the_model(provider: ScriptedProvider) -> None:
    provider.plays(Answer(ToolCall("weather", id="toolu_1")), Answer(Text("Seen.")))
    shown: Any = {"role": "user", "content": [PICTURE, LINK, FILE, NOTES, {"type": "text", "text": "What?"}]}
    async with anthropic_provided(provider) as (_, _, ann):
        asked: dict[str, Any] = {"model": "claude", "max_tokens": 3000, "tools": [WEATHER]}
        first = await ann.messages.create(**asked, messages=[shown])
        result = {"role": "user", "content": [block_result("toolu_1", [PICTURE], is_error=True)]}
        said: Any = [shown, first.to_param(), result]
        second = await ann.messages.create(**asked, messages=said)

    sent = provider.last.body["messages"]
    assert contents_of(sent[0]) == [("image/png", PNG), ("application/pdf", PDF)]
    assert "https://example.com/tea.png" in str(sent[0])
    assert "Tea at four." in str(sent[0])
    assert contents_of(sent[2]) == [("image/png", PNG)]
    assert sent[2]["content"][0]["is_error"] is True
    assert second.content[0].to_dict()["text"] == "Seen."
    assert not second.to_dict().get("degraded")


async def test_a_model_that_takes_no_pictures_says_what_it_did_without() -> None:
    async with anthropic_served(**playing(ScriptedModel("A cat?"))) as (_, _, ann):
        shown: Any = {"role": "user", "content": [PICTURE]}
        answer = await ann.messages.create(**ASKED, messages=[shown])
        events, _ = await streamed(ann, **ASKED, messages=[shown])
        with pytest.raises(anthropic.BadRequestError):
            await ann.messages.create(**ASKED, messages=[shown], extra_body={"require_attachments": True})

    assert answer.to_dict()["degraded"] == ["attachment"]
    assert events[-2]["degraded"] == ["attachment"]


CLEAR = {"type": "clear_tool_uses_20250919"}
LOOP = (
    Answer(Reasoning("I must ", "look."), ToolCall("weather", id="toolu_1")),
    Answer(Reasoning("It rains."), Text("Take an ", "umbrella.")),
)


@pytest.mark.parametrize("model", ["claude", "haiku", "bound", "gpt"])
@pytest.mark.parametrize("way", ["whole", "stream", "session"])
async def test_thoughts_go_back_to_whom_they_came_from(provider: ScriptedProvider, model: str, way: str) -> None:
    """The provider refuses the output of a call without the thoughts behind the call."""
    provider.plays(*LOOP)
    async with anthropic_provided(provider) as (_, _, ann):
        thinking: Any = {"type": "enabled", "budget_tokens": 2048}
        asked: dict[str, Any] = {"model": model, "max_tokens": 4000, "tools": [WEATHER], "thinking": thinking}
        if way == "session":
            asked["extra_headers"] = {"Tenuto-Session": "trip"}
        answers = []
        said: list[Any] = [HI]
        for content in (None, [block_result("toolu_1", "wet")]):
            said += [{"role": "user", "content": content}] if content else []
            if way == "stream":
                async with ann.messages.stream(**asked, messages=said) as stream:
                    answers.append(await stream.get_final_message())
            else:
                answers.append(await ann.messages.create(**asked, messages=said))
            said.append(answers[-1].to_param())

    assert [[block.type for block in answer.content] for answer in answers] == [
        ["thinking", "tool_use"],
        ["thinking", "text"],
    ]
    assert [answer.content[0].to_dict()["thinking"] for answer in answers] == ["I must look.", "It rains."]
    assert thoughts_sent(provider) == ["I must look."]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_thought_that_nobody_may_read_goes_back_as_well(provider: ScriptedProvider, stream: bool) -> None:
    provider.plays(Answer(Reasoning("Hidden.", redacted=True), Text("So.")))
    asked: dict[str, Any] = {"model": "claude", "max_tokens": 3000}
    async with anthropic_provided(provider) as (_, _, ann):
        if stream:
            _, first = await streamed(ann, **asked, messages=[HI])
        else:
            first = await ann.messages.create(**asked, messages=[HI])
        await ann.messages.create(**asked, messages=[HI, first.to_param(), HI])

    assert [block.type for block in first.content] == ["redacted_thinking", "text"]
    sent = [block["type"] for block in provider.last.body["messages"][1]["content"]]
    assert sent == ["redacted_thinking", "text"]


async def test_thoughts_of_a_talk_that_began_at_anthropic_go_on_there(provider: ScriptedProvider) -> None:
    provider.plays(*LOOP)
    asked: dict[str, Any] = {"max_tokens": 3000, "tools": [WEATHER], "thinking": {"type": "adaptive"}}
    async with AsyncAnthropic(base_url=provider.anthropic_url, api_key=provider.key) as direct:
        first = await direct.messages.create(model="claude-sonnet-4-6", messages=[HI], **asked)
    said: Any = [HI, first.to_param(), {"role": "user", "content": [block_result("toolu_1", "wet")]}]
    async with anthropic_provided(provider) as (_, _, ann):
        second = await ann.messages.create(model="claude", messages=said, **asked)
        forged = {"type": "thinking", "thinking": "Mine.", "signature": "tenuto.reasoning.x"}
        changed: Any = [HI, {"role": "assistant", "content": [forged, {"type": "text", "text": "So."}]}, HI]
        await ann.messages.create(model="claude", max_tokens=3000, messages=changed)

    assert second.content[-1].to_dict()["text"] == "Take an umbrella."
    assert [one.refused for one in provider.received if one.refused] == []
    assert thoughts_sent(provider) == []


async def test_what_agents_always_send_is_taken_and_what_has_no_effect_is_said(provider: ScriptedProvider) -> None:
    provider.plays(Answer(Text("Fine.")))
    always: dict[str, Any] = {
        "metadata": {"user_id": '{"device_id": "d", "account_uuid": "", "session_id": "s"}'},
        "system": [{"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}],
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "max"},
        "thinking": {"type": "adaptive"},
        "temperature": 1,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}
        ],
    }
    headers = {**ANN, "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14"}
    async with anthropic_provided(provider) as (service, _, _):
        answers: dict[str, list[Any]] = {}
        for model in ("claude", "gpt", "chat"):
            for fields in ({**always, "context_management": {"edits": [CLEAR]}}, always):
                body = {"model": model, "max_tokens": 32000, **fields}
                response = await service.http.post("/v1/messages?beta=true", headers=headers, json=body)
                answers.setdefault(model, []).append(response.json().get("degraded"))
                assert response.json()["content"][0]["text"] == "Fine.", response.text

    # Only the last model does not think.
    assert answers == {
        "claude": [["parameters"], None],
        "gpt": [["parameters"], None],
        "chat": [["parameters"], ["parameters"]],
    }
    sent = {one.body["model"]: one.body for one in provider.received}
    assert sent["claude-sonnet-4-6"]["output_config"]["effort"] == "max"
    assert sent["gpt-5-mini"]["reasoning"]["effort"] == "high"
    assert "user" not in sent["gpt-5-mini"]


async def test_an_answer_in_a_demanded_form() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    model = ScriptedModel('{"n": "x"}', '{"n": 3}')
    async with anthropic_served(**playing(model)) as (_, _, ann):
        form: Any = {"format": {"type": "json_schema", "schema": schema}}
        answer = await ann.messages.create(**ASKED, messages=[HI], output_config=form)

    assert answer.content[0].to_dict()["text"] == '{"n": 3}'


async def test_with_a_session_only_what_is_new_is_stored() -> None:
    async with anthropic_served(**playing(ScriptedModel("One.", "Two.", "Three."))) as (service, _, ann):
        said: list[Any] = []
        for question, way in (("first?", "whole"), ("second?", "stream"), ("third?", "whole")):
            said.append({"role": "user", "content": question})
            asked = {**ASKED, "messages": said, "extra_headers": {"Tenuto-Session": "talk"}}
            if way == "stream":
                async with ann.messages.stream(**asked) as stream:
                    said.append((await stream.get_final_message()).to_param())
                    assert stream.response.headers["tenuto-session"] == "talk"
            else:
                raw = await ann.messages.with_raw_response.create(**asked)
                assert raw.headers["tenuto-session"] == "talk"
                said.append((await raw.parse()).to_param())
        stored = (await service.http.get(at("talk", "messages"), headers=ANN)).json()["messages"]
        without = await service.http.post("/v1/messages", headers=ANN, json={**ASKED, "messages": [HI]})
        sessions = (await service.http.get("/v1/sessions", headers=ANN)).json()["sessions"]

    assert [one["text"] for one in stored] == ["first?", "One.", "second?", "Two.", "third?", "Three."]
    assert without.status_code == 200
    assert [one["id"] for one in sessions] == ["talk"]


async def test_a_client_that_leaves_ends_the_answer() -> None:
    """What was said until then is stored, and is what the client then shows of it."""
    hang = Hang()
    async with anthropic_served(**playing(ScriptedModel([Say("One ", "two "), hang], "Next."))) as (service, _, ann):
        headers = {"Tenuto-Session": "talk"}
        stream = await ann.messages.create(**ASKED, messages=[HI], stream=True, extra_headers=headers)
        heard = [await anext(stream) for _ in range(4)]
        await hang.reached.wait()
        await stream.close()
        said: Any = [HI, {"role": "assistant", "content": "One"}, {"role": "user", "content": "And?"}]
        await ann.messages.create(**ASKED, messages=said, extra_headers=headers)
        stored = (await service.http.get(at("talk", "messages"), headers=ANN)).json()["messages"]

    assert heard[-1].type == "content_block_delta"
    assert [one["text"].strip() for one in stored] == ["Hi", "One", "And?", "Next."]
    assert stored[1]["metadata"]["stopped"]


async def test_instructions_among_the_messages_are_no_talk_and_forms_of_a_text_are_one() -> None:
    """As Claude Code sends them: a new text is a block with a mark for the cache, and later a text alone."""
    model = ScriptedModel("One.", "Two.")
    async with anthropic_served(**playing(model)) as (service, _, ann):
        marked: Any = [{"type": "text", "text": "first?", "cache_control": {"type": "ephemeral"}}]
        rule: Any = {"role": "system", "content": "Speak low."}
        asked: dict[str, Any] = {**ASKED, "extra_headers": {"Tenuto-Session": "talk"}}
        await ann.messages.create(**asked, messages=[{"role": "user", "content": marked}, rule])
        said: Any = [{"role": "user", "content": "first?"}, rule, {"role": "assistant", "content": "One."}, HI]
        raw = await ann.messages.with_raw_response.create(**asked, messages=said)
        stored = (await service.http.get(at("talk", "messages"), headers=ANN)).json()["messages"]

    assert [one["text"] for one in stored] == ["first?", "One.", "Hi", "Two."]
    assert raw.headers["tenuto-history"] == "continued"
    assert all("Speak low." in request.messages[0].text for request in model.requests)


async def test_an_answer_that_was_begun_goes_on() -> None:
    model = ScriptedModel("pi.")
    async with anthropic_served(**playing(model)) as (_, _, ann):
        await ann.messages.create(**ASKED, messages=[HI, {"role": "assistant", "content": "It is "}])

    assert model.requests[0].messages[-1].text == "It is "


async def test_tokens_are_counted_without_an_answer() -> None:
    model = ScriptedModel("Never.")
    async with anthropic_served(**playing(model)) as (service, _, ann):
        asked: Any = {"model": "helper", "messages": [HI]}
        alone = (await ann.messages.count_tokens(**asked)).input_tokens
        more = await ann.messages.count_tokens(**asked, system="Be short and kind.", tools=[WEATHER])
        shown: Any = {"role": "user", "content": [PICTURE]}
        picture = (await ann.messages.count_tokens(model="helper", messages=[shown])).input_tokens
        bad = await service.http.post("/v1/messages/count_tokens", headers=ANN, json={"model": "helper"})

    assert 0 < alone < picture
    assert more.input_tokens > alone + 10
    assert (bad.status_code, bad.json()["type"]) == (400, "error")
    assert model.requests == []


async def test_models_are_listed_as_the_client_expects() -> None:
    async with anthropic_served(**playing(ScriptedModel("Never."))) as (service, _, ann):
        names = [model.id async for model in ann.models.list(limit=2)]
        one = await ann.models.retrieve("helper")
        openai = (await service.http.get("/v1/models", headers=ANN)).json()
        last = await ann.models.list(limit=2, before_id=names[-1])
        with pytest.raises(anthropic.NotFoundError):
            await ann.models.retrieve("none")
        with pytest.raises(anthropic.BadRequestError):
            await ann.models.list(limit=0)

    assert (one.type, one.display_name, one.lifecycle) == ("model", "helper", "active")
    assert names == [each["id"] for each in openai["data"]]
    assert [each.id for each in last.data] == names[-3:-1]
    assert openai["object"] == "list"


async def test_a_key_of_idempotency_gives_the_same_answer_again() -> None:
    model = ScriptedModel([Think("Hm."), Say("One.")], "Two.")
    async with anthropic_served(**playing(model), retention=timedelta(days=1)) as (_, _, ann):
        headers = {"Tenuto-Session": "talk", "Idempotency-Key": "k"}
        answers = [await ann.messages.create(**ASKED, messages=[HI], extra_headers=headers) for _ in range(2)]
        async with ann.messages.stream(**ASKED, messages=[HI], extra_headers=headers) as stream:
            answers.append(await stream.get_final_message())

    assert [answer.content[-1].to_dict()["text"] for answer in answers] == ["One."] * 3
    assert len(model.requests) == 1
