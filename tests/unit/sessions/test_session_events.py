"""What sessions announce, and which go where there are more than a policy keeps."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from tenuto.errors import SessionNotFound, Unavailable
from tenuto.model import (
    Changes,
    NewSession,
    OpenTurn,
    RemovedSession,
    Rewrite,
    Scope,
    Session,
    SessionPage,
    SessionQuery,
    TurnState,
    text_part,
)
from tenuto.model.policy import OnMissing, SessionPolicy
from tenuto.sessions import AppendRequest, EventEmitter, EventKind, SessionEvent, Sessions, TurnRequest
from tests.clock import FakeClock
from tests.doubles import FlatMemoryStore
from tests.samples import ACME, ANN, BOB, closing, says, texts
from tests.unit.sessions.memory_sessions import MemorySessions, turn_request, whole_turn


@pytest.mark.requirement("B12", "B13")
async def test_the_oldest_sessions_make_room(harness: MemorySessions) -> None:
    """Above the maximum the oldest go, and it is announced."""
    sessions = harness.sessions(max_sessions=3)
    for n in range(5):
        await sessions.create(ANN, None, f"s{n}")
        harness.clock.advance(timedelta(seconds=1))

    listed = await sessions.list(ACME, SessionQuery())

    assert [session.id for session in listed.sessions] == ["s4", "s3", "s2"]
    assert [event.session_id for event in harness.heard if event.kind is EventKind.EVICTED] == ["s0", "s1"]


@pytest.mark.requirement("B13")
async def test_an_assistants_own_policy_removes_its_own_sessions_alone(harness: MemorySessions) -> None:
    """Those of other assistants stay, one that was used since stays longer, and each removal is announced."""
    sessions = harness.sessions()
    shop = replace(sessions.policy, max_sessions=3, on_missing=OnMissing.ADOPT)
    await sessions.create(BOB, None, "other")

    async def ask(number: int) -> None:
        harness.clock.advance(timedelta(seconds=1))
        new = NewSession(metadata={"assistant": "goods"})
        turn = await sessions.begin(BOB, turn_request("A question", f"g{number}", policy=shop, new_session=new))
        await sessions.finish(turn, closing("An answer"))

    async def drain() -> None:
        while sessions.over_cap:
            await sessions.trim()

    for number in (0, 1, 2, 0, *range(3, 22)):
        await ask(number)
        await drain()
    # Beginnings at once are counted once, whichever of them are listed.
    harness.clock.advance(timedelta(minutes=1))
    await asyncio.gather(*(ask(number) for number in range(22, 25)), drain())
    await drain()

    left = [session.id for session in (await sessions.list(ACME, SessionQuery())).sessions]
    evicted = [event.session_id for event in harness.heard if event.kind is EventKind.EVICTED]
    assert left == ["g24", "g23", "g22", "other"]
    assert evicted == ["g1", "g2", "g0", *(f"g{number}" for number in range(3, 22))]


class Intruded(FlatMemoryStore):
    """Counts listings and removals; whenever a head was read, `intrude` runs before the reader goes on."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.asked: Counter[str] = Counter()
        self.intrude: Callable[[str], Awaitable[object]] | None = None

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        self.asked["list"] += 1
        return await super().list(scope, query)

    async def get(self, scope: Scope, session_id: str) -> Session:
        head = await super().get(scope, session_id)
        if self.intrude is not None:
            await self.intrude(session_id)
        return head

    async def delete(self, scope: Scope, session_id: str) -> None:
        self.asked["delete"] += 1
        await super().delete(scope, session_id)


@pytest.mark.requirement("B13")
async def test_a_backlog_goes_in_portions_and_never_within_a_turn() -> None:
    """A session whose turn runs, or that changed since it was listed, stays, and its turn is not lost."""
    clock = FakeClock()
    store = Intruded(clock)
    harness = MemorySessions(store)
    harness.clock = clock
    sessions = harness.sessions(on_missing=OnMissing.ADOPT)
    shop = replace(sessions.policy, max_sessions=50)
    new = NewSession(metadata={"assistant": "goods"})
    turns: list[OpenTurn] = []
    for number in range(400):
        await sessions.create(BOB, new, f"g{number}")
        if number == 0:
            turns.append(await sessions.begin(BOB, turn_request("Running", "g0")))
        clock.advance(timedelta(milliseconds=10))
    turn = await sessions.begin(BOB, turn_request("A question", "new", policy=shop, new_session=new))
    await sessions.finish(turn, closing("An answer"))
    assert store.asked == {}

    async def intrude(session_id: str) -> None:
        if session_id == "g1":
            turns.append(await sessions.begin(BOB, turn_request("Meanwhile", "g1")))
        if session_id == "g2":
            await whole_turn(sessions, BOB, turn_request("Meanwhile", "g2"))

    store.intrude = intrude
    portions = []
    while sessions.over_cap:
        before = store.asked["delete"]
        await sessions.trim()
        portions.append(store.asked["delete"] - before)

    assert (portions, store.asked["list"]) == ([100, 100, 100, 51], 1)
    for open_turn in turns:
        await sessions.finish(open_turn, closing("Not lost"))
    left = {session.id for session in (await sessions.list(ACME, SessionQuery(limit=1000))).sessions}
    assert left == {"g0", "g1", "g2", "new", *(f"g{number}" for number in range(354, 400))}


class Forgetful(FlatMemoryStore):
    """Goes away whenever it is asked to evict."""

    async def evict(self, scope: Scope, keep: int, keep_session: str | None = None) -> tuple[RemovedSession, ...]:
        raise Unavailable("session store")


async def test_a_turn_stands_even_if_making_room_fails(caplog: pytest.LogCaptureFixture) -> None:
    """The words are stored by then: the caller must get its turn."""
    harness = MemorySessions(Forgetful(clock=FakeClock()))

    turn = await harness.sessions(max_sessions=1).begin(ANN, turn_request("hello"))

    assert turn.created
    assert "were not evicted" in caplog.text


async def test_a_caller_who_goes_while_room_is_made_leaves_the_session_free() -> None:
    """The turn has begun by then: its lease must not stay behind, and its key takes it up again."""
    making_room = asyncio.Event()

    class Slow(FlatMemoryStore):
        async def evict(self, scope: Scope, keep: int, keep_session: str | None = None) -> tuple[RemovedSession, ...]:
            making_room.set()
            await asyncio.Event().wait()
            raise AssertionError("nobody lets it go on")

    sessions = MemorySessions(Slow()).sessions(max_sessions=1, on_missing=OnMissing.ADOPT)
    gone = asyncio.create_task(sessions.begin(ANN, turn_request("Hello", "s", idempotency_key="k")))
    await making_room.wait()
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone

    again = await sessions.begin(ANN, turn_request("Hello", "s", idempotency_key="k"))

    assert (again.state, [message.text for message in again.user_messages]) == (TurnState.RESUMED, ["Hello"])


@pytest.mark.requirement("B2", "B15")
async def test_expiry_is_announced_once(harness: MemorySessions, caplog: pytest.LogCaptureFixture) -> None:
    """An info line and an event for each swept session."""
    caplog.set_level("INFO")
    sessions = harness.sessions()
    await sessions.create(ANN, None, "old")
    harness.clock.advance(timedelta(days=31))

    assert await sessions.sweep() == 1
    assert await sessions.sweep() == 0
    assert [event.session_id for event in harness.heard if event.kind is EventKind.EXPIRED] == ["old"]
    assert "session old expired" in caplog.text


async def test_expiry_found_by_a_turn_is_announced_too(harness: MemorySessions) -> None:
    sessions = harness.sessions(on_missing=OnMissing.ADOPT)
    await whole_turn(sessions, ANN, turn_request("hi", "s"))
    harness.clock.advance(timedelta(days=31))
    harness.heard.clear()

    await whole_turn(sessions, ANN, turn_request("hi again", "s"))

    assert harness.kinds() == [EventKind.EXPIRED, EventKind.CREATED, EventKind.UPDATED]


@pytest.mark.requirement("B15", "B18")
async def test_every_change_and_a_deletion_are_announced(harness: MemorySessions, sessions: Sessions) -> None:
    await sessions.create(ANN, None, "s")
    await sessions.patch(ANN, "s", Changes(title="T"))
    await sessions.append(ANN, "s", AppendRequest(messages=(says("x"),)))
    await sessions.reset(ANN, "s")
    await sessions.delete(ANN, "s")

    assert harness.kinds() == [EventKind.CREATED, *[EventKind.UPDATED] * 3, EventKind.DELETED]
    assert {(event.scope, event.session_id) for event in harness.heard} == {(ANN, "s")}
    assert [event.changed for event in harness.heard] == [(), ("title",), ("messages",), ("messages",), ()]


async def test_a_rewriting_is_announced_and_may_be_longer_than_words_may() -> None:
    harness = MemorySessions()
    sessions = harness.sessions(max_message_bytes=1024)
    turn = await sessions.begin(ANN, TurnRequest(user_messages=(says("secret"),)))
    session_id, message = turn.session.id, turn.user_messages[0]
    harness.heard.clear()

    marks = "[REDACTED_EMAIL] " * 100
    await sessions.rewrite(ANN, session_id, Rewrite(messages=(replace(message, parts=(text_part(marks),)),)))

    assert harness.kinds() == [EventKind.UPDATED]
    assert await texts(harness.store, ANN, session_id) == [marks]
    with pytest.raises(SessionNotFound):
        await sessions.rewrite(BOB, session_id, Rewrite())


async def test_a_listener_that_fails_harms_no_caller(harness: MemorySessions, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(event: SessionEvent) -> None:
        raise RuntimeError("listener is broken")

    heard: list[EventKind] = []

    async def sound(event: SessionEvent) -> None:
        heard.append(event.kind)

    events = EventEmitter(clock=harness.clock, listeners=[broken, sound])
    sessions = Sessions(
        store=harness.store.sessions, upkeep=harness.store.upkeep, policy=SessionPolicy(), events=events
    )

    await sessions.create(ANN, None, "s")

    assert heard == [EventKind.CREATED]
    assert "a listener failed" in caplog.text
