"""The database of the engine: a SQLite file, or Postgres for workers on several machines."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from typing import Any, Final

import sqlalchemy as sa

from tenuto.errors import Invalid

_BUSY_SECONDS: Final = 30
_CONNECT_SECONDS: Final = 5


def make_database(url: str) -> sa.Engine:
    """The engine's database: `sqlite:///tasks.db` or `postgresql://…`.

    SQLite before 3.42 has no `unixepoch('subsec')`, which DBOS stamps its rows with. The journal is written ahead,
    without a sync at each commit: what a power cut takes away are records of steps whose end the task itself knows.
    """
    pool: dict[str, Any] = {"pool_size": 20, "max_overflow": 0}
    if not url.startswith("sqlite"):
        scheme, _, rest = url.partition("://")
        if not scheme.startswith("postgres"):
            raise Invalid("tasks need a SQLite file, or Postgres for workers on several machines")
        pool |= {"pool_pre_ping": True, "connect_args": {"connect_timeout": _CONNECT_SECONDS}}
        return sa.create_engine(f"postgresql+psycopg://{rest}", **pool)
    engine = sa.create_engine(url, **pool)
    if engine.url.database:
        # It holds ids of users; the store beside it is its owner's alone, too. A file that exists is left alone:
        # closing it would release the locks of all connections of this process, and another could remove its log.
        with suppress(FileExistsError):
            os.close(os.open(engine.url.database, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = "IMMEDIATE"
        connection.execute(f"PRAGMA busy_timeout={_BUSY_SECONDS * 1000}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.create_function("unixepoch", -1, lambda *_: time.time())

    return engine
