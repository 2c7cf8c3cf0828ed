"""What an app keeps of a chat: its lines, as a person reads them."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

# A red dot of one pixel.
PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
PICTURE: Final = base64.b64encode(PNG).decode()


class Kind(StrEnum):
    """What a line is."""

    QUESTION = "user"
    ANSWER = "assistant"
    CALL = "call"
    OUTPUT = "output"


@dataclass(frozen=True, kw_only=True)
class Line:
    """A question, an answer, a call of a tool or its output.

    `id` is that of the message or of the call; `before` are texts of the app's own in the same message, which it does
    not show, and neither does it show a `hidden` question, which is its own. `picture` says that there is one.
    """

    kind: Kind
    text: str
    id: str = ""
    tool: str = ""
    before: tuple[str, ...] = ()
    picture: bool = False
    hidden: bool = False


@dataclass
class Answer:
    """What came of one request."""

    text: str = ""
    calls: list[Line] = field(default_factory=list)
    id: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    whole: bool = False

    @property
    def lines(self) -> list[Line]:
        """The lines that a chat has more with it."""
        said = [Line(kind=Kind.ANSWER, text=self.text, id=self.id)] if self.text else []
        return [*said, *self.calls]


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status
        self.body = body
