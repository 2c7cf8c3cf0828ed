"""Work of a turn that comes to its end, or releases the lease, even if its caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tenuto.model import AppendResult, FinishTurn, OpenTurn
from tenuto.ports import release_lease

_Result = TypeVar("_Result")


async def complete_despite_cancel(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Wait until the work is done, and only then pass on a cancellation; `asyncio.shield` would leave it unowned."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError as error:
        cancelled = error
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    # Retrieved, so that asyncio does not log an unretrieved exception.
    task.exception()
    raise cancelled


async def release_on_error(
    finish: Callable[[OpenTurn, FinishTurn], Awaitable[AppendResult]],
    turn: OpenTurn,
    work: Coroutine[Any, Any, _Result],
) -> _Result:
    """Wait for work that belongs to a begun turn; if it fails, release the lease."""
    try:
        return await work
    except BaseException:
        await complete_despite_cancel(release_lease(finish, turn))
        raise
