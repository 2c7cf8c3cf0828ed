"""The writer thread: one commit for many callers, and each caller's outcome is its own."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from tenuto.errors import StoreFull, Unavailable
from tenuto.stores.sqlite import _threads
from tenuto.stores.sqlite._file import open_file
from tenuto.stores.sqlite._threads import Transaction, WriterThread
from tests.internals import is_writing, set_timeout
from tests.timeouts import LONG

PATIENT = timedelta(seconds=LONG)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
async def writer(path: Path) -> AsyncIterator[WriterThread]:
    db, reader = open_file(path, "full", 1, PATIENT)
    reader.close()
    db.execute("CREATE TABLE note (text TEXT UNIQUE)")
    writer = WriterThread(db, PATIENT)
    yield writer
    await writer.close()


def note(txn: Transaction, text: str) -> str:
    txn.execute("INSERT INTO note VALUES (?)", (text,))
    txn.changed.append(text.encode().ljust(24))
    return text


def note_then_fail(txn: Transaction, text: str) -> None:
    note(txn, text)
    raise LookupError(text)


def fail_at_once(txn: Transaction) -> None:
    txn.changed.append(b"never written".ljust(24))
    raise LookupError


def break_the_commit(txn: Transaction) -> None:
    # A deferred foreign key is checked at COMMIT: the one error that can be provoked just there.
    txn.execute("PRAGMA defer_foreign_keys = ON")
    txn.execute("CREATE TABLE child (id REFERENCES note (text))")
    txn.execute("INSERT INTO child VALUES (1)")


def notes(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return [row[0] for row in db.execute("SELECT text FROM note ORDER BY text")]


def commits(path: Path) -> list[bytes]:
    """What the list of changes holds of each commit."""
    with closing(sqlite3.connect(path)) as db:
        return [row[0] for row in db.execute("SELECT keys FROM change ORDER BY number")]


async def slow_step(writer: WriterThread) -> tuple[asyncio.Future[None], threading.Event]:
    """A step that has begun, and goes on when the event is set."""
    started, go_on = threading.Event(), threading.Event()

    def slow(txn: Transaction) -> None:
        note(txn, "slow")
        started.set()
        assert go_on.wait(LONG)

    running = writer.run(slow)
    await asyncio.to_thread(started.wait, LONG)
    return running, go_on


async def test_what_queues_up_behind_a_commit_shares_the_next_one(writer: WriterThread, path: Path) -> None:
    first, go_on = await slow_step(writer)
    others = [writer.run(note, f"n{n:02}") for n in range(15)]
    go_on.set()

    assert await asyncio.gather(*others) == [f"n{n:02}" for n in range(15)]
    assert first.done()
    assert len(notes(path)) == 16
    assert len(commits(path)) == 2


async def test_a_stored_step_is_answered_while_another_runs_alone(writer: WriterThread) -> None:
    slow, go_on = await slow_step(writer)
    stored, may_end = writer.run(note, "a"), threading.Event()
    alone = writer.run_outside_transaction(lambda _db, _patience: may_end.wait(LONG))
    go_on.set()

    await asyncio.gather(slow, stored)

    assert not alone.done()
    may_end.set()
    assert await alone


@pytest.mark.requirement("B11")
async def test_a_step_that_fails_is_rolled_back_alone(writer: WriterThread, path: Path) -> None:
    slow, go_on = await slow_step(writer)
    steps = (
        writer.run(note, "a"),
        writer.run(fail_at_once),
        writer.run(note_then_fail, "b"),
        writer.run(note, "c"),
        writer.run(note_then_fail, "d"),
        writer.run(note, "a"),
    )
    go_on.set()
    results = await asyncio.gather(*steps, return_exceptions=True)

    assert [type(result) for result in results] == [str, LookupError, LookupError, str, LookupError, Unavailable]
    assert isinstance(getattr(results[-1], "__cause__"), sqlite3.IntegrityError)  # noqa: B009
    assert slow.done()
    assert notes(path) == ["a", "c", "slow"]
    assert commits(path) == [b"slow".ljust(24), b"a".ljust(24) + b"c".ljust(24)]


async def test_a_commit_that_fails_fails_all_and_stores_nothing(writer: WriterThread, path: Path) -> None:
    """Refusals too: they may have stood on what is taken back."""
    await writer.run_outside_transaction(lambda db, _: db.execute("PRAGMA foreign_keys = ON").fetchone())
    slow, go_on = await slow_step(writer)
    steps = (slow, writer.run(note, "a"), writer.run(break_the_commit), writer.run(fail_at_once))
    go_on.set()
    results = await asyncio.gather(*steps, return_exceptions=True)

    assert [type(result) for result in results] == [type(None), Unavailable, Unavailable, Unavailable]
    assert notes(path) == ["slow"]
    assert await writer.run(note, "b") == "b"


async def test_a_full_file_refuses_only_what_does_not_fit(writer: WriterThread, path: Path) -> None:
    def limit(txn: Transaction) -> None:
        pages = txn.execute("PRAGMA page_count").fetchone()[0]
        txn.execute(f"PRAGMA max_page_count = {pages + 4}")

    await writer.run(limit)
    results = await asyncio.gather(
        writer.run(note, "a"), writer.run(note, "x" * 1_000_000), writer.run(note, "b"), return_exceptions=True
    )

    assert [type(result) for result in results] == [str, StoreFull, str]
    assert notes(path) == ["a", "b"]


async def test_a_cancelled_caller_harms_no_other(writer: WriterThread, path: Path) -> None:
    running, go_on = await slow_step(writer)
    queued, other = writer.run(note, "queued"), writer.run(note, "other")
    running.cancel()
    queued.cancel()
    go_on.set()

    assert await other == "other"
    assert running.cancelled()
    assert notes(path) == ["other", "slow"]


async def test_a_lock_held_elsewhere_is_waited_for_as_long_as_each_caller_does(
    writer: WriterThread, path: Path
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        set_timeout(writer, 0.05)
        first = writer.run(note, "a")
        set_timeout(writer, LONG)
        second = writer.run(note, "b")
        with pytest.raises(Unavailable):
            await first
        assert not second.done()
        other.execute("ROLLBACK")

        assert await second == "b"
    assert notes(path) == ["b"]


async def test_closing_finishes_what_is_queued(writer: WriterThread, path: Path) -> None:
    """Also for a caller that closes while another one has given up waiting for that."""
    slow, go_on = await slow_step(writer)
    waiting = [writer.run(note, f"n{n}") for n in range(5)]
    impatient = asyncio.ensure_future(writer.close())
    await asyncio.sleep(0)
    impatient.cancel()
    again = asyncio.ensure_future(writer.close())
    await asyncio.sleep(0)
    go_on.set()
    await again

    assert not is_writing(writer)
    assert await asyncio.gather(*waiting) == [f"n{n}" for n in range(5)]
    assert slow.done()
    with pytest.raises(Unavailable, match="closed"):
        await writer.run(note, "late")
    assert len(notes(path)) == 6


async def test_the_list_of_changes_is_pruned(writer: WriterThread, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_threads, "_CHANGES_KEPT", 10)
    monkeypatch.setattr(_threads, "_PRUNE_EVERY", 8)

    for n in range(40):
        await writer.run(note, f"n{n}")

    assert 10 <= len(commits(path)) < 10 + 8
