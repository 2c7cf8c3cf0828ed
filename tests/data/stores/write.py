"""Writes a small store of the release that runs it: `python -m tests.data.stores.write > sqlite-N.sql`.

Run it with the release's own code, and keep what it prints under the number of the format.
`tests/unit/stores/test_formats.py` opens every file that it finds here.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from tenuto.model import Changes, Content, ForkRequest, NewSession, Producer, Retention, Scope, attachment_part
from tenuto.ports import Store
from tests.backends import sqlite_engine
from tests.clock import FakeClock
from tests.samples import ANN, batch, begin, once, says, trace_of
from tests.samples import closing as ending

OWNERS: Final = (ANN, Scope(tenant="acme"))
_PRAGMAS: Final = ("application_id", "user_version")


async def fill(store: Store) -> None:
    """A session with a finished and an unfinished turn, an attachment, a fork of it, keys, a producer, a trace, and
    state."""
    new = NewSession(retention=Retention(idle=None), title="Tea", context={"x": 1.0})
    await store.sessions.append(ANN, "s", batch("note", create=new))
    for number in range(20):
        await store.sessions.append(ANN, "s", batch(idempotency_key=once(f"k{number}")))
    picture = Content.of(ANN, b"\x89PNG picture", "image/png", "tea.png")
    question = says("question 茶", contents=(picture,))
    question = replace(question, parts=(*question.parts, attachment_part(picture)))
    turn = await begin(store, ANN, "s", user_messages=(question,), producer=Producer(id="p", seq=1))
    changes = Changes(metadata={"m": {"b": [1, 2.5]}})
    await store.sessions.finish_turn(turn, ending("answer", tokens=7, changes=changes, trace=trace_of(turn)))
    await store.sessions.fork(ANN, "s", ForkRequest(new_id="fork", at=2))
    for owner in OWNERS:
        await store.state.write_state(owner, "prefs", "tone", {"kind": True})
    await begin(store, ANN, "s", "next", idempotency_key=once("open"), lease=timedelta(minutes=5))


async def _write(folder: Path) -> str:
    async with sqlite_engine(folder / "a.db", FakeClock()) as store:
        await fill(store)
    with closing(sqlite3.connect(folder / "a.db")) as db:
        db.execute("DELETE FROM change")
        pragmas = [f"PRAGMA {name} = {db.execute(f'PRAGMA {name}').fetchone()[0]};" for name in _PRAGMAS]
        return "\n".join([*pragmas, *db.iterdump()]) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        sys.stdout.write(asyncio.run(_write(Path(scratch))))
