"""Operations of callers that come at the same time, as one batch: they share a call of the store and its commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from langgraph.store.base import Op, Result

from tenuto.errors import Unavailable

Run: TypeAlias = Callable[[Sequence[Op]], Awaitable[list[Result]]]


class OpGatherer:
    """Callers of one iteration of the event loop become one batch, run by the first of them.

    A caller whose operations fail does not fail the others: a batch that was refused stored nothing, and each caller's
    operations run again alone. While the store is unavailable, all of them get that error.
    """

    def __init__(self) -> None:
        self._open: list[tuple[Sequence[Op], asyncio.Future[list[Result]]]] = []

    async def run(self, ops: Sequence[Op], run: Run) -> list[Result]:
        """The results of these operations; a caller must not be cancelled, since others may wait for its batch."""
        answer: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        self._open.append((ops, answer))
        if len(self._open) == 1:
            await asyncio.sleep(0)
            batch, self._open = self._open, []
            await _run_batch(batch, run)
        return await answer


async def _run_batch(batch: Sequence[tuple[Sequence[Op], asyncio.Future[list[Result]]]], run: Run) -> None:
    try:
        results = iter(await run([op for ops, _ in batch for op in ops]))
    except BaseException as error:
        if len(batch) == 1 or isinstance(error, Unavailable) or not isinstance(error, Exception):
            for _, answer in batch:
                answer.set_exception(error)
            return
        for one in batch:
            await _run_batch([one], run)
        return
    for ops, answer in batch:
        answer.set_result([next(results) for _ in ops])
