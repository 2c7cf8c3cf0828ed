"""Chat completions: each rule of the service has a request that breaks it, and the nearest ones that do not."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.providers import Answer, ScriptedProvider, Text
from tests.providers.openai_chat import ChatRequest
from tests.providers.samples import (
    GIF,
    JPEG,
    OPEN_SCHEMA,
    PDF,
    PICTURE_ADDRESS,
    PNG,
    STRICT_SCHEMA,
    WAV,
    WEBP,
    base64_text,
    data_url,
)
from tests.unit.providers.conftest import RealClients

GOOD: dict[str, Any] = {"model": "gpt-4.1-mini", "messages": [{"role": "user", "content": "Hello"}]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": OPEN_SCHEMA}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
OTHER_CALL = {**CALL, "id": "call_2"}
ASKED: dict[str, Any] = {"role": "user", "content": "Look."}
CALLED: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "call_1", "content": "There."}
REASONER = {"model": "gpt-5-mini"}


def says(*parts: Any, role: str = "user") -> dict[str, Any]:
    """One message of these parts."""
    return {"messages": [{"role": role, "content": list(parts)}]}


def talk(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A conversation that offers a tool."""
    return {"messages": list(messages), "tools": [TOOL], **fields}


def picture(url: str, **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **fields}}


def document(**fields: Any) -> dict[str, Any]:
    return {"type": "file", "file": fields}


def sound(content: bytes, kind: str = "wav") -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": base64_text(content), "format": kind}}


def schema(wanted: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A demanded format."""
    described = {"name": "answer", "schema": wanted, "strict": True, **fields}
    return {"response_format": {"type": "json_schema", "json_schema": described}}


def function(**fields: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "look", **fields}}]}


# What is changed in a good request, and the status, parameter and code that come back.
REFUSED: dict[str, tuple[dict[str, Any], int, str | None, str | None]] = {
    "no model": ({"model": None}, 400, None, None),
    "unknown model": ({"model": "gpt-nought"}, 404, None, "model_not_found"),
    "unknown field": ({"tone": "kind"}, 400, None, None),
    "unknown field of a reasoner": ({**REASONER, "tone": "kind"}, 400, "tone", "unknown_parameter"),
    "unknown field of a message": (
        {"messages": [{**ASKED, "id": "m1"}]}, 400, "messages[0].id", "unknown_parameter"
    ),
    "no messages": ({"messages": []}, 400, "messages", "empty_array"),
    "unknown role": ({"messages": [{**ASKED, "role": "human"}]}, 400, "messages[0].role", "invalid_value"),
    "no role": ({"messages": [{"content": "Hello"}]}, 400, "messages[0].role", "missing_required_parameter"),
    "no content": ({"messages": [{"role": "user", "content": None}]}, 400, "messages.[0].content", None),
    "odd speaker": ({"messages": [{**ASKED, "name": "A B"}]}, 400, "messages[0].name", "invalid_value"),
    "temperature too high": ({"temperature": 2.1}, 400, "temperature", "decimal_above_max_value"),
    "temperature too low": ({"temperature": -0.1}, 400, "temperature", "decimal_below_min_value"),
    "temperature as text": ({"temperature": "hot"}, 400, "temperature", "invalid_type"),
    "top_p too high": ({"top_p": 1.5}, 400, "top_p", "decimal_above_max_value"),
    "penalty too low": ({"presence_penalty": -3}, 400, "presence_penalty", "decimal_below_min_value"),
    "fraction as a seed": ({"seed": 1.5}, 400, "seed", "invalid_type"),
    "five stops": ({"stop": list("abcde")}, 400, "stop", "array_above_max_length"),
    "no choices": ({"n": 0}, 400, "n", "integer_below_min_value"),
    "top logprobs alone": ({"top_logprobs": 2}, 400, "top_logprobs", None),
    "too many logprobs": ({"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs", "integer_above_max_value"),
    "unknown tier": ({"service_tier": "cheap"}, 400, "service_tier", "invalid_value"),
    "unknown verbosity": ({"verbosity": "chatty"}, 400, "verbosity", "invalid_value"),
    "stream options without a stream": ({"stream_options": {"include_usage": True}}, 400, "stream_options", None),
    "metadata of what is not stored": ({"metadata": {"a": "b"}}, 400, "metadata", None),
    "seventeen pairs of metadata": (
        {"metadata": {str(at): "" for at in range(17)}}, 400, "metadata", "object_above_max_properties"
    ),
    "long metadata": ({"metadata": {"a": "b" * 513}}, 400, "metadata.a", "string_above_max_length"),
    "longer answer than it gives": ({"max_tokens": 40_000}, 400, "max_tokens", "invalid_value"),
    "two limits": (
        {"max_tokens": 9, "max_completion_tokens": 9}, 400, "max_tokens", "invalid_parameter_combination"
    ),
    "effort of a model that does not reason": ({"reasoning_effort": "low"}, 400, None, None),
    "effort that it does not have": (
        {**REASONER, "reasoning_effort": "none"}, 400, "reasoning_effort", "unsupported_value"
    ),
    "old limit of a reasoner": ({**REASONER, "max_tokens": 9}, 400, "max_tokens", "unsupported_parameter"),
    "temperature of a reasoner": ({**REASONER, "temperature": 0.2}, 400, "temperature", "unsupported_value"),
    "stop of a reasoner": ({**REASONER, "stop": "."}, 400, "stop", "unsupported_parameter"),
    "tool choice without tools": ({"tool_choice": "auto"}, 400, "tool_choice", None),
    "parallel calls without tools": ({"parallel_tool_calls": False}, 400, "parallel_tool_calls", None),
    "choice of a tool that is not there": (
        talk(ASKED, tool_choice={"type": "function", "function": {"name": "hear"}}), 400, "tool_choice", None
    ),
    "odd name of a tool": (function(name="look up"), 400, "tools[0].function.name", "invalid_value"),
    "unknown kind of tool": ({"tools": [{"type": "web_search"}]}, 400, "tools[0].type", "invalid_value"),
    "strict tool with an open schema": (
        function(parameters=OPEN_SCHEMA, strict=True),
        400,
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    "call without a result": (talk(ASKED, CALLED, ASKED), 400, "messages.[2].role", None),
    "call at the end": (talk(ASKED, CALLED), 400, "messages.[2].role", None),
    "one of two results": (
        talk(ASKED, {**CALLED, "tool_calls": [CALL, OTHER_CALL]}, RESULT), 400, "messages.[3].role", None
    ),
    "result without a call": (talk(ASKED, RESULT), 400, "messages.[1].role", None),
    "result before its call": (talk(ASKED, RESULT, CALLED), 400, "messages.[1].role", None),
    "result twice": (talk(ASKED, CALLED, RESULT, RESULT), 400, "messages.[3].role", None),
    "result behind another message": (talk(ASKED, CALLED, ASKED, RESULT), 400, "messages.[2].role", None),
    "result of nothing": (
        talk(ASKED, CALLED, {"role": "tool", "content": ""}),
        400,
        "messages[2].tool_call_id",
        "missing_required_parameter",
    ),
    "long id of a call": (
        talk(ASKED, {**CALLED, "tool_calls": [{**CALL, "id": "c" * 41}]}),
        400,
        "messages[1].tool_calls[0].id",
        "string_above_max_length",
    ),
    "arguments as an object": (
        talk(ASKED, {**CALLED, "tool_calls": [{**CALL, "function": {"name": "look", "arguments": {}}}]}),
        400,
        "messages[1].tool_calls[0].function.arguments",
        "invalid_type",
    ),
    "unknown part": (says({"type": "input_text", "text": "a"}), 400, "messages[0].content[0].type", "invalid_value"),
    "refusal of a user": (
        says({"type": "refusal", "refusal": "No."}), 400, "messages[0].content[0].type", "invalid_value"
    ),
    "picture of the system": (says(picture(data_url(PNG)), role="system"), 400, "messages[0]", "invalid_value"),
    "picture in a result": (
        talk(ASKED, CALLED, {**RESULT, "content": [picture(data_url(PNG))]}), 400, "messages[2]", "invalid_value"
    ),
    "picture that is text": (says(picture(data_url(b"text"))), 400, None, "invalid_image_format"),
    "picture of another kind": (
        says(picture(data_url(PNG, "image/svg+xml"))), 400, "messages[0].content[0].image_url.url", "invalid_value"
    ),
    "picture without base64": (
        says(picture("data:image/png,abc")), 400, "messages[0].content[0].image_url.url", "invalid_value"
    ),
    "broken base64": (
        says(picture("data:image/png;base64,%%%")), 400, "messages[0].content[0].image_url.url", "invalid_value"
    ),
    "file address": (
        says(picture("file:///etc/passwd")), 400, "messages[0].content[0].image_url.url", "invalid_value"
    ),
    "unreachable address": (
        says(picture("https://gone.example/a.png")),
        400,
        "messages[0].content[0].image_url.url",
        "invalid_image_url",
    ),
    "unknown detail": (
        says(picture(data_url(PNG), detail="fine")), 400, "messages[0].content[0].image_url.detail", "invalid_value"
    ),
    "picture for the blind": (
        {**says(picture(data_url(PNG))), "model": "gpt-3.5-turbo"}, 400, "messages[0].content[0].type", None
    ),
    "document for the blind": (
        {**says(document(file_id="file-1")), "model": "gpt-3.5-turbo"}, 400, "messages[0].content[0].type", None
    ),
    "sound for the deaf": (says(sound(WAV)), 400, "messages[0].content[0].type", None),
    "sound of another kind": (
        {**says(sound(WAV, "mp3")), "model": "gpt-audio-mini"},
        400,
        "messages[0].content[0].input_audio",
        "invalid_value",
    ),
    "document without a name": (
        says(document(file_data=data_url(PDF, "application/pdf"))),
        400,
        "messages[0].content[0].file.filename",
        "missing_required_parameter",
    ),
    "document without its type": (
        says(document(file_data=base64_text(PDF), filename="a.pdf")),
        400,
        "messages[0].content[0].file.file_data",
        "invalid_value",
    ),
    "document that is none": (
        says(document(file_data=data_url(PNG, "application/pdf"), filename="a.pdf")),
        400,
        "messages[0].content[0].file.file_data",
        "invalid_file",
    ),
    "no document": (
        says(document(filename="a.pdf")), 400, "messages[0].content[0].file.file_id", "missing_required_parameter"
    ),
    "unknown file": (says(document(file_id="file-0")), 404, "messages[0].content[0].file.file_id", None),
    "JSON that no message mentions": ({"response_format": {"type": "json_object"}}, 400, "messages", None),
    "format without a schema": (
        {"response_format": {"type": "json_schema"}},
        400,
        "response_format.json_schema",
        "missing_required_parameter",
    ),
    "open schema": (schema(OPEN_SCHEMA), 400, "response_format", None),
    "optional property": (schema({**STRICT_SCHEMA, "required": []}), 400, "response_format", None),
    "list as a schema": (schema({"type": "array", "items": STRICT_SCHEMA}), 400, "response_format", None),
    "negation in a schema": (schema({**STRICT_SCHEMA, "not": {}}), 400, "response_format", None),
    "more demanded than there is": (
        schema({**STRICT_SCHEMA, "required": ["text", "more"]}), 400, "response_format", None
    ),
    "list of anything": (
        schema({**STRICT_SCHEMA, "properties": {"text": {"anyOf": [{"type": "array"}]}}}), 400, "response_format", None
    ),
    "schema with an odd name": (
        schema(STRICT_SCHEMA, name="my answer"), 400, "response_format.json_schema.name", "invalid_value"
    ),
    "too long": (
        {"model": "gpt-3.5-turbo", "messages": [{**ASKED, "content": "so " * 30_000}]},
        400,
        "messages",
        "context_length_exceeded",
    ),
}  # fmt: skip
ACCEPTED: dict[str, dict[str, Any]] = {
    "all parameters": {
        "temperature": 0, "top_p": 0.5, "seed": 7, "stop": ["a", "b"], "presence_penalty": -2, "frequency_penalty": 2,
        "logprobs": True, "top_logprobs": 20, "max_completion_tokens": 9, "n": 1, "user": "u", "verbosity": "low",
        "prompt_cache_key": "k", "safety_identifier": "s", "service_tier": "flex", "store": True,
        "metadata": {"a": "b"}, "logit_bias": {"50256": -100},
    },
    "all of a reasoner": {**REASONER, "reasoning_effort": "minimal", "temperature": 1, "max_completion_tokens": 9},
    "a reasoner at rest": {"model": "gpt-5.4-mini", "temperature": 0.2, "logprobs": True},
    "system and developer": {
        "messages": [{"role": "system", "content": "A"}, {"role": "developer", "content": "B"}, ASKED]
    },
    "calls and results": talk(
        ASKED, {**CALLED, "tool_calls": [CALL, OTHER_CALL]}, {**RESULT, "tool_call_id": "call_2"}, RESULT,
        tool_choice="required", parallel_tool_calls=False,
    ),
    "strict tool": function(parameters=STRICT_SCHEMA, strict=True),
    "named tool": talk(ASKED, tool_choice={"type": "function", "function": {"name": "look"}}),
    "schema": schema(STRICT_SCHEMA),
    "JSON": {"response_format": {"type": "json_object"}, "messages": [{**ASKED, "content": "As JSON, please."}]},
    "pictures": says(
        {"type": "text", "text": "See"}, picture(data_url(PNG), detail="high"), picture(data_url(GIF, "image/gif")),
        picture(data_url(JPEG, "image/jpeg")), picture(data_url(WEBP, "image/webp")), picture(PICTURE_ADDRESS),
    ),
    "sounds": {**says(sound(WAV), sound(b"ID3\x04", "mp3")), "model": "gpt-audio-mini"},
    "documents": says(
        document(file_data=data_url(PDF, "application/pdf"), filename="a.pdf"), document(file_id="file-1")
    ),
    "earlier refusal": {"messages": [ASKED, {"role": "assistant", "content": None, "refusal": "No."}, ASKED]},
}  # fmt: skip


def send(clients: RealClients, changes: dict[str, Any]) -> object:
    """Send a good request with changes, past the client's own types."""
    body = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    return clients.openai.post("/chat/completions", cast_to=object, body=body)


@pytest.fixture(autouse=True)
def _script(provider: ScriptedProvider) -> None:
    provider.plays(Answer(Text("Yes.")))
    provider.add_file("file-1", "application/pdf", PDF)
    provider.make_unreachable("https://gone.example/a.png")


@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses_what_the_service_refuses(name: str, clients: RealClients, provider: ScriptedProvider) -> None:
    changes, status, param, code = REFUSED[name]

    with pytest.raises(openai.APIStatusError) as excinfo:
        send(clients, changes)

    error = excinfo.value
    assert (error.status_code, error.param, error.code) == (status, param, code)
    assert error.type == "invalid_request_error"
    assert provider.last.refused is not None


@pytest.mark.parametrize("name", ACCEPTED)
def test_it_takes_what_the_service_takes(name: str, clients: RealClients, provider: ScriptedProvider) -> None:
    send(clients, ACCEPTED[name])

    assert provider.last.body == {**GOOD, **ACCEPTED[name]}


def test_a_wrong_key_is_refused(clients: RealClients) -> None:
    with pytest.raises(openai.AuthenticationError) as excinfo:
        clients.openai.with_options(api_key="sk-wrong").chat.completions.create(**GOOD)

    assert excinfo.value.code == "invalid_api_key"


def test_it_knows_the_parameters_that_the_client_knows() -> None:
    from openai.types.chat import completion_create_params as params

    known = params.CompletionCreateParamsStreaming.__annotations__

    assert set(ChatRequest.__struct_fields__) == set(known)
