"""What a model reads, as one text: the same parts give the same text, so equal beginnings can be counted."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

# Base64 and the like: a picture is one thing to a cache, not a long text.
_LONG_WORD: Final = 1024
_BYTES_A_TOKEN: Final = 4


def canonical(value: Any) -> str:
    """A value as JSON in one form; long content without a blank is replaced by its digest."""
    return json.dumps(_short(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _short(value: Any) -> Any:
    match value:
        case dict():
            return {key: _short(item) for key, item in value.items() if key != "cache_control"}
        case list():
            return [_short(item) for item in value]
        case str() if len(value) > _LONG_WORD and not any(map(str.isspace, value)):
            return hashlib.sha256(value.encode()).hexdigest()
    return value


def digest(text: str) -> str:
    """A short name for a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def tokens(characters: int) -> int:
    """How many tokens a text of this length costs here, by the usual rule of thumb."""
    return (characters + _BYTES_A_TOKEN - 1) // _BYTES_A_TOKEN


def equal_beginning(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
