"""A model that plays a script, for tests and examples: it gives scripted answers and records its requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tenuto.errors import ModelFailed
from tenuto.model.generation import (
    ModelDone,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    ReasoningDone,
    TextDelta,
    ToolCall,
    ToolCallRequested,
)
from tenuto.model.message import Role
from tenuto.model.parameters import ModelFacts
from tenuto.model.reasoning import REASONING
from tenuto.model.values import JsonObject
from tenuto.ports import Tool


@dataclass(frozen=True, slots=True)
class Say:
    """Words, in as many pieces as there are arguments; a piece may be anything, a lone surrogate included."""

    chunks: tuple[str, ...]

    def __init__(self, *chunks: str) -> None:
        object.__setattr__(self, "chunks", chunks)


@dataclass(frozen=True, slots=True)
class Think:
    """A thought, in as many pieces as there are arguments."""

    chunks: tuple[str, ...]

    def __init__(self, *chunks: str) -> None:
        object.__setattr__(self, "chunks", chunks)


@dataclass(frozen=True, slots=True)
class Call:
    """Ask for a tool, which may be one that does not exist. Without an `id` it gets one of its own."""

    name: str
    arguments: JsonObject = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True, slots=True)
class Fail:
    """Raise `error`; without one, the failure that a provider's would become."""

    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """Say nothing more until the test sets `release`; `reached` tells that the model waits here."""

    release: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Echo:
    """Say what the prompt ends with, and the results of the tools that ran in this turn."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Break off without `ModelDone`, as a stream that just closes."""


Step: TypeAlias = Say | Think | Call | Fail | Hang | Echo | Stop
Script: TypeAlias = str | Step | Sequence[Step]


class ScriptedModel:
    """Plays one script per answer, in order; the last one is played again and again.

    `requests` is what it was given, and `cancelled` counts the answers whose listener went away before their end.
    `facts` are what it says of itself: by default that it takes nothing but text.
    """

    def __init__(
        self, *scripts: Script, name: str = "scripted", ended: ModelDone | None = None, facts: ModelFacts | None = None
    ) -> None:
        self._scripts = [_steps(script) for script in scripts or (Echo(),)]
        self._ended = ended or ModelDone(model=name)
        self._name = name
        self.facts = facts or ModelFacts()
        self.requests: list[ModelRequest] = []
        self.cancelled = 0

    @property
    def name(self) -> str:
        """What traces call it."""
        return self._name

    async def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """Play the next script."""
        number = len(self.requests)
        self.requests.append(request)
        steps = self._scripts[min(number, len(self._scripts) - 1)]
        try:
            for place, step in enumerate(steps):
                if isinstance(step, Stop):
                    return
                if isinstance(step, Hang):
                    step.reached.set()
                    await step.release.wait()
                if isinstance(step, Think):
                    for thought in _thought(step, place, self._name):
                        yield thought
                for event in self._events(step, request, f"call_{number}_{place}"):
                    yield event
            yield self._ended
        except (GeneratorExit, asyncio.CancelledError):
            self.cancelled += 1
            raise

    def _events(self, step: Step, request: ModelRequest, call_id: str) -> list[ModelEvent]:
        match step:
            case Say(chunks):
                return [TextDelta(text=chunk) for chunk in chunks]
            case Call(name, arguments, given):
                return [ToolCallRequested(call=ToolCall(id=given or call_id, name=name, arguments=arguments))]
            case Fail(error):
                raise error or ModelFailed(self._name)
            case Echo():
                return [TextDelta(text=_echo_text(request))]
            case Hang() | Stop() | Think():
                return []


def _thought(step: Think, index: int, name: str) -> list[ModelEvent]:
    text = "".join(step.chunks)
    part = {"type": REASONING, "text": text, "signature": "signed", "provider": "scripted", "model": name}
    deltas = [ReasoningDelta(text=chunk, index=index) for chunk in step.chunks]
    return [*deltas, ReasoningDone(part=part, index=index)]


def _steps(script: Script) -> tuple[Step, ...]:
    if isinstance(script, str):
        return (Say(script),)
    return (script,) if isinstance(script, Step) else tuple(script)


def _echo_text(request: ModelRequest) -> str:
    """The text of the last user message, then the results of this turn's tools."""
    said = [message.text for message in request.messages if message.role is Role.USER]
    results = [f"{result.call.name}: {result.error or result.output}" for result in request.tool_results]
    return "\n".join([*said[-1:], *results])
