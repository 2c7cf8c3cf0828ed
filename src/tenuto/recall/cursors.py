"""Places in a listing of memories, as callers bring them back."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import datetime

from tenuto.errors import InvalidCursor
from tenuto.model.memory import Memory


def next_cursor(memories: Sequence[Memory], limit: int) -> str | None:
    """The cursor behind a part of a listing that had room for `limit`; `None` at its end."""
    if len(memories) < limit:
        return None
    return urlsafe_b64encode(f"{memories[-1].said_at.isoformat()} {memories[-1].id}".encode()).decode()


def parse_cursor(cursor: str) -> tuple[datetime, str]:
    """What a listing goes on behind: when a memory was said, and its id.

    Raises:
        InvalidCursor: the cursor is none of a listing of memories.
    """
    try:
        said_at, _, memory_id = urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        place = datetime.fromisoformat(said_at), memory_id
    except ValueError:
        raise InvalidCursor from None
    if place[0].tzinfo is None:
        raise InvalidCursor
    return place
