"""Stores by their URL. A driver is imported only with its backend."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from tenuto.errors import InvalidSetting, PackageMissing
from tenuto.ports import RecordStore


class _Driver(NamedTuple):
    """Where a backend is implemented, and whether it is a server: those get a breaker and a journal."""

    package: str
    records: str
    is_server: bool


_MEMORY: Final = _Driver("memory", "InMemoryRecords", is_server=False)
_SQLITE: Final = _Driver("sqlite", "SqliteRecords", is_server=False)
_REDIS: Final = _Driver("redis", "RedisRecords", is_server=True)
_POSTGRES: Final = _Driver("postgres", "PostgresRecords", is_server=True)
_DRIVERS: Final = {
    "memory": _MEMORY,
    "sqlite": _SQLITE,
    **dict.fromkeys(("postgres", "postgresql"), _POSTGRES),
    **dict.fromkeys(("redis", "rediss", "valkey", "valkeys"), _REDIS),
}
# The other query parameters say how to connect.
_PLACES: Final = frozenset({"prefix", "host", "port", "dbname", "database"})


def is_network_store(url: str) -> bool:
    """Whether the store is a server, which may stop answering."""
    driver = _find_driver(url)
    return driver is not None and driver.is_server


def place_of(url: str) -> str:
    """The identity of a store: its servers and the place on them, without credentials."""
    parts = urlsplit(url)
    servers = ",".join(sorted(parts.netloc.rpartition("@")[2].lower().split(",")))
    where = sorted((name, value) for name, value in parse_qsl(parts.query) if name in _PLACES)
    driver = _find_driver(url)
    return f"{driver.package if driver else ''}://{servers}{parts.path.rstrip('/')}?{urlencode(where)}"


async def open_records(
    url: str, *, synchronous: str = "full", read_only: bool = False, prepare: bool = True
) -> RecordStore:
    """Open a backend: `memory://`, `sqlite:///file.db`, `redis://…` (also `redis+cluster://`, `redis+sentinel://`),
    `postgresql://…`. `read_only` is for a SQLite file in a read-only folder. Without `prepare` a server need not answer
    yet: the caller runs `Preparable.prepare` once it does.

    Raises:
        InvalidSetting: no backend has such a URL, or its driver is not installed.
        Unavailable: it does not answer.
    """
    driver = _find_driver(url)
    if driver is None:
        raise _no_such_backend(url)
    backend = _import_backend(driver)
    if driver is _MEMORY:
        return cast(RecordStore, backend())
    if driver is _SQLITE:
        return cast(RecordStore, await backend.open(sqlite_path(url), synchronous=synchronous, read_only=read_only))
    return cast(RecordStore, await backend.open(url, prepare=prepare))


def _no_such_backend(url: str) -> InvalidSetting:
    return InvalidSetting(
        "store", f"no backend is called {_url_scheme(url)!r}; there are sqlite, redis, postgresql and memory"
    )


def _url_scheme(url: str) -> str:
    return url.split(":", 1)[0].lower()


def _find_driver(url: str) -> _Driver | None:
    return _DRIVERS.get(_url_scheme(url).split("+", 1)[0])


def _import_backend(driver: _Driver) -> Any:
    try:
        return getattr(import_module(f"tenuto.stores.{driver.package}"), driver.records)
    except ModuleNotFoundError as error:
        raise PackageMissing("store", f"{driver.package} ({error.name})", extra=driver.package) from error


def sqlite_path(url: str) -> Path:
    """`sqlite:///chat.db` lies in the working folder, `sqlite:////var/chat.db` at the root."""
    parts = urlsplit(url)
    if parts.netloc or parts.query or not parts.path.startswith("/") or not parts.path.strip("/"):
        raise InvalidSetting("store", "a SQLite store is written sqlite:///file.db or sqlite:////folder/file.db")
    return Path(unquote(parts.path[1:]))
