"""`tenuto tasks log`: what all agents of a conversation did, in one table (E25)."""

from __future__ import annotations

from typing import Annotated

import typer

from tenuto.app import Tenuto
from tenuto.cli.options import argument, session_option
from tenuto.cli.running import UserCall
from tenuto.cli.short_ids import whole_session_id, whole_task_id
from tenuto.cli.terminal import moment, show_table
from tenuto.model import Scope
from tenuto.model.task import Task, TaskEvent, TaskQuery
from tenuto.task_errors import TaskNotFound
from tenuto.tasks.views import TaskEventView

_PAGE = 1000


def show_log(
    call: UserCall,
    task_id: Annotated[str | None, argument("ID", "Show only this task.")] = None,
    session: Annotated[str | None, session_option("Show all tasks of this session.")] = None,
) -> None:
    """Show what agents did on a task or in a session."""
    if (task_id is None) is (session is None):
        raise typer.BadParameter("give the ID of a task, or --session", param_hint="ID")
    log = call.read(lambda app: _read_log(app, call.scope, task_id, session))
    events = [{"task_id": task.id, "event": TaskEventView.of(event)} for task, event in log]
    call.show({"events": events}, lambda: _print_log(log, of_session=task_id is None))


def _print_log(log: list[tuple[Task, TaskEvent]], *, of_session: bool) -> None:
    if not log:
        typer.echo("No tasks.")
        return
    columns = (*(["TASK"] if of_session else []), "TIME", "EVENT", "AGENT", "STEP OR KEY", "STATUS", "ERROR")
    rows = [(*([task.id] if of_session else []), *_row(event)) for task, event in log]
    show_table(columns, rows, flexible=("STEP OR KEY", "AGENT", "ERROR"), ids="TASK" if of_session else "")


async def _read_log(
    app: Tenuto, scope: Scope, task_id: str | None, session: str | None
) -> list[tuple[Task, TaskEvent]]:
    if task_id is not None:
        tasks = [await app.tasks.get(scope, await whole_task_id(app, scope, task_id))]
    else:
        assert session is not None
        tasks = await _tasks_of(app, scope, await whole_session_id(app, scope, session))
    log: list[tuple[Task, TaskEvent]] = []
    for task in tasks:
        try:
            log += [(task, event) for event in await app.tasks.events(scope, task.id)]
        except TaskNotFound:  # It expired meanwhile.
            continue
    return sorted(log, key=lambda line: (line[1].at, line[1].id))


async def _tasks_of(app: Tenuto, scope: Scope, session: str) -> list[Task]:
    tasks: list[Task] = []
    query = TaskQuery(session_id=session, limit=_PAGE)
    while True:
        page = await app.tasks.list(scope, query)
        tasks += page.tasks
        if page.cursor is None:
            return tasks
        query = TaskQuery(session_id=session, limit=_PAGE, cursor=page.cursor)


def _row(event: TaskEvent) -> tuple[str, ...]:
    version = "" if event.version is None else f" (version {event.version})"
    subject = event.step if event.key is None else f"{event.key}{version}"
    return (
        moment(event.at),
        str(event.type),
        event.agent or "-",
        subject or "-",
        event.status or "-",
        event.error_code or "-",
    )
