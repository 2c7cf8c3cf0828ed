"""Answers in OpenAI's dialect of responses, whole and as events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final

from tests.providers.dialect import Ledger, Prompt, sign
from tests.providers.refusals import Refused
from tests.providers.responses_shapes import PREFIXES, ReasoningConfig, ResponsesRequest, TextConfig, TextFormat
from tests.providers.script import Answer, Ending, ProviderItem, Reasoning, Refusal, Text, Tokens, ToolCall

_CREATED: Final = 1_767_225_600
# What an item of a provider's tool has only where the request includes it, and what stands there else.
_INCLUDED: Final = {"file_search_call": "results", "code_interpreter_call": "outputs"}
_INCOMPLETE: Final = {Ending.LENGTH: "max_output_tokens", Ending.FILTERED: "content_filter"}


def render_response(ledger: Ledger, prompt: Prompt, answer: Answer, tokens: Tokens) -> dict[str, Any]:
    """A response; its parameters are told back as they were taken."""
    body: ResponsesRequest = prompt.body
    tier, text, reasoning = body.service_tier, body.text or TextConfig(), body.reasoning or ReasoningConfig()
    wanted = text.format or TextFormat(type="text")
    written = {name: getattr(wanted, name) for name in ("type", "name", "schema", "description", "strict")}
    reason = _INCOMPLETE.get(answer.ending)
    return {
        "id": ledger.next_id("resp_"),
        "object": "response",
        "created_at": _CREATED,
        "status": "completed" if reason is None else "incomplete",
        "background": False,
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "model": body.model,
        "output": _output(ledger, prompt, answer),
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": reasoning.effort, "summary": reasoning.summary},
        "safety_identifier": body.safety_identifier,
        "service_tier": "default" if tier in (None, "auto") else tier,
        "store": body.store is not False,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": {
            "format": {name: value for name, value in written.items() if value is not None},
            "verbosity": text.verbosity or "medium",
        },
        "tool_choice": body.tool_choice or "auto",
        "tools": [_offered(tool) for tool in body.tools or []],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": body.truncation or "disabled",
        "user": body.user,
        "usage": _usage(tokens),
    }


def response_events(
    response: dict[str, Any], prompt: Prompt, answer: Answer, failure: Refused | None
) -> Iterator[bytes]:
    """The events of a response, numbered; a failure ends them in place of the response."""
    numbers = count()
    started = {**response, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    events: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": started}),
        ("response.in_progress", {"response": started}),
    ]
    for index, (item, part) in enumerate(zip(response["output"], _shown(prompt, answer), strict=True)):
        events += _item_events(item, part, index)
    if failure is None:
        events.append((f"response.{response['status']}", {"response": response}))
    else:
        error = {"code": failure.code or "server_error", "message": failure.message}
        failed = {**started, "status": "failed", "error": error, "output": response["output"]}
        events.append(("response.failed", {"response": failed}))
    for kind, fields in events:
        data = {"type": kind, "sequence_number": next(numbers), **fields}
        yield f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def _output(ledger: Ledger, prompt: Prompt, answer: Answer) -> list[dict[str, Any]]:
    """The items of an answer; what it called for is remembered with the reasoning before it."""
    items: list[dict[str, Any]] = []
    reasoning: str | None = None
    status = "completed" if answer.ending is Ending.DONE else "incomplete"
    for part in _shown(prompt, answer):
        if isinstance(part, Reasoning):
            reasoning = ledger.next_id("rs_")
            items.append(_reasoning_item(prompt.body, part, reasoning))
        elif isinstance(part, ToolCall):
            call_id = part.id or ledger.next_id("call_")
            if reasoning is not None:
                ledger.reasoning_of_call[call_id] = reasoning
            call = {"call_id": call_id, "name": part.name, "arguments": part.written, "status": "completed"}
            items.append({"id": ledger.next_id("fc_"), "type": "function_call", **call})
        elif isinstance(part, ProviderItem):
            items.append(_provider_item(ledger, prompt.body, part))
            if reasoning is not None:
                ledger.reasoning_of_item[items[-1]["id"]] = reasoning
        else:
            message = {
                "type": "message",
                "status": status,
                "role": "assistant",
                "content": [_content(prompt.body, part)],
            }
            items.append({"id": ledger.next_id("msg_"), **message})
    return items


def _provider_item(ledger: Ledger, body: ResponsesRequest, part: ProviderItem) -> dict[str, Any]:
    """What a tool of the provider did, with no more than the request includes."""
    item = {"id": ledger.next_id(f"{PREFIXES[part.type]}_"), "type": part.type, **part.fields}
    if part.type != "mcp_list_tools":
        item["status"] = "completed"
    include = body.include or []
    if (field := _INCLUDED.get(part.type)) and f"{part.type}.{field}" not in include:
        item[field] = None
    if part.type == "web_search_call" and "web_search_call.action.sources" not in include:
        item["action"] = {name: value for name, value in item["action"].items() if name != "sources"}
    return item


def _shown(prompt: Prompt, answer: Answer) -> list[Text | ToolCall | ProviderItem]:
    return [part for part in answer.parts if prompt.reasons or not isinstance(part, Reasoning)]


def _offered(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool as it is told back."""
    defaults = {"strict": True, "parameters": None, "description": None} if tool["type"] == "function" else {}
    return {**defaults, **tool}


def _reasoning_item(body: ResponsesRequest, part: Reasoning, reasoning_id: str) -> dict[str, Any]:
    summarized = body.reasoning is not None and body.reasoning.summary is not None and not part.redacted
    return {
        "id": reasoning_id,
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": part.whole}] if summarized else [],
        "encrypted_content": f"{reasoning_id}.{sign('reasoning', reasoning_id)}",
    }


def _content(body: ResponsesRequest, part: Text) -> dict[str, Any]:
    if isinstance(part, Refusal):
        return {"type": "refusal", "refusal": part.whole}
    return {
        "type": "output_text",
        "text": part.whole,
        "annotations": list(part.cites),
        "logprobs": _logprobs(body, part.pieces),
    }


def _logprobs(body: ResponsesRequest, pieces: Sequence[str]) -> list[dict[str, Any]]:
    """One token a piece, as likely as a coin."""
    if "message.output_text.logprobs" not in (body.include or []):
        return []
    tokens = [{"token": piece, "logprob": -0.6931, "bytes": list(piece.encode())} for piece in pieces]
    return [{**token, "top_logprobs": [token][: body.top_logprobs or 0]} for token in tokens]


def _item_events(
    item: dict[str, Any], part: Text | ToolCall | ProviderItem, index: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """From the item's first event to its last, with a delta for each piece."""
    place = {"item_id": item["id"], "output_index": index}
    empty: dict[str, dict[str, Any]] = {
        "reasoning": {"summary": []},
        "function_call": {"arguments": "", "status": "in_progress"},
        "message": {"content": [], "status": "in_progress"},
    }
    began = {"status": "in_progress"} if "status" in item else {}
    yield "response.output_item.added", {"output_index": index, "item": {**item, **empty.get(item["type"], began)}}
    match part:
        case ProviderItem():
            for state in ("in_progress", "completed"):
                yield f"response.{item['type']}.{state}", place
        case ToolCall():
            half = len(part.written) // 2
            for piece in (part.written[:half], part.written[half:]):
                yield "response.function_call_arguments.delta", {**place, "delta": piece}
            done = {"name": part.name, "arguments": part.written}
            yield "response.function_call_arguments.done", {**place, **done}
        case Reasoning():
            for summary in item["summary"]:
                here = {**place, "summary_index": 0}
                yield from _piece_events("reasoning_summary_part", "reasoning_summary_text", here, summary, part)
        case Refusal() | Text():
            kind = "refusal" if isinstance(part, Refusal) else "output_text"
            yield from _piece_events("content_part", kind, {**place, "content_index": 0}, item["content"][0], part)
    yield "response.output_item.done", {"output_index": index, "item": item}


def _piece_events(
    part_kind: str, text_kind: str, here: dict[str, Any], content: dict[str, Any], part: Text
) -> Iterator[tuple[str, dict[str, Any]]]:
    field = "refusal" if text_kind == "refusal" else "text"
    logprobs: list[Any] | None = content.get("logprobs")
    emptied = {**content, field: "", **({} if logprobs is None else {"logprobs": [], "annotations": []})}
    yield f"response.{part_kind}.added", {**here, "part": emptied}
    for at, piece in enumerate(part.pieces):
        likely = {} if logprobs is None else {"logprobs": logprobs[at : at + 1]}
        yield f"response.{text_kind}.delta", {**here, "delta": piece, **likely}
    for number, cited in enumerate(content.get("annotations", ())):
        yield "response.output_text.annotation.added", {**here, "annotation_index": number, "annotation": cited}
    likely = {} if logprobs is None else {"logprobs": logprobs}
    yield f"response.{text_kind}.done", {**here, field: part.whole, **likely}
    yield f"response.{part_kind}.done", {**here, "part": content}


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.written},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }
