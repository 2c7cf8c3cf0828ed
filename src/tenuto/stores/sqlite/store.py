"""A backend over one SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final

from tenuto.errors import InvalidSetting
from tenuto.ports import Clock, utc_now
from tenuto.stores.sqlite._database import Database, ReaderThreads, WriterThread
from tenuto.stores.sqlite._feed import SqliteFeed
from tenuto.stores.sqlite._file import Synchronous, check_path, file_check, open_file
from tenuto.stores.sqlite._sessions import BRIEF, SqliteSessions, SqliteTraces
from tenuto.stores.sqlite._state import SqliteState
from tenuto.stores.sqlite._upkeep import SqliteUpkeep


class SqliteStore:
    """Sessions and state in one file; several processes may open it at once.

    One thread writes and commits together what has queued up; a few others read. Acknowledged means on disk, unless
    `synchronous="normal"`: then it survives the death of the process, but not of the machine.
    """

    def __init__(
        self, *, path: Path, clock: Clock, writer: WriterThread, readers: ReaderThreads, feed: SqliteFeed
    ) -> None:
        self.path: Final = path
        self.feed: Final = feed
        self._database = Database(clock=clock, writer=writer, readers=readers)
        self.sessions = SqliteSessions(self._database)
        self.traces = SqliteTraces(self._database)
        self.state = SqliteState(self._database)
        self.upkeep = SqliteUpkeep(self._database)

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        clock: Clock = utc_now,
        synchronous: Synchronous = "full",
        readers: int = 2,
        lock_timeout: timedelta = timedelta(seconds=5),
        read_only: bool = False,
    ) -> SqliteStore:
        """Open the file, and create it, for its owner alone, where there is none.

        `lock_timeout` is how long a call waits for other processes' locks before it raises `Unavailable`. With
        `read_only` a file in a read-only folder can be opened, too.

        Raises:
            InvalidSetting: the path or another setting cannot be right, or the file is not ours to read.
            Unavailable: the file cannot be opened now.
        """
        if synchronous not in ("full", "normal"):
            raise InvalidSetting("synchronous", "it is neither 'full' nor 'normal'")
        if readers < 1:
            raise InvalidSetting("readers", "it is below 1")
        file = check_path(path)
        writing, *reading = await asyncio.to_thread(open_file, file, synchronous, readers, lock_timeout, read_only)
        check = file_check(file)
        writer = WriterThread(writing, lock_timeout, brief=BRIEF, check_file=check)
        reading_threads = ReaderThreads(reading, check_file=check)
        return cls(path=file, clock=clock, writer=writer, readers=reading_threads, feed=SqliteFeed(file, writer.id))

    async def __aenter__(self) -> SqliteStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def product_version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    async def close(self) -> None:
        """Finish what is queued and let go of the file."""
        self.feed.close()
        await self._database.readers.close()
        await self._database.writer.close()
