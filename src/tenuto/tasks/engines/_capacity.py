"""How many tasks a worker takes at once, so that others share the queue and no task waits with its time running."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from dbos._core import ActiveWorkflowById

SLOTS: Final = 1000
"""The limit of a queue. It is in the database, the same for all workers: each worker's own limit is counted below."""


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
