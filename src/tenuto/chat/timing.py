"""How long each step of a turn took, for its trace and for whoever watches from outside."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from tenuto.ports import Facts, Span


class _NoSpan:
    def set_attributes(self, **facts: str | int | None) -> None:
        """Nobody listens."""


_NOBODY: Final = nullcontext(_NoSpan())


def no_span(_: str) -> AbstractContextManager[Facts]:
    """Telemetry that is not there."""
    return _NOBODY


class StepTimer:
    """Collects milliseconds by step; a step that happens twice adds up."""

    def __init__(self, span: Span = no_span) -> None:
        self.taken: dict[str, float] = {}
        self._span = span

    def step(self, name: str) -> AbstractContextManager[None]:
        """Time what happens inside."""
        step = _Step(self.taken, name)
        return step if self._span is no_span else _with_span(step, self._span(f"tenuto.{name}"))


class _Step:
    """One step under way."""

    __slots__ = ("_began", "_name", "_taken")

    def __init__(self, taken: dict[str, float], name: str) -> None:
        self._taken = taken
        self._name = name

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        taken = (time.perf_counter() - self._began) * 1000
        self._taken[self._name] = round(self._taken.get(self._name, 0.0) + taken, 3)


@contextmanager
def _with_span(step: _Step, span: AbstractContextManager[Facts]) -> Iterator[None]:
    with step, span:
        yield


def milliseconds_since(began: float) -> float:
    """From an instant of `time.perf_counter` to now."""
    return round((time.perf_counter() - began) * 1000, 3)
