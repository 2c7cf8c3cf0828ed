"""Messages as the raw contenders keep them: JSON with the fields of ours, read back as dictionaries."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from bench.workload import Turn

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


def encode_turn(turn: Turn) -> tuple[bytes, bytes]:
    """Question and answer."""
    now = datetime.now(UTC)
    return (
        _encode(_body(f"q-{turn.number}", "user", now, turn.user)),
        _encode(_body(f"a-{turn.number}", "assistant", now, turn.assistant)),
    )


def decode_bodies(bodies: Iterable[bytes]) -> int:
    """Make of stored bytes what a caller would want, and count."""
    return len([_decode(body) for body in bodies])


def _body(name: str, role: str, now: datetime, text: str) -> dict[str, Any]:
    return {"id": name, "role": role, "sent_at": now, "parts": [{"type": "text", "text": text}]}
