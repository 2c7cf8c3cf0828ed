"""Calls that are made in one turn of the event loop, or while batches are under way, go to the server together.

A batch is one statement: one round trip, one transaction, one flush to disk.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, TimerHandle, get_running_loop
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from tenuto.errors import StoreRejected, Unavailable
from tenuto.stores.postgres._errors import STORE, TRANSIENT, InDoubt, Unsent

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST: Final = 64
"""Calls in a batch: enough to share a flush, few enough that the server works on one while another is read."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""A batch takes no further call from this size on: large ones must not delay others beyond their time."""


class _Call(Generic[Item, Answer]):
    """One call, its answer, and when it must have ended."""

    __slots__ = ("deadline", "future", "is_retried", "item")

    def __init__(self, item: Item, future: Future[Answer], deadline: float) -> None:
        self.item = item
        self.future = future
        self.deadline = deadline
        self.is_retried = False


class Batches(Generic[Item, Answer]):
    """Sends one kind of call, at most `width` batches at a time; `send` answers in the order of its items.

    A call that was not sent is repeated once; one without an answer only if it `is_read`. One that makes the server
    refuse its batch fails alone. `timeout` is how many seconds a call may take in all, `weigh` tells its bytes.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        *,
        width: int,
        timeout: float,
        weigh: Callable[[Item], int] = lambda _: 0,
        is_read: bool = False,
    ) -> None:
        self._send = send
        self._width = width
        self._timeout = timeout
        self._weigh = weigh
        self._is_read = is_read
        self._waiting: deque[_Call[Item, Answer]] = deque()
        self._under_way: dict[asyncio.Task[None], list[_Call[Item, Answer]]] = {}
        self._is_scheduled = self._is_closed = False
        self._timer: TimerHandle | None = None

    def add(self, item: Item) -> Future[Answer]:
        """Send a call. Cancelling the future changes nothing."""
        loop = get_running_loop()
        future: Future[Answer] = loop.create_future()
        if self._is_closed:
            future.set_exception(Unavailable(STORE, "is closed"))
            return future
        deadline = loop.time() + self._timeout
        self._waiting.append(_Call(item, future, deadline))
        if self._timer is None:
            self._timer = loop.call_at(deadline, self._expire)
        self._schedule()
        return future

    async def close(self) -> None:
        """Fail the calls that wait, and wait for the batches under way."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            _fail(self._waiting.popleft(), Unavailable(STORE, "is closed"))
        if self._under_way:
            await asyncio.wait(self._under_way)

    def _schedule(self) -> None:
        if not self._is_scheduled and len(self._under_way) < self._width:
            self._is_scheduled = True
            get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        self._is_scheduled = False
        while self._waiting and len(self._under_way) < self._width:
            batch = self._take_batch()
            task = asyncio.create_task(self._run(batch))
            self._under_way[task] = batch
            task.add_done_callback(self._end)

    def _take_batch(self) -> list[_Call[Item, Answer]]:
        batch = list[_Call[Item, Answer]]()
        size = 0
        while self._waiting and len(batch) < MOST and size < MOST_BYTES:
            call = self._waiting.popleft()
            size += self._weigh(call.item)
            batch.append(call)
        return batch

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        if self._waiting:
            self._schedule()

    async def _run(self, batch: list[_Call[Item, Answer]]) -> None:
        try:
            answers = await self._send([call.item for call in batch])
        except StoreRejected as error:
            if len(batch) > 1:
                for call in batch:
                    await self._run([call])
            elif isinstance(error.__cause__, TRANSIENT):
                self._repeat(batch, error)
            else:
                _fail(batch[0], error)
        except (Unsent, InDoubt) as error:
            self._repeat(batch, error)
        except BaseException as error:
            # Each caller gets an answer: none may wait for ever.
            for call in batch:
                _fail(call, error if isinstance(error, Exception) else InDoubt(STORE))
            if not isinstance(error, Exception):
                raise
        else:
            for call, answer in zip(batch, answers, strict=True):
                if not call.future.done():
                    call.future.set_result(answer)

    def _repeat(self, batch: list[_Call[Item, Answer]], failure: Unavailable) -> None:
        """Queue the calls of a failed batch again, first of all, where that is safe and the first time."""
        has_waited = isinstance(failure.__cause__, TimeoutError)
        is_safe = self._is_read or not isinstance(failure, InDoubt)
        for call in reversed(batch):
            if is_safe and not has_waited and not call.is_retried and not self._is_closed:
                call.is_retried = True
                self._waiting.appendleft(call)
            else:
                _fail(call, failure)

    def _expire(self) -> None:
        """End the calls whose time is over, and look again when the next one's is."""
        now = get_running_loop().time()
        sent = [call for batch in self._under_way.values() for call in batch]
        for call in sent:
            if call.deadline <= now:
                _fail(call, InDoubt(STORE))
        kept = deque[_Call[Item, Answer]]()
        for call in self._waiting:
            if call.deadline <= now:
                _fail(call, Unsent(STORE, "is overloaded"))
            else:
                kept.append(call)
        self._waiting = kept
        pending = [call.deadline for call in (*sent, *kept) if call.deadline > now]
        self._timer = get_running_loop().call_at(min(pending), self._expire) if pending else None


def _fail(call: _Call[Item, Answer], failure: Exception) -> None:
    if not call.future.done():
        call.future.set_exception(failure)
