"""Stores by their URL. A driver is imported only when its backend is asked for, so that nobody pays for another's."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

from tenuto.errors import InvalidSetting
from tenuto.ports import Clock, Store, utc_now

_BACKENDS: Final = {
    "memory": ("memory", "MemoryStore"),
    "sqlite": ("sqlite", "SqliteStore"),
    "redis": ("redis", "RedisStore"),
    "rediss": ("redis", "RedisStore"),
    "valkey": ("redis", "RedisStore"),
    "valkeys": ("redis", "RedisStore"),
    "postgres": ("postgres", "PostgresStore"),
    "postgresql": ("postgres", "PostgresStore"),
}


async def open_store(
    url: str, *, clock: Clock = utc_now, sqlite_synchronous: str = "full", reading_only: bool = False
) -> Store:
    """Open a backend: `memory://`, `sqlite:///file.db`, `redis://…` (also `redis+cluster://`, `redis+sentinel://`),
    `postgresql://…`. Only a SQLite file that lies where nothing can be written asks for `reading_only`.

    Raises:
        InvalidSetting: no backend has such a URL, or its driver is not installed.
        Unavailable: it does not answer.
    """
    scheme = url.split(":", 1)[0].lower()
    room, name = _BACKENDS.get(scheme.split("+", 1)[0], ("", ""))
    if not room:
        raise InvalidSetting(
            "store", f"no backend is called {scheme!r}; there are sqlite, redis, postgresql and memory"
        )
    backend = _driver(room, name)
    if room == "memory":
        return cast(Store, backend(clock=clock))
    if room == "sqlite":
        path = sqlite_path(url)
        return cast(
            Store,
            await backend.open(path, clock=clock, synchronous=sqlite_synchronous, reading_only=reading_only),
        )
    return cast(Store, await backend.open(url, clock=clock))


def _driver(room: str, name: str) -> Any:
    try:
        return getattr(import_module(f"tenuto.stores.{room}"), name)
    except ModuleNotFoundError as missing:
        raise InvalidSetting(
            "store", f"the driver {missing.name} is not installed; pip install 'tenuto[{room}]' brings it"
        ) from missing


def sqlite_path(url: str) -> Path:
    """`sqlite:///chat.db` lies in the working folder, `sqlite:////var/chat.db` at the root."""
    parts = urlsplit(url)
    if parts.netloc or parts.query or not parts.path.startswith("/") or not parts.path.strip("/"):
        raise InvalidSetting("store", "a SQLite store is written sqlite:///file.db or sqlite:////folder/file.db")
    return Path(unquote(parts.path[1:]))
