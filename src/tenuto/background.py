"""Background tasks, which no caller awaits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tenuto.logs import describe_exception

_Result = TypeVar("_Result")
_log = logging.getLogger(__name__)


def run_in_background(work: Coroutine[Any, Any, _Result], name: str) -> asyncio.Task[_Result]:
    """Start a task; the caller holds it, and cancels it at its own end.

    If it dies, the log says so at once, and not when the last reference to it is gone.
    """
    task = asyncio.create_task(work, name=f"tenuto {name}")
    task.add_done_callback(_log_death)
    return task


def _log_death(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("the task %r died: %s", task.get_name(), describe_exception(error))


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run work meanwhile; it is cancelled in the end, and waited for."""
    task = run_in_background(work, name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
