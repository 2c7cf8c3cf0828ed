"""Cutting what is too long, visibly and between characters as people see them.

A cut text keeps its beginning and its end, with a mark between them that says how much is missing. No cut goes through
a grapheme cluster (a family emoji, a flag, a letter with its accents).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tenuto.context.tokens import TokenCounter, to_text
from tenuto.context.wording import language_of, wording
from tenuto.model.graphemes import boundary_after, boundary_before
from tenuto.model.values import JsonObject

Measure = Callable[[str], int]

_HEAD_SHARE: Final = 0.7
_TRIES: Final = 12


def truncate_text(text: str, limit: int, measure: Measure, size: int | None = None) -> str:
    """The text within `limit` as `measure` counts it (tokens, or characters), marked where something is missing.

    Where not even the mark has room the answer is an ellipsis, or nothing. `size` is the text's measure, if known.
    """
    whole = measure(text) if size is None else size
    if whole <= limit:
        return text
    mark = _omission_note(text, whole, measure)
    share = max(0, limit - measure(mark)) / whole
    for _ in range(_TRIES):
        shorter = _head_and_tail(text, share, mark)
        used = measure(shorter)
        if used <= limit and len(shorter) < len(text):
            return shorter
        share *= min(0.9, limit / used)
    return next((short for short in (mark, "…") if measure(short) <= limit and len(short) < len(text)), "")


def _omission_note(text: str, size: int, measure: Measure) -> str:
    words = wording(language_of(text))
    return words.cut.format(size=size, unit=words.characters if measure is len else words.tokens)


def level(sizes: Sequence[int], limit: int) -> int:
    """The greatest height at which all sizes, cut down to it, together stay within the limit."""
    left = limit
    for done, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - done)
        if size > share:
            return max(0, share)
        left -= size
    return max(sizes, default=0)


def truncate_parts(parts: Sequence[JsonObject], limit: int, counter: TokenCounter) -> tuple[JsonObject, ...]:
    """A message's parts within so many tokens, the longest cut first. Tool calls and results stay pairs."""
    sizes = [counter.part(part) for part in parts]
    height = level(sizes, limit)
    return tuple(
        part if size <= height else _truncate_part(part, height, counter.part, size)
        for part, size in zip(parts, sizes, strict=True)
    )


def truncate_characters(parts: Sequence[JsonObject], limit: int) -> tuple[JsonObject, ...]:
    """A message's texts within so many characters; tool parts are not counted as talk."""
    sizes = [len(part["text"]) if part["type"] == "text" else 0 for part in parts]
    height = level(sizes, limit)
    return tuple(
        part if size <= height else {**part, "text": truncate_text(part["text"], height, len)}
        for part, size in zip(parts, sizes, strict=True)
    )


def _truncate_part(part: JsonObject, limit: int, measure: Callable[[JsonObject], int], size: int) -> JsonObject:
    return _with_body(part, truncate_text(_part_body(part), limit, lambda text: measure(_with_body(part, text)), size))


def _with_body(part: JsonObject, body: str) -> JsonObject:
    """The part with another body."""
    match part["type"]:
        case "text":
            return {**part, "text": body}
        case "tool_call":
            # Arguments stay a JSON object, which providers insist on.
            return {**part, "arguments": {"cut": body} if body else {}}
        case _:
            return {**part, "output": body}


def _part_body(part: JsonObject) -> str:
    match part["type"]:
        case "text":
            text: str = part["text"]
            return text
        case "tool_call":
            return to_text(part.get("arguments"))
        case "tool_result":
            return to_text(part.get("output"))
        case _:
            return ""


def _head_and_tail(text: str, share: float, mark: str) -> str:
    kept = int(len(text) * share)
    head = boundary_before(text, int(kept * _HEAD_SHARE))
    tail = boundary_after(text, len(text) - (kept - int(kept * _HEAD_SHARE)))
    return f"{text[:head]}{mark}{text[tail:]}"
