"""What a process gives to all that runs in it: the time, and spans where telemetry is configured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol, TypeAlias

Clock: TypeAlias = Callable[[], datetime]


utc_now: Final[Clock] = partial(datetime.now, UTC)
"""The wall clock."""


class SpanAttributes(Protocol):
    """The attributes of a span."""

    def set_attributes(self, **attributes: str | int | None) -> None:
        """Add ids and counts, never text."""
        ...


Span: TypeAlias = Callable[[str], AbstractContextManager[SpanAttributes]]
"""Opens a span of that name around a step, where telemetry is configured."""
