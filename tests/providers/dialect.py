"""What the three dialects share: a request that was accepted, what a provider remembers, and what a dialect does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tests.providers.refusals import Refused
from tests.providers.script import Answer, Failure, Tokens

_KEY: Final = b"what a scripted provider signs with"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A request that was accepted: `parts` are what the model reads, in the order in which a cache compares them.

    `breakpoints` are numbers of parts at whose end the client asks for a cache entry. `body` is the dialect's own.
    `own_tools` are the types of tools that the provider runs.
    """

    model: str
    stream: bool
    parts: tuple[str, ...]
    tools: frozenset[str]
    reasons: bool
    body: Any
    own_tools: tuple[str, ...] = ()
    breakpoints: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """All that the model reads."""
        return "\n".join(self.parts)

    def text_until(self, parts: int) -> str:
        """What the model reads first."""
        return "\n".join(self.parts[:parts])


@dataclass
class Ledger:
    """What a provider remembers: files, stored responses, and the reasoning behind the calls that it made.

    `reasoning_of_item` is that behind what its own tools did, each by its id.
    """

    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    unreachable: set[str] = field(default_factory=set)
    reasoning_of_call: dict[str, str] = field(default_factory=dict)
    reasoning_of_item: dict[str, str] = field(default_factory=dict)
    thoughts_of_call: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    responses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _numbers: Counter[str] = field(default_factory=Counter)

    def led_to(self, reasoning_id: str) -> str | None:
        """The first thing that a tool of the provider's own did behind this reasoning."""
        return next((item for item, behind in self.reasoning_of_item.items() if behind == reasoning_id), None)

    def next_id(self, prefix: str) -> str:
        """An id that was never given before."""
        self._numbers[prefix] += 1
        return prefix + hashlib.sha256(f"{prefix}{self._numbers[prefix]}".encode()).hexdigest()[:24]


def sign(*texts: str) -> str:
    """An opaque text that holds for these texts alone."""
    return base64.b64encode(hmac.digest(_KEY, json.dumps(texts).encode(), "sha256")).decode()


def content_of(raw: bytes, complaint: str) -> dict[str, Any]:
    """The body as a JSON object.

    Raises:
        Refused: it is none, which these words say.
    """
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise Refused(complaint)
    return body


class Dialect(Protocol):
    """A protocol of model providers."""

    def check_key(self, headers: Mapping[str, str], key: str) -> None:
        """Let a client in.

        Raises:
            Refused: it has another key.
        """
        ...

    def read(self, raw: bytes, headers: Mapping[str, str]) -> Prompt:
        """Take a request.

        Raises:
            Refused: the real service would refuse it as well.
        """
        ...

    def cached_tokens(self, prompt: Prompt, equal: int, written: Mapping[str, int]) -> tuple[int, int]:
        """How many tokens come from the cache, and how many are written to it.

        `equal` is how many characters another prompt began with alike, `written` are the cache's entries: a digest of
        the text, and its length.
        """
        ...

    def whole(self, prompt: Prompt, answer: Answer, tokens: Tokens) -> dict[str, Any]:
        """The answer in one."""
        ...

    def stream(self, prompt: Prompt, answer: Answer, tokens: Tokens) -> Iterator[bytes]:
        """The answer as server-sent events."""
        ...

    def error(self, refused: Refused) -> dict[str, Any]:
        """The body of an error."""
        ...

    def fail(self, failure: Failure) -> Refused:
        """A scripted failure with the words that it lacks."""
        ...

    def error_event(self, refused: Refused) -> bytes:
        """An error that ends a stream."""
        ...

    def headers(self) -> dict[str, str]:
        """What every answer carries."""
        ...
