"""The texts inside a value, laid out side by side: read them, decide, put others in their places.

Private data hides in tool arguments, results and foreign parts as much as in words. A text inside an object is looked
at together with its name, since a name is what tells a password from a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tenuto.model.values import Json, JsonObject

# What a program put there for programs: a picture, a signature. Nobody typed it, and a mark would break it. Only all of
# a text can be that, and never words.
_OPAQUE: Final = re.compile(r"(?:data:[\w.+-]{1,60}/[\w.+-]{1,60};base64,)?[A-Za-z0-9+/_=-]{512,}", re.ASCII)
_LEAST_OPAQUE: Final = 512
_WORDS: Final = "text"
_LEAST_DIGITS: Final = 10**6
# Names that say nothing about what stands under them.
_NEUTRAL: Final = frozenset({"text", "content", "output", "value", "arguments"})
_PLAIN_NAME: Final = 15
# What programs find a message's part by; nobody's words.
_STRUCTURE: Final = frozenset({"type", "id", "call_id", "name", "role", "through_id", "made_by"})


class Slot(NamedTuple):
    """One text, and the name it stands under, which may be empty."""

    text: str
    name: str = ""


def slots(value: Json, name: str = "") -> Iterator[Slot]:
    """Every text in a JSON value, and every number long enough to be somebody's, in a fixed order."""
    if isinstance(value, str):
        if not _opaque(value):
            yield Slot(value, name)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not _plain(key):
                yield Slot(key)
            if key == _WORDS and isinstance(inner, str):
                yield Slot(inner)
            else:
                yield from slots(inner, "" if key in _NEUTRAL else key)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from slots(inner, name)
    elif _numeric(value):
        yield Slot(str(value), name)


def refilled(value: Json, texts: Iterator[str]) -> Json:
    """The same value with other texts in its slots, taken in the order of `slots`."""
    if isinstance(value, str):
        return value if _opaque(value) else next(texts)
    if isinstance(value, dict):
        filled: dict[str, Json] = {}
        for key, inner in value.items():
            name = key if _plain(key) else next(texts)
            # Two names with the same mark in them are still two names.
            words = key == _WORDS and isinstance(inner, str)
            told = next(texts) if words else refilled(inner, texts)
            filled[name if name not in filled else f"{name} ({len(filled) + 1})"] = told
        return filled
    if isinstance(value, list | tuple):
        return [refilled(inner, texts) for inner in value]
    if _numeric(value):
        text = next(texts)
        return value if text == str(value) else text
    return value


def part_slots(parts: Iterable[JsonObject]) -> Iterator[Slot]:
    """Every text in a message's parts, but for what programs find them by."""
    return (slot for part in parts for slot in slots(_body(part)))


def refilled_parts(parts: Iterable[JsonObject], texts: Iterator[str]) -> tuple[JsonObject, ...]:
    """The parts with other texts, taken in the order of `part_slots`."""
    return tuple([{**part, **refilled(_body(part), texts)} for part in parts])


def _body(part: JsonObject) -> JsonObject:
    return {name: value for name, value in part.items() if name not in _STRUCTURE}


def _opaque(text: str) -> bool:
    return len(text) >= _LEAST_OPAQUE and not text.isdigit() and _OPAQUE.fullmatch(text) is not None


def _plain(key: str) -> bool:
    """Whether a name is a programmer's word, too short to be anybody's secret."""
    return len(key) <= _PLAIN_NAME and key.isidentifier()


def _numeric(value: Json) -> bool:
    return type(value) is int and value >= _LEAST_DIGITS
