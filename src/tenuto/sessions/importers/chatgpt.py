"""The export of ChatGPT: `conversations.json`, or the archive that holds it.

A conversation is a tree, since answers can be made anew and questions edited. The branch that was open last is
imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from tenuto.model import Draft, Role, Status, text_part
from tenuto.model.values import Json, JsonObject
from tenuto.sessions.importers.files import iter_items, iter_json_files
from tenuto.sessions.importers.records import Record, Skipped, found_session, instant, message

_FILES: Final = re.compile(r"(^|/)conversations(-\d+)?\.json$")
_ROLES: Final = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_HIDDEN: Final = "is_visually_hidden_from_conversation"


def read_chatgpt(path: Path, now: datetime) -> Iterator[Record]:
    """Each conversation's current branch."""
    for file in iter_json_files(path, _FILES):
        for item in iter_items(file):
            yield from _conversation(item, now)


def _conversation(item: Json, now: datetime) -> Iterator[Record]:
    tree = item.get("mapping") if isinstance(item, dict) else None
    session_id = (item.get("conversation_id") or item.get("id")) if isinstance(item, dict) else None
    if not isinstance(tree, dict) or not isinstance(session_id, str):
        yield Skipped(kind="session", reason="not a conversation of ChatGPT")
        return
    began = instant(item.get("create_time"), now)
    branch = _branch(tree, item.get("current_node"))
    drafts: list[Draft] = []
    for node in branch:
        draft = _draft(node["message"], drafts[-1].sent_at if drafts else began)
        if isinstance(draft, Draft):
            drafts.append(draft)
        else:
            yield Skipped(kind="message", reason=draft)
    others = sum(1 for node in tree.values() if _has_message(node)) - len(branch)
    if others:
        yield Skipped(kind="message", reason="on another branch", count=others)
    status = Status.ARCHIVED if item.get("is_archived") else Status.ACTIVE
    yield found_session("chatgpt", session_id, drafts, title=item.get("title"), status=status)


def _branch(tree: JsonObject, leaf: Json) -> list[JsonObject]:
    """The nodes with messages from the root to the current leaf; without one, to the last node."""
    name = leaf if isinstance(leaf, str) and leaf in tree else next(reversed(tree), None)
    nodes: list[JsonObject] = []
    seen: set[str] = set()
    while isinstance(name, str) and name in tree and name not in seen:
        seen.add(name)
        node = tree[name]
        if _has_message(node):
            nodes.append(node)
        name = node.get("parent") if isinstance(node, dict) else None
    return nodes[::-1]


def _has_message(node: Json) -> bool:
    return isinstance(node, dict) and isinstance(node.get("message"), dict)


def _draft(said: JsonObject, before: datetime) -> Draft | str:
    """A message, or why there is none."""
    author, content, about = (_object(said.get(name)) for name in ("author", "content", "metadata"))
    if about.get(_HIDDEN):
        return "hidden in ChatGPT"
    kind = content.get("content_type")
    plain = kind in ("text", "multimodal_text")
    role = _ROLES.get(str(author.get("role")), Role.ITEM) if plain else Role.ITEM
    # What a tool did, reasoning, code that was run: stored, and not shown to a model as if it were said.
    said_parts = list(_parts(content.get("parts"))) if plain else [{**content, "type": f"chatgpt_{kind}"}]
    if not said_parts or not content:
        return "empty"
    model = about.get("model_slug")
    return message(
        role,
        said_parts,
        message_id=str(said.get("id")),
        sent_at=instant(said.get("create_time"), before),
        metadata={"model": model} if isinstance(model, str) else None,
    )


def _parts(parts: Json) -> Iterator[JsonObject]:
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, str) and part.strip():
            yield text_part(part)
        elif isinstance(part, dict):
            yield {**part, "type": str(part.get("content_type", "chatgpt_part"))}


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}
