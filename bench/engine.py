"""The engine alone and under `tenuto.open`, beside the bare driver and openai-agents: slices that alternate.

Situations differ in what is asked: sessions in use, sessions that the process does not hold, encrypted ones, and one
session with many callers. Processor time is that of a contender's process.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from bench.contenders import Entry, engine_entries
from bench.grounds import Ground
from bench.ours import BareStore, Ours, open_bare, open_ours, scope_of
from bench.plan import MANY, Plan
from bench.rounds import Results, Say, run_rounds
from bench.tables import Table, milliseconds, per_second, times
from bench.workload import Operation, Turn
from tenuto.model.scope import session_key
from tenuto.stores.engine.cache import RecordCache

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

    def __init__(self, inner: BareStore | Ours, cache: RecordCache) -> None:
        self._inner = inner
        self._cache = cache
        self.seed, self.append, self.load, self.close = inner.seed, inner.append, inner.load, inner.close

    async def cycle(self, session: str, turn: Turn) -> int:
        self._cache.drop(session_key(scope_of(session), session))
        return await self._inner.cycle(session, turn)


async def open_engine_cold(url: str) -> Forgetful:
    """The engine alone, which must load each session."""
    bare = await open_bare(url)
    return Forgetful(bare, bare.engine.cache)


async def open_door_cold(url: str) -> Forgetful:
    """`tenuto.open`, and each session must be loaded."""
    ours = await open_ours(url)
    return Forgetful(ours, cast(RecordCache, ours.app.stores.cache))


async def open_door_sealed(url: str) -> Ours:
    """`tenuto.open`, encrypted at rest."""
    return await open_ours(url, encryption=True, privacy_key=b64encode(bytes(range(32))).decode())


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
    """A situation: how many times as much the first two contenders do as each of the others."""
    (what, callers), *_ = {(cell.what, cell.at_once) for cell in results.slices}
    doing = "append a turn" if what == "append" else "begin and finish"
    pair, situation = results.entries[:2], results.entries[0].name.rpartition(", ")[2]
    ratios = [column for entry in pair for column in (f"{_short(entry.key)} does, by rate", "by CPU")]
    table = Table(
        f"{results.about}: {doing}, {situation}, {callers} at once",
        ["contender", "a second", "CPU ms", *ratios, "errors"],
        note=" ".join(f"{why}." for why in results.absent.values()),
    )
    for cell in results.slices:
        cells = [
            "" if entry.key == cell.key else times(results.ratio(replace(cell, key=entry.key), cell, by_cpu=by_cpu))
            for entry in pair
            for by_cpu in (False, True)
        ]
        figures = (per_second(results.rate(cell.key, cell.history, what, callers)), milliseconds(results.cpu(cell)))
        table.add(_short(cell.key), *figures, *cells, str(results.errors(cell.key)))
    return table


def _short(key: str) -> str:
    """The name without backend and situation."""
    return key.partition(": ")[2].rpartition(", ")[0]
