"""The threads of a SQLite file: one writes, a few read. Calls of one turn of the event loop are one job.

The writer commits together what has queued up, so that many callers share one fsync.

A step first checks and then writes, so most errors leave nothing behind. If a step fails after it has written, the
transaction is rolled back and the other steps run again without it; steps must tolerate that.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

from tenuto.errors import StoreDamaged, StoreFull, StoreReplaced, TenutoError, Unavailable
from tenuto.stores.sqlite._errors import is_busy, is_full, lock_held, store_error

P = ParamSpec("P")
T = TypeVar("T")
_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")
Execute = Callable[..., sqlite3.Cursor]

_CHANGES_KEPT: Final = 1000
_PRUNE_EVERY: Final = 128


@dataclass(slots=True)
class Transaction:
    """An open transaction as a step sees it: SQL, and the records that it changed, for other processes."""

    execute: Execute
    executemany: Execute
    changed: list[bytes] = field(default_factory=list)


class JobReceiver(Protocol):
    """Takes the outcome of a job, in the event loop: a future, or what shares it out among several."""

    def done(self) -> bool: ...

    def cancelled(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...

    def exception(self) -> BaseException | None: ...


@dataclass(eq=False, slots=True)
class Job(Generic[T]):
    """A step to run on a thread for a `receiver`; `alone` means outside any transaction.

    `lock_deadline` (monotonic clock) is how long the caller waits for locks of other processes.
    """

    receiver: JobReceiver
    step: Callable[..., T]
    args: tuple[Any, ...]
    lock_deadline: float = 0.0
    alone: bool = False
    result: T | None = None
    failure: Exception | None = None

    def fail(self, exc: Exception) -> None:
        self.failure = store_error(exc) if isinstance(exc, sqlite3.Error) else exc


def _set_results(jobs: Sequence[Job[Any]]) -> None:
    for job in jobs:
        if job.receiver.done():
            continue  # The caller was cancelled meanwhile.
        if job.failure is None:
            job.receiver.set_result(job.result)
        else:
            job.receiver.set_exception(job.failure)
            # Of several calls that fail together the caller may await only the first.
            job.receiver.exception()


def wait_for_lock(step: Callable[[], T], timeout: timedelta) -> T:
    """Repeat a step while other processes hold its lock.

    SQLite's own backoff goes up to 100 ms, which starves beside a process that commits without pause.
    """
    deadline = monotonic() + timeout.total_seconds()
    while True:
        try:
            return step()
        except sqlite3.OperationalError as exc:
            if not is_busy(exc) or monotonic() > deadline:
                raise
        sleep(random.uniform(0.0002, 0.003))


def file_check(*files: Path) -> Callable[[], None]:
    """A check that each path still leads to the file that is open; it costs two microseconds.

    SQLite goes on writing to a file that has no name any more, and all of it is lost with the process. A log is
    deleted by another process that opens a new file in the place of one that was moved away.
    """
    # The working folder may change. A file in a read-only folder is open without a log.
    opened = [(file, _identify(file)) for file in map(Path.absolute, files) if file.exists()]

    def check() -> None:
        try:
            same = all(_identify(file) == identity for file, identity in opened)
        except OSError:
            same = False
        if not same:
            raise StoreReplaced

    return check


def _identify(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_ino, found.st_dev


class WriterThread:
    """Group commit. A result is handed back after its commit, so acknowledged means on disk."""

    def __init__(
        self, db: sqlite3.Connection, timeout: timedelta, *, check_file: Callable[[], None] = lambda: None
    ) -> None:
        self._db = db
        self._check_file = check_file
        self._timeout = timeout.total_seconds()
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._queue: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run_thread, name="tenuto-sqlite-writer", daemon=True)
        self._thread.start()

    def run(
        self, step: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run a step in the next transaction and return its result once that is committed.

        A caller that is cancelled before its step began is left out; after that the step stands.
        """
        assert not kwargs, "steps take positional arguments"
        future: asyncio.Future[T] = self._loop.create_future()
        self.start(future, step, *args)
        return future

    def start(self, receiver: JobReceiver, step: Callable[..., T], *args: Any) -> None:
        """As `run`, for a receiver."""
        self._enqueue(Job(receiver, step, args, monotonic() + self._timeout))

    def run_outside_transaction(self, step: Callable[[sqlite3.Connection, timedelta], T]) -> asyncio.Future[T]:
        """Run a step between two transactions, for what SQLite does outside of any; it gets `timeout`."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._enqueue(Job(future, step, (), alone=True))
        return future

    def _enqueue(self, job: Job[T]) -> None:
        if self._closing:
            raise Unavailable("session store", "is closed")
        self._queue.put(job)

    async def close(self) -> None:
        """Finish what is queued and close the connection."""
        if not self._closing:
            self._closing = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    # Everything below runs on the writer thread.

    def _run_thread(self) -> None:
        while jobs := self._collect_jobs():
            batch = [job for job in jobs if not job.alone]
            if batch:
                self._run_batch(batch)
                self._deliver(batch)
            for job in jobs:
                if job.alone:
                    self._run_outside(job)
                    self._deliver([job])
        self._db.close()

    def _collect_jobs(self) -> list[Job[Any]]:
        """Wait for a job, then take all that are queued; none if the queue is closed."""
        jobs = list[Job[Any]]()
        job = self._queue.get()
        with suppress(Empty):
            while job is not None:
                jobs.append(job)
                job = self._queue.get_nowait()
            self._queue.put(None)  # To be met again behind these jobs.
        return jobs

    def _deliver(self, jobs: list[Job[Any]]) -> None:
        """Wake callers, with one call into their event loop."""
        with suppress(RuntimeError):  # A closed loop has no waiting callers; committed steps stay committed.
            self._loop.call_soon_threadsafe(_set_results, jobs)

    def _run_batch(self, jobs: list[Job[Any]]) -> None:
        """Set the outcome of each job: a result that is on disk, or a failure that stored nothing."""
        left = [job for job in jobs if not job.receiver.cancelled()]
        try:
            self._check_file()
            while (left := self._begin_transaction(left)) and (broken := self._run_and_commit(left)) is not None:
                left.remove(broken)
                # The others may have been refused because of what is now rolled back: all run again.
                for job in left:
                    job.failure = None
        except Exception as exc:
            self._roll_back()
            if isinstance(exc, sqlite3.Error) and is_full(exc):
                # Moving the log into the file may leave room on a full disk for the deletions that help.
                with suppress(sqlite3.Error):
                    self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            # Refused jobs too: they may have been refused because of what is now rolled back.
            for job in left:
                job.fail(exc)

    def _run_outside(self, job: Job[Any]) -> None:
        if not job.receiver.cancelled():
            try:
                job.result = job.step(self._db, timedelta(seconds=self._timeout))
            except Exception as exc:
                job.fail(exc)

    def _begin_transaction(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Begin a transaction; returns the jobs whose callers still wait once the lock is free."""
        while jobs:
            timeout = timedelta(seconds=min([job.lock_deadline for job in jobs]) - monotonic())
            try:
                wait_for_lock(lambda: self._db.execute("BEGIN IMMEDIATE"), timeout)
                break
            except sqlite3.OperationalError as exc:
                if not is_busy(exc):
                    raise
                now = monotonic()
                late = [job for job in jobs if job.lock_deadline <= now]
                for job in late:
                    job.failure = lock_held(exc)
                self._deliver(late)
                jobs = [job for job in jobs if job.lock_deadline > now]
        return jobs

    def _run_and_commit(self, jobs: list[Job[Any]]) -> Job[Any] | None:
        """Run the jobs and commit; returns a job that failed after writing, in which case nothing was stored."""
        db = self._db
        cursor = db.cursor()
        txn = Transaction(cursor.execute, cursor.executemany)
        for job in jobs:
            noted, written = len(txn.changed), db.total_changes
            try:
                job.result = job.step(txn, *job.args)
            except Exception as exc:
                job.fail(exc)
                if db.total_changes != written or not db.in_transaction:
                    self._roll_back()
                    return job
                del txn.changed[noted:]
        if txn.changed:  # For the caches of other processes, in the same transaction.
            keys = b"".join(dict.fromkeys(txn.changed))
            number = txn.execute("INSERT INTO change (keys) VALUES (?)", (keys,)).lastrowid
            if number is not None and number % _PRUNE_EVERY == 0:
                txn.execute("DELETE FROM change WHERE number <= ?", (number - _CHANGES_KEPT,))
        db.execute("COMMIT")
        return None

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")


class ReaderThreads:
    """A few threads, each with its own connection, so that a read never waits for an fsync."""

    def __init__(
        self, connections: Sequence[sqlite3.Connection], *, check_file: Callable[[], None] = lambda: None
    ) -> None:
        self._check_file = check_file
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._queue: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run_jobs, args=(db,), name=f"tenuto-sqlite-reader-{place}", daemon=True)
            for place, db in enumerate(connections)
        ]
        for thread in self._threads:
            thread.start()

    def run(
        self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run a step that reads one snapshot of the file."""
        assert not kwargs, "steps take positional arguments"
        future: asyncio.Future[T] = self._loop.create_future()
        self.start(future, step, *args)
        return future

    def start(self, receiver: JobReceiver, step: Callable[..., T], *args: Any) -> None:
        """As `run`, for a receiver."""
        if self._closing:
            raise Unavailable("session store", "is closed")
        self._queue.put(Job(receiver, step, args))

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
                self._check_file()
                db.execute("BEGIN")
                job.result = job.step(db, *job.args)
            except Exception as exc:
                job.fail(exc)
            with suppress(sqlite3.Error):
                if db.in_transaction:
                    db.execute("ROLLBACK")
            with suppress(RuntimeError):  # A closed loop has no waiting callers.
                self._loop.call_soon_threadsafe(_set_results, (job,))
        db.close()


_Waiting: TypeAlias = list[tuple[asyncio.Future[_Answer], _Asked]]


class Gathered(Generic[_Asked, _Answer]):
    """Hands over together what is asked in one turn of the event loop; each caller has a future of its own."""

    def __init__(self, thread: WriterThread | ReaderThreads, step: Callable[..., Sequence[_Answer]]) -> None:
        self._thread = thread
        self._step = step
        self._waiting: _Waiting[_Answer, _Asked] = []

    def ask(self, asked: _Asked) -> asyncio.Future[_Answer]:
        """The answer to one of them."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self.hand_over)
        future: asyncio.Future[_Answer] = loop.create_future()
        self._waiting.append((future, asked))
        return future

    def hand_over(self) -> None:
        """Send what is waiting."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self.send(waiting)

    def send(self, waiting: _Waiting[_Answer, _Asked]) -> None:
        """Send these, and share out the answers; `Gathered` and its batches alone call this."""
        try:
            self._thread.start(_GatheredCalls(self, waiting), self._step, [asked for _, asked in waiting])
        except Unavailable as error:
            _fail_all(waiting, error)


class _GatheredCalls(Generic[_Asked, _Answer]):
    """Receives the answers to calls that were sent together. A future for all of them would cost another turn of the
    loop."""

    def __init__(self, gathered: Gathered[_Asked, _Answer], waiting: _Waiting[_Answer, _Asked]) -> None:
        self._gathered = gathered
        self._waiting = waiting

    def done(self) -> bool:
        return False

    cancelled = done

    def set_result(self, answers: Sequence[_Answer]) -> None:
        for (future, _), answer in zip(self._waiting, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    def set_exception(self, failure: Exception) -> None:
        if len(self._waiting) > 1 and _may_be_of_one(failure):
            for one in self._waiting:
                self._gathered.send([one])
        else:
            _fail_all(self._waiting, failure)

    def exception(self) -> None:
        return None


def _may_be_of_one(failure: BaseException) -> bool:
    """Whether one of several calls may have caused it: nothing was done, and the others must not fail with it."""
    return not isinstance(failure, TenutoError) or isinstance(failure, StoreDamaged | StoreFull)


def _fail_all(waiting: list[tuple[asyncio.Future[_Answer], Any]], failure: BaseException) -> None:
    for future, _ in waiting:
        if not future.done():
            future.set_exception(failure)
            future.exception()  # The caller may have failed with another call, and await this one no more.
