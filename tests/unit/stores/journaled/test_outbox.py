"""The outbox's files: whose they are, what stays in them, and who takes over what a dead process left."""

from __future__ import annotations

import asyncio
import logging
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from tenuto.errors import SessionNotFound, StoreUnavailable, TurnLost, Unavailable
from tenuto.model import Scope
from tenuto.model.scope import user_digest
from tenuto.ports import Store
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.stores.journaled import JournalCounts, Outbox, count_journal
from tenuto.stores.memory import MemoryStore
from tests.backends import RING
from tests.clock import FakeClock
from tests.outages import Process, process
from tests.samples import ANN, BOB, closing, says, texts

CHAT = Scope(tenant="acme", user="ann", channel="lark", chat="group")
SECRET = "the-word-nobody-says"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Process]:
    async with process(tmp_path / "state" / "journal") as running:
        yield running


def everything(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


# Files


async def test_no_file_is_made_before_it_is_needed_and_none_stays(talked: Process) -> None:
    before = list(talked.folder.iterdir())
    talked.goes_away()
    await talked.turn(ANN, "s", SECRET, "2")
    meanwhile = everything(talked.folder)
    await talked.catch_up()

    assert before == []
    assert SECRET.encode() in meanwhile
    assert SECRET.encode() not in everything(talked.folder)
    assert not list(talked.folder.glob("*.db"))


async def test_what_reached_the_store_leaves_no_bytes_behind_others_that_wait(alone: Process) -> None:
    await alone.turn(ANN, "s", SECRET, "2")
    await alone.turn(ANN, "t", "waits", "3")
    alone.comes_back()
    await alone.store.sessions.get(ANN, "s")

    assert count_journal(alone.folder).waiting == 1
    assert SECRET.encode() not in everything(alone.folder)


async def test_files_are_their_owners_alone(away: Process) -> None:
    await away.turn(ANN, "s", "one", "1")

    assert stat.S_IMODE(away.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in away.folder.iterdir()} == {0o600}


async def test_a_folder_that_cannot_be_used_refuses_turns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "taken").write_text("no folder")

    with caplog.at_level(logging.WARNING):
        async with process(tmp_path / "taken" / "journal") as here:
            await here.turn(ANN, "s", "one", "1")
            here.goes_away()
            with pytest.raises(Unavailable):
                await here.begin(ANN, "s", "two")
            shown = await texts(here.store, ANN, "s")

    assert "the journal's folder cannot be used" in caplog.text
    assert shown == ["one", "1"]


async def test_counts_tell_what_cannot_be_read(away: Process) -> None:
    await away.turn(ANN, "s", "one", "1")
    (away.folder / "7.db").write_bytes(b"not a database at all, and long enough to be told from one")

    assert count_journal(away.folder) == JournalCounts(waiting=1, unreadable=1)
    assert count_journal(away.folder / "nowhere") == JournalCounts()


@pytest.mark.parametrize("number", [1, 7])
async def test_a_file_that_cannot_be_read_stops_nobody(
    tmp_path: Path, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor a later process: it is counted, and logged once."""
    (tmp_path / f"{number}.db").write_bytes(b"garbage" * 1000)
    async with process(tmp_path) as here:
        here.goes_away()
        await here.turn(ANN, "s", "one", "1")
        here.comes_back()
        for _ in range(3):
            assert await here.replay()

        assert await here.log(ANN, "s") == ["one", "1"]
        assert here.outbox.counts == JournalCounts(unreadable=1)
    assert [line for line in caplog.messages if "cannot be" in line] == [
        f"file {number}.db of the journal cannot be read: turns in it are not replayed"
    ]
    assert (tmp_path / f"{number}.db").exists()


async def test_many_turns_at_once_are_all_on_disk(away: Process) -> None:
    await asyncio.gather(*(away.turn(ANN, f"s{number}", "one", "1") for number in range(50)))
    await away.restart()

    assert away.store.status.waiting == 50
    away.comes_back()
    assert await away.replay()
    assert [await away.log(ANN, f"s{number}") for number in range(50)] == [["one", "1"]] * 50


# Several processes


async def test_each_process_has_a_slot_of_its_own(tmp_path: Path) -> None:
    clock, store = FakeClock(), MemoryStore(clock=FakeClock())
    async with process(tmp_path, store=store, clock=clock) as one, process(tmp_path, store=store, clock=clock) as two:
        for each in (one, two):
            each.goes_away()
            await each.turn(ANN, "s", "mine", "1")
        await one.catch_up()

        assert one.store.status.waiting == 0
        assert (two.store.status.waiting, count_journal(tmp_path).waiting) == (1, 1)


async def test_what_a_dead_process_left_is_taken_over(tmp_path: Path) -> None:
    """Also by a process that runs already, and has turns of its own in the same session: merged by their times."""
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    one, two = (Process(tmp_path, store=store, clock=clock) for _ in range(2))
    for each in (one, two):
        await each.start()
        each.goes_away()
    for each, question, answer in ((one, "one", "1"), (two, "two", "2"), (one, "three", "3")):
        await each.turn(ANN, "s", question, answer)
        clock.advance(timedelta(seconds=1))
    await one.turn(ANN, "t", "one", "1")

    await one.die()
    await two.catch_up()
    await two.die()

    assert await two.log(ANN, "s") == ["one", "1", "two", "2", "three", "3"]
    assert await two.log(ANN, "t") == ["one", "1"]
    assert count_journal(tmp_path).waiting == 0


async def test_a_killed_process_gives_its_slot_free(tmp_path: Path) -> None:
    """Killed for real: what it told is on disk, and its lock is free."""
    program = f"""
import asyncio, os, signal
from pathlib import Path
from tests.outages import Process
from tests.samples import ANN
async def main():
    here = Process(Path({str(tmp_path)!r}))
    await here.start()
    here.goes_away()
    await here.turn(ANN, "s", "one", "1")
    print("told", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parents[4]
    )

    async with process(tmp_path) as here:
        assert (done.returncode, done.stdout.strip()) == (-signal.SIGKILL, "told"), done.stderr
        assert here.store.status.waiting == 1
        assert await here.replay()
        assert await here.log(ANN, "s") == ["one", "1"]


async def test_a_live_process_keeps_its_slot(tmp_path: Path) -> None:
    async with process(tmp_path) as one:
        one.goes_away()
        await one.turn(ANN, "s", "one", "1")
        another = await Outbox.open(tmp_path)

        assert (another.counts.waiting, await another.number()) == (0, (2, 1))
        await another.close()


# Erasing


async def test_an_erased_person_is_in_no_slot_any_more(tmp_path: Path) -> None:
    """The rows of other processes go too, what others said stays, and the receipt counts them."""
    clock, store = FakeClock(), MemoryStore(clock=FakeClock())
    async with process(tmp_path, store=store, clock=clock) as one, process(tmp_path, store=store, clock=clock) as two:
        for each in (one, two):
            await each.turn(BOB, f"bob {each is one}", "before", "b")
            each.goes_away()
        await one.turn(ANN, "s", f"{SECRET} 1", f"{SECRET} 2")
        await two.turn(ANN, "t", f"{SECRET} 3", f"{SECRET} 4")
        turn = await two.begin(CHAT, "g", user_messages=(says(f"{SECRET} 5", speaker="ann"),))
        await two.finish(turn, f"{SECRET} 6")
        await two.turn(BOB, "bob False", "bob's", "own")
        before = everything(tmp_path)
        one.comes_back()

        erased = await one.store.upkeep.erase(ANN)
        await two.catch_up()

        assert SECRET.encode() in before
        assert erased.journal == 3
        assert SECRET.encode() not in everything(tmp_path)
        assert await two.log(BOB, "bob False") == ["before", "b", "bob's", "own"]
        for each in (one, two):
            for scope, session in ((ANN, "s"), (ANN, "t"), (CHAT, "g")):
                with pytest.raises(SessionNotFound):
                    await each.store.sessions.get(scope, session)


async def test_a_journal_on_another_machine_drops_an_erased_persons_turns(tmp_path: Path) -> None:
    """The store remembers who was erased, by a digest, and when: what is said later is theirs to say."""
    clock, store = FakeClock(), MemoryStore(clock=FakeClock())
    async with (
        process(tmp_path / "one", store=store, clock=clock) as one,
        process(tmp_path / "two", store=store, clock=clock) as two,
    ):
        two.goes_away()
        await two.turn(ANN, "s", SECRET, "1")
        await two.turn(BOB, "b", "bob's", "own")
        clock.advance(timedelta(seconds=1))
        await one.store.upkeep.erase(ANN)
        clock.advance(timedelta(minutes=6))
        await two.turn(ANN, "new", "back", "again")

        await two.catch_up()

        assert await two.log(ANN, "new") == ["back", "again"]
        assert await two.log(BOB, "b") == ["bob's", "own"]
        with pytest.raises(SessionNotFound):
            await store.sessions.get(ANN, "s")
        assert (two.store.status.waiting, two.store.status.quarantined) == (0, 0)
        remembered = await store.state.list_state(Scope(tenant="acme"), "erasures")
        assert [entry.key for entry in remembered] == [user_digest("acme", "ann")]


async def test_a_turn_whose_row_was_erased_is_lost(tmp_path: Path) -> None:
    clock, store = FakeClock(), MemoryStore(clock=FakeClock())
    async with process(tmp_path, store=store, clock=clock) as one, process(tmp_path, store=store, clock=clock) as two:
        two.goes_away()
        turn = await two.begin(ANN, "s", SECRET)
        await one.store.upkeep.erase(ANN)

        with pytest.raises(TurnLost):
            await two.store.sessions.finish_turn(turn, closing(SECRET))

        assert SECRET.encode() not in everything(tmp_path)


# Encryption


async def test_where_the_store_is_sealed_the_journal_is_too(tmp_path: Path) -> None:
    """Also in an outage that is longer than keys are trusted without a look."""
    clock = FakeClock()
    memory = MemoryStore(clock=clock)

    def ciphers(store: Store) -> TenantCiphers:
        return TenantCiphers(store=store.state, ring=RING, clock=clock)

    async with process(tmp_path, store=memory, clock=clock, ciphers=ciphers) as here:
        await here.turn(ANN, "s", "one", "1")
        here.goes_away()
        clock.advance(timedelta(hours=1))
        await here.turn(ANN, "s", SECRET, SECRET)
        with pytest.raises(StoreUnavailable):
            await here.begin(Scope(tenant="another", user="eve"), "e", SECRET)
        raw = everything(tmp_path)

        await here.restart()
        with pytest.raises(StoreUnavailable):
            await here.store.sessions.get(ANN, "s")
        with pytest.raises(StoreUnavailable):
            await here.begin(ANN, "s", "two")
        await here.catch_up()

        assert SECRET.encode() not in raw
        assert len(raw) > 1000
        assert await here.log(ANN, "s") == ["one", "1", SECRET, SECRET]


async def test_a_row_whose_key_was_destroyed_is_set_aside(tmp_path: Path) -> None:
    clock = FakeClock()

    def ciphers(store: Store) -> TenantCiphers:
        return TenantCiphers(store=store.state, ring=RING, clock=clock)

    async with process(tmp_path, clock=clock, ciphers=ciphers) as here:
        await here.turn(ANN, "s", "one", "1")
        here.goes_away()
        await here.turn(ANN, "s", "two", "2")
        await TenantCiphers(store=here.memory.state, ring=RING, clock=clock).destroy(ANN)
        await here.restart()
        await here.catch_up()

        assert (here.store.status.waiting, here.store.status.quarantined) == (0, 1)
        assert await here.log(ANN, "s") == ["one", "1"]
