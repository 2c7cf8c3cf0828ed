"""The world of a story: processes with an engine each, one store, clients that talk, and the faults of the plan."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from random import Random
from typing import Any

from tenuto.errors import (
    DecryptionFailed,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    TenutoError,
    TurnLost,
    Unavailable,
)
from tenuto.model import (
    AppendBatch,
    BeginTurn,
    Changes,
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
    text_part,
)
from tenuto.model.scope import session_key
from tenuto.model.turn import IdempotencyKey, OpenTurn, Truncation
from tenuto.stores.engine import Engine, changes, codec
from tenuto.stores.engine.codec import Codec
from tenuto.stores.engine.journal import Journal
from tenuto.stores.engine.rules import keys
from tests.clock import START
from tests.simulation.disk import FolderView, SimFolder
from tests.simulation.loop import Process, SimLoop, Stuck
from tests.simulation.plan import ClientPlan, ClientStep, FaultPlan, Plan
from tests.simulation.store import Fate, SimClient, SimServer

SCOPE = Scope(tenant="acme", user="ann")
LEASE = timedelta(seconds=5)
REPLY_TOKENS = 5
_PATIENCE = 40.0
_CALL_LIMIT = 15.0
_SETTLED = 30.0


class ConnectionLost(Exception):
    """The process died, or is not there."""


@dataclass
class Said:
    """One message that a client sent: when first, and when it was told that it is stored."""

    id: str
    op: str
    session: str
    sent: float
    acked: float = float("inf")
    tokens: int = 0


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


class CheckingSealer:
    """Seals with a checksum over body and place: enough to notice what is out of place."""

    def seal(self, plain: bytes, place: tuple[str, ...]) -> bytes:
        return blake2b(repr(place).encode() + plain, digest_size=8).digest() + plain

    def open(self, sealed: bytes, place: tuple[str, ...]) -> bytes:
        if self.seal(sealed[8:], place) != sealed:
            raise DecryptionFailed("was moved")
        return sealed[8:]


class OneCodec:
    """The same codec for every tenant."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def ready(self, scope: Scope) -> Codec:
        return self._codec

    async def load(self, scope: Scope, *, writing: bool = False, refresh: bool = False) -> Codec:
        return self._codec


class Host:
    """A place where a process runs: it may die and come back, and its clock may be wrong."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"process{number}"
        self.number = number
        self.skew = timedelta(0)
        self.starts = 0
        self.cut_until = 0.0
        self.process: Process | None = None
        self.engine: Engine | None = None
        self.client: SimClient | None = None
        self.calls: list[asyncio.Future[Any]] = []

    def clock(self) -> datetime:
        return START + timedelta(seconds=self.world.loop.time()) + self.skew

    def start(self) -> None:
        world = self.world
        self.starts += 1
        self.process = world.loop.add_process(f"{self.name}.{self.starts}")
        self.client = SimClient(world.server, self.name)
        self.engine = Engine(
            self.client,
            clock=self.clock,
            chance=world.stream(f"{self.name}.{self.starts}"),
            codecs=OneCodec(world.codec),
            folder=FolderView(world.folder, self) if world.plan.journals else None,
            max_sessions=20 if world.plan.journals else 4,
        )
        world.loop.spawn(self.process, self.engine.__aenter__())
        if self.engine.sessions.journal is not None:
            world.loop.spawn(self.process, self.engine.sessions.journal.run())

    def run_soon(self, make: Callable[[Journal], Any]) -> None:
        """Have the process's journal do something, as the process."""
        if self.process is None or self.engine is None or self.engine.sessions.journal is None:
            return
        self.world.loop.spawn(self.process, _run_journal(make, self.engine.sessions.journal))

    def kill(self) -> None:
        if self.process is None or self.client is None:
            return
        self.world.tell(self.name, "killed")
        self.world.loop.kill(self.process)
        self.world.folder.leave(self.process.name)
        self.world.server.clients.remove(self.client)
        self.process = self.engine = self.client = None
        calls, self.calls = self.calls, []
        for call in calls:
            if not call.done():
                call.set_exception(ConnectionLost())

    async def call(self, make: Callable[[Engine], Awaitable[Any]]) -> Any:
        """Run a call in the process, as over a connection: it ends when the process does."""
        world = self.world
        await asyncio.sleep(world.plan.latency * world.luck.random())
        world.event("called", self)
        if self.process is None or self.engine is None:
            raise ConnectionLost
        future: asyncio.Future[Any] = world.loop.create_future()
        self.calls.append(future)
        task = world.loop.spawn(self.process, _run(make, self.engine))
        task.add_done_callback(lambda done: _deliver(done, future), context=Context())
        try:
            result = await asyncio.wait_for(future, _CALL_LIMIT)
        except (asyncio.CancelledError, TimeoutError):
            task.cancel()
            raise
        finally:
            if future in self.calls:
                self.calls.remove(future)
        world.event("acknowledged", self)
        return result


async def _run_journal(make: Callable[[Journal], Any], journal: Journal) -> None:
    result = make(journal)
    if result is not None:
        await result


async def _run(make: Callable[[Engine], Awaitable[Any]], engine: Engine) -> Any:
    return await make(engine)


def _deliver(done: asyncio.Task[Any], future: asyncio.Future[Any]) -> None:
    if future.done():
        if not done.cancelled():
            done.exception()
    elif done.cancelled():
        future.cancel()
    elif failure := done.exception():
        future.set_exception(failure)
    else:
        future.set_result(done.result())


class World:
    """One run of a plan. What happened stands in `said`, `operations`, `readings` and `story` afterwards."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.luck = self.stream("world")
        self.loop = SimLoop(self.stream("loop"))
        self.server = SimServer(self.stream("network"), plan.latency)
        self.server.fate = self.fate
        self.server.on_commit = lambda process, changes: self.event("commit", self.host_named(process))
        self.folder = SimFolder()
        self.codec = Codec(CheckingSealer() if plan.sealed else None)
        self.hosts = [Host(self, number) for number in range(plan.processes)]
        self.said: dict[str, Said] = {}
        self.operations: list[Operation] = []
        self.readings: list[Reading] = []
        self.sessions: dict[str, None] = {}
        self.story: list[str] = []
        self.counts: Counter[str] = Counter()
        self.outage_until = 0.0
        self.outage_fate = Fate.REFUSED
        self.is_over = False
        self.stuck: list[str] = []

    def stream(self, purpose: str) -> Random:
        """Chance for one purpose, so that leaving out a step does not move the rest."""
        return Random(f"{self.plan.seed} {purpose}")

    def host_named(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def disk_delay(self) -> float:
        """How long the disk takes."""
        return self.plan.disk * (0.5 + self.luck.random())

    def tell(self, who: str, what: str) -> None:
        self.story.append(f"{self.loop.time():9.3f} {who}: {what}")

    @property
    def digest(self) -> str:
        """The same for two runs that went the same way."""
        return blake2b("\n".join(self.story).encode(), digest_size=8).hexdigest()

    def run(self) -> World:
        """Run the story to its end."""
        asyncio.set_event_loop(self.loop)
        try:
            with _small_limits():
                self.loop.run_until_complete(self._run())
        except Stuck as stuck:
            self.stuck.append(str(stuck))
        finally:
            asyncio.set_event_loop(None)
            self._abandon_tasks()
        return self

    def _abandon_tasks(self) -> None:
        """What killed processes left has not run on, and does not fail the next story."""
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # they were killed
            with suppress(BaseException):
                task.get_coro().close()
        self.loop.close()

    async def _run(self) -> None:
        for host in self.hosts:
            host.start()
        for fault in self.plan.faults:
            if not fault.event:
                self.loop.call_later(fault.at, self.strike, fault)
        await asyncio.gather(*[Client(self, plan).run() for plan in self.plan.clients])
        self.is_over = True
        self.outage_until = 0.0
        for host in self.hosts:
            host.cut_until = 0.0
            if host.process is None:
                host.start()
            host.process.frozen_until = 0.0  # type: ignore[union-attr]  # it was started
            host.client.feed.reconnect()  # type: ignore[union-attr]
        await asyncio.sleep(_SETTLED)
        await self._end()

    async def _end(self) -> None:
        """Every session takes a turn now, wherever; then all is read."""
        checker = Client(self, ClientPlan(name="checker", process=0, moves=True, steps=()))
        for session in list(self.sessions):
            step = ClientStep(kind="turn", session=session)
            await checker.take(step)
            if not checker.was_answered:
                self.stuck.append(f"{session} takes no turn")
            await checker.take(ClientStep(kind="read", session=session))
        if self.folder.rows:
            self.stuck.append(f"{self.folder.rows} rows wait in the journal")
        for host in self.hosts:
            assert host.engine is not None
            if host.engine.sessions.context.lanes:
                self.stuck.append(f"{host.name} has lanes that do not end")

    # Faults

    def fate(self, process: str, _kind: str) -> Fate:
        if self.is_over:
            return Fate.FINE
        now = self.loop.time()
        if now < self.outage_until or now < self.host_named(process).cut_until:
            return self.outage_fate
        roll = self.luck.random()
        for fate, rate in self.plan.rates.items():
            roll -= rate
            if roll < 0:
                return fate
        return Fate.FINE

    def event(self, kind: str, host: Host) -> None:
        """Something happened in a process: faults may be tied to it."""
        self.counts[kind] += 1
        self.counts[f"{kind} {host.name}"] += 1
        self.tell(host.name, kind)
        for fault in self.plan.faults:
            if (fault.event, fault.process, fault.nth) == (kind, host.number, self.counts[f"{kind} {host.name}"]):
                self.strike(fault)

    def strike(self, fault: FaultPlan) -> None:
        if self.is_over:
            return
        host, until = self.hosts[fault.process], self.loop.time() + fault.lasts
        self.tell(host.name, fault.kind)
        match fault.kind:
            case "outage":
                self.outage_until = until
                self.outage_fate = self.luck.choice((Fate.REFUSED, Fate.REQUEST_LOST))
            case "cut":
                host.cut_until = until
            case "freeze" if host.process is not None:
                host.process.frozen_until = until
            case "clock":
                host.skew += timedelta(seconds=self.luck.choice((-30, -3, 3, 30)))
            case "deaf" if host.client is not None:
                host.client.feed.disconnect()
                self.loop.call_later(fault.lasts, host.client.feed.reconnect, context=Context())
            case "kill":
                # A callback of the process may be on the stack: it ends first.
                self.loop.call_later(0, host.kill, context=Context())
                self.loop.call_later(fault.lasts, self._restart, host, context=Context())

    def _restart(self, host: Host) -> None:
        if host.process is None:
            self.tell(host.name, "started")
            host.start()


class Client:
    """Somewhere a user: one step after another, sent again under its key until it is answered or patience ends."""

    def __init__(self, world: World, plan: ClientPlan) -> None:
        self.world = world
        self.plan = plan
        self.luck = world.stream(plan.name)
        self.at = plan.process
        self.count = 0
        self.was_answered = False

    async def run(self) -> None:
        for step in self.plan.steps:
            await asyncio.sleep(step.pause)
            await self.take(step)

    async def take(self, step: ClientStep) -> None:
        """Take one step."""
        self.count += 1
        self.was_answered = False
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
        until = self.world.loop.time() + _PATIENCE
        while not await self._attempt(step, op):
            if not (step.keyed and kind != "note") or self.world.loop.time() > until:
                break
            await asyncio.sleep(0.1 + self.luck.random())

    def _say(self, op: Operation, part: str, count: int, tokens: int) -> list[str]:
        ids = [f"{op.id}.{part}{n}" for n in range(count)]
        now = self.world.loop.time() if part == "q" else float("inf")
        self.world.said.update((name, Said(name, op.id, op.session, now, tokens=tokens)) for name in ids)
        return ids

    async def _attempt(self, step: ClientStep, op: Operation) -> bool:
        """Send it once; whether there is nothing more to send."""
        is_known = bool(self.world.server.table.revision(session_key(SCOPE, op.session)))
        in_outage = is_known and self.world.loop.time() < self.world.outage_until
        self.world.counts["calls in an outage"] += in_outage
        try:
            async with asyncio.timeout(step.gives_up_after):
                await (self._turn if step.kind == "turn" else self._append)(step, op)
            self.was_answered = True
        except (SessionBusy, TurnLost, Unavailable, ConnectionLost, TimeoutError) as failure:
            self.world.tell(op.client, f"{op.id} {type(failure).__name__}")
            self.world.counts["refused in an outage"] += in_outage and isinstance(failure, Unavailable)
            if not isinstance(failure, SessionBusy | TurnLost):
                self._move()
            # Without a key, only what was certainly not stored is sent again.
            return not step.keyed and not isinstance(failure, SessionBusy)
        except TenutoError as failure:
            self.world.stuck.append(f"{op.id} met {type(failure).__name__}")
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
        )
        turn: OpenTurn = await self._host().call(lambda engine: engine.sessions.begin_turn(SCOPE, request))
        self._acknowledge(op.question)
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
        except (TenutoError, ConnectionLost, TimeoutError) as failure:
            self.world.tell(self.plan.name, type(failure).__name__)
            if not isinstance(failure, SessionNotFound | SessionExists):
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


@contextmanager
def _small_limits() -> Iterator[None]:
    """So small that logs outgrow their tails, keys their heads, and evictions come due within one story."""
    small = (
        (keys, "IN_HEAD", 3),
        (keys, "PAGE", 2),
        (changes, "EVICTION_BATCH", 3),
        (changes, "TAIL", 4),
        (codec, "TAIL", 4),
    )
    with ExitStack() as stack:
        for module, name, value in small:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        yield


def _draft(name: str, role: Role = Role.USER, tokens: int = 0) -> Draft:
    return Draft(id=name, role=role, sent_at=START, parts=(text_part(name),), tokens=tokens)


def _retention(session: str) -> Retention:
    return Retention(max_messages=8, max_turns=3) if session.startswith("capped") else Retention()
