"""Messages of frameworks as our messages, and back unchanged.

The elements of a framework's message become parts: those that are text become text parts, which titles, search, private
data rules and summaries read; all others are kept as they are, with the pictures, sounds and files that they hold as
parts behind them. The rest of the message is kept in `extra`, under the
name of the framework. A message that another program wrote is text to the framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from tenuto.integrations.embedded_media import EmbeddedMedia
from tenuto.model import Draft, Role
from tenuto.model.message import text_part
from tenuto.model.values import JsonObject

# The other fields of a text element.
_MORE: Final = "more"


class FrameworkForm:
    """How a framework writes messages: where an element has its text or content, and which elements are text."""

    def __init__(
        self,
        name: str,
        text: str,
        is_text: Callable[[JsonObject], bool] = lambda element: True,
        *,
        media: EmbeddedMedia,
    ) -> None:
        self.name = name
        self._text = text
        self._is_text = is_text
        self._media = media

    def draft(
        self, role: Role, elements: Iterable[JsonObject], rest: JsonObject, *, message_id: str, sent_at: datetime
    ) -> Draft:
        """The message to store: its elements as parts, the rest as an extra field."""
        parts = [part for element in elements for part in self._parts(element)]
        return Draft(id=message_id, role=role, sent_at=sent_at, parts=tuple(parts), extra={self.name: rest})

    def rest(self, message: Draft) -> JsonObject | None:
        """The message without its elements; `None` if the framework did not write it."""
        rest = message.extra.get(self.name)
        return rest if isinstance(rest, dict) else None

    def elements(self, message: Draft) -> list[JsonObject]:
        """The elements of the message; of another program's message, its text."""
        if self.rest(message) is None:
            return [{self._text: message.text}] if message.text else []
        return self._media.join(message.parts, self._element)

    def _parts(self, element: JsonObject) -> list[JsonObject]:
        text = element.get(self._text)
        if not isinstance(text, str) or not self._is_text(element):
            emptied, *media = self._media.take_out(element)
            return [{"type": self.name, self.name: emptied}, *media]
        more = {name: value for name, value in element.items() if name != self._text}
        return [{**text_part(text), _MORE: more} if more else text_part(text)]

    def _element(self, part: JsonObject) -> JsonObject:
        if part["type"] != "text":
            element: JsonObject = part[self.name]
            return element
        return {self._text: part["text"], **part.get(_MORE, {})}


def without(message: Mapping[str, object], field: str) -> JsonObject:
    """The fields of a message but one."""
    return {name: value for name, value in message.items() if name != field}
