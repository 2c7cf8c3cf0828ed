"""How long each step of a turn took, for its trace and for whoever watches from outside."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Protocol, TypeAlias


class Facts(Protocol):
    """What a span tells besides its time."""

    def tell(self, **facts: str | int | None) -> None:
        """Add ids and counts, never words."""
        ...


# Opens a span of that name around a step, where telemetry is configured.
Span: TypeAlias = Callable[[str], AbstractContextManager[Facts]]


class _Nobody:
    def tell(self, **facts: str | int | None) -> None:
        """Nobody listens."""


_NOBODY: Final = nullcontext(_Nobody())


def no_span(_: str) -> AbstractContextManager[Facts]:
    """Telemetry that is not there."""
    return _NOBODY


class Steps:
    """Collects milliseconds by step; a step that happens twice adds up."""

    def __init__(self, span: Span = no_span) -> None:
        self.taken: dict[str, float] = {}
        self._span = span

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time what happens inside."""
        began = time.perf_counter()
        try:
            with self._span(f"tenuto.{name}"):
                yield
        finally:
            self.taken[name] = round(self.taken.get(name, 0.0) + milliseconds_since(began), 3)


def milliseconds_since(began: float) -> float:
    """From an instant of `time.perf_counter` to now."""
    return round((time.perf_counter() - began) * 1000, 3)
