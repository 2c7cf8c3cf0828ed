"""The queues of a worker, read by one thread that is woken by what is enqueued here, and rests where nothing is.

DBOS would read each queue in a thread of its own, and each time its configuration first: an idle server spent seconds
of processor time a minute on it. What other processes enqueue is found by looking, with one statement for all queues.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import sqlalchemy as sa
from dbos import DBOS, _dbos
from dbos._core import ActiveWorkflowById, execute_dequeued_workflow
from dbos._schemas.system_database import SystemSchema
from dbos._utils import GlobalParams, generate_uuid

from tenuto.logs import OutageLog, describe_exception

_log = logging.getLogger(__name__)
SLOTS: Final = 1000
"""The limit of a queue. It is in the database, the same for all workers: each worker's own limit is counted below."""
# Seconds between two looks: while tasks wait for a free slot, and while none does.
_BUSY: Final = 0.2
_IDLE: Final = 0.5
# In the words of the index, which SQLite does not find otherwise.
_WAITING: Final = (
    sa.select(SystemSchema.workflow_status.c.queue_name)
    .distinct()
    .where(sa.text("status IN ('ENQUEUED', 'PENDING') AND status = 'ENQUEUED'"))
)


class RunningTasks(ActiveWorkflowById):
    """The runs of this process, which DBOS counts before it takes more of a queue: all but `limit` slots are taken.

    The limit is for all queues together, and runs that are `waiting` for a person do not count.
    """

    def __init__(self, limit: int, queues: Collection[str]) -> None:
        super().__init__()
        self.waiting: set[str] = set()
        self._limit = limit
        self._queues = queues

    def count_for_queue(self, queue_name: str) -> int:
        """The slots of a queue that are taken."""
        count = super().count_for_queue
        if queue_name not in self._queues:
            return count(queue_name)
        busy = sum(count(queue) for queue in self._queues) - len(self.waiting)
        return SLOTS - max(self._limit - busy, 0)


class QueueReader:
    """Takes the tasks of some queues and begins their runs."""

    def __init__(self, runs: RunningTasks) -> None:
        self.names: Sequence[str] = ()
        self._runs = runs
        self._news = threading.Event()
        self._closed = False
        self._dbos: DBOS | None = None

    def wake(self) -> None:
        """Look now: something was enqueued."""
        self._news.set()

    def wake_run(self, waiting_for: str) -> None:
        """Let a run of this process look for a message, if it waits for one here."""
        waiting = self._dbos._sys_db.notifications_map.get(waiting_for) if self._dbos is not None else None
        if waiting is not None:
            waiting.set()

    def close(self) -> None:
        """Take nothing more."""
        self._closed, self._dbos = True, None
        self.wake()

    def read(self, stop: threading.Event, dbos: DBOS) -> None:
        """Read the queues until closed, in a thread that DBOS starts."""
        self._dbos = dbos
        outage = OutageLog(_log, "reading the queues of tasks")
        while not (self._closed or stop.is_set()):
            self._news.clear()
            waiting: Sequence[str] = ()
            try:
                waiting = self._waiting_queues(dbos)
                for name in waiting:
                    self._start_runs(dbos, name)
                outage.note_success()
            except Exception as error:
                outage.note_failure(error)
            self._news.wait(_BUSY if waiting else _IDLE)

    def _waiting_queues(self, dbos: DBOS) -> Sequence[str]:
        """The queues in which something waits, in our order."""
        with dbos._sys_db.engine.connect() as connection:
            waiting = set(connection.execute(_WAITING).scalars())
        return [name for name in self.names if name in waiting]

    def _start_runs(self, dbos: DBOS, name: str) -> None:
        database, owner = dbos._sys_db, generate_uuid()
        queue = database.get_queue(name)
        if queue is None:
            return
        running = self._runs.count_for_queue(name)
        workflow_ids, _ = database.start_queued_workflows(
            queue, GlobalParams.executor_id, GlobalParams.app_version, None, running, owner_xid=owner
        )
        for workflow_id in workflow_ids:
            try:
                status = database.get_workflow_status(workflow_id)
                if status is not None:
                    execute_dequeued_workflow(dbos, status, owner)
            except Exception as error:
                _log.error("a task could not begin: %s", describe_exception(error))


@contextmanager
def replace_polling(reader: QueueReader) -> Iterator[None]:
    """Launched meanwhile, DBOS has this reader instead of its threads for queues, and none for what we never use.

    Those look every second for runs past a limit of DBOS's own and for schedules; the limits of tasks are ours.
    """
    ours = {
        "queue_thread": reader.read,
        "workflow_timeout_thread": _end_at_once,
        "dynamic_scheduler_loop": _end_at_once,
    }
    theirs = {name: getattr(_dbos, name) for name in ours}
    try:
        for name, thread in ours.items():
            setattr(_dbos, name, thread)
        yield
    finally:
        for name, thread in theirs.items():
            setattr(_dbos, name, thread)


def _end_at_once(*_: object) -> None:
    """A thread without work."""
