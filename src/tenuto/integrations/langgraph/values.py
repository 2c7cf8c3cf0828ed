"""Values of channels as the adapter holds them: private copies that no graph can change, and strict comparison."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final

from langchain_core.messages import BaseMessage

_ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})
_set: Final = object.__setattr__


_messages: Final[dict[type, bool]] = {}


def _is_message(kind: type) -> bool:
    # The type of messages is an abstract class, of which `isinstance` takes longer than the rest of a comparison.
    is_message_class = _messages.get(kind)
    if is_message_class is None:
        is_message_class = _messages[kind] = issubclass(kind, BaseMessage)
    return is_message_class


def copy_value(value: Any) -> Any:
    """A copy that shares nothing that can be changed.

    For messages and plain data many times as fast as decoding them again, which validates each message.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is list:
        return [_copy_message(item) if _messages.get(type(item)) else copy_value(item) for item in value]
    if kind is dict:
        return _copy_fields(value)
    return _copy_message(value) if _is_message(kind) else deepcopy(value)


def _copy_fields(fields: dict[Any, Any]) -> dict[Any, Any]:
    copy = fields.copy()
    for name, item in fields.items():
        kind = type(item)
        if kind not in _ATOMS:
            # Most containers of a message are empty.
            copy[name] = copy_value(item) if item or (kind is not dict and kind is not list) else kind()
    return copy


def _copy_message(message: BaseMessage) -> BaseMessage:
    copy = object.__new__(type(message))
    # Pydantic's models define `__setattr__`; these four are all that an instance consists of.
    _set(copy, "__dict__", _copy_fields(message.__dict__))
    _set(copy, "__pydantic_fields_set__", message.__pydantic_fields_set__.copy())
    _set(copy, "__pydantic_extra__", copy_value(message.__pydantic_extra__))
    _set(copy, "__pydantic_private__", copy_value(message.__pydantic_private__))
    return copy


def is_same(one: Any, other: Any) -> bool:
    """Whether two values would be stored alike: of the same types all the way down (1 is not True), and equal.

    Values of other types than messages and plain data are never the same, which is safe: they are stored again.
    """
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in _ATOMS:
        return bool(one == other)
    if kind is list:
        return len(one) == len(other) and all(map(is_same, one, other))
    if kind is dict:
        return list(one) == list(other) and all(map(is_same, one.values(), other.values()))
    return _is_message(kind) and _is_same_message(one, other)


def _is_same_message(one: BaseMessage, other: BaseMessage) -> bool:
    fields = one.__dict__
    if fields != other.__dict__:
        return False
    # Equal texts and empty values are the same; only numbers can be equal and of another type.
    for item in fields.values():
        if item and type(item) is not str:
            if not is_same(fields, other.__dict__):
                return False
            break
    extra, others = one.__pydantic_extra__, other.__pydantic_extra__
    return extra == others and (not extra or is_same(extra, others))


def extends(longer: Sequence[Any], base: Sequence[Any]) -> bool:
    """Whether a list only adds to another one."""
    if len(longer) < len(base):
        return False
    for one, other in zip(base, longer, strict=False):
        # Messages first, without a call in between: each put of a run looks at all of them.
        same_class = type(one) is type(other) and _messages.get(type(one))
        if not (_is_same_message(one, other) if same_class else is_same(one, other)):
            return False
    return True


def add_items(current: Sequence[Any], length: int, items: Sequence[Any]) -> list[Any]:
    """A list with the items that a writer added to its first `length` items.

    If other writers have added items meanwhile, both stay; one with the id of an item that is there replaces it, as
    LangGraph's own reducer of messages does.
    """
    result = [*current]
    if len(current) == length:
        return [*result, *items]
    places = {name: place for place, item in enumerate(result) if (name := _id_of(item)) is not None}
    for item in items:
        place = places.get(_id_of(item) or "")
        if place is None:
            result.append(item)
        else:
            result[place] = item
    return result


def _id_of(item: Any) -> str | None:
    name = item.get("id") if type(item) is dict else getattr(item, "id", None)
    return name if isinstance(name, str) else None
