"""JSON of mem0, Zep and Letta, as their APIs and agent files have it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from tenuto.model import Draft, Role, text_part
from tenuto.model.message import tool_call, tool_result
from tenuto.model.values import Json, JsonObject
from tenuto.sessions.importers.files import iter_items, open_bytes
from tenuto.sessions.importers.records import Record, Skipped, found_memory, found_session, instant, message

_ROLES: Final = {
    **dict.fromkeys(("user", "human", "norole"), Role.USER),
    **dict.fromkeys(("assistant", "ai"), Role.ASSISTANT),
    "system": Role.SYSTEM,
    **dict.fromkeys(("tool", "function"), Role.TOOL),
}
# With this tool an agent of Letta speaks.
_SPEAK: Final = "send_message"
_UNKNOWN: Final = Skipped(kind="session", reason="not an object with messages and an id")
_NO_TEXT: Final = Skipped(kind="message", reason="empty")


def read_mem0(path: Path, now: datetime) -> Iterator[Record]:
    """Memories: what `get_all` answers, whole or its `results` alone."""
    with open_bytes(path) as file:
        for item in _listed(iter_items(file), "results", "memories"):
            text = item.get("memory") or item.get("text") if isinstance(item, dict) else None
            if not isinstance(text, str) or not text.strip():
                yield Skipped(kind="memory", reason="it has no text")
                continue
            at = instant(item.get("updated_at") or item.get("created_at"), now)
            memory_id = str(item.get("id") or text)
            yield found_memory("mem0", memory_id, text, said_at=at, user=item.get("user_id"))


def read_zep(path: Path, now: datetime) -> Iterator[Record]:
    """Sessions or threads with their `messages`, and `facts` as memories of their user."""
    with open_bytes(path) as file:
        for item in _listed(iter_items(file), "sessions", "threads"):
            if not isinstance(item, dict) or not isinstance(item.get("messages"), list):
                yield _UNKNOWN
                continue
            session_id = item.get("session_id") or item.get("thread_id") or item.get("uuid")
            if not isinstance(session_id, str):
                yield _UNKNOWN
                continue
            yield from _zep_session(item, session_id, now)


def _zep_session(item: JsonObject, session_id: str, now: datetime) -> Iterator[Record]:
    drafts: list[Draft] = []
    for number, entry in enumerate(item["messages"], 1):
        text = entry.get("content") if isinstance(entry, dict) else None
        if not isinstance(text, str) or not text.strip():
            yield _NO_TEXT
            continue
        # In older versions the role is a name, and its type stands beside it.
        role = _ROLES.get(str(entry.get("role_type") or entry.get("role")), Role.USER)
        named = entry.get("name") or (entry.get("role") if entry.get("role_type") else None)
        drafts.append(
            message(
                role if role is not Role.TOOL else Role.ITEM,
                [text_part(text)],
                message_id=str(entry.get("uuid") or f"{session_id}-{number}"),
                sent_at=instant(entry.get("created_at"), now),
                metadata=entry.get("metadata") if isinstance(entry.get("metadata"), dict) else None,
                extra={"name": named} if isinstance(named, str) and named else None,
            )
        )
    user = item.get("user_id")
    yield found_session("zep", session_id, drafts, user=user, metadata=item.get("metadata"))
    facts = item.get("facts")
    for fact in facts if isinstance(facts, list) else ():
        text = fact.get("fact") if isinstance(fact, dict) else fact
        if isinstance(text, str) and text.strip():
            at = instant(fact.get("created_at") if isinstance(fact, dict) else None, now)
            yield found_memory("zep", f"{user}/{text}", text, said_at=at, user=user)


def read_letta(path: Path, now: datetime) -> Iterator[Record]:
    """Agents of an agent file: each one's messages, and its block `human` as a memory of the user."""
    with open_bytes(path) as file:
        for whole in iter_items(file):
            blocks = _list(whole.get("blocks")) if isinstance(whole, dict) else []
            known = {block["id"]: block for block in blocks if isinstance(block, dict) and _has_id(block)}
            for agent in _listed([whole], "agents"):
                yield from _agent(agent, known, now) if isinstance(agent, dict) else [_UNKNOWN]


def _agent(agent: JsonObject, blocks: JsonObject, now: datetime) -> Iterator[Record]:
    agent_id, messages = agent.get("id") or agent.get("name"), agent.get("messages")
    if not isinstance(agent_id, str) or not isinstance(messages, list):
        yield _UNKNOWN
        return
    drafts: list[Draft] = []
    for number, entry in enumerate(messages, 1):
        parts = list(_letta_parts(entry)) if isinstance(entry, dict) else []
        if not parts:
            yield Skipped(kind="message", reason="empty, or an event of the agent")
            continue
        role = _ROLES.get(str(entry.get("role")), Role.ITEM)
        sent_at = instant(entry.get("created_at"), drafts[-1].sent_at if drafts else now)
        drafts.append(message(role, parts, message_id=str(entry.get("id") or f"{agent_id}-{number}"), sent_at=sent_at))
    yield found_session("letta", agent_id, drafts, title=agent.get("name"))
    own = [blocks[name] for name in _list(agent.get("block_ids")) if isinstance(name, str) and name in blocks]
    for block in [*own, *_list(agent.get("core_memory"))]:
        if isinstance(block, dict) and isinstance(block.get("value"), str) and block["value"].strip():
            if block.get("label") == "human":
                yield found_memory("letta", f"{agent_id}/human", block["value"], said_at=now)
            else:
                yield Skipped(kind="memory", reason="a block of the agent, not of its user")


def _letta_parts(entry: JsonObject) -> Iterator[JsonObject]:
    content = entry.get("content", entry.get("text"))
    blocks = content if isinstance(content, list) else [content]
    texts = [block.get("text") if isinstance(block, dict) else block for block in blocks]
    text = "\n".join(text for text in texts if isinstance(text, str) and text)
    call_id = entry.get("tool_call_id")
    if entry.get("role") == "tool" and isinstance(call_id, str):
        if entry.get("name") != _SPEAK:
            yield tool_result(call_id, text)
        return
    text = _unpack(text) if entry.get("role") == "user" else text
    if text.strip():
        yield text_part(text)
    for call in _list(entry.get("tool_calls")):
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield from _call_parts(str(call.get("id")), str(function.get("name")), function.get("arguments"))


def _call_parts(call_id: str, name: str, raw: Json) -> Iterator[JsonObject]:
    arguments = _parse(raw) if isinstance(raw, str) else raw
    if name != _SPEAK:
        yield tool_call(call_id, name, arguments)
    elif isinstance(arguments, dict) and isinstance(arguments.get("message"), str):
        yield text_part(arguments["message"])


def _unpack(text: str) -> str:
    """What the user said: it lies in an envelope, as do events such as a login, which have no text of the user."""
    envelope = _parse(text)
    if not isinstance(envelope, dict) or "type" not in envelope:
        return text
    entry = envelope.get("message")
    return entry if envelope["type"] == "user_message" and isinstance(entry, str) else ""


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _has_id(block: JsonObject) -> bool:
    return isinstance(block.get("id"), str)


def _parse(text: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _listed(items: Iterable[Json], *names: str) -> Iterator[Json]:
    """The items; an object that holds a list of them under one of these names stands for that list."""
    for item in items:
        held = [item[name] for name in names if isinstance(item.get(name), list)] if isinstance(item, dict) else []
        yield from held[0] if held else [item]
