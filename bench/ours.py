"""Our own stores, opened as the application opens them and called through the port."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from bench.workload import WINDOW, Turn
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
from tenuto.ports import Backend
from tenuto.stores.factory import open_store

# The stored cap is lifted: histories of 10,000 messages are to stay that long.
FRESH: Final = NewSession(retention=Retention(max_messages=None))
_NEWEST: Final = Page(limit=WINDOW)
_USERS: Final = 64
_SEEDED_AT_ONCE: Final = 250


def scope_of(session: str) -> Scope:
    """Whose session it is: sessions are spread over some dozens of users."""
    return Scope(tenant="bench", user=f"user-{int(session.rsplit('-', 1)[1]) % _USERS}")


class Ours:
    """A cycle is `begin_turn` and `finish_turn`, with an idempotency key, a lease and totals."""

    def __init__(self, store: Backend) -> None:
        self._store = store

    async def seed(self, session: str, turns: Sequence[Turn]) -> None:
        for first in range(0, len(turns), _SEEDED_AT_ONCE):
            some = turns[first : first + _SEEDED_AT_ONCE]
            drafts = tuple(draft for turn in some for draft in drafts_of(turn))
            batch = AppendBatch(id=f"seed-{some[0].number}", messages=drafts, create=FRESH)
            await self._store.sessions.append(scope_of(session), session, batch)

    async def append(self, session: str, turn: Turn) -> None:
        batch = AppendBatch(id=f"batch-{turn.number}", messages=drafts_of(turn))
        await self._store.sessions.append(scope_of(session), session, batch)

    async def load(self, session: str) -> int:
        return len((await self._store.sessions.messages(scope_of(session), session, _NEWEST)).messages)

    async def cycle(self, session: str, turn: Turn) -> int:
        question, answer = drafts_of(turn)
        opening = BeginTurn(
            session_id=session,
            turn_id=f"turn-{turn.number}",
            user_messages=(question,),
            window=WINDOW,
            idempotency_key=IdempotencyKey(key=f"key-{turn.number}", fingerprint="body"),
        )
        begun = await self._store.sessions.begin_turn(scope_of(session), opening)
        closing = FinishTurn(reply=(answer,), usage=Usage(tokens=300, cost_nanos=1_250_000))
        await self._store.sessions.finish_turn(begun, closing)
        return len(begun.window)

    async def close(self) -> None:
        await self._store.close()


def drafts_of(turn: Turn) -> tuple[Draft, Draft]:
    """Question and answer as messages."""
    now = datetime.now(UTC)
    return (
        Draft(id=f"q-{turn.number}", role=Role.USER, sent_at=now, parts=(text_part(turn.user),)),
        Draft(id=f"a-{turn.number}", role=Role.ASSISTANT, sent_at=now, parts=(text_part(turn.assistant),)),
    )


async def open_ours(url: str) -> Ours:
    """The store of the URL; SQLite with `synchronous=FULL`, which is the default."""
    return Ours(await open_store(url))
