"""SQLite files of OpenAI Agents, LangChain and LangGraph."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final

from tenuto.errors import PackageMissing
from tenuto.model import Draft, Role, text_part
from tenuto.model.message import tool_call, tool_result
from tenuto.model.values import Json, JsonObject
from tenuto.sessions.ids import derived_id
from tenuto.sessions.importers.files import open_sqlite
from tenuto.sessions.importers.records import Record, Skipped, found_session, instant, message, storable
from tenuto.sessions.items import draft_from_item

_ROLES: Final = {
    **dict.fromkeys(("human", "HumanMessageChunk", "user"), Role.USER),
    **dict.fromkeys(("ai", "AIMessageChunk", "assistant"), Role.ASSISTANT),
    **dict.fromkeys(("system", "SystemMessageChunk", "developer"), Role.SYSTEM),
    **dict.fromkeys(("tool", "ToolMessageChunk"), Role.TOOL),
}
# Told by the parts and the type of a message.
_TOLD: Final = ("content", "type")
_UNREADABLE: Final = Skipped(kind="message", reason="not JSON of a message")


def read_openai_agents(path: Path, now: datetime) -> Iterator[Record]:
    """Sessions of `SQLiteSession`; the items come back from our adapter as they were."""
    with open_sqlite(path, "agent_messages") as db:
        for (session_id,) in db.execute("SELECT DISTINCT session_id FROM agent_messages ORDER BY session_id"):
            rows = _rows(db, "SELECT id, message_data, created_at FROM agent_messages", session_id)
            yield from _session("openai-agents", session_id, rows, now, _draft_of_item)


def read_langchain(path: Path, now: datetime) -> Iterator[Record]:
    """Histories of `SQLChatMessageHistory`."""
    with open_sqlite(path, "message_store") as db:
        for (session_id,) in db.execute("SELECT DISTINCT session_id FROM message_store ORDER BY session_id"):
            rows = _rows(db, "SELECT id, message, NULL FROM message_store", session_id)
            yield from _session("langchain", session_id, rows, now, _draft_of_langchain)


def read_langgraph(path: Path, now: datetime) -> Iterator[Record]:
    """Threads of `SqliteSaver`: the messages of each thread's newest checkpoint.

    Raises:
        InvalidSetting: the packages that read checkpoints are not installed.
    """
    try:
        from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
    except ModuleNotFoundError as error:
        raise PackageMissing("import", "a LangGraph checkpoint", extra="langgraph") from error
    # Strict: of the classes in a checkpoint only those of messages and the like are made, and no code of others runs.
    serde = JsonPlusSerializer(allowed_msgpack_modules=None)
    newest = (
        "SELECT thread_id, type, checkpoint, max(checkpoint_id) FROM checkpoints WHERE checkpoint_ns = '' "
        "GROUP BY thread_id ORDER BY thread_id"
    )
    with open_sqlite(path, "checkpoints") as db:
        for thread_id, kind, blob, _ in db.execute(newest):
            messages, at = _channel(serde, kind, blob)
            if messages is None:
                yield Skipped(kind="session", reason="its newest checkpoint has no readable channel 'messages'")
                continue
            rows = ((number, _dump(one), at) for number, one in enumerate(messages, 1))
            yield from _session("langgraph", thread_id, rows, now, _draft_of_langchain)


def _rows(db: Connection, columns: str, session_id: str) -> Iterator[tuple[int, Json, Json]]:
    for number, raw, at in db.execute(f"{columns} WHERE session_id = ? ORDER BY id", (session_id,)):
        try:
            yield number, json.loads(raw), at
        except (ValueError, TypeError, RecursionError):
            yield number, None, at


def _session(
    source: str,
    session_id: str,
    rows: Iterator[tuple[int, Json, Json]],
    now: datetime,
    draft_of: Callable[[JsonObject, str, datetime], Draft | None],
) -> Iterator[Record]:
    drafts: list[Draft] = []
    for number, item, at in rows:
        draft_id, sent_at = derived_id("i-", source, session_id, str(number)), instant(at, now)
        draft = draft_of(item, draft_id, sent_at) if isinstance(item, dict) else None
        if draft is None:
            yield _UNREADABLE
        else:
            drafts.append(draft)
    yield found_session(source, session_id, drafts)


def _draft_of_item(item: JsonObject, draft_id: str, sent_at: datetime) -> Draft:
    return draft_from_item(storable(item), new_id=lambda: draft_id, now=sent_at)


def _draft_of_langchain(item: JsonObject, draft_id: str, sent_at: datetime) -> Draft | None:
    data = item.get("data")
    if not isinstance(data, dict):
        return None
    kind = str(item.get("type"))
    role = _ROLES.get(str(data.get("role")) if kind in ("chat", "ChatMessageChunk") else kind, Role.ITEM)
    # As our chat history for LangChain stores it, which then gives back an equal message.
    own: JsonObject = {"type": kind, "data": {name: data[name] for name in data if data[name] and name not in _TOLD}}
    if isinstance(data.get("content"), list):
        own["content"] = data["content"]
    parts = _langchain_parts(role, data)
    return message(role, parts, message_id=draft_id, sent_at=sent_at, extra={"langchain": own})


def _langchain_parts(role: Role, data: JsonObject) -> list[JsonObject]:
    content = data.get("content")
    call_id = data.get("tool_call_id")
    if role is Role.TOOL and isinstance(call_id, str):
        return [tool_result(call_id, content)]
    blocks = content if isinstance(content, list) else [content]
    parts = [text_part(block) if isinstance(block, str) else block for block in blocks if block]
    called = data.get("tool_calls")
    calls = [call for call in called if isinstance(call, dict)] if isinstance(called, list) else []
    ids = [call.get("id") for call in calls]
    # Providers repeat a call among the blocks of the content.
    kept = [part for part in parts if _is_part(part) and ("id" not in part or part["id"] not in ids)]
    return [*kept, *[tool_call(str(call.get("id")), str(call.get("name")), call.get("args")) for call in calls]]


def _is_part(part: Any) -> bool:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        return False
    return part["type"] != "text" or isinstance(part.get("text"), str)


def _channel(serde: Any, kind: str, blob: bytes) -> tuple[list[Any] | None, Json]:
    """The messages in a checkpoint, and its time."""
    try:
        checkpoint = serde.loads_typed((kind, blob))
        found = checkpoint["channel_values"]["messages"]
    # The serializer raises whatever its parts do for a checkpoint that it cannot read.
    except Exception:
        return None, None
    return found if isinstance(found, list) else None, checkpoint.get("ts")


def _dump(one: Any) -> JsonObject | None:
    """A message of LangChain as its JSON; `None` for anything else."""
    if not hasattr(one, "model_dump"):
        return None
    return {"type": getattr(one, "type", ""), "data": one.model_dump(mode="json")}
