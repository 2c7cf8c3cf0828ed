"""Models as Anthropic's API lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tenuto.errors import Invalid
from tenuto.model.values import JsonObject

_MOST: Final = 1000
_USUAL: Final = 20
# When a model was made is not known; the API has this time for that.
_UNKNOWN_TIME: Final = "1970-01-01T00:00:00Z"


def model_info(name: str) -> JsonObject:
    """A model, an alias or an assistant."""
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": _UNKNOWN_TIME,
        "lifecycle": "active",
        "deprecated_at": None,
        "retires_at": None,
    }


def model_page(names: Sequence[str], query: Mapping[str, str]) -> JsonObject:
    """The models that a query asks for: at most `limit`, after or before one.

    Raises:
        Invalid: the query is not one of the API.
    """
    limit, after, before = query.get("limit", str(_USUAL)), query.get("after_id"), query.get("before_id")
    if not (limit.isdecimal() and len(limit) < 5 and 1 <= int(limit) <= _MOST):
        raise Invalid(f"limit: must be from 1 to {_MOST}")
    for field, name in (("after_id", after), ("before_id", before)):
        if name is not None and name not in names:
            raise Invalid(f"{field}: there is no such model")
    left = names[names.index(after) + 1 :] if after is not None else names
    left = left[: left.index(before)] if before is not None and before in left else left
    page = left[-int(limit) :] if before is not None else left[: int(limit)]
    ends = {"first_id": page[0], "last_id": page[-1]} if page else {"first_id": None, "last_id": None}
    return {"data": [model_info(name) for name in page], "has_more": len(page) < len(left), **ends}
