"""Servers of other protocols in this process: each is loaded with its SDK by the first request that needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

from tenuto.errors import ExtraMissing


class Closable(Protocol):
    """What is closed at the end."""

    def close(self) -> Awaitable[None]:
        """Release what it holds."""
        ...


_Server = TypeVar("_Server", bound=Closable)


class LazyServer(Generic[_Server]):
    """The server of a protocol, once a request has opened it.

    `load` imports it, in a thread, and returns its maker; `protocol` and `extra` are named where its SDK is missing.
    """

    def __init__(self, load: Callable[[], Callable[[], _Server]], *, protocol: str, extra: str) -> None:
        self._load = load
        self._what, self._extra = f"protocol {protocol}", extra
        self._lock = asyncio.Lock()
        self._opened: _Server | None = None

    async def open(self) -> _Server:
        """The server.

        Raises:
            ExtraMissing: the SDK is not installed.
        """
        async with self._lock:
            if self._opened is None:
                try:
                    make = await asyncio.to_thread(self._load)
                except ModuleNotFoundError as error:
                    raise ExtraMissing(self._what, self._extra) from error
                self._opened = make()
        return self._opened

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Close it at the end, if it was opened."""
        try:
            yield
        finally:
            if self._opened is not None:
                await self._opened.close()
