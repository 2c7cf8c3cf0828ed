"""Content that frameworks have inside their messages, on its way beside them: of each, a part of its own follows."""

from __future__ import annotations

import binascii
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from tenuto.errors import Invalid
from tenuto.model.attachment import MEDIA_PARTS
from tenuto.model.media_types import check_content_type, media_type_of
from tenuto.model.values import Json, JsonObject
from tenuto.sessions.media_parts import DATA, shown_type

_PLACE: Final = "place"
"""The key of a part for the keys and numbers under which an element had its content."""
_URL_SAFE: Final = str.maketrans("+/", "-_")
_STANDARD: Final = str.maketrans("-_", "+/")


class EmbeddedMedia:
    """Where a framework has content: the names of fields with base64 or a data URL, each with that of its media type.

    Frameworks that write bytes by pydantic have the base64 of addresses, which is `url_safe`.
    """

    def __init__(self, *fields: tuple[str, str], url_safe: bool = False) -> None:
        self._fields = fields
        self._url_safe = url_safe

    def take_out(self, element: JsonObject) -> list[JsonObject]:
        """The element without its contents, and behind it a part for each; what is of no known type stays inside."""
        parts: list[JsonObject] = []
        return [self._emptied(element, (), parts), *parts]

    def join(self, parts: Iterable[JsonObject], element_of: Callable[[JsonObject], JsonObject]) -> list[JsonObject]:
        """The elements of parts with their contents where they were; of one that was removed, its place is empty."""
        elements: list[JsonObject] = []
        for part in parts:
            if part["type"] not in MEDIA_PARTS or not isinstance(place := part.get(_PLACE), list):
                elements.append(element_of(part))
            elif isinstance(data := part.get(DATA), str):
                encoded = data.translate(_URL_SAFE) if self._url_safe else data
                elements[-1] = _filled(elements[-1], place, encoded)
        return elements

    def _emptied(self, value: Any, place: tuple[str | int, ...], parts: list[JsonObject]) -> Any:
        if isinstance(value, list):
            return [self._emptied(one, (*place, number), parts) for number, one in enumerate(value)]
        if not isinstance(value, dict):
            return value
        emptied = {name: self._emptied(one, (*place, name), parts) for name, one in value.items()}
        for name, type_name in self._fields:
            if isinstance(text := value.get(name), str) and type_name in value:
                head, data = _split(text)
                if self._is_plain(data) and (part := _part(data, value[type_name])) is not None:
                    parts.append({**part, _PLACE: [*place, name]})
                    emptied[name] = head
        return emptied

    def _is_plain(self, data: str) -> bool:
        """Whether the base64 is in the alphabet that is written again."""
        return not any(mark in data for mark in ("+/" if self._url_safe else "-_"))


def _split(text: str) -> tuple[str, str]:
    """The head of a data URL, and the base64 behind it."""
    head, comma, data = text.partition(",") if text.startswith("data:") else ("", "", text)
    return head + comma, data


def _part(encoded: str, media_type: Json) -> JsonObject | None:
    encoded = encoded.translate(_STANDARD)
    try:
        data = binascii.a2b_base64(encoded, strict_mode=True)
        named = media_type if isinstance(media_type, str) and "/" in media_type else media_type_of(data, "")
        content_type = check_content_type(data, named.lower()) if data else ""
    except (ValueError, Invalid):
        return None
    # Another spelling of the same bytes would not come back as it was.
    if not data or b64encode(data).decode() != encoded:
        return None
    return {"type": shown_type(content_type), DATA: encoded, "media_type": content_type}


def _filled(value: Any, place: Sequence[str | int], data: str) -> Any:
    """A copy along the place, with data behind what is there."""
    if not place:
        return value + data
    step = place[0]
    changed = list(value) if isinstance(value, list) else dict(value)
    changed[step] = _filled(value[step], place[1:], data)  # type: ignore[index]  # the place fits the value
    return changed
