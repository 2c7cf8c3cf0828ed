"""Values of state whose bytes are damaged in a file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tenuto.errors import StateCorrupt
from tests.backends import sqlite_engine
from tests.samples import ACME, ANN, value_of


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
