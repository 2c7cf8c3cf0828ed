"""Work that must come to its end, however often its caller is told to stop, and what a failed turn gives back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tenuto.model import AppendResult, FinishTurn, OpenTurn
from tenuto.ports import release_lease

_Result = TypeVar("_Result")


async def complete_despite_cancel(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Wait until the work is done. A cancellation that comes meanwhile is passed on afterwards, not into it.

    `asyncio.shield` alone would leave the work running with nobody to wait for it.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as told:
            cancelled = told
    if cancelled is not None:
        # Looked at, so that nobody is told of an error that was never retrieved.
        task.exception()
        raise cancelled
    return task.result()


async def release_on_error(
    finish: Callable[[OpenTurn, FinishTurn], Awaitable[AppendResult]],
    turn: OpenTurn,
    work: Coroutine[Any, Any, _Result],
) -> _Result:
    """Do what belongs to a begun turn; if it fails, release the lease."""
    try:
        return await work
    except BaseException:
        await complete_despite_cancel(release_lease(finish, turn))
        raise
