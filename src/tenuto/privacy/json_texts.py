"""The texts in JSON values: what may hold private data, taken out with its name and replaced in its place.

One walk does both, so that a text comes back where it came from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

from tenuto.model.attachment import ATTACHMENT, FILE_ID, MEDIA_PARTS, PROVIDER, shows_attachment
from tenuto.model.opaque import LEAST_OPAQUE, is_opaque
from tenuto.model.provider_items import is_provider_item, mark_without_thought
from tenuto.model.reasoning import REDACTED, WITHHELD, is_reasoning
from tenuto.model.turn import TRACE_ID_START, is_trace_id
from tenuto.model.values import Json, JsonObject
from tenuto.privacy.placeholders import neutralize_text

_TEXT: Final = "text"
_LEAST_DIGITS: Final = 10**6
# Names that say nothing about their values.
_NEUTRAL: Final = frozenset({"text", "content", "output", "value", "arguments"})
# Names of timestamps. Those of our time begin with 1 and have this many digits, in seconds, milliseconds and so on;
# no Chinese mobile, card or identity number that begins with 1 has that length.
_INSTANT: Final = re.compile(r"(?:(?i:_at|_ts|_ms|_time|_on|timestamp|expires)|[a-z](?:At|Ts|Ms|Time|On))\Z")
_INSTANT_DIGITS: Final = frozenset({10, 13, 16, 19})
_PLAIN_NAME: Final = 15
# Structural fields of a message part, not user text.
_STRUCTURE: Final = frozenset({"type", "id", "call_id", "name", "role", "through_id", "made_by"})
# Those of a part that shows an attachment, or a file of a provider: its name is the user's.
_OF_ATTACHMENT: Final = frozenset({"type", ATTACHMENT, FILE_ID, PROVIDER, "media_type", "size"})

# Those of what a provider's own tool did.
_OF_ITEM: Final = _STRUCTURE | {"provider", "status", "container_id", "server_label", REDACTED}
# Those of a thought: what only its provider reads is no text of anybody's, and must stay as it is.
_OF_THOUGHT: Final = _STRUCTURE | {"provider", "model", "signature", "encrypted", REDACTED, WITHHELD}


Places: TypeAlias = "Mapping[str, Places]"
"""Where in an object this project stores values of its own, by name; an empty mapping ends a path."""
ANY: Final = "*"
"""Any name."""


class Slot(NamedTuple):
    """One text and its name, which may be empty; `internal` if this project wrote it."""

    text: str
    name: str = ""
    internal: bool = False


Replace: TypeAlias = Callable[[Slot], str]
"""Gives the text to put in the place of a slot's."""
_Walked = TypeVar("_Walked")


def collect_slots(walk: Callable[[Replace], _Walked]) -> tuple[_Walked, list[Slot]]:
    """What a walk such as `replace_texts` gives when it changes nothing, and the slots it visits, in its order."""
    slots: list[Slot] = []

    def note(slot: Slot) -> str:
        slots.append(slot)
        return slot.text

    return walk(note), slots


def in_order(texts: Iterable[str]) -> Replace:
    """Replaces slot after slot by these texts."""
    remaining = iter(texts)
    return lambda _: next(remaining)


def neutralizing(replace: Replace) -> Replace:
    """Replaces texts that a user typed: their placeholders must not be restored."""
    return lambda slot: replace(slot._replace(text=neutralize_text(slot.text)))


def slots(value: Json, name: str = "", internal: Places | None = None) -> list[Slot]:
    """Every text in a JSON value, and every number long enough to be private."""
    return collect_slots(lambda replace: replace_texts(value, replace, name, internal))[1]


def replace_texts(value: Json, replace: Replace, name: str = "", internal: Places | None = None) -> Json:
    """A JSON value with its texts replaced, and its numbers that are long enough to be private.

    `internal` reaches into objects alone: items of a list count as the user's.
    """
    if isinstance(value, str):
        return value if _is_unsearched(value) else replace(Slot(value, name, internal is not None and not internal))
    if isinstance(value, dict):
        return _replace_in_object(value, replace, name, internal)
    if isinstance(value, list | tuple):
        return [replace_texts(inner, replace, name) for inner in value]
    if not _may_be_private_number(value, name):
        return value
    digits = str(value)
    text = replace(Slot(digits, name))
    return value if text == digits else text


def replace_part_texts(parts: Iterable[JsonObject], replace: Replace) -> tuple[JsonObject, ...]:
    """A message's parts with their texts replaced, except in structural fields. A thought, or what a provider did, says
    if it changes: a signature fits it no longer, and the provider does not know it as its own."""
    return mark_without_thought([_replace_in_part(part, replace) for part in parts])


def _replace_in_part(part: JsonObject, replace: Replace) -> JsonObject:
    if is_reasoning(part):
        kept = _OF_THOUGHT
    elif is_provider_item(part):
        kept = _OF_ITEM
    else:
        return _replace_in_object(part, replace, "", None, _STRUCTURE)
    replaced = _replace_in_object(part, replace, "", None, kept)
    return replaced if replaced == part else {**replaced, REDACTED: True}


def _replace_in_object(
    value: JsonObject, replace: Replace, name: str, internal: Places | None, kept: frozenset[str] = frozenset()
) -> JsonObject:
    replaced: JsonObject = {}
    if shows_attachment(value) or (FILE_ID in value and value.get("type") in MEDIA_PARTS):
        kept = _OF_ATTACHMENT
    for key, inner in value.items():
        if key in kept:
            replaced[key] = inner
            continue
        new_key = key if _is_plain_key(key) else replace(Slot(key, internal=internal is not None and ANY in internal))
        if key == _TEXT and isinstance(inner, str):
            new = replace(Slot(inner))
        else:
            below = internal.get(key, internal.get(ANY)) if internal else None
            new = replace_texts(inner, replace, _slot_name(key, name), below)
        # Two keys may become the same placeholder: number the second.
        replaced[new_key if new_key not in replaced else f"{new_key} ({len(replaced) + 1})"] = new
    return replaced


def _is_unsearched(text: str) -> bool:
    """Whether a text is encoded data, or the id of a trace, which every answer carries in its metadata."""
    if text.startswith(TRACE_ID_START) and is_trace_id(text):
        return True
    return len(text) >= LEAST_OPAQUE and is_opaque(text)


def _is_plain_key(key: str) -> bool:
    """Whether a key is an identifier too short to be a private value."""
    return len(key) <= _PLAIN_NAME and key.isidentifier()


def _slot_name(key: str, outer: str) -> str:
    """The name of a value. An `id` says nothing without the name of its object: `orders id`."""
    if key == "id" and outer:
        return f"{outer} id"
    return "" if key in _NEUTRAL else key


def _may_be_private_number(value: Json, name: str) -> bool:
    """Whether a number is long enough to be private, and no timestamp."""
    if type(value) is not int or value < _LEAST_DIGITS:
        return False
    digits = str(value)
    instant = digits[0] == "1" and len(digits) in _INSTANT_DIGITS
    return not (instant and _INSTANT.search(name))
