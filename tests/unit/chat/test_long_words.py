"""Words that are long, or too long: what is done for them, when, and in which of a turn's steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tenuto.chat.agent_loop import Completion, StepTimer
from tenuto.errors import ModelFailed, TooLarge
from tenuto.llm import Call, Fail
from tenuto.model import Draft, Scope
from tenuto.model.generation import ToolContext, ToolOutput
from tenuto.model.privacy import Sink
from tenuto.model.turn import Trace
from tenuto.model.values import JsonObject
from tenuto.privacy.redactor import NO_REDACTION
from tenuto.privacy.turn_redaction import TurnRedaction
from tests.chats import SMALL, Adder, ask, helper, patient, talk
from tests.samples import ANN

LONG = "long words " * 1000


class Watching(TurnRedaction):
    """Notes within which step it is asked to look through a text."""

    def __init__(self) -> None:
        super().__init__(NO_REDACTION)
        self.open = ["no step"]
        self.looked: list[str] = []

    def watch_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Note which step a turn is in."""
        step = StepTimer.step

        @contextmanager
        def noted(timer: StepTimer, name: str, completion: Completion | None = None) -> Iterator[None]:
            self.open.append(name)
            try:
                with step(timer, name, completion):
                    yield
            finally:
                self.open.pop()

        monkeypatch.setattr(StepTimer, "step", noted)

    async def admit(
        self, scope: Scope, text: str, messages: Sequence[Draft] = (), parts: Sequence[JsonObject] = ()
    ) -> None:
        self.looked.append(self.open[-1])

    async def before_cut(
        self, scope: Scope, text: str, sinks: Iterable[Sink], shown: int | None = None
    ) -> tuple[str, Mapping[str, int]]:
        self.looked.append(self.open[-1])
        return text, {}

    async def for_title(self, scope: Scope, text: str) -> str:
        self.looked.append(self.open[-1])
        return text

    async def traced(self, scope: Scope, trace: Trace) -> Trace:
        self.looked.append(self.open[-1])
        return trace


class Telling(Adder):
    """A tool with much to tell."""

    async def run(self, arguments: Any, turn: ToolContext) -> ToolOutput:
        return ToolOutput(output=LONG)


@pytest.mark.requirement("C9")
async def test_every_search_of_a_long_text_stands_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn's time is told step by step, and none of it is spent where no step tells."""
    watching = Watching()
    watching.watch_steps(monkeypatch)
    assistants = [helper(tools=(Telling(),), prompt=SMALL)]
    t = talk([Call("add", {})], LONG, [Fail()], assistants=assistants, redaction=watching)
    t.chat.observe(lambda _: None)

    reply = await t.chat.take_turn(ANN, ask(LONG, "s"))
    with pytest.raises(ModelFailed):
        await t.chat.take_turn(ANN, ask(LONG, "s"))

    assert set(watching.looked) == {"begin", "tools", "trace"}
    assert set(reply.steps) == {"begin", "assemble", "model", "tools", "trace", "finish"}
    trace = await t.store.traces.trace(ANN, "s", reply.turn)
    assert trace is not None
    assert "trace" in trace.steps


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize("text", ["x" * 1025, "\u4e2d" * 342, "\U0001f600" * 257], ids=["letters", "bytes", "signs"])
async def test_what_is_too_long_is_refused_before_anybody_looks_at_it(
    text: str, remembers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(*_: object) -> int:
        raise AssertionError

    watching = Watching()
    policies = patient(max_message_bytes=1024)
    t = talk("Hi.", assistants=[helper(policies=policies, remembers=remembers)], redaction=watching)
    monkeypatch.setattr("tenuto.context.tokens.TokenCounter.count", counted)

    with pytest.raises(TooLarge):
        await t.chat.take_turn(ANN, ask(text, "s"))

    assert watching.looked == []
    assert t.model.requests == []
