"""Values of state whose bytes are damaged in a file, and those that many write at once."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from tenuto.errors import StateCorrupt
from tenuto.model import StateChange
from tenuto.stores.engine import Engine
from tests.backends import sqlite_engine
from tests.clock import FakeClock
from tests.samples import ACME, ANN, value_of
from tests.simulation.store import Fate, SimClient, SimServer
from tests.timeouts import LONG


@pytest.mark.parametrize("damage", ["x'7b'", "x'ff'", "x''"])
async def test_a_value_that_is_scribbled_over_is_told_as_such(tmp_path: Path, damage: str) -> None:
    """Not as a store that is away: a walk over everything goes on."""
    path = tmp_path / "state.db"
    async with sqlite_engine(path) as store:
        for key in ("tone", "size"):
            await store.state.write_state(ANN, "prefs", key, "warm")
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(f"UPDATE head SET head = {damage} WHERE key = (SELECT key FROM record WHERE name = 'tone')")

        with pytest.raises(StateCorrupt):
            await store.state.read_state(ANN, "prefs", "tone")
        assert await value_of(store, ANN, "prefs", "size") == "warm"
        assert [where.key for where in await store.state.list_state_locations(ACME)] == ["size", "tone"]


async def test_writers_of_one_value_do_not_refuse_each_other(clock: FakeClock) -> None:
    """Nor do those of two values, in whatever order they name them, wait for each other for ever."""
    server, calls = SimServer(Random(1)), list[str]()

    def note(_process: str, kind: str) -> Fate:
        calls.append(kind)
        return Fate.FINE

    server.fate = note
    async with Engine(SimClient(server, "here"), clock=clock, chance=Random("here")) as store:
        writes = [store.state.write_state(ANN, "prefs", "a", n) for n in range(50)]
        pairs = [
            store.state.change_states(ANN, "prefs", [StateChange(key=key, value=n) for key in order])
            for n, order in enumerate(("ab", "ba") * 10)
        ]
        async with asyncio.timeout(LONG):
            await asyncio.gather(*writes, *pairs)

        assert calls.count("commit") <= 2 * 70
        entry = await store.state.read_state(ANN, "prefs", "a")
        assert entry is not None
        assert entry.version == 70
