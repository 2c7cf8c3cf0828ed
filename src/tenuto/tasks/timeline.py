"""The timeline of a task: what happened, derived from its records, so that it cannot differ from what is stored.

It costs no write. A step that is run again after its task has ended leaves its former end nowhere, and a key of the
board its last twenty changes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

from tenuto.errors import InvalidCursor
from tenuto.model.plan import ENDED, Step, StepRun, TaskProgress
from tenuto.model.task import BoardChange, Task, TaskEvent, TaskEventType
from tenuto.tasks._records import micros

POLL: Final = 0.5
"""Seconds between two looks at a task that is watched: any process may change it."""
EVENT_ID: Final = r"[0-9]{16}\.[0-9]\.[A-Za-z0-9_.-]{1,100}"
_TYPES: Final = list(TaskEventType)


def derive_events(progress: TaskProgress, changes: Iterable[BoardChange]) -> tuple[TaskEvent, ...]:
    """The events of a task in order of time; its end is the last one, whatever the clocks of its workers say."""
    task, steps = progress.task, () if progress.plan is None else progress.plan.steps
    events = [
        *_task_events(task),
        *(event for step, run in zip(steps, progress.steps, strict=True) for event in _step_events(step, run)),
        *map(_board_event, changes),
    ]
    return tuple(sorted(events, key=lambda event: (_is_end(event), event.id)))


def events_after(events: Iterable[TaskEvent], after: str | None) -> tuple[TaskEvent, ...]:
    """The events that follow the one of an id, also where that one is not known any more.

    Raises:
        InvalidCursor: it is no id of an event.
    """
    if after is None:
        return tuple(events)
    if re.fullmatch(EVENT_ID, after) is None:
        raise InvalidCursor
    return tuple(event for event in events if event.id > after or (_is_end(event) and event.id != after))


async def watch_events(
    read: Callable[[], Awaitable[tuple[TaskEvent, ...]]], after: str | None
) -> AsyncIterator[TaskEvent]:
    """Each event once, as it is seen; ends with that of the task's end."""
    events = await read()
    fresh = events_after(events, after)
    while True:
        for event in fresh:
            yield event
        if _is_end(events[-1]):
            return
        await asyncio.sleep(POLL)
        # By id, not by time: what was stored meanwhile may have an earlier time.
        event_ids = {event.id for event in events}
        events = await read()
        fresh = tuple(event for event in events if event.id not in event_ids)


def _is_end(event: TaskEvent) -> bool:
    return event.type is TaskEventType.TASK_FINISHED


def _task_events(task: Task) -> Iterator[TaskEvent]:
    yield _event(TaskEventType.TASK_OPENED, task.created_at, "0")
    run = max(task.runs, 1)
    if task.started_at is not None:
        yield _event(TaskEventType.TASK_STARTED, task.started_at, str(run), run=run)
    if task.completed_at is not None:
        code = task.error.code if task.error is not None else None
        end_fields = {"status": str(task.status), "run": run, "error_code": code}
        yield _event(TaskEventType.TASK_FINISHED, task.completed_at, str(run), **end_fields)


def _step_events(step: Step, run: StepRun) -> Iterator[TaskEvent]:
    about = {"step": step.id, "agent": step.agent}
    if run.started_at is not None:
        start_type = TaskEventType.STEP_STARTED if step.human_input is None else TaskEventType.STEP_WAITING
        yield _event(start_type, run.started_at, step.id, **about)
    if run.ended_at is not None and run.status in ENDED:
        code = run.error.code if run.error is not None else None
        end_fields = {"status": str(run.status), "attempts": run.attempts, "error_code": code}
        yield _event(TaskEventType.STEP_FINISHED, run.ended_at, f"{step.id}.{run.status}", **about, **end_fields)


def _board_event(change: BoardChange) -> TaskEvent:
    # A key may be any text, of any length.
    subject = f"{blake2b(change.key.encode(), digest_size=8).hexdigest()}.{change.version:012d}"
    status = "deleted" if change.deleted else "written"
    about = {"agent": change.writer, "key": change.key, "version": change.version, "status": status}
    return _event(TaskEventType.BOARD_CHANGED, change.at, subject, **about)


def _event(type_: TaskEventType, at: datetime, subject: str, **about: Any) -> TaskEvent:
    """An event whose id orders it by time."""
    return TaskEvent(id=f"{micros(at):016d}.{_TYPES.index(type_)}.{subject}", type=type_, at=at, **about)
