"""What meets on a task: a write that is on its way while the task ends, goes, is erased or swept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta

import pytest

from tenuto.model.scope import SYSTEM
from tenuto.model.task import NewTask
from tenuto.ports import Store
from tenuto.task_errors import TaskFinished, TaskNotFound
from tenuto.tasks import Board, Tasks
from tests.backends import KEEPING_STATE
from tests.clock import FakeClock
from tests.held_calls import HeldCall
from tests.samples import ANN
from tests.tasks import opened, tasks_over

pytestmark = [
    pytest.mark.requirement("E19", "E21", "T17"),
    pytest.mark.parametrize("backend", KEEPING_STATE, ids=lambda backend: backend.name),
]

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
LITTLE = timedelta(seconds=1)
Late = Callable[[Tasks, str], Coroutine[None, None, object]]
Removal = Callable[[Tasks, Store, FakeClock, str], Awaitable[object]]


async def delete(tasks: Tasks, store: Store, clock: FakeClock, task_id: str) -> None:
    await tasks.delete(ANN, task_id)


async def erase(tasks: Tasks, store: Store, clock: FakeClock, task_id: str) -> None:
    await store.upkeep.erase(ANN)
    await tasks.drop_user_deadlines(ANN)


async def sweep(tasks: Tasks, store: Store, clock: FakeClock, task_id: str) -> None:
    clock.advance(HOUR)
    assert (await tasks.sweep()).tasks == 1


async def left(store: Store) -> tuple[int, int]:
    """How much is kept of Ann's tasks, and how many deadlines."""
    return len(await store.state.list_state_locations(ANN)), len(await store.state.state_keys(SYSTEM, "task-deadlines"))


@pytest.mark.parametrize("removal", [delete, erase, sweep])
@pytest.mark.parametrize("stood_before", [True, False], ids=["over another", "new key"])
async def test_a_write_that_lands_behind_its_task_leaves_nothing(
    tasks: Tasks, store: Store, clock: FakeClock, removal: Removal, stood_before: bool
) -> None:
    """Refused, and removed by its writer: no later step would remove it."""
    holding = HeldCall(store, "write_state", "task-board:")
    task = await tasks.open(ANN, NewTask(type="review"))
    if stood_before:
        await tasks.board(ANN, task.id).write("a", "old words", agent="x")
    clock.advance(DAY - LITTLE)
    late = asyncio.create_task(tasks_over(holding.store, clock).board(ANN, task.id).write("a", "late words", agent="x"))
    await holding.come()

    await removal(tasks, store, clock, task.id)
    holding.go()

    with pytest.raises(TaskNotFound):
        await late
    assert await left(store) == (0, 0)


@pytest.mark.parametrize(
    ("drawer", "act", "removal"),
    [
        ("task-notes:", lambda tasks, task_id: tasks.notes(ANN, task_id, "x").write("n", "late words"), delete),
        ("task-notes:", lambda tasks, task_id: tasks.notes(ANN, task_id, "x").write("n", "late words"), erase),
        ("tasks", lambda tasks, task_id: tasks.begin(ANN, task_id), erase),
    ],
    ids=["a note, deleted", "a note, erased", "a change, erased"],
)
async def test_a_note_or_change_that_lands_behind_its_task_leaves_nothing(
    tasks: Tasks, store: Store, clock: FakeClock, drawer: str, act: Late, removal: Removal
) -> None:
    holding = HeldCall(store, "write_state", drawer)
    task = await tasks.open(ANN, NewTask(type="review"))
    late = asyncio.create_task(act(tasks_over(holding.store, clock), task.id))
    await holding.come()

    await removal(tasks, store, clock, task.id)
    holding.go()

    with pytest.raises(TaskNotFound):
        await late
    assert await left(store) == (0, 0)


async def test_a_finished_board_keeps_what_stood_there(tasks: Tasks, store: Store, clock: FakeClock) -> None:
    """A write, a deletion and a lock that were on their way are refused, and undone."""
    late_calls: list[Callable[[Board], Coroutine[None, None, object]]] = [
        lambda board: board.write("a", "late words", agent="y"),
        lambda board: board.delete("a", agent="y"),
        lambda board: board.lock("a", agent="y"),
    ]
    for call in late_calls:
        holding = HeldCall(store, "write_state", "task-board:")
        task = await opened(tasks, ANN)
        before = await tasks.board(ANN, task.id).write("a", "words", agent="x")
        late = asyncio.create_task(call(tasks_over(holding.store, clock).board(ANN, task.id)))
        await holding.come()

        await tasks.finish(ANN, task.id)
        holding.go()

        with pytest.raises(TaskFinished):
            await late
        view = await tasks.board(ANN, task.id).view()
        assert (view.entries, view.locks) == ((before,), ())


@pytest.mark.requirement("E21")
async def test_nothing_new_lands_behind_the_end(tasks: Tasks, store: Store, clock: FakeClock) -> None:
    """Neither a key of the board nor a note."""
    late_calls: dict[str, Late] = {
        "task-board:": lambda tasks, task_id: tasks.board(ANN, task_id).write("a", 1, agent="x"),
        "task-notes:": lambda tasks, task_id: tasks.notes(ANN, task_id, "x").write("n", "late words"),
    }
    for drawer, act in late_calls.items():
        holding = HeldCall(store, "write_state", drawer)
        task = await opened(tasks, ANN)
        late = asyncio.create_task(act(tasks_over(holding.store, clock), task.id))
        await holding.come()

        await tasks.finish(ANN, task.id)
        holding.go()

        with pytest.raises(TaskFinished):
            await late
        assert (await tasks.board(ANN, task.id).view()).entries == ()
        assert await store.state.state_keys(ANN, f"task-notes:{task.id}") == ()


async def test_a_task_opened_during_an_erasure_goes_in_its_time(tasks: Tasks, store: Store, clock: FakeClock) -> None:
    """Opened before the list of deadlines is looked through, and between its own two entries."""
    holding = HeldCall(store, "write_state", "tasks")
    gone = await tasks.open(ANN, NewTask(type="review"))
    await store.upkeep.erase(ANN)
    since = await tasks.open(ANN, NewTask(type="review"))
    late = asyncio.create_task(tasks_over(holding.store, clock).open(ANN, NewTask(type="review")))
    await holding.come()

    await tasks.drop_user_deadlines(ANN)
    holding.go()
    last = await late

    assert {task.id for task in (await tasks.list(ANN)).tasks} == {since.id, last.id}
    assert not any(gone.id in key for key in await store.state.state_keys(SYSTEM, "task-deadlines"))
    clock.advance(DAY + HOUR)
    assert (await tasks.sweep()).tasks == 2
    assert await left(store) == (0, 0)


async def test_a_task_kept_alive_under_the_broom_stays(tasks: Tasks, store: Store, clock: FakeClock) -> None:
    """By a process whose clock is behind, and for which there was time left."""
    holding = HeldCall(store, "write_state", "tasks")
    task = await opened(tasks, ANN)
    elsewhere = tasks_over(store, FakeClock(task.expires_at - LITTLE))
    await tasks.board(ANN, task.id).write("a", 1, agent="x")
    clock.advance(DAY + HOUR)
    sweeping = asyncio.create_task(tasks_over(holding.store, clock).sweep())
    await holding.come()

    ended = await elsewhere.finish(ANN, task.id, result="in time")
    holding.go()
    swept = await sweeping

    assert swept.tasks == 0
    assert await tasks.get(ANN, task.id) == ended
    assert len((await tasks.board(ANN, task.id).view()).entries) == 1


async def test_whoever_comes_behind_the_broom_is_told_so(tasks: Tasks, store: Store, clock: FakeClock) -> None:
    """No task ends, with a result, that is removed in the next moment."""
    holding = HeldCall(store, "delete_state", "tasks")
    task = await opened(tasks, ANN)
    elsewhere = tasks_over(store, FakeClock(task.expires_at - LITTLE))
    clock.advance(DAY + HOUR)
    sweeping = asyncio.create_task(tasks_over(holding.store, clock).sweep())
    await holding.come()

    with pytest.raises(TaskNotFound):
        await elsewhere.finish(ANN, task.id, result="too late")
    holding.go()

    assert (await sweeping).tasks == 1


async def test_two_openings_under_an_expired_key_get_the_same(tasks: Tasks, store: Store, clock: FakeClock) -> None:
    """Neither removes what the other has just opened."""
    holding, new = HeldCall(store, "write_state", "tasks"), NewTask(type="review")
    old = await tasks.open(ANN, new, idempotency_key="k")
    await tasks.board(ANN, old.id).write("a", "old words", agent="x")
    clock.advance(DAY)
    late = asyncio.create_task(tasks_over(holding.store, clock).open(ANN, new, idempotency_key="k"))
    await holding.come()

    anew = await tasks.open(ANN, new, idempotency_key="k")
    holding.go()

    assert await late == anew
    assert [task.id for task in (await tasks.list(ANN)).tasks] == [anew.id]
    assert (await tasks.board(ANN, anew.id).view()).entries == ()
    assert await store.state.state_keys(ANN, f"task-board:{old.id}") == ()


async def test_no_task_is_swept_within_ten_minutes_behind_its_time(tasks: Tasks, clock: FakeClock) -> None:
    """Clocks of several machines differ: at whatever minute it expires."""
    clock.advance(timedelta(minutes=9, seconds=59))
    await opened(tasks, ANN)
    clock.advance(DAY + timedelta(minutes=9, seconds=59))
    early = await tasks.sweep()
    clock.advance(timedelta(minutes=11))

    assert (early.tasks, (await tasks.sweep()).tasks) == (0, 1)
