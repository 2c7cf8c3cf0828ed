"""`tenuto.open` with a model that answers at once, and the engine below it alone."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle
from random import Random
from typing import Any, Final
from urllib.parse import urlsplit

import tenuto
from bench.workload import WINDOW, Turn, Words, statement
from tenuto.app import Tenuto
from tenuto.model import (
    AppendBatch,
    BeginTurn,
    Draft,
    FinishTurn,
    IdempotencyKey,
    NewSession,
    Page,
    Retention,
    Role,
    Scope,
    Usage,
    text_part,
)
from tenuto.model.generation import ModelDone, ModelEvent, ModelRequest, TextDelta
from tenuto.model.prompt import PromptMessage
from tenuto.ports import Tool
from tenuto.sessions import AppendRequest
from tenuto.stores.engine import Engine
from tenuto.stores.factory import open_records

# Own turns before a slice: enough for a session to have been compressed several times.
_OWN_TURNS: Final = 50
_NEWEST: Final = Page(limit=WINDOW)
_USERS: Final = 64
_SEEDED_AT_ONCE: Final = 250
_SUMMARY: Final = 600
_NUMBER: Final = re.compile(r"\d+")
_USAGE: Final = Usage(tokens=300, cost_nanos=1_250_000)


def scope_of(session: str) -> Scope:
    """The owner of a session: sessions are spread over some dozens of users."""
    return Scope(tenant="bench", user=f"user-{int(session.rsplit('-', 1)[1]) % _USERS}")


def drafts_of(turn: Turn) -> tuple[Draft, Draft]:
    """Question and answer as messages."""
    now = datetime.now(UTC)
    return (
        Draft(id=f"q-{turn.number}", role=Role.USER, sent_at=now, parts=(text_part(turn.user),)),
        Draft(id=f"a-{turn.number}", role=Role.ASSISTANT, sent_at=now, parts=(text_part(turn.assistant),)),
    )


def prefixed(url: str) -> str:
    """The same place; on Redis with a prefix of its own, too.

    Invalidations name keys without their database: contenders whose keys are equal would hear each other's changes.
    """
    return f"{url}?prefix=bench{urlsplit(url).path.strip('/')}" if url.startswith("redis:") else url


class InstantModel:
    """A model that has its answer ready."""

    name = "instant"

    def __init__(self) -> None:
        words = Words()
        self._answers = cycle([words.turn().assistant for _ in range(64)])

    async def stream_answer(self, request: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """One piece of text and the usage."""
        upkeep = request.tool_context is None
        yield TextDelta(text=_summary(*request.messages) if upkeep else next(self._answers))
        yield ModelDone(model=self.name, input_tokens=300, output_tokens=100)


def _summary(system: PromptMessage, talk: PromptMessage) -> str:
    """What the check of a summary accepts: lines of the talk in the language of the request, and the talk's numbers."""
    lines = [line for line in talk.text.splitlines() if line.isascii() is system.text.isascii()]
    return "\n".join(lines)[-_SUMMARY:] + " " + " ".join(set(_NUMBER.findall(talk.text)))


class Ours:
    """The public door. A cycle is `begin` and `finish` with an idempotency key; an ask is a whole turn."""

    def __init__(self, app: Tenuto, stack: AsyncExitStack, *, own_turns: int, counted: bool) -> None:
        self.app = app
        self._stack = stack
        self._own_turns = own_turns
        self._counted = counted
        self._ids: dict[str, str] = {}

    def scope_of(self, session: str) -> Scope:
        """The owner of a session."""
        return scope_of(session)

    async def seed(self, session: str, turns: Sequence[Turn]) -> None:
        """Append the history, `counted` as turns of its own are; the last are asked, where asks are to be measured."""
        scope, imported = self.scope_of(session), turns[: max(0, len(turns) - self._own_turns)]
        await self.app.sessions.create(scope, session_id=session)
        self._ids[session] = session
        for first in range(0, len(imported), _SEEDED_AT_ONCE):
            drafts = [draft for turn in imported[first : first + _SEEDED_AT_ONCE] for draft in drafts_of(turn)]
            if self._counted:
                # Imported here: the start of a process that only loads is measured, too.
                from tenuto.context import TokenCounter

                drafts = [TokenCounter().with_count(draft) for draft in drafts]
            await self.app.sessions.append(scope, session, AppendRequest(messages=tuple(drafts)))
        for turn in turns[len(imported) :]:
            await self.ask(session, turn)
        await self.settle()

    async def append(self, session: str, turn: Turn) -> None:
        await self.app.sessions.append(self.scope_of(session), session, AppendRequest(messages=drafts_of(turn)))

    async def load(self, session: str) -> int:
        return len((await self.app.sessions.messages(self.scope_of(session), session, _NEWEST)).messages)

    async def cycle(self, session: str, turn: Turn) -> int:
        key = f"key-{turn.number}"
        begun = await self.app.begin(
            self.scope_of(session), turn.user, session_id=session, idempotency_key=key, window=WINDOW
        )
        await self.app.finish(begun, turn.assistant, tokens=_USAGE.tokens, cost_nanos=_USAGE.cost_nanos)
        return len(begun.window)

    async def ask(self, session: str, turn: Turn) -> None:
        """The first ask of an unknown session begins a new one."""
        reply = await self.app.ask(self.scope_of(session), turn.user, session_id=self._ids.get(session))
        self._ids[session] = reply.session_id

    async def settle(self) -> None:
        """Titles and summaries are made."""
        await self.app.upkeep.drain()

    async def close(self) -> None:
        await self._stack.aclose()


class Stating(Ours):
    """Whole turns with a new statement in each, which is remembered."""

    async def ask(self, session: str, turn: Turn) -> None:
        await super().ask(session, replace(turn, user=statement(turn.number)))

    async def settle(self) -> None:
        """Captures are drained as well: they belong to the cost of the turns."""
        await super().settle()
        await (await self.app.memories()).drain()


class StatingAlone(Stating):
    """The same, all of one user."""

    def scope_of(self, session: str) -> Scope:
        return Scope(tenant="bench", user="only")


async def open_ours(url: str, **settings: Any) -> Ours:
    """No summaries, which asks have; a cycle has a window of 20 messages, which is what the others load.

    Else defaults, except for the stored cap of 500 messages: histories of 10,000 are to stay that long.
    """
    return await _open(url, own_turns=0, counted=True, compress_at=0, **settings)


async def open_asking(url: str) -> Ours:
    """All defaults but that cap; a history ends with turns of its own, so that slices see the steady state."""
    return await _open(url, own_turns=_OWN_TURNS, counted=True)


async def open_asking_imported(url: str) -> Ours:
    """The same with an imported history and one turn after it."""
    return await _open(url, own_turns=1, counted=False)


async def open_asking_forgetful(url: str) -> Ours:
    """As `open_asking`, without memories of users."""
    return await _open(url, own_turns=_OWN_TURNS, counted=True, memories=False)


async def open_stating(url: str) -> Ours:
    """As `open_asking`, with a new statement in each message."""
    return await _open(url, Stating, own_turns=_OWN_TURNS, counted=True)


async def open_stating_alone(url: str) -> Ours:
    """The same of one user, whose memories grow."""
    return await _open(url, StatingAlone, own_turns=_OWN_TURNS, counted=True)


async def open_stating_by_words(url: str) -> Ours:
    """As `open_stating`, without an encoder."""
    return await _open(url, Stating, own_turns=_OWN_TURNS, counted=True, embedder="none")


async def _open(url: str, kind: type[Ours] = Ours, *, own_turns: int, counted: bool, **settings: Any) -> Ours:
    stack = AsyncExitStack()
    model = InstantModel()
    app = await stack.enter_async_context(
        tenuto.open(prefixed(url), model=model.name, models={model.name: model}, max_messages=0, **settings)
    )
    return kind(app, stack, own_turns=own_turns, counted=counted)


class BareStore:
    """The engine alone, called through its ports: what the raw driver is compared with."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._sessions = engine.sessions

    async def seed(self, session: str, turns: Sequence[Turn]) -> None:
        drafts = tuple(draft for turn in turns for draft in drafts_of(turn))
        create = NewSession(retention=Retention(max_messages=None))
        batch = AppendBatch(id=f"seed-{turns[0].number}", messages=drafts, create=create)
        await self._sessions.append(scope_of(session), session, batch)

    async def append(self, session: str, turn: Turn) -> None:
        batch = AppendBatch(id=f"batch-{turn.number}", messages=drafts_of(turn))
        await self._sessions.append(scope_of(session), session, batch)

    async def load(self, session: str) -> int:
        return len((await self._sessions.messages(scope_of(session), session, _NEWEST)).messages)

    async def cycle(self, session: str, turn: Turn) -> int:
        return await self._cycle(session, turn, IdempotencyKey(key=f"key-{turn.number}", fingerprint="body"))

    async def _cycle(self, session: str, turn: Turn, key: IdempotencyKey | None) -> int:
        question, answer = drafts_of(turn)
        request = BeginTurn(
            session_id=session,
            turn_id=f"turn-{turn.number}",
            user_messages=(question,),
            window=WINDOW,
            idempotency_key=key,
        )
        begun = await self._sessions.begin_turn(scope_of(session), request)
        await self._sessions.finish_turn(begun, FinishTurn(reply=(answer,), usage=_USAGE))
        return len(begun.window)

    async def close(self) -> None:
        await self.engine.close()


class UnkeyedStore(BareStore):
    """The engine whose callers send no idempotency keys."""

    async def cycle(self, session: str, turn: Turn) -> int:
        return await self._cycle(session, turn, None)


async def open_engine(url: str) -> Engine:
    """The engine over the backend of the URL; SQLite with `synchronous=FULL`, which is the default."""
    return await Engine(await open_records(url), chance=Random(1)).__aenter__()


async def open_bare(url: str) -> BareStore:
    """The engine alone, with sessions in use."""
    return BareStore(await open_engine(prefixed(url)))


async def open_unkeyed(url: str) -> UnkeyedStore:
    """The same without idempotency keys."""
    return UnkeyedStore(await open_engine(prefixed(url)))
