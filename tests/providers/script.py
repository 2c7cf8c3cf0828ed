"""What a scripted provider answers, in words that no dialect owns; each dialect renders them as its own.

provider.plays(
    Answer(Reasoning("Let me look."), ToolCall("search", {"text": "phones"})),
    Answer(Text("There are ", "three.")),
    Failure(429, retry_after=2),
)
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias


class Ending(Enum):
    """Why an answer ends; a tool call, a refusal and an error end it by themselves."""

    DONE = "done"
    LENGTH = "length"
    FILTERED = "filtered"


class Hold:
    """Keeps a stream waiting after its first delta, until the test releases it."""

    def __init__(self) -> None:
        self._released = threading.Event()
        self._reached = threading.Event()

    def release(self) -> None:
        """Let the stream go on."""
        self._released.set()

    def wait(self) -> None:
        """Wait for the release; a test that forgets it fails by its own time limit."""
        self._reached.set()
        self._released.wait(50)

    def wait_until_reached(self) -> bool:
        """Wait for a stream to wait here."""
        return self._reached.wait(50)


@dataclass(frozen=True)
class Text:
    """Words; each piece is one delta of a stream. `cites` are what they cite, in the dialect that has it."""

    pieces: tuple[str, ...]
    cites: tuple[dict[str, Any], ...] = ()

    def __init__(self, *pieces: str, cites: Sequence[dict[str, Any]] = ()) -> None:
        object.__setattr__(self, "pieces", pieces)
        object.__setattr__(self, "cites", tuple(cites))

    @property
    def whole(self) -> str:
        """The words in one."""
        return "".join(self.pieces)


@dataclass(frozen=True, init=False)
class Refusal(Text):
    """The model declines, in these words."""


@dataclass(frozen=True)
class Reasoning(Text):
    """Thoughts, shown only where the dialect has them and the request turned them on; they cost tokens anyway."""

    redacted: bool = False

    def __init__(self, *pieces: str, redacted: bool = False) -> None:
        super().__init__(*pieces)
        object.__setattr__(self, "redacted", redacted)


@dataclass(frozen=True)
class ToolCall:
    """A call of a function that the request offers; arguments given as text go as they are written."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None

    @property
    def written(self) -> str:
        """The arguments as JSON text."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class ProviderItem:
    """What a tool of the provider did, as an item of OpenAI's responses: its type, and its fields besides the id."""

    type: str
    fields: Mapping[str, Any] = field(default_factory=dict)


Part: TypeAlias = Text | Refusal | Reasoning | ToolCall | ProviderItem


@dataclass(frozen=True)
class Tokens:
    """What a usage says, in place of the provider's own count; `input` includes what was cached and written."""

    input: int = 20
    output: int = 10
    cached: int = 0
    written: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class Failure:
    """An error in place of an answer, in the dialect's own shape; without words of its own it has the usual ones."""

    status: int
    message: str | None = None
    code: str | None = None
    retry_after: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_headers(self) -> dict[str, str]:
        """The headers to send."""
        waiting = {} if self.retry_after is None else {"retry-after": f"{self.retry_after:g}"}
        return {**waiting, **self.headers}


@dataclass(frozen=True)
class Answer:
    """One answer of a model.

    `fails` is the error that a stream ends with after its parts; a whole answer is that error alone. `breaks_off` drops
    the connection before the stream's end; `ends_early` closes it there in order, as a proxy does.
    """

    parts: tuple[Part, ...]
    ending: Ending = Ending.DONE
    tokens: Tokens | None = None
    hold: Hold | None = None
    fails: Failure | None = None
    breaks_off: bool = False
    ends_early: bool = False

    def __init__(
        self,
        *parts: Part,
        ending: Ending = Ending.DONE,
        tokens: Tokens | None = None,
        hold: Hold | None = None,
        fails: Failure | None = None,
        breaks_off: bool = False,
        ends_early: bool = False,
    ) -> None:
        given = {"ending": ending, "tokens": tokens, "hold": hold, "fails": fails, "breaks_off": breaks_off}
        for name, value in {"parts": parts, **given, "ends_early": ends_early}.items():
            object.__setattr__(self, name, value)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls among the parts."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def items(self) -> tuple[ProviderItem, ...]:
        """What the provider's own tools did, among the parts."""
        return tuple(part for part in self.parts if isinstance(part, ProviderItem))

    @property
    def refusal(self) -> Refusal | None:
        """The refusal, if it is one."""
        return next((part for part in self.parts if isinstance(part, Refusal)), None)

    @property
    def characters(self) -> int:
        """How long it is, thoughts left out."""
        said = [part for part in self.parts if not isinstance(part, ProviderItem)]
        texts = [part.written if isinstance(part, ToolCall) else part.whole for part in said]
        return sum(map(len, texts)) - self.thought_characters

    @property
    def thought_characters(self) -> int:
        """How long the thoughts are."""
        return sum(len(part.whole) for part in self.parts if isinstance(part, Reasoning))


Turn: TypeAlias = Answer | Failure
