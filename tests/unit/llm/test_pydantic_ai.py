"""Providers' models through the real client, against a server on loopback that speaks their protocols."""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, cast

import msgspec
import pytest
from pydantic_ai.models import StreamedResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tenuto.errors import FailureReason, InvalidSetting, ModelFailed, ModelTimeout
from tenuto.llm import UNREADABLE, ModelConnection, OfflineModel, complete, open_model
from tenuto.llm.pydantic_ai import open_pydantic_ai_model
from tenuto.llm.reach import LOCAL, model_addresses
from tenuto.model import Role, text_part, tool_call, tool_result
from tenuto.model.generation import ModelDone, ModelRequest, TextDelta, ToolCall, ToolCallRequested, ToolSpec
from tenuto.model.parameters import FinishReason
from tenuto.model.prompt import PromptMessage
from tenuto.model.values import JsonObject
from tenuto.ports import ChatModel, facts_of
from tests.chats import events_of, events_until_failure
from tests.servers.openai_server import (
    A_PAGE,
    GARBAGE,
    SILENCE,
    ModelServer,
    Reply,
    anthropic_words,
    calls,
    refusal,
    stalling,
    start_model_server,
    words,
)

# What the server calls its model and each answer.
ANSWERED: Any = {"response_model": "served", "response_id": "c1"}
SECRET = "my password is hunter2"
SOON = timedelta(seconds=30)


def shown(role: Role, *parts: JsonObject) -> PromptMessage:
    return PromptMessage(role=role, parts=parts)


LOOK = ToolSpec(
    name="look",
    description="Looks it up.",
    parameters={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
PROMPT = (
    shown(Role.SYSTEM, text_part("You are a guide.")),
    shown(Role.SYSTEM, text_part("Summary: "), text_part("none")),
    shown(Role.USER, text_part("Look!")),
    shown(Role.ASSISTANT, text_part("I look."), tool_call("c1", "look", {"q": "门"})),
    shown(Role.TOOL, tool_result("c1", {"found": ["门", 1]})),
    shown(Role.ASSISTANT, text_part("A gate.")),
    shown(Role.USER, text_part(SECRET)),
)
ASKING = ModelRequest(messages=PROMPT, tools=(LOOK,), reply_tokens=77, cacheable_messages=6)
answer = partial(events_of, asking=ASKING)


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may use keys from the environment."""
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "OLLAMA_BASE_URL",
        "VLLM_BASE_URL",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with start_model_server() as running:
        yield running


@pytest.fixture
async def model(server: ModelServer) -> AsyncIterator[ChatModel]:
    access = ModelConnection(base_url=f"{server.url}/v1", timeout=SOON, first_token_timeout=SOON, retries=0)
    async with open_pydantic_ai_model("openai:local", access) as opened:
        yield opened


async def test_words_come_piece_by_piece_with_what_they_used(server: ModelServer, model: ChatModel) -> None:
    server.answers(words("Hel", "lo, ", "世界"))

    assert await answer(model) == [
        TextDelta(text="Hel"),
        TextDelta(text="lo, "),
        TextDelta(text="世界"),
        ModelDone(model="openai:local", input_tokens=11, output_tokens=5, **ANSWERED),
    ]


async def test_the_provider_sees_the_prompt_as_it_was_assembled(server: ModelServer, model: ChatModel) -> None:
    server.answers(words("ok"))

    await answer(model)

    [asked] = server.asked
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q":"门"}'}}
    assert asked["messages"] == [
        {"role": "system", "content": "You are a guide."},
        {"role": "system", "content": "Summary: none"},
        {"role": "user", "content": "Look!"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"found":["门",1]}'},
        {"role": "assistant", "content": "A gate."},
        {"role": "user", "content": SECRET},
    ]
    assert asked["max_tokens"] == 77
    function = asked["tools"][0]["function"]
    assert (function["name"], function["parameters"]) == ("look", LOOK.parameters)


async def test_a_system_message_in_the_middle_stays_there(server: ModelServer, model: ChatModel) -> None:
    server.answers(words("ok"))
    prompt = (*PROMPT[:1], *PROMPT[2:3], PROMPT[5], shown(Role.SYSTEM, text_part("Be brief.")), PROMPT[-1])

    await answer(model, asking=ModelRequest(messages=prompt))

    assert [message["role"] for message in server.asked[0]["messages"]] == [
        "system",
        "user",
        "assistant",
        "system",
        "user",
    ]


async def test_tool_calls_come_whole(server: ModelServer, model: ChatModel) -> None:
    server.answers(calls(("a", "look", '{"q": "x"}'), ("b", "jump", "")))

    assert await answer(model) == [
        ToolCallRequested(call=ToolCall(id="a", name="look", arguments={"q": "x"})),
        ToolCallRequested(call=ToolCall(id="b", name="jump")),
        ModelDone(model="openai:local", finish=FinishReason.TOOL_CALLS, input_tokens=20, output_tokens=8, **ANSWERED),
    ]


@pytest.mark.parametrize(
    "written",
    [
        pytest.param('{"q": "x', id="cut"),
        pytest.param('["q"]', id="list"),
        pytest.param('"q"', id="text"),
        pytest.param("NaN", id="nan"),
        pytest.param('{"q": "\\ud800"}', id="surrogate"),
        pytest.param('{"q": "\\u0000"}', id="nul"),
        pytest.param('{"q": 1e999}', id="infinite"),
        pytest.param('{"q":' * 70 + "1" + "}" * 70, id="deep"),
    ],
)
async def test_unreadable_arguments_are_handed_on_as_such(server: ModelServer, model: ChatModel, written: str) -> None:
    """The tool refuses them, and the model may try again: no half-read call is run."""
    server.answers(calls(("a", "look", written)))

    [called, _] = await answer(model)

    assert isinstance(called, ToolCallRequested)
    assert set(called.call.arguments) == {UNREADABLE}
    assert called.call.arguments[UNREADABLE].encode()


BROKEN: dict[str, tuple[Reply, str]] = {
    "500": (refusal(500, SECRET), "failed at its provider (500)"),
    "503": (refusal(503, SECRET), "failed at its provider (503)"),
    "429": (refusal(429, SECRET, "rate_limit_exceeded"), "asked more often than its provider allows (429)"),
    "401": (refusal(401, SECRET, "invalid_api_key"), "refuses our key or its permissions (401)"),
    "404": (refusal(404, SECRET, "model_not_found"), "is not known to its provider (404)"),
    "no quota": (refusal(429, SECRET, "insufficient_quota"), "has no quota left (429)"),
    "400": (refusal(400, SECRET), "refused the request (400)"),
    "code in words": (refusal(400, SECRET, SECRET, SECRET), "refused the request (400)"),
    "403": (refusal(403, SECRET), "refuses our key or its permissions (403)"),
    "filtered": (refusal(400, SECRET, "content_filter"), "declined to answer (content filter) (400)"),
    "too long": (refusal(400, SECRET, "context_length_exceeded"), "cannot take a prompt this long (400)"),
    "llama.cpp": (refusal(400, SECRET, "400", "exceed_context_size_error"), "cannot take a prompt this long (400)"),
    "garbage": (GARBAGE, "failed"),
    "a page": (A_PAGE, "answered with something that cannot be used"),
    "nothing": (words(), "gave an empty answer"),
    "blank": (words(" ", "\n"), "gave an empty answer"),
}


@pytest.mark.parametrize(("reply", "why"), BROKEN.values(), ids=BROKEN)
async def test_a_failure_is_told_without_the_users_words(
    server: ModelServer, model: ChatModel, reply: Reply, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="tenuto")
    server.answers(reply)

    with pytest.raises(ModelFailed, match="the model openai:local ") as excinfo:
        await answer(model)

    assert why in str(excinfo.value)
    assert SECRET not in "".join(traceback.format_exception(excinfo.value))
    # What a provider says about key, model, quota and length is for the operator; the rest may quote the prompt.
    assert (SECRET in caplog.text) == any(told in why for told in ("(429)", "our key", "not known", "this long"))
    assert reply != BROKEN["400"][0] or "ModelRequestRejectedError 400 error some_error" in caplog.text
    assert len(server.asked) == 1
    reasons = {
        FailureReason.LIMIT: ("(429)",),
        FailureReason.REFUSED: ("refuses our key", "not known", "refused the request", "this long"),
        FailureReason.CONTENT_FILTER: ("declined to answer",),
    }
    reason = next((each for each, told in reasons.items() if any(part in why for part in told)), FailureReason.OTHER)
    assert excinfo.value.reason is reason
    refused = {
        "no quota": "model_refused",
        "refused the request": "request_refused",
        "declined to answer": "request_refused",
        "more often": "model_limited",
        "our key": "model_key_refused",
        "not known": "model_not_found",
        "this long": "prompt_too_long",
    }
    assert excinfo.value.code == next((code for told, code in refused.items() if told in why), "model_failed")


@pytest.mark.parametrize("finish", [FinishReason.LENGTH, FinishReason.CONTENT_FILTER])
async def test_an_answer_without_words_says_why_it_ended(
    server: ModelServer, model: ChatModel, finish: FinishReason
) -> None:
    server.answers(words(finish=finish.value))

    [done] = await answer(model)

    assert isinstance(done, ModelDone)
    assert done.finish is finish


@pytest.mark.parametrize("cut", [True, False], ids=["connection lost", "no end mark"])
async def test_half_an_answer_is_a_failure_after_its_words(server: ModelServer, model: ChatModel, cut: bool) -> None:
    server.answers(words("Once upon", finish=None, cut=cut))

    heard, why = await events_until_failure(model, ASKING)

    assert heard == [TextDelta(text="Once upon")]
    assert "broke off" in why


async def test_silence_ends_at_the_deadline(server: ModelServer) -> None:
    server.answers(SILENCE)
    moment = timedelta(milliseconds=50)

    for waits in (
        ModelConnection(base_url=server.url, first_token_timeout=moment),
        ModelConnection(base_url=server.url, timeout=moment),
    ):
        async with open_pydantic_ai_model("openai:local", waits) as model:
            with pytest.raises(ModelTimeout, match="the model openai:local took too long"):
                await answer(model)


@pytest.mark.parametrize(("status", "reason"), [(429, FailureReason.LIMIT), (503, FailureReason.OTHER)])
async def test_a_provider_that_asks_to_wait_for_too_long_is_not_called_slow(
    server: ModelServer, status: int, reason: FailureReason
) -> None:
    server.answers(replace(refusal(status, SECRET), retry_after=50))
    access = ModelConnection(base_url=server.url, first_token_timeout=timedelta(seconds=0.6))

    async with open_pydantic_ai_model("openai:local", access) as model:
        with pytest.raises(ModelFailed, match=rf"the model openai:local .* \({status}\)") as excinfo:
            await answer(model)

    assert excinfo.value.reason is reason
    assert len(server.asked) == 1


async def test_a_model_on_this_machine_may_begin_late_but_not_fall_silent(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenuto.llm.pydantic_ai.TIMEOUT", timedelta(milliseconds=50))
    server.answers(stalling("Well"))

    async with open_pydantic_ai_model("openai:local", ModelConnection(base_url=server.url)) as model:
        with pytest.raises(ModelTimeout):
            await answer(model)
        assert getattr(model, "unlimited")  # noqa: B009 (not of the port)
        async with aclosing(cast(Any, model.stream_answer(ASKING, ()))) as events:
            assert await anext(events) == TextDelta(text="Well")


async def test_a_server_that_is_not_there_cannot_be_reached() -> None:
    with start_model_server() as gone:
        address = gone.url

    async with open_pydantic_ai_model("openai:local", ModelConnection(base_url=address, retries=0)) as model:
        with pytest.raises(ModelFailed, match="cannot be reached") as excinfo:
            await answer(model)

    assert excinfo.value.reason is FailureReason.UNREACHABLE


async def test_closing_the_iterator_ends_the_request(server: ModelServer, model: ChatModel) -> None:
    server.answers(words(*["word "] * 1000))

    async with aclosing(cast(Any, model.stream_answer(ASKING, ()))) as events:
        assert await anext(events) == TextDelta(text="word ")
    server.answers(words("again"))

    assert (await answer(model))[0] == TextDelta(text="again")


async def test_words_no_store_can_keep_are_mended(server: ModelServer, model: ChatModel) -> None:
    server.answers(words("a\0b", "\ud83d"))

    said = [event.text for event in await answer(model) if isinstance(event, TextDelta)]

    assert "".join(said).encode()
    assert "".join(said)[:2] == "ab"


async def test_a_price_is_known_for_known_models_and_else_nothing(
    server: ModelServer, model: ChatModel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tenuto")
    server.answers(words("ok"))

    first, second = (await answer(model))[-1], (await answer(model))[-1]

    assert isinstance(first, ModelDone)
    assert isinstance(second, ModelDone)
    assert (first.cost_nanos, second.cost_nanos) == (0, 0)
    assert caplog.text.count("the price of openai:local is not known") == 1
    server.answers(anthropic_words("ok"))
    async with open_pydantic_ai_model(
        "anthropic:claude-sonnet-5-5", ModelConnection(base_url=server.url, api_key="k")
    ) as priced:
        ended = (await answer(priced))[-1]
    assert isinstance(ended, ModelDone)
    assert 0 < ended.cost_nanos < 1_000_000


async def test_anthropic_speaks_its_own_protocol_and_is_told_what_to_cache(server: ModelServer) -> None:
    server.answers(anthropic_words("Salut"))

    async with open_model("anthropic:claude-sonnet-5-5", base_url=server.url, api_key="k") as model:
        said = await answer(model)

    [asked] = server.asked
    assert said[0] == TextDelta(text="Salut")
    assert [block["text"] for block in asked["system"]] == ["You are a guide.", "Summary: none"]
    assert asked["system"][0]["cache_control"]["type"] == "ephemeral"
    assert [message["role"] for message in asked["messages"]] == ["user", "assistant", "user", "assistant", "user"]


async def test_any_server_takes_a_bare_model_name_and_ollama_needs_no_more_than_its_own(server: ModelServer) -> None:
    server.answers(words("ok"))

    for name in ("Qwen/Qwen3-8B", "ollama:qwen3:8b", "vllm:Qwen/Qwen3-8B", "openai-chat:gpt-4o"):
        async with open_model(name, base_url=f"{server.url}/v1") as model:
            assert (await answer(model))[0] == TextDelta(text="ok")

    assert [asked["model"] for asked in server.asked] == ["Qwen/Qwen3-8B", "qwen3:8b", "Qwen/Qwen3-8B", "gpt-4o"]
    async with open_model("ollama:qwen3") as local:
        assert local.name == "ollama:qwen3"


async def test_the_limit_of_an_answer_is_the_callers_or_the_models_own(server: ModelServer) -> None:
    """A model that thinks gets room for it where the limit is that of our titles and summaries."""
    server.answers(words("ok"))
    async with open_model("openai:gpt-5", base_url=server.url) as model:
        for limit in (None, 77):
            await events_of(model, msgspec.structs.replace(ASKING, reply_tokens=limit))
        await events_of(model, msgspec.structs.replace(ASKING, background=True))

    limits = [(asked.get("max_completion_tokens"), asked.get("max_tokens")) for asked in server.asked]
    assert limits[:2] == [(None, None), (77, None)]
    assert (limits[2][0] or 0) > 1000


WINDOWS: dict[str, tuple[str, dict[str, int], int | None]] = {
    "OpenAI's own": ("openai:gpt-5", {}, 400_000),
    "unknown": ("openai:local", {}, None),
    "of the settings": ("openai:local", {"openai:local": 20_000}, 20_000),
    "smaller in the settings": ("openai:gpt-5", {"openai:gpt-5": 20_000}, 20_000),
    "the smallest of a chain": ("openai:gpt-5, openai:gpt-3.5-turbo, offline", {}, 16_385),
    "a chain with an unknown one": ("openai:gpt-5, openai:local", {}, None),
    "offline": ("offline", {}, None),
}


@pytest.mark.parametrize("which", WINDOWS)
async def test_the_context_window_of_a_model_is_known_where_it_can_be(server: ModelServer, which: str) -> None:
    names, known, window = WINDOWS[which]

    async with open_model(names, base_url=server.url, context_windows=known) as model:
        assert facts_of(model).context_window == window


async def test_a_chain_goes_on_at_once_with_the_next_model(server: ModelServer) -> None:
    server.answers(refusal(500, SECRET), words("from the second"))

    async with open_model("openai:one, openai:two, offline", base_url=server.url) as model:
        said = await answer(model)

    assert model.name == "openai:one, openai:two, offline"
    assert said[0] == TextDelta(text="from the second")
    assert isinstance(said[-1], ModelDone)
    assert (said[-1].model, said[-1].input_tokens, said[-1].output_tokens) == ("openai:two", 11, 5)
    assert said[-1].used_fallback
    assert said[-1].fallback_message.startswith("the model openai:one ")
    assert SECRET not in said[-1].fallback_message
    assert [asked["model"] for asked in server.asked] == ["one", "two"]


async def test_address_and_key_are_for_the_first_provider_alone(server: ModelServer) -> None:
    with pytest.raises(InvalidSetting, match="anthropic:claude-sonnet-5-5 needs ANTHROPIC_API_KEY"):
        async with open_model("openai:one, anthropic:claude-sonnet-5-5", base_url=server.url, api_key="k"):
            pass


async def test_a_one_shot_call_brings_the_whole_answer(server: ModelServer, model: ChatModel) -> None:
    server.answers(words(" Kyoto", " Trip \n"))

    text, ended = await complete(model, "Give a title.", "We go to Kyoto.", 20, SOON)

    assert text == "Kyoto Trip"
    assert ended.input_tokens == 11
    assert [message["content"] for message in server.asked[0]["messages"]] == ["Give a title.", "We go to Kyoto."]
    assert server.asked[0]["max_tokens"] == 20


REFUSED = {
    "no provider": ("gpt-4o", {}, "'gpt-4o' names no provider"),
    "unknown provider": ("opnai:gpt-4o", {}, "no provider is called 'opnai'"),
    "unknown provider, with an address": ("opnai:gpt-4o", {"base_url": "http://x"}, "no provider is called 'opnai'"),
    "no key": ("openai:gpt-4o", {}, "openai:gpt-4o needs OPENAI_API_KEY, or TENUTO_MODEL_API_KEY"),
    "no package": ("cohere:command-r", {}, r"cohere:command-r needs a package .* 'pydantic-ai-slim\[cohere\]'"),
    "no such address": ("deepseek:deepseek-chat", {"base_url": "http://x"}, "deepseek has an address of its own"),
    "an address that is none": ("openai:x", {"base_url": "localhost"}, "is not an address"),
    "no time": ("openai:x", {"base_url": "http://x", "timeout": timedelta(0)}, "must be greater than zero"),
    "nothing": ("", {}, "names no model"),
    "a gap": ("offline,", {}, "names no model"),
    "twice": ("openai:x, openai:x", {}, "names a model twice"),
    "behind offline": ("offline, openai:x", {}, "behind offline"),
    "the library's own test model": ("test", {}, "'test' names no provider"),
}


def test_local_providers_have_an_address_without_a_setting_remote_ones_none() -> None:
    chains = ["anthropic:a, ollama:b, offline", "vllm:c"]

    assert model_addresses(chains, home="anthropic", base_url=None) == [LOCAL["ollama"], LOCAL["vllm"]]
    assert model_addresses(chains[:1], home="ollama", base_url="http://box/v1") == ["http://box/v1"]


@pytest.mark.requirement("T20")
@pytest.mark.parametrize(("names", "given", "why"), REFUSED.values(), ids=REFUSED)
async def test_what_cannot_work_is_refused_at_the_start(names: str, given: dict[str, Any], why: str) -> None:
    """And with what to install or to set."""
    with pytest.raises(InvalidSetting, match=why):
        async with open_model(names, **given):
            pass


async def test_without_a_name_it_is_the_offline_model() -> None:
    async with open_model() as model:
        assert isinstance(model, OfflineModel)


class FailingAtTheEnd(FunctionModel):
    """A model whose provider says at the end that it failed, and not why."""

    @asynccontextmanager
    async def request_stream(self, *args: Any, **given: Any) -> AsyncIterator[StreamedResponse]:
        async with super().request_stream(*args, **given) as stream:
            stream.finish_reason = "error"
            yield stream


async def test_an_answer_that_its_provider_calls_failed_is_no_answer() -> None:
    async def stream(_: object, info: AgentInfo) -> AsyncIterator[str]:
        yield "Half of"

    async with open_model("m", given={"m": FailingAtTheEnd(stream_function=stream)}) as model:
        heard, why = await events_until_failure(model, ASKING)

    assert (heard, "failed at its provider" in why) == ([TextDelta(text="Half of")], True)
