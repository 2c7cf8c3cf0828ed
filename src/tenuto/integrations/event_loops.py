"""Where an adapter's calls run: the event loop of an open installation, or one of a store that the adapter names.

Frameworks call their stores from any thread and from event loops of their own (`Runner.run_sync` makes one for each
run), while an open installation belongs to one loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import tenuto
from tenuto.client.api import TenutoApi
from tenuto.errors import Invalid
from tenuto.sessions.lease import complete_despite_cancel

_Result = TypeVar("_Result")
Work: TypeAlias = Callable[[TenutoApi], Coroutine[Any, Any, _Result]]
Installation: TypeAlias = TenutoApi | str | Path
"""An installation that `tenuto.open` or `tenuto.connect` gave, or the URL or the file of a store."""
_CLOSED: Final = "the installation of this adapter is closed"
_LAST_CALLS: Final = 1.0
"""Seconds for calls to raise what the opening raised."""


class LoopBridge:
    """An installation and its event loop, to be called from any other one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, app: TenutoApi) -> None:
        self._loop = loop
        self._app = app
        self._pid = os.getpid()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the installation, once it has one."""
        return self._loop

    async def read(self, work: Work[_Result]) -> _Result:
        """Wait for the work; a cancelled caller cancels it."""
        if asyncio.get_running_loop() is self.loop:
            return await self._run(work)
        return await asyncio.wrap_future(self._submit(work))

    async def write(self, work: Work[_Result]) -> _Result:
        """Wait for the work; a cancellation is passed on when it is done, so that its outcome is known."""
        return await complete_despite_cancel(self.read(work))

    def wait(self, work: Work[_Result]) -> _Result:
        """Block this thread until the work is done.

        Raises:
            Invalid: this thread runs the event loop that would do it, or none does.
        """
        running = _running_loop()
        if running is not None and running is self.loop:
            raise Invalid("the event loop of the installation runs in this thread: use the asynchronous methods here")
        return self._submit(work).result()

    def close(self) -> None:
        """Nothing: the program that opened the installation closes it."""

    def _submit(self, work: Work[_Result]) -> Future[_Result]:
        if self._loop.is_closed():
            raise Invalid(_CLOSED)
        if self._pid != os.getpid():
            raise Invalid("the installation of this adapter belongs to the process that this one was forked from")
        if not self._loop.is_running():
            raise Invalid("the event loop of the installation does not run")
        return asyncio.run_coroutine_threadsafe(self._run(work), self._loop)

    async def _run(self, work: Work[_Result]) -> _Result:
        return await work(self._app)


class _StoreBridge(LoopBridge):
    """A store that an adapter has named: opened by the first call, closed with the last adapter that names it."""

    _lock: Final = threading.Lock()
    _open: Final[dict[str, _OpenStore]] = {}
    _users: Final[Counter[str]] = Counter()
    _before_fork: Final[set[str]] = set()

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_closed = False
        with self._lock:
            self._users[url] += 1

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """That of the store while it is open."""
        store = self._open.get(self._url)
        return store.loop if store is not None else None

    def close(self) -> None:
        """Close the store with its last user; again has no effect."""
        with self._lock:
            self._users[self._url] -= not self._is_closed
            self._is_closed = True
            store = self._open.pop(self._url, None) if not self._users[self._url] else None
        if store is not None:
            store.close()

    def _submit(self, work: Work[_Result]) -> Future[_Result]:
        with self._lock:
            if self._is_closed:
                raise Invalid(_CLOSED)
            if self._url in self._before_fork:
                raise Invalid("the file of this store was opened before the process was forked: use it after that only")
            store = self._open.get(self._url) or self._open.setdefault(self._url, _OpenStore(self._url, self._drop))
            return asyncio.run_coroutine_threadsafe(store.run(work), store.loop)

    async def _run(self, work: Work[_Result]) -> _Result:
        store = self._open.get(self._url)
        if store is None:
            raise Invalid(_CLOSED)
        return await store.run(work)

    @classmethod
    def _drop(cls, store: _OpenStore) -> None:
        """Have the next call open the store again."""
        with cls._lock:
            if cls._open.get(store.url) is store:
                del cls._open[store.url]

    @classmethod
    def _after_fork(cls) -> None:
        """Open stores anew in a child: threads are not inherited.

        Not the files of SQLite: it would take the locks of the parent for those of the child, and what the child writes
        would be lost once the parent closes.
        """
        cls._before_fork.update(url for url in cls._open if url.startswith("sqlite"))
        cls._open.clear()
        cls._lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_StoreBridge._lock.acquire,
        after_in_parent=_StoreBridge._lock.release,
        after_in_child=_StoreBridge._after_fork,
    )


class _OpenStore:
    """A store on an event loop in a thread of its own, shared by the adapters of this process that name it."""

    def __init__(self, url: str, forget: Callable[[_OpenStore], None]) -> None:
        self.url = url
        self.loop = asyncio.new_event_loop()
        self._drop = forget
        self._app: Future[TenutoApi] = Future()
        self._closing = asyncio.Event()
        # A daemon: what was acknowledged is stored, so the process may end without closing.
        self._thread = threading.Thread(target=self._serve, name="tenuto adapter", daemon=True)
        self._thread.start()

    async def run(self, work: Work[_Result]) -> _Result:
        """Do the work as soon as the store is open; raises what its opening raised."""
        opened = self._app
        return await work(opened.result() if opened.done() else await asyncio.wrap_future(opened))

    def close(self) -> None:
        """Close the store and end the thread."""
        # A failed opening has closed the loop.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._hold_open())

    async def _hold_open(self) -> None:
        try:
            async with tenuto.open(self.url) as app:
                self._app.set_result(app)
                await self._closing.wait()
        except Exception as error:
            if self._app.done():
                raise
            self._drop(self)
            self._app.set_exception(error)
            # Calls that came before that raise it, too.
            await asyncio.sleep(0)
            if calls := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(calls, timeout=_LAST_CALLS)


def find_bridge(where: Installation) -> LoopBridge:
    """The home of an open installation, in the running event loop; or that of a store.

    Raises:
        Invalid: no event loop runs here, so that of the installation is unknown.
    """
    if isinstance(where, str | Path):
        return _StoreBridge(where if isinstance(where, str) and "://" in where else f"sqlite:///{where}")
    loop = _running_loop()
    if loop is None:
        raise Invalid("make the adapter in the event loop in which the installation was opened")
    return LoopBridge(loop, where)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
