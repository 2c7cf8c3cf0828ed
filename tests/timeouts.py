"""Time limits for a machine that stands still for seconds now and then.

A store gives a server one second or five, which is right in production. A test that does not ask for a limit of its own
says nothing about time, and must not fail because its machine was busy elsewhere: there it is a minute. A test that
wants a limit to strike names a short one, and asks nothing else of that store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from tenuto.stores.postgres import PostgresRecords
from tenuto.stores.redis import ConnectionPolicy
from tenuto.stores.sqlite import SqliteRecords

LONG: Final = 60.0
"""Seconds. Nothing takes so long, unless it never ends."""


async def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for something that sends no event when it comes true."""
    async with asyncio.timeout(LONG):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def lengthen_store_timeouts() -> None:
    """Have every store that this process opens wait for a minute, unless it is told otherwise."""
    minute = timedelta(seconds=LONG)
    _by_default(ConnectionPolicy.__init__, connect_timeout=LONG, call_timeout=LONG)
    _by_default(PostgresRecords.open.__func__, timeout=minute, connect_timeout=minute)  # type: ignore[attr-defined]
    _by_default(SqliteRecords.open.__func__, lock_timeout=minute)  # type: ignore[attr-defined]


def _by_default(function: object, **values: object) -> None:
    defaults: dict[str, object] = getattr(function, "__kwdefaults__")  # noqa: B009 (functions have it, objects do not)
    assert defaults.keys() >= values.keys()
    defaults.update(values)
