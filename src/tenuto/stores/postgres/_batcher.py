"""Group commit: calls that queue up while a batch is under way go together in the next one.

A batch is one statement: one round trip, one transaction, one flush to disk. Calls are sorted, so that batches take
their locks in the same order. If two still deadlock, the server rolls one back, and its calls are sent one by one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tenuto.errors import Unavailable
from tenuto.stores.postgres._client import Row
from tenuto.stores.postgres._errors import STORE, InDoubt, RequestRejected, Unsent

Op: TypeAlias = tuple[Any, ...]

# Enough to share a flush; few enough that the server runs one batch while replies of another are read.
MAX_OPS: Final = 16
MAX_BYTES: Final = 4 * 1024 * 1024


@dataclass(slots=True)
class Job:
    """One call in a batch; the first two fields of `op` are the session's key and space."""

    op: Op
    size: int
    again: Op | None
    answer: asyncio.Future[Row] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    tries: int = 0

    @property
    def order(self) -> tuple[bytes, bytes]:
        """Its place in a batch: by space, then by key."""
        return self.op[1], self.op[0]

    def resolve(self, row: Row) -> None:
        """Set the result, unless the caller was cancelled."""
        if not self.answer.done():
            self.answer.set_result(row)

    def fail(self, exc: BaseException) -> None:
        """Set an error, unless the caller was cancelled."""
        if not self.answer.done():
            self.answer.set_exception(exc)


class Lane:
    """Sends one kind of call in batches, at most `width` batches at a time.

    The call of a cancelled caller is dropped if it was not sent, and carried out otherwise. `patience` is how many
    seconds a caller waits in all.
    """

    def __init__(
        self, send: Callable[[Sequence[Op]], Awaitable[Sequence[Row]]], *, width: int, patience: float | None = None
    ) -> None:
        self._send = send
        self._width = width
        self._patience = patience
        self._waiting: deque[Job] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._called = False
        self._closed = False

    async def call(self, op: Op, *, size: int = 0, again: Op | None = None) -> Row:
        """Send one call.

        If the connection is lost, `again` is sent instead, once: a form of the call that is safe to repeat. A call that
        was not sent is retried once in any case, but not after a timeout.

        Raises:
            InDoubt: there was no answer in time.
        """
        if self._closed:
            raise Unavailable(STORE, "is closed")
        job = Job(op, size, again)
        self._waiting.append(job)
        self._schedule_start()
        try:
            async with asyncio.timeout(self._patience):
                return await job.answer
        except TimeoutError:
            raise InDoubt(STORE) from None

    async def close(self) -> None:
        """Fail the queued calls, and wait for the running batches."""
        self._closed = True
        while self._waiting:
            self._waiting.popleft().fail(Unavailable(STORE, "is closed"))
        if self._under_way:
            await asyncio.wait(self._under_way)

    def _schedule_start(self) -> None:
        # Callers woken by one batch call again in the same iteration of the loop: wait for its end.
        if not self._called and len(self._under_way) < self._width:
            self._called = True
            asyncio.get_running_loop().call_soon(self._start_batches)

    def _start_batches(self) -> None:
        self._called = False
        while self._waiting and len(self._under_way) < self._width:
            batch = self._take_batch()
            if batch:
                task = asyncio.create_task(self._send_batch(batch))
                self._under_way.add(task)
                task.add_done_callback(self._on_batch_done)

    def _on_batch_done(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if self._waiting:
            self._schedule_start()

    def _take_batch(self) -> list[Job]:
        batch: list[Job] = []
        size = 0
        while self._waiting and len(batch) < MAX_OPS and size < MAX_BYTES:
            job = self._waiting.popleft()
            if not job.answer.done():
                batch.append(job)
                size += job.size
        batch.sort(key=lambda job: job.order)
        return batch

    async def _send_batch(self, batch: list[Job]) -> None:
        try:
            for row in await self._send([job.op for job in batch]):
                batch[row["nth"] - 1].resolve(row)
        except (Unsent, InDoubt) as exc:
            self._requeue_or_fail(batch, exc)
        except RequestRejected as exc:
            if len(batch) == 1:
                batch[0].fail(exc)
            else:  # One call failed the batch: alone, it fails alone.
                await asyncio.gather(*(self._send_batch([job]) for job in batch))
        except Exception as exc:
            # Callers must get any error: none may wait for ever.
            for job in batch:
                job.fail(exc)

    def _requeue_or_fail(self, batch: list[Job], exc: Unsent | InDoubt) -> None:
        waited = isinstance(exc.__cause__, TimeoutError)
        for job in reversed(batch):
            again = job.op if isinstance(exc, Unsent) else job.again
            if again is not None and job.tries == 0 and not waited and not self._closed:
                job.op, job.tries = again, 1
                self._waiting.appendleft(job)
            else:
                job.fail(exc)
