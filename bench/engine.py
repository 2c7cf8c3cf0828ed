"""The engine beside today's store and the bare driver: each begins and finishes turns in slices that alternate.

Situations differ in what is asked: sessions in use, sessions that the process does not hold, and one session with many
callers. Processor time is that of a contender's process.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, cast

from bench.contenders import LENGTH_OF_RATIOS, Entry, engine_entries
from bench.grounds import Ground
from bench.ours import BareStore, Ours, drafts_of, open_unsummarized, scope_of
from bench.plan import MANY, Plan
from bench.rounds import Cell, Results, Say, run_rounds
from bench.tables import Table, milliseconds, per_second, times
from bench.workload import WINDOW, Operation, Turn
from tenuto.model import BeginTurn, FinishTurn
from tenuto.ports import Backend
from tenuto.stores import factory
from tenuto.stores.engine import Engine
from tenuto.stores.engine.cache import RecordCache
from tenuto.stores.engine.engine import session_key
from tenuto.stores.sqlite import SqliteStore
from tenuto.wiring.engine_stores import SWITCH

_HOT_CALLERS: Final = 16


@dataclass(frozen=True, slots=True)
class Situation:
    """What is asked of the contenders of a name, of how many sessions and by how many callers."""

    name: str
    what: Operation
    sessions: int
    callers: int


SITUATIONS: Final = (
    Situation("warm", "cycle", 64, MANY),
    Situation("cold", "cycle", 64, MANY),
    Situation("sealed", "cycle", 64, MANY),
    Situation("hot", "append", 1, _HOT_CALLERS),
)


class Forgetful:
    """A contender whose process does not hold the session of a turn that begins."""

    def __init__(self, inner: BareStore | Ours, forget: Callable[[bytes], object]) -> None:
        self._inner = inner
        self._forget = forget
        self.seed, self.load, self.close = inner.seed, inner.load, inner.close

    async def cycle(self, session: str, turn: Turn) -> int:
        self._forget(session_key(scope_of(session), session))
        return await self._inner.cycle(session, turn)


class UnkeyedStore(BareStore):
    """A store whose callers send no idempotency keys."""

    async def cycle(self, session: str, turn: Turn) -> int:
        question, answer = drafts_of(turn)
        request = BeginTurn(session_id=session, turn_id=f"turn-{turn.number}", user_messages=(question,), window=WINDOW)
        begun = await self._store.sessions.begin_turn(scope_of(session), request)
        await self._store.sessions.finish_turn(begun, FinishTurn(reply=(answer,)))
        return len(begun.window)


async def _open(url: str) -> Engine:
    return await Engine(await factory.open_records(url), chance=Random(1)).__aenter__()


async def open_engine(url: str) -> BareStore:
    """The engine, with sessions in use."""
    return BareStore(cast(Backend, await _open(url)))


async def open_engine_cold(url: str) -> Forgetful:
    """The engine, which must load each session."""
    engine = await _open(url)
    return Forgetful(BareStore(cast(Backend, engine)), engine.cache.drop)


async def open_today_cold(url: str) -> Forgetful:
    """Today's backend, which must load each session."""
    store = await SqliteStore.open(factory.sqlite_path(url))
    return Forgetful(BareStore(store), partial(_forget_head, store))


def _forget_head(store: SqliteStore, key: bytes) -> None:
    # The writer thread may be using its cache: taking one entry out of it is harmless.
    store._database.writer._hot.take(key)


async def open_unkeyed(url: str) -> UnkeyedStore:
    """The engine without idempotency keys."""
    return UnkeyedStore(cast(Backend, await _open(url)))


async def open_unkeyed_today(url: str) -> UnkeyedStore:
    """Today's backend without idempotency keys."""
    return UnkeyedStore(await factory.open_store(url))


async def open_door(url: str) -> Ours:
    """`tenuto.open` over the engine."""
    os.environ[SWITCH] = "1"
    return await open_unsummarized(url)


async def open_door_cold(url: str) -> Forgetful:
    """The same, and each session must be loaded."""
    ours = await open_door(url)
    return Forgetful(ours, cast(RecordCache, ours.app.stores.cache).drop)


async def open_door_sealed(url: str) -> Ours:
    """`tenuto.open` over the engine, encrypted at rest."""
    os.environ[SWITCH] = "1"
    return await open_sealed_today(url)


async def open_sealed_today(url: str) -> Ours:
    """`tenuto.open` today, encrypted at rest."""
    return await open_unsummarized(url, encryption=True, privacy_key=b64encode(bytes(range(32))).decode())


def measure_engine(
    ground: Ground, pythons: Callable[[Entry], str], plan: Plan, folder: Path, say: Say, *, peers: bool
) -> list[Results]:
    """One result for each situation."""
    found = []
    for one in SITUATIONS:
        say(f"{ground.backend}: engine, {one.name} sessions")
        slices = plan.for_slices_of(one.what, sessions=one.sessions, callers=one.callers)
        who = engine_entries(ground.backend, one.name, peers=peers)
        if who:
            found.append(run_rounds(ground, who, pythons, slices, folder, say))
    return found


def engine_table(results: Results) -> Table:
    """A situation: how many times as much the first two contenders do."""
    (what, callers), *_ = {(cell.what, cell.at_once) for cell in results.slices}
    doing = "append a turn" if what == "append" else "begin and finish"
    table = Table(
        f"{results.about}: {doing}, {callers} at once",
        ["contender", "a second", "CPU ms", "the first does: by rate", "by CPU", "the second: by CPU", "errors"],
        note=" ".join(f"{why}." for why in results.absent.values()),
    )
    first, second = (Cell(entry.key, LENGTH_OF_RATIOS, what, callers) for entry in results.entries[:2])
    for cell in results.slices:
        rate = results.rate(cell.key, cell.history, what, callers)
        ratios = [
            times(results.ratio(first, cell)),
            times(results.ratio(first, cell, by_cpu=True)),
            times(results.ratio(second, cell, by_cpu=True)),
        ]
        name, errors = cell.key.partition(": ")[2], str(results.errors(cell.key))
        table.add(name, per_second(rate), milliseconds(results.cpu(cell)), *ratios, errors)
    return table
