"""Work that many callers wait for and that runs once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from tenuto.stores.redis._resp import CallTimeout, Unsent

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs `work` when somebody asks; whoever asks meanwhile waits for the same run.

    A caller that gives up leaves the run to the others. What the run raises reaches all of them.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._running: asyncio.Task[T] | None = None

    def start(self) -> asyncio.Task[T]:
        """Begin a run, or name the one under way."""
        if self._running is None:
            self._running = asyncio.create_task(self._work())
            self._running.add_done_callback(self._on_done)
        return self._running

    async def join(self, deadline: float) -> T:
        """Wait for the run until `deadline`, an event-loop time.

        Raises:
            CallTimeout: it takes longer.
            Unsent: somebody closed it meanwhile.
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
                # the run was cancelled, not its caller: to the caller that is a lost connection
                raise Unsent("the connection was closed before it stood") from None
            raise

    def close(self) -> None:
        if self._running is not None:
            self._running.cancel()

    def _on_done(self, run: asyncio.Task[T]) -> None:
        self._running = None
        if not run.cancelled():
            # looked at here because the callers may all have gone
            run.exception()
