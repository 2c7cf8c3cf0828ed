"""The texts inside a value, laid out side by side: read them, decide, put others in their places.

Private data hides in tool arguments, results and foreign parts as much as in words. A text inside an object is looked
at together with its name, since a name is what tells a password from a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from tenuto.model.values import Json, JsonObject

# What a program put there for programs: a picture, a signature. Nobody typed it, and a mark would break it. Only all of
# a text can be that, and never words.
_OPAQUE: Final = re.compile(r"(?:data:[\w.+-]{1,60}/[\w.+-]{1,60};base64,)?[A-Za-z0-9+/_=-]{512,}", re.ASCII)
_LEAST_OPAQUE: Final = 512
_WORDS: Final = "text"
_LEAST_DIGITS: Final = 10**6
# Names that say nothing about what stands under them.
_NEUTRAL: Final = frozenset({"text", "content", "output", "value", "arguments"})
# Under such names stand instants. Those of our time begin with 1, in seconds, in thousandths and so on, and have these
# many digits, as no mobile phone of China, no card and no identity number has that begins so.
_INSTANT: Final = re.compile(r"(?:(?i:_at|_ts|_ms|_time|_on|timestamp|expires)|[a-z](?:At|Ts|Ms|Time|On))\Z")
_INSTANT_DIGITS: Final = frozenset({10, 13, 16, 19})
_PLAIN_NAME: Final = 15
# What programs find a message's part by; nobody's words.
_STRUCTURE: Final = frozenset({"type", "id", "call_id", "name", "role", "through_id", "made_by"})


Places: TypeAlias = "Mapping[str, Places]"
"""By name, where in an object the house notes things for itself: in a text at a place that leads no further."""
ANY: Final = "*"
"""Whatever the name is."""


class Slot(NamedTuple):
    """One text, and the name it stands under, which may be empty; `house` where it is the house's own note."""

    text: str
    name: str = ""
    house: bool = False


def slots(value: Json, name: str = "", house: Places | None = None) -> Iterator[Slot]:
    """Every text in a JSON value, and every number long enough to be somebody's, in a fixed order."""
    if isinstance(value, str):
        if not _is_opaque(value):
            yield Slot(value, name, house is not None and not house)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not _is_plain_key(key):
                yield Slot(key, house=house is not None and ANY in house)
            if key == _WORDS and isinstance(inner, str):
                yield Slot(inner)
            else:
                yield from slots(inner, _slot_name(key), house.get(key, house.get(ANY)) if house else None)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from slots(inner, name)
    elif _may_be_private_number(value, name):
        yield Slot(str(value), name)


def fill_slots(value: Json, texts: Iterator[str], name: str = "") -> Json:
    """The same value with other texts in its slots, taken in the order of `slots`."""
    if isinstance(value, str):
        return value if _is_opaque(value) else next(texts)
    if isinstance(value, dict):
        filled: dict[str, Json] = {}
        for key, inner in value.items():
            shown = key if _is_plain_key(key) else next(texts)
            words = key == _WORDS and isinstance(inner, str)
            told = next(texts) if words else fill_slots(inner, texts, _slot_name(key))
            # Two names with the same mark in them are still two names.
            filled[shown if shown not in filled else f"{shown} ({len(filled) + 1})"] = told
        return filled
    if isinstance(value, list | tuple):
        return [fill_slots(inner, texts, name) for inner in value]
    if _may_be_private_number(value, name):
        text = next(texts)
        return value if text == str(value) else text
    return value


def part_slots(parts: Iterable[JsonObject]) -> Iterator[Slot]:
    """Every text in a message's parts, but for what programs find them by."""
    return (slot for part in parts for slot in slots(_content_fields(part)))


def fill_part_slots(parts: Iterable[JsonObject], texts: Iterator[str]) -> tuple[JsonObject, ...]:
    """The parts with other texts, taken in the order of `part_slots`."""
    return tuple([{**part, **fill_slots(_content_fields(part), texts)} for part in parts])


def _content_fields(part: JsonObject) -> JsonObject:
    return {name: value for name, value in part.items() if name not in _STRUCTURE}


def _is_opaque(text: str) -> bool:
    return len(text) >= _LEAST_OPAQUE and not text.isdigit() and _OPAQUE.fullmatch(text) is not None


def _is_plain_key(key: str) -> bool:
    """Whether a name is a programmer's word, too short to be anybody's secret."""
    return len(key) <= _PLAIN_NAME and key.isidentifier()


def _slot_name(key: str) -> str:
    return "" if key in _NEUTRAL else key


def _may_be_private_number(value: Json, name: str) -> bool:
    """Whether a number may be somebody's."""
    if type(value) is not int or value < _LEAST_DIGITS:
        return False
    digits = str(value)
    instant = digits[0] == "1" and len(digits) in _INSTANT_DIGITS
    return not (instant and _INSTANT.search(name))
