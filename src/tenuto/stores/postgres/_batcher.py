"""Group commit: calls that queue up while a batch is under way go together in the next one.

A batch is one statement: one round trip, one transaction, one flush to disk for all of them. Calls are sorted, so
that two batches take their locks in the same order. Where they still wait for each other in a circle, because one
of them holds calls that need a closer look, the server undoes one, and its calls are then sent one by one.
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

# Enough to share a flush; few enough that the server works on one batch while we read the answers of another.
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
        """Where it stands in a batch: spaces together, keys in order."""
        return self.op[1], self.op[0]

    def resolve(self, row: Row) -> None:
        """Give the caller its answer, unless it has gone."""
        if not self.answer.done():
            self.answer.set_result(row)

    def fail(self, exc: BaseException) -> None:
        """Give the caller an error, unless it has gone."""
        if not self.answer.done():
            self.answer.set_exception(exc)


class Lane:
    """Sends one kind of call in batches, at most `width` batches at a time.

    A caller that goes away harms nothing: its call is left out if it was not sent, carried out otherwise. `patience`
    is how many seconds a caller waits, for its place in a batch and for the answer together.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Op]], Awaitable[Sequence[Row]]],
        *,
        width: int,
        patience: float | None = None,
    ) -> None:
        self._send = send
        self._width = width
        self._patience = patience
        self._waiting: deque[Job] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._called = False
        self._closed = False

    async def call(self, op: Op, *, size: int = 0, again: Op | None = None) -> Row:
        """Carry out one call.

        With `again` it may be carried out twice without harm: when the connection is lost under it, that is sent,
        once. A call that was not sent at all is tried once more in any case. One that has waited its time in vain is
        not.

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
        """Refuse what waits, let end what is under way."""
        self._closed = True
        while self._waiting:
            self._waiting.popleft().fail(Unavailable(STORE, "is closed"))
        if self._under_way:
            await asyncio.wait(self._under_way)

    def _schedule_start(self) -> None:
        # Callers woken by one batch come back in the same round of the loop: they are waited for until its end.
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
            await self._send_one_by_one(batch, exc)
        except Exception as exc:
            # Whatever it is, it is the callers' to see; nobody may wait for ever.
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

    async def _send_one_by_one(self, batch: list[Job], exc: RequestRejected) -> None:
        """One call spoiled the batch: alone, it fails alone."""
        if len(batch) == 1:
            batch[0].fail(exc)
            return
        await asyncio.gather(*(self._send_batch([job]) for job in batch))
