"""Sessions over a store in memory, with everything that they announced."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from tenuto.model import OpenTurn, Scope, TurnState
from tenuto.model.policy import SessionPolicy
from tenuto.sessions import EventEmitter, EventKind, SessionEvent, Sessions, TurnRequest
from tests.clock import FakeClock
from tests.doubles import FlatMemoryStore, MemoryStore
from tests.samples import closing, says


class MemorySessions:
    """Sessions over memory, with everything it announced."""

    def __init__(self, store: MemoryStore | FlatMemoryStore | None = None) -> None:
        self.clock = FakeClock()
        self.store = store or MemoryStore(clock=self.clock)
        self.heard: list[SessionEvent] = []

    def sessions(self, **policy: object) -> Sessions:
        given = {"busy_wait": timedelta(0), **policy}
        return Sessions(
            store=self.store.sessions,
            upkeep=self.store.upkeep,
            clock=self.clock,
            policy=replace(SessionPolicy(), **given),
            events=EventEmitter(clock=self.clock, listeners=[self._hear]),
        )

    async def _hear(self, event: SessionEvent) -> None:
        self.heard.append(event)

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.heard]


def turn_request(text: str, session_id: str | None = None, **fields: object) -> TurnRequest:
    return replace(TurnRequest(user_messages=(says(text),), session_id=session_id), **fields)


async def whole_turn(sessions: Sessions, scope: Scope, request: TurnRequest) -> OpenTurn:
    turn = await sessions.begin(scope, request)
    if turn.state is not TurnState.FINISHED:
        await sessions.finish(turn, closing("answer"))
    return turn
