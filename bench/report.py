"""What a run found, and the tables that tell it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Final

from bench.absence import Absence
from bench.contenders import LENGTH_OF_RATIOS, LONG_HISTORY, Entry
from bench.engine import engine_table
from bench.fsyncs import Fsyncs
from bench.hits import Hits
from bench.memory import Memory
from bench.plan import ASKING, MANY
from bench.rounds import Cell, Results
from bench.serving import CLIENTS, Served
from bench.startup import Start
from bench.tables import Table, exponent, milliseconds, per_second, times
from bench.tasks import FLOWS, KEYS, STEPS, BoardCost, StepCost
from bench.workload import OPERATIONS, YOUNG, YOUNG_TURNS, Operation

_TITLES: Final[dict[Operation, str]] = {
    "append": "append a turn (question and answer)",
    "load": "load the newest 20 messages",
    "cycle": "begin and finish (load, store the question, store the answer)",
}


@dataclass(slots=True)
class Report:
    """Everything measured in one run."""

    machine: str
    plan: str
    results: list[Results] = field(default_factory=list)
    fsyncs: list[Fsyncs] = field(default_factory=list)
    hits: list[Hits] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)
    asks: list[Results] = field(default_factory=list)
    engines: list[Results] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    steps: list[StepCost] = field(default_factory=list)
    boards: list[BoardCost] = field(default_factory=list)
    assembling: tuple[float, float] | None = None
    """Milliseconds to assemble 500 messages, and to count them anew."""
    remarks: list[str] = field(default_factory=list)

    def tables(self) -> Iterator[Table]:
        """All tables, backend by backend."""
        for results in self.results:
            yield from backend_tables(results)
        for results in self.asks:
            yield ask_table(results)
        for results in self.engines:
            yield engine_table(results)
        if self.served:
            yield serving_table(self.served)
        if self.memory:
            yield memory_table(self.memory)
        if self.steps:
            yield step_table(self.steps)
        if self.boards:
            yield board_table(self.boards)
        if self.fsyncs:
            yield fsync_table(self.fsyncs)
        if self.hits:
            yield hit_table(self.hits)
        if self.starts:
            yield start_table(self.starts)
        if self.absences:
            yield absence_table(self.absences)

    def as_dict(self) -> dict[str, Any]:
        """For `--json`: every slice of every round."""
        return {
            "machine": self.machine,
            "plan": self.plan,
            "backends": [_plain(results) for results in self.results],
            "fsyncs": [asdict(one) for one in self.fsyncs],
            "hits": [{**asdict(one), "ratio": one.ratio} for one in self.hits],
            "starts": [asdict(one) for one in self.starts],
            "absences": [asdict(one) for one in self.absences],
            "asks": [_plain(results) for results in self.asks],
            "engines": [_plain(results) for results in self.engines],
            "served": [asdict(one) for one in self.served],
            "memory": [asdict(one) for one in self.memory],
            "steps": [asdict(one) for one in self.steps],
            "boards": [asdict(one) for one in self.boards],
            "assembling": self.assembling,
            "remarks": self.remarks,
        }


def _plain(results: Results) -> dict[str, Any]:
    return {
        "backend": results.backend,
        "about": results.about,
        "absent": results.absent,
        "slices": [
            {**asdict(cell), "rounds": [one.as_dict() for one in slices]} for cell, slices in results.slices.items()
        ],
    }


def backend_tables(results: Results) -> Iterator[Table]:
    """One table for each operation, then the ratios."""
    for what in OPERATIONS:
        yield _operation_table(results, what)
    yield _ratio_table(results)


def _operation_table(results: Results, what: Operation) -> Table:
    histories = sorted({cell.history for cell in results.slices})
    heads = [f"{history:,}" for history in histories]
    table = Table(
        f"{results.about}: {_TITLES[what]}",
        ["at messages", *heads, "growth alone", f"growth at {MANY}"],
        note=f"Median time in ms of one caller alone, and operations per second of {MANY} at once.",
    )
    for entry in _present(results):
        if what in entry.operations:
            cells = [_cell(results, entry, history, what) for history in histories]
            grows = [exponent(results.growth(entry.key, what, at_once)) for at_once in (1, MANY)]
            table.add(entry.name, *cells, *grows)
    return table


def _cell(results: Results, entry: Entry, history: int, what: Operation) -> str:
    alone = milliseconds(results.p50(entry.key, history, what, 1))
    together = per_second(results.rate(entry.key, history, what, MANY))
    return f"{alone} / {together}" if (alone, together) != ("–", "–") else "–"


def _present(results: Results) -> list[Entry]:
    measured = {cell.key for cell in results.slices}
    return [entry for entry in results.entries if entry.key in measured]


def _ratio_table(results: Results) -> Table:
    table = Table(
        f"{results.backend}: cycles at {MANY} at once, and how many times as many tenuto does",
        [
            "contender",
            f"cycles/s at {LENGTH_OF_RATIOS}",
            "CPU ms",
            "tenuto does",
            f"cycles/s at {LONG_HISTORY:,}",
            "tenuto does",
            "errors",
        ],
    )
    for entry in _present(results):
        cells = []
        for history in (LENGTH_OF_RATIOS, LONG_HISTORY):
            theirs = results.rate(entry.key, history, "cycle", MANY)
            cells += [per_second(theirs), times(ratio_to(results, entry, history))]
        cells.insert(1, milliseconds(results.cpu(Cell(entry.key, LENGTH_OF_RATIOS, "cycle", MANY))))
        table.add(entry.name, *cells, str(results.errors(entry.key)))
    table.note = " ".join(f"{why}." for why in results.absent.values())
    return table


def ask_table(results: Results) -> Table:
    """Whole turns: a row for each contender and length."""
    table = Table(
        f"{results.about}: a whole turn with a model that answers at once, {ASKING} at once",
        ["contender", "messages", "turns/s", "ms a turn", "CPU ms a turn", "tenuto: by wall", "by CPU", "errors"],
        note=" ".join(
            [
                "Titles and summaries are made within the measured time; a server's processor time is not counted.",
                *(f"{why}." for why in results.absent.values()),
            ]
        ),
    )
    for cell in results.slices:
        rate = results.rate(cell.key, cell.history, "ask", cell.at_once)
        ours = Cell(results.ours(), cell.history, "ask", cell.at_once)
        ratios = [times(results.ratio(ours, cell, by_cpu=by_cpu)) if cell != ours else "" for by_cpu in (False, True)]
        length = f"young (1 to {YOUNG_TURNS} turns)" if cell.history == YOUNG else f"{cell.history:,}"
        figures = (per_second(rate), milliseconds(1 / rate), milliseconds(results.cpu(cell)))
        errors = sum(one.errors for one in results.slices[cell])
        table.add(cell.key.partition(": ")[2], length, *figures, *ratios, str(errors))
    return table


def serving_table(served: list[Served]) -> Table:
    """Requests over HTTP."""
    table = Table(
        f"A turn over HTTP with {CLIENTS} clients, the offline model acknowledging statements",
        ["backend", "servers", "form", "requests/s", "p50 ms", "p99 ms", "p99 / p50", "CPU ms", "errors"],
        note="CPU: of all servers, for one request. The clients run on the same machine.",
    )
    for one in served:
        figures = (per_second(median(one.rates)), *(milliseconds(median(taken)) for taken in (one.p50s, one.p99s)))
        rest = (times(one.spread), milliseconds(median(one.cpus)), str(one.errors))
        table.add(one.backend, str(one.processes), one.form, *figures, *rest)
    return table


def memory_table(memory: list[Memory]) -> Table:
    """What known sessions occupy."""
    table = Table(
        "Memory: a process, and each 1,000 sessions of 22 messages that it has served",
        ["backend", "process MiB", "1,000 sessions MiB"],
    )
    for one in memory:
        table.add(one.backend, f"{one.before / 2**20:.0f}", f"{one.per_thousand / 2**20:.1f}")
    return table


def step_table(steps: list[StepCost]) -> Table:
    """Plans."""
    table = Table(
        f"A step of a plan: {FLOWS} flows of {STEPS} steps at once, whose work is nothing",
        ["backend", "engine", "ms a step", "CPU ms a step", "least CPU ms"],
        note="Medians of all rounds. CPU: of the process, without a server's; on a busy machine the least says most.",
    )
    for one in steps:
        figures = (median(one.wall), median(one.cpu), min(one.cpu))
        table.add(one.backend, "raw DBOS" if one.who == "raw" else "tenuto", *map(milliseconds, figures))
    return table


def board_table(boards: list[BoardCost]) -> Table:
    """Updates of boards."""
    table = Table("An update of a board's key, one caller", ["backend", *(f"ms at {keys:,} keys" for keys in KEYS)])
    for one in boards:
        table.add(one.backend, *(milliseconds(one.seconds[keys]) for keys in KEYS))
    return table


def ratio_to(results: Results, entry: Entry, history: int) -> float:
    """Our cycles for each of theirs."""
    return results.ratio(Cell(results.ours(), history, "cycle", MANY), Cell(entry.key, history, "cycle", MANY))


def fsync_table(fsyncs: list[Fsyncs]) -> Table:
    """Fsyncs a cycle."""
    table = Table(
        f"SQLite: fsyncs a cycle, {MANY} at once, synchronous=FULL",
        ["contender", "fsyncs/cycle", "cycles/s while counting"],
        note=f"Counted: {fsyncs[0].how}.",
    )
    for one in fsyncs:
        table.add(one.key.partition(": ")[2], f"{one.per_cycle:.3f}", per_second(one.rate))
    return table


def hit_table(hits: list[Hits]) -> Table:
    """L1 against the store."""
    table = Table("L1 hit against the store, one caller", ["question", "store us", "hit us", "hit is faster", "missed"])
    for one in hits:
        table.add(
            f"{one.backend}: {one.what}",
            f"{one.store * 1e6:.1f}",
            f"{one.hit * 1e6:.2f}",
            times(one.ratio),
            str(one.missed),
        )
    return table


def start_table(starts: list[Start]) -> Table:
    """A new process."""
    table = Table("A new process: processor seconds until it is ready", ["process", "CPU s"])
    for one in starts:
        table.add(one.name, f"{one.cpu:.2f}")
    return table


def absence_table(absences: list[Absence]) -> Table:
    """Not found."""
    table = Table(
        "Not found: does the time tell why?",
        ["question", "kind", "L1", "median us", "chance against absent", "p", "told apart"],
        note="Chance: how often it takes longer than an absent one; 0.5 is a coin. Told apart: p below 0.001 and a "
        "chance outside 0.4 to 0.6.",
    )
    for one in absences:
        table.add(
            f"{one.backend}: {one.what}",
            one.kind,
            "hot" if one.hot else "cold",
            f"{one.median * 1e6:.0f}",
            f"{one.chance:.2f}",
            f"{one.p:.3f}",
            "yes" if one.told_apart else "no",
        )
    return table
