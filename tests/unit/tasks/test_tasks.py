"""Tasks beside the rest of the house: upkeep, records that do not open, the privacy scan, contradictory policies."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

import tenuto
from tenuto.errors import (
    DecryptionFailed,
    Invalid,
    InvalidSetting,
    MasterKeyMissing,
    StateCorrupt,
    Unavailable,
    VersionConflict,
)
from tenuto.model import Scope, StateEntry
from tenuto.model.policy import SessionPolicy, TaskPolicy
from tenuto.model.privacy import Mode, PrivacyPolicy
from tenuto.model.scope import SYSTEM
from tenuto.model.task import NewTask, TaskQuery, TaskStatus
from tenuto.model.values import Json
from tenuto.ports import utc_now
from tenuto.privacy.compliance.service import PrivacyService
from tenuto.privacy.redacting_store import RedactingStore
from tenuto.privacy.redactor import NO_REDACTION
from tenuto.privacy.turn_redaction import UpkeepRedaction
from tenuto.sessions import EventEmitter, Sessions
from tenuto.settings import Settings, read_settings
from tenuto.task_errors import BoardFull, KeyLocked, KeyProtected, TaskNotFound
from tenuto.tasks import Tasks
from tenuto.upkeep import Upkeep
from tests.clock import FakeClock
from tests.doubles import FlatMemoryStore, MemoryStore
from tests.redactors import redactor_over
from tests.samples import ANN, BOB, EVE
from tests.tasks import opened, tasks_over

DAY = timedelta(days=1)


class Faulty(FlatMemoryStore):
    """Cannot list some drawers, nor open some values."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.failing: dict[str, Exception] = {}
        self.damaged: dict[str, Exception] = {}

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        keys = await self.state_keys(scope, namespace, after, limit)
        for key in keys:
            await self.read_state(scope, namespace, key)
        return await super().list_state(scope, namespace, after, limit)

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        if namespace in self.failing:
            raise self.failing[namespace]
        return tuple(entry.key for entry in await super().list_state(scope, namespace, after, limit))

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        if key in self.damaged:
            raise self.damaged[key]
        return await super().read_state(scope, namespace, key)


def faulty() -> tuple[FakeClock, Faulty, Tasks]:
    """Tasks over a store that fails as it is told."""
    clock = FakeClock()
    store = Faulty(clock)
    return clock, store, tasks_over(store, clock)


class Slow(FlatMemoryStore):
    """Lets others go first at every call, and counts the calls."""

    calls = 0

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        self.calls += 1
        entry = await super().read_state(scope, namespace, key)
        await asyncio.sleep(0)
        return entry

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        self.calls += 1
        await asyncio.sleep(0)
        return await super().write_state(scope, namespace, key, value, if_version)

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        self.calls += 1
        await asyncio.sleep(0)
        return await super().list_state(scope, namespace, after, limit)


async def upkeep_of(store: FlatMemoryStore, tasks: Tasks, clock: FakeClock, rounds: int) -> None:
    """Run upkeep for so many rounds."""
    rested = asyncio.Event()
    left = rounds

    async def rest(_: float) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            rested.set()
            await asyncio.Event().wait()

    sessions = Sessions(
        store=store.sessions, upkeep=store.upkeep, policy=SessionPolicy(), events=EventEmitter(clock=clock)
    )
    upkeep = Upkeep(
        sessions=sessions,
        tasks=tasks,
        redaction=UpkeepRedaction(NO_REDACTION),
        sweep_every=timedelta(minutes=5),
        clock=clock,
        pause=rest,
    )
    running = asyncio.create_task(upkeep.run())
    await rested.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.mark.requirement("E21")
async def test_upkeep_sweeps_tasks_beside_sessions() -> None:
    """Also in a round after one that met a store which was away."""
    clock, store, tasks = faulty()
    task = await opened(tasks, ANN)
    await tasks.board(ANN, task.id).write("a", 1, agent="x")
    clock.advance(2 * DAY)
    store.failing["task-deadlines"] = Unavailable("session store")
    await upkeep_of(store, tasks, clock, rounds=1)
    before = await store.list_state_locations(ANN)
    store.failing.clear()

    await upkeep_of(store, tasks, clock, rounds=1)

    assert len(before) > 1
    assert await store.list_state_locations(ANN) == ()


async def test_a_task_that_waits_for_its_key_is_put_off_and_keeps_no_other() -> None:
    clock, store, tasks = faulty()
    closed, fine = await opened(tasks, ANN), await opened(tasks, ANN)
    await tasks.board(ANN, closed.id).write("a", 1, agent="x")
    clock.advance(2 * DAY)
    store.damaged[closed.id] = MasterKeyMissing("abc")

    first = await tasks.sweep()
    at_once = await tasks.sweep()
    store.damaged.clear()
    clock.advance(timedelta(hours=2))
    await tasks.sweep()

    assert (first.tasks, at_once.tasks, at_once.more) == (1, 0, False)
    assert await store.list_state(ANN, f"task-board:{closed.id}") == ()
    with pytest.raises(TaskNotFound):
        await tasks.get(ANN, fine.id)


@pytest.mark.requirement("E8")
@pytest.mark.parametrize(
    "fault", [StateCorrupt("state value", "cannot be decoded"), DecryptionFailed("was changed")], ids=str
)
async def test_a_damaged_deadline_stops_neither_upkeep_nor_erasure(fault: Exception) -> None:
    """Those of all other tenants are found, and the damaged one is dropped."""
    clock, store, tasks = faulty()
    await tasks.open(ANN, NewTask(type="review"))
    await tasks.open(BOB, NewTask(type="review"))
    hers = await tasks.open(EVE, NewTask(type="review"))
    [key] = [key for key in await store.state_keys(SYSTEM, "task-deadlines") if key.endswith(hers.id)]
    store.damaged[key] = fault
    await store.erase(BOB)
    clock.advance(2 * DAY)

    assert await tasks.drop_user_deadlines(BOB) == 1
    assert (await tasks.sweep()).tasks == 1
    assert await store.state_keys(SYSTEM, "task-deadlines") == ()
    assert await store.list_state_locations(ANN) == ()


async def test_damaged_deadlines_do_not_end_the_round() -> None:
    """As many of them as one step takes: there are others behind."""
    clock, store, tasks = faulty()
    for key in ("000000000001:x", "000000000002:owner:"):
        await store.write_state(SYSTEM, "task-deadlines", key, {"tenant": "acme"})
    await tasks.open(ANN, NewTask(type="review"))
    clock.advance(2 * DAY)

    steps = [await tasks.sweep(limit=2), await tasks.sweep(limit=2)]

    assert [(step.tasks, step.more) for step in steps] == [(0, True), (1, False)]


@pytest.mark.requirement("E8")
async def test_damaged_tasks_and_entries_are_stepped_over() -> None:
    """In lists; asked for alone, a task is absent."""
    _, store, tasks = faulty()
    damaged, fine = await opened(tasks, ANN), await opened(tasks, ANN)
    board, notes = tasks.board(ANN, fine.id), tasks.notes(ANN, fine.id, "x")
    for key in ("a", "b"):
        await board.write(key, 1, agent="x")
        await notes.write(key, 1)
    [note_key, _] = await store.state_keys(ANN, f"task-notes:{fine.id}")
    for key in (damaged.id, "a", note_key):
        store.damaged[key] = StateCorrupt("state value", "cannot be decoded")

    assert [task.id for task in (await tasks.list(ANN)).tasks] == [fine.id]
    assert [entry.key for entry in (await board.view()).entries] == ["b"]
    assert [note.key for note in await notes.list()] == ["b"]
    with pytest.raises(TaskNotFound):
        await tasks.begin(ANN, damaged.id)


@pytest.mark.requirement("E21")
async def test_what_is_damaged_is_removed_unopened() -> None:
    """With the end of the task, with its deletion, and by upkeep."""
    clock, store, tasks = faulty()
    ended, deleted, expired = [await opened(tasks, ANN) for _ in range(3)]
    for task in (ended, deleted, expired):
        for key in ("a", "b"):
            await tasks.board(ANN, task.id).write(key, 1, agent="x")
            await tasks.notes(ANN, task.id, "x").write(key, 1)
    [note_key, _] = await store.state_keys(ANN, f"task-notes:{ended.id}")
    for key in ("a", note_key, expired.id):
        store.damaged[key] = StateCorrupt("state value", "cannot be decoded")

    assert (await tasks.finish(ANN, ended.id)).is_finished
    notes_left = await store.state_keys(ANN, f"task-notes:{ended.id}")
    await tasks.delete(ANN, deleted.id)
    clock.advance(2 * DAY)

    assert notes_left == ()
    assert (await tasks.sweep()).tasks == 2
    assert await store.list_state_locations(ANN) == ()


async def test_who_loses_a_new_key_takes_no_room() -> None:
    """Many agents try for the same few keys at once: as many keys fit as may be."""
    clock = FakeClock()
    store = Slow(clock=clock)
    tasks = tasks_over(store, clock, max_board_keys=10)
    board = tasks.board(ANN, (await opened(tasks, ANN)).id)

    for key in range(9):
        tries = (board.lock(f"k{key}", agent=f"x{n}") for n in range(5))
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(one, KeyLocked) for one in outcomes) == 4
    await board.write("last", 1, agent="x")

    with pytest.raises(BoardFull):
        await board.write("one more", 1, agent="x")


@pytest.mark.requirement("S8")
async def test_new_keys_do_not_wait_for_each_other() -> None:
    """What a write asks of the store does not grow with those beside it."""
    calls = []
    for many in (5, 50):
        clock = FakeClock()
        store = Slow(clock=clock)
        tasks = tasks_over(store, clock)
        board = tasks.board(ANN, (await opened(tasks, ANN)).id)
        store.calls = 0
        await asyncio.gather(*(board.write(f"k{n}", n, agent=f"x{n}") for n in range(many)))
        calls.append(store.calls / many)

    assert calls[0] == calls[1]


@pytest.mark.requirement("E16")
async def test_a_type_that_looks_private_still_names_its_owner() -> None:
    """The policy takes it out of what is stored, and only its owner may decide."""
    clock = FakeClock()
    plain = MemoryStore(clock=clock)
    store = RedactingStore(store=plain, redactor=redactor_over(plain, PrivacyPolicy(board=Mode.REDACT)))
    tasks = tasks_over(store, clock, owners={"ann.lee@example.com": "approver"})
    task = await opened(tasks, ANN, type="ann.lee@example.com")
    board = tasks.board(ANN, task.id)

    with pytest.raises(KeyProtected):
        await board.write("final_decision", "no", agent="decision-agent")
    assert task.type == "[REDACTED_EMAIL]"
    assert (await board.write("final_decision", "yes", agent="approver")).value == "yes"


async def test_a_listing_looks_at_a_bounded_number_of_tasks() -> None:
    """The rest comes by its cursor, also where a page has nothing."""
    clock = FakeClock()
    store = Slow(clock=clock)
    tasks = tasks_over(store, clock)
    for n in range(1100):
        head = {"type": "t", "status": "pending", "created_at": 0, "updated_at": 0, "expires_at": 2**52}
        await store.write_state(ANN, "tasks", f"00000000-0000-0000-0000-{n:012d}", head)
    last = await opened(tasks, ANN)
    store.calls = 0

    first = await tasks.list(ANN, TaskQuery(status=TaskStatus.RUNNING, limit=1))
    looks = store.calls
    rest = await tasks.list(ANN, TaskQuery(status=TaskStatus.RUNNING, limit=1, cursor=first.cursor))

    assert (first.tasks, first.cursor, looks) == ((), "00000000-0000-0000-0000-000000000999", 11)
    assert ([task.id for task in rest.tasks], rest.cursor) == ([last.id], None)


async def test_a_deleted_tasks_drawers_take_no_memory() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    tasks = tasks_over(store, clock)
    task = await opened(tasks, ANN)
    board = tasks.board(ANN, task.id)
    await board.write("a", 1, agent="x")
    with pytest.raises(VersionConflict):
        await store.state.write_state(ANN, "empty", "a", 1, if_version=7)

    await tasks.delete(ANN, task.id)
    clock.advance(2 * DAY)
    await tasks.sweep()

    assert store.memory.table.scan(b"", 100) == ()


@pytest.mark.parametrize("version", ["1", True, -1, 1.0])
async def test_what_is_no_version_is_refused(version: Any) -> None:
    clock = FakeClock()
    tasks = tasks_over(MemoryStore(clock=clock), clock)
    task = await opened(tasks, ANN)
    board, notes = tasks.board(ANN, task.id), tasks.notes(ANN, task.id, "x")

    for refused in (
        board.write("a", 1, agent="x", if_version=version),
        notes.write("a", 1, if_version=version),
        tasks.begin(ANN, task.id, if_version=version),
        tasks.delete(ANN, task.id, if_version=version),
    ):
        with pytest.raises(Invalid, match="if_version"):
            await refused


async def test_a_names_odd_signs_do_not_reach_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    tasks = tasks_over(MemoryStore(clock=clock), clock)
    task = await opened(tasks, ANN)
    board = tasks.board(ANN, task.id)
    await board.write("a", 1, agent="x" * 1000)

    with caplog.at_level("WARNING", logger="tenuto.tasks"):
        await board.write("a", 2, agent="y\nforged")
        await board.delete("a", agent="z")

    assert caplog.messages == [
        f"task {task.id}: the value of a by agent {'x' * 64} was overwritten by agent y?forged",
        f"task {task.id}: the value of a by agent y?forged was deleted by agent z",
    ]


async def test_a_store_that_is_away_ends_the_sweep_and_forgets_nothing() -> None:
    clock, store, tasks = faulty()
    task = await opened(tasks, ANN)
    clock.advance(2 * DAY)
    store.failing[f"task-board:{task.id}"] = Unavailable("session store")

    with pytest.raises(Unavailable):
        await tasks.sweep()
    store.failing.clear()
    await tasks.sweep()

    assert await store.list_state_locations(ANN) == ()


@pytest.mark.requirement("A11")
async def test_a_scan_mends_boards_and_notes_and_leaves_them_whole() -> None:
    """Stored when the policy was another; locks and versions hold on afterwards."""
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    tasks = tasks_over(store, clock)
    task = await opened(tasks, ANN, goal="Write to ann.lee@example.com")
    board, notes = tasks.board(ANN, task.id), tasks.notes(ANN, task.id, "x")
    await board.write("mail", "ann.lee@example.com", agent="ann.lee@example.com")
    lock = await board.lock("mail", agent="ann.lee@example.com")
    await notes.write("mail", {"deep": ["ann.lee@example.com"]})

    redactor = redactor_over(store, PrivacyPolicy(board=Mode.REDACT))
    office = PrivacyService(store=store, redactor=redactor, erase=store.upkeep.erase, clock=clock)
    *_, report = [report async for report in office.scan(ANN, fix=True, by="otto")]

    entry, [note] = await board.read_entry("mail"), await notes.list()
    assert report.fixed == 3
    assert entry is not None
    assert (entry.value, entry.writer, entry.version) == ("[REDACTED_EMAIL]", "[REDACTED_EMAIL]", 1)
    assert note.value == {"deep": ["[REDACTED_EMAIL]"]}
    assert (await tasks.get(ANN, task.id)).goal == "Write to [REDACTED_EMAIL]"
    written = await board.write("mail", 1, agent="ann.lee@example.com", token=lock.token, if_version=entry.version)
    assert written.previous_writer is None


@pytest.mark.requirement("T17")
async def test_the_state_of_an_application_changes_no_protected_key() -> None:
    """A scan does, since it applies the privacy policy."""
    async with tenuto.open("memory://", privacy_board="redact") as app:
        plain = tasks_over(app.stores.unredacted, utc_now)
        task = await opened(plain, ANN)
        board = plain.board(ANN, task.id)
        await board.write("final_decision", "write to a@example.com", agent="decision-agent")
        with pytest.raises(KeyProtected):
            await app.store.state.write_state(ANN, f"task-board:{task.id}", "final_decision", {})
        reports = [report async for report in app.privacy.scan(ANN, fix=True)]
        entry = await board.read_entry("final_decision")
        assert entry is not None
        assert (reports[-1].unreadable, entry.value) == (0, "write to [REDACTED_EMAIL]")


async def test_what_was_read_and_altered_is_not_what_is_stored() -> None:
    clock = FakeClock()
    tasks = tasks_over(MemoryStore(clock=clock), clock)
    board = tasks.board(ANN, (await opened(tasks, ANN)).id)
    given = {"list": [1]}
    entry = await board.write("a", given, agent="x")

    given["list"].append(2)
    entry.value["list"].append(3)

    kept = await board.read_entry("a")
    assert kept is not None
    assert kept.value == {"list": [1]}


@pytest.mark.parametrize("lease", [5, "5s", timedelta(0), timedelta(days=2)], ids=count())
async def test_a_lease_that_is_none_is_refused(lease: Any) -> None:
    clock = FakeClock()
    tasks = tasks_over(MemoryStore(clock=clock), clock)
    task = await opened(tasks, ANN)

    with pytest.raises(Invalid, match="a lock is held"):
        await tasks.board(ANN, task.id).lock("a", agent="x", lease=lease)


@pytest.mark.requirement("T20")
@pytest.mark.parametrize(
    ("setting", "given"),
    [
        ("agent_retention", {"agent_retention": timedelta(0)}),
        ("agent_retention", {"task_retention": timedelta(minutes=1)}),
        ("task_retention", {"task_retention": timedelta(0)}),
        ("lock_lease", {"lock_lease": timedelta(0)}),
        ("lock_lease", {"lock_lease": timedelta(days=2)}),
        ("max_board_keys", {"max_board_keys": 0}),
        ("max_board_value_bytes", {"max_board_value_bytes": 0}),
    ],
    ids=count(),
)
def test_a_contradictory_policy_is_refused_by_name(setting: str, given: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting) as excinfo:
        TaskPolicy(**given)  # type: ignore[arg-type]

    assert excinfo.value.setting == setting


@pytest.mark.requirement("T20")
@pytest.mark.parametrize(
    ("given", "blamed"),
    [
        ({"TENUTO_TASK_RETENTION": "0s"}, "task_retention"),
        ({"TENUTO_TASK_RETENTION": "30s", "TENUTO_AGENT_RETENTION": "1m"}, "agent_retention"),
        ({"TENUTO_AGENT_RETENTION": "2d"}, "agent_retention"),
    ],
    ids=count(),
)
def test_a_life_that_cannot_be_is_told_by_the_setting_that_was_set(given: dict[str, str], blamed: str) -> None:
    with pytest.raises(InvalidSetting) as excinfo:
        read_settings(given)

    assert excinfo.value.setting == blamed


@pytest.mark.requirement("E6")
def test_the_life_of_tasks_is_shortened_by_one_setting() -> None:
    """Notes, and locks of which nothing else is said, live no longer than their task."""
    policy = read_settings({"TENUTO_TASK_RETENTION": "30s"}).policies().tasks

    assert {policy.task_retention, policy.agent_retention, policy.lock_lease} == {timedelta(seconds=30)}


@pytest.mark.requirement("T20")
@pytest.mark.parametrize("owners", ["refund", "=x", "refund=", "a=b,a=c", "a=b,,c"])
def test_owners_that_cannot_be_read_stop_the_start(owners: str) -> None:
    with pytest.raises(InvalidSetting, match="task_owners"):
        Settings(task_owners=owners)


@pytest.mark.requirement("T20")
def test_tasks_follow_their_settings() -> None:
    policy = read_settings(
        {
            "TENUTO_TASK_RETENTION": "12h",
            "TENUTO_AGENT_RETENTION": "5m",
            "TENUTO_TASK_OWNERS": "refund=approver, contract review = counsel",
            "TENUTO_MAX_BOARD_KEYS": "7",
            "TENUTO_MAX_BOARD_VALUE_BYTES": "70",
        }
    ).policies().tasks  # fmt: skip

    assert (policy.task_retention, policy.agent_retention) == (timedelta(hours=12), timedelta(minutes=5))
    assert (policy.max_board_keys, policy.max_board_value_bytes) == (7, 70)
    assert [policy.owner_of(name) for name in ("refund", "contract review", "other")] == [
        "approver", "counsel", "decision-agent",
    ]  # fmt: skip
    assert [policy.protects(key) for key in ("final_decision", "protected.x", "final_decisions")] == [True, True, False]


def test_a_task_to_open_is_checked() -> None:
    for given in ({"type": ""}, {"type": "t", "goal": "a\0"}, {"type": "t", "session_id": ""}, {"type": 7}):
        with pytest.raises(Invalid):
            NewTask(**given)


@pytest.mark.parametrize("status", [None, TaskStatus.PENDING])
async def test_pages_of_the_newest_first_have_each_task_once(fake_clock: FakeClock, status: TaskStatus | None) -> None:
    """With and without a key, also of one moment, while others are opened, expire, and change."""
    tasks, made = tasks_over(MemoryStore(clock=fake_clock), fake_clock), list[str]()
    for number in range(60):
        key = f"k{number}" if number % 3 else None
        made.append((await tasks.open(ANN, NewTask(type="review"), idempotency_key=key)).id)
        fake_clock.advance(timedelta(seconds=number % 2))
    for task_id in made[1::4]:
        await tasks.begin(ANN, task_id)

    listed, cursor, places = list[str](), None, dict[str, Any]()
    while cursor is not None or not listed:
        page = await tasks.list(ANN, TaskQuery(limit=7, newest_first=True, cursor=cursor, status=status))
        listed += [task.id for task in page.tasks]
        places |= {task.id: (task.created_at, task.id) for task in page.tasks}
        cursor = page.cursor
        await tasks.open(ANN, NewTask(type="review"))

    wanted = set(made) - (set(made[1::4]) if status is TaskStatus.PENDING else set())
    assert set(listed) - set(made) == set()
    assert (len(listed), set(listed)) == (len(wanted), wanted)
    assert listed == sorted(listed, key=places.__getitem__, reverse=True)
