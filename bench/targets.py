"""What we want to reach, what was measured, and whether it is enough. Nothing fails here: this is a table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.absence import DOOR
from bench.contenders import LENGTH_OF_RATIOS, LONG_HISTORY, Backend, Entry
from bench.report import MANY, Report, ratio_to
from bench.rounds import Results
from bench.tables import Table, times
from bench.turns import FEW, LONG
from bench.workload import Operation

_TIMES_FASTEST_PEER: Final[dict[Backend, float]] = {"sqlite": 4, "redis": 5, "postgres": 8}
_TIMES_RAW: Final[dict[Backend, float]] = {"sqlite": 0.7, "redis": 2, "postgres": 0.7}
_TIMES_LANGGRAPH: Final = 50.0
_GROWTH: Final = 0.1
_FSYNCS: Final = 0.25
_HIT: Final = 20.0
_START: Final = 0.3
_TURN: Final = 3.0
_ASSEMBLING: Final = 20.0
# Medians of one run scatter by some tenths on a busy machine.
_SAME: Final = 1.25


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
    found += _fsyncs(report)
    found += _hits(report)
    found += _start(report)
    found += _absences(report)
    found += _turns(report)
    return found


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
        results,
        f"{backend}: cycles against the fastest peer, {MANY} at once, {LENGTH_OF_RATIOS} messages",
        _slowest_ratio(results, results.side("peer"), LENGTH_OF_RATIOS),
        _TIMES_FASTEST_PEER[backend],
    )
    langgraph = [entry for entry in results.side("peer") if entry.name.startswith("langgraph")]
    if langgraph:
        yield _ratio(
            results,
            f"{backend}: cycles against LangGraph, {LONG_HISTORY:,} messages",
            _slowest_ratio(results, langgraph, LONG_HISTORY),
            _TIMES_LANGGRAPH,
        )
    yield _ratio(
        results,
        f"{backend}: cycles against the raw driver, {MANY} at once, {LENGTH_OF_RATIOS} messages",
        _slowest_ratio(results, _raw(results), LENGTH_OF_RATIOS),
        _TIMES_RAW[backend],
    )


def _raw(results: Results) -> list[Entry]:
    """The raw ways that the target speaks of; none, if the main one could not be measured."""
    raw = [entry for entry in results.side("raw") if not entry.reference]
    return raw if any(entry.lengths is None for entry in raw) else []


def _slowest_ratio(results: Results, entries: list[Entry], history: int) -> tuple[float, str]:
    """Our ratio to the fastest of them."""
    ratios = [(ratio_to(results, entry, history), entry.name) for entry in entries]
    return min((ratio for ratio in ratios if not math.isnan(ratio[0])), default=(math.nan, ""))


def _ratio(results: Results, what: str, found: tuple[float, str], wanted: float) -> Target:
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
            asked = [one for one in report.absences if one.backend == backend and (one.what == DOOR) is at_door]
            told = [one for one in asked if one.told_apart]
            names = ", ".join(f"{one.kind} ({one.what}, {'hot' if one.hot else 'cold'})" for one in told)
            yield Target(
                f"{backend}: not-found answers {place}, by their time",
                "none told apart",
                names or "none told apart",
                not told,
            )


def _turns(report: Report) -> Iterator[Target]:
    for one in report.turns:
        if one.callers == MANY and one.backend in ("sqlite", "redis"):
            yield Target(
                f"{one.backend}: a whole turn beside its model, {MANY} at once, against the bare cycle",
                f"at most {_TURN:g} times",
                times(one.ratio),
                one.ratio <= _TURN,
            )
    few = {(one.backend, one.history): one for one in report.turns if one.callers == FEW}
    for (backend, history), one in few.items():
        short = few.get((backend, LENGTH_OF_RATIOS))
        if history == LONG and short is not None:
            grown = one.turn / short.turn
            yield Target(
                f"{backend}: a turn in a session of {LONG:,} messages against one of {LENGTH_OF_RATIOS}",
                "the same",
                times(grown),
                grown <= _SAME,
            )
    if report.assembling is not None:
        assembling, counting = report.assembling
        ratio = counting / assembling
        yield Target(
            "assembling 500 messages within 8k tokens against counting them anew",
            f"at least {_ASSEMBLING:g} times faster",
            times(ratio),
            ratio >= _ASSEMBLING,
        )
