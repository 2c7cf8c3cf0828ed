"""`tenuto tasks run` and its neighbours: submit a plan, follow it, answer, cancel, run again, recover."""

from __future__ import annotations

import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from tenuto.app import Tenuto
from tenuto.cli.options import TaskId, argument, flag, option, session_option
from tenuto.cli.running import Call, StoreCall, UserCall
from tenuto.cli.short_ids import whole_session_id, whole_task_id
from tenuto.cli.task_progress import StepRow, follow, print_end, showing
from tenuto.cli.terminal import pluralize
from tenuto.model.plan import Plan, TaskProgress, parse_plan
from tenuto.model.task import NewTask, TaskStatus
from tenuto.model.values import Json, JsonObject
from tenuto.ports import TaskEngine
from tenuto.task_errors import PlanInvalid
from tenuto.tasks.views import TaskView

_INTERRUPTED: Final = 130
_TYPE: Final = "plan"


def run_plan(
    call: UserCall,
    file: Annotated[Path, argument("PLAN", "Plan as a TOML or JSON file.", exists=True, dir_okay=False)],
    goal: Annotated[str | None, option("TEXT", "Use this goal instead of the file's.")] = None,
    task_type: Annotated[str | None, option("NAME", "Type of the task.", "--type")] = None,
    session: Annotated[str | None, session_option("Session that the task belongs to.")] = None,
    detach: Annotated[bool, flag("--detach", "Submit the plan and exit.")] = False,
) -> None:
    """Submit a plan and follow it to its end.

    Ctrl-C stops following and leaves it running.

    If no running server or worker has its agents, this process works on it.
    """
    fields = _read_file(file)
    request_fields = {"goal": goal, "type": task_type}
    new: JsonObject = {"type": _TYPE, **{name: fields.pop(name) for name in ("goal", "type") if name in fields}}
    new |= {name: value for name, value in request_fields.items() if value is not None}
    plan, follower = parse_plan(fields), _Follower(call)

    async def submit(app: Tenuto) -> TaskProgress:
        if session is not None:
            new["session_id"] = await whole_session_id(app, call.scope, session)
        engine = await _engine_for(app, plan, detach=detach)
        task = await engine.submit(call.scope, msgspec.convert(new, NewTask), plan)
        follower.begin(app, task.id)
        return await app.tasks.progress(call.scope, task.id) if detach else await follower.follow(app)

    progress = follower.run(submit, making=True)
    if detach and not call.as_json:
        typer.echo(f"Submitted {progress.task.id}. Follow it with: {follower.command('follow')}")
    else:
        _end(call, progress)


async def _engine_for(app: Tenuto, plan: Plan, *, detach: bool) -> TaskEngine:
    engine = await app.engine(worker=False)
    running = await engine.agents()
    agent_names = plan.called_agents
    return engine if detach or (running and agent_names <= running) else await app.engine(worker=True)


def follow_task(call: UserCall, task_id: TaskId) -> None:
    """Follow a task to its end; the exit code is 1 if it fails."""
    follower = _Follower(call)

    async def begin(app: Tenuto) -> TaskProgress:
        follower.begin(app, await whole_task_id(app, call.scope, task_id))
        return await follower.follow(app)

    _end(call, follower.run(begin))


def answer_step(
    call: UserCall,
    task_id: TaskId,
    step: Annotated[str, argument("STEP", "Step that waits for an answer.")],
    value: Annotated[str, argument("VALUE", "Answer as JSON; anything else is taken as text.")],
) -> None:
    """Answer a step that waits for a person."""
    progress = _control(call, task_id, lambda engine, task: engine.answer(call.scope, task, step, _parse_value(value)))
    call.show(_document(progress), f"Answered {step}.")


def cancel_task(call: UserCall, task_id: TaskId) -> None:
    """Cancel a task; its agents are cancelled within seconds."""

    async def cancel(engine: TaskEngine, task: str) -> TaskProgress:
        await engine.cancel(call.scope, task)
        return await engine.status(call.scope, task)

    progress = _control(call, task_id, cancel)
    call.show(_document(progress), f"Cancelled {progress.task.id}.")


def resume_task(
    call: UserCall,
    task_id: TaskId,
    from_step: Annotated[str | None, option("STEP", "Run again from this step on.", "--from")] = None,
) -> None:
    """Run an ended task again from its failed steps.

    Steps that succeeded are not run again.
    """

    async def resume(engine: TaskEngine, task: str) -> TaskProgress:
        await engine.resume(call.scope, task, from_step=from_step)
        return await engine.status(call.scope, task)

    progress = _control(call, task_id, resume)
    again = call.command_line("tasks", "follow", progress.task.id)
    call.show(_document(progress), f"Resumed {progress.task.id}. Follow it with: {again}")


def recover_tasks(call: StoreCall) -> None:
    """Hand the tasks of dead workers to running ones now.

    Workers do so by themselves after a while. It concerns all tenants.
    """

    async def recover(app: Tenuto) -> int:
        return await (await app.engine(worker=False)).recover()

    count = call.run(recover)
    call.show({"recovered": count}, f"{pluralize(count, 'task')} of dead workers recovered.")


class _Follower:
    """Shows one task until its end or Ctrl-C, and says then how to go on."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._task_id = ""
        self._works = False

    def begin(self, app: Tenuto, task_id: str) -> None:
        """Note what is followed, and whether this process runs it."""
        self._task_id, self._works = task_id, app.works_on_tasks

    def command(self, word: str, *rest: str) -> str:
        """A command about the task."""
        return self._call.command_line("tasks", word, self._task_id, *rest)

    async def follow(self, app: Tenuto) -> TaskProgress:
        """Show the task until it ends."""
        with showing(lambda step: self.command("answer", step, "VALUE"), quiet=self._call.as_json) as show:
            return await follow(app.tasks, self._call.scope, self._task_id, show)

    def run(self, story: Callable[[Tenuto], Awaitable[TaskProgress]], *, making: bool = False) -> TaskProgress:
        """Run a command; Ctrl-C ends it, and not the task."""
        try:
            return self._call.run(story, making=making)
        except KeyboardInterrupt:
            if self._task_id:
                how = "continues as soon as a worker runs (tenuto worker)" if self._works else "continues"
                typer.echo(f"\nThe task {how}.\nfollow: {self.command('follow')}", err=True)
                typer.echo(f"cancel: {self.command('cancel')}", err=True)
            raise typer.Exit(_INTERRUPTED) from None


def _control(call: Call, task_id: str, story: Callable[[TaskEngine, str], Awaitable[TaskProgress]]) -> TaskProgress:
    """Control a task that another process runs."""

    async def run(app: Tenuto) -> TaskProgress:
        task = await whole_task_id(app, call.scope, task_id)
        return await story(await app.engine(worker=False), task)

    return call.run(run)


def _end(call: Call, progress: TaskProgress) -> None:
    """Show how a task ended, and end with 1 if it failed."""
    call.show(_document(progress), lambda: print_end(progress))
    if progress.task.status is TaskStatus.FAILED:
        raise typer.Exit(1)


def _document(progress: TaskProgress) -> JsonObject:
    return {"task": TaskView.of(progress.task), "error": progress.task.error, "steps": StepRow.all_of(progress)}


def _read_file(file: Path) -> JsonObject:
    try:
        if file.suffix == ".json":
            return msgspec.json.decode(file.read_bytes(), type=JsonObject)
        return tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PlanInvalid(None, f"{file.name} cannot be read: {error}") from None


def _parse_value(text: str) -> Json:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
