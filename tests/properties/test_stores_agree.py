"""A state machine drives each store beside the in-memory one: every answer and every refusal must be the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from msgspec.structs import replace

from tenuto.errors import SequenceGap, SessionBusy, TenutoError, VersionConflict
from tenuto.model import (
    AppendBatch,
    AppendResult,
    BeginTurn,
    Changes,
    FinishTurn,
    ForkRequest,
    IdempotencyKey,
    Message,
    NewSession,
    OpenTurn,
    Page,
    Producer,
    Retention,
    Rewrite,
    Scope,
    SessionQuery,
    StateChange,
    Status,
    Touch,
    Truncation,
    Usage,
    text_part,
)
from tenuto.model.scope import site_scope
from tenuto.model.turn import Trace
from tenuto.ports import Store
from tests.backends import BACKENDS, COMBINED, REDIS_CLUSTER, Backend, LastingPool, Place
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.samples import ACME, ANN, ANN_ELSEWHERE, BOB, EVE, SENT_AT, answers, fresh, says

IDS = st.sampled_from(["a", "b", "c"])
SCOPES = st.sampled_from([ANN, ANN, ANN, BOB, ACME, EVE, ANN_ELSEWHERE, Scope(tenant="acme", user="bob", chat="x")])
KEYS = st.none() | st.builds(
    IdempotencyKey, key=st.sampled_from(["k1", "k2"]), fingerprint=st.sampled_from(["f1", "f1", "f2"])
)
PRODUCERS = st.none() | st.builds(Producer, id=st.just("p"), seq=st.integers(1, 4))
KEEPINGS = st.builds(
    Retention,
    idle=st.sampled_from([None, timedelta(minutes=30), timedelta(days=1)]),
    touch=st.sampled_from(Touch),
    max_messages=st.sampled_from([None, 3, 6]),
    max_turns=st.sampled_from([None, 2]),
)
VALUES: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["x", "y"]), st.none() | st.integers(-3, 3) | st.floats(0, 1) | st.just([]), max_size=2
)
NEW = st.none() | st.builds(NewSession, retention=KEEPINGS, title=st.sampled_from(["", "Tea", "茶"]), context=VALUES)
COUNTS = st.integers(0, 3)
# How many runs a store gets. Where all parts of it have as many runs elsewhere, in other combinations, few will do.
RUNS = 25
FEW_RUNS = 6
Call = Callable[[Store], Awaitable[Any]]


class Machine(RuleBasedStateMachine):
    """Both stores hear the same calls at the same times."""

    backend: Backend
    place: Place
    runner: asyncio.Runner

    def __init__(self) -> None:
        super().__init__()
        assert isinstance(self.place.clock, FakeClock)
        self.clock = self.place.clock
        self.stack = AsyncExitStack()
        self.turns: list[OpenTurn] = []
        self.said: list[Message] = []
        self.traces: list[Trace] = []
        self.model = MemoryStore(clock=self.clock)
        self.store: Store = self.runner.run(self._open())

    async def _open(self) -> Store:
        return await self.stack.enter_async_context(self.backend.open(self.place))

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())

    def both(self, call: Call) -> Any:
        """Call both stores, compare, and return what they agree on (`None` for a refusal)."""
        expected, got = self.runner.run(_outcome(call, self.model)), self.runner.run(_outcome(call, self.store))
        assert got == expected
        return None if isinstance(expected, tuple) and expected[:1] == ("refused",) else got

    @rule(scope=SCOPES, name=IDS, new=NEW, once=KEYS, producer=PRODUCERS, window=st.integers(0, 5), words=COUNTS)
    def begin(
        self, scope: Scope, name: str, new: NewSession | None, once: IdempotencyKey | None, producer: Producer | None,
        window: int, words: int,
    ) -> None:  # fmt: skip
        opening = BeginTurn(
            session_id=name,
            turn_id=fresh("turn"),
            user_messages=tuple(says(fresh("w")) for _ in range(words)),
            create=new,
            window=window,
            idempotency_key=once,
            producer=producer,
        )
        turn = self.both(lambda store: store.sessions.begin_turn(scope, opening))
        if turn is not None:
            self.turns.append(turn)
            self.said += turn.user_messages

    @rule(
        place=st.integers(0, 9), reply=COUNTS, abandoned=st.booleans(), context=VALUES, tokens=COUNTS,
        traced=st.booleans(),
    )  # fmt: skip
    def finish(
        self, place: int, reply: int, abandoned: bool, context: dict[str, Any], tokens: int, traced: bool
    ) -> None:
        if not self.turns:
            return
        turn = self.turns[-1 - place % min(len(self.turns), 3)]
        drafts = () if abandoned else tuple(answers(fresh("r")) for _ in range(reply))
        changes = Changes(context=context) if context else None
        trace = _trace(turn) if traced else None
        closing = FinishTurn(
            reply=drafts, usage=Usage(tokens=tokens), changes=changes, trace=trace, abandoned=abandoned
        )
        done = self.both(lambda store: _without_trace(store.sessions.finish_turn(turn, closing)))
        if done is not None:
            self.said += done.messages
            self.traces += (trace,) if trace else ()

    @rule()
    def renew(self) -> None:
        if self.turns:
            turn = self.turns[-1]
            self.both(lambda store: store.sessions.renew_turn(turn))

    @rule(scope=SCOPES, name=IDS, new=NEW, once=KEYS, producer=PRODUCERS, words=COUNTS)
    def append(
        self,
        scope: Scope,
        name: str,
        new: NewSession | None,
        once: IdempotencyKey | None,
        producer: Producer | None,
        words: int,
    ) -> None:
        drafts = tuple(draft(fresh("m")) for draft in (says, answers, says, answers)[:words])
        guard = {"idempotency_key": once} if once else {"producer": producer}
        batch = AppendBatch(id=fresh("batch"), messages=drafts, create=new, usage=Usage(cost_nanos=words), **guard)
        done = self.both(lambda store: store.sessions.append(scope, name, batch))
        if done is not None:
            self.said += done.messages

    @rule(scope=SCOPES, name=IDS)
    def get(self, scope: Scope, name: str) -> None:
        self.both(lambda store: store.sessions.get(scope, name))

    @rule(
        scope=SCOPES,
        name=IDS,
        limit=st.integers(1, 4),
        side=st.sampled_from(["", "before", "after"]),
        seq=COUNTS,
        touch=st.booleans(),
    )
    def page(self, scope: Scope, name: str, limit: int, side: str, seq: int, touch: bool) -> None:
        before, after = (seq * 2 if side == name else None for name in ("before", "after"))
        page = Page(limit=limit, before=before, after=after, touch=touch)
        self.both(lambda store: store.sessions.messages(scope, name, page))

    @rule(scope=SCOPES, limit=st.integers(1, 3), title=st.sampled_from([None, "t", "茶"]))
    def listing(self, scope: Scope, limit: int, title: str | None) -> None:
        query = SessionQuery(limit=limit, title=title)
        first = self.both(lambda store: store.sessions.list(scope, query))
        if first.cursor is not None:
            self.both(lambda store: store.sessions.list(scope, SessionQuery(limit=2, cursor=first.cursor)))

    @rule(scope=SCOPES, name=IDS, values=VALUES, version=st.none() | st.integers(1, 5), start=st.integers(1, 6))
    def patch(self, scope: Scope, name: str, values: dict[str, Any], version: int | None, start: int) -> None:
        changes = Changes(
            title=fresh("Title"), status=Status.INACTIVE, attributes=values, metadata=values, if_version=version,
            window_start=start,
        )  # fmt: skip
        self.both(lambda store: store.sessions.patch(scope, name, changes))

    @rule(scope=SCOPES, name=IDS, sparing=VALUES.map(tuple))
    def reset(self, scope: Scope, name: str, sparing: tuple[str, ...]) -> None:
        self.both(lambda store: store.sessions.reset(scope, name, keep_metadata=tuple(sparing)))

    @rule(scope=SCOPES, name=IDS, new_id=IDS, at=st.none() | st.integers(0, 5))
    def fork(self, scope: Scope, name: str, new_id: str, at: int | None) -> None:
        if name != new_id:
            self.both(lambda store: store.sessions.fork(scope, name, ForkRequest(new_id=new_id, at=at)))

    @rule(
        scope=SCOPES, name=IDS, after=st.integers(0, 6), late=st.none() | st.integers(0, 1),
        sparing=st.lists(st.integers(0, 8), max_size=2),
    )  # fmt: skip
    def truncate(self, scope: Scope, name: str, after: int, late: int | None, sparing: list[int]) -> None:
        """As it stands, or guarded by the version of now or of a change ago."""
        head = self.both(lambda store: store.sessions.get(scope, name))
        version = None if late is None or head is None else head.version - late
        self.both(
            lambda store: store.sessions.truncate(
                scope, name, Truncation(after=after, if_version=version, keep_seqs=tuple(sparing))
            )
        )
        self.both(lambda store: store.sessions.messages(scope, name, Page(limit=4, after=after)))

    @rule(place=COUNTS, after=st.integers(0, 6))
    def make_room(self, place: int, after: int) -> None:
        """A turn, running or long over, takes back what shall make room for its reply."""
        if self.turns:
            turn = self.turns[-1 - place % min(len(self.turns), 3)]
            self.both(
                lambda store: store.sessions.truncate(
                    turn.scope, turn.session.id, Truncation(after=after, within_turn=turn)
                )
            )

    @rule(scope=SCOPES, name=IDS, places=st.lists(st.integers(0, 20), max_size=4), told=st.integers(0, 3))
    def rewrite(self, scope: Scope, name: str, places: list[int], told: int) -> None:
        """Any that were ever said, wherever: those of other sessions, and those that are gone, are passed over."""
        chosen = [self.said[-1 - place] for place in places if place < len(self.said)]
        rewriting = Rewrite(
            messages=tuple(replace(message, parts=(text_part(fresh("new")),), tokens=9) for message in chosen),
            traces=tuple(replace(trace, request=fresh("new")) for trace in self.traces[-told - 1 : -1]),
        )
        self.both(lambda store: store.sessions.rewrite(scope, name, rewriting))
        self.both(lambda store: store.traces.traces(scope, name))

    @rule(scope=SCOPES, name=IDS)
    def delete(self, scope: Scope, name: str) -> None:
        self.both(lambda store: store.sessions.delete(scope, name))

    @rule(by=st.sampled_from([1, 60, 119, 121, 1700, 90_000, -30]))
    def time_passes(self, by: int) -> None:
        self.clock.advance(timedelta(seconds=by))

    @rule()
    def sweep(self) -> None:
        self.both(lambda store: _as_set(store.upkeep.sweep()))

    @rule(scope=st.sampled_from([ANN, EVE]), keep=st.integers(0, 3))
    def evict(self, scope: Scope, keep: int) -> None:
        self.both(lambda store: store.upkeep.evict(scope, keep))

    @rule(scope=SCOPES, limit=st.integers(0, 3))
    def erase(self, scope: Scope, limit: int) -> None:
        self.both(lambda store: store.upkeep.erase(scope, limit))

    @rule(after=st.none() | SCOPES, limit=st.integers(0, 5))
    def spaces(self, after: Scope | None, limit: int) -> None:
        self.both(lambda store: store.upkeep.list_sites(after, limit))

    @rule(scope=SCOPES)
    def stats(self, scope: Scope) -> None:
        self.both(lambda store: store.upkeep.stats(scope))

    @rule(scope=SCOPES, key=IDS, value=VALUES, version=st.none() | st.integers(0, 2))
    def write_state(self, scope: Scope, key: str, value: dict[str, Any], version: int | None) -> None:
        self.both(lambda store: store.state.write_state(scope, "space", key, value, version))
        removal = StateChange(key=key, removes=True, if_version=version)
        changes = (StateChange(key="beside", value=value), removal)
        self.both(lambda store: store.state.change_states(scope, "space", changes))
        self.both(lambda store: store.state.read_states(scope, "space", (key, "beside")))
        self.both(lambda store: store.state.list_state(scope, "space"))
        self.both(lambda store: _named(store, scope))
        self.both(lambda store: _named(store, site_scope(scope)))


def _trace(turn: OpenTurn) -> Trace:
    return Trace(
        id=fresh("trace"), session_id=turn.session.id, turn_id=turn.id, number=turn.number, began_at=SENT_AT,
        assistant="general", request=fresh("asked"),
    )  # fmt: skip


async def _without_trace(done: Awaitable[AppendResult]) -> AppendResult:
    """The trace is told only where a policy has looked at it; what is stored of it, `traces` compares."""
    return replace(await done, trace=None)


async def _named(store: Store, scope: Scope) -> Any:
    """The order is each store's own."""
    return frozenset(await store.state.list_state_locations(scope))


async def _as_set(gone: Awaitable[Any]) -> Any:
    return frozenset((item.scope.tenant, item.scope.site, item.session_id) for item in await gone)


async def _outcome(call: Call, store: Store) -> Any:
    """The answer, or what exactly was refused."""
    try:
        return await call(store)
    except SessionBusy as error:
        return ("refused", error.code, error.retry_after)
    except VersionConflict as error:
        return ("refused", error.code, error.actual)
    except SequenceGap as error:
        return ("refused", error.code, error.expected)
    except TenutoError as error:
        # By its code: why a session does not exist for the caller, a store may know or not.
        return ("refused", error.code)


@pytest.mark.requirement("T3", "T5", "T20")
@pytest.mark.parametrize("backend", [*BACKENDS, *COMBINED], ids=lambda backend: backend.name)
def test_a_store_does_what_the_memory_store_does(
    backend: Backend, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Every port method, random calls: same answers, same refusals, same totals. A copy of the records
    into the memory store and back is the identity, and behaves as the original does."""
    folders = (tmp_path / str(number) for number in range(10**6))
    pools: dict[str, LastingPool] = {}
    loop = asyncio.Runner()

    class Driven(Machine):
        def __init__(self) -> None:
            folder = next(folders)
            folder.mkdir()
            self.backend = backend
            self.place = Place(clock=FakeClock(), folder=folder, server=request.getfixturevalue, pools=pools)
            self.runner = loop
            super().__init__()

    try:
        run_state_machine_as_test(
            Driven,
            settings=settings(
                max_examples=FEW_RUNS if backend in (*COMBINED, REDIS_CLUSTER) else RUNS,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        for pool in pools.values():
            loop.run(pool.end())
        loop.close()
