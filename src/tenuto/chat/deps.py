"""What a turn depends on: services and ports, time limits, and the timer of its steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TypeAlias

from tenuto.assistants import AssistantRegistry
from tenuto.chat.spending import Spending
from tenuto.model.turn import Trace
from tenuto.model.values import Value
from tenuto.ports import Afterwards, ChatModel, Clock, Embedder, Facts, Span, TraceStore
from tenuto.privacy.turn_redaction import TurnRedaction
from tenuto.sessions import Sessions


class _NoSpan:
    def set_attributes(self, **facts: str | int | None) -> None:
        """Ignore the attributes."""


_NO_SPAN: Final = nullcontext(_NoSpan())


def no_span(_: str) -> AbstractContextManager[Facts]:
    """A span without telemetry."""
    return _NO_SPAN


class StepTimer:
    """Collects milliseconds by step; repeated steps add up."""

    def __init__(self, span: Span = no_span) -> None:
        self.taken: dict[str, float] = {}
        self._span = span

    def step(self, name: str) -> AbstractContextManager[None]:
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


Models: TypeAlias = Callable[[str | None], ChatModel]
Observer: TypeAlias = Callable[[Trace], None]


class ChatLimits(Value, frozen=True, kw_only=True):
    """How long a turn's parts may take, and how often a model may call for tools before it must answer."""

    model_timeout: timedelta = timedelta(seconds=120)
    tool_timeout: timedelta = timedelta(seconds=30)
    embedder_timeout: timedelta = timedelta(seconds=5)
    tool_rounds: int = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDeps:
    """Everything a turn needs, built once."""

    sessions: Sessions
    traces: TraceStore
    assistants: AssistantRegistry
    models: Models
    spending: Spending
    clock: Clock
    afterwards: Afterwards
    redaction: TurnRedaction
    embedder: Embedder | None = None
    titles_by_model: bool = False
    limits: ChatLimits = field(default_factory=ChatLimits)
    span: Span = no_span
    observers: list[Observer] = field(default_factory=list)

    def notify_observers(self, trace: Trace) -> None:
        for observer in self.observers:
            observer(trace)
