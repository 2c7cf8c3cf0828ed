"""Responses: each rule of the service has a request that breaks it, and the nearest ones that do not."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from tests.providers import Answer, Reasoning, ScriptedProvider, Text, ToolCall
from tests.providers.responses_shapes import ResponsesRequest
from tests.providers.samples import OPEN_SCHEMA, PDF, PICTURE_ADDRESS, PNG, STRICT_SCHEMA, data_url
from tests.unit.providers.conftest import RealClients

GOOD: dict[str, Any] = {"model": "gpt-4.1-mini", "input": "Hello"}
REASONER = {"model": "gpt-5-mini"}
TOOL = {"type": "function", "name": "look", "parameters": OPEN_SCHEMA, "strict": False}
ASKED: Any = {"role": "user", "content": "Look."}
CALL: Any = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
RESULT: Any = {"type": "function_call_output", "call_id": "call_1", "output": "There."}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes.", "annotations": []}]}


def says(*parts: Any, role: str = "user") -> dict[str, Any]:
    """One message of these parts."""
    return {"input": [{"role": role, "content": list(parts)}]}


def talk(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A conversation that offers a tool."""
    return {"input": list(items), "tools": [TOOL], **fields}


def picture(url: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def schema(wanted: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    """A demanded format."""
    described = {"type": "json_schema", "name": "answer", "schema": wanted, "strict": True, **fields}
    return {"text": {"format": {name: value for name, value in described.items() if value is not None}}}


# What is changed in a good request, and the status, parameter and code that come back.
REFUSED: dict[str, tuple[dict[str, Any], int, str | None, str | None]] = {
    "no model": ({"model": None}, 400, "model", "missing_required_parameter"),
    "unknown model": ({"model": "gpt-nought"}, 404, None, "model_not_found"),
    "no input": ({"input": None}, 400, "input", "missing_required_parameter"),
    "unknown field": ({"tone": "kind"}, 400, "tone", "unknown_parameter"),
    "messages": ({"messages": []}, 400, "messages", "unsupported_parameter"),
    "format of chat completions": (
        {"response_format": {"type": "text"}}, 400, "response_format", "unsupported_parameter"
    ),
    "limit of chat completions": ({"max_tokens": 20}, 400, "max_tokens", "unsupported_parameter"),
    "stop": ({"stop": "."}, 400, "stop", "unknown_parameter"),
    "seed": ({"seed": 7}, 400, "seed", "unknown_parameter"),
    "temperature too high": ({"temperature": 2.1}, 400, "temperature", "decimal_above_max_value"),
    "temperature of a reasoner": ({**REASONER, "temperature": 1}, 400, "temperature", None),
    "top_p of a reasoner": ({**REASONER, "top_p": 1}, 400, "top_p", None),
    "too short an answer": ({"max_output_tokens": 15}, 400, "max_output_tokens", "integer_below_min_value"),
    "too long an answer": ({"max_output_tokens": 40_000}, 400, "max_output_tokens", "integer_above_max_value"),
    "effort of a model that does not reason": (
        {"reasoning": {"effort": "low"}}, 400, "reasoning.effort", "unsupported_parameter"
    ),
    "effort that it does not have": (
        {**REASONER, "reasoning": {"effort": "none"}}, 400, "reasoning.effort", "unsupported_value"
    ),
    "unknown effort": ({**REASONER, "reasoning": {"effort": "huge"}}, 400, "reasoning.effort", "invalid_value"),
    "encrypted content of a model that does not reason": (
        {"include": ["reasoning.encrypted_content"]}, 400, "include", None
    ),
    "unknown include": ({"include": ["everything"]}, 400, "include[0]", "invalid_value"),
    "stream options without a stream": (
        {"stream_options": {"include_obfuscation": False}}, 400, "stream_options", None
    ),
    "long metadata": ({"metadata": {"a": "b" * 513}}, 400, "metadata.a", "string_above_max_length"),
    "unknown response": (
        {"previous_response_id": "resp_0"}, 400, "previous_response_id", "previous_response_not_found"
    ),
    "response and conversation": (
        {"previous_response_id": "resp_0", "conversation": "conv_0"},
        400,
        "previous_response_id",
        "mutually_exclusive_parameters",
    ),
    "unknown kind of item": (talk({"type": "thought"}), 400, "input[0]", "invalid_value"),
    "unknown field of an item": (talk({**ASKED, "name": "a"}), 400, "input[0].name", "unknown_parameter"),
    "unknown role": (talk({**ASKED, "role": "tool"}), 400, "input[0].role", "invalid_value"),
    "part of chat completions": (says({"type": "text", "text": "a"}), 400, "input[0].content[0]", "invalid_value"),
    "input of an assistant": (
        says({"type": "input_text", "text": "a"}, role="assistant"), 400, "input[0].content[0]", "invalid_value"
    ),
    "output of a user": (
        says({"type": "output_text", "text": "a"}), 400, "input[0].content[0]", "invalid_value"
    ),
    "call without a result": (talk(ASKED, CALL), 400, "input", None),
    "result without a call": (talk(ASKED, RESULT), 400, "input", None),
    "result before its call": (talk(ASKED, RESULT, CALL), 400, "input", None),
    "result twice": (talk(ASKED, CALL, RESULT, RESULT), 400, "input", None),
    "foreign id of a call": (talk(ASKED, {**CALL, "id": "call_1"}, RESULT), 400, "input[1].id", "invalid_value"),
    "foreign id of a message": (talk(ASKED, {**SAID, "id": "m1"}), 400, "input[1].id", "invalid_value"),
    "item twice": (talk(ASKED, {**SAID, "id": "msg_1"}, {**SAID, "id": "msg_1"}), 400, "input", None),
    "unknown reference": (talk(ASKED, {"type": "item_reference", "id": "msg_0"}), 404, "input", None),
    "long id of a call": (
        talk(ASKED, {**CALL, "call_id": "c" * 65}, RESULT), 400, "input[1].call_id", "string_above_max_length"
    ),
    "arguments as an object": (talk(ASKED, {**CALL, "arguments": {}}), 400, "input[1].arguments", "invalid_type"),
    "invented reasoning": (
        talk(ASKED, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "rs_1.x"}, SAID),
        400,
        None,
        "invalid_encrypted_content",
    ),
    "reasoning that is not stored": (
        talk(ASKED, {"type": "reasoning", "id": "rs_1", "summary": []}, SAID), 404, "input", None
    ),
    "picture of another kind": (
        says(picture(data_url(PNG, "text/markdown"))), 400, "input[0].content[0].image_url", "invalid_value"
    ),
    "broken base64 in a result": (
        talk(ASKED, CALL, {**RESULT, "output": [picture("data:image/png;base64,%%%")]}),
        400,
        "input[2].output[0].image_url",
        "invalid_value",
    ),
    "picture without any": (
        says({"type": "input_image"}), 400, "input[0].content[0].image_url", "missing_required_parameter"
    ),
    "unknown file of a picture": (
        says({"type": "input_image", "file_id": "file-0"}), 404, "input[0].content[0].file_id", None
    ),
    "item that is text": (talk("Look."), 400, "input[0]", "invalid_type"),  # type: ignore[arg-type]
    "no document": (says({"type": "input_file"}), 400, "input[0].content[0].file_id", "missing_required_parameter"),
    "picture for the blind": (
        {**says(picture(data_url(PNG))), "model": "gpt-3.5-turbo"}, 400, "input[0].content[0]", None
    ),
    "document without a name": (
        says({"type": "input_file", "file_data": data_url(PDF, "application/pdf")}),
        400,
        "input[0].content[0].file_data",
        "invalid_value",
    ),
    "unknown file": (says({"type": "input_file", "file_id": "file-0"}), 404, "input[0].content[0].file_id", None),
    "unreachable document": (
        says({"type": "input_file", "file_url": "https://gone.example/a.pdf"}),
        400,
        "input[0].content[0].file_url",
        "invalid_file_url",
    ),
    "unknown kind of tool": ({"tools": [{"type": "magic"}]}, 400, "tools[0].type", "invalid_value"),
    "tool of chat completions": (
        {"tools": [{"type": "function", "function": {"name": "look"}}]}, 400, "tools[0].function", "unknown_parameter"
    ),
    "strict tool with an open schema": (
        {"tools": [{**TOOL, "strict": True}]}, 400, "tools[0].parameters", "invalid_function_parameters"
    ),
    "choice of a tool that is not there": (
        talk(ASKED, tool_choice={"type": "function", "name": "hear"}), 400, "tool_choice", None
    ),
    "required tool without any": ({"tool_choice": "required"}, 400, "tool_choice", None),
    "format without a name": (
        schema(STRICT_SCHEMA, name=None), 400, "text.format.name", "missing_required_parameter"
    ),
    "format without a schema": (schema(None), 400, "text.format.schema", "missing_required_parameter"),
    "open schema": (schema(OPEN_SCHEMA), 400, "text.format.schema", "invalid_json_schema"),
    "JSON that no message mentions": ({"text": {"format": {"type": "json_object"}}}, 400, "input", None),
    "too long": ({"model": "gpt-3.5-turbo", "input": "so " * 30_000}, 400, "input", "context_length_exceeded"),
}  # fmt: skip
ACCEPTED: dict[str, dict[str, Any]] = {
    "all parameters": {
        "instructions": "Be kind.", "temperature": 0, "top_p": 0.5, "max_output_tokens": 16, "metadata": {"a": "b"},
        "include": ["message.output_text.logprobs"], "top_logprobs": 3, "prompt_cache_key": "k", "store": False,
        "service_tier": "flex", "text": {"verbosity": "low"}, "truncation": "auto", "user": "u",
        "parallel_tool_calls": False, "safety_identifier": "s",
    },
    "all of a reasoner": {
        **REASONER, "reasoning": {"effort": "high", "summary": "detailed"}, "include": ["reasoning.encrypted_content"]
    },
    "system and developer": {
        "input": [{"role": "system", "content": "A"}, {"role": "developer", "content": "B"}, ASKED]
    },
    "calls and results": talk(ASKED, CALL, {**CALL, "call_id": "call_2"}, {**RESULT, "call_id": "call_2"}, RESULT),
    "pictures and documents": says(
        {"type": "input_text", "text": "See"}, picture(data_url(PNG)), picture(PICTURE_ADDRESS),
        {"type": "input_file", "file_data": data_url(PDF, "application/pdf"), "filename": "a.pdf"},
        {"type": "input_file", "file_id": "file-1"}, {"type": "input_file", "file_url": "https://example.com/a.pdf"},
    ),
    "picture in a result": talk(ASKED, CALL, {**RESULT, "output": [picture(data_url(PNG))]}),
    "the service's own tools": {
        "tools": [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]
    },
    "the service's own items": talk(ASKED, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, SAID),
    "schema": schema(STRICT_SCHEMA),
    "earlier refusal": talk(
        ASKED, {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, ASKED
    ),
}  # fmt: skip


def send(clients: RealClients, changes: dict[str, Any]) -> object:
    """Send a good request with changes, past the client's own types."""
    body = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    return clients.openai.post("/responses", cast_to=object, body=body)


@pytest.fixture(autouse=True)
def _script(provider: ScriptedProvider) -> None:
    provider.plays(Answer(Text("Yes.")))
    provider.add_file("file-1", "application/pdf", PDF)
    provider.make_unreachable("https://gone.example/a.pdf")


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


# What a client does with the items of an answer that thought before it called, and what the service says to it.
KEPT, WITHOUT_REASONING, WITHOUT_IDS, REORDERED, SHORTENED = "kept", "no reasoning", "no ids", "reordered", "shortened"
NAMED, ALONE = "named", "reasoning alone"
LOOPS: dict[tuple[str, bool], str | None] = {
    (KEPT, True): None,
    (KEPT, False): None,
    (WITHOUT_IDS, False): None,
    (WITHOUT_REASONING, True): "without its required 'reasoning' item",
    (WITHOUT_REASONING, False): "without its required 'reasoning' item",
    (REORDERED, False): "without its required 'reasoning' item",
    (NAMED, True): None,
    (SHORTENED, True): None,
    (ALONE, True): "was provided without its required following item",
    (SHORTENED, False): "Items are not persisted when `store` is set to false",
}


@pytest.mark.parametrize(("how", "store"), LOOPS)
def test_a_call_comes_back_with_its_reasoning(
    how: str, store: bool, clients: RealClients, provider: ScriptedProvider
) -> None:
    provider.plays(Answer(Reasoning("Hm."), ToolCall("look", {"text": "a"})), Answer(Text("There.")))
    asked: dict[str, Any] = {"model": "gpt-5-mini", "tools": [TOOL], "store": store}
    first = clients.openai.responses.create(**asked, input=[ASKED])
    reasoning, call = (item.model_dump(exclude_none=True) for item in first.output)
    back = {
        KEPT: [reasoning, call],
        WITHOUT_REASONING: [call],
        WITHOUT_IDS: [{**reasoning, "id": None}, {**call, "id": None}],
        REORDERED: [call, reasoning],
        SHORTENED: [{**reasoning, "encrypted_content": None}, call],
        NAMED: [{"type": "item_reference", "id": item["id"]} for item in (reasoning, call)],
        ALONE: [reasoning],
    }[how]
    items: Any = [ASKED, *back, ASKED if how == ALONE else {**RESULT, "call_id": call["call_id"]}]

    if (expected := LOOPS[how, store]) is None:
        clients.openai.responses.create(**asked, input=items)
    else:
        with pytest.raises(openai.APIStatusError, match=expected) as excinfo:
            clients.openai.responses.create(**asked, input=items)
        assert excinfo.value.param == "input"


def test_a_response_goes_on_from_a_stored_one(clients: RealClients, provider: ScriptedProvider) -> None:
    provider.plays(Answer(Reasoning("Hm."), ToolCall("look", id="call_7")), Answer(Text("There.")))
    asked: dict[str, Any] = {"model": "gpt-5-mini", "tools": [TOOL]}
    first = clients.openai.responses.create(**asked, input=[ASKED])

    result: Any = {**RESULT, "call_id": "call_7"}
    second = clients.openai.responses.create(**asked, previous_response_id=first.id, input=[result])

    assert second.output_text == "There."
    with pytest.raises(openai.BadRequestError, match="No tool output found for function call call_7"):
        clients.openai.responses.create(**asked, previous_response_id=first.id, input="And now?")


def test_it_knows_the_parameters_that_the_client_knows() -> None:
    assert set(ResponsesRequest.__struct_fields__) == set(ResponseCreateParamsStreaming.__annotations__)
