"""One file in several hands: what one process stores, the others hear of, and none of them waits to read."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from tenuto.errors import SessionBusy, StoreRejected, TurnLost
from tenuto.model import Page
from tenuto.model.scope import session_key
from tenuto.stores.engine import Engine
from tenuto.stores.sqlite import SqliteRecords, _threads
from tenuto.stores.sqlite._feed import SqliteRecordFeed
from tests.backends import sqlite_engine
from tests.internals import set_timeout, sqlite_db, sqlite_writer
from tests.samples import ANN, batch, begin, talk, texts
from tests.samples import closing as ending


@pytest.fixture
async def first(tmp_path: Path) -> AsyncIterator[Engine]:
    """One of two stores on one file, as two processes would have them."""
    async with sqlite_engine(tmp_path / "sessions.db") as opened:
        yield opened


@pytest.fixture
async def second(first: Engine, tmp_path: Path) -> AsyncIterator[Engine]:
    """The other one."""
    async with sqlite_engine(tmp_path / "sessions.db") as opened:
        yield opened


class Listener:
    """What a feed reports: keys with their revisions, and how often it lost track."""

    def __init__(self) -> None:
        self.keys = dict[bytes, int]()
        self.losses = 0

    def __call__(self, key: bytes | None, revision: int) -> None:
        if key is None:
            self.losses += 1
        else:
            self.keys[key] = revision


async def test_what_another_process_stored_is_gone_on_from(first: Engine, second: Engine) -> None:
    await talk(first, ANN, "s", "one", "1")
    await talk(second, ANN, "s", "two", "2")

    turn = await begin(first, ANN, "s", "three")
    with pytest.raises(SessionBusy):
        await begin(second, ANN, "s", "four")
    await first.sessions.finish_turn(turn, ending("3"))

    assert [message.text for message in turn.window] == ["one", "1", "two", "2", "three"]
    assert await texts(second, ANN, "s") == ["one", "1", "two", "2", "three", "3"]


@pytest.mark.requirement("T4")
async def test_what_another_process_deleted_stays_deleted(first: Engine, second: Engine) -> None:
    """A record in the cache revives nothing."""
    turn = await begin(first, ANN, "s", "one")
    await second.sessions.delete(ANN, "s")

    with pytest.raises(TurnLost):
        await first.sessions.finish_turn(turn, ending("late"))
    fresh = await begin(first, ANN, "s", "new")

    assert fresh.created
    assert [message.text for message in fresh.window] == ["new"]


async def test_a_feed_tells_what_was_changed_by_whom_ever_and_to_which_revision(first: Engine, second: Engine) -> None:
    """Its own changes too: a write whose caller gave up goes through all the same."""
    listener, feed = Listener(), SqliteRecordFeed(_path(first))
    assert not feed.caught_up()
    async with feed.watch(listener):
        assert feed.caught_up()
        await talk(second, ANN, "theirs", "q", "a")
        await talk(first, ANN, "mine", "q", "a")
        assert feed.caught_up()

        standing = [await first.records.load(session_key(ANN, name), 0) for name in ("theirs", "mine")]
        assert listener.keys == {one.key: one.revision for one in standing if one is not None}
        await second.sessions.delete(ANN, "theirs")
        assert feed.caught_up()
        assert listener.keys[session_key(ANN, "theirs")] == 0
        assert listener.losses == 0
    assert not feed.caught_up()


async def test_a_feed_that_fell_too_far_behind_says_so(
    first: Engine, second: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_threads, "_CHANGES_KEPT", 4)
    monkeypatch.setattr(_threads, "_PRUNE_EVERY", 2)
    listener, feed = Listener(), SqliteRecordFeed(_path(first))
    async with feed.watch(listener):
        for n in range(12):
            await second.sessions.append(ANN, f"s{n}", batch("hello"))
        assert feed.caught_up()

        assert listener.losses == 1
        await second.sessions.append(ANN, "again", batch("hello"))
        assert feed.caught_up()
        assert session_key(ANN, "again") in listener.keys
        assert listener.losses == 1


async def test_a_feed_that_cannot_read_confirms_nothing(first: Engine) -> None:
    """What came while it was blind cannot be told one by one."""
    listener, feed = Listener(), SqliteRecordFeed(_path(first))
    async with feed.watch(listener):
        await first.sessions.append(ANN, "s", batch("hello"))
        with closing(sqlite3.connect(_path(first), isolation_level=None)) as other:
            other.execute("ALTER TABLE change RENAME TO away")
            assert not feed.caught_up()
            assert listener.losses == 1
            other.execute("ALTER TABLE away RENAME TO change")

        assert feed.caught_up()
        assert listener.losses == 2
        assert listener.keys == {}


async def test_reads_do_not_wait_for_a_writer(first: Engine) -> None:
    await talk(first, ANN, "s", "q", "a")
    first.cache.clear()
    with closing(sqlite3.connect(_path(first), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM entry")

        page = await first.sessions.messages(ANN, "s", Page())
        other.execute("ROLLBACK")

    assert [message.text for message in page.messages] == ["q", "a"]


async def test_a_write_waits_for_a_lock_once(first: Engine) -> None:
    """Nothing of it was made, so that it is not sent again."""
    await talk(first, ANN, "s", "q", "a")
    set_timeout(sqlite_writer(first), 0.05)
    made = first.sessions.context.commits
    with closing(sqlite3.connect(_path(first), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreRejected, match="locked"):
            await first.sessions.append(ANN, "s", batch("late"))

        assert first.sessions.context.commits == made + 1


async def test_a_turn_costs_two_statements_beside_its_two_commits(first: Engine) -> None:
    """And the list of changes: what the process holds is not asked for."""
    await talk(first, ANN, "s", "hello", "hi")
    statements = list[str]()
    sqlite_db(first).set_trace_callback(lambda sql: statements.append(" ".join(sql.split()[:4])))

    await talk(first, ANN, "s", "hello", "hi")

    commit = ["BEGIN IMMEDIATE", "UPDATE head SET revision", "INSERT OR REPLACE INTO", "INSERT INTO change (keys)"]
    assert statements == [*commit, "COMMIT"] * 2


def _path(store: Engine) -> Path:
    assert isinstance(store.records, SqliteRecords)
    return store.records.path
