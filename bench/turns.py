"""What a whole turn costs beside its model: the chat with a model that answers at once, against the bare cycle.

Both run in this process, in turn, with 32 callers on sessions of their own. The chat does everything it does for users:
it finds the assistant, begins, assembles within the budget, streams, and finishes with a trace. Titles and summaries,
which follow a turn off the request path, are made between the rounds.

The bare cycle is the store's part of that very turn: the opening and the closing that the chat handed over once are
handed over again, so that both load the same window and store the same words, counts, key and trace. The light cycle of
the other comparisons (20 messages, no trace) stands beside it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from time import perf_counter
from typing import Any, Final, cast

from msgspec.structs import replace
from rich.console import Console

from bench.contenders import LENGTH_OF_RATIOS
from bench.grounds import ground, machine, working_folder
from bench.ours import Ours, drafts_of, scope_of
from bench.tables import Table
from bench.workload import Turn, Words
from tenuto.assistants import AssistantRegistry
from tenuto.assistants.registry import general_assistant
from tenuto.chat import Chat, ChatDeps, ChatRequest, Spending
from tenuto.context import TokenCounter, assemble
from tenuto.model import (
    AppendBatch,
    AppendResult,
    BeginTurn,
    FinishTurn,
    IdempotencyKey,
    Message,
    NewSession,
    OpenTurn,
    Retention,
    Scope,
    text_part,
)
from tenuto.model.generation import ModelDone, ModelEvent, ModelRequest, TextDelta, TurnEnded
from tenuto.model.policy import ContextPolicy, preset
from tenuto.model.prompt import PromptInputs, PromptPolicy
from tenuto.model.session import Budgets
from tenuto.ports import Backend, SessionStore, Tool, utc_now
from tenuto.privacy.redactor import NO_REDACTION
from tenuto.privacy.turn_redaction import TurnRedaction, UpkeepRedaction
from tenuto.sessions import EventEmitter, Sessions
from tenuto.stores.factory import open_store
from tenuto.upkeep import Upkeep

MANY: Final = 32
# Long histories take long to store first, so there are fewer of them.
FEW: Final = 8
LONG: Final = 10_000
_ROUNDS: Final = 7
_TURNS: Final = 4
_SEEDED_AT_ONCE: Final = 250
_KINDS: Final = ("light", "bare", "talk")
_UNCAPPED: Final = NewSession(retention=Retention(max_messages=None))


@dataclass(frozen=True, slots=True)
class Turns:
    """Milliseconds at the median: of the light cycle, of the bare cycle, of a whole turn, and of its steps."""

    backend: str
    history: int
    callers: int
    light: float
    cycle: float
    turn: float
    steps: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """How many cycles a turn costs."""
        return self.turn / self.cycle


class _AtOnce:
    """A model that has its answer ready."""

    name = "at once"

    def __init__(self, words: Words) -> None:
        self._answers = [words.turn().assistant for _ in range(64)]
        self._numbers = count()

    async def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        yield TextDelta(text=self._answers[next(self._numbers) % len(self._answers)])
        yield ModelDone(model=self.name, input_tokens=300, output_tokens=100)


async def measure_turns(backend: str, url: str) -> list[Turns]:
    """Cycle and turn side by side: of many callers, and of a few with short and with long histories, all in turn."""
    store, words = await open_store(url), Words()
    try:
        cases = [
            await _Case.ready(store, words, history, callers)
            for history, callers in ((LENGTH_OF_RATIOS, MANY), (LENGTH_OF_RATIOS, FEW), (LONG, FEW))
        ]
        for _ in range(_ROUNDS):
            for case in cases:
                await case.round()
        return [case.found(backend) for case in cases]
    finally:
        await store.close()


class _Case:
    """Sessions of one length with so many callers; each round measures the light cycle, the bare one and a turn."""

    def __init__(self, store: Backend, words: Words, bared: _Bared, history: int, callers: int) -> None:
        self._words, self._bared, self._ours = words, bared, Ours(store)
        self._history, self._callers = history, callers
        self._chat, self._later = _chat(store, words)
        self._steps: dict[str, list[float]] = {}
        self._took: dict[str, list[float]] = {kind: [] for kind in _KINDS}
        self._sessions = {kind: [f"{kind}-{history}-{callers}-{n}" for n in range(callers)] for kind in _KINDS}

    @classmethod
    async def ready(cls, store: Backend, words: Words, history: int, callers: int) -> _Case:
        """The histories stored, and the first turns taken."""
        case = cls(store, words, await _bared(store, words, history), history, callers)
        for sessions in case._sessions.values():
            for session in sessions:
                await _seed(store, session, [words.turn() for _ in range(history // 2)])
        # A history that was never compressed is compressed once; that is no turn's cost.
        await _together(case._turn, case._sessions["talk"])
        await case._later.done()
        case._steps.clear()
        return case

    async def round(self) -> None:
        for kind, do in zip(_KINDS, (self._light, self._cycle, self._turn), strict=True):
            self._took[kind] += await _together(do, self._sessions[kind])
        await self._later.done()

    def found(self, backend: str) -> Turns:
        light, cycle, turn = (median(self._took[kind]) * 1000 for kind in _KINDS)
        steps = {name: median(taken) for name, taken in self._steps.items()}
        return Turns(backend, self._history, self._callers, light=light, cycle=cycle, turn=turn, steps=steps)

    async def _light(self, session: str) -> None:
        await self._ours.cycle(session, self._words.turn())

    async def _cycle(self, session: str) -> None:
        await self._bared.cycle(session, self._words.turn())

    async def _turn(self, session: str) -> None:
        reply = await self._chat.take_turn(scope_of(session), _request(session, self._words.turn()))
        for name, taken in reply.steps.items():
            self._steps.setdefault(name, []).append(taken)


class _Bared:
    """The store's part of a turn, without the chat: one turn's opening and closing, under fresh ids."""

    def __init__(self, store: Backend, opening: BeginTurn, closing: FinishTurn) -> None:
        self._store = store
        self._opening = opening
        self._closing = closing

    async def cycle(self, session: str, turn: Turn) -> None:
        question, answer = self._opening.user_messages[0], self._closing.reply[-1]
        opening = replace(
            self._opening,
            session_id=session,
            turn_id=f"turn-{turn.number}",
            user_messages=(replace(question, id=f"q-{turn.number}", parts=(text_part(turn.user),)),),
            idempotency_key=IdempotencyKey(key=f"key-{turn.number}", fingerprint="body"),
        )
        begun = await self._store.sessions.begin_turn(scope_of(session), opening)
        reply = (replace(answer, id=f"a-{turn.number}", parts=(text_part(turn.assistant),)),)
        await self._store.sessions.finish_turn(begun, replace(self._closing, reply=reply))


class _Listening:
    """Sessions that remember how the last turn began and ended."""

    def __init__(self, sessions: SessionStore) -> None:
        self._sessions = sessions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sessions, name)

    async def begin_turn(self, scope: Scope, opening: BeginTurn) -> OpenTurn:
        self.opening = opening
        return await self._sessions.begin_turn(scope, opening)

    async def finish_turn(self, turn: OpenTurn, closing: FinishTurn) -> AppendResult:
        self.closing = closing
        return await self._sessions.finish_turn(turn, closing)


async def _bared(store: Backend, words: Words, history: int) -> _Bared:
    """What the chat hands to the store in a turn like those that are measured: not the first, with a summary."""
    session = f"sample-{history}-{words.turn().number}"
    await _seed(store, session, [words.turn() for _ in range(history // 2)])
    listening = _Listening(store.sessions)
    # It is a whole port: what it does not do itself it passes on.
    chat, later = _chat(store, words, cast(SessionStore, listening))
    for _ in range(4):
        await chat.take_turn(scope_of(session), _request(session, words.turn()))
        await later.done()
    assert listening.closing.changes is None, "a usual turn changes nothing of the head"
    return _Bared(store, listening.opening, listening.closing)


def _request(session: str, turn: Turn) -> ChatRequest:
    return ChatRequest(text=turn.user, session_id=session, idempotency_key=f"key-{turn.number}", fingerprint="body")


def measure_assembling(messages: int = 500, budget: int = 8192, rounds: int = 15) -> tuple[float, float]:
    """Milliseconds to assemble a long history within a budget, and to count its tokens anew, interleaved."""
    counter, when, words = TokenCounter(), utc_now(), Words()
    drafts = [draft for _ in range(messages // 2) for draft in drafts_of(words.turn())]
    history = tuple(
        counter.with_count(
            Message(id=draft.id, role=draft.role, sent_at=when, parts=draft.parts, seq=n + 1, turn=n // 2 + 1)
        )
        for n, draft in enumerate(drafts)
    )
    materials = PromptInputs(system="You help.", history=history, question="And then?")
    policy, context = PromptPolicy(budget=budget), ContextPolicy()
    assembling: list[float] = []
    counting: list[float] = []
    for _ in range(rounds):
        began = perf_counter()
        assemble(materials, policy, context, counter)
        between = perf_counter()
        for message in history:
            counter.count(message.text)
        assembling.append(between - began)
        counting.append(perf_counter() - between)
    return median(assembling) * 1000, median(counting) * 1000


async def _together(do: Callable[[str], Awaitable[None]], sessions: Sequence[str]) -> list[float]:
    """Seconds of each call, all sessions at once, several calls each."""

    async def several(session: str) -> list[float]:
        took = []
        for _ in range(_TURNS):
            began = perf_counter()
            await do(session)
            took.append(perf_counter() - began)
        return took

    return [one for took in await asyncio.gather(*map(several, sessions)) for one in took]


async def _seed(store: Backend, session: str, turns: Sequence[Turn]) -> None:
    """A history whose messages were counted when they were written, as the chat's are."""
    counter = TokenCounter()
    for first in range(0, len(turns), _SEEDED_AT_ONCE):
        some = turns[first : first + _SEEDED_AT_ONCE]
        drafts = tuple(counter.with_count(draft) for turn in some for draft in drafts_of(turn))
        batch = AppendBatch(id=f"seed-{some[0].number}", messages=drafts, create=_UNCAPPED)
        await store.sessions.append(scope_of(session), session, batch)


class _Later:
    """What follows the turns, done between the rounds: it is off the request path, and this machine has few cores."""

    def __init__(self, upkeep: Upkeep) -> None:
        self._upkeep = upkeep
        self._ended: list[TurnEnded] = []
        self.secure, self.release = upkeep.after_turn.secure, upkeep.after_turn.release

    def follow(self, ended: TurnEnded) -> None:
        self._ended.append(ended)

    async def done(self) -> None:
        for ended in self._ended:
            self._upkeep.after_turn.follow(ended)
        self._ended.clear()
        await self._upkeep.drain()


def _chat(store: Backend, words: Words, listening: SessionStore | None = None) -> tuple[Chat, _Later]:
    platform = preset("platform")
    policies = replace(platform, sessions=replace(platform.sessions, retention=_UNCAPPED.retention))
    sessions = Sessions(
        store=listening or store.sessions,
        upkeep=store.upkeep,
        policy=policies.sessions,
        announcer=EventEmitter(clock=utc_now),
    )
    later = _Later(
        Upkeep(sessions=sessions, redaction=UpkeepRedaction(NO_REDACTION), sweep_every=policies.sessions.lease)
    )
    model = _AtOnce(words)
    general = general_assistant(policies)
    chat = Chat(
        ChatDeps(
            sessions=sessions,
            traces=store.traces,
            assistants=AssistantRegistry([general], general.name),
            models=lambda _: model,
            spending=Spending(state=store.state, budgets=Budgets(), clock=utc_now),
            clock=utc_now,
            afterwards=later,
            redaction=TurnRedaction(NO_REDACTION),
        )
    )
    return chat, later


def turn_table(found: Sequence[Turns]) -> Table:
    """A row for each backend and length of history."""
    names = list(dict.fromkeys(name for one in found for name in one.steps))
    table = Table(
        "A whole turn beside its model (median ms)",
        ["backend", "messages", "at once", "light cycle", "bare cycle", "turn", "turn / cycle", *names],
    )
    for one in found:
        steps = [f"{one.steps.get(name, 0):.2f}" for name in names]
        figures = (f"{one.light:.2f}", f"{one.cycle:.2f}", f"{one.turn:.2f}", f"{one.ratio:.2f} x")
        table.add(one.backend, f"{one.history:,}", str(one.callers), *figures, *steps)
    return table


def main() -> None:
    """`python -m bench.turns [sqlite redis postgres]`."""
    console = Console(width=None if sys.stdout.isatty() else 200)
    backends = sys.argv[1:] or ["sqlite", "redis"]
    with working_folder(None) as folder:
        console.print(machine(folder))
        found: list[Turns] = []
        for backend in backends:
            with ground(backend, folder) as up:  # type: ignore[arg-type]  # checked by the ground itself
                found += asyncio.run(measure_turns(backend, up.new_url()))
        turn_table(found).show(console)
        assembling, counting = measure_assembling()
        console.print(
            f"Assembling 500 messages within 8k tokens: {assembling:.2f} ms; counting them anew: {counting:.2f} ms "
            f"({counting / assembling:.0f} x)"
        )


if __name__ == "__main__":
    main()
