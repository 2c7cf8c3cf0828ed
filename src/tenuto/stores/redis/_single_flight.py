"""Work that runs once for all concurrent callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from tenuto.stores.redis._resp import CallTimeout, Unsent

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs `work` on demand; concurrent callers await the same run and get the same error.

    A cancelled caller does not cancel the run.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._running: asyncio.Task[T] | None = None

    def start(self) -> asyncio.Task[T]:
        """Start a run, or return the one under way."""
        if self._running is None:
            self._running = asyncio.create_task(self._work())
            self._running.add_done_callback(self._on_done)
        return self._running

    async def join(self, deadline: float) -> T:
        """Wait for the run until `deadline`, an event-loop time.

        Raises:
            CallTimeout: it takes longer.
            Unsent: it was closed meanwhile.
        """
        run = self.start()
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(run)
        except TimeoutError as exc:
            raise CallTimeout("the server was not reached in time") from exc
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if run.cancelled() and me is not None and not me.cancelling():
                # The run was cancelled, not its caller.
                raise Unsent("the connection was closed before it was set up") from None
            raise

    def close(self) -> None:
        if self._running is not None:
            self._running.cancel()

    def _on_done(self, run: asyncio.Task[T]) -> None:
        self._running = None
        if not run.cancelled():
            run.exception()  # Marks it as retrieved: all callers may have been cancelled.
