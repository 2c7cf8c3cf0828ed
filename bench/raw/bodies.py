"""Messages as the raw contenders keep them: JSON with the same fields as ours, or plain bytes of that size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from bench.workload import Turn


class Bodies(Protocol):
    """How words become bytes and bytes become what the caller gets."""

    def pair(self, turn: Turn) -> tuple[bytes, bytes]:
        """Question and answer."""
        ...

    def read(self, bodies: Iterable[bytes]) -> int:
        """Make of stored bytes what a caller would want, and count."""
        ...


class JsonBodies:
    """JSON with the fields of our messages, read back as dictionaries."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode

    def pair(self, turn: Turn) -> tuple[bytes, bytes]:
        now = datetime.now(UTC)
        return (
            self._encode(_body(f"q-{turn.number}", "user", now, turn.user)),
            self._encode(_body(f"a-{turn.number}", "assistant", now, turn.assistant)),
        )

    def read(self, bodies: Iterable[bytes]) -> int:
        return len([self._decode(body) for body in bodies])


def _body(name: str, role: str, now: datetime, text: str) -> dict[str, Any]:
    return {"id": name, "role": role, "sent_at": now, "parts": [{"type": "text", "text": text}]}


class PlainBodies:
    """The same JSON, made once for each text and never looked into."""

    def __init__(self) -> None:
        self._json = JsonBodies()
        self._known: dict[tuple[str, str], tuple[bytes, bytes]] = {}

    def pair(self, turn: Turn) -> tuple[bytes, bytes]:
        words = turn.user, turn.assistant
        known = self._known.get(words)
        if known is None:
            known = self._known[words] = self._json.pair(turn)
        return known

    def read(self, bodies: Iterable[bytes]) -> int:
        return len(list(bodies))
