"""Tasks and agents' notes keep their promises on every store, and go in their time."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta

import pytest

from tenuto.errors import IdempotencyKeyReused, InvalidCursor, SessionNotFound, VersionConflict
from tenuto.model import Scope
from tenuto.model.scope import SYSTEM
from tenuto.model.task import NewTask, TaskQuery, TaskStatus
from tenuto.ports import Store
from tenuto.task_errors import TaskFinished, TaskNotFound
from tenuto.tasks import Tasks
from tests.backends import KEEPING_STATE
from tests.clock import FakeClock
from tests.samples import ACME, ANN, ANN_ELSEWHERE, BOB, EVE, batch
from tests.tasks import opened

pytestmark = [
    pytest.mark.requirement("E3", "E4", "E6", "E9", "E21", "T17"),
    pytest.mark.parametrize("backend", KEEPING_STATE, ids=lambda backend: backend.name),
]

HOUR, DAY, MINUTE = timedelta(hours=1), timedelta(days=1), timedelta(minutes=1)
LITTLE = timedelta(seconds=1)
CHAT = Scope(tenant="acme", channel="lark", chat="team", user="ann")


async def names_left(store: Store, scope: Scope) -> list[str]:
    """The drawers in which something of the scope's users is still kept."""
    return sorted(
        {name.namespace.partition(":")[0] for name in await store.state.list_state_locations(scope, limit=1000)}
    )


async def deadlines_left(store: Store) -> int:
    return len(await store.state.list_state(SYSTEM, "task-deadlines"))


# Tasks


@pytest.mark.requirement("E3")
async def test_a_task_lives_from_pending_to_its_end(tasks: Tasks, clock: FakeClock) -> None:
    new = await tasks.open(ANN, NewTask(type="review", goal="Read the contract"))
    clock.advance(MINUTE)
    turn = await tasks.begin(ANN, new.id)
    clock.advance(MINUTE)
    ended = await tasks.finish(ANN, new.id, result={"months": 12})

    assert (new.status, turn.status, ended.status) == (TaskStatus.PENDING, TaskStatus.RUNNING, TaskStatus.COMPLETED)
    assert (new.goal, new.session_id, new.completed_at) == ("Read the contract", None, None)
    assert (ended.created_at, ended.updated_at) == (new.created_at, clock())
    assert (ended.completed_at, ended.expires_at) == (clock(), clock() + DAY)
    assert (ended.result, ended.is_finished) == ({"months": 12}, True)
    assert new.version < turn.version < ended.version
    assert await tasks.get(ANN, new.id) == ended


async def test_a_task_that_failed_has_ended_too(tasks: Tasks) -> None:
    task = await opened(tasks, ANN)

    failed = await tasks.finish(ANN, task.id, failed=True, result="no such contract")

    assert (failed.status, failed.is_finished) == (TaskStatus.FAILED, True)


async def test_what_has_ended_changes_no_more_and_can_be_read(tasks: Tasks) -> None:
    task = await opened(tasks, ANN)
    board = tasks.board(ANN, task.id)
    entry = await board.write("a", 1, agent="x")
    lock = await board.lock("b", agent="x")
    await tasks.finish(ANN, task.id)

    for late in (
        tasks.begin(ANN, task.id),
        tasks.finish(ANN, task.id, failed=True),
        tasks.finish(ANN, task.id, result=1),
        board.write("a", 2, agent="x"),
        board.delete("a", agent="x"),
        board.lock("c", agent="x"),
        board.unlock("b", agent="x", token=lock.token),
        tasks.notes(ANN, task.id, "x").write("n", 1),
        tasks.notes(ANN, task.id, "x").delete("n"),
    ):
        with pytest.raises(TaskFinished):
            await late
    assert await board.read_entry("a") == entry


async def test_a_change_is_for_the_version_it_names(tasks: Tasks) -> None:
    task = await opened(tasks, ANN)

    with pytest.raises(VersionConflict) as excinfo:
        await tasks.finish(ANN, task.id, if_version=task.version - 1)
    ended = await tasks.finish(ANN, task.id, if_version=task.version)

    assert (excinfo.value.expected, excinfo.value.actual) == (task.version - 1, task.version)
    assert ended.is_finished
    with pytest.raises(VersionConflict):
        await tasks.delete(ANN, task.id, if_version=task.version)
    await tasks.delete(ANN, task.id, if_version=ended.version)


@pytest.mark.requirement("A7", "A25", "T1")
async def test_a_task_exists_for_its_owner_alone(tasks: Tasks) -> None:
    """Another user's, and one that never was, get the same answer."""
    task = await opened(tasks, ANN)
    kept = await tasks.board(ANN, task.id).write("a", 1, agent="x")

    for other in (BOB, EVE, ACME, ANN_ELSEWHERE, CHAT):
        for foreign in _everything(tasks, other, task.id):
            with pytest.raises(TaskNotFound) as excinfo:
                await foreign
            assert str(excinfo.value) == "task not found"
        assert (await tasks.list(other)).tasks == ()
    assert await tasks.board(ANN, task.id).read_entry("a") == kept


def _everything(tasks: Tasks, scope: Scope, task_id: str) -> list[Coroutine[None, None, object]]:
    """All that can be asked of a task."""
    board, notes = tasks.board(scope, task_id), tasks.notes(scope, task_id, "x")
    return [
        tasks.get(scope, task_id),
        tasks.begin(scope, task_id),
        tasks.finish(scope, task_id),
        tasks.delete(scope, task_id),
        board.read_entry("a"),
        board.view(),
        board.write("a", 2, agent="x"),
        board.delete("a", agent="x"),
        board.lock("a", agent="x"),
        board.unlock("a", agent="x", token=1),
        notes.read_entry("a"),
        notes.list(),
        notes.write("a", 1),
        notes.delete("a"),
    ]


async def test_a_chats_task_is_every_members(tasks: Tasks) -> None:
    task = await opened(tasks, CHAT)

    assert await tasks.get(Scope(tenant="acme", channel="lark", chat="team", user="bob"), task.id) == task


@pytest.mark.requirement("E9", "E2")
async def test_tasks_are_listed_oldest_first_by_session_and_status(tasks: Tasks, store: Store) -> None:
    """A conversation's tasks are found again. Those that have not ended, newest first."""
    for session in ("s", "other@example.com"):
        await store.sessions.append(ANN, session, batch("hello"))
    made = [await opened(tasks, ANN, session_id=name) for name in ("s", "other@example.com", "s")]
    alone = await tasks.open(ANN, NewTask(type="review"))
    ids = sorted(task.id for task in (*made, alone))  # In order of their opening, to the millisecond.

    everything = await tasks.list(ANN)
    of_session = await tasks.list(ANN, TaskQuery(session_id="s"))
    of_other = await tasks.list(ANN, TaskQuery(session_id="other@example.com"))
    pending = await tasks.list(ANN, TaskQuery(status=TaskStatus.PENDING))
    first = await tasks.list(ANN, TaskQuery(limit=3))
    rest = await tasks.list(ANN, TaskQuery(limit=3, cursor=first.cursor))
    upper = await tasks.list(ANN, TaskQuery(limit=3, newest_first=True))
    lower = await tasks.list(ANN, TaskQuery(limit=3, newest_first=True, cursor=upper.cursor))
    active, newest = await tasks.active(ANN, "s"), await tasks.active(ANN, "s", limit=1)
    await tasks.finish(ANN, made[0].id)

    assert [task.id for task in active] == sorted((made[0].id, made[2].id), reverse=True)
    assert (newest, await tasks.active(ANN, "s")) == (active[:1], (made[2],))
    assert [task.id for task in everything.tasks] == ids
    assert {task.id for task in of_session.tasks} == {made[0].id, made[2].id}
    assert [task.id for task in of_other.tasks] == [made[1].id]
    assert [task.id for task in pending.tasks] == [alone.id]
    assert [task.id for task in (*first.tasks, *rest.tasks)] == ids
    # Ids of one millisecond are in no order of time.
    made_last = [
        task.id for task in sorted(everything.tasks, key=lambda task: (task.created_at, task.id), reverse=True)
    ]
    assert [task.id for task in (*upper.tasks, *lower.tasks)] == made_last
    assert (everything.cursor, rest.cursor, lower.cursor) == (None, None, None)
    with pytest.raises(InvalidCursor):
        await tasks.list(ANN, TaskQuery(newest_first=True, cursor=first.cursor))


async def test_under_one_key_a_task_is_opened_once(tasks: Tasks, clock: FakeClock) -> None:
    """As long as it lives; then anew, as another, with nothing of the one before."""
    new = NewTask(type="review", goal="Read the contract")
    first = await tasks.open(ANN, new, idempotency_key="k")
    again = await tasks.open(ANN, new, idempotency_key="k")
    others = [
        await tasks.open(ANN, new, idempotency_key="l"),
        await tasks.open(BOB, new, idempotency_key="k"),
        await tasks.open(ANN, new),
    ]
    with pytest.raises(IdempotencyKeyReused):
        await tasks.open(ANN, NewTask(type="review", goal="Burn it"), idempotency_key="k")
    await tasks.board(ANN, first.id).write("a", 1, agent="x")
    await tasks.begin(ANN, first.id)
    begun = await tasks.open(ANN, new, idempotency_key="k")
    clock.advance(DAY)
    anew = await tasks.open(ANN, new, idempotency_key="k")

    assert again == first
    assert len({first.id, *(task.id for task in others)}) == 4
    assert (begun.id, begun.status) == (first.id, TaskStatus.RUNNING)
    assert (anew.created_at, anew.status) == (clock(), TaskStatus.PENDING)
    assert anew.id != first.id
    assert (await tasks.board(ANN, anew.id).view()).entries == ()
    assert {task.id for task in (await tasks.list(ANN)).tasks} == {anew.id}


@pytest.mark.requirement("E16")
async def test_an_old_lock_writes_nothing_into_the_next_task_of_the_key(tasks: Tasks, store: Store) -> None:
    """Tokens and versions begin anew, so the task is another, and the old one is not there."""
    new = NewTask(type="review")
    old = await tasks.open(ANN, new, idempotency_key="k")
    sleeper, held = tasks.board(ANN, old.id), await tasks.board(ANN, old.id).lock("a", agent="x")
    await tasks.delete(ANN, old.id)
    anew = await tasks.open(ANN, new, idempotency_key="k")
    again = await tasks.board(ANN, anew.id).lock("a", agent="x")

    assert (again.token, held.token) == (1, 1)
    for late in (
        sleeper.write("a", "old words", agent="x", token=held.token),
        sleeper.unlock("a", agent="x", token=held.token),
        tasks.begin(ANN, old.id, if_version=old.version),
        tasks.delete(ANN, old.id),
    ):
        with pytest.raises(TaskNotFound):
            await late
    assert (await tasks.board(ANN, anew.id).view()).entries == ()
    assert await tasks.open(ANN, new, idempotency_key="k") == anew
    await tasks.delete(ANN, anew.id)
    assert await store.state.list_state_locations(ANN) == ()


async def test_tasks_under_keys_are_swept_one_by_one(tasks: Tasks, store: Store, clock: FakeClock) -> None:
    """The deadline of one that went is none of the next one's."""
    new = NewTask(type="review")
    old = await tasks.open(ANN, new, idempotency_key="k")
    await tasks.board(ANN, old.id).write("a", 1, agent="x")
    clock.advance(DAY)
    anew = await tasks.open(ANN, new, idempotency_key="k")
    await tasks.board(ANN, anew.id).write("a", 2, agent="x")
    clock.advance(HOUR)

    for _ in range(3):
        assert await tasks.open(ANN, new, idempotency_key="k") == anew
    assert await deadlines_left(store) == 2
    early = await tasks.sweep()
    kept = await tasks.board(ANN, anew.id).view()
    clock.advance(DAY)
    late = await tasks.sweep()

    assert (early.tasks, len(kept.entries), late.tasks) == (0, 1, 1)
    assert await store.state.list_state_locations(ANN) == ()
    assert await store.state.state_keys(SYSTEM, "task-deadlines") == ()


@pytest.mark.requirement("S8")
async def test_a_task_comes_out_of_a_session_that_its_owner_has(tasks: Tasks, store: Store) -> None:
    """A task cannot be tied to another user's session."""
    await store.sessions.append(BOB, "bobs", batch("hello"))

    for session in ("bobs", "absent"):
        with pytest.raises(SessionNotFound):
            await tasks.open(ANN, NewTask(type="review", session_id=session))
    assert (await tasks.list(ANN)).tasks == ()


# Notes


@pytest.mark.requirement("E4", "E16", "T17")
async def test_notes_are_read_by_their_agent_alone(tasks: Tasks, clock: FakeClock) -> None:
    task = await opened(tasks, ANN)
    mine, other = tasks.notes(ANN, task.id, "x"), tasks.notes(ANN, task.id, "y")
    note = await mine.write("plan", ["a", 1])
    await mine.write("also", None)
    await other.write("plan", "other")

    assert (note.value, note.written_at, note.expires_at) == (["a", 1], clock(), clock() + HOUR)
    assert await mine.read_entry("plan") == note
    assert [each.key for each in await mine.list()] == ["also", "plan"]
    assert [each.value for each in await other.list()] == ["other"]
    assert await tasks.notes(ANN, task.id, "z").list() == ()
    assert (await tasks.board(ANN, task.id).view()).entries == ()


async def test_notes_are_changed_by_version_and_forgotten(tasks: Tasks, clock: FakeClock) -> None:
    notes = tasks.notes(ANN, (await opened(tasks, ANN)).id, "x")
    first = await notes.write("a", 1, if_version=0)

    second = await notes.write("a", 2, if_version=first.version)
    for refused in (notes.write("a", 3, if_version=first.version), notes.delete("a", if_version=first.version)):
        with pytest.raises(VersionConflict):
            await refused
    assert await notes.read_entry("a") == second
    assert (await notes.delete("a"), await notes.delete("a"), await notes.read_entry("a")) == (True, False, None)
    await notes.write("a", 4, if_version=0)
    clock.advance(HOUR)
    assert (await notes.write("a", 5, if_version=0)).value == 5


# Lifetimes


@pytest.mark.requirement("E6")
async def test_what_has_expired_is_gone_at_once(tasks: Tasks, clock: FakeClock) -> None:
    """A task after a day, notes after an hour, also without a sweep."""
    task = await opened(tasks, ANN)
    board, notes = tasks.board(ANN, task.id), tasks.notes(ANN, task.id, "x")
    await board.write("a", 1, agent="x")
    await notes.write("n", 1)
    clock.advance(HOUR - LITTLE)
    assert await notes.read_entry("n") is not None
    clock.advance(LITTLE)
    assert (await notes.read_entry("n"), await notes.list()) == (None, ())
    clock.advance(DAY - HOUR - LITTLE)
    assert await board.read_entry("a") is not None
    clock.advance(LITTLE)

    for gone in (tasks.get(ANN, task.id), board.read_entry("a"), board.write("a", 2, agent="x"), notes.list()):
        with pytest.raises(TaskNotFound):
            await gone
    assert (await tasks.list(ANN)).tasks == ()


async def test_a_change_of_the_task_moves_its_deadline(tasks: Tasks, clock: FakeClock) -> None:
    task = await opened(tasks, ANN)
    clock.advance(DAY - LITTLE)
    await tasks.begin(ANN, task.id)
    clock.advance(DAY - LITTLE)
    await tasks.sweep()

    assert (await tasks.get(ANN, task.id)).expires_at == clock() + LITTLE


@pytest.mark.parametrize("scope", [ANN, CHAT, ACME], ids=["user", "chat", "tenant"])
async def test_sweeping_removes_what_has_expired(tasks: Tasks, store: Store, clock: FakeClock, scope: Scope) -> None:
    """Also what belongs to no user: a tenant's own tasks stand in no list of owners."""
    old = await opened(tasks, scope)
    await tasks.board(scope, old.id).write("a", 1, agent="x")
    await tasks.notes(scope, old.id, "x").write("n", 1)
    clock.advance(HOUR)
    young = await opened(tasks, scope)
    kept = await tasks.board(scope, young.id).write("a", 2, agent="x")
    clock.advance(DAY - LITTLE)

    swept = await tasks.sweep()

    assert (swept.tasks, swept.more) == (1, False)
    assert await store.state.list_state(scope, f"task-board:{old.id}") == ()
    assert await store.state.list_state(scope, f"task-notes:{old.id}") == ()
    assert [entry.key for entry in await store.state.list_state(scope, "tasks")] == [young.id]
    assert await tasks.board(scope, young.id).read_entry("a") == kept
    clock.advance(HOUR)
    assert (await tasks.sweep()).tasks == 1
    assert (await deadlines_left(store), await names_left(store, scope)) == (0, [])


@pytest.mark.requirement("E21")
async def test_sweeping_takes_expired_notes_out_of_a_running_task(tasks: Tasks, store: Store, clock: FakeClock) -> None:
    """Long before the task is over, and those written since stay."""
    task = await opened(tasks, ANN)
    notes = tasks.notes(ANN, task.id, "x")
    await notes.write("old", "old words")
    clock.advance(HOUR)
    await notes.write("new", "new words")
    clock.advance(timedelta(minutes=20))

    await tasks.sweep()

    kept = await store.state.list_state(ANN, f"task-notes:{task.id}")
    assert [note.key for note in await notes.list()] == ["new"]
    assert sorted(str(entry.value.get("value", {})) for entry in kept) == ["{'new': 'new words'}", "{}"]


@pytest.mark.requirement("E21")
async def test_the_end_of_a_task_removes_its_notes(tasks: Tasks, store: Store) -> None:
    """At once, not when their hour is over."""
    task = await opened(tasks, ANN)
    await tasks.board(ANN, task.id).write("a", 1, agent="x")
    await tasks.notes(ANN, task.id, "x").write("n", 1)

    await tasks.finish(ANN, task.id)

    assert await store.state.list_state(ANN, f"task-notes:{task.id}") == ()
    assert await tasks.notes(ANN, task.id, "x").read_entry("n") is None
    assert len((await tasks.board(ANN, task.id).view()).entries) == 1


async def test_notes_that_a_dead_process_left_are_swept(tasks: Tasks, store: Store, clock: FakeClock) -> None:
    task = await opened(tasks, ANN)
    await tasks.finish(ANN, task.id)
    await store.state.write_state(ANN, f"task-notes:{task.id}", "late", {"value": {"n": "late words"}})
    clock.advance(timedelta(minutes=20))

    await tasks.sweep()

    assert await store.state.list_state(ANN, f"task-notes:{task.id}") == ()


async def test_a_deleted_task_leaves_nothing(tasks: Tasks, store: Store, clock: FakeClock) -> None:
    task = await opened(tasks, ANN)
    board = tasks.board(ANN, task.id)
    await board.write("a", 1, agent="x")
    await tasks.notes(ANN, task.id, "x").write("n", 1)

    await tasks.delete(ANN, task.id)
    left = await names_left(store, ANN)
    await store.state.write_state(ANN, f"task-board:{task.id}", "late", {"version": 1})
    clock.advance(2 * DAY)
    await tasks.sweep()

    assert left == []
    assert (await deadlines_left(store), await names_left(store, ANN)) == (0, [])
    with pytest.raises(TaskNotFound):
        await tasks.delete(ANN, task.id)


async def test_sweeping_goes_in_bounded_steps(tasks: Tasks, store: Store, clock: FakeClock) -> None:
    for _ in range(5):
        await tasks.open(ANN, NewTask(type="review"))
    clock.advance(2 * DAY)

    steps = [await tasks.sweep(limit=2) for _ in range(3)]

    assert [(step.tasks, step.more) for step in steps] == [(2, True), (2, True), (1, False)]
    assert await names_left(store, ANN) == []


@pytest.mark.requirement("E8")
async def test_a_damaged_task_is_absent_and_stops_no_other(tasks: Tasks, store: Store, clock: FakeClock) -> None:
    """Treated as absent; a deadline that cannot be read is dropped."""
    await store.state.write_state(ANN, "tasks", "damaged", {"type": 7})
    await store.state.write_state(SYSTEM, "task-deadlines", "000000000001:x", {"nobody": 1})
    task = await opened(tasks, ANN)

    with pytest.raises(TaskNotFound):
        await tasks.get(ANN, "damaged")
    assert [each.id for each in (await tasks.list(ANN)).tasks] == [task.id]
    clock.advance(2 * DAY)
    assert (await tasks.sweep()).tasks == 1


async def test_erasing_a_person_takes_their_tasks_and_leaves_others(tasks: Tasks, store: Store) -> None:
    mine, bobs, chats = await opened(tasks, ANN), await opened(tasks, BOB), await opened(tasks, CHAT)
    await tasks.board(ANN, mine.id).write("a", 1, agent="x")

    await store.upkeep.erase(ANN)
    forgotten = await tasks.drop_user_deadlines(ANN)

    assert forgotten > 0
    with pytest.raises(TaskNotFound):
        await tasks.get(ANN, mine.id)
    assert await tasks.get(BOB, bobs.id) == bobs
    assert await tasks.get(CHAT, chats.id) == chats
    whose = [entry.value.get("user") for entry in await store.state.list_state(SYSTEM, "task-deadlines")]
    assert sorted(map(str, whose)) == ["None", "bob"]
