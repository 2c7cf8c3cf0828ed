"""The thread that waits for the disk of a folder: what has queued up is one transaction, so that it shares an fsync."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from asyncio import Future
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

from tenuto.errors import Unavailable
from tenuto.stores.sqlite import wait_for_lock

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_TIMEOUT: Final = timedelta(seconds=5)
_REASONS: Final = {
    sqlite3.SQLITE_FULL: "has no space left on its disk",
    sqlite3.SQLITE_READONLY: "cannot be written",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is damaged",
    sqlite3.SQLITE_BUSY: "is locked by another process",
}


class _Job(Generic[_Result]):
    __slots__ = ("failure", "future", "result", "step")

    def __init__(self, step: Callable[[sqlite3.Connection], _Result], future: Future[_Result]) -> None:
        self.step = step
        self.future = future
        self.result: Any = None
        self.failure: Unavailable | None = None


class FolderThread:
    """Runs steps on the connection. A step that fails changes nothing, and the others of its transaction stand.

    `on_commit` is called after a transaction that changed something, before its callers know.
    """

    def __init__(self, db: sqlite3.Connection, on_commit: Callable[[], None]) -> None:
        self._db = db
        self._on_commit = on_commit
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run_thread, name="tenuto-journal", daemon=True)
        self._thread.start()

    async def run(self, step: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Run a step; it is on disk when this returns. It is also run if its caller gives up.

        Raises:
            Unavailable: the file cannot be read or written; nothing was changed.
        """
        if self._is_closing:
            raise Unavailable("journal", "is closed")
        job = _Job(step, self._loop.create_future())
        self._queue.put(job)
        return await asyncio.shield(job.future)

    async def close(self) -> None:
        """Finish what is queued, and close the connection."""
        if not self._is_closing:
            self._is_closing = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    # Everything below runs on the thread.

    def _run_thread(self) -> None:
        is_last = False
        while not is_last:
            jobs, is_last = self._collect_jobs()
            self._run_jobs(jobs)
            with suppress(RuntimeError):  # A closed loop has no waiting callers.
                self._loop.call_soon_threadsafe(_deliver, jobs)
        self._db.close()

    def _collect_jobs(self) -> tuple[list[_Job[Any]], bool]:
        jobs = list[_Job[Any]]()
        job = self._queue.get()
        with suppress(Empty):
            while job is not None:
                jobs.append(job)
                job = self._queue.get_nowait()
            return jobs, True
        return jobs, False

    def _run_jobs(self, jobs: list[_Job[Any]]) -> None:
        db, before = self._db, self._db.total_changes
        if not jobs:
            return
        try:
            wait_for_lock(lambda: db.execute("BEGIN IMMEDIATE"), _TIMEOUT)
            for job in jobs:
                self._run_job(job)
            db.execute("COMMIT")
        except Exception as error:
            failure = translate(error)
            for job in jobs:
                job.failure = job.failure or failure
            with suppress(sqlite3.Error):
                if db.in_transaction:
                    db.execute("ROLLBACK")
        else:
            if db.total_changes != before:
                self._on_commit()

    def _run_job(self, job: _Job[Any]) -> None:
        db = self._db
        db.execute("SAVEPOINT step")
        try:
            job.result = job.step(db)
        except Exception as error:
            job.failure = translate(error)
            if not db.in_transaction:
                raise  # A full disk may have ended it.
            db.execute("ROLLBACK TO step")
        db.execute("RELEASE step")


def _deliver(jobs: list[_Job[Any]]) -> None:
    for job in jobs:
        if job.failure is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.failure)


def translate(error: Exception) -> Unavailable:
    """A failure of the folder as callers know it; what it is not is logged."""
    if isinstance(error, Unavailable):
        return error
    code = getattr(error, "sqlite_errorcode", None)
    reason = _REASONS.get(code & 0xFF if isinstance(code, int) else -1)
    if reason is None:
        _log.warning("the journal cannot be read or written: %s", type(error).__name__)
    failure = Unavailable("journal", reason or "cannot be read or written")
    failure.__cause__ = error
    return failure


def is_locked(failure: Unavailable) -> bool:
    """Whether another process was in the way."""
    return getattr(failure.__cause__, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
