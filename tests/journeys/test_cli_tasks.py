"""An operator looks at what agents work on together, removes it, and runs plans."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tenuto
from tenuto.cli.program import program
from tenuto.model.plan import parse_plan
from tenuto.model.task import NewTask
from tenuto.ports import Clock, utc_now
from tests.journeys.cli_runs import run_command, run_json

pytestmark = [pytest.mark.requirement("E3", "E5", "E14", "E15", "E17"), pytest.mark.usefixtures("own_environment")]

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
        plan = await app.tasks.add_plan(ann, task.id, parse_plan({"steps": [{"id": "ask", "human_input": "Sure?"}]}))
        await app.tasks.steps(ann, task.id).begin(plan.steps[0], waiting=True)
        await app.tasks.notes(ann, task.id, "lawyer").write("secret", "private thoughts")
        return task.id


async def _opened(clock: Clock = utc_now) -> str:
    async with tenuto.open(clock=clock) as app:
        return (await app.tasks.open(app.scope(user="ann"), NewTask(type="review"))).id


@pytest.fixture
def task() -> str:
    """A task of Ann's with a board that two agents wrote on, a lock, notes, and a step that waits for a person."""
    return asyncio.run(_worked_on())


def test_tasks_are_listed(task: str) -> None:
    table = run_command("tasks", "list", "--user", "ann")
    answer = run_json("tasks", "list", "--user", "ann")

    assert table.exit_code == 0
    assert table.stdout.split()[:5] == ["ID", "TYPE", "STATUS", "CHANGED", "GOAL"]
    assert table.stdout.splitlines()[1].split()[:5] == [task, "review", "waiting", "for", "input"]
    assert [each["id"] for each in answer["tasks"]] == [task]
    session = answer["tasks"][0]["session_id"]
    assert run_json("tasks", "list", "--user", "ann", "--session", session) == answer
    output = run_json("sessions", "show", session, "--user", "ann")["session"]
    assert output["active_tasks"] == [{"id": task, "status": "running"}]
    page = run_command("sessions", "show", session, "--user", "ann").stdout
    assert ["active", "task", task, "(running)"] in [line.split() for line in page.splitlines()]
    assert run_json("tasks", "list", "--user", "ann", "--status", "failed")["tasks"] == []
    assert run_command("tasks", "list", "--user", "bob").stdout == "No tasks.\n"
    assert run_command("tasks", "list").stdout == "No tasks.\n"


def test_a_task_is_shown_with_its_board(task: str) -> None:
    page = run_command("tasks", "show", task, "--user", "ann").stdout
    answer = run_json("tasks", "show", task, "--user", "ann")

    rows = [line.split() for line in page.splitlines()]
    assert ["status", "running,", "waiting", "for", "input:", "ask"] in rows
    assert any(row[:4] == ["months", "2", "lawyer", "reader"] and row[-1] == "12" for row in rows)
    assert any(row[:5] == ["draft", "is", "locked", "by", "writer"] for row in rows)
    assert "private thoughts" not in page + json.dumps(answer)
    assert [entry["key"] for entry in answer["board"]["entries"]] == ["months", f"odd {EVIL}"]
    assert [lock["holder"] for lock in answer["board"]["locks"]] == ["writer"]
    for printed in (page, run_command("tasks", "show", task, "--user", "ann", "--json").stdout):
        assert not {"\x1b", "\x07", "\u202e"} & set(printed)


def test_a_long_listing_tells_how_to_go_on(task: str) -> None:
    later = asyncio.run(_opened())

    page = run_command("tasks", "list", "--user", "ann", "--limit", "1").stdout
    rest = run_json("tasks", "list", "--user", "ann", "--cursor", task)

    assert page.splitlines()[-1] == f"1 task shown, and there are more: --cursor {task}"
    assert [each["id"] for each in rest["tasks"]] == [later]


def test_a_task_is_removed(task: str) -> None:
    unasked = run_command("tasks", "delete", task, "--user", "ann")
    foreign = run_command("tasks", "delete", task, "--user", "bob", "--yes")
    deleted = run_command("tasks", "delete", task, "--user", "ann", "--yes")
    again = run_command("tasks", "delete", task, "--user", "ann", "--yes", "--json")

    assert unasked.exit_code == 2
    assert (foreign.exit_code, foreign.stderr) == (1, "task_not_found: task not found\n")
    assert (deleted.exit_code, deleted.stdout) == (0, f"Deleted {task}.\n")
    assert (again.exit_code, again.stderr) == (1, "task_not_found: task not found\n")
    assert run_json("tasks", "list", "--user", "ann")["tasks"] == []


@pytest.mark.requirement("E25")
def test_the_log_of_a_conversation_tells_of_all_its_agents(task: str) -> None:
    """In order of time, without a value of the board or a note, and only of one's own tasks."""
    session = run_json("tasks", "list", "--user", "ann")["tasks"][0]["session_id"]

    table = run_command("tasks", "log", "--session", session, "--user", "ann").stdout
    events = run_json("tasks", "log", "--session", session, "--user", "ann")["events"]

    told = [(each["event"]["type"], each["event"]["agent"], each["event"]["key"]) for each in events]
    assert told[:4] == [
        ("task.opened", None, None),
        ("task.started", None, None),
        ("board.changed", "reader", "months"),
        ("board.changed", "lawyer", "months"),
    ]
    assert {each["task_id"] for each in events} == {task}
    assert run_json("tasks", "log", task, "--user", "ann")["events"] == events
    assert "private" not in table
    assert "value " not in table
    assert "\x1b" not in table
    assert run_command("tasks", "log", "--session", session, "--user", "bob").stdout == "No tasks.\n"
    assert run_command("tasks", "log", task, "--user", "bob").stderr == "task_not_found: task not found\n"
    assert run_command("tasks", "log", "--user", "ann").exit_code == 2


@pytest.mark.parametrize("command", ["show", "delete"])
def test_an_id_that_names_nothing_is_refused(task: str, command: str) -> None:
    yes = ["--yes"] if command == "delete" else []

    for named in ("absent", "..", "*", task.upper()):
        assert run_command("tasks", command, named, "--user", "ann", *yes).stderr == "task_not_found: task not found\n"
    assert run_command("tasks", command, "", "--user", "ann", *yes).exit_code != 0


def test_sweeping_takes_expired_tasks_along() -> None:
    long_ago = utc_now() - timedelta(days=3)
    asyncio.run(_opened(lambda: long_ago))

    first, second = run_json("sweep"), run_command("sweep")

    assert first == {"swept": 0, "tasks": 1, "usage": 0}
    assert second.stdout == "0 expired sessions and 0 expired tasks removed.\n"


def test_whoever_is_erased_leaves_no_task(task: str) -> None:
    """The receipt counts the states, and the deadlines that named them."""
    receipt = run_json("privacy", "erase", "--user", "ann", "--yes")

    assert receipt["counts"]["states"] > 3
    assert receipt["counts"]["task_deadlines"] >= 2
    assert run_json("tasks", "list", "--user", "ann")["tasks"] == []


# Plans

AGENTS = """
import tenuto

@tenuto.agent("reader")
async def read(ctx):
    if ctx.step == "bad" and await ctx.board.read("fixed") is None:
        await ctx.board.write("fixed", True)
        raise ValueError
    return ctx.goal
"""
STEPS = {
    "good": [{"id": "a", "agent": "reader"}],
    "bad": [{"id": "a", "agent": "reader"}, {"id": "bad", "agent": "reader", "after": ["a"]}],
    "cycle": [{"id": "a", "agent": "reader", "after": ["a"]}],
    "stranger": [{"id": "a", "agent": "stranger"}],
}


@pytest.fixture
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with agents and plans."""
    pytest.importorskip("dbos")
    monkeypatch.setenv("TENUTO_AGENTS", "agents")
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "readers.py").write_text(AGENTS)
    for name, steps in STEPS.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"goal": "Read it", "steps": steps}))
    return tmp_path


def test_a_plan_is_run_and_followed_to_its_end(plans: Path) -> None:
    result = run_command("tasks", "run", "good.json", "--user", "ann", "--goal", f"all {EVIL}")
    (listed,) = run_json("tasks", "list", "--user", "ann")["tasks"]
    followed = run_command("tasks", "follow", listed["id"], "--user", "ann")
    shown = run_command("tasks", "show", listed["id"], "--user", "ann").stdout

    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].startswith(f"Task {listed['id']} completed: ")
    assert "a: completed" in result.stdout.splitlines()
    assert not {"\x1b", "\x07", "\u202e"} & set(result.stdout + shown)
    # On a slow machine the first command sees the step run.
    assert (followed.exit_code, followed.stdout) == (0, result.stdout.replace("a: running\n", ""))
    assert ["a", "reader", "completed", "1"] in [line.split()[:4] for line in shown.splitlines()]


def test_a_failed_plan_ends_with_1_and_is_resumed_where_it_failed(plans: Path) -> None:
    failed = run_json("tasks", "run", "bad.json", ends=1)
    task_id = failed["task"]["id"]

    resumed = run_command("tasks", "resume", task_id)
    cancelled = run_json("tasks", "cancel", task_id)
    wrong = [
        run_command("tasks", *words) for words in (("cancel", "no"), ("answer", task_id, "a", "x"), ("resume", "no"))
    ]

    assert (failed["error"]["code"], failed["error"]["step"]) == ("agent_failed", "bad")
    assert [(step["id"], step["status"]) for step in failed["steps"]] == [("a", "completed"), ("bad", "failed")]
    assert resumed.stdout == f"Resumed {task_id}. Follow it with: tenuto tasks follow {task_id}\n"
    assert cancelled["error"]["code"] == "task_cancelled"
    assert [each.exit_code for each in wrong] == [1, 1, 1]
    assert [each.stderr.partition(":")[0] for each in wrong] == ["task_not_found", "task_finished", "task_not_found"]


def test_a_submitted_plan_waits_for_a_worker(plans: Path) -> None:
    submitted = run_json("tasks", "run", "good.json", "--detach", "--type", "review")

    assert (submitted["task"]["status"], submitted["task"]["type"]) == ("pending", "review")
    assert run_json("tasks", "recover") == {"recovered": 0}


@pytest.mark.requirement("E15")
@pytest.mark.parametrize(("name", "code"), [("cycle", "plan_invalid"), ("stranger", "agent_not_found")])
def test_a_plan_that_cannot_run_is_refused(plans: Path, name: str, code: str) -> None:
    result = run_command("tasks", "run", f"{name}.json")

    assert (result.exit_code, result.stderr.partition(":")[0]) == (1, code)
    assert run_json("tasks", "list")["tasks"] == []


def test_the_doctor_tells_of_agents_and_of_what_hinders_them(plans: Path) -> None:
    well = run_json("doctor")["checks"]
    (plans / "agents" / "broken.py").write_text("1/0")
    ill = run_json("doctor", ends=1)["checks"]

    (line,) = [check for check in well if check["name"] == "tasks"]
    assert (line["status"], "agents here: reader" in line["message"]) == ("ok", True)
    (line,) = [check for check in ill if check["name"] == "tasks"]
    assert (line["status"], "broken.py" in line["message"]) == ("error", True)


def test_a_worker_without_the_extra_names_it_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "dbos", None)

    result = CliRunner().invoke(program, ["worker", "--store", f"sqlite:///{tmp_path / 't.db'}"])

    assert result.exit_code == 1
    assert "a worker needs a package that is not installed: pip install" in result.stderr
