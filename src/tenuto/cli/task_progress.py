"""The progress of a task in the terminal: a table that changes in place; elsewhere a line for each change."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import typer

from tenuto.cli.terminal import visible
from tenuto.errors import Unavailable
from tenuto.model import Scope
from tenuto.model.plan import StepRun, StepStatus, TaskProgress
from tenuto.model.task import TaskError
from tenuto.model.values import Json, View
from tenuto.tasks import Tasks

if TYPE_CHECKING:
    from rich.table import Table

Display: TypeAlias = Callable[[TaskProgress], None]
STEP_COLUMNS: Final = ("STEP", "AGENT", "STATUS", "ATTEMPTS", "TOOK", "ERROR")
_POLL_SECONDS: Final = 0.25
_COLOURS: Final = {StepStatus.COMPLETED: "green", StepStatus.FAILED: "red", StepStatus.WAITING: "yellow"}


class StepRow(View, frozen=True, kw_only=True):
    """A step of a plan, and what became of it."""

    id: str
    agent: str | None
    human_input: str | None
    output_key: str
    after: tuple[str, ...]
    required: bool
    status: StepStatus
    attempts: int
    error: TaskError | None
    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def all_of(cls, progress: TaskProgress) -> list[StepRow]:
        """The steps in the order of the plan."""
        steps = () if progress.plan is None else progress.plan.steps
        ran = ("status", "attempts", "error", "started_at", "ended_at")
        return [
            cls.derive(step, output_key=step.key, **{name: getattr(run, name) for name in ran})
            for step, run in zip(steps, progress.steps, strict=True)
        ]


async def follow(tasks: Tasks, scope: Scope, task_id: str, show: Display) -> TaskProgress:
    """Show a task until it ends. It is read again and again: any process may run it."""
    progress = await tasks.progress(scope, task_id)
    while True:
        show(progress)
        if progress.task.is_finished:
            return progress
        await asyncio.sleep(_POLL_SECONDS)
        with suppress(Unavailable):  # The task waits for the store, too.
            progress = await tasks.progress(scope, task_id)


@contextmanager
def showing(answer_with: Callable[[str], str], *, quiet: bool) -> Iterator[Display]:
    """What shows progress; `answer_with` is the command that answers a step."""
    if quiet:
        yield lambda _: None
    elif not sys.stdout.isatty():
        yield _Lines(answer_with)
    else:
        # rich takes a tenth of a second to import.
        from rich.live import Live

        lines = _Lines(answer_with, only=(StepStatus.WAITING,))
        with Live(auto_refresh=False) as live:

            def update(progress: TaskProgress) -> None:
                lines(progress)
                live.update(_table(progress), refresh=True)

            yield update


class _Lines:
    """A line for each step whose status has changed."""

    def __init__(self, answer_with: Callable[[str], str], only: tuple[StepStatus, ...] = tuple(StepStatus)) -> None:
        self._answer_with = answer_with
        self._only = only
        self._shown: dict[str, tuple[StepStatus, int]] = {}

    def __call__(self, progress: TaskProgress) -> None:
        for run in progress.steps:
            state = (run.status, run.attempts)
            if self._shown.get(run.step, (StepStatus.PENDING, 0)) != state and run.status in self._only:
                typer.echo(visible(self._line(progress, run)))
            self._shown[run.step] = state

    def _line(self, progress: TaskProgress, run: StepRun) -> str:
        step = progress.plan.step(run.step) if progress.plan is not None else None
        text = f"{run.step}: {run.status}"
        if run.status is StepStatus.WAITING and step is not None and step.remote:
            return f"{text} for agent {step.agent}"
        if run.status is StepStatus.WAITING and step is not None:
            return f"{text} for an answer: {step.human_input} ({self._answer_with(run.step)})"
        if run.attempts > 1:
            text = f"{text}, attempt {run.attempts}"
        return text if run.error is None else f"{text}, {run.error.code}: {run.error.message}"


def _table(progress: TaskProgress) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(*STEP_COLUMNS, box=None, pad_edge=False, header_style="bold")
    for run in progress.steps:
        cells = [Text(visible(cell)) for cell in step_row(run)]
        cells[STEP_COLUMNS.index("STATUS")].stylize(_COLOURS.get(run.status, ""))
        table.add_row(*cells)
    return table


def step_row(run: StepRun) -> tuple[str, ...]:
    """A step under `STEP_COLUMNS`."""
    took = f"{(run.ended_at - run.started_at).total_seconds():.1f}s" if run.started_at and run.ended_at else "-"
    error = "-" if run.error is None else f"{run.error.code}: {run.error.message}"
    return run.step, run.agent or "-", run.status, str(run.attempts), took, error


def print_end(progress: TaskProgress) -> None:
    """Print how a task ended."""
    task = progress.task
    if task.error is not None:
        where = f" in step {task.error.step}" if task.error.step is not None else ""
        typer.echo(visible(f"Task {task.id} failed{where}: {task.error.code}: {task.error.message}"))
    else:
        typer.echo(visible(f"Task {task.id} {task.status}: {value_text(task.result)}"))


def value_text(value: Json) -> str:
    """A value of the board, or a result, in one line."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
