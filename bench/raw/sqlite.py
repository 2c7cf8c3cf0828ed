"""sqlite3 alone: one writer thread, with or without group commit, every commit fsynced."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

from bench.raw.bodies import decode_bodies, encode_turn
from bench.workload import WINDOW, Turn

_SCHEMA: Final = """
CREATE TABLE message (id INTEGER PRIMARY KEY, session TEXT NOT NULL, body BLOB NOT NULL);
CREATE INDEX by_session ON message (session, id);
"""
_INSERT: Final = "INSERT INTO message (session, body) VALUES (?, ?)"
_NEWEST: Final = f"SELECT body FROM message WHERE session = ? ORDER BY id DESC LIMIT {WINDOW}"

Step = Callable[[sqlite3.Connection], Any]
Job = tuple[Step, "asyncio.Future[Any]"]


class WriterThread:
    """Runs steps in transactions: as many as have queued up in one, or one in each."""

    def __init__(self, path: str, *, group: bool) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_SCHEMA)
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def run(self, step: Step) -> asyncio.Future[Any]:
        """The step's result, once it is on disk."""
        done = self._loop.create_future()
        self._queue.put((step, done))
        return done

    async def close(self) -> None:
        """End the thread."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        self._db.close()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            jobs = [job, *self._more()] if self._group else [job]
            try:
                self._db.execute("BEGIN IMMEDIATE")
                results = [step(self._db) for step, _ in jobs]
                self._db.execute("COMMIT")
            except sqlite3.Error as exc:
                self._loop.call_soon_threadsafe(_give_up, jobs, exc)
                return
            self._loop.call_soon_threadsafe(_hand_back, jobs, results)

    def _more(self) -> list[Job]:
        jobs: list[Job] = []
        with suppress(Empty):
            while (job := self._queue.get_nowait()) is not None:
                jobs.append(job)
        return jobs


def _hand_back(jobs: list[Job], results: list[Any]) -> None:
    for (_, done), result in zip(jobs, results, strict=True):
        done.set_result(result)


def _give_up(jobs: list[Job], why: Exception) -> None:
    for _, done in jobs:
        done.set_exception(why)


class RawSqlite:
    """Two trips a cycle, as ours: the question with the load, then the answer."""

    def __init__(self, path: str, *, group: bool) -> None:
        self._writer = WriterThread(path, group=group)

    async def seed(self, session: str, turns: Sequence[Turn]) -> None:
        rows = [(session, body) for turn in turns for body in encode_turn(turn)]
        await self._writer.run(lambda db: _insert(db, rows))

    async def append(self, session: str, turn: Turn) -> None:
        rows = [(session, body) for body in encode_turn(turn)]
        await self._writer.run(lambda db: _insert(db, rows))

    async def load(self, session: str) -> int:
        return _read(await self._writer.run(lambda db: db.execute(_NEWEST, (session,)).fetchall()))

    async def cycle(self, session: str, turn: Turn) -> int:
        question, answer = encode_turn(turn)

        def begin(db: sqlite3.Connection) -> list[Any]:
            db.execute(_INSERT, (session, question))
            return db.execute(_NEWEST, (session,)).fetchall()

        found = _read(await self._writer.run(begin))
        await self._writer.run(lambda db: _insert(db, [(session, answer)]))
        return found

    async def close(self) -> None:
        await self._writer.close()


def _read(rows: list[Any]) -> int:
    return decode_bodies(row[0] for row in reversed(rows))


def _insert(db: sqlite3.Connection, rows: Sequence[tuple[str, bytes]]) -> None:
    """Returns nothing: a cursor that another thread lets go of would reset the statement under this one."""
    if len(rows) == 1:
        db.execute(_INSERT, rows[0])
    else:
        db.executemany(_INSERT, rows)


async def open_group(url: str) -> RawSqlite:
    """Group commit."""
    return RawSqlite(url.removeprefix("sqlite:///"), group=True)


async def open_each(url: str) -> RawSqlite:
    """One commit, hence one fsync, for every step."""
    return RawSqlite(url.removeprefix("sqlite:///"), group=False)
