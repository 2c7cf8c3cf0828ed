"""A chat for tests: assistants of the test's own, a scripted model, and any store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from tenuto.assistants import Assistant, AssistantRegistry
from tenuto.chat import Chat, ChatDeps, ChatLimits, ChatRequest, Reply
from tenuto.errors import ModelFailed
from tenuto.llm import Hang, ScriptedModel
from tenuto.llm.choice import ModelChoice
from tenuto.llm.scripted import Script
from tenuto.model import FinishTurn, OpenTurn
from tenuto.model.generation import (
    ModelDone,
    ModelEvent,
    ModelRequest,
    Persona,
    ToolContext,
    ToolOutput,
    ToolSpec,
    TurnSnapshot,
)
from tenuto.model.model_names import ModelNames
from tenuto.model.policy import OnMissing, Preset, SessionPolicy, preset
from tenuto.model.prompt import Language, PromptPolicy
from tenuto.model.session import Budgets
from tenuto.model.values import JsonObject
from tenuto.ports import ChatModel, Clock, Embedder, Store, Telemetry, TurnFollowUp
from tenuto.privacy.redactor import NO_REDACTION
from tenuto.privacy.turn_redaction import TurnRedaction
from tenuto.recall.embedding import CachedEmbedder
from tenuto.recall.service import Memories
from tenuto.sessions import EventEmitter, Sessions
from tenuto.sessions.usage import Spending, UsageLedger
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.samples import ANN


async def events_of(model: ChatModel, asking: ModelRequest) -> list[ModelEvent]:
    """All that a model answers."""
    return [event async for event in model.stream_answer(asking, ())]


async def events_until_failure(model: ChatModel, asking: ModelRequest) -> tuple[list[ModelEvent], str]:
    """What a model answers before it fails, and how it fails."""
    events: list[ModelEvent] = []
    try:
        async for event in model.stream_answer(asking, ()):
            events.append(event)  # noqa: PERF401 (what came before the failure is kept)
    except ModelFailed as error:
        return events, str(error)
    raise AssertionError("the model did not fail")


def patient(**fields: Any) -> Preset:
    """The platform's policies, adopting any id and waiting for a busy session as long as a slow machine may take."""
    base = preset("platform")
    sessions = replace(base.sessions, on_missing=OnMissing.ADOPT, busy_wait=timedelta(minutes=1))
    return replace(base, sessions=replace(sessions, **fields))


def hurried(**fields: Any) -> Preset:
    """The same, hardly waiting: for tests that meet a busy session."""
    return patient(busy_wait=timedelta(milliseconds=20), **fields)


def helper(**fields: Any) -> Assistant:
    """An assistant that says it helps."""
    given: dict[str, Any] = {"name": "helper", "system": {Language.ENGLISH: "You help."}, "policies": patient()}
    return Assistant(**{**given, **fields})


@dataclass
class Adder:
    """A tool that adds two numbers, refuses what are none, and remembers the sum."""

    calls: list[ToolContext] = field(default_factory=list)
    fault: Exception | None = None

    spec = ToolSpec(
        name="add",
        description="Add two numbers.",
        parameters={"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
    )

    async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
        self.calls.append(turn)
        if self.fault is not None:
            raise self.fault
        total = arguments["a"] + arguments["b"]
        return ToolOutput(output={"sum": total}, data={"sum": total}, state={"last": total})


@dataclass
class FollowUpRecorder:
    """What would follow a turn, noted instead of done."""

    ended: list[TurnSnapshot] = field(default_factory=list)

    def hear(self, turn: TurnSnapshot) -> None:
        pass

    def follow(self, turn: TurnSnapshot) -> None:
        self.ended.append(turn)

    async def note_stale(self, turn: TurnSnapshot) -> None:
        pass

    async def secure(self, turn: TurnSnapshot, *, through: int, adding: int) -> None:
        pass

    def release(self, turn: OpenTurn, request: FinishTurn, policy: SessionPolicy) -> None:
        pass


@dataclass
class Talk:
    """A chat and everything behind it."""

    chat: Chat
    store: Store
    sessions: Sessions
    model: ScriptedModel
    ended: list[TurnSnapshot]


def talk(
    *scripts: Script,
    store: Store | None = None,
    clock: Clock | None = None,
    assistants: Sequence[Assistant] = (),
    budgets: Budgets | None = None,
    policy: SessionPolicy | None = None,
    ended: ModelDone | None = None,
    limits: ChatLimits | None = None,
    model: ScriptedModel | None = None,
    telemetry: Telemetry | None = None,
    embedder: Embedder | None = None,
    patience: timedelta = timedelta(seconds=5),
    memories: Memories | None = None,
    follow_up: Callable[[Sessions], TurnFollowUp] | None = None,
    redaction: TurnRedaction | None = None,
) -> Talk:
    """A chat in which a scripted model answers."""
    clock = clock or FakeClock()
    store = store or MemoryStore(clock=clock)
    sessions = Sessions(
        store=store.sessions, upkeep=store.upkeep, policy=policy or patient().sessions, events=EventEmitter(clock=clock)
    )
    known = list(assistants) or [helper()]
    script = model or ScriptedModel(*scripts, ended=ended)
    asked = telemetry.observe(script) if telemetry is not None else script
    noted = FollowUpRecorder()
    chat = Chat(
        ChatDeps(
            sessions=sessions,
            traces=store.traces,
            assistants=AssistantRegistry(known, known[0].name),
            models=lambda _: asked,
            model_choice=ModelChoice(ModelNames(), {}, _open_none),
            spending=Spending(ledger=UsageLedger(state=store.state, clock=clock), budgets=budgets or Budgets()),
            clock=clock,
            follow_up=noted if follow_up is None else follow_up(sessions),
            limits=limits or ChatLimits(),
            telemetry=telemetry,
            embedder=CachedEmbedder(embedder, clock=clock, time_limit=patience) if embedder is not None else None,
            memories=memories,
            redaction=redaction or TurnRedaction(NO_REDACTION),
        )
    )
    return Talk(chat, store, sessions, script, noted.ended)


async def _open_none(name: str) -> ChatModel:
    raise AssertionError(f"no test opens {name}")


def ask(text: str, session_id: str | None = None, **fields: Any) -> ChatRequest:
    """A request with this text."""
    return ChatRequest(text=text, session_id=session_id, **fields)


async def under_way(t: Talk, hang: Hang, request: ChatRequest) -> asyncio.Task[Reply]:
    """A turn of Ann's, once its model hangs."""
    turn = asyncio.create_task(t.chat.take_turn(ANN, request))
    await hang.reached.wait()
    return turn


SMALL = PromptPolicy(budget=600, reply_tokens=100)


ADA, BEA = (
    Persona(id=name, names={Language.ENGLISH: name}, system={Language.ENGLISH: f"You are {name}."})
    for name in ("ada", "bea")
)


PERSONAS = {"ada": ADA, "bea": BEA}
