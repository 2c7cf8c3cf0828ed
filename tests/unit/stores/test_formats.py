"""Stores that each release has written open with this one: a file in `tests/data/stores` for each format."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from tenuto.errors import SequenceGap
from tenuto.model import Producer, TurnState
from tests.backends import sqlite_engine
from tests.clock import START, FakeClock
from tests.data.stores.write import OWNERS
from tests.samples import ANN, batch, begin, once, texts

FILES = {path.stem: path.read_text() for path in sorted((Path(__file__).parents[2] / "data" / "stores").glob("*-*"))}


@pytest.mark.requirement("T19")
@pytest.mark.parametrize("statements", FILES.values(), ids=FILES)
async def test_a_store_of_each_format_goes_on(statements: str, tmp_path: Path) -> None:
    """What it holds is read, retries find their turns, and values keep their versions."""
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        db.executescript(statements)
    # The lease of the unfinished turn is over.
    async with sqlite_engine(tmp_path / "a.db", FakeClock(START + timedelta(hours=1))) as store:
        session = await store.sessions.get(ANN, "s")
        assert (session.title, session.context, session.metadata) == ("Tea", {"x": 1.0}, {"m": {"b": [1, 2.5]}})
        assert (session.tokens, session.turns) == (7, 3)
        assert await texts(store, ANN, "s") == ["note", "question 茶", "answer", "next"]
        assert await texts(store, ANN, "fork") == ["note", "question 茶"]
        assert [trace.number for trace in await store.traces.traces(ANN, "s")] == [2]
        for session_id in ("s", "fork"):
            (picture,) = await store.sessions.attachments(ANN, session_id)
            assert (await store.sessions.attachment(ANN, session_id, picture.id)).data == b"\x89PNG picture"
        for owner in OWNERS:
            assert (await store.state.write_state(owner, "prefs", "tone", {}, 1)).version == 2

        states = [(await begin(store, ANN, "s", "?", idempotency_key=once(key))).state for key in ("k0", "k19", "open")]
        with pytest.raises(SequenceGap):
            await store.sessions.append(ANN, "s", batch("?", producer=Producer(id="p", seq=3)))

        assert states == [TurnState.FINISHED, TurnState.FINISHED, TurnState.RESUMED]
        await store.sessions.append(ANN, "s", batch("?", producer=Producer(id="p", seq=2)))
