"""A store that holds one call back, so that a test decides what comes in between."""

from __future__ import annotations

import asyncio
from typing import Any, Self, cast

from tenuto.ports import SessionStore, Store
from tests.timeouts import LONG


class HeldCall:
    """In front of a store: the first call of a method for a drawer whose name begins so waits until it may go on."""

    def __init__(self, store: Store, method: str, drawer: str) -> None:
        self._store = store
        self._method = method
        self._drawer = drawer
        self._come = asyncio.Event()
        self._may_go = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store.state, name)
        return self._held if name == self._method else call

    @property
    def state(self) -> Self:
        return self

    @property
    def sessions(self) -> SessionStore:
        return self._store.sessions

    @property
    def store(self) -> Store:
        return cast("Store", self)

    async def come(self) -> None:
        """Return when the call waits."""
        async with asyncio.timeout(LONG):
            await self._come.wait()

    def go(self) -> None:
        """Let it go on."""
        self._may_go.set()

    async def _held(self, scope: Any, namespace: str, *given: Any, **named: Any) -> Any:
        if namespace.startswith(self._drawer) and not self._come.is_set():
            self._come.set()
            await self._may_go.wait()
        return await getattr(self._store.state, self._method)(scope, namespace, *given, **named)
