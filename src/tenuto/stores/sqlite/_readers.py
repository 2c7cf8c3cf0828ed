"""A few threads that read, so that a read never waits for an fsync."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

from tenuto.stores.sqlite._jobs import Job, closed_error, complete_jobs

P = ParamSpec("P")
T = TypeVar("T")


class ReaderThreads:
    """One connection and one thread each; whoever is free takes the next job."""

    def __init__(self, connections: Sequence[sqlite3.Connection]) -> None:
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._queue: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run_jobs, args=(db,), name=f"tenuto-sqlite-reader-{place}", daemon=True)
            for place, db in enumerate(connections)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a step that reads one snapshot of the file."""
        assert not kwargs, "steps take positional arguments"
        if self._closing:
            raise closed_error()
        job: Job[T] = Job(self._loop.create_future(), step, args)
        self._queue.put(job)
        return await job.future

    async def close(self) -> None:
        """Finish what is queued and close the connections."""
        if not self._closing:
            self._closing = True
            for _ in self._threads:
                self._queue.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _run_jobs(self, db: sqlite3.Connection) -> None:
        while (job := self._queue.get()) is not None:
            try:
                db.execute("BEGIN")
                job.result = job.step(db, *job.args)
            except Exception as exc:
                job.fail(exc)
            with suppress(sqlite3.Error):
                if db.in_transaction:
                    db.execute("ROLLBACK")
            complete_jobs(self._loop, (job,))
        db.close()
