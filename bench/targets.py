"""What we want to reach, what was measured, and whether it is enough. Nothing fails here: this is a table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from bench.absence import HTTP_GET
from bench.contenders import (
    AGENTS,
    DOOR,
    IMPORTED,
    LENGTH_OF_ASKS,
    LENGTH_OF_RATIOS,
    LONG_HISTORY,
    RAW,
    SEALED,
    Backend,
    Entry,
)
from bench.plan import ASKING, MANY
from bench.report import Report, ratio_to
from bench.rounds import Cell, Results
from bench.serving import CLIENTS, FORMS, PROCESSES
from bench.tables import Table, exponent, times
from bench.tasks import KEYS
from bench.workload import YOUNG, Operation

_TIMES_FASTEST_PEER: Final[dict[Backend, float]] = {"sqlite": 5, "redis": 7, "postgres": 16}
# Of a cycle of `tenuto.open`, by processor time.
_TIMES_RAW: Final[dict[Backend, float]] = {"sqlite": 0.45, "redis": 0.3, "postgres": 0.8}
_TIMES_AGENTS: Final[dict[Backend, float]] = {"sqlite": 3, "redis": 6.5, "postgres": 20}
_TIMES_PLAIN: Final = 1.3
_TIMES_DBOS: Final = 1.5
_TIMES_LANGGRAPH: Final = 50.0
_GROWTH: Final = 0.1
_FSYNCS: Final = 0.25
_HIT: Final = 20.0
_START: Final = 0.3
_ASSEMBLING: Final = 20.0
_TIMES_ASKING_PEERS: Final = {LENGTH_OF_RATIOS: 6.0, LENGTH_OF_ASKS: 20.0}
_STEADY: Final = 1.3
# "What our own do": medians of one run scatter by some tenths.
_SAME: Final = 1.25
_SPREAD: Final = 5.0
_OPENAI: Final = 1.2


@dataclass(frozen=True, slots=True)
class Target:
    """`met` is `None` where nothing was measured."""

    what: str
    wanted: str
    measured: str
    met: bool | None


def targets(report: Report) -> list[Target]:
    """Every target that this run can speak to."""
    found: list[Target] = []
    for results in report.results:
        if results.ours() in results.absent:
            found.append(Target(f"{results.backend}: our store", "runs", results.absent[results.ours()], None))
            continue
        found += _growths(results)
        found += _ratios(results)
    for results in report.engines:
        found += _engines(results)
    found += _fsyncs(report)
    found += _hits(report)
    found += _start(report)
    found += _absences(report)
    for results in report.asks:
        if results.ours() not in results.absent:
            found += _asks(results)
    found += _serving(report)
    found += _openai(report)
    found += _assembling(report)
    found += _tasks(report)
    return found


def _tasks(report: Report) -> Iterator[Target]:
    by_backend = {one.backend: one for one in report.steps if one.who == "raw"}
    for one in report.steps:
        if one.who == "ours" and (raw := by_backend.get(one.backend)) is not None:
            for way, ours, theirs in (("processor", one.cpu, raw.cpu), ("wall", one.wall, raw.wall)):
                ratio, least = median(ours) / median(theirs), min(ours) / min(theirs)
                yield Target(
                    f"{one.backend}: a step of a plan against raw DBOS, by {way} time",
                    f"at most {_TIMES_DBOS:g} times",
                    f"{times(ratio)} ({times(least)} of the least)",
                    ratio <= _TIMES_DBOS,
                )
    for board in report.boards:
        yield Target(
            f"{board.backend}: an update of a board with {KEYS[-1]:,} keys against {KEYS[0]}",
            f"at most {_SAME:g} times",
            times(board.ratio),
            board.ratio <= _SAME,
        )


def target_table(found: list[Target]) -> Table:
    """The last table."""
    table = Table("Targets", ["target", "wanted", "measured", "met"])
    words = {True: "yes", False: "NO", None: "not measured"}
    for target in found:
        table.add(target.what, target.wanted, target.measured, words[target.met])
    return table


def _growths(results: Results) -> Iterator[Target]:
    operations: tuple[Operation, ...] = ("append", "load")
    raw = next((entry for entry in results.side("raw") if entry.lengths is None), None)
    for what in operations:
        alone, together = (results.growth(results.ours(), what, at_once) for at_once in (1, MANY))
        worst = max(alone, together)
        measured = f"{alone:+.2f} alone, {together:+.2f} at {MANY}"
        if raw is not None:
            driver = (results.growth(raw.key, what, at_once) for at_once in (1, MANY))
            measured += " (raw {:+.2f}, {:+.2f})".format(*driver)
        yield Target(
            f"{results.backend}: growth exponent of {what}",
            f"at most {_GROWTH}",
            measured,
            None if math.isnan(worst) else round(worst, 2) <= _GROWTH,
        )


def _ratios(results: Results) -> Iterator[Target]:
    backend = results.backend
    yield _ratio(
        f"{backend}: begin + finish against the fastest peer, {MANY} at once, {LENGTH_OF_RATIOS} messages",
        _slowest_ratio(results, results.side("peer"), LENGTH_OF_RATIOS),
        _TIMES_FASTEST_PEER[backend],
    )
    langgraph = [entry for entry in results.side("peer") if entry.name.startswith("langgraph")]
    if langgraph:
        yield _ratio(
            f"{backend}: begin + finish against LangGraph, {LONG_HISTORY:,} messages",
            _slowest_ratio(results, langgraph, LONG_HISTORY),
            _TIMES_LANGGRAPH,
        )


def _engines(results: Results) -> Iterator[Target]:
    """Of a situation; those of a cycle at the door."""
    backend, measured = results.backend, {cell.key.partition(": ")[2]: cell for cell in results.slices}
    if door := measured.get(f"{DOOR}, warm"):
        for name, wanted in ((RAW, _TIMES_RAW[backend]), (AGENTS, _TIMES_AGENTS[backend])):
            if other := measured.get(f"{name}, warm"):
                what = f"{backend}: begin + finish of {DOOR} against {name}, by processor time"
                yield _ratio(what, (results.ratio(door, other, by_cpu=True), name), wanted)
    plain, sealed = measured.get(f"{DOOR}, sealed"), measured.get(f"{SEALED}, sealed")
    if plain and sealed:
        ratio = results.ratio(plain, sealed, by_cpu=True)
        what = f"{backend}: begin + finish, encrypted against plain, by processor time"
        yield Target(what, f"at most {_TIMES_PLAIN:g} times", times(ratio), ratio <= _TIMES_PLAIN)


def _slowest_ratio(results: Results, entries: list[Entry], history: int) -> tuple[float, str]:
    """Our ratio to the fastest of them."""
    return _least([(ratio_to(results, entry, history), entry.name) for entry in entries])


def _least(ratios: list[tuple[float, str]]) -> tuple[float, str]:
    return min((ratio for ratio in ratios if not math.isnan(ratio[0])), default=(math.nan, ""))


def _ratio(what: str, found: tuple[float, str], wanted: float) -> Target:
    ratio, name = found
    if math.isnan(ratio):
        return Target(what, f"at least {wanted:g} times", "–", None)
    return Target(what, f"at least {wanted:g} times", f"{times(ratio)} ({name})", ratio >= wanted)


def _fsyncs(report: Report) -> Iterator[Target]:
    for one in report.fsyncs:
        if one.key == "sqlite: tenuto":
            yield Target(
                f"sqlite: fsyncs a cycle, {MANY} at once, synchronous=FULL",
                f"at most {_FSYNCS}",
                f"{one.per_cycle:.3f} ({one.how})",
                one.per_cycle <= _FSYNCS,
            )


def _hits(report: Report) -> Iterator[Target]:
    for one in report.hits:
        yield Target(
            f"{one.backend}: an L1 hit of {one.what} against the store",
            f"at least {_HIT:g} times",
            times(one.ratio),
            one.ratio >= _HIT,
        )


def _start(report: Report) -> Iterator[Target]:
    for one in report.starts:
        if one.name == "import tenuto, open SQLite":
            yield Target(one.name + ", new process", f"below {_START} s CPU", f"{one.cpu:.2f} s", one.cpu < _START)


def _absences(report: Report) -> Iterator[Target]:
    for backend in dict.fromkeys(one.backend for one in report.absences):
        for place, at_door in (("at the HTTP door", True), ("in the library", False)):
            asked = [one for one in report.absences if one.backend == backend and (one.what == HTTP_GET) is at_door]
            told = [one for one in asked if one.told_apart]
            names = ", ".join(f"{one.kind} ({one.what}, {'hot' if one.hot else 'cold'})" for one in told)
            yield Target(
                f"{backend}: not-found answers {place}, by their time",
                "none told apart",
                names or "none told apart",
                not told,
            )


def _asks(results: Results) -> Iterator[Target]:
    backend = results.backend
    for history, wanted in _TIMES_ASKING_PEERS.items():
        ours = Cell(results.ours(), history, "ask", ASKING)
        for by_cpu, way in ((False, "wall"), (True, "processor")):
            for entry in results.side("peer"):
                ratio = results.ratio(ours, replace(ours, key=entry.key), by_cpu=by_cpu)
                what = f"{backend}: whole ask, {history:,} messages, by {way} time, against a peer"
                yield _ratio(what, (ratio, entry.name), wanted)
    steady = Cell(results.ours(), LENGTH_OF_RATIOS, "ask", ASKING)
    young, imported = replace(steady, history=YOUNG), replace(steady, key=f"{backend}: {IMPORTED}")
    yield _at_most(
        f"{backend}: a steady turn ({LENGTH_OF_RATIOS} messages) against a young one",
        _both(results, young, steady),
        _STEADY,
    )
    yield _at_most(
        f"{backend}: a turn on {LENGTH_OF_RATIOS} imported messages against our own",
        _both(results, steady, imported),
        _SAME,
    )
    grows = results.growth(results.ours(), "ask", ASKING)
    met = None if math.isnan(grows) else round(grows, 2) <= _GROWTH
    yield Target(f"{backend}: growth exponent of ask", f"at most {_GROWTH}", exponent(grows), met)


def _both(results: Results, base: Cell, other: Cell) -> tuple[float, float]:
    """How many times the base's wall and processor time the other takes."""
    return results.ratio(base, other), results.ratio(base, other, by_cpu=True)


def _at_most(what: str, ratios: tuple[float, float], wanted: float) -> Target:
    wall, cpu = ratios
    met = None if math.isnan(wall) else max(wall, cpu) <= wanted
    return Target(what, f"at most {wanted:g} times", f"{times(wall)} by wall, {times(cpu)} by processor time", met)


def _serving(report: Report) -> Iterator[Target]:
    for one in report.served:
        if one.processes == max(PROCESSES):
            yield Target(
                f"{one.backend}: p99 of a turn ({one.form}), {CLIENTS} clients, {one.processes} servers, against p50",
                f"at most {_SPREAD:g} times",
                times(one.spread),
                one.spread <= _SPREAD,
            )


def _openai(report: Report) -> Iterator[Target]:
    by_form = {(one.backend, one.processes, one.form): median(one.cpus) for one in report.served}
    for (backend, processes, form), cpu in by_form.items():
        if form in FORMS and (ours := by_form.get((backend, processes, FORMS[form]))):
            yield Target(
                f"{backend}: processor time of the OpenAI route ({form}), {processes} servers, against /v1/chat",
                f"at most {_OPENAI:g} times",
                times(cpu / ours),
                cpu / ours <= _OPENAI,
            )


def _assembling(report: Report) -> Iterator[Target]:
    if report.assembling is not None:
        assembling, counting = report.assembling
        ratio = counting / assembling
        yield Target(
            "assembling 500 messages within 8k tokens against counting them anew",
            f"at least {_ASSEMBLING:g} times faster",
            times(ratio),
            ratio >= _ASSEMBLING,
        )
