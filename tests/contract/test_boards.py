"""Boards keep their promises on every store: versions, locks, protected keys, limits."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import pytest_asyncio

from tenuto.errors import TooLarge, VersionConflict
from tenuto.model import Scope
from tenuto.model.policy import TaskPolicy
from tenuto.model.task import NewTask
from tenuto.ports import Store
from tenuto.task_errors import BoardFull, KeyLocked, KeyProtected, LockLost, TaskNotFound
from tenuto.tasks import Board, ProtectedStore, Tasks
from tests.backends import KEEPING_STATE
from tests.clock import FakeClock
from tests.samples import ANN
from tests.tasks import opened, tasks_over

pytestmark = [
    pytest.mark.requirement("E5", "E10", "E16", "E19", "S8", "T17"),
    pytest.mark.parametrize("backend", KEEPING_STATE, ids=lambda backend: backend.name),
]

HOUR, DAY, MINUTE = timedelta(hours=1), timedelta(days=1), timedelta(minutes=1)
LITTLE = timedelta(seconds=1)
ODD = ["a:b", "*", "../..", "a/b", " ", "🦊", "protected", "x" * 10_000, "task-board:", "%2e", "'; DROP TABLE state"]
CHAT = Scope(tenant="acme", channel="lark", chat="team", user="ann")


@pytest_asyncio.fixture(loop_scope="session")
async def board(tasks: Tasks) -> Board:
    """The board of a task of Ann's."""
    return tasks.board(ANN, (await opened(tasks, ANN)).id)


# The board


@pytest.mark.requirement("E5", "E10")
async def test_an_entry_tells_its_writer_and_time(board: Board, clock: FakeClock) -> None:
    value = {"clause": 7, "share": 0.5, "open": None, "who": ["a", "茶"]}

    entry = await board.write("findings", value, agent="labour-law")

    assert (entry.value, entry.writer, entry.written_at, entry.version) == (value, "labour-law", clock(), 1)
    assert entry.previous_writer is None
    assert await board.read_entry("findings") == entry
    assert await board.read_entry("absent") is None
    assert (await board.view()).entries == (entry,)


@pytest.mark.requirement("E16")
async def test_writing_over_another_agent_is_recorded_and_logged(
    tasks: Tasks, caplog: pytest.LogCaptureFixture
) -> None:
    """Allowed, told in the entry and in the log, which names ids and no values."""
    task = await opened(tasks, ANN)
    board = tasks.board(ANN, task.id)
    with caplog.at_level("INFO", logger="tenuto.tasks"):
        await board.write("a", "first words", agent="x")
        own = await board.write("a", "own words", agent="x")
        assert caplog.messages == []
        over = await board.write("a", "other words", agent="y")
        again = await board.write("a", "more words", agent="y")

    assert (own.previous_writer, over.previous_writer, again.previous_writer) == (None, "x", "x")
    assert caplog.messages == [f"task {task.id}: the value of a by agent x was overwritten by agent y"]


@pytest.mark.requirement("E16")
async def test_deleting_hides_nobody_who_was_written_over(board: Board) -> None:
    await board.write("a", 1, agent="x")

    await board.delete("a", agent="y")

    assert (await board.write("a", 2, agent="y")).previous_writer == "x"


async def test_a_write_is_for_the_version_it_names(board: Board) -> None:
    first = await board.write("a", 1, agent="x", if_version=0)
    second = await board.write("a", 2, agent="x", if_version=first.version)
    for stale in (0, first.version, 99):
        with pytest.raises(VersionConflict):
            await board.write("a", 3, agent="x", if_version=stale)
        with pytest.raises(VersionConflict):
            await board.delete("a", agent="x", if_version=stale)

    assert await board.read_entry("a") == second


async def test_a_deleted_key_counts_on(board: Board) -> None:
    """A version read before cannot overwrite what was written anew since."""
    before = await board.write("a", 1, agent="x")

    assert await board.delete("a", agent="x") is True
    assert (await board.delete("a", agent="x"), await board.delete("never", agent="x")) == (False, False)
    assert (await board.read_entry("a"), (await board.view()).entries) == (None, ())
    anew = await board.write("a", 2, agent="x", if_version=0)

    assert anew.version > before.version
    with pytest.raises(VersionConflict):
        await board.write("a", 3, agent="x", if_version=before.version)


@pytest.mark.requirement("E9", "E19", "S8", "T17")
async def test_parallel_writes_of_different_keys_all_survive_a_later_change_of_the_task(tasks: Tasks) -> None:
    task = await opened(tasks, ANN)
    board = tasks.board(ANN, task.id)

    async with asyncio.TaskGroup() as group:
        for n in range(12):
            group.create_task(board.write(f"k{n}", n, agent=f"agent-{n}"))
        group.create_task(tasks.begin(ANN, task.id))
    await tasks.finish(ANN, task.id, result="done")

    assert {entry.key: entry.value for entry in (await board.view()).entries} == {f"k{n}": n for n in range(12)}


@pytest.mark.requirement("E19")
async def test_parallel_writes_of_one_key_lose_nothing(board: Board) -> None:
    """Each adds one to what it read, and looks again when another was faster."""
    await board.write("sum", 0, agent="start")

    async def add_one(agent: str) -> None:
        while True:
            entry = await board.read_entry("sum")
            assert entry is not None
            try:
                await board.write("sum", entry.value + 1, agent=agent, if_version=entry.version)
                return
            except VersionConflict:
                continue

    async with asyncio.TaskGroup() as group:
        for n in range(6):
            group.create_task(add_one(f"agent-{n}"))

    entry = await board.read_entry("sum")
    assert entry is not None
    assert (entry.value, entry.version) == (6, 7)


@pytest.mark.requirement("T17")
async def test_sixteen_writers_of_one_board_lose_nothing(board: Board) -> None:
    """Each sends everything twice, as a client does whose answer was lost."""

    async def work(agent: str) -> None:
        for _ in range(2):
            await board.append("names", agent, agent=agent, idempotency_key=agent)
            await board.increment("sum", 3, agent=agent, idempotency_key=agent)

    agents = [f"agent-{n}" for n in range(16)]
    async with asyncio.TaskGroup() as group:
        for agent in agents:
            group.create_task(work(agent))

    names, total = (await board.view()).entries
    assert (sorted(names.value), total.value) == (sorted(agents), 48)
    for entry in (names, total):
        history = await board.history(entry.key)
        assert [change.version for change in history] == list(range(1, 17))
        assert sorted(change.writer for change in history) == sorted(agents)


@pytest.mark.requirement("E16", "T17")
async def test_a_protected_key_is_its_owners_alone(store: Store, clock: FakeClock) -> None:
    """Refused where boards are written, also to lock or delete; the owner is named by the task's type."""
    tasks = tasks_over(store, clock, owners={"refund": "approver"})
    by_default, refund = await opened(tasks, ANN), await opened(tasks, ANN, type="refund")

    for task, owner, other in ((by_default, "decision-agent", "approver"), (refund, "approver", "decision-agent")):
        board = tasks.board(ANN, task.id)
        for key in ("final_decision", "protected.", "protected.budget"):
            mine = await board.write(key, "yes", agent=owner)
            for refused in (
                board.write(key, "no", agent=other),
                board.delete(key, agent=other),
                board.lock(key, agent=other),
            ):
                with pytest.raises(KeyProtected):
                    await refused
            assert await board.read_entry(key) == mine
        assert (await board.write("protectedness", 1, agent=other)).writer == other


@pytest.mark.requirement("T17")
async def test_a_protected_key_is_refused_at_the_state_port(store: Store, clock: FakeClock) -> None:
    """Other ways to the state than a board change no protected key; reads and other keys pass."""
    front = ProtectedStore(store=store, policy=TaskPolicy())
    tasks = tasks_over(front.inner, clock)
    task = await opened(tasks, ANN)
    board = tasks.board(ANN, task.id)
    decided = await board.write("final_decision", "yes", agent="decision-agent")
    place = next(name for name in await front.state.list_state_locations(ANN) if name.key == "final_decision")
    entry = await front.state.read_state(ANN, place.namespace, place.key)
    assert entry is not None

    for refused in (
        front.state.write_state(ANN, place.namespace, place.key, entry.value, entry.version),
        front.state.write_state(ANN, place.namespace, "protected.new", {}),
        front.state.delete_state(ANN, place.namespace, place.key),
    ):
        with pytest.raises(KeyProtected):
            await refused

    assert await board.read_entry("final_decision") == decided
    assert await board.read_entry("protected.new") is None
    assert (await front.state.write_state(ANN, place.namespace, "other", {})).version == 1
    assert (await front.state.write_state(ANN, "facts", "final_decision", 1)).version == 1
    assert await front.state.delete_state(ANN, "facts", "final_decision")


# Locks


@pytest.mark.requirement("T17")
async def test_a_locked_key_is_its_holders_until_the_lease_ends(board: Board, clock: FakeClock) -> None:
    """Locks expire."""
    lock = await board.lock("a", agent="x", lease=MINUTE)
    clock.advance(MINUTE - LITTLE)

    for refused in (
        board.write("a", 1, agent="y"),
        board.write("a", 1, agent="x"),
        board.delete("a", agent="y"),
        board.lock("a", agent="y"),
    ):
        with pytest.raises(KeyLocked) as excinfo:
            await refused
        assert excinfo.value.retry_after == LITTLE
    mine = await board.write("a", 1, agent="x", token=lock.token)
    assert (await board.view()).locks == (lock,)
    clock.advance(LITTLE)
    theirs = await board.write("a", 2, agent="y")

    assert (mine.value, theirs.value, theirs.previous_writer) == (1, 2, "x")
    assert (await board.view()).locks == ()


async def test_what_an_older_lock_began_is_refused(board: Board, clock: FakeClock) -> None:
    """Fencing: the holder that slept through its lease writes nothing over the one who came after it."""
    old = await board.lock("a", agent="x", lease=MINUTE)
    clock.advance(HOUR)
    new = await board.lock("a", agent="y", lease=MINUTE)
    kept = await board.write("a", "new", agent="y", token=new.token)

    for late in (
        board.write("a", "old", agent="x", token=old.token),
        board.delete("a", agent="x", token=old.token),
        board.lock("a", agent="x", token=old.token),
        board.unlock("a", agent="x", token=old.token),
        board.write("a", "old", agent="x", token=new.token),
        board.unlock("a", agent="x", token=new.token),
    ):
        with pytest.raises(LockLost):
            await late

    assert new.token > old.token
    assert await board.read_entry("a") == kept
    assert (await board.view()).locks == (new,)


async def test_a_lock_that_ran_out_is_good_until_another_takes_it(board: Board, clock: FakeClock) -> None:
    lock = await board.lock("a", agent="x", lease=MINUTE)
    clock.advance(HOUR)

    held_on = await board.lock("a", agent="x", lease=HOUR, token=lock.token)
    entry = await board.write("a", 1, agent="x", token=lock.token)

    assert (held_on.token, held_on.expires_at) == (lock.token, clock() + HOUR)
    assert entry.version == 1


@pytest.mark.parametrize("over", ["write", "delete"])
async def test_a_lock_that_ran_out_is_lost_to_who_changes_the_key(board: Board, clock: FakeClock, over: str) -> None:
    """Fencing: also to one that needs no lock."""
    await board.write("a", "first", agent="x")
    old = await board.lock("a", agent="x", lease=MINUTE)
    clock.advance(HOUR)
    if over == "write":
        await board.write("a", "new", agent="y")
    else:
        await board.delete("a", agent="y")
    kept = await board.read_entry("a")

    for late in (
        board.write("a", "old", agent="x", token=old.token),
        board.delete("a", agent="x", token=old.token),
        board.lock("a", agent="x", token=old.token),
        board.unlock("a", agent="x", token=old.token),
    ):
        with pytest.raises(LockLost):
            await late
    assert await board.read_entry("a") == kept
    assert (await board.lock("a", agent="x")).token > old.token


@pytest.mark.requirement("E5")
async def test_a_lock_is_given_back_by_its_holder_and_tokens_only_grow(board: Board) -> None:
    """Also over unlocking and deleting."""
    tokens = []
    for _ in range(3):
        lock = await board.lock("a", agent="x")
        tokens.append(lock.token)
        await board.write("a", 1, agent="x", token=lock.token)
        await board.unlock("a", agent="x", token=lock.token)
        with pytest.raises(LockLost):
            await board.unlock("a", agent="x", token=lock.token)
        with pytest.raises(LockLost):
            await board.write("a", 2, agent="x", token=lock.token)
        await board.delete("a", agent="y")

    assert tokens == sorted(set(tokens))
    with pytest.raises(LockLost):
        await board.unlock("never", agent="x", token=1)


async def test_an_agent_that_begins_again_takes_its_own_lock_over(board: Board) -> None:
    before = await board.lock("a", agent="x")

    after = await board.lock("a", agent="x")

    assert after.token > before.token
    with pytest.raises(LockLost):
        await board.write("a", 1, agent="x", token=before.token)
    await board.write("a", 1, agent="x", token=after.token)


async def test_of_many_who_lock_at_once_one_does(board: Board) -> None:
    results = await asyncio.gather(*(board.lock("a", agent=f"x{n}") for n in range(6)), return_exceptions=True)

    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert sum(isinstance(result, KeyLocked) for result in results) == 5


async def test_an_agent_called_like_a_person_is_still_itself(board: Board) -> None:
    """The privacy policy may take its name out of what is stored; it holds its lock, and is not another one."""
    agent = "ann.lee@example.com"

    lock = await board.lock("a", agent=agent)
    await board.write("a", 1, agent=agent, token=lock.token)
    entry = await board.write("a", 2, agent=agent, token=lock.token)
    await board.unlock("a", agent=agent, token=lock.token)

    assert entry.previous_writer is None


@pytest.mark.requirement("E7", "T18")
async def test_odd_names_stay_inside(tasks: Tasks) -> None:
    """Keys, agents and types, however odd, meet no others."""
    beside = await opened(tasks, ANN)
    for name in ODD:
        task = await opened(tasks, ANN, type=name)
        board, notes = tasks.board(ANN, task.id), tasks.notes(ANN, task.id, name)
        entry, note = await board.write(name, "here", agent=name), await notes.write(name, "mine")
        lock = await board.lock(name, agent=name)

        assert (await board.read_entry(name), await notes.read_entry(name)) == (entry, note)
        assert ((await board.view()).entries, await notes.list()) == ((entry,), (note,))
        assert (await board.view()).locks == (lock,)
        assert await tasks.notes(ANN, task.id, name[:-1] or "z").list() == ()
        for missing in (name, f"{task.id}:", f"{task.id}{name}"):
            with pytest.raises(TaskNotFound):
                await tasks.get(ANN, missing)
    assert (await tasks.board(ANN, beside.id).view()).entries == ()


# Limits


async def test_a_board_and_each_agents_notes_are_bounded(store: Store, clock: FakeClock) -> None:
    tasks = tasks_over(store, clock, max_board_keys=2)
    task = await opened(tasks, ANN)
    board, notes = tasks.board(ANN, task.id), tasks.notes(ANN, task.id, "x")
    for key in ("a", "b"):
        await board.write(key, 1, agent="x")
        await notes.write(key, 1)
    await board.delete("a", agent="x")

    for refused in (board.write("c", 1, agent="x"), board.lock("c", agent="x"), notes.write("c", 1)):
        with pytest.raises(BoardFull):
            await refused
    await board.write("a", 2, agent="x")
    await notes.write("b", 2)
    await tasks.notes(ANN, task.id, "y").write("c", 1)

    assert [entry.key for entry in (await board.view()).entries] == ["a", "b"]


async def test_notes_that_are_gone_give_their_room_back(store: Store, clock: FakeClock) -> None:
    """A task may run for days, and its agents note something in each hour."""
    tasks = tasks_over(store, clock, max_board_keys=2)
    task = await opened(tasks, ANN)
    notes = tasks.notes(ANN, task.id, "x")
    for hour in range(3):
        for n in range(2):
            await notes.write(f"{hour}.{n}", "words")
        with pytest.raises(BoardFull):
            await notes.write("one more", "words")
        await notes.write(f"{hour}.0", "other words")
        clock.advance(HOUR)

    await notes.write("a", 1)
    await notes.write("b", 1)
    await notes.delete("a")
    await notes.write("c", 1)

    assert [note.key for note in await notes.list()] == ["b", "c"]


async def test_what_is_refused_takes_no_room(store: Store, clock: FakeClock) -> None:
    tasks = tasks_over(store, clock, max_board_keys=1)
    task = await opened(tasks, ANN)
    board, notes = tasks.board(ANN, task.id), tasks.notes(ANN, task.id, "x")
    for key in ("a", "b"):
        for refused in (board.write(key, 1, agent="x", token=3), board.lock(key, agent="x", token=3)):
            with pytest.raises(LockLost):
                await refused
        for stale in (board.write(key, 1, agent="x", if_version=3), notes.write(key, 1, if_version=3)):
            with pytest.raises(VersionConflict):
                await stale

    assert (await board.write("a", 1, agent="x")).version == 1
    assert (await notes.write("a", 1)).version == 1


async def test_a_large_value_is_refused_and_changes_nothing(tasks: Tasks) -> None:
    task = await opened(tasks, ANN)
    board, notes = tasks.board(ANN, task.id), tasks.notes(ANN, task.id, "x")
    million = "x" * 1_000_000
    small = await board.write("a", "small", agent="x")

    for refused in (
        board.write("a", million, agent="x"),
        notes.write("a", million),
        tasks.finish(ANN, task.id, result=million),
        tasks.open(ANN, NewTask(type="review", goal=million)),
    ):
        with pytest.raises(TooLarge):
            await refused

    assert await board.read_entry("a") == small
    assert (await notes.list(), (await tasks.get(ANN, task.id)).is_finished) == ((), False)
