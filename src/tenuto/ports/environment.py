"""What a process gives to all that runs in it: the time, and telemetry where it is configured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol, TypeAlias

from tenuto.ports.models import ChatModel

Clock: TypeAlias = Callable[[], datetime]


utc_now: Final[Clock] = partial(datetime.now, UTC)
"""The wall clock."""


class SpanAttributes(Protocol):
    """The attributes of a span."""

    def set_attributes(self, **attributes: str | int | None) -> None:
        """Add ids and counts, never text."""
        ...

    def set_session(self, session_id: str) -> None:
        """Say which conversation it belongs to."""
        ...

    def set_error(self, code: str) -> None:
        """Say that what happened inside failed, though it raised nothing."""
        ...


class Telemetry(Protocol):
    """Opens spans, each below the one that is open already; an exception is recorded by its code.

    Where telemetry is not configured there is none, and nothing is spent on it.
    """

    def span(self, name: str) -> AbstractContextManager[SpanAttributes]:
        """A span around a turn, or one of its steps."""
        ...

    def agent(
        self, name: str, *, session_id: str | None, model: ChatModel | None = None
    ) -> AbstractContextManager[SpanAttributes]:
        """A span around the work of an agent: an assistant that answers, or a step of a plan."""
        ...

    def tool(self, name: str, *, call_id: str) -> AbstractContextManager[SpanAttributes]:
        """A span around the run of a tool; the name is empty where a model has made it up."""
        ...

    def observe(self, model: ChatModel) -> ChatModel:
        """The model, whose calls are spans and count in the metrics."""
        ...
