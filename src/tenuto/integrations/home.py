"""Where an adapter's calls run: the event loop of an open installation, or one of a store that the adapter names.

Frameworks call their stores from any thread and from event loops of their own (`Runner.run_sync` makes one for each
run), while an open installation belongs to one loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import tenuto
from tenuto.client.api import TenutoApi
from tenuto.errors import Invalid
from tenuto.sessions.service import complete_despite_cancel

_Result = TypeVar("_Result")
Work: TypeAlias = Callable[[TenutoApi], Coroutine[Any, Any, _Result]]
Installation: TypeAlias = TenutoApi | str | Path
"""An installation that `tenuto.open` or `tenuto.connect` gave, or the URL or the file of a store."""


class Home:
    """An installation and its event loop, to be called from any other one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, app: TenutoApi | None = None) -> None:
        self.loop = loop
        self._opened: Future[TenutoApi] = Future()
        if app is not None:
            self._opened.set_result(app)

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
            Invalid: this thread runs the event loop that would do it.
        """
        if _running_loop() is self.loop:
            raise Invalid("the event loop of the installation runs in this thread: use the asynchronous methods here")
        return self._submit(work).result()

    def close(self) -> None:
        """Nothing: the program that opened the installation closes it."""

    def _submit(self, work: Work[_Result]) -> Future[_Result]:
        if self.loop.is_closed():
            raise Invalid("the installation of this adapter is closed")
        return asyncio.run_coroutine_threadsafe(self._run(work), self.loop)

    async def _run(self, work: Work[_Result]) -> _Result:
        opened = self._opened
        return await work(opened.result() if opened.done() else await asyncio.wrap_future(opened))


class _OwnHome(Home):
    """A store on an event loop in a thread of its own, shared by the adapters of this process that name it."""

    _open: Final[dict[str, _OwnHome]] = {}
    _lock: Final = threading.Lock()

    def __init__(self, url: str) -> None:
        super().__init__(asyncio.new_event_loop())
        self._url = url
        self._users = 0
        self._closing = asyncio.Event()
        # A daemon: what was acknowledged is stored, so the process may end without closing.
        self._thread = threading.Thread(target=self._serve, name="tenuto adapter", daemon=True)
        self._thread.start()

    @classmethod
    def join(cls, url: str) -> _OwnHome:
        """The home of that store, one user more."""
        with cls._lock:
            home = cls._open.get(url) or cls._open.setdefault(url, cls(url))
            home._users += 1
            return home

    def close(self) -> None:
        """Close the store with its last user."""
        with self._lock:
            self._users -= 1
            if self._users or self._open.get(self._url) is not self:
                return
            del self._open[self._url]
        self.loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._hold_open())

    async def _hold_open(self) -> None:
        try:
            async with tenuto.open(self._url) as app:
                self._opened.set_result(app)
                await self._closing.wait()
        except Exception as failed:
            if self._opened.done():
                raise
            # Each call raises it.
            self._opened.set_exception(failed)
            await self._closing.wait()


def find_home(where: Installation) -> Home:
    """The home of an open installation, in the running event loop; or that of a store.

    Raises:
        Invalid: no event loop runs here, so that of the installation is unknown.
    """
    if isinstance(where, str | Path):
        return _OwnHome.join(where if isinstance(where, str) and "://" in where else f"sqlite:///{where}")
    loop = _running_loop()
    if loop is None:
        raise Invalid("make the adapter in the event loop in which the installation was opened")
    return Home(loop, where)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
