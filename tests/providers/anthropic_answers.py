"""Answers in Anthropic's dialect, whole and as events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.providers.anthropic_shapes import THOUGHTS, Thinking
from tests.providers.dialect import Ledger, Prompt, sign
from tests.providers.prompts import digest
from tests.providers.script import Answer, Ending, Reasoning, Refusal, Text, Tokens, ToolCall


def render_message(ledger: Ledger, prompt: Prompt, answer: Answer, tokens: Tokens) -> dict[str, Any]:
    """A message."""
    blocks = [block for block, _ in _blocks(ledger, prompt, answer)]
    head = _head(ledger, prompt, tokens)
    return {**head, "content": blocks, **_stop(answer), "usage": {**head["usage"], **_output_usage(tokens)}}


def message_events(ledger: Ledger, prompt: Prompt, answer: Answer, tokens: Tokens) -> Iterator[bytes]:
    """The events of a message."""
    yield event("message_start", message=_head(ledger, prompt, tokens))
    for index, (block, deltas) in enumerate(_blocks(ledger, prompt, answer)):
        yield event("content_block_start", index=index, content_block=_emptied(block))
        if index == 0:
            yield event("ping")
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    if answer.fails is None:
        yield event("message_delta", delta=_stop(answer), usage=_output_usage(tokens))
        yield event("message_stop")


def _head(ledger: Ledger, prompt: Prompt, tokens: Tokens) -> dict[str, Any]:
    usage = {
        "input_tokens": tokens.input - tokens.cached - tokens.written,
        "cache_creation_input_tokens": tokens.written,
        "cache_read_input_tokens": tokens.cached,
        "cache_creation": {"ephemeral_5m_input_tokens": tokens.written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 1,
        "service_tier": "standard",
    }
    head = {"id": ledger.next_id("msg_"), "type": "message", "role": "assistant", "model": prompt.model}
    return {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}


def _blocks(ledger: Ledger, prompt: Prompt, answer: Answer) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each block with its deltas; thoughts are remembered with the calls behind them."""
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    for part in answer.parts:
        match part:
            case Reasoning():
                if prompt.reasons:
                    blocks.append(_thought(prompt, part))
            case Refusal():
                pass
            case Text():
                deltas = [{"type": "text_delta", "text": piece} for piece in part.pieces]
                blocks.append(({"type": "text", "text": part.whole, "citations": None}, deltas))
            case ToolCall():
                blocks.append(_tool_use(ledger, part))
    thoughts = [block for block, _ in blocks if block["type"] in THOUGHTS]
    if thoughts:
        uses = [block["id"] for block, _ in blocks if block["type"] == "tool_use"]
        ledger.thoughts_of_call.update(dict.fromkeys(uses, thoughts))
    return blocks


def _tool_use(ledger: Ledger, call: ToolCall) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    written = call.written
    half = len(written) // 2
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", written[:half], written[half:])]
    arguments = dict(call.arguments) if not isinstance(call.arguments, str) else json.loads(written)
    block = {"type": "tool_use", "id": call.id or ledger.next_id("toolu_"), "name": call.name, "input": arguments}
    return {**block, "caller": {"type": "direct"}}, deltas


def _thought(prompt: Prompt, part: Reasoning) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if part.redacted:
        name = digest(part.whole)
        return {"type": "redacted_thinking", "data": f"{name}.{sign('redacted', name)}"}, []
    thinking: Thinking | None = prompt.body.request.thinking
    pieces = () if thinking is not None and thinking.display == "omitted" else part.pieces
    text = "".join(pieces)
    signature = sign("thinking", text) + (f".{sign('bound', prompt.body.bound)}" if prompt.body.bound else "")
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    deltas.append({"type": "signature_delta", "signature": signature})
    return {"type": "thinking", "thinking": text, "signature": signature}, deltas


def _emptied(block: dict[str, Any]) -> dict[str, Any]:
    """A block as its stream begins with it."""
    empty: dict[str, dict[str, Any]] = {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
        "tool_use": {"input": {}},
    }
    return {**block, **empty.get(block["type"], {})}


def _stop(answer: Answer) -> dict[str, Any]:
    if answer.refusal is not None or answer.ending is Ending.FILTERED:
        explanation = answer.refusal.whole if answer.refusal is not None else None
        details = {"type": "refusal", "category": "general_harms", "explanation": explanation}
        return {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details}
    reason = "max_tokens" if answer.ending is Ending.LENGTH else "tool_use" if answer.calls else "end_turn"
    return {"stop_reason": reason, "stop_sequence": None, "stop_details": None}


def _output_usage(tokens: Tokens) -> dict[str, Any]:
    return {"output_tokens": tokens.output, "output_tokens_details": {"thinking_tokens": tokens.reasoning}}


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
