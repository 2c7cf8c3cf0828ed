"""How replies, events, traces and assistants look outside, as JSON: the same over HTTP and in the CLI."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from tenuto.assistants import Assistant
from tenuto.chat.request import Answered, ChatEvent, Reply, Started, ToolEnded, ToolStarted
from tenuto.model.prompt import Manifest
from tenuto.model.session import NANOS_PER_USD
from tenuto.model.talk import Said
from tenuto.model.trace import ToolRun, Trace
from tenuto.model.values import JsonObject


def reply_json(reply: Reply) -> JsonObject:
    """A reply, whole."""
    return {
        "session_id": reply.session_id,
        "trace_id": reply.trace_id or None,
        "turn": reply.turn,
        "assistant": reply.assistant,
        "answer": reply.text,
        "model": reply.model,
        "offline": reply.offline,
        "degraded": list(reply.degraded),
        "title": reply.title,
        "created": reply.created,
        "repeated": reply.repeated,
        "usage": _usage(reply.input_tokens, reply.output_tokens, reply.cost_nanos),
        "data": reply.data,
        "context": manifest_json(reply.manifest) if reply.manifest is not None else None,
        "steps": reply.steps,
    }


def event_json(event: ChatEvent) -> tuple[str, JsonObject]:
    """An event's name and what it tells."""
    match event:
        case Started():
            return "start", {**_plain(event), "trace_id": event.trace_id or None}
        case Said(text=text):
            return "delta", {"text": text}
        case ToolStarted(name=name):
            return "tool", {"name": name, "state": "started"}
        case ToolEnded(name=name, milliseconds=taken, failed=failed):
            return "tool", {
                "name": name,
                "state": "failed" if failed else "done",
                "milliseconds": taken,
                "error": failed,
            }
        case Answered(reply=reply):
            return "done", reply_json(reply)


def trace_json(trace: Trace) -> JsonObject:
    """A trace, whole."""
    return {
        "trace_id": trace.id,
        "session_id": trace.session_id,
        "turn": trace.number,
        "began_at": trace.began_at.isoformat().replace("+00:00", "Z"),
        "assistant": trace.assistant,
        "persona": trace.persona,
        "request": trace.request,
        "answer": trace.answer,
        "model": trace.model,
        "offline": trace.offline,
        "degraded": list(trace.degraded),
        "error": trace.error,
        "usage": _usage(trace.input_tokens, trace.output_tokens, trace.cost_nanos),
        "tools": [tool_json(run) for run in trace.tools],
        "steps": trace.steps,
        "data": trace.data,
        "redacted": trace.redacted,
        "context": manifest_json(trace.manifest) if trace.manifest is not None else None,
    }


def tool_json(run: ToolRun) -> JsonObject:
    """One call of a tool."""
    return {
        "name": run.name,
        "arguments": run.arguments,
        "output": run.output,
        "milliseconds": run.milliseconds,
        "error": run.error,
    }


def manifest_json(manifest: Manifest) -> JsonObject:
    """What the model saw, part by part."""
    return {
        "total": manifest.total,
        "room": manifest.room,
        "budget": manifest.budget,
        "reply": manifest.reply,
        "encoding": manifest.encoding,
        "exact": manifest.exact,
        "layout": manifest.layout,
        "entries": [{name: getattr(entry, name) for name in entry.__struct_fields__} for entry in manifest.entries],
    }


def assistant_json(assistant: Assistant, model: str, default: bool) -> JsonObject:
    """An assistant, as one chooses it."""
    return {
        "name": assistant.name,
        "default": default,
        "titles": dict(assistant.titles),
        "about": dict(assistant.about),
        "model": model,
        "personas": [{"id": persona.id, "names": dict(persona.names)} for persona in assistant.personas.values()],
        "tools": [tool.spec.name for tool in assistant.tools],
    }


def _usage(input_tokens: int, output_tokens: int, cost_nanos: int) -> JsonObject:
    return {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "cost_usd": f"{Decimal(cost_nanos) / NANOS_PER_USD:f}",
    }


def _plain(event: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}
