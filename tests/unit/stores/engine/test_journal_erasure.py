"""What an erasure does with the journal: its rows here, on other machines, in quarantine, and in use elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tenuto.errors import SessionElsewhere, SessionNotFound
from tenuto.model.scope import site_scope, user_digest
from tenuto.stores.engine import Engine
from tenuto.stores.engine import journal as journal_module
from tenuto.stores.engine.journal_files import DiskFolder, list_quarantined
from tenuto.stores.engine.journal_folder import StoredBase, StoredRow
from tenuto.stores.memory import InMemoryRecords
from tests.machine import Machine
from tests.samples import ANN, BOB, begin, opening, talk, texts
from tests.timeouts import LONG, wait_until


async def test_an_erasure_reaches_rows_here_and_on_other_machines(machine: Machine, tmp_path: Path) -> None:
    here, there = await machine.start("a"), Machine(tmp_path / "there")
    there.server, there.clock = machine.server, machine.clock
    other = await there.start("b")
    for engine, session_id in ((here, "s"), (other, "t")):
        await talk(engine, ANN, session_id, "one", "1", journaled=True)
    await talk(here, BOB, "u", "one", "1", journaled=True)
    machine.is_away = True
    for engine, scope, session_id in ((here, ANN, "s"), (other, ANN, "t"), (here, BOB, "u")):
        await talk(engine, scope, session_id, "two", "2", journaled=True)
    machine.cut, machine.is_away = "b", False

    erased = await here.upkeep.erase(ANN)
    machine.cut = ""
    await there.until_stored(other)
    await machine.until_stored(here)

    assert erased.journal in (0, 2)
    assert await texts(here, BOB, "u") == ["one", "1", "two", "2"]
    for session_id in ("s", "t"):
        with pytest.raises(SessionNotFound):
            await here.sessions.get(ANN, session_id)
    assert [engine.sessions.journal.status.quarantined for engine in (here, other)] == [0, 0]  # type: ignore[union-attr]
    await there.close()


async def test_an_erasure_where_no_folder_is_reaches_rows_that_create_a_session(machine: Machine) -> None:
    here = await machine.start("a")
    await talk(here, BOB, "t", "one", "1", journaled=True)
    machine.is_away = True
    turn = await here.sessions.begin_turn(ANN, opening("s", "one", new_id=True, journaled=True))
    machine.cut, machine.is_away = "a", False

    await machine.elsewhere().upkeep.erase(ANN)
    machine.cut = ""
    await machine.until_stored(here)

    assert turn.journaled
    with pytest.raises(SessionNotFound):
        await here.sessions.get(ANN, "s")


async def test_what_is_quarantined_is_listed_and_goes_with_an_erasure_elsewhere(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_PURGE_EVERY", 0.0)
    here = await machine.start("a")
    for user in (ANN, BOB):
        await talk(here, user, f"of-{user.user}", "one", "1", journaled=True)
    machine.is_away = True
    turns = [await begin(here, user, f"of-{user.user}", "two", journaled=True) for user in (ANN, BOB)]
    elsewhere = machine.elsewhere()
    machine.cut, machine.is_away = "a", False
    for user in (ANN, BOB):
        await elsewhere.sessions.delete(user, f"of-{user.user}")
    machine.cut = ""
    await machine.until_stored(here)

    listed = list_quarantined(machine.path)
    await elsewhere.upkeep.erase(ANN)
    await wait_until(lambda: here.sessions.journal.status.quarantined == 1)  # type: ignore[union-attr]

    assert [(one.site, one.session_id, one.turn, one.at, one.reason) for one in listed] == [
        (site_scope(turn.scope), turn.session.id, turn.id, machine.clock(), "session_not_found") for turn in turns
    ]
    assert [one.session_id for one in list_quarantined(machine.path)] == ["of-bob"]


@pytest.fixture
async def folders(tmp_path: Path) -> AsyncIterator[tuple[DiskFolder, DiskFolder]]:
    """Of two processes, with rows of two users in the same sessions, in opposite orders."""
    first, second = await DiskFolder.open(tmp_path), await DiskFolder.open(tmp_path)
    first.vote(True)
    second.vote(True)
    assert await first.is_agreed()
    for number, user, order in ((1, "ann", 1), (2, "bob", -1)):
        for name in (b"a", b"b")[::order]:
            row = StoredRow(
                number=number, session_id="s", turn="t", at=1, users=(user_digest("acme", user),), body=b"x"
            )
            assert await first.append(name * 16, site_scope(ANN), StoredBase(), row)
    yield first, second
    await first.close()
    await second.close()


async def test_two_erasures_do_not_wait_for_each_other(folders: tuple[DiskFolder, DiskFolder]) -> None:
    both = asyncio.Barrier(2)

    class Meeting:
        """Has both erasures try for their first lock before either goes on."""

        def __init__(self, folder: DiskFolder) -> None:
            self._folder, self._first = folder, True

        def __getattr__(self, name: str) -> Any:
            return getattr(self._folder, name)

        async def lock(self, key: bytes) -> bool:
            locked = await self._folder.lock(key)
            if self._first:
                self._first = False
                await both.wait()
            return locked

    engines = [Engine(InMemoryRecords(), chance=Random(1), folder=Meeting(folder)) for folder in folders]
    async with asyncio.timeout(LONG):
        erased = await asyncio.gather(
            *[engine.upkeep.erase(scope) for engine, scope in zip(engines, (ANN, BOB), strict=True)]
        )

    assert [one.journal for one in erased] == [2, 2]


async def test_an_erasure_gives_up_on_a_session_that_another_process_has(
    folders: tuple[DiskFolder, DiskFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = folders
    monkeypatch.setattr(journal_module, "_LOCKED_WITHIN", 0.0)
    assert await second.lock(b"b" * 16)

    engine = Engine(InMemoryRecords(), chance=Random(1), folder=first)
    with pytest.raises(SessionElsewhere):
        await engine.upkeep.erase(ANN)

    assert await second.lock(b"a" * 16)
