"""What follows a turn: sessions over memory, their upkeep, and a small model that says what it is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from msgspec.structs import replace

from tenuto.context.compression import find_summary
from tenuto.model import FinishTurn, Message, Page, Retention, Scope, Session, text_part
from tenuto.model.generation import Summary, TurnSnapshot
from tenuto.model.message import is_summary
from tenuto.model.policy import ContextPolicy, Preset, SessionPolicy
from tenuto.model.prompt import Language, PromptPolicy
from tenuto.ports import Store
from tenuto.privacy.redactor import NO_REDACTION
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.sessions import EventEmitter, Sessions, TurnRequest
from tenuto.sessions.titles import claim_title
from tenuto.upkeep import Upkeep
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.samples import ANN, answers, says

QUESTION = "Can you help me plan a two-week trip to Japan in spring?"
ANSWER = "A two-week trip to Japan in spring could start in Tokyo."
SUMMARY = "The user plans a trip to Japan. They decided on Tokyo first. Hotel 1 is open."


class ScriptedSummarizer:
    """A small model that says what it is told to, and remembers what it was asked."""

    def __init__(self, *said: str | Exception) -> None:
        self.said = list(said)
        self.asked: list[tuple[str, str, int]] = []
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def __call__(self, scope: Scope, system: str, text: str, most: int) -> str:
        self.asked.append((system, text, most))
        if self.meanwhile is not None:
            await self.meanwhile()
        said = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        if isinstance(said, Exception):
            raise said
        return said


class MarkingRedaction(UpkeepRedaction):
    """Replaces some words by placeholders."""

    def __init__(self, **marks: str) -> None:
        super().__init__(NO_REDACTION)
        self._marks = marks

    def for_summary(self, scope: Scope, text: str) -> str:
        for word, mark in self._marks.items():
            text = text.replace(word, mark)
        return text

    for_model = for_summary

    async def for_title(self, session: Session, text: str) -> str:
        return self.for_summary(session.scope, text)

    async def to_model(self, scope: Scope, text: str) -> str:
        return self.for_summary(scope, text)

    async def redact_past(self, session: Session, messages: Sequence[Message], now: datetime) -> tuple[Message, ...]:
        return tuple(
            replace(message, parts=(text_part(self.for_summary(session.scope, message.text)),))
            for message in messages
            if any(word in message.text for word in self._marks)
        )


class PlaceRedaction(UpkeepRedaction):
    """Finds a place only in a whole request, as an external detector would."""

    async def to_model(self, scope: Scope, text: str) -> str:
        return text.replace("Japan", "[PLACE]")


class SessionsWithUpkeep:
    """Sessions over memory, their upkeep, and turns as chat takes them."""

    def __init__(
        self,
        model: ScriptedSummarizer | None = None,
        *,
        cap: int | None = 500,
        store: Store | None = None,
        **context: Any,
    ) -> None:
        self.clock = FakeClock()
        self.model = model
        policy = SessionPolicy(retention=Retention(max_messages=cap))
        self.policies = Preset(sessions=policy, context=ContextPolicy(**{"compress_over": 30, **context}))
        self.store = store or MemoryStore(clock=self.clock)
        self.sessions = Sessions(
            store=self.store.sessions, upkeep=self.store.upkeep, policy=policy, events=EventEmitter(clock=self.clock)
        )
        self.upkeep = self.another()
        self._words = count(1)

    def another(self, **rest: Any) -> Upkeep:
        """Another process on the same store."""
        settled = {"model": self.model, "clock": self.clock, "redaction": UpkeepRedaction(NO_REDACTION), **rest}
        return Upkeep(sessions=self.sessions, sweep_every=timedelta(minutes=5), **settled)

    async def turn(
        self, session_id: str | None = None, question: str = QUESTION, answer: str = ANSWER, follow: bool = True
    ) -> Session:
        """One turn, followed as chat has it followed."""
        begun = await self.sessions.begin(ANN, TurnRequest(user_messages=(says(question),), session_id=session_id))
        has_model = self.model is not None
        claim = claim_title(begun.session, question, Language.ENGLISH, self.clock(), limit=40, model=has_model)
        done = await self.sessions.finish(begun, FinishTurn(reply=(answers(answer),), changes=claim))
        if follow:
            self.upkeep.after_turn.follow(self.snapshot(done.session, question, answer, claims_title=claim is not None))
        return done.session

    def snapshot(self, session: Session, question: str = "", answer: str = "", **rest: Any) -> TurnSnapshot:
        given = {
            "scope": ANN,
            "session": session,
            "assistant": "general",
            "language": Language.ENGLISH,
            "policies": self.policies,
            "prompt": PromptPolicy(),
            "question": question,
            "answer": answer,
            **rest,
        }
        return TurnSnapshot(**given)

    async def talk(self, turns: int, session_id: str | None = None) -> Session:
        """So many turns, with nothing following them."""
        session = None
        for _ in range(turns):
            number = next(self._words)
            asked = f"Question {number} about the trip to Japan, Tokyo and the rail pass."
            session = await self.turn(
                session_id, asked, f"Answer {number}: we decided on hotel {number}.", follow=False
            )
            session_id = session.id
        assert session is not None
        return session

    async def log(self, session: Session) -> tuple[Message, ...]:
        return (await self.sessions.messages(ANN, session.id, Page(limit=1000))).messages

    async def summary(self, session: Session) -> Summary | None:
        head = await self.sessions.get(ANN, session.id)
        return find_summary(await self.log(session), head.window_start)

    async def entries(self, session: Session) -> list[Message]:
        return [message for message in await self.log(session) if is_summary(message)]

    async def title(self, session: Session) -> tuple[str, str]:
        head = await self.sessions.get(ANN, session.id)
        return head.title, head.metadata.get("title", {}).get("by", "")
