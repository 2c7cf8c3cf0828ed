"""Liveness and retention of runs: the heartbeat of a worker, the runs of dead ones, and those that ended long ago.

All of it blocks, and runs in threads: a busy loop is no dead worker.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Final

import sqlalchemy as sa
from dbos import DBOSClient
from dbos._schemas.system_database import SystemSchema
from dbos._utils import INTERNAL_QUEUE_NAME

from tenuto.logs import OutageLog
from tenuto.model.policy import RunPolicy
from tenuto.tasks.engines._workers import Workers

_log = logging.getLogger(__name__)
_SWEEP_EVERY: Final = 60.0
_SWEPT_AT_ONCE: Final = 500
# DBOS asks once a second whether a run was cancelled.
_CANCEL_SECONDS: Final = 1.5
# Asked every second: DBOS's own list reads all columns. The literal is that of an index.
_PENDING: Final = sa.select(
    SystemSchema.workflow_status.c.workflow_uuid, SystemSchema.workflow_status.c.executor_id
).where(sa.text("status = 'PENDING'"))


class Reaper:
    """Watches the workers from one of them, or from a process that only controls tasks. `names` are workflows."""

    def __init__(
        self, client: DBOSClient, *, workers: Workers, worker: str, names: Sequence[str], policy: RunPolicy
    ) -> None:
        self._client = client
        self._workers = workers
        self._worker = worker
        self._names = list(names)
        self._policy = policy

    def beat(self, stop: threading.Event, agents: Callable[[], Collection[str]]) -> None:
        """Tell until the stop that this worker lives and which agents it has; watch the others, and sweep."""
        last_sweep, outage = 0.0, OutageLog(_log, "a worker's heartbeat")
        while not stop.wait(self._policy.heartbeat.total_seconds()):
            try:
                self._workers.beat(self._worker, agents())
                self.recover_dead()
                if time.monotonic() - last_sweep >= _SWEEP_EVERY:
                    last_sweep = time.monotonic()
                    self.sweep()
                outage.note_success()
            except Exception as error:
                self._workers.forget()
                outage.note_failure(error)

    def others_work(self) -> bool:
        """Whether another worker has a run."""
        return any(owner != self._worker for _, owner in self._pending())

    def recover_dead(self) -> int:
        """Enqueue the tasks of dead workers again; one that is wrongly taken for dead can record nothing any more."""
        pending = self._pending()
        # Read last: a worker has its row before its first task.
        living = self._workers.read()
        dead = self._workers.dead(living) - {self._worker}
        count = 0
        for workflow_id, owner in pending:
            if owner is not None and owner != self._worker and (owner in dead or owner not in living):
                count += self._client._sys_db.reenqueue_for_recovery(workflow_id, [owner], INTERNAL_QUEUE_NAME)
        if dead:
            self._workers.remove(dead)
        if count:
            _log.warning("%s tasks of dead workers were recovered", count)
        return count

    def sweep(self) -> int:
        """Remove what is known of runs that ended long ago; returns their number."""
        before = datetime.now(UTC) - self._policy.run_retention
        finished_workflows = self._client.list_workflows(
            status=["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"],
            name=self._names,
            completed_before=before.isoformat(),
            limit=_SWEPT_AT_ONCE,
            load_input=False,
            load_output=False,
        )
        if finished_workflows:
            self._client.delete_workflows([workflow.workflow_id for workflow in finished_workflows])
        return len(finished_workflows)

    def cancel(self, prefix: str) -> None:
        """Cancel the runs whose ids begin so."""
        workflows = self._client.list_workflows(
            workflow_id_prefix=prefix, status=["ENQUEUED", "PENDING"], load_input=False, load_output=False
        )
        if workflows:
            self._client.cancel_workflows([workflow.workflow_id for workflow in workflows])

    def erase(self, prefix: str) -> int:
        """Remove all that is known of the runs whose ids begin so; returns their number."""
        workflows = self._client.list_workflows(workflow_id_prefix=prefix, load_input=False, load_output=False)
        ids = [workflow.workflow_id for workflow in workflows]
        if ids:
            self._client.cancel_workflows(ids)
            if any(workflow.status == "PENDING" for workflow in workflows):
                time.sleep(_CANCEL_SECONDS)  # Agents at work are stopped by what their worker reads.
            self._client.delete_workflows(ids)
        return len(ids)

    def _pending(self) -> Sequence[tuple[str, str | None]]:
        """The runs that workers have, each with its worker."""
        with self._client._sys_db.engine.connect() as connection:
            return [(row.workflow_uuid, row.executor_id) for row in connection.execute(_PENDING)]
