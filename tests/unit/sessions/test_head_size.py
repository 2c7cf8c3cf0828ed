"""The size of a session's head: what counts, what is refused, and what stays possible."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest
from msgspec.structs import replace

from tenuto.errors import SessionNotFound, TooLarge, TurnLost, VersionConflict
from tenuto.model import Changes, FinishTurn, NewSession, OpenTurn, Scope, Session
from tenuto.model.policy import SessionPolicy
from tenuto.model.session import Status, head_bytes
from tenuto.sessions import EventEmitter, Sessions, TurnRequest
from tenuto.sessions.transfer import ExportedSession
from tests.clock import FakeClock
from tests.doubles import FlatMemoryStore, MemoryStore
from tests.samples import ANN, answers, says

LIMIT = 2048
HALF = "x" * 1000


def shell(store: MemoryStore | FlatMemoryStore, limit: int = LIMIT) -> Sessions:
    policy = SessionPolicy(max_head_bytes=limit, busy_wait=timedelta(0))
    return Sessions(store=store.sessions, upkeep=store.upkeep, policy=policy, events=EventEmitter(clock=FakeClock()))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=FakeClock())


@pytest.fixture
def sessions(store: MemoryStore) -> Sessions:
    return shell(store)


@pytest.mark.parametrize(
    "more",
    [Changes(context={"c": HALF}), Changes(attributes={"c": HALF}), Changes(metadata={"c": HALF})],
    ids=["context", "attributes", "metadata"],
)
async def test_values_count_together_whichever_part_they_stand_in(sessions: Sessions, more: Changes) -> None:
    session, _ = await sessions.create(ANN, NewSession(context={"a": HALF}))
    await sessions.patch(ANN, session.id, Changes(attributes={"b": HALF}))

    with pytest.raises(TooLarge) as excinfo:
        await sessions.patch(ANN, session.id, more)

    assert excinfo.value.limit_bytes == LIMIT
    assert HALF not in str(excinfo.value)
    head = await sessions.get(ANN, session.id)
    assert (head.context, head.attributes, head.metadata) == ({"a": HALF}, {"b": HALF}, {})


async def test_what_is_replaced_or_removed_makes_room(sessions: Sessions) -> None:
    session, _ = await sessions.create(ANN, NewSession(context={"a": HALF, "b": HALF[:900]}))

    await sessions.patch(ANN, session.id, Changes(context={"a": "short", "c": HALF}))
    await sessions.patch(ANN, session.id, Changes(context={"c": None}, metadata={"d": HALF}))

    head = await sessions.get(ANN, session.id)
    assert (head.context, head.metadata) == ({"a": "short", "b": HALF[:900]}, {"d": HALF})


async def test_a_head_of_a_more_generous_time_may_shrink_but_not_grow(store: MemoryStore) -> None:
    session, _ = await shell(store, 10_000).create(ANN, NewSession(context={"a": HALF * 3, "b": 1}))
    sessions = shell(store)

    with pytest.raises(TooLarge):
        await sessions.patch(ANN, session.id, Changes(context={"c": 1}))
    await sessions.patch(ANN, session.id, Changes(title="still patched", status=Status.ARCHIVED))
    await sessions.patch(ANN, session.id, Changes(context={"b": 2}))
    shrunk = await sessions.patch(ANN, session.id, Changes(context={"a": None, "c": 1}))

    assert shrunk.context == {"b": 2, "c": 1}


async def test_a_session_cannot_be_made_or_imported_with_too_large_a_head(sessions: Sessions) -> None:
    new = NewSession(metadata={"a": HALF * 3})
    saved = ExportedSession(new=new, messages=(says("hi"),))

    with pytest.raises(TooLarge):
        await sessions.create(ANN, new, session_id="s")
    with pytest.raises(TooLarge):
        await sessions.begin(ANN, TurnRequest(user_messages=(says("hi"),), new_session=new))
    with pytest.raises(TooLarge):
        await sessions.restore(ANN, saved)

    assert (await sessions.list(ANN)).sessions == ()


async def test_a_turn_whose_changes_are_too_large_can_still_be_finished_without_them(sessions: Sessions) -> None:
    turn = await sessions.begin(ANN, TurnRequest(user_messages=(says("hi"),)))
    reply = (answers("hello"),)

    with pytest.raises(TooLarge):
        await sessions.finish(turn, FinishTurn(reply=reply, changes=Changes(context={"a": HALF * 3})))
    done = await sessions.finish(turn, FinishTurn(reply=reply, changes=Changes(context={"a": HALF})))
    again = await sessions.finish(turn, FinishTurn(reply=reply, changes=Changes(context={"a": HALF})))

    assert (done.duplicate, again.duplicate) == (False, True)
    assert (done.session.messages, done.session.context) == (2, {"a": HALF})


def ticket(turn: OpenTurn) -> OpenTurn:
    """A turn as a door brings it back: it knows its session by name alone."""
    return replace(turn, session=replace(turn.session, version=0, context={}, attributes={}, metadata={}))


async def test_a_turn_known_by_its_ticket_alone_is_judged_by_the_stored_head(sessions: Sessions) -> None:
    turn = await sessions.begin(
        ANN, TurnRequest(user_messages=(says("hi"),), new_session=NewSession(context={"a": HALF}))
    )

    with pytest.raises(TooLarge):
        await sessions.finish(ticket(turn), FinishTurn(changes=Changes(attributes={"b": HALF * 2})))
    done = await sessions.finish(ticket(turn), FinishTurn(changes=Changes(attributes={"b": HALF})))

    assert (done.session.context, done.session.attributes) == ({"a": HALF}, {"b": HALF})


async def test_patches_beside_turns_let_a_head_outgrow_its_limit_once(sessions: Sessions) -> None:
    session, _ = await sessions.create(ANN)
    for number in range(3):
        turn = await sessions.begin(ANN, TurnRequest(user_messages=(says("hi"),), session_id=session.id))
        with suppress(TooLarge):
            await sessions.patch(ANN, session.id, Changes(context={f"beside{number}": HALF * 2}))
        try:
            await sessions.finish(turn, FinishTurn(changes=Changes(context={f"turn{number}": HALF * 2})))
        except TooLarge:
            await sessions.finish(turn, FinishTurn())

    head = await sessions.get(ANN, session.id)
    assert set(head.context) == {"beside0", "turn0"}
    assert head_bytes(head) < 2 * LIMIT


@pytest.mark.parametrize("known", [ticket, lambda turn: turn], ids=["by its ticket", "by itself"])
async def test_a_turn_of_a_deleted_session_is_lost_as_ever(
    sessions: Sessions, known: Callable[[OpenTurn], OpenTurn]
) -> None:
    turn = await sessions.begin(ANN, TurnRequest(user_messages=(says("hi"),)))
    await sessions.delete(ANN, turn.session.id)

    with pytest.raises(TurnLost):
        await sessions.finish(known(turn), FinishTurn(changes=Changes(context={"a": 1})))


class Interrupted(FlatMemoryStore):
    """Another client writes into the session each time its head has been read, as often as `times` says."""

    def __init__(self, times: int) -> None:
        super().__init__(clock=FakeClock())
        self.times = times

    async def get(self, scope: Scope, session_id: str) -> Session:
        head = await super().get(scope, session_id)
        if self.times:
            self.times -= 1
            await super().patch(scope, session_id, Changes(attributes={f"other{self.times}": "y" * 400}))
        return head


async def test_two_patches_that_fit_alone_but_not_together_are_not_both_stored() -> None:
    """The size is judged on the very version that the patch applies to."""
    store = Interrupted(times=0)
    sessions = shell(store)
    session, _ = await sessions.create(ANN, NewSession(context={"a": HALF}))
    store.times = 1

    with pytest.raises(TooLarge):
        await sessions.patch(ANN, session.id, Changes(context={"b": "x" * 800}))

    assert head_bytes(await sessions.get(ANN, session.id)) <= LIMIT


async def test_a_patch_without_a_version_outlasts_other_writers() -> None:
    store = Interrupted(times=0)
    sessions = shell(store)
    session, _ = await sessions.create(ANN)
    store.times = 3

    patched = await sessions.patch(ANN, session.id, Changes(context={"mine": 1}))
    store.times = 1
    with pytest.raises(VersionConflict) as excinfo:
        await sessions.patch(ANN, session.id, Changes(context={"mine": 2}, if_version=patched.version))

    assert patched.context == {"mine": 1}
    assert set(patched.attributes) == {"other0", "other1", "other2"}
    assert (excinfo.value.expected, excinfo.value.actual) == (patched.version, patched.version + 1)


async def test_a_patch_of_no_session_is_not_found(sessions: Sessions) -> None:
    with pytest.raises(SessionNotFound):
        await sessions.patch(ANN, "none", Changes(context={"a": 1}))
