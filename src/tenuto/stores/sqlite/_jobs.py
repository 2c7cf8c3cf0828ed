"""Work that crosses from the event loop to a thread, and its outcome on the way back."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from tenuto.errors import Unavailable
from tenuto.stores.sqlite._errors import store_error

T = TypeVar("T")


class Job(Generic[T]):
    """A step to run on a thread for a caller who waits on `future`; `alone` outside any transaction.

    So long, by the monotonic clock, the caller is patient with other processes' locks.
    """

    __slots__ = ("alone", "args", "failure", "future", "patient_until", "result", "step")

    def __init__(
        self,
        future: asyncio.Future[T],
        step: Callable[..., T],
        args: tuple[Any, ...],
        *,
        patient_until: float = 0.0,
        alone: bool = False,
    ) -> None:
        self.future = future
        self.step = step
        self.args = args
        self.patient_until = patient_until
        self.alone = alone
        self.result: T | None = None
        self.failure: Exception | None = None

    def fail(self, exc: Exception) -> None:
        """Keep what went wrong, in words that callers know."""
        self.failure = store_error(exc) if isinstance(exc, sqlite3.Error) else exc


def complete_jobs(
    loop: asyncio.AbstractEventLoop, jobs: Sequence[Job[Any]], done: Callable[[int], None] | None = None
) -> None:
    """Wake the callers of finished jobs, all in one visit to their loop; `done` learns how many. For any thread."""
    try:
        loop.call_soon_threadsafe(_set_results, jobs, done)
    except RuntimeError:
        # The loop is closed, so nobody waits any more; what was committed stays committed.
        pass


def _set_results(jobs: Sequence[Job[Any]], done: Callable[[int], None] | None) -> None:
    for job in jobs:
        if job.future.done():
            continue  # Its caller was cancelled while it ran.
        if job.failure is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.failure)
    if done is not None:
        done(len(jobs))


def closed_error() -> Unavailable:
    """The answer to whoever asks after the end."""
    return Unavailable("session store", "is closed")
