"""Agents of files run in a thread with an event loop of its own, so that one that blocks it does not stop the program.

A thread cannot be killed. One whose agent does not give the loop back is left to that agent, and calls that follow get
another thread. When the agent's time is over, an exception is raised in it, which ends Python code; a call into C
returns first.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from concurrent.futures.thread import _threads_queues
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tenuto.task_errors import StepLost

if TYPE_CHECKING:
    from tenuto.tasks.agents import AgentContext, AgentFunction

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
# Seconds after which a loop that does not answer counts as blocked.
_TIMEOUT: Final = 1.0
# Seconds that the end of the process waits for cancelled agents.
_END: Final = 3.0


async def run_in(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run something in the loop that it belongs to, from this loop or another one."""
    if loop is asyncio.get_running_loop():
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


class AgentThreads:
    """The thread that agents run in, and those that were left to agents which block them."""

    def __init__(self, cancel_timeout: float = _TIMEOUT, end: float = _END) -> None:
        self._cancel_timeout = cancel_timeout
        self._end = end
        self._current: _AgentThread | None = None
        self._all: set[_AgentThread] = set()

    async def call(self, function: AgentFunction, context: AgentContext) -> Any:
        """Call an agent. A cancelled call ends when its agent does, or when it is cancelled again.

        Raises:
            StepLost: another agent, whose time is over, blocks the thread.
        """
        call = await self._begin(function, context)
        try:
            return await asyncio.shield(call.ended)
        except asyncio.CancelledError:
            if not call.ended.done():
                await self._cancel(call)
            raise

    async def close(self) -> None:
        """End the threads, after a few seconds even if agents ignore their cancellation."""
        calls = {call.ended: call for thread in self._all for call in thread.calls}
        late = (await asyncio.wait(calls, timeout=self._end))[1] if calls else ()
        for future in late:
            _log.warning("agent %s ignores its cancellation; its thread was abandoned", calls[future].agent)
        for thread in self._all:
            thread.stop()
            thread.leave_behind()

    async def _begin(self, function: AgentFunction, context: AgentContext) -> _AgentCall:
        """Begin a call, in another thread if the loop of this one is blocked."""
        while True:
            thread = self._thread()
            call = _AgentCall(thread, function, context)
            try:
                await asyncio.wait({call.started}, timeout=self._cancel_timeout)
                if call.started.done() or not call.withdraw():
                    return call
            except asyncio.CancelledError:
                if not call.withdraw():
                    call.cancel()
                raise
            self._replace(thread)

    async def _cancel(self, call: _AgentCall) -> None:
        """Cancel an agent and wait for its end. If it blocks its thread, the other agents there are lost."""
        call.cancel()
        finished, _ = await asyncio.wait({call.ended}, timeout=self._cancel_timeout)
        if not finished and not call.cancelled and call.thread.blocking_call() in (call, None):
            self._replace(call.thread)
            for other in call.thread.calls - {call}:
                other.lose()
            call.thread.interrupt()
        await asyncio.wait({call.ended})

    def _thread(self) -> _AgentThread:
        if self._current is None or self._current.is_over:
            self._current = _AgentThread()
        self._all = {thread for thread in self._all if not thread.is_over} | {self._current}
        return self._current

    def _replace(self, thread: _AgentThread) -> None:
        if self._current is thread:
            self._current = None
            call = thread.blocking_call()
            name = "an agent" if call is None else f"agent {call.agent}"
            _log.warning("%s blocks its event loop; other agents go on in another thread", name)
        thread.retire()


class _AgentThread:
    """A thread with an event loop, which ends when it is retired and its last call has ended."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.calls: set[_AgentCall] = set()
        self._retired = False
        self._stop = asyncio.Event()
        self._pool = ThreadPoolExecutor(thread_name_prefix="tenuto-agent-call")
        self.loop.set_default_executor(self._pool)
        self._thread = threading.Thread(target=self._run, name="tenuto-agents", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether the thread has ended: it was retired, or a task that an agent left behind has exited."""
        return not self._thread.is_alive()

    def blocking_call(self) -> _AgentCall | None:
        """The call whose agent has the loop; `None` also for a task that an agent has made."""
        running = asyncio.current_task(self.loop)
        return next((call for call in self.calls if call.task is running), None)

    def retire(self) -> None:
        """End when no call is left."""
        self._retired = True
        self._end_if_idle()

    def interrupt(self) -> None:
        """Raise `SystemExit` in the thread, whatever it does: all its calls are lost."""
        ident = ctypes.c_ulong(self._thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))

    def leave_behind(self) -> None:
        """Let the process end though functions run that agents have given to `asyncio.to_thread`."""
        # Threads of a daemon thread are daemons, but the interpreter joins those of pools nevertheless.
        at_exit_threads: Any = _threads_queues  # Typed as read-only.
        for worker in self._pool._threads:
            at_exit_threads.pop(worker, None)

    def remove(self, call: _AgentCall) -> None:
        """Note the end of a call."""
        self.calls.discard(call)
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._retired and not self.calls:
            self.stop()

    def stop(self) -> None:
        """End, once what runs there has been cancelled and is over."""
        with contextlib.suppress(RuntimeError):  # It has ended.
            self.loop.call_soon_threadsafe(self._stop.set)

    def _run(self) -> None:
        # A task that an agent has made may exit, too: it ends this thread, and not the program.
        with contextlib.suppress(SystemExit), asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._wait())

    async def _wait(self) -> None:
        await self._stop.wait()


class _AgentCall:
    """One call of an agent: its futures belong to the caller's loop, its task to the thread's."""

    def __init__(self, thread: _AgentThread, function: AgentFunction, context: AgentContext) -> None:
        self.thread = thread
        self.agent = context.agent
        self.task: asyncio.Future[Any] | None = None
        self.cancelled = False
        self._step = context.step
        self._home = asyncio.get_running_loop()
        self._result: Future[Any] = Future()
        self.started = self._home.create_future()
        self.ended = asyncio.wrap_future(self._result)
        self.ended.add_done_callback(self._remove)
        thread.calls.add(self)
        # In the caller's context, to which the ids of log lines and the span of the step are bound.
        thread.loop.call_soon_threadsafe(self._begin, function, context, context=copy_context())

    def withdraw(self) -> bool:
        """Give the call up if it has not begun; returns whether it had not."""
        return self._result.cancel()

    def cancel(self) -> None:
        """Cancel the agent; `cancelled` says that its loop has done so."""
        with contextlib.suppress(RuntimeError):  # The thread has ended.
            self.thread.loop.call_soon_threadsafe(self._cancel)

    def lose(self) -> None:
        """End the call for its caller; what its agent does later is refused."""
        self.cancel()
        with contextlib.suppress(InvalidStateError):
            self._result.set_exception(StepLost(self._step))

    def _remove(self, future: asyncio.Future[Any]) -> None:
        self.thread.remove(self)
        if not future.cancelled():
            future.exception()  # Else an exception after a cancellation is logged with its text.

    def _begin(self, function: AgentFunction, context: AgentContext) -> None:
        self.task = asyncio.ensure_future(self._run(function, context))
        self.task.add_done_callback(self._end)

    async def _run(self, function: AgentFunction, context: AgentContext) -> Any:
        if not self._result.set_running_or_notify_cancel():
            return None
        with contextlib.suppress(RuntimeError):  # The program has ended.
            self._home.call_soon_threadsafe(self._note_begin)
        return await function(context)

    def _cancel(self) -> None:
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()

    def _note_begin(self) -> None:
        if not self.started.done():
            self.started.set_result(None)

    def _end(self, task: asyncio.Future[Any]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        with contextlib.suppress(InvalidStateError):  # The call was withdrawn or lost.
            if error is not None:
                self._result.set_exception(error)
            else:
                self._result.set_result(task.result())
