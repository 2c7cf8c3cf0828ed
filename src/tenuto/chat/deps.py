"""What a turn depends on: services and ports, time limits, and the timer of its steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from tenuto.assistants import AssistantRegistry
from tenuto.chat.spending import Spending
from tenuto.model.turn import Trace
from tenuto.model.values import Value
from tenuto.ports import Afterwards, ChatModel, Clock, Embedder, Span, TraceStore
from tenuto.privacy.turn_redaction import TurnRedaction
from tenuto.sessions import Sessions


@dataclass(slots=True)
class StepTimer:
    """Collects milliseconds by step; repeated steps add up. With telemetry each step is a span."""

    span: Span | None = None
    taken: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            with self.span(f"tenuto.{name}") if self.span else nullcontext():
                yield
        finally:
            taken = (time.perf_counter() - began) * 1000
            self.taken[name] = round(self.taken.get(name, 0.0) + taken, 3)


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
    span: Span | None = None
    observers: list[Observer] = field(default_factory=list)
