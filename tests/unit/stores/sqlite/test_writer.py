"""The writer thread: one commit for many callers, and each caller's outcome is its own."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import StoreFull, Unavailable
from tenuto.stores.sqlite import _database
from tenuto.stores.sqlite._file import open_file
from tenuto.stores.sqlite._threads import Transaction, WriterThread, insist
from tests.patience import LONG
from tests.peek import is_writing, set_disk_time, set_patience, sqlite_db

PATIENT = timedelta(seconds=LONG)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
async def writer(path: Path) -> AsyncIterator[WriterThread]:
    db, reader = open_file(path, "full", 1, PATIENT)
    reader.close()
    writer = WriterThread(db, PATIENT, brief=(note,))
    yield writer
    await writer.close()


def note(txn: Transaction, text: str) -> str:
    txn.execute("INSERT INTO state (drawer, key, value, version, owner) VALUES (x'00', ?, x'31', 1, x'00')", (text,))
    txn.changed.append(text.encode().ljust(16))
    return text


def note_then_fail(txn: Transaction, text: str) -> None:
    note(txn, text)
    raise LookupError(text)


def fail_at_once(txn: Transaction) -> None:
    txn.changed.append(b"never written...")
    raise LookupError


def noted(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return [row[0] for row in db.execute("SELECT key FROM state ORDER BY key")]


def commits(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT count(*) FROM change").fetchone()[0])


async def test_what_is_asked_together_is_committed_together(writer: WriterThread, path: Path) -> None:
    results = await asyncio.gather(*(writer.run(note, f"n{n:02}") for n in range(15)))

    assert results == [f"n{n:02}" for n in range(15)]
    assert len(noted(path)) == 15
    assert commits(path) == 1


async def test_many_callers_take_turns_in_two_halves(writer: WriterThread, path: Path) -> None:
    async def caller(number: int) -> list[str]:
        return [await writer.run(note, f"{number:02}-{n}") for n in range(5)]

    said = await asyncio.gather(*map(caller, range(32)))

    assert said == [[f"{number:02}-{n}" for n in range(5)] for number in range(32)]
    assert len(noted(path)) == 32 * 5
    # Each of five rounds in one or two transactions; a caller who was late in one of them makes another.
    assert 5 <= commits(path) < 20


async def test_callers_who_are_quicker_than_the_disk_share_one_commit(writer: WriterThread, path: Path) -> None:
    for disk, transactions in ((60.0, 1), (0.0, 2)):
        before = commits(path)
        set_disk_time(writer, disk)
        await asyncio.gather(*(writer.run(note, f"{disk}-{n:02}") for n in range(32)))
        assert commits(path) - before == transactions


async def test_a_stored_job_is_answered_while_others_wait_for_a_lock(
    writer: WriterThread, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    begins = count()

    def locked_at_the_second(*args: Any, **rest: Any) -> Any:
        if next(begins) == 1:
            other.execute("BEGIN IMMEDIATE")
        return insist(*args, **rest)

    monkeypatch.setattr(_database, "insist", locked_at_the_second)
    set_disk_time(writer, 0.0)
    jobs = [asyncio.ensure_future(writer.run(note, f"n{n:02}")) for n in range(32)]

    told, waiting = await asyncio.wait(jobs, timeout=LONG, return_when=asyncio.FIRST_COMPLETED)

    assert (len(told), len(waiting)) == (16, 16)
    assert len(noted(path)) == 16
    other.execute("ROLLBACK")
    assert await asyncio.gather(*jobs) == [f"n{n:02}" for n in range(32)]
    other.close()


async def test_whose_job_is_on_disk_is_told_while_another_runs_alone(writer: WriterThread) -> None:
    go_on = threading.Event()
    jobs = [asyncio.ensure_future(writer.run(note, f"n{n:02}")) for n in range(31)]
    alone = asyncio.ensure_future(writer.run_outside_transaction(lambda _db, _patience: go_on.wait(LONG)))

    told, _ = await asyncio.wait(jobs, timeout=LONG)

    assert len(told) == 31
    assert not alone.done()
    go_on.set()
    assert await alone


async def slow_step(writer: WriterThread) -> tuple[asyncio.Future[None], threading.Event]:
    """A step that has begun, and goes on when the event is set."""
    started, go_on = threading.Event(), threading.Event()

    def slow(txn: Transaction) -> None:
        note(txn, "slow")
        started.set()
        assert go_on.wait(LONG)

    running = asyncio.ensure_future(writer.run(slow))
    await asyncio.to_thread(started.wait, LONG)
    return running, go_on


async def test_what_queues_up_behind_a_commit_shares_the_next_one(writer: WriterThread, path: Path) -> None:
    first, go_on = await slow_step(writer)
    others = [asyncio.ensure_future(writer.run(note, f"n{n}")) for n in range(5)]
    for _ in range(3):
        await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(first, *others)

    assert commits(path) == 2


async def test_a_step_that_fails_is_rolled_back_alone(writer: WriterThread, path: Path) -> None:
    results = await asyncio.gather(
        writer.run(note, "a"),
        writer.run(fail_at_once),
        writer.run(note_then_fail, "b"),
        writer.run(note, "c"),
        writer.run(note_then_fail, "d"),
        return_exceptions=True,
    )

    assert [type(result) for result in results] == [str, LookupError, LookupError, str, LookupError]
    assert noted(path) == ["a", "c"]
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT keys FROM change").fetchall() == [(b"a".ljust(16) + b"c".ljust(16),)]


async def test_a_statement_that_fails_is_rolled_back_alone_and_translated(writer: WriterThread, path: Path) -> None:
    def clash(txn: Transaction) -> None:
        note(txn, "b")
        note(txn, "a")

    await writer.run(note, "a")
    results = await asyncio.gather(writer.run(clash), writer.run(note, "c"), return_exceptions=True)

    assert type(results[0]) is Unavailable
    assert isinstance(results[0].__cause__, sqlite3.IntegrityError)
    assert noted(path) == ["a", "c"]


async def test_a_commit_that_fails_fails_everybody_and_stores_nothing(writer: WriterThread, path: Path) -> None:
    def owe(txn: Transaction) -> None:
        # A deferred foreign key is checked at COMMIT: the one error that can be provoked just there.
        txn.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
        txn.execute("CREATE TABLE child (id REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
        txn.execute("INSERT INTO child VALUES (1)")

    sqlite_db(writer).execute("PRAGMA foreign_keys = ON")
    results = await asyncio.gather(writer.run(note, "a"), writer.run(owe), return_exceptions=True)

    assert [type(result) for result in results] == [Unavailable, Unavailable]
    assert noted(path) == []
    assert await writer.run(note, "b") == "b"


async def test_a_full_file_refuses_only_what_does_not_fit(writer: WriterThread, path: Path) -> None:
    def limit(txn: Transaction) -> None:
        pages = txn.execute("PRAGMA page_count").fetchone()[0]
        txn.execute(f"PRAGMA max_page_count = {pages + 4}")

    def stuff(txn: Transaction) -> None:
        txn.execute(
            "INSERT INTO state (drawer, key, value, version, owner) VALUES (x'01', 'big', zeroblob(1000000), 1, x'01')"
        )

    await writer.run(limit)
    results = await asyncio.gather(
        writer.run(note, "a"), writer.run(stuff), writer.run(note, "b"), return_exceptions=True
    )

    assert [type(result) for result in results] == [str, StoreFull, str]
    assert noted(path) == ["a", "b"]


async def test_a_cancelled_caller_harms_nobody(writer: WriterThread, path: Path) -> None:
    running, go_on = await slow_step(writer)
    queued, other = asyncio.ensure_future(writer.run(note, "queued")), asyncio.ensure_future(writer.run(note, "other"))
    await asyncio.sleep(0)
    running.cancel()
    queued.cancel()
    go_on.set()

    assert await other == "other"
    assert running.cancelled()
    assert noted(path) == ["other", "slow"]


async def test_beyond_the_bound_callers_wait_and_are_served(
    writer: WriterThread, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_database, "_MAX_WAITING", 4)

    results = await asyncio.gather(*(writer.run(note, f"n{n:02}") for n in range(30)))

    assert results == [f"n{n:02}" for n in range(30)]
    assert commits(path) >= 30 // 4


async def test_a_lock_held_too_long_elsewhere_is_unavailable(writer: WriterThread, path: Path) -> None:
    set_patience(writer, 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable):
            await writer.run(note, "a")
        other.execute("ROLLBACK")

    assert await writer.run(note, "b") == "b"


async def test_a_lock_held_briefly_elsewhere_is_waited_for(writer: WriterThread, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(writer.run(note, "a"))
        await asyncio.sleep(0.02)
        other.execute("COMMIT")

        assert await waiting == "a"


async def test_nobody_waits_for_a_lock_elsewhere_beyond_their_own_patience(writer: WriterThread, path: Path) -> None:
    """Neither the second half of many callers, nor those who came while the first waited."""
    writer._patience = 1
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        first = [asyncio.ensure_future(writer.run(note, f"a{n:02}")) for n in range(32)]
        await asyncio.sleep(0.1)
        # The second are patient for so long that no clock of the machine's makes them give up before the first.
        set_patience(writer, LONG)
        second = [asyncio.ensure_future(writer.run(note, f"b{n:02}")) for n in range(32)]

        failed, _ = await asyncio.wait(first, timeout=LONG / 2)
        assert len(failed) == 32
        assert not any(job.done() for job in second)
        other.execute("ROLLBACK")

        assert {type(end) for end in await asyncio.gather(*first, return_exceptions=True)} == {Unavailable}
        assert await asyncio.gather(*second) == [f"b{n:02}" for n in range(32)]
    assert len(noted(path)) == 32


async def test_a_refusal_may_have_stood_on_what_a_failed_commit_takes_back(writer: WriterThread, path: Path) -> None:
    """So it is not delivered: all are told that nothing was stored."""

    def tables(txn: Transaction) -> None:
        txn.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
        txn.execute("CREATE TABLE child (parent REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")

    def break_the_commit(txn: Transaction) -> None:
        txn.execute("INSERT INTO child VALUES (1)")

    await writer.run_outside_transaction(lambda db, _: db.execute("PRAGMA foreign_keys = ON").fetchone())
    await writer.run(tables)

    steps = (writer.run(note, "a"), writer.run(break_the_commit), writer.run(fail_at_once))
    told = await asyncio.gather(*steps, return_exceptions=True)

    assert [type(one) for one in told] == [Unavailable] * 3
    assert noted(path) == []
    assert await writer.run(note, "b") == "b"


async def test_whoever_closes_again_waits_for_the_end_as_well(writer: WriterThread, path: Path) -> None:
    go_on = threading.Event()
    alone = asyncio.ensure_future(writer.run_outside_transaction(lambda _db, _patience: go_on.wait(LONG)))
    await asyncio.sleep(0)
    impatient = asyncio.ensure_future(writer.close())
    await asyncio.sleep(0.02)
    impatient.cancel()

    again = asyncio.ensure_future(writer.close())
    await asyncio.sleep(0.02)
    assert not again.done()
    go_on.set()
    await again

    assert await alone
    assert not is_writing(writer)


async def test_closing_finishes_what_is_queued(writer: WriterThread, path: Path) -> None:
    waiting = [asyncio.ensure_future(writer.run(note, f"n{n}")) for n in range(5)]
    await asyncio.sleep(0)

    await writer.close()

    assert await asyncio.gather(*waiting) == [f"n{n}" for n in range(5)]
    with pytest.raises(Unavailable, match="closed"):
        await writer.run(note, "late")
    assert len(noted(path)) == 5


async def test_the_list_of_changes_is_pruned(writer: WriterThread, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_database, "_CHANGES_KEPT", 10)
    monkeypatch.setattr(_database, "_PRUNE_EVERY", 8)

    for n in range(40):
        await writer.run(note, f"n{n}")

    assert 10 <= commits(path) < 10 + 8
