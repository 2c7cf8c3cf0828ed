"""Talk and instructions of a conversation apart, as clients send it: messages of the system, and texts that an app
writes into the messages of its user, instruct the turn and are no talk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tenuto.model.values import Json, JsonObject

_TEXTS: Final = ("text", "input_text")
_SYSTEM: Final = ("system", "developer")


class Talk(NamedTuple):
    """The entries of a request that are talk, their places in it, and its instructions, each once, in their order."""

    items: list[JsonObject]
    places: list[int]
    instructions: str


def split_talk(items: Sequence[JsonObject], marks: Sequence[tuple[str, str]] = ()) -> Talk:
    """Talk and instructions apart; `marks` are how an app's own texts begin and end.

    These stand at the beginning or at the end of a text: what a user quotes within a sentence stays. A message of which
    nothing is left is left out.
    """
    talk: list[JsonObject] = []
    places: list[int] = []
    instructions: dict[str, None] = {}
    begins = [begin for begin, _ in marks]
    for place, item in enumerate(items):
        role, said = item.get("role"), item
        if role in _SYSTEM:
            instructions["".join(_texts(item.get("content")))] = None
            continue
        if role == "user" and begins:
            content = item.get("content")
            # Nearly every message has nothing of the app's in it.
            if not isinstance(content, str) or any(map(content.__contains__, begins)):
                left = _without_own(item, marks, instructions)
                if left is None:
                    continue
                said = left
        talk.append(said)
        places.append(place)
    return Talk(talk, places, "\n\n".join(filter(None, instructions)))


def _texts(content: Json) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if _is_text(part)] if isinstance(content, list) else []


def _is_text(part: Json) -> bool:
    return isinstance(part, dict) and part.get("type") in _TEXTS and isinstance(part.get("text"), str)


def _without_own(
    item: JsonObject, marks: Sequence[tuple[str, str]], instructions: dict[str, None]
) -> JsonObject | None:
    """The message without the texts of the app, which are added to the instructions; `None` if nothing is left."""
    content = item.get("content")
    if isinstance(content, str):
        rest, own = _peel(content, marks)
        instructions |= dict.fromkeys(own)
        return {**item, "content": rest} if rest else None if own else item
    if not isinstance(content, list):
        return item
    parts: list[Json] = []
    changed = False
    for part in content:
        rest, own = _peel(part["text"], marks) if _is_text(part) else ("", [])
        instructions |= dict.fromkeys(own)
        changed = changed or bool(own)
        if not own:
            parts.append(part)
        elif rest:
            parts.append({**part, "text": rest})
    if not changed:
        return item
    return {**item, "content": parts} if parts else None


def _peel(text: str, marks: Sequence[tuple[str, str]]) -> tuple[str, list[str]]:
    """A text without the blocks at its two ends, and those blocks in their order."""
    first: list[str] = []
    last: list[str] = []
    rest, before = text.strip(), None
    while rest != before:
        before = rest
        for begin, end in marks:
            if rest.startswith(begin) and (at := rest.find(end, len(begin))) > 0:
                first.append(rest[: at + len(end)])
                rest = rest[at + len(end) :].strip()
            elif rest.endswith(end) and (at := rest.rfind(begin)) > 0:
                last.insert(0, rest[at:])
                rest = rest[:at].strip()
    return (rest, first + last) if first or last else (text, [])
