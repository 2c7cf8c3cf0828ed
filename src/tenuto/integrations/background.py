"""Blocking calls into an open installation, for frameworks whose interface is not async.

An installation belongs to the event loop that opened it. A program without a loop opens it in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import tenuto
from tenuto.app import Tenuto

_Result = TypeVar("_Result")
_T = TypeVar("_T")


class Blocking:
    """Runs coroutines on the event loop of an installation while another thread waits for them."""

    def __init__(self, app: Tenuto) -> None:
        self._loop = app.loop

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """The result of a coroutine.

        Raises:
            InvalidStateError: called on the event loop itself, which would wait for itself.
        """
        try:
            inside = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            inside = False
        if inside or self._loop.is_closed():
            work.close()
        if inside:
            raise asyncio.InvalidStateError("a blocking call on tenuto's own event loop: use the async methods")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def iterate(self, items: AsyncIterator[_T]) -> Iterator[_T]:
        """The items of an async iterator, each fetched when it is asked for."""
        end = object()
        while True:
            item: Any = self.run(_next(items, end))
            if item is end:
                return
            yield item


async def _next(items: AsyncIterator[_T], end: object) -> object:
    return await anext(items, end)


@contextmanager
def open_blocking(store: str | None = None, **settings: Any) -> Iterator[Tenuto]:
    """Open tenuto on an event loop in a thread of its own, for programs without one; settings as in `tenuto.open`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="tenuto", daemon=True)
    thread.start()
    opened = tenuto.open(store, **settings)
    try:
        app = asyncio.run_coroutine_threadsafe(opened.__aenter__(), loop).result()
        try:
            yield app
        finally:
            asyncio.run_coroutine_threadsafe(opened.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
