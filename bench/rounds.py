"""The main measurement: everybody on a backend does the same slice, one after the other, round after round.

What disturbs the machine for some seconds thus disturbs all alike, and the median over the rounds leaves it out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.contenders import LENGTH_OF_RATIOS, Backend, Entry
from bench.crew import Crew, WorkerFailed
from bench.grounds import Ground
from bench.plan import Plan
from bench.stats import growth
from bench.workload import WINDOW, YOUNG, YOUNG_TURNS, Measured, Operation

Say = Callable[[str], None]
# Young sessions are measured from their first turn to their last.
_WHOLE = 60.0


@dataclass(frozen=True, slots=True)
class Cell:
    """What was measured: who, at which length, what, and how many at once."""

    key: str
    history: int
    what: Operation
    at_once: int


@dataclass(slots=True)
class Results:
    """Every slice of a backend, and who could not take part."""

    backend: Backend
    about: str
    entries: list[Entry] = field(default_factory=list)
    slices: dict[Cell, list[Measured]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def rate(self, key: str, history: int, what: Operation, at_once: int) -> float:
        """Operations per second, the median of the rounds; NaN where nothing was measured."""
        slices = self.slices.get(Cell(key, history, what, at_once))
        return median(one.rate for one in slices) if slices else math.nan

    def ratio(self, first: Cell, second: Cell, *, by_cpu: bool = False) -> float:
        """How many times the rate of the second: compared round by round, since neighbours share their disturbances."""
        pairs = zip(self.slices.get(first, ()), self.slices.get(second, ()), strict=False)
        ratios = [
            one.rate_of_cpu / other.rate_of_cpu if by_cpu else one.rate / other.rate
            for one, other in pairs
            if other.operations
        ]
        return median(ratios) if ratios else math.nan

    def cpu(self, cell: Cell) -> float:
        """Processor seconds of one operation, the median of the rounds."""
        slices = [one for one in self.slices.get(cell, ()) if one.operations]
        return median(one.cpu / one.operations for one in slices) if slices else math.nan

    def p50(self, key: str, history: int, what: Operation, at_once: int) -> float:
        """The median time of an operation in seconds, the median of the rounds."""
        slices = self.slices.get(Cell(key, history, what, at_once))
        return median(one.p50 for one in slices) if slices else math.nan

    def errors(self, key: str) -> int:
        """How many operations of a contender failed."""
        return sum(one.errors for cell, slices in self.slices.items() if cell.key == key for one in slices)

    def growth(self, key: str, what: Operation, at_once: int) -> float:
        """How the time of an operation grows with the history.

        Alone, by the median time; side by side, by the rate. A load counts from where there is a whole window to
        load, else the shortest history would look faster because it brings less.
        """
        points = [self._point(cell) for cell in self._cells(key, what, at_once)]
        return growth(points) if len(points) > 1 else math.nan

    def ours(self) -> str:
        """The key of our store."""
        return next(entry.key for entry in self.entries if entry.side == "ours")

    def side(self, side: str) -> list[Entry]:
        """Those who took part on a side."""
        return [entry for entry in self.entries if entry.side == side and entry.key not in self.absent]

    def _cells(self, key: str, what: Operation, at_once: int) -> Iterator[Cell]:
        for cell in self.slices:
            if (cell.key, cell.what, cell.at_once) == (key, what, at_once) and (
                what == "append" or cell.history >= WINDOW  # without the young
            ):
                yield cell

    def _point(self, cell: Cell) -> tuple[float, float]:
        slices = self.slices[cell]
        length = median(one.length for one in slices)
        if cell.at_once == 1:
            return length, median(one.p50 for one in slices)
        return length, median(one.seconds / max(1, one.operations) for one in slices)


def run_rounds(
    ground: Ground, entries: Sequence[Entry], pythons: Callable[[Entry], str], plan: Plan, folder: Path, say: Say
) -> Results:
    """Open everybody, give them their histories, and let them take turns."""
    results = Results(backend=ground.backend, about=ground.about, entries=list(entries))
    with ExitStack() as stack:
        crews = []
        for place, entry in enumerate(entries):
            log = folder / f"{ground.backend}-{plan.operations[0]}-{place}.log"
            crews.append(stack.enter_context(Crew(entry, ground.new_url(), pythons(entry), log)))
        # Storing the histories is not measured, so it may go on side by side.
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda crew: _prepare(results, crew, plan, say), crews))
        _measure(results, crews, plan, say)
    return results


def lengths(entry: Entry, plan: Plan) -> tuple[int, ...]:
    """The histories a contender is measured at."""
    return tuple(length for length in plan.pools if entry.lengths is None or length in entry.lengths)


def _prepare(results: Results, crew: Crew, plan: Plan, say: Say) -> None:
    say(f"{crew.entry.key}: storing the histories")
    _attempt(results, crew, lambda: _seed(crew, plan))


def _seed(crew: Crew, plan: Plan) -> None:
    crew.ready()
    for history in lengths(crew.entry, plan):
        crew.seed(history, plan.sessions(crew.entry, history))
        # A first short slice of everything warms statement caches, connections and the interpreter.
        for what in crew.entry.operations:
            crew.measure(history, what, 8, 0.05, 32)


def _measure(results: Results, crews: Sequence[Crew], plan: Plan, say: Say) -> None:
    for number in range(plan.rounds):
        say(f"{results.backend}: round {number + 1} of {plan.rounds}")
        for history in plan.pools:
            for what in plan.operations:
                for at_once in plan.concurrencies:
                    for time in range(plan.times(history, what, at_once)):
                        # Nobody always goes first: who comes after a checkpoint or a busy neighbour changes.
                        for crew in _rotated(crews, number + time):
                            _slice(results, crew, plan, number, Cell(crew.entry.key, history, what, at_once))


def _rotated(crews: Sequence[Crew], by: int) -> list[Crew]:
    return [crews[(place + by) % len(crews)] for place in range(len(crews))]


def _slice(results: Results, crew: Crew, plan: Plan, number: int, cell: Cell) -> None:
    entry = crew.entry
    if (
        entry.key in results.absent
        or cell.history not in lengths(entry, plan)
        or cell.what not in entry.operations
        or number >= plan.rounds_of(entry, cell.history)
        or _too_slow(entry, cell)
    ):
        return

    def act() -> None:
        if entry.fresh:
            crew.seed(cell.history, plan.sessions(entry, cell.history), f"round-{number}")
        seconds, at_most = plan.slice, plan.at_most(entry, cell.history)
        if cell.history == YOUNG:
            seconds, at_most = _WHOLE, YOUNG_TURNS * cell.at_once
        measured = crew.measure(cell.history, cell.what, cell.at_once, seconds, at_most)
        results.slices.setdefault(cell, []).append(measured)

    _attempt(results, crew, act)


def _too_slow(entry: Entry, cell: Cell) -> bool:
    """At long histories some peers need seconds a call; only what a ratio or a growth is made of is asked of them."""
    alone = cell.what in ("append", "load")
    return entry.side == "peer" and cell.history > LENGTH_OF_RATIOS and alone == (cell.at_once > 1)


def _attempt(results: Results, crew: Crew, act: Callable[[], None]) -> None:
    """A contender that fails is left out from then on, and the table says why."""
    try:
        act()
    except WorkerFailed as exc:
        results.absent[crew.entry.key] = str(exc)
