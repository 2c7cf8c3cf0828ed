"""One file in several hands: what the writer knows by heart, and what a cache is told."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from tenuto.errors import SequenceGap, SessionBusy, TurnLost, VersionConflict
from tenuto.model import Changes, NewSession, Page, Producer, Retention, Truncation
from tenuto.model.scope import session_key
from tenuto.model.store_reports import Invalidation
from tenuto.stores.sqlite import SqliteStore, _database, _feed, _heads
from tests.clock import FakeClock
from tests.peek import sqlite_hot_heads
from tests.samples import ANN, batch, begin, once, talk, texts
from tests.samples import closing as closed


@pytest.fixture
def first(store: SqliteStore) -> SqliteStore:
    """One of two stores on one file, as two processes would have them."""
    return store


@pytest.fixture
async def second(first: SqliteStore, clock: FakeClock) -> AsyncIterator[SqliteStore]:
    """The other one."""
    async with await SqliteStore.open(first.path, clock=clock) as opened:
        yield opened


class Told:
    """A cache that only listens."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.flushes = 0

    def __call__(self, news: Invalidation | None) -> None:
        if news is None:
            self.flushes += 1
        else:
            self.keys += news.keys


async def test_a_window_the_writer_knows_is_the_window_in_the_file(tmp_path: Path) -> None:
    """The same turns with and without knowing the heads by heart."""
    windows = []
    for name, size in (("known", 2000), ("unknown", 0)):
        clock = FakeClock()
        async with await SqliteStore.open(tmp_path / f"{name}.db", clock=clock) as store:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(_heads, "_MAX_HEADS", size)
                seen = []
                for n, window in enumerate([3, 3, 20, 1, 0, 5, 5, 2, 9, 9, 4]):
                    new = NewSession(
                        retention=Retention(max_messages=7 if n % 2 else None, max_turns=4 if n > 6 else None)
                    )
                    turn = await begin(store, ANN, "s", f"q{n}", window=window, create=new, retention=new.retention)
                    done = await store.sessions.finish_turn(turn, closed(f"a{n}", f"b{n}"))
                    if n == 4:
                        await store.sessions.patch(ANN, "s", Changes(window_start=done.session.last_seq - 1))
                    if n == 6:
                        await store.sessions.append(ANN, "s", batch("x", "y"))
                    if n == 8:
                        await store.sessions.truncate(ANN, "s", Truncation(after=done.session.last_seq - 2))
                    seen.append([(message.seq, message.turn, message.text) for message in turn.window])
        windows.append(seen)

    assert windows[0] == windows[1]
    assert len(windows[0][2]) == 7


async def test_heads_known_by_heart_are_bounded_by_their_size_together(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path / "chat.db") as store:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_heads, "_MAX_BYTES", 50_000)
            for n in range(20):
                await talk(store, ANN, f"s{n}", "x" * 9_000, "y")

            count, counted, size = sqlite_hot_heads(store)
            assert 3 <= count <= 5
            assert counted == size
            assert [m.text for m in (await begin(store, ANN, "s0", "again")).window] == ["x" * 9_000, "y", "again"]

            await store.sessions.delete(ANN, "s19")
            await store.sessions.reset(ANN, "s18")

            _, counted, size = sqlite_hot_heads(store)
            assert counted == size


async def test_what_another_process_wrote_is_in_the_next_window(first: SqliteStore, second: SqliteStore) -> None:
    await talk(first, ANN, "s", "one", "1")
    await talk(second, ANN, "s", "two", "2")

    turn = await begin(first, ANN, "s", "three")
    with pytest.raises(SessionBusy):
        await begin(second, ANN, "s", "four")
    await first.sessions.finish_turn(turn, closed("3"))

    assert [message.text for message in turn.window] == ["one", "1", "two", "2", "three"]
    assert await texts(second, ANN, "s") == ["one", "1", "two", "2", "three", "3"]


async def test_what_another_process_deleted_stays_deleted(first: SqliteStore, second: SqliteStore) -> None:
    """T4: a head known by heart revives nothing."""
    turn = await begin(first, ANN, "s", "one")
    await second.sessions.delete(ANN, "s")

    with pytest.raises(TurnLost):
        await first.sessions.finish_turn(turn, closed("late"))
    fresh = await begin(first, ANN, "s", "new")

    assert fresh.created
    assert [message.text for message in fresh.window] == ["new"]


async def test_a_refused_step_leaves_no_trace_in_what_the_writer_knows(store: SqliteStore) -> None:
    turn = await begin(store, ANN, "s", "one")
    for _ in range(2):
        with pytest.raises(SessionBusy):
            await begin(store, ANN, "s", "two")
        with pytest.raises(SequenceGap):
            await store.sessions.finish_turn(turn, closed("x", producer=Producer(id="p", seq=7)))
        with pytest.raises(VersionConflict):
            await store.sessions.patch(ANN, "s", Changes(title="x", if_version=99))
    done = await store.sessions.finish_turn(turn, closed("reply"))

    assert (done.session.messages, done.session.turns, done.session.title) == (2, 1, "")
    assert done.session == await store.sessions.get(ANN, "s")


async def test_a_cache_is_told_what_others_changed(first: SqliteStore, second: SqliteStore) -> None:
    told = Told()
    async with first.feed.watch(told):
        assert first.feed.drain_invalidations()
        await talk(second, ANN, "theirs", "q", "a")
        await talk(first, ANN, "mine", "q", "a")
        assert first.feed.drain_invalidations()

        # Its own too: a write whose caller gave up goes through all the same.
        assert set(told.keys) == {session_key(ANN, "theirs"), session_key(ANN, "mine")}
        assert told.flushes == 0
        told.keys.clear()
        assert first.feed.drain_invalidations()
        assert told.keys == []
        for act in (second.sessions.reset, second.sessions.delete):
            await act(ANN, "theirs")
            assert first.feed.drain_invalidations()
            assert told.keys == [session_key(ANN, "theirs")]
            told.keys.clear()


async def test_a_cache_that_fell_too_far_behind_is_flushed(
    first: SqliteStore, second: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_database, "_CHANGES_KEPT", 4)
    monkeypatch.setattr(_database, "_PRUNE_EVERY", 2)
    told = Told()
    async with first.feed.watch(told):
        for n in range(12):
            await second.sessions.append(ANN, f"s{n}", batch("hello"))
        assert first.feed.drain_invalidations()

        assert told.flushes == 1
        await second.sessions.append(ANN, "again", batch("hello"))
        assert first.feed.drain_invalidations()
        assert told.keys == [session_key(ANN, "again")]


async def test_a_feed_that_cannot_read_vouches_for_nothing(
    first: SqliteStore, second: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    assert not first.feed.drain_invalidations()
    async with first.feed.watch(told):
        await second.sessions.append(ANN, "s", batch("hello"))
        with monkeypatch.context() as patch:
            patch.setattr(_feed.SqliteFeed, "_report_changes", _out_of_order)
            assert not first.feed.drain_invalidations()
        flushed = told.flushes
        assert first.feed.drain_invalidations()

        assert flushed == 1
        assert told.flushes == 2, "what came while it was blind cannot be told one by one"
    assert not first.feed.drain_invalidations()


def _out_of_order(*_: object) -> None:
    raise sqlite3.OperationalError("disk I/O error")


async def test_reads_do_not_wait_for_a_writer(first: SqliteStore) -> None:
    await talk(first, ANN, "s", "q", "a")
    with closing(sqlite3.connect(first.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM message")

        page = await first.sessions.messages(ANN, "s", Page())
        other.execute("ROLLBACK")

    assert [message.text for message in page.messages] == ["q", "a"]


async def test_keys_far_back_are_forgotten_in_the_file_too(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path / "sessions.db", synchronous="normal") as store:
        for n in range(1100):
            await store.sessions.append(ANN, "s", batch(idempotency_key=once(f"k{n}")))

        with closing(sqlite3.connect(store.path)) as db:
            kept = db.execute("SELECT count(*) FROM keyed").fetchone()[0]
    # The newest wait in the session's own row until there are enough of them.
    assert 900 < kept < 1064
