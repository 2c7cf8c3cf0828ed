"""Lists and numbers of a board are changed in one step under the rules of writes, and each key remembers who wrote."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from tenuto.errors import Invalid, InvalidJson, TooLarge
from tenuto.model.task import BoardChange
from tenuto.task_errors import KeyLocked, KeyProtected, LockLost, ValueMismatch
from tenuto.tasks import Board, Tasks
from tests.clock import FakeClock
from tests.doubles import MemoryStore
from tests.samples import ANN
from tests.tasks import opened, tasks_over

NOT_A_NUMBER: Any = "many"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def tasks(clock: FakeClock) -> Tasks:
    return tasks_over(MemoryStore(clock=clock), clock, max_board_value_bytes=100)


@pytest.fixture
async def board(tasks: Tasks) -> Board:
    board = tasks.board(ANN, (await opened(tasks, ANN)).id)
    await board.write("list", ["x" * 80], agent="x")
    await board.write("number", 2**64 - 1, agent="x")
    await board.write("truth", True, agent="x")
    await board.write("held", 1, agent="x")
    await board.lock("held", agent="x")
    return board


@pytest.mark.requirement("E16", "T17")
@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (lambda board: board.append("number", 1, agent="y"), ValueMismatch),
        (lambda board: board.increment("list", agent="y"), ValueMismatch),
        (lambda board: board.increment("truth", agent="y"), ValueMismatch),
        (lambda board: board.increment("new", NOT_A_NUMBER, agent="y"), Invalid),
        (lambda board: board.increment("new", True, agent="y"), Invalid),
        (lambda board: board.increment("new", float("inf"), agent="y"), InvalidJson),
        (lambda board: board.increment("number", agent="y"), InvalidJson),
        (lambda board: board.append("list", "x" * 20, agent="y"), TooLarge),
        (lambda board: board.append("new", "x" * 100, agent="y"), TooLarge),
        (lambda board: board.append("new", {1, 2}, agent="y"), InvalidJson),
        (lambda board: board.increment("held", agent="y"), KeyLocked),
        (lambda board: board.increment("held", agent="x", token=99), LockLost),
        (lambda board: board.append("final_decision", 1, agent="y"), KeyProtected),
        (lambda board: board.increment("protected.sum", agent="y"), KeyProtected),
    ],
)
async def test_what_does_not_fit_is_refused_and_changes_nothing(
    board: Board, change: Callable[[Board], Awaitable[object]], refusal: type[Exception]
) -> None:
    before = await board.view()

    with pytest.raises(refusal):
        await change(board)

    assert await board.view() == before
    assert len(await board.history()) == 4


async def test_a_missing_key_begins_a_list_or_a_sum(board: Board) -> None:
    first = await board.append("names", {"a": 1}, agent="x")
    second = await board.append("names", None, agent="y")
    total = [(await board.increment("sum", by, agent="x")).value for by in (1, 2.5, -4)]

    assert (first.value, second.value, second.previous_writer) == ([{"a": 1}], [{"a": 1}, None], "x")
    assert total == [1, 3.5, -0.5]


async def test_a_key_remembers_its_last_twenty_writes_and_deletions(board: Board, clock: FakeClock) -> None:
    for n in range(22):
        clock.advance(timedelta(seconds=1))
        await board.write("a", n, agent=f"agent-{n}")
    await board.delete("a", agent="x")
    await board.delete("a", agent="x")

    history = await board.history("a")
    assert [change.version for change in history] == list(range(4, 24))
    assert history[-2:] == (
        BoardChange(key="a", version=22, writer="agent-21", at=clock()),
        BoardChange(key="a", version=23, writer="x", at=clock(), deleted=True),
    )
    assert [change.key for change in await board.history()][:5] == ["held", "list", "number", "truth", "a"]
    assert (await board.history("absent"), (await board.history())[-20:]) == ((), history)
