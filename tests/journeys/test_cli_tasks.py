"""An operator looks at what agents work on together, and removes it (E3, E5)."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

import tenuto
from tenuto.model.task import NewTask
from tenuto.ports import Clock, utc_now
from tests.journeys.desk import asked, typed

pytestmark = pytest.mark.usefixtures("own_environment")

EVIL = "\x1b]0;owned\x07 \u202etxt"


async def _worked_on() -> str:
    async with tenuto.open() as app:
        ann = app.scope(user="ann")
        session = (await app.sessions.create(ann, None))[0].id
        task = await app.tasks.open(ann, NewTask(type="review", goal=f"Read it {EVIL}", session_id=session))
        await app.tasks.begin(ann, task.id)
        board = app.tasks.board(ann, task.id)
        await board.write("months", 6, agent="reader")
        await board.write("months", 12, agent="lawyer")
        await board.write(f"odd {EVIL}", f"value {EVIL}", agent="reader")
        await board.lock("draft", agent="writer")
        await app.tasks.notes(ann, task.id, "lawyer").write("secret", "private thoughts")
        return task.id


async def _opened(clock: Clock = utc_now) -> str:
    async with tenuto.open(clock=clock) as app:
        return (await app.tasks.open(app.scope(user="ann"), NewTask(type="review"))).id


@pytest.fixture
def task() -> str:
    """A task of Ann's with a board that two agents wrote on, a lock, and notes."""
    return asyncio.run(_worked_on())


def test_tasks_are_listed(task: str) -> None:
    table = typed("tasks", "list", "--user", "ann")
    answer = asked("tasks", "list", "--user", "ann")

    assert table.exit_code == 0
    assert table.stdout.split()[:5] == ["ID", "TYPE", "STATUS", "CHANGED", "GOAL"]
    assert table.stdout.splitlines()[1].split()[:3] == [task, "review", "running"]
    assert [each["id"] for each in answer["tasks"]] == [task]
    session = answer["tasks"][0]["session_id"]
    assert asked("tasks", "list", "--user", "ann", "--session", session) == answer
    assert asked("tasks", "list", "--user", "ann", "--status", "failed")["tasks"] == []
    assert typed("tasks", "list", "--user", "bob").stdout == "No tasks.\n"
    assert typed("tasks", "list").stdout == "No tasks.\n"


def test_a_task_is_shown_with_its_board(task: str) -> None:
    page = typed("tasks", "show", task, "--user", "ann").stdout
    answer = asked("tasks", "show", task, "--user", "ann")

    rows = [line.split() for line in page.splitlines()]
    assert ["status", "running"] in rows
    assert any(row[:4] == ["months", "2", "lawyer", "reader"] and row[-1] == "12" for row in rows)
    assert any(row[:5] == ["draft", "is", "locked", "by", "writer"] for row in rows)
    assert "private thoughts" not in page + json.dumps(answer)
    assert [entry["key"] for entry in answer["board"]["entries"]] == ["months", f"odd {EVIL}"]
    assert [lock["holder"] for lock in answer["board"]["locks"]] == ["writer"]
    for printed in (page, typed("tasks", "show", task, "--user", "ann", "--json").stdout):
        assert not {"\x1b", "\x07", "\u202e"} & set(printed)


def test_a_long_listing_tells_how_to_go_on(task: str) -> None:
    later = asyncio.run(_opened())

    page = typed("tasks", "list", "--user", "ann", "--limit", "1").stdout
    rest = asked("tasks", "list", "--user", "ann", "--cursor", task)

    assert page.splitlines()[-1] == f"1 task shown, and there are more: --cursor {task}"
    assert [each["id"] for each in rest["tasks"]] == [later]


def test_a_task_is_removed(task: str) -> None:
    unasked = typed("tasks", "delete", task, "--user", "ann")
    foreign = typed("tasks", "delete", task, "--user", "bob", "--yes")
    deleted = typed("tasks", "delete", task, "--user", "ann", "--yes")
    again = typed("tasks", "delete", task, "--user", "ann", "--yes", "--json")

    assert unasked.exit_code == 2
    assert (foreign.exit_code, foreign.stderr) == (1, "task_not_found: task not found\n")
    assert (deleted.exit_code, deleted.stdout) == (0, f"Deleted {task}.\n")
    assert (again.exit_code, again.stderr) == (1, "task_not_found: task not found\n")
    assert asked("tasks", "list", "--user", "ann")["tasks"] == []


@pytest.mark.parametrize("command", ["show", "delete"])
def test_an_id_that_names_nothing_is_refused(task: str, command: str) -> None:
    yes = ["--yes"] if command == "delete" else []

    for named in ("absent", "..", "*", task.upper()):
        assert typed("tasks", command, named, "--user", "ann", *yes).stderr == "task_not_found: task not found\n"
    assert typed("tasks", command, "", "--user", "ann", *yes).exit_code != 0


def test_sweeping_takes_expired_tasks_along() -> None:
    long_ago = utc_now() - timedelta(days=3)
    asyncio.run(_opened(lambda: long_ago))

    first, second = asked("sweep"), typed("sweep")

    assert first == {"swept": 0, "tasks": 1, "usage": 0}
    assert second.stdout == "0 expired sessions and 0 expired tasks removed.\n"


def test_whoever_is_erased_leaves_no_task(task: str) -> None:
    """The receipt counts the states, and the deadlines that named them."""
    receipt = asked("privacy", "erase", "--user", "ann", "--yes")

    assert receipt["counts"]["states"] > 3
    assert receipt["counts"]["task_deadlines"] >= 2
    assert asked("tasks", "list", "--user", "ann")["tasks"] == []
