"""An event loop with virtual time, in which several processes run one callback at a time, chosen by a seed.

A process is a context variable in every callback's context. Among processes the order is random; inside one it is that
of asyncio, which code may rely on. A killed process loses its callbacks and timers; a frozen one keeps them for later.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from random import Random
from typing import Any

_FUSE = 2_000_000


class Process:
    """One incarnation of a process. Its tasks are kept until the end: collecting them would run their `finally`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.frozen_until = 0.0
        self.ready: deque[asyncio.Handle] = deque()
        self.tasks: list[asyncio.Task[Any]] = []


WORLD = Process("world")
CURRENT: ContextVar[Process] = ContextVar("process", default=WORLD)


class Stuck(Exception):
    """Nothing is left to happen, and the story has not ended."""


class SimLoop(asyncio.BaseEventLoop):
    """Runs a story in as long as it takes to compute."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._now = 0.0
        self._chance = chance
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self._world = Process("world")
        self._processes: list[Process] = [self._world]
        self._dead: list[Process] = []
        self.steps = 0
        self.failures: list[str] = []
        self.set_exception_handler(self._on_failure)

    def time(self) -> float:
        return self._now

    # What asyncio asks of a loop

    def _call_soon(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._process_of(handle).ready.append(handle)
        return handle

    # The types of asyncio's stubs tie the arguments to the callback, which nothing here needs.
    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is passed over when its time comes."""

    def _process_events(self, _events: list[Any]) -> None:
        """There is no network."""

    def _write_to_self(self) -> None:
        """There are no threads."""

    # Processes

    def add_process(self, name: str) -> Process:
        process = Process(name)
        self._processes.append(process)
        return process

    def kill(self, process: Process) -> None:
        process.is_alive = False
        process.ready.clear()
        self._processes.remove(process)
        self._dead.append(process)

    def spawn(self, process: Process, coroutine: Any) -> asyncio.Task[Any]:
        """Run a coroutine as this process."""
        context = Context()
        context.run(CURRENT.set, process)
        task = self.create_task(coroutine, context=context)
        process.tasks.append(task)
        return task

    def _process_of(self, handle: asyncio.Handle) -> Process:
        context: Context = handle._context  # type: ignore[attr-defined]  # asyncio keeps it there
        process = context.get(CURRENT, WORLD)
        return self._world if process is WORLD else process

    def _run_once(self) -> None:
        ready = [one for one in self._processes if one.ready and one.frozen_until <= self._now]
        if not ready:
            self._advance()
            return
        process = ready[0] if len(ready) == 1 else self._chance.choice(ready)
        handle = process.ready.popleft()
        self.steps += 1
        if self.steps > _FUSE:
            raise Stuck("the story does not end")
        if not handle.cancelled():
            handle._run()

    def _advance(self) -> None:
        """Go to the next timer, or to the end of a freeze."""
        thaws = [one.frozen_until for one in self._processes if one.ready]
        while self._timers and (self._timers[0][2].cancelled() or not self._process_of(self._timers[0][2]).is_alive):
            heapq.heappop(self._timers)
        if not self._timers and not thaws:
            raise Stuck("nothing is left to happen")
        due = min([*thaws, *([self._timers[0][0]] if self._timers else [])])
        self._now = max(self._now, due)
        while self._timers and self._timers[0][0] <= self._now:
            timer = heapq.heappop(self._timers)[2]
            process = self._process_of(timer)
            if process.is_alive and not timer.cancelled():
                process.ready.append(timer)

    def _on_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "was destroyed" not in context["message"]:
            self.failures.append(f"{context['message']}: {context.get('exception')!r}")
