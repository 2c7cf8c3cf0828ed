"""Foreign conversation entries as messages, and back unchanged: Responses items and chat completion messages.

What our messages have a place for goes there: the role, text, tool calls and tool outputs. Every other field of a
message is kept in `extra` under its own name, so that the entry can be returned as it came.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from tenuto.model.message import (
    CHAT_CALL,
    FUNCTION_CALL,
    FUNCTION_CALL_OUTPUT,
    SUMMARY,
    Draft,
    Role,
    text_part,
    tool_result,
)
from tenuto.model.reasoning import REASONING, is_reasoning
from tenuto.model.values import Json, JsonObject

_ITEM_ROLES: Final = {FUNCTION_CALL: Role.ASSISTANT, FUNCTION_CALL_OUTPUT: Role.TOOL}
_MESSAGE_ROLES: Final = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "tool": Role.TOOL,
}
# Looked up once: for every message of a log, finding an enumeration's member or its value takes longer than the rest.
_ITEM: Final = Role.ITEM
_ROLE_NAMES: Final = {role: role.value for role in Role}
# In `extra`, says that the content was a list, where its only part would otherwise be read as something else.
_LISTED: Final = "parts"
_AMBIGUOUS: Final = frozenset({"text", "tool_result", *_ITEM_ROLES})
# What readers of our own parts rely on: the names of texts, and of values of any kind.
_OUR_PARTS: Final = {"tool_call": (("id", "name"), "arguments"), "tool_result": (("call_id",), "output")}


class _Form(NamedTuple):
    """How an entry is stored."""

    role: Role
    parts: tuple[JsonObject, ...]
    extra: JsonObject


def draft_from_item(item: JsonObject, *, new_id: Callable[[], str], now: datetime) -> Draft:
    """The entry as a message to append. Its own id, if it has one, is kept as any other field.

    A message, with or without a type, has its role; `developer` is a system message. A `function_call` is the
    assistant's, a `function_call_output` the tool's. All other entries have the role `item`.
    """
    role, parts, extra = _form_of(item)
    return Draft(id=new_id(), role=role, sent_at=now, parts=parts, extra=extra)


def item_from_message(message: Draft) -> JsonObject:
    """The entry that `draft_from_item` was given; for other messages, the chat completion message nearest to them.

    Such a message has no place for thoughts.
    """
    parts, extra = message.parts, message.extra
    if any(map(is_reasoning, parts)):
        if extra.get("type") == REASONING:
            return extra
        parts = tuple([part for part in parts if not is_reasoning(part)])
    if message.role is _ITEM:
        return parts[0] if parts else extra
    if len(parts) == 1 and parts[0]["type"] in _ITEM_ROLES and "content" not in extra:
        return parts[0]
    item: JsonObject = {"role": _ROLE_NAMES[message.role], **extra}
    calls = [part for part in parts if part["type"] == CHAT_CALL]
    if calls:
        item["tool_calls"] = calls
    content = parts[: len(parts) - len(calls)]
    if extra.get("content") == _LISTED:
        item["content"] = [*content]
    elif "content" not in extra and content:
        item |= _plain_content(message.role, content)
    return item


def _form_of(item: JsonObject) -> _Form:
    kind, role = item.get("type"), item.get("role")
    if (kind == "message" or "type" not in item) and isinstance(role, str) and role in _MESSAGE_ROLES:
        return _message_form(item, role)
    if not _is_part(item) or kind == SUMMARY:
        # An entry that says it is a summary is none of ours, and must not be taken for one.
        return _Form(Role.ITEM, (), item)
    return _Form(_ITEM_ROLES.get(item["type"], Role.ITEM), (item,), {})


def _message_form(item: JsonObject, role: str) -> _Form:
    extra = {name: value for name, value in item.items() if name not in ("role", "content")}
    if role == "developer":
        extra["role"] = role
    parts: tuple[JsonObject, ...] = ()
    if "content" in item:
        parts = _content_parts(item["content"], role, extra)
    if role == "assistant" and isinstance(item.get("refusal"), str) and item["refusal"]:
        # What it stands beside stays in `extra`, so that the entry comes back as it was.
        parts, extra["content"] = (*parts, {"type": "refusal", "refusal": item["refusal"]}), item.get("content")
    calls = extra.get("tool_calls")
    if isinstance(calls, list) and calls and all(_is_part(call) and call["type"] == CHAT_CALL for call in calls):
        del extra["tool_calls"]
        parts = (*parts, *calls)
    return _Form(_MESSAGE_ROLES[role], parts, extra)


def _content_parts(content: Json, role: str, extra: JsonObject) -> tuple[JsonObject, ...]:
    """The parts of a content; where they do not tell all of it, `extra` does."""
    call_id = extra.get("tool_call_id")
    if role == "tool" and isinstance(call_id, str) and isinstance(content, str | list):
        del extra["tool_call_id"]
        return (tool_result(call_id, content),)
    if isinstance(content, str):
        return (text_part(content),)
    if not isinstance(content, list) or not content or not all(map(_is_content_part, content)):
        extra["content"] = content
        return ()
    if len(content) == 1 and content[0]["type"] in _AMBIGUOUS:
        extra["content"] = _LISTED
    return tuple(content)


def _plain_content(role: Role, parts: tuple[JsonObject, ...]) -> JsonObject:
    """What is said of the content by its parts alone."""
    first = parts[0]
    if len(parts) == 1 and len(first) == 2 and first["type"] == "text" and "text" in first:
        return {"content": first["text"]}
    if len(parts) == 1 and role is Role.TOOL and first == tool_result(first.get("call_id", ""), first.get("output")):
        return {"tool_call_id": first["call_id"], "content": first["output"]}
    return {"content": [*parts]}


def _is_content_part(part: Json) -> bool:
    if not _is_part(part) or part["type"] == CHAT_CALL:
        return False
    texts, value = _OUR_PARTS.get(part["type"], ((), "type"))
    return value in part and all(isinstance(part.get(name), str) for name in texts)


def _is_part(value: Json) -> bool:
    """Whether a message can hold it as a part."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    return value["type"] != "text" or isinstance(value.get("text"), str)
