"""Shapes are checked by type at every door: whatever JSON stands where in a body, no answer is a failure of ours."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import pytest

from tests.journeys.http_service import ANN, http_service

# One of each type; what is neither hashable nor text fails most often.
GARBAGE: Final[tuple[Any, ...]] = (None, -1, "x", [[]], {"type": ["x"]})
_PARTS: Final[list[Any]] = [
    {"type": "input_text", "text": "hi"},
    {"type": "text", "text": "hi"},
    {"type": "image_url", "image_url": {"url": "x"}},
    {"type": "tool_call", "id": "c", "name": "f", "arguments": {}},
    {"type": "tool_result", "call_id": "c", "output": "1"},
]
_FUNCTION: Final = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
_ITEMS: Final[list[Any]] = [
    {"type": "message", "id": "msg_1", "role": "user", "content": _PARTS},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi", "annotations": []}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"},
    {"type": "function_call_output", "call_id": "c", "output": "1"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "t"}], "content": []},
    {"type": "compaction", "encrypted_content": "tenuto summary: s"},
    {"type": "item_reference", "id": "msg_1"},
    {"role": "user", "content": "hi"},
]
_CALL: Final = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_CHAT: Final[list[Any]] = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "n"},
    {"role": "assistant", "content": None, "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "1"},
    {"role": "user", "content": "hi"},
]
_MESSAGE: Final = {
    "role": "user",
    "text": "hi",
    "parts": _PARTS,
    "metadata": {"a": 1},
    "sent_at": "2026-01-01T00:00:00Z",
}
_UI: Final[list[Any]] = [
    {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}], "metadata": {"a": 1}},
    {
        "id": "a",
        "role": "assistant",
        "parts": [
            {"type": "tool-f", "toolCallId": "c", "state": "output-available", "input": {}, "output": {"a": 1}},
            {"type": "step-start"},
        ],
    },
    {"id": "v", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
]
_AG_UI: Final[list[Any]] = [
    {"id": "u", "role": "user", "content": "hi"},
    {"id": "a", "role": "assistant", "toolCalls": [_CALL]},
    {"id": "t", "role": "tool", "toolCallId": "c", "content": "1"},
]
_PLAN: Final[dict[str, Any]] = {"steps": [{"id": "a", "human_input": "Well?", "after": [], "when": None, "timeout": 5}]}
_A2A: Final = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}], "contextId": "c", "metadata": {"a": 1}}


def _rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _tool(name: str, **arguments: Any) -> dict[str, Any]:
    return _rpc("tools/call", {"name": name, "arguments": arguments})


# A sound body of every route that takes one, rich in fields; each of its places is filled with garbage in turn.
BODIES: Final[list[tuple[str, str, Any]]] = [
    ("POST", "/v1/chat", {"message": "hi", "session_id": "s", "assistant": "general", "profile": {"a": {"b": 1}}}),
    ("POST", "/v1/chat", {"edit": 1, "message": "hi", "session_id": "s", "language": "en", "persona": "p"}),
    ("POST", "/v1/turns", {"message": _MESSAGE, "session_id": "s", "window": 5, "lease_seconds": 1}),
    ("POST", "/v1/turns/t/finish", {"reply": _MESSAGE, "usage": {"input_tokens": 1}, "changes": {"title": "t"}}),
    ("POST", "/v1/sessions", {"id": "g", "title": "t", "attributes": {"a": 1}, "context": {"a": 1}, "metadata": {}}),
    ("PATCH", "/v1/sessions/s", {"title": "t", "status": "active", "attributes": {"a": 1}, "context": {"a": 1}}),
    ("PUT", "/v1/sessions/s/attributes/a", {"value": 1}),
    ("POST", "/v1/sessions/s/messages", {"messages": [_MESSAGE], "producer": {"id": "p", "seq": 1}}),
    ("POST", "/v1/sessions/s/messages", _MESSAGE),
    ("POST", "/v1/sessions/s/fork", {"id": "f", "at": 1, "title": "t"}),
    ("POST", "/v1/sessions/s/truncate", {"after": 0, "if_version": 1}),
    ("POST", "/v1/sessions/s/reveal", {"placeholders": ["[EMAIL_1]"]}),
    ("POST", "/v1/sessions/import", {"session": {"id": "i"}, "messages": [_MESSAGE]}),
    ("POST", "/v1/memories", {"text": "t", "kind": "fact", "subject": "s", "memories": [{"text": "t"}]}),
    ("POST", "/v1/memories/search", {"query": "q", "limit": 3, "kinds": ["fact"]}),
    ("PUT", "/v1/memories/preferences", {"preferences": {"a": "b"}}),
    ("PATCH", "/v1/memories/m", {"text": "t", "kind": "fact"}),
    ("POST", "/v1/tasks", {"type": "t", "goal": {"a": 1}, "session_id": "s", "plan": _PLAN, "metadata": {"a": 1}}),
    ("PUT", "/v1/tasks/t/board/k", {"value": {"a": 1}, "if_version": 1, "ttl_seconds": 5}),
    ("POST", "/v1/tasks/t/board/k/increment", {"by": 1}),
    ("POST", "/v1/tasks/t/locks/k", {"seconds": 1}),
    ("POST", "/v1/tasks/t/input/a", {"value": {"a": 1}}),
    ("POST", "/v1/privacy/scan", {"fix": False}),
    ("POST", "/v1/privacy/verify", {"receipt": {"id": "r", "sites": [], "counts": {"a": 1}}, "user_id": "ann"}),
    ("POST", "/v1/npc/chat", {"npc_id": "ancestor_yan", "query": "hi", "session_id": "n", "history": [_MESSAGE]}),
    ("POST", "/goods/qa", {"question": "hi", "session_id": "q", "goods_id": "g", "history": [_MESSAGE]}),
    ("POST", "/v1/ai-sdk/chat", {"id": "ui", "messages": _UI, "trigger": "submit-message", "messageId": "u"}),
    (
        "POST",
        "/v1/ag-ui/general",
        {
            "threadId": "t",
            "runId": "r",
            "messages": _AG_UI,
            "tools": [_FUNCTION],
            "context": [{"description": "d", "value": "v"}],
            "state": {"a": 1},
            "forwardedProps": {"a": 1},
        },
    ),
    ("POST", "/v1/conversations", {"items": _ITEMS, "metadata": {"a": "b"}}),
    ("POST", "/v1/conversations/s", {"metadata": {"a": "b"}}),
    ("POST", "/v1/conversations/s/items", {"items": _ITEMS}),
    (
        "POST",
        "/v1/responses",
        {
            "input": _ITEMS,
            "model": "general",
            "conversation": {"id": "s"},
            "store": False,
            "tools": [{"type": "function", **_FUNCTION}, {"type": "web_search"}],
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
            "reasoning": {"effort": "low"},
            "metadata": {"a": "b"},
            "context_management": [{"type": "compaction", "compact_threshold": 5}],
            "truncation": "auto",
            "max_output_tokens": 9,
        },
    ),
    ("POST", "/v1/responses/input_tokens", {"input": _ITEMS, "tools": [{"type": "function", **_FUNCTION}]}),
    ("POST", "/v1/responses/compact", {"input": _ITEMS, "model": "general", "instructions": "i"}),
    (
        "POST",
        "/v1/chat/completions",
        {
            "messages": _CHAT,
            "model": "general",
            "tools": [{"type": "function", "function": _FUNCTION}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
            "stream_options": {"include_usage": True},
            "max_tokens": 9,
            "n": 1,
        },
    ),
    ("POST", "/v1/embeddings", {"input": ["hi"], "model": "m", "encoding_format": "float", "dimensions": 5}),
    ("POST", "/mcp", _tool("append_message", session_id="s", text="hi", role="user", idempotency_key="k")),
    ("POST", "/mcp", _tool("remember", text="t", kind="fact", subject="s")),
    ("POST", "/mcp", _tool("write_board", task_id="t", key="k", value={"a": 1}, agent="a", if_version=1)),
    ("POST", "/a2a/general", _rpc("SendMessage", {"message": _A2A, "configuration": {"historyLength": 1}})),
    ("POST", "/a2a/general/message:send", {"message": _A2A, "configuration": {"historyLength": 1}, "metadata": {}}),
    ("POST", "/v1/keys", {"tenant_id": "acme", "user_id": "ann", "role": "member", "name": "n", "agent": "a"}),
]
READS: Final = ("/v1/sessions/s/messages", "/v1/sessions/s/export", "/v1/conversations/s/items", "/v1/ai-sdk/chat/s")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a JSON value, the whole included."""
    yield path
    if isinstance(value, dict | list):
        for name, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(child, (*path, name))


def with_garbage(value: Any, path: tuple[Any, ...], garbage: Any) -> Any:
    """The same JSON with another value at a path."""
    if not path:
        return garbage
    changed = copy.deepcopy(value)
    parent = changed
    for name in path[:-1]:
        parent = parent[name]
    parent[path[-1]] = garbage
    return changed


@pytest.mark.requirement("T18")
@pytest.mark.parametrize(("method", "path", "body"), BODIES, ids=lambda given: given if isinstance(given, str) else "")
async def test_no_json_in_a_body_is_a_failure_of_ours(method: str, path: str, body: Any) -> None:
    """Every place of a sound body in turn, with a value of every type. What was stored stays readable."""
    headers = {**ANN, "Accept": "application/json, text/event-stream", "A2A-Version": "1.0", "Tenuto-Session": "chat"}
    failures = []
    async with http_service(busy_wait=timedelta(0), embedder="none", requests_per_minute=0) as service:
        await service.http.post("/v1/sessions", headers=ANN, json={"id": "s"})
        for place in places(body):
            for garbage in GARBAGE:
                sent = with_garbage(body, place, garbage)
                answer = await service.http.request(method, path, headers=headers, json=sent)
                if answer.status_code == 500 or '"internal"' in answer.text:
                    failures.append((place, garbage, answer.text))
        key = await service.key(user="ann") if path == "/v1/keys" else ANN  # Its garbage may have closed the door.
        for read in READS:
            answer = await service.http.get(read, headers=key)
            if answer.status_code != 200:
                failures.append(((), read, answer.text))
    assert failures == []
