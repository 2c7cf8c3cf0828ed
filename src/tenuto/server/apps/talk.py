"""Talk and instructions of a conversation apart, as clients send it: messages of the system, and texts that an app
writes into the messages of its user, instruct the turn and are no talk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tenuto.model.values import Json, JsonObject

_TEXTS: Final = ("text", "input_text")
_SYSTEM: Final = ("system", "developer")
# Characters at the end of a text that are looked at together.
_PIECE: Final = 256


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
    """A text without the blocks at its two ends, and those blocks in their order.

    What was searched for in vain is not searched for again: a text may be made of blocks alone.
    """
    first: list[str] = []
    last: list[str] = []
    at_start, at_end = dict.fromkeys(marks), dict.fromkeys(marks)
    start, stop, before = *_bare(text, 0, len(text)), (-1, -1)
    while (start, stop) != before:
        before = start, stop
        for mark in marks:
            begin, end = mark
            if mark in at_start and text.startswith(begin, start, stop):
                at = text.find(end, start + len(begin), stop)
                if at >= 0:
                    first.append(text[start : at + len(end)])
                    start, stop = _bare(text, at + len(end), stop)
                    continue
                del at_start[mark]
            if mark in at_end and text.endswith(end, start, stop):
                at = text.rfind(begin, start, stop)
                if at > start:
                    last.append(text[at:stop])
                    start, stop = _bare(text, start, at)
                else:
                    del at_end[mark]
    return (text[start:stop], [*first, *reversed(last)]) if first or last else (text, [])


def _bare(text: str, start: int, stop: int) -> tuple[int, int]:
    """The span without the white space at its ends, looked at in pieces."""
    while start < stop and (piece := text[start : min(start + _PIECE, stop)]).lstrip() != piece:
        start += len(piece) - len(piece.lstrip())
    while start < stop and (piece := text[max(start, stop - _PIECE) : stop]).rstrip() != piece:
        stop -= len(piece) - len(piece.rstrip())
    return start, stop
