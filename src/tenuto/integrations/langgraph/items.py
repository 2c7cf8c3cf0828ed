"""Items of LangGraph's store as values of tenuto's state: their keys, their JSON, and what filters accept."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from langgraph.store.base import InvalidNamespaceError, Item, MatchCondition, SearchItem
from numpy.typing import NDArray

from tenuto.errors import Invalid
from tenuto.model.opaque import decode_opaque, encode_opaque
from tenuto.model.values import JsonObject

Namespace: TypeAlias = tuple[str, ...]
# Labels of a namespace are joined by the first, the key follows the second: items of a namespace lie side by side, and
# before those of the namespaces inside it.
_LABEL: Final = "\x1f"
_KEY: Final = "\x1e"
_ESCAPED: Final = {"\x1b": "\x1b0", _KEY: "\x1b1", _LABEL: "\x1b2"}


class StoredItem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An item as it is stored. Times are microseconds; `ttl` is in minutes."""

    value: JsonObject
    created_at: int
    updated_at: int
    expires_at: int | None = None
    ttl: float | None = None
    vectors: dict[str, str] = {}

    def extend(self, now: datetime) -> None:
        """Let its time to live begin again."""
        if self.ttl is not None:
            self.expires_at = micros(now + timedelta(minutes=self.ttl))

    def to_item(self, namespace: Namespace, key: str) -> Item:
        """The item that a graph gets."""
        return Item(value=self.value, key=key, namespace=namespace, **self._times())

    def to_search_item(self, namespace: Namespace, key: str, score: float | None) -> SearchItem:
        """The item as the result of a search."""
        return SearchItem(namespace=namespace, key=key, value=self.value, score=score, **self._times())

    def _times(self) -> dict[str, Any]:
        return {"created_at": _instant(self.created_at), "updated_at": _instant(self.updated_at)}


def is_expired(value: JsonObject, now: int) -> bool:
    """Whether the time to live of a stored item is over."""
    expires_at = value.get("expires_at")
    return expires_at is not None and expires_at <= now


def micros(instant: datetime) -> int:
    """Microseconds since 1970."""
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _instant(since: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=since)


def state_key(namespace: Namespace, key: str) -> str:
    """The key of an item's state."""
    return f"{namespace_key(namespace)}{_KEY}{_escape(key)}"


def namespace_key(namespace: Namespace) -> str:
    """What the keys of a namespace's items begin with."""
    return _LABEL.join(map(_escape, namespace))


def is_within(key: str, prefix: str) -> bool:
    """Whether a key belongs to the namespace of this key, or to one inside it."""
    return not prefix or (key.startswith(prefix) and key[len(prefix)] in (_KEY, _LABEL))


def read_key(key: str) -> tuple[Namespace, str]:
    """The namespace and the key of an item."""
    labels, _, name = key.partition(_KEY)
    return tuple(map(_unescape, labels.split(_LABEL))), _unescape(name)


def _escape(text: str) -> str:
    return "".join(_ESCAPED.get(letter, letter) for letter in text) if not text.isprintable() else text


def _unescape(text: str) -> str:
    for letter in (_LABEL, _KEY, "\x1b"):
        text = text.replace(_ESCAPED[letter], letter)
    return text


def encode_vector(vector: Sequence[float]) -> str:
    """A vector as opaque text, which the privacy policy does not search."""
    return encode_opaque(np.asarray(vector, dtype=np.float32).tobytes())


def decode_vector(text: str) -> NDArray[np.float32]:
    """A vector from its text."""
    return np.frombuffer(decode_opaque(text), dtype=np.float32)


def best_scores(query: Sequence[float], items: Sequence[Mapping[str, str]]) -> list[float | None]:
    """How alike each item is to a query, by the nearest of its vectors; `None` without any."""
    owners = [place for place, vectors in enumerate(items) for _ in vectors]
    if not owners:
        return [None] * len(items)
    rows = np.stack([decode_vector(text) for vectors in items for text in vectors.values()])
    unit = np.asarray(query, dtype=np.float32)
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(unit)
    likeness = np.divide(rows @ unit, norms, out=np.zeros(len(rows), dtype=np.float32), where=norms != 0)
    best: list[float | None] = [None] * len(items)
    for place, score in zip(owners, likeness.tolist(), strict=True):
        known = best[place]
        best[place] = score if known is None else max(known, score)
    return best


_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def accepts(value: Any, wanted: Any) -> bool:
    """Whether a filter accepts a value: operators (`$eq`, `$ne`, `$gt` …), objects by their named fields, or equality.

    Raises:
        Invalid: there is no such operator.
    """
    if isinstance(wanted, dict):
        if any(name.startswith("$") for name in wanted):
            return all(_compare(name, value, bound) for name, bound in wanted.items())
        return isinstance(value, dict) and all(accepts(value.get(name), inner) for name, inner in wanted.items())
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(accepts, value, wanted))
    return bool(value == wanted)


def _compare(name: str, value: Any, bound: Any) -> bool:
    if name in ("$eq", "$ne"):
        return bool(value == bound) is (name == "$eq")
    if name not in _COMPARISONS:
        raise Invalid("a filter has an unknown operator; there are $eq, $ne, $gt, $gte, $lt and $lte")
    try:
        return _COMPARISONS[name](value, bound)
    except TypeError:
        return False  # A text is neither above nor below a number.


def field_of(value: Mapping[str, Any], name: str) -> Any:
    """A field of an item, or of an object inside it by a path with dots; `None` without it."""
    if name in value:
        return value[name]
    outer, dot, inner = name.partition(".")
    within = value.get(outer)
    return field_of(within, inner) if dot and isinstance(within, dict) else None


def check_namespace(namespace: Sequence[Any]) -> None:
    """Refuse labels that LangGraph's stores refuse, so that items can move to another one.

    Raises:
        InvalidNamespaceError: a label is empty, has a dot, or is not a text.
    """
    for label in namespace:
        if not isinstance(label, str) or not label or "." in label:
            raise InvalidNamespaceError("a label of a namespace is empty, has a dot, or is not a text")


def matches(condition: MatchCondition, namespace: Namespace) -> bool:
    """Whether a namespace begins or ends as the condition says; `*` is any label."""
    path = condition.path
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))
