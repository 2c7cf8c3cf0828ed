"""How long each step of a turn took, for its trace and for whoever watches from outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
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

    def step(self, name: str) -> _Step:
        """Time what happens inside."""
        return _Step(self.taken, name, None if self._span is no_span else self._span(f"tenuto.{name}"))


class _Step:
    """One step under way."""

    __slots__ = ("_began", "_name", "_span", "_taken")

    def __init__(self, taken: dict[str, float], name: str, span: AbstractContextManager[Facts] | None) -> None:
        self._taken = taken
        self._name = name
        self._span = span

    def __enter__(self) -> None:
        self._began = time.perf_counter()
        if self._span is not None:
            self._span.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._span is not None:
                self._span.__exit__(kind, error, trace)
        finally:
            taken = (time.perf_counter() - self._began) * 1000
            self._taken[self._name] = round(self._taken.get(self._name, 0.0) + taken, 3)


def milliseconds_since(began: float) -> float:
    """From an instant of `time.perf_counter` to now."""
    return round((time.perf_counter() - began) * 1000, 3)
