"""Stores by their URL. A driver is imported only with its backend."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from tenuto.errors import InvalidSetting
from tenuto.ports import Backend, Clock, utc_now

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
# The other query parameters say how to connect.
_PLACES: Final = frozenset({"prefix", "host", "port", "dbname", "database"})


def is_network_store(url: str) -> bool:
    """Whether the store is a server, which may stop answering."""
    return _lookup_backend(url)[0] in ("redis", "postgres")


def place_of(url: str) -> str:
    """The identity of a store: its servers and the place on them, without credentials."""
    parts = urlsplit(url)
    servers = ",".join(sorted(parts.netloc.rpartition("@")[2].lower().split(",")))
    where = sorted((name, value) for name, value in parse_qsl(parts.query) if name in _PLACES)
    return f"{_lookup_backend(url)[0]}://{servers}{parts.path.rstrip('/')}?{urlencode(where)}"


async def open_store(
    url: str,
    *,
    clock: Clock = utc_now,
    sqlite_synchronous: str = "full",
    reading_only: bool = False,
    prepared: bool = True,
) -> Backend:
    """Open a backend: `memory://`, `sqlite:///file.db`, `redis://…` (also `redis+cluster://`, `redis+sentinel://`),
    `postgresql://…`. `reading_only` is for a SQLite file in a read-only folder. A server need not answer yet if it is
    not `prepared`.

    Raises:
        InvalidSetting: no backend has such a URL, or its driver is not installed.
        Unavailable: it does not answer.
    """
    scheme, (room, name) = _url_scheme(url), _lookup_backend(url)
    if not room:
        raise InvalidSetting(
            "store", f"no backend is called {scheme!r}; there are sqlite, redis, postgresql and memory"
        )
    backend = _import_backend(room, name)
    if room == "memory":
        return cast(Backend, backend(clock=clock))
    if room == "sqlite":
        path = sqlite_path(url)
        return cast(
            Backend,
            await backend.open(path, clock=clock, synchronous=sqlite_synchronous, reading_only=reading_only),
        )
    return cast(Backend, await backend.open(url, clock=clock, prepared=prepared))


def _url_scheme(url: str) -> str:
    return url.split(":", 1)[0].lower()


def _lookup_backend(url: str) -> tuple[str, str]:
    return _BACKENDS.get(_url_scheme(url).split("+", 1)[0], ("", ""))


def _import_backend(room: str, name: str) -> Any:
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
