"""An installation that stays open in a thread of its own, so that the main thread can wait for the keyboard.

Reading a line with editing and recall blocks its thread, and only the main one hears Ctrl-C. Titles, summaries and
leases must not wait for either, so the event loop runs elsewhere.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from tenuto.app import Tenuto, open_app
from tenuto.chat import Chat
from tenuto.cli.running import naming_store
from tenuto.settings import Settings

_Answer = TypeVar("_Answer")
# A signal that arrives just before a wait begins does not interrupt it, and Python acts on it only afterwards.
_SIGNAL_CHECK_SECONDS: Final = 0.5


class BackgroundApp:
    """An open installation and its chat."""

    def __init__(self, app: Tenuto, chat: Chat) -> None:
        self.app = app
        self.chat = chat
        self._loop = asyncio.get_running_loop()
        self._main_task = asyncio.current_task()
        self._leaving = asyncio.Event()

    def run(self, work: Callable[[], Coroutine[Any, Any, _Answer]]) -> _Answer:
        """Have the work done there, and wait for it. Ctrl-C cancels it, and is raised once it has ended."""
        ended = threading.Event()
        tasks: list[asyncio.Task[_Answer]] = []

        def begin() -> None:
            task = self._loop.create_task(work())
            task.add_done_callback(lambda _: ended.set())
            tasks.append(task)

        self._loop.call_soon_threadsafe(begin)
        try:
            while not ended.wait(_SIGNAL_CHECK_SECONDS):
                pass
        except KeyboardInterrupt:
            # Behind `begin`, whenever that comes.
            self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            ended.wait()
            raise
        return tasks[0].result()

    async def wait_closed(self) -> None:
        """Return when `leave` was called."""
        await self._leaving.wait()

    def leave(self, thread_end: Future[None]) -> None:
        """Close everything: titles and summaries under way get some seconds, unless Ctrl-C is pressed again."""
        self._loop.call_soon_threadsafe(self._leaving.set)
        try:
            thread_end.result()
        except KeyboardInterrupt:
            assert self._main_task is not None
            self._loop.call_soon_threadsafe(self._main_task.cancel)
            raise


@contextmanager
def open_in_background(settings: Settings) -> Iterator[BackgroundApp]:
    """Open what the settings name, with its chat, for as long as the block lasts.

    Raises:
        TenutoError: as opening it does.
    """
    app_future: Future[BackgroundApp] = Future()
    thread_end: Future[None] = Future()
    threading.Thread(target=_thread_main, args=(settings, app_future, thread_end), name="tenuto", daemon=True).start()
    with naming_store(settings):
        app = app_future.result()
    try:
        yield app
    finally:
        app.leave(thread_end)


def _thread_main(settings: Settings, app_future: Future[BackgroundApp], thread_end: Future[None]) -> None:
    """The thread; it passes any error on to the waiting caller."""
    try:
        asyncio.run(_run_app(settings, app_future))
    except BaseException as error:
        (thread_end if app_future.done() else app_future).set_exception(error)
    else:
        thread_end.set_result(None)


async def _run_app(settings: Settings, app_future: Future[BackgroundApp]) -> None:
    # As other commands do: a cache in front of the store would only cost connections.
    async with open_app(replace(settings, l1=False), run_upkeep=False) as app:
        background = BackgroundApp(app, await app.chat())
        app_future.set_result(background)
        await background.wait_closed()
