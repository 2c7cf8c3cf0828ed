"""`tenuto tasks`: look at what agents work on together, remove it, and run plans."""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Final

import typer
from msgspec.structs import replace

from tenuto.app import Tenuto
from tenuto.cli import task_log, task_runs
from tenuto.cli.options import Cursor, OfSession, TaskId, Yes, choice, confirm, limit_option
from tenuto.cli.running import UserCall
from tenuto.cli.short_ids import is_short, whole_session_id, whole_task_id
from tenuto.cli.task_progress import STEP_COLUMNS, StepRow, step_row, value_text
from tenuto.cli.terminal import age, moment, pluralize, show_facts, show_table, visible
from tenuto.model import Scope
from tenuto.model.plan import StepStatus, TaskProgress
from tenuto.model.task import BoardEntry, BoardView, TaskPage, TaskQuery, TaskStatus
from tenuto.ports import utc_now
from tenuto.task_errors import TaskNotFound
from tenuto.tasks.views import BoardAnswer, TaskList, TaskView

_WAITING: Final = "waiting for input"

tasks = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Run plans; show, follow, answer and delete tasks."
)

tasks.command("run")(task_runs.run_plan)
tasks.command("follow")(task_runs.follow_task)
tasks.command("answer")(task_runs.answer_step)
tasks.command("cancel")(task_runs.cancel_task)
tasks.command("resume")(task_runs.resume_task)
tasks.command("recover")(task_runs.recover_tasks)
tasks.command("log")(task_log.show_log)


@tasks.command("list")
def list_tasks(
    call: UserCall,
    session: OfSession = None,
    status: Annotated[TaskStatus | None, choice("Show only this status.")] = None,
    limit: Annotated[int, limit_option(1000)] = 50,
    cursor: Cursor = None,
) -> None:
    """List tasks, oldest first."""
    query = TaskQuery(session_id=session, status=status, limit=limit, cursor=cursor)

    async def load(app: Tenuto) -> tuple[TaskPage, set[str]]:
        of = None if session is None else await whole_session_id(app, call.scope, session)
        page = await app.tasks.list(call.scope, replace(query, session_id=of))
        # In JSON a status keeps to its own words.
        return page, set() if call.as_json else await _waiting(app, call.scope, page)

    page, waiting = call.read(load)
    call.show(TaskList.of(page), lambda: _print_tasks(page, waiting))


async def _waiting(app: Tenuto, scope: Scope, page: TaskPage) -> set[str]:
    """The tasks of which a step waits for input."""
    agents: set[str] = set()
    for task in page.tasks:
        if task.status is TaskStatus.RUNNING:
            # It may end or go meanwhile.
            with suppress(TaskNotFound):
                if _waiting_steps(await app.tasks.progress(scope, task.id)):
                    agents.add(task.id)
    return agents


def _waiting_steps(progress: TaskProgress) -> list[str]:
    return [run.step for run in progress.steps if run.status is StepStatus.WAITING]


def _print_tasks(page: TaskPage, waiting: Container[str]) -> None:
    if not page.tasks:
        typer.echo(
            "No tasks." if page.cursor is None else f"None on this page, and there are more: --cursor {page.cursor}"
        )
        return
    now = utc_now()
    columns = ("ID", "TYPE", "STATUS", "CHANGED", "GOAL")
    rows = [
        (
            task.id,
            task.type,
            _WAITING if task.id in waiting else task.status,
            age(task.updated_at, now),
            task.goal or "-",
        )
        for task in page.tasks
    ]
    show_table(columns, rows, flexible=("GOAL", "TYPE"), numbers=("CHANGED",), ids="ID")
    if page.cursor is not None:
        typer.echo(f"\n{pluralize(len(page.tasks), 'task')} shown, and there are more: --cursor {page.cursor}")


@tasks.command("show")
def show_task(call: UserCall, task_id: TaskId) -> None:
    """Show a task, its steps and its board."""

    async def load(app: Tenuto) -> tuple[TaskProgress, BoardView]:
        task = await whole_task_id(app, call.scope, task_id)
        return await app.tasks.progress(call.scope, task), await app.tasks.board(call.scope, task).view()

    progress, board = call.read(load)
    steps = StepRow.all_of(progress)
    call.show(
        {"task": TaskView.of(progress.task), "steps": steps, "board": BoardAnswer.of(board)},
        lambda: _print_task(progress, board),
    )


def _print_task(progress: TaskProgress, board: BoardView) -> None:
    show_facts(_task_facts(progress))
    if progress.steps:
        typer.echo()
        flexible = ("ERROR", "AGENT", "STEP")
        show_table(STEP_COLUMNS, map(step_row, progress.steps), flexible=flexible, numbers=("ATTEMPTS",))
    _print_board(board)


def _task_facts(progress: TaskProgress) -> list[tuple[str, str]]:
    task, waiting = progress.task, ", ".join(_waiting_steps(progress))
    return [
        ("task", task.id),
        ("session", task.session_id or "-"),
        ("type", task.type),
        ("goal", task.goal or "-"),
        ("status", f"{task.status}, {_WAITING}: {waiting}" if waiting else task.status),
        ("result", value_text(task.result)),
        ("error", "-" if task.error is None else f"{task.error.code}: {task.error.message}"),
        ("created", moment(task.created_at)),
        ("changed", moment(task.updated_at)),
        ("ended", moment(task.completed_at) if task.completed_at is not None else "-"),
        ("expires", moment(task.expires_at)),
    ]


def _print_board(board: BoardView) -> None:
    typer.echo()
    if not board.entries:
        typer.echo("The board is empty.")
    else:
        now = utc_now()
        columns = ("KEY", "VERSION", "WRITER", "PREVIOUS", "WRITTEN", "VALUE")
        rows = [_entry_row(entry, now) for entry in board.entries]
        flexible = ("VALUE", "WRITER", "PREVIOUS", "KEY")
        show_table(columns, rows, flexible=flexible, numbers=("VERSION", "WRITTEN"))
    for lock in board.locks:
        typer.echo(visible(f"{lock.key} is locked by {lock.holder} until {moment(lock.expires_at)}."))


def _entry_row(entry: BoardEntry, now: datetime) -> tuple[str, ...]:
    return (
        entry.key,
        str(entry.version),
        entry.writer,
        entry.previous_writer or "-",
        age(entry.written_at, now),
        value_text(entry.value),
    )


@tasks.command("delete")
def delete_task(call: UserCall, task_id: TaskId, yes: Yes = False) -> None:
    """Delete a task with its board and all notes."""
    # The question names what is meant.
    if is_short(task_id):
        task_id = call.read(lambda app: whole_task_id(app, call.scope, task_id))
    if not yes:
        confirm("delete", task_id, as_json=call.as_json)
    call.run(lambda app: app.tasks.delete(call.scope, task_id))
    call.show({"deleted": task_id}, f"Deleted {task_id}.")
