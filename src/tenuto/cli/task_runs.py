"""`tenuto tasks run` and its neighbours: submit a plan, follow it, answer, cancel, run again, recover."""

from __future__ import annotations

import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from tenuto.app import Tenuto
from tenuto.cli.options import LOCAL, AsJson, Site, StoreUrl, TaskId, Tenant, User, caller, complete_session
from tenuto.cli.running import command_line, run_command
from tenuto.cli.short_ids import whole_session_id, whole_task_id
from tenuto.cli.task_progress import StepView, follow, print_end, showing
from tenuto.cli.terminal import pluralize, show_json, visible
from tenuto.model import Scope
from tenuto.model.plan import Plan, TaskProgress, parse_plan
from tenuto.model.task import NewTask, TaskStatus
from tenuto.model.values import Json, JsonObject
from tenuto.ports import TaskEngine
from tenuto.task_errors import PlanInvalid
from tenuto.tasks.views import TaskView

_INTERRUPTED: Final = 130
_TYPE: Final = "plan"


def run_plan(
    file: Annotated[
        Path, typer.Argument(metavar="PLAN", exists=True, dir_okay=False, help="Plan as a TOML or JSON file.")
    ],
    goal: Annotated[
        str | None, typer.Option("--goal", metavar="TEXT", help="Use this goal instead of the file's.")
    ] = None,
    task_type: Annotated[str | None, typer.Option("--type", metavar="NAME", help="Type of the task.")] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session", metavar="ID", autocompletion=complete_session, help="Session that the task belongs to."
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Submit the plan and exit.")] = False,
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Submit a plan and follow it to its end.

    Ctrl-C stops following and leaves it running.

    If no running server or worker has its agents, this process works on it.
    """
    fields = _read_file(file)
    given = {"goal": goal, "type": task_type}
    new: JsonObject = {"type": _TYPE, **{name: fields.pop(name) for name in ("goal", "type") if name in fields}}
    new |= {name: value for name, value in given.items() if value is not None}
    plan, scope = parse_plan(fields), caller(tenant, site, user)
    told = _Follower(scope, store, quiet=as_json)

    async def submit(app: Tenuto) -> TaskProgress:
        if session is not None:
            new["session_id"] = await whole_session_id(app, scope, session)
        engine = await _engine_for(app, plan, detach=detach)
        task = await engine.submit(scope, msgspec.convert(new, NewTask), plan)
        told.begin(app, task.id)
        return await app.tasks.progress(scope, task.id) if detach else await told.follow(app)

    progress = told.run(submit, making=True)
    if detach and not as_json:
        typer.echo(f"Submitted {progress.task.id}. Follow it with: {told.command('follow')}")
    else:
        _end(progress, as_json=as_json)


async def _engine_for(app: Tenuto, plan: Plan, *, detach: bool) -> TaskEngine:
    engine = await app.engine(worker=False)
    running = await engine.agents()
    wanted = plan.called_agents
    return engine if detach or (running and wanted <= running) else await app.engine(worker=True)


def follow_task(
    task_id: TaskId,
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Follow a task to its end; the exit code is 1 if it fails."""
    told = _Follower(caller(tenant, site, user), store, quiet=as_json)

    async def begin(app: Tenuto) -> TaskProgress:
        told.begin(app, await whole_task_id(app, told.scope, task_id))
        return await told.follow(app)

    _end(told.run(begin), as_json=as_json)


def answer_step(
    task_id: TaskId,
    step: Annotated[str, typer.Argument(metavar="STEP", help="Step that waits for an answer.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Answer as JSON; anything else is taken as text.")],
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Answer a step that waits for a person."""
    scope = caller(tenant, site, user)
    progress = _control(
        scope, task_id, lambda engine, task: engine.answer(scope, task, step, _parse_value(value)), store
    )
    _tell(progress, f"Answered {visible(step)}.", as_json=as_json)


def cancel_task(
    task_id: TaskId,
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a task; its agents are cancelled within seconds."""
    scope = caller(tenant, site, user)

    async def cancel(engine: TaskEngine, task: str) -> TaskProgress:
        await engine.cancel(scope, task)
        return await engine.status(scope, task)

    progress = _control(scope, task_id, cancel, store)
    _tell(progress, f"Cancelled {visible(progress.task.id)}.", as_json=as_json)


def resume_task(
    task_id: TaskId,
    from_step: Annotated[
        str | None, typer.Option("--from", metavar="STEP", help="Run again from this step on.")
    ] = None,
    tenant: Tenant = LOCAL,
    site: Site = "",
    user: User = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Run an ended task again from its failed steps.

    Steps that succeeded are not run again.
    """
    scope = caller(tenant, site, user)

    async def resume(engine: TaskEngine, task: str) -> TaskProgress:
        await engine.resume(scope, task, from_step=from_step)
        return await engine.status(scope, task)

    progress = _control(scope, task_id, resume, store)
    again = command_line(scope, store, "tasks", "follow", progress.task.id)
    _tell(progress, f"Resumed {visible(progress.task.id)}. Follow it with: {again}", as_json=as_json)


def recover_tasks(store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Hand the tasks of dead workers to running ones now.

    Workers do so by themselves after a while. It concerns all tenants.
    """

    async def recover(app: Tenuto) -> int:
        return await (await app.engine(worker=False)).recover()

    moved = run_command(recover, store=store)
    if as_json:
        show_json({"recovered": moved})
    else:
        typer.echo(f"{pluralize(moved, 'task')} of dead workers recovered.")


class _Follower:
    """Shows one task until its end or Ctrl-C, and says then how to go on."""

    def __init__(self, scope: Scope, store: str | None, *, quiet: bool) -> None:
        self.scope = scope
        self._store = store
        self._quiet = quiet
        self._task_id = ""
        self._works = False

    def begin(self, app: Tenuto, task_id: str) -> None:
        """Note what is followed, and whether this process runs it."""
        self._task_id, self._works = task_id, app.works_on_tasks

    def command(self, word: str, *rest: str) -> str:
        """A command about the task."""
        return command_line(self.scope, self._store, "tasks", word, self._task_id, *rest)

    async def follow(self, app: Tenuto) -> TaskProgress:
        """Show the task until it ends."""
        with showing(lambda step: self.command("answer", step, "VALUE"), quiet=self._quiet) as show:
            return await follow(app.tasks, self.scope, self._task_id, show)

    def run(self, story: Callable[[Tenuto], Awaitable[TaskProgress]], *, making: bool = False) -> TaskProgress:
        """Run a command; Ctrl-C ends it, and not the task."""
        try:
            return run_command(story, store=self._store, making=making)
        except KeyboardInterrupt:
            if self._task_id:
                how = "continues as soon as a worker runs (tenuto worker)" if self._works else "continues"
                typer.echo(f"\nThe task {how}.\nfollow: {self.command('follow')}", err=True)
                typer.echo(f"cancel: {self.command('cancel')}", err=True)
            raise typer.Exit(_INTERRUPTED) from None


def _control(
    scope: Scope, task_id: str, story: Callable[[TaskEngine, str], Awaitable[TaskProgress]], store: str | None
) -> TaskProgress:
    """Control a task that another process runs."""

    async def run(app: Tenuto) -> TaskProgress:
        task = await whole_task_id(app, scope, task_id)
        return await story(await app.engine(worker=False), task)

    return run_command(run, store=store)


def _end(progress: TaskProgress, *, as_json: bool) -> None:
    """Show how a task ended, and end with 1 if it failed."""
    if as_json:
        show_json(_document(progress))
    else:
        print_end(progress)
    if progress.task.status is TaskStatus.FAILED:
        raise typer.Exit(1)


def _tell(progress: TaskProgress, sentence: str, *, as_json: bool) -> None:
    if as_json:
        show_json(_document(progress))
    else:
        typer.echo(sentence)


def _document(progress: TaskProgress) -> JsonObject:
    return {"task": TaskView.of(progress.task), "error": progress.task.error, "steps": StepView.all_of(progress)}


def _read_file(file: Path) -> JsonObject:
    try:
        if file.suffix == ".json":
            return msgspec.json.decode(file.read_bytes(), type=JsonObject)
        return tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, msgspec.DecodeError, UnicodeDecodeError) as unfit:
        raise PlanInvalid(None, f"{file.name} cannot be read: {unfit}") from None


def _parse_value(text: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
