"""Base classes of values and views, and the checks of JSON, texts and ids that every store must accept."""

from __future__ import annotations

import math
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self, TypeAlias, TypeVar

import msgspec

from tenuto.errors import Invalid, InvalidJson, InvalidText

# JSON of any shape: items of other frameworks pass through unread.
Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Json]

MAX_DEPTH: Final = 64
MAX_ID_BYTES: Final = 16 * 1024
_INT64: Final = 2**63
_UINT64: Final = 2**64
_SHORT: Final = 256
_MINUTE: Final = timedelta(minutes=1)


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A frozen value; change it with `msgspec.structs.replace`.

    Subclasses repeat `kw_only`, which is not inherited, and `frozen`, which type checkers need beside it.

    The garbage collector ignores values: thousands live at once, and a frozen value cannot be part of a cycle. A value
    whose dictionaries other code may change, and so close a cycle, sets `gc=True`.
    """


_V = TypeVar("_V", bound=Value)


def replace_valid(value: _V, **fields: object) -> _V:
    """`msgspec.structs.replace` for fields that are valid already, as parts of other values: it checks none."""
    changed = copy(value)
    for name, field in fields.items():
        msgspec.structs.force_setattr(changed, name, field)
    return changed


class View(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The JSON form of a value for clients; its type is the schema in the OpenAPI document.

    Subclasses repeat `kw_only` and `frozen`, as those of `Value` do.
    """

    @classmethod
    def of(cls, value: Any) -> Self:
        """Take every field from the value's attribute of the same name; nested values become views likewise."""
        return msgspec.convert(value, cls, from_attributes=True)

    @classmethod
    def derive(cls, value: Any, **derived: Any) -> Self:
        """Take the fields from the value's attributes as they are, except for those that are `derived` from it."""
        fields = {name: derived[name] if name in derived else getattr(value, name) for name in cls.__struct_fields__}
        return cls(**fields)


def to_text(value: Json) -> str:
    """A tool's arguments or output as the model reads them: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def check_text(text: str, what: str) -> str:
    """Return `text` if every store accepts it.

    Raises:
        Invalid: it is no `str`.
        InvalidText: it contains a NUL character or a lone surrogate.
    """
    if not isinstance(text, str):
        raise Invalid(f"{what} must be a text (str), not {type(text).__name__}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise InvalidText(f"{what} holds a lone surrogate at position {exc.start}") from None
    if "\0" in text:
        raise InvalidText(f"{what} holds a NUL character at position {text.index(chr(0))}")
    return text


def make_storable(text: str) -> str:
    """The text without NUL characters and with a question mark for each lone surrogate."""
    return (text if text.isascii() else text.encode(errors="replace").decode()).replace("\0", "")


def check_id(value: str, what: str) -> str:
    """Return an id: not empty, storable text, at most 16 KiB long."""
    if type(value) is str and 0 < len(value) <= _SHORT and value.isascii() and "\0" not in value:
        return value  # Nearly every id of every turn.
    check_text(value, what)
    if not value:
        raise Invalid(f"{what} is empty")
    if len(value) > MAX_ID_BYTES // 4 and len(value.encode()) > MAX_ID_BYTES:
        raise Invalid(f"{what} is longer than {MAX_ID_BYTES} bytes")
    return value


def check_type(value: object, kind: type, what: str) -> None:
    """Check the type of an argument, for callers without type checks.

    Raises:
        Invalid: it is of another type.
    """
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise Invalid(f"{what} must be {article} {kind.__name__}, not {type(value).__name__}")


def check_int(value: object, low: int, high: int, what: str) -> None:
    """Check a whole number and its range.

    Raises:
        Invalid: it is no `int`, or out of range.
    """
    if type(value) is not int:
        raise Invalid(f"{what} must be a whole number (int), not {type(value).__name__}")
    if not low <= value <= high:
        raise Invalid(f"{what} is not between {low} and {high}")


def check_instant(value: object, what: str) -> None:
    """Check that every store can return a time: it has a time zone of whole minutes.

    Raises:
        Invalid: it is no time, or has no such time zone.
    """
    if type(value) is datetime and value.tzinfo is UTC:
        return  # Nearly every time of every turn.
    offset = value.utcoffset() if isinstance(value, datetime) else None
    if offset is None:
        raise Invalid(f"{what} must be a time (datetime) with a time zone")
    if offset % _MINUTE:
        raise Invalid(f"{what} has a time zone with seconds, which JSON cannot carry")


def check_json(value: Json, what: str, depth: int = MAX_DEPTH) -> Json:
    """Return `value` if every store returns it unchanged.

    Raises:
        InvalidJson: nested deeper than 64 levels, a number that JSON cannot represent, or another type.
        InvalidText: a text inside is not storable.
    """
    kind = type(value)
    if kind is str:
        check_text(value, what)
    elif kind is dict or kind is list or kind is tuple:
        _check_items(value, what, depth)
    elif kind is float:
        if not math.isfinite(value):
            raise InvalidJson(f"{what} holds a number that JSON cannot express")
    elif kind is int:
        if not -_INT64 <= value < _UINT64:
            raise InvalidJson(f"{what} holds an integer of more than 64 bits")
    elif value is not None and kind is not bool:
        raise InvalidJson(f"{what} holds a {kind.__name__}, which is not JSON")
    return value


def is_number(value: Json) -> bool:
    """Whether a value of JSON is a number; to Python, booleans are numbers, too."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def deep_copy(value: Json) -> Json:
    """A copy of JSON with its own containers, as a store would return it."""
    kind = type(value)
    if kind is dict:
        return {
            name: item if type(item) is str and item.isascii() else deep_copy(item) for name, item in value.items()
        }  # fmt: skip
    if kind is list or kind is tuple:
        return [deep_copy(item) for item in value]
    if kind is str and not value.isascii():
        # An encoded text keeps its UTF-8 form (for Chinese three bytes of five); a concatenated one has none.
        return value[:1] + value[1:]
    return value


def _check_items(value: Json, what: str, depth: int) -> None:
    if depth <= 0:
        raise InvalidJson(f"{what} is nested deeper than {MAX_DEPTH} levels")
    if type(value) is dict:
        for name in value:
            if type(name) is not str:
                raise InvalidJson(f"{what} has a key that is not a string")
            check_text(name, what)
        value = value.values()
    for item in value:
        if type(item) is str:
            check_text(item, what)
        else:
            check_json(item, what, depth - 1)
