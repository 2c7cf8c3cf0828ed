"""Clients: what they say, one step after another, and what they were told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from zlib import crc32

from msgspec.structs import replace

from tenuto.errors import SessionBusy, SessionExists, SessionNotFound, TenutoError, TurnLost, Unavailable
from tenuto.model import (
    AppendBatch,
    BeginTurn,
    Changes,
    Content,
    Draft,
    FinishTurn,
    ForkRequest,
    MessagePage,
    NewSession,
    Page,
    Retention,
    Rewrite,
    Role,
    Scope,
    TurnState,
    Usage,
    attachment_part,
    text_part,
)
from tenuto.model.scope import session_key
from tenuto.model.turn import IdempotencyKey, OpenTurn, Truncation
from tenuto.stores.engine import Engine
from tests.clock import START
from tests.simulation.hosts import ConnectionLost, Host
from tests.simulation.plan import FRESH, ClientPlan, ClientStep

if TYPE_CHECKING:
    from tests.simulation.world import World

SCOPE = Scope(tenant="acme", user="ann")
LEASE = timedelta(seconds=5)
REPLY_TOKENS = 5
_TIMEOUT = 40.0


@dataclass
class Said:
    """One message that a client sent: when first, and when it was told that it is stored."""

    id: str
    op: str
    session: str
    sent: float
    acked: float = float("inf")
    tokens: int = 0
    torn: bool = False


@dataclass
class Operation:
    """What a client wanted, and how it went. `attempts` counts begins of a turn."""

    id: str
    client: str
    session: str
    question: list[str]
    reply: list[str] = field(default_factory=list)
    attempts: int = 0


@dataclass
class Reading:
    """What a page of everything showed, and when it was asked for."""

    session: str
    asked: float
    page: MessagePage


class Client:
    """Somewhere a user: one step after another, sent again under its key until it is answered or patience ends."""

    def __init__(self, world: World, plan: ClientPlan) -> None:
        self.world = world
        self.plan = plan
        self.luck = world.stream(plan.name)
        self.at = plan.process
        self.count = 0
        self.fresh: str | None = None
        self.was_answered = False

    async def run(self) -> None:
        for step in self.plan.steps:
            await asyncio.sleep(step.pause)
            await self.take(step)

    async def take(self, step: ClientStep) -> None:
        """Take one step."""
        self.count += 1
        self.was_answered = False
        if step.session == FRESH:
            step = replace(step, session=self._fresh_session(step))
        kind, session = step.kind, step.session
        self.world.sessions.setdefault(session)
        if kind in ("edit", "remake"):
            await self._try_once(lambda engine: self._edit(engine, session, kind))
            return
        if kind == "read":
            await self._read(session)
            return
        op = Operation(f"{self.plan.name}.{self.count}", self.plan.name, session, [])
        self.world.operations.append(op)
        op.question = self._say(op, "q", 1 if kind == "turn" else step.size, 0 if kind == "turn" else 1)
        if kind == "turn":
            op.reply = self._say(op, "a", 1, 0)
        until = self.world.loop.time() + _TIMEOUT
        while not await self._attempt(step, op):
            if not (step.keyed and kind != "note") or self.world.loop.time() > until:
                break
            await asyncio.sleep(0.1 + self.luck.random())

    def _fresh_session(self, step: ClientStep) -> str:
        """The session that was created last, or for a turn now and then a new one."""
        if self.fresh is None or (step.kind == "turn" and self.luck.random() < 0.3):
            return f"{FRESH}-{self.plan.name}.{self.count}"
        return self.fresh

    def _say(self, op: Operation, part: str, count: int, tokens: int) -> list[str]:
        ids = [f"{op.id}.{part}{n}" for n in range(count)]
        now = self.world.loop.time() if part == "q" else float("inf")
        self.world.said.update((name, Said(name, op.id, op.session, now, tokens=tokens)) for name in ids)
        return ids

    async def _attempt(self, step: ClientStep, op: Operation) -> bool:
        """Send it once; whether there is nothing more to send."""
        is_known = bool(self.world.server.table.revision(session_key(SCOPE, op.session)))
        in_outage = is_known and self.world.faults.in_outage
        self.world.counts["calls in an outage"] += in_outage
        try:
            async with asyncio.timeout(step.gives_up_after):
                await (self._turn if step.kind == "turn" else self._append)(step, op)
            self.was_answered = True
        except (SessionBusy, TurnLost, Unavailable, ConnectionLost, TimeoutError) as error:
            self.world.tell(op.client, f"{op.id} {type(error).__name__}")
            self.world.counts["refused in an outage"] += in_outage and isinstance(error, Unavailable)
            if not isinstance(error, SessionBusy | TurnLost):
                self._move()
            # Without a key, only what was certainly not stored is sent again.
            return not step.keyed and not isinstance(error, SessionBusy)
        except TenutoError as error:
            self.world.stuck.append(f"{op.id} met {type(error).__name__}")
        return True

    def _move(self) -> None:
        self.at = (self.at + 1) % self.world.plan.processes

    def _host(self) -> Host:
        if self.plan.moves and self.luck.random() < 0.3:
            self._move()
        return self.world.hosts[self.at]

    async def _turn(self, step: ClientStep, op: Operation) -> None:
        op.attempts += 1
        request = BeginTurn(
            session_id=op.session,
            turn_id=f"{op.id}.turn{op.attempts}",
            user_messages=tuple(_draft(name) for name in op.question),
            create=NewSession(retention=_retention(op.session)),
            lease=LEASE,
            window=20,
            idempotency_key=IdempotencyKey(key=op.id, fingerprint="f") if step.keyed else None,
            journaled=True,
            new_id=op.session.startswith(FRESH) and op.session != self.fresh,
        )
        turn: OpenTurn = await self._host().call(lambda engine: engine.sessions.begin_turn(SCOPE, request))
        self._acknowledge(op.question)
        if op.session.startswith(FRESH):
            self.fresh = op.session
        if turn.state is TurnState.FINISHED:
            self._acknowledge(op.reply)
            return
        await asyncio.sleep(step.thinks)
        for name in op.reply:
            self.world.said[name].sent = min(self.world.said[name].sent, self.world.loop.time())
        reply = FinishTurn(
            reply=tuple(_draft(name, Role.ASSISTANT) for name in op.reply), usage=Usage(tokens=REPLY_TOKENS)
        )
        await self._host().call(lambda engine: engine.sessions.finish_turn(turn, reply))
        self._acknowledge(op.reply)

    async def _append(self, step: ClientStep, op: Operation) -> None:
        batch = AppendBatch(
            id=op.id,
            messages=tuple(_draft(name, tokens=1) for name in op.question),
            create=NewSession(retention=_retention(op.session)),
            idempotency_key=IdempotencyKey(key=op.id, fingerprint="f") if step.keyed and step.kind != "note" else None,
            journaled=True,
        )
        await self._host().call(lambda engine: engine.sessions.append(SCOPE, op.session, batch))
        self._acknowledge(op.question)

    def _acknowledge(self, names: list[str]) -> None:
        now = self.world.loop.time()
        for name in names:
            self.world.said[name].acked = min(self.world.said[name].acked, now)
        self.world.tell(self.plan.name, f"acknowledged {names}")

    async def _read(self, session: str) -> None:
        asked = self.world.loop.time()
        page = await self._try_once(lambda engine: engine.sessions.messages(SCOPE, session, Page(limit=1000)))
        if page is not None:
            self.world.readings.append(Reading(session, asked, page))
            self.world.tell(self.plan.name, f"read {session}: {len(page.messages)}")

    async def _try_once(self, make: Callable[[Engine], Awaitable[Any]]) -> Any:
        try:
            return await self._host().call(make)
        except (TenutoError, ConnectionLost, TimeoutError) as error:
            self.world.tell(self.plan.name, type(error).__name__)
            if not isinstance(error, SessionNotFound | SessionExists):
                self._move()
            return None

    async def _edit(self, engine: Engine, session: str, kind: str) -> Any:
        sessions = engine.sessions
        if not session.startswith("edited"):
            if kind == "remake":
                name = f"fork-{self.plan.name}.{self.count}-of-{session}"
                return await sessions.fork(SCOPE, session, ForkRequest(new_id=name))
            return await sessions.patch(SCOPE, session, Changes(title=f"title {self.count}"))
        if kind == "remake":
            await sessions.delete(SCOPE, session)
            return None
        page = await sessions.messages(SCOPE, session, Page(limit=3))
        match self.luck.randrange(3):
            case 0 if page.messages:
                cut = Truncation(after=page.messages[0].seq, if_version=page.session.version)
                return await sessions.truncate(SCOPE, session, cut)
            case 1:
                return await sessions.reset(SCOPE, session)
            case _:
                return await sessions.rewrite(SCOPE, session, Rewrite(messages=page.messages))


def content_of(name: str) -> Content | None:
    """What the message of a name shows, if anything: some show the same."""
    number = crc32(name.encode()) % 7
    return None if number > 2 else Content.of(SCOPE, bytes([number]) * 30, "image/png")


def _draft(name: str, role: Role = Role.USER, tokens: int = 0) -> Draft:
    content = content_of(name)
    parts = (text_part(name),) if content is None else (text_part(name), attachment_part(content))
    contents = () if content is None else (content,)
    return Draft(id=name, role=role, sent_at=START, parts=parts, contents=contents, tokens=tokens)


def _retention(session: str) -> Retention:
    return Retention(max_messages=8, max_turns=3) if session.startswith("capped") else Retention()
