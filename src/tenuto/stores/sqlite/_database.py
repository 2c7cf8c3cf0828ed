"""The threads of a SQLite file: one writes, a few read; and `Database`, which the ports share.

The writer commits together what has queued up, so that many callers share one fsync. While callers wait for the same
fsync the CPU is idle, and while they work the disk is idle. Where callers take longer than the disk, the writer splits
them into two halves: it acknowledges one half while the transaction of the other half goes to disk.

A step first checks and then writes, so most errors leave nothing behind. If a step fails after it has written, the
transaction is rolled back and the other steps run again without it; steps must tolerate that.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import secrets
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Container, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter, sleep
from typing import Any, Concatenate, Final, Generic, NamedTuple, ParamSpec, TypeVar

from tenuto.errors import Unavailable
from tenuto.model import Scope
from tenuto.model.scope import owner_key, session_key
from tenuto.model.values import check_id
from tenuto.ports import Clock
from tenuto.stores.codec import to_micros
from tenuto.stores.sqlite._errors import CorruptRow, is_busy, is_full, store_error
from tenuto.stores.sqlite._rows import HeadCache

_logger: Final = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

_MAX_CACHED_ID: Final = 256
# Callers beyond this many wait before they queue, so that a stalled disk cannot fill the memory.
_MAX_WAITING: Final = 10_000
_MAX_BATCH: Final = 1000
_CHANGES_KEPT: Final = 1000
_PRUNE_EVERY: Final = 128
# From so many jobs on it may be worth two fsyncs to have callers and disk work side by side.
_WORTH_HALVING: Final = 16
# Seconds that a quick disk takes for a commit.
_QUICK_DISK: Final = 0.003
# Seconds that callers whose jobs are on disk may be left untold, until the next transaction is on its way there.
_LONGEST_UNTOLD: Final = 0.003


quick: Final = bytearray
"""A blob on its way into a statement that every turn runs.

The driver takes a bytearray as it is, while for bytes it first looks, in vain and for a microsecond, for an adapter.
"""


class Ask(NamedTuple):
    """The lookup of one session at `now` (microseconds). `owner` is `None` for the tenant itself."""

    key: bytes
    owner: bytes | None
    session_id: str
    now: int


def _lookup_keys(scope: Scope, session_id: str) -> tuple[bytes, bytes | None]:
    return session_key(scope, session_id), owner_key(scope) if scope.owner else None


# A conversation uses the same keys at each turn. Long ids are not cached.
_cached_keys: Final = lru_cache(maxsize=8192)(_lookup_keys)


class Transaction:
    """What a step sees of the open transaction: SQL, known heads, and where to note the keys of sessions it changed."""

    __slots__ = ("changed", "execute", "executemany", "hot")

    def __init__(self, db: sqlite3.Connection, hot: HeadCache) -> None:
        self.hot = hot
        cursor = db.cursor()
        self.execute, self.executemany = cursor.execute, cursor.executemany
        self.changed: list[bytes] = []


class Job(Generic[T]):
    """A step to run on a thread for the caller that awaits `future`; `alone` means outside any transaction.

    `patient_until` (monotonic clock) is how long the caller waits for locks of other processes.
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
        self.failure = store_error(exc) if isinstance(exc, sqlite3.Error) else exc


def complete_jobs(
    loop: asyncio.AbstractEventLoop, jobs: Sequence[Job[Any]], done: Callable[[int], None] | None = None
) -> None:
    """Wake the callers of finished jobs with one call into their loop, from any thread; `done` gets their number."""
    # A closed loop has no waiting callers; what was committed stays committed.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_set_results, jobs, done)


def _set_results(jobs: Sequence[Job[Any]], done: Callable[[int], None] | None) -> None:
    for job in jobs:
        if job.future.done():
            continue  # The caller was cancelled meanwhile.
        if job.failure is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.failure)
    if done is not None:
        done(len(jobs))


def insist(step: Callable[[], T], patience: timedelta, meanwhile: Callable[[], None] | None = None) -> T:
    """Repeat a step while other processes hold its lock; call `meanwhile` after each refusal.

    SQLite's own backoff goes up to 100 ms, which starves beside a process that commits without pause.
    """
    deadline = monotonic() + patience.total_seconds()
    while True:
        try:
            return step()
        except sqlite3.OperationalError as exc:
            if not is_busy(exc) or monotonic() > deadline:
                raise
        if meanwhile is not None:
            meanwhile()
        sleep(random.uniform(0.0002, 0.003))


class WriterThread:
    """Group commit. A result is handed back after its commit, so acknowledged means on disk.

    The `brief` steps are those of which many fit into a millisecond or a few: behind them callers may wait.
    """

    def __init__(self, db: sqlite3.Connection, patience: timedelta, brief: Container[Callable[..., Any]] = ()) -> None:
        self.id: Final = secrets.randbits(62)
        self._db = db
        self._patience = patience.total_seconds()
        self._brief = brief
        self._hot = HeadCache()
        self._loop = asyncio.get_running_loop()
        self._gathered: list[Job[Any]] = []
        self._waiting = 0
        self._room = asyncio.Event()
        self._closing = False
        self._queue: SimpleQueue[list[Job[Any]] | None] = SimpleQueue()
        # Of the writer's own thread: jobs of the next transaction; settled ones whose callers do not know yet, and when
        # they shall; how long it last waited for callers, and for the disk.
        self._ahead: list[Job[Any]] = []
        self._settled: list[Job[Any]] = []
        self._tell_by = 0.0
        self._callers_took, self._disk_took = 0.0, math.inf
        self._thread = threading.Thread(target=self._run_thread, name="tenuto-sqlite-writer", daemon=True)
        self._thread.start()

    def run(self, step: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run a step in the next transaction and return its result once that is committed.

        A caller that is cancelled before its step began is left out; after that the step stands.
        """
        assert not kwargs, "steps take positional arguments"
        job: Job[T] = Job(self._loop.create_future(), step, args, patient_until=monotonic() + self._patience)
        return self._enqueue(job) if self._waiting < _MAX_WAITING else self._enqueue_when_room(job)

    def run_outside_transaction(self, step: Callable[[sqlite3.Connection, timedelta], T]) -> Awaitable[T]:
        """Run a step between two transactions, for what SQLite does outside of any; it is told our patience."""
        return self._enqueue(Job(self._loop.create_future(), step, (), alone=True))

    def _enqueue(self, job: Job[T]) -> asyncio.Future[T]:
        if self._closing:
            raise Unavailable("session store", "is closed")
        self._waiting += 1
        # Everything asked for within one turn of the loop goes over together.
        if not self._gathered:
            self._loop.call_soon(self._submit_batch)
        self._gathered.append(job)
        return job.future

    async def _enqueue_when_room(self, job: Job[T]) -> T:
        while self._waiting >= _MAX_WAITING:
            self._room.clear()
            await self._room.wait()
        return await self._enqueue(job)

    async def close(self) -> None:
        """Finish what is queued and close the connection."""
        if not self._closing:
            self._closing = True
            self._submit_batch()
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _submit_batch(self) -> None:
        if self._gathered:
            self._queue.put(self._gathered)
            self._gathered = []

    def _on_acknowledged(self, count: int) -> None:
        self._waiting -= count
        self._room.set()

    # From here on: the writer's own thread.

    def _run_thread(self) -> None:
        last = False
        while self._ahead or not last:
            if self._ahead:
                jobs, self._ahead = self._ahead, []
            else:
                jobs, last = self._collect_jobs()
                jobs, self._ahead = self._split_batch(jobs)
            if not all(job.step in self._brief for job in jobs):
                self._acknowledge()
            self._run_batch([job for job in jobs if not job.alone])
            for job in jobs:
                if job.alone:
                    self._acknowledge()
                    self._run_outside(job)
            if not self._ahead and self._queue.empty():
                self._acknowledge()
        self._acknowledge()
        self._db.close()

    def _collect_jobs(self) -> tuple[list[Job[Any]], bool]:
        """Wait for work, then take all that has come."""
        began = perf_counter()
        handed = self._queue.get()
        self._callers_took = perf_counter() - began
        jobs: list[Job[Any]] = []
        with suppress(Empty):
            while handed is not None:
                jobs += handed
                if len(jobs) >= _MAX_BATCH:
                    break
                handed = self._queue.get_nowait()
        return jobs, handed is None

    def _split_batch(self, jobs: list[Job[Any]]) -> tuple[list[Job[Any]], list[Job[Any]]]:
        """What goes into this transaction and what into the next: one half each where nobody else is under way.

        Only where callers take longer than the disk does it help that they work side by side; and once they are apart
        they stay so, hence a disk must be quick by any measure.
        """
        slow = self._disk_took > min(self._callers_took, _QUICK_DISK)
        if slow or len(jobs) < _WORTH_HALVING or self._waiting > len(jobs):
            return jobs, []
        half = len(jobs) // 2
        return jobs[:half], jobs[half:]

    def _acknowledge(self) -> None:
        """Tell callers what became of their jobs."""
        if self._settled:
            complete_jobs(self._loop, self._settled, self._on_acknowledged)
            self._settled = []

    def _run_batch(self, jobs: list[Job[Any]]) -> None:
        """Give each job its outcome: a result that is on disk, or a failure that left nothing."""
        left = [job for job in jobs if not job.future.cancelled()]
        try:
            while (left := self._begin_transaction(left)) and (broken := self._run_and_commit(left)) is not None:
                self._acknowledge()
                left.remove(broken)
                # What the others were refused may have stood on what is taken back now: each decides anew.
                for job in left:
                    job.failure = None
        except Exception as exc:
            self._roll_back()
            if isinstance(exc, sqlite3.Error) and is_full(exc):
                # Moving the log into the file may leave room on a full disk for the deletions that help.
                with suppress(sqlite3.Error):
                    self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            # Also those that were refused: it may have been for what is taken back now.
            for job in left:
                job.fail(exc)
        # Those before have been told, unless nothing was committed here.
        self._acknowledge()
        self._settled, self._tell_by = jobs, perf_counter() + _LONGEST_UNTOLD

    def _run_outside(self, job: Job[Any]) -> None:
        if not job.future.cancelled():
            try:
                job.result = job.step(self._db, timedelta(seconds=self._patience))
            except Exception as exc:
                job.fail(exc)
        self._settled.append(job)

    def _begin_transaction(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Begin a transaction for those jobs whose callers are patient until another process gives the lock free."""
        while jobs:
            patience = timedelta(seconds=min([job.patient_until for job in jobs]) - monotonic())
            try:
                insist(lambda: self._db.execute("BEGIN IMMEDIATE"), patience, meanwhile=self._acknowledge)
                break
            except sqlite3.OperationalError as exc:
                if not is_busy(exc):
                    raise
                now = monotonic()
                for job in jobs:
                    if job.patient_until <= now:
                        job.fail(exc)
                jobs = [job for job in jobs if job.patient_until > now]
        return jobs

    def _run_and_commit(self, jobs: list[Job[Any]]) -> Job[Any] | None:
        """Run the jobs in the transaction. A job that comes back failed halfway: then nothing at all was stored."""
        db = self._db
        self._hot.validate(db)
        txn = Transaction(db, self._hot)
        for job in jobs:
            if self._settled and perf_counter() > self._tell_by:
                self._acknowledge()
            noted, written = len(txn.changed), db.total_changes
            try:
                job.result = job.step(txn, *job.args)
            except Exception as exc:
                job.fail(exc)
                if db.total_changes != written or not db.in_transaction:
                    self._roll_back()
                    return job
                del txn.changed[noted:]
        self._record_changes(txn)
        self._acknowledge()
        began = perf_counter()
        db.execute("COMMIT")
        self._disk_took = perf_counter() - began
        return None

    def _record_changes(self, txn: Transaction) -> None:
        """Leave word for other processes' caches, in the same transaction."""
        if not txn.changed:
            return
        keys = b"".join(dict.fromkeys(txn.changed))
        number = txn.execute("INSERT INTO change (writer, keys) VALUES (?, ?)", (self.id, keys)).lastrowid
        if number is not None and number % _PRUNE_EVERY == 0:
            txn.execute("DELETE FROM change WHERE number <= ?", (number - _CHANGES_KEPT,))

    def _roll_back(self) -> None:
        self._hot.clear()
        with suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")


class ReaderThreads:
    """A few threads, each with its own connection, so that a read never waits for an fsync."""

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
            raise Unavailable("session store", "is closed")
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


def quarantine_session(txn: Transaction, row: int, session_id: str, reason: str, now: int) -> None:
    """Move a damaged record out of reach of its id."""
    found = txn.execute("SELECT key FROM session WHERE id = ? AND key IS NOT NULL", (row,)).fetchone()
    if found is None:
        return  # Another process was faster.
    txn.execute(
        "INSERT OR REPLACE INTO quarantine SELECT id, key, space, owner, ?, ? FROM session WHERE id = ?",
        (reason, now, row),
    )
    txn.execute("UPDATE session SET key = NULL, space = NULL, owner = NULL, sweep_at = NULL WHERE id = ?", (row,))
    txn.changed.append(found[0])
    txn.hot.take(found[0])
    _logger.warning("session %s was set aside as row %d: %s", session_id, row, reason)


class Database:
    """Runs steps in the writer thread or in a reader thread."""

    def __init__(self, *, clock: Clock, writer: WriterThread, readers: ReaderThreads) -> None:
        self.clock = clock
        self.writer = writer
        self.readers = readers

    def ask(self, scope: Scope, session_id: str) -> Ask:
        """Build the lookup of a session as of now."""
        check_id(session_id, "the session id")
        keys = _cached_keys if len(session_id) <= _MAX_CACHED_ID else _lookup_keys
        return Ask(*keys(scope, session_id), session_id, to_micros(self.clock()))

    async def write(self, step: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a step in the writer thread; quarantine a damaged record before the error reaches the caller."""
        try:
            return await self.writer.run(step, *args, **kwargs)
        except CorruptRow as damage:
            await self._try_quarantine(damage)
            raise

    async def read(self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `write`, in a reader thread."""
        try:
            return await self.readers.run(step, *args, **kwargs)
        except CorruptRow as damage:
            await self._try_quarantine(damage)
            raise

    async def _try_quarantine(self, damage: CorruptRow) -> None:
        try:
            await self.quarantine(damage)
        except Unavailable:
            # The file may be full or read-only. The caller gets the same error, and the next call tries again.
            _logger.warning("a damaged session (row %d) could not be set aside", damage.row)

    async def quarantine(self, damage: CorruptRow) -> None:
        """Move a damaged record aside, so that its id is free again."""
        now = to_micros(self.clock())
        await self.writer.run(quarantine_session, damage.row, damage.session_id, damage.reason, now)
