"""What goes wrong with one session, one server or one file of the journal leaves all others alone."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import SessionNotFound, StoreUnavailable, Unavailable
from tenuto.model import AppendBatch, AppendResult, BeginTurn, FinishTurn, MessagePage, OpenTurn, Page, Scope, Session
from tenuto.model.scope import session_key
from tenuto.stores.journaled import JournalCounts, count_journal
from tenuto.stores.journaled.files import acquire_file
from tests.clock import FakeClock
from tests.doubles import FlatMemoryStore
from tests.outages import Process, process
from tests.patience import until
from tests.peek import close_outbox_files, held_rows, outbox_files, outbox_thread, outbox_work, tidy_behind_a_new_file
from tests.samples import ANN, BOB, EVE, texts

RUBBISH = b"this is no database at all" * 200


class Parts(FlatMemoryStore):
    """Sessions on several servers; that of the session `away` does not answer."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.away = ""

    def _asked_for(self, session_id: str) -> None:
        if session_id == self.away:
            raise StoreUnavailable

    async def begin_turn(self, scope: Scope, request: BeginTurn) -> OpenTurn:
        self._asked_for(request.session_id)
        return await super().begin_turn(scope, request)

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        self._asked_for(turn.session.id)
        return await super().finish_turn(turn, request)

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
        self._asked_for(session_id)
        return await super().append(scope, session_id, batch)

    async def get(self, scope: Scope, session_id: str) -> Session:
        self._asked_for(session_id)
        return await super().get(scope, session_id)

    async def messages(self, scope: Scope, session_id: str, query: Page) -> MessagePage:
        self._asked_for(session_id)
        return await super().messages(scope, session_id, query)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Process]:
    clock = FakeClock()
    async with process(tmp_path / "journal", store=Parts(clock), clock=clock) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


# Servers


async def test_a_server_that_stays_away_does_not_hold_up_what_waits_for_the_others(here: Process) -> None:
    """T7: in one round, also where the lost one's sessions have waited for longer."""
    for session_id in ("a", "b", "c"):
        await here.turn(ANN, session_id, "one", "1")
    here.goes_away()
    for session_id in ("a", "b", "c"):
        await here.turn(ANN, session_id, "two", "2")
    _server(here).away = "a"

    await here.catch_up()

    assert [await here.log(ANN, session_id) for session_id in ("b", "c")] == [["one", "1", "two", "2"]] * 2
    assert here.store.status.waiting == 1


async def test_calls_that_fail_now_and_then_do_not_stop_the_replay_of_other_sessions(here: Process) -> None:
    """T7: a client asks the lost server all the time, while every other one answers."""
    await here.turn(ANN, "b", "one", "1")
    here.goes_away()
    await here.turn(ANN, "b", "two", "2")
    here.comes_back()
    _server(here).away = "a"

    for _ in range(10):
        here.now += 0.5
        with pytest.raises(StoreUnavailable):
            await here.store.sessions.get(ANN, "a")
        await here.store.upkeep.ping()
        await here.store.replay()

    assert here.store.status.waiting == 0
    assert await here.log(ANN, "b") == ["one", "1", "two", "2"]


async def test_a_session_whose_server_failed_a_moment_ago_is_not_asked_for_with_every_call(here: Process) -> None:
    await here.turn(ANN, "a", "one", "1")
    here.goes_away()
    await here.turn(ANN, "a", "two", "2")
    here.now += 10
    before = len(here.wire.calls)

    for _ in range(5):
        assert await texts(here.store, ANN, "a") == ["one", "1", "two", "2"]

    assert len(here.wire.calls) == before + 1


# Files


async def test_a_damaged_file_does_not_stop_erasures(
    away: Process, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What can be read is erased, what cannot is told once, and counted."""
    await away.turn(ANN, "s", "one", "1")
    (folder / "7.db").write_bytes(RUBBISH)
    away.comes_back()

    with caplog.at_level(logging.WARNING):
        first, second = await away.store.upkeep.erase(BOB), await away.store.upkeep.erase(ANN)

    assert (first.journal, second.journal) == (0, 1)
    assert away.outbox.counts == JournalCounts(unreadable=1)
    assert sum("file 7.db" in line for line in caplog.messages) == 1


async def test_an_erasure_that_cannot_get_at_a_file_goes_on_with_the_others_and_is_refused(
    here: Process, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that another process keeps locked holds rows that may be read later."""
    monkeypatch.setattr("tenuto.stores.journaled.files._PATIENCE", 0.01)
    async with process(folder, store=here.memory) as other:
        for each in (here, other):
            each.goes_away()
            await each.turn(ANN, "s", "one", "1")
        here.comes_back()
        held = sqlite3.connect(folder / "1.db", isolation_level=None)
        held.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable):
            await other.outbox.erase("acme", "", "nobody")
        with pytest.raises(Unavailable):
            await here.store.upkeep.erase(ANN)
        held.execute("ROLLBACK")
        held.close()

        assert count_journal(folder).waiting == 1
        assert (await here.store.upkeep.erase(ANN)).journal == 1


async def test_a_damaged_row_is_set_aside_and_stops_nobody(alone: Process, folder: Path) -> None:
    await alone.turn(ANN, "s", "two", "2")
    await alone.turn(ANN, "s", "three", "3")
    await alone.turn(ANN, "t", "other", "4")
    _change(folder / "1.db", "UPDATE turn SET persons = 'no json' WHERE number = 1")

    await alone.catch_up()

    assert await alone.log(ANN, "s") == ["one", "1", "three", "3"]
    assert await alone.log(ANN, "t") == ["other", "4"]
    assert (alone.store.status.waiting, alone.store.status.quarantined) == (0, 1)


async def test_a_row_without_an_owner_goes_with_any_erasure_of_its_tenant(away: Process, folder: Path) -> None:
    """It cannot be read anyway."""
    await away.turn(ANN, "s", "one", "1")
    await away.turn(EVE, "e", "one", "1")
    _change(folder / "1.db", "UPDATE turn SET persons = 'no json'")
    away.comes_back()

    erased = await away.store.upkeep.erase(BOB)

    assert erased.journal == 1
    assert away.store.status.waiting == 1


async def test_a_file_that_is_damaged_in_use_is_given_up_for_another(
    alone: Process, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """T7: its turns cannot be brought; their sessions are the store's again, and what is said from now on is kept."""
    await alone.turn(ANN, "s", "lost", "2")
    await alone.begin(ANN, "open", "lost too")
    _damage(alone, folder / "1.db")
    with pytest.raises(Unavailable):
        await alone.begin(BOB, "b", "refused once")
    with pytest.raises(StoreUnavailable):
        await alone.begin(ANN, "s", "without what was lost", create=None)

    with caplog.at_level(logging.WARNING):
        await alone.turn(BOB, "b", "kept", "3")
        await alone.catch_up()
        await alone.turn(ANN, "s", "three", "3")
        await alone.store.sessions.delete(ANN, "s")

    assert await alone.log(BOB, "b") == ["kept", "3"]
    assert alone.outbox.counts == JournalCounts(unreadable=1)
    assert held_rows(alone.store) == 0
    with pytest.raises(SessionNotFound):
        await alone.memory.sessions.get(ANN, "s")


async def test_a_damaged_file_is_let_go_at_the_end(folder: Path) -> None:
    async with process(folder) as here:
        here.goes_away()
        await here.turn(ANN, "s", "one", "1")
        _damage(here, folder / "1.db")

    slot = acquire_file(folder, 1)
    assert slot is not None
    slot.release()


async def test_a_lock_that_cannot_be_opened_stops_no_round(alone: Process, folder: Path) -> None:
    await alone.turn(ANN, "s", "two", "2")
    alone.comes_back()
    (folder / "9.db").write_bytes(b"")
    (folder / "9.lock").mkdir()

    assert await alone.replay()

    assert await alone.log(ANN, "s") == ["one", "1", "two", "2"]
    assert alone.outbox.counts.unreadable == 1


async def test_what_one_file_does_not_take_is_not_refused_for_another(away: Process, folder: Path) -> None:
    """What was told as refused is not on disk: who says it again says it once."""
    await away.turn(ANN, "first", "one", "1")
    async with process(folder, store=away.memory) as dead:
        dead.goes_away()
        await dead.turn(ANN, "x", "two", "2")
    await away.outbox.adopt()
    [row] = await away.outbox.rows(session_key(ANN, "x"))
    full = _Full(outbox_files(away.outbox)[2])
    outbox_files(away.outbox)[2] = full

    with _thread_held(away):
        under_way = asyncio.create_task(away.begin(ANN, "second", "goes before"))
        await until(lambda: outbox_work(away.outbox)[0])
        tried = asyncio.create_task(away.outbox.record_attempt(row, 1))
        begun = asyncio.create_task(away.begin(ANN, "s", "said once"))
        await until(lambda: outbox_work(away.outbox)[1] == 2)
    await under_way
    with pytest.raises(Unavailable):
        await tried
    outbox_files(away.outbox)[2] = full.slot

    assert (await begun).journaled


async def test_a_slot_taken_while_files_are_tidied_stays_ours(folder: Path) -> None:
    async with process(folder) as first:
        first.goes_away()
        await first.turn(ANN, "x", "two", "2")
    async with process(folder) as here:
        for row in await here.outbox.rows(session_key(ANN, "x")):
            await here.outbox.remove(row)
        tidy_behind_a_new_file(here.outbox)
        slot, _ = await here.outbox.number()

        assert acquire_file(folder, slot) is None


# Erasures


async def test_an_erasure_costs_no_other_tenant_its_talk(here: Process) -> None:
    """What is known, what waits and what runs there stays as it is."""
    await here.turn(EVE, "e", "one", "1")
    await here.turn(EVE, "waits", "one", "1")
    turn = await here.begin(EVE, "e", "two")
    here.goes_away()
    await here.turn(EVE, "waits", "two", "2")
    here.wire.cut = False

    await here.store.upkeep.erase(ANN)
    here.goes_away()
    await here.finish(turn, "2")

    assert await texts(here.store, EVE, "e") == ["one", "1", "two", "2"]
    assert await texts(here.store, EVE, "waits") == ["one", "1", "two", "2"]


async def test_what_another_process_of_the_machine_erased_is_shown_no_more(here: Process, folder: Path) -> None:
    """Also not to a model, while this process is cut off from the store."""
    await here.turn(ANN, "s", "earlier", "1")
    here.goes_away()
    await here.turn(ANN, "s", "secret", "2")
    async with process(folder, store=here.memory) as other:
        await other.store.upkeep.erase(ANN)

        with pytest.raises(StoreUnavailable):
            await texts(here.store, ANN, "s")
        with pytest.raises(StoreUnavailable):
            await here.begin(ANN, "s", "again", create=None)


async def test_a_turn_behind_words_that_another_process_erased_does_not_see_them(away: Process, folder: Path) -> None:
    """The first to ask is the one who goes on."""
    await away.turn(ANN, "s", "secret", "2")
    async with process(folder, store=away.memory) as other:
        await other.store.upkeep.erase(ANN)

        turn = await away.begin(ANN, "s", "again")

    assert [message.text for message in turn.window] == ["again"]


async def test_a_process_that_comes_back_in_an_outage_finds_its_own_turns(here: Process, folder: Path) -> None:
    """T7, promise 1: no other process takes them meanwhile, so that what is said next comes behind them."""
    async with process(folder, store=here.memory) as other:
        await other.turn(ANN, "s", "one", "1")
        other.goes_away()
        here.goes_away()
        await other.turn(ANN, "s", "two", "2")
        await other.die()
        await here.replay()
        await other.start()

        other.comes_back()
        await other.turn(ANN, "s", "three", "3")

    assert await here.log(ANN, "s") == ["one", "1", "two", "2", "three", "3"]


async def test_what_a_dead_process_left_is_taken_over_when_the_store_is_back(away: Process, folder: Path) -> None:
    async with process(folder, store=away.memory) as dead:
        dead.goes_away()
        await dead.turn(ANN, "s", "one", "1")
    await away.replay()
    before = away.store.status.waiting

    await away.catch_up()

    assert (before, away.store.status.waiting) == (0, 0)
    assert await away.log(ANN, "s") == ["one", "1"]


# What these tests share


def _server(here: Process) -> Parts:
    assert isinstance(here.memory, Parts)
    return here.memory


class _Full:
    """A slot whose disk takes nothing."""

    def __init__(self, slot: Any) -> None:
        self.slot = slot

    def write(self, _: object) -> list[int]:
        raise sqlite3.OperationalError("disk I/O error")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.slot, name)


class _thread_held:  # noqa: N801 (reads as a statement)
    """While the outbox's thread does nothing, work for it comes together."""

    def __init__(self, here: Process) -> None:
        self._thread, self._go_on = outbox_thread(here.outbox), threading.Event()

    def __enter__(self) -> None:
        self._thread.submit(self._go_on.wait)

    def __exit__(self, *_: object) -> None:
        self._go_on.set()


def _change(path: Path, sql: str) -> None:
    db = sqlite3.connect(path)
    with db:
        db.execute(sql)
    db.close()


def _damage(here: Process, path: Path) -> None:
    """Behind its first page a file holds nothing but noise, and is looked at anew."""
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    close_outbox_files(here.outbox)
