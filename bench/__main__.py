"""`python -m bench`: measure, print tables and targets, and stop every server that was started."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import StatisticsError
from time import perf_counter
from typing import Final

from rich.console import Console

from bench.absence import measure_absence
from bench.assembling import measure_assembling
from bench.contenders import BACKENDS, Backend, Entry, entries
from bench.crew import WorkerFailed
from bench.engine import measure_engine
from bench.fsyncs import count_fsyncs
from bench.grounds import Ground, ground, machine, working_folder
from bench.hits import measure_hits
from bench.memory import measure_memory
from bench.plan import FULL, QUICK, Plan
from bench.report import Report
from bench.rounds import run_rounds
from bench.serving import measure_serving
from bench.startup import measure_starts
from bench.targets import target_table, targets
from bench.tasks import measure_board, measure_steps
from tenuto.errors import TenutoError

_PEERS: Final = Path(".venv-peers/bin/python")
_PARTS: Final = ("cycles", "asks", "serving", "tasks", "details", "engine")


def main() -> None:
    """Parse, run, print."""
    args = _arguments()
    # Asked to stop, we clear up as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = Console(width=None if sys.stdout.isatty() else 200)
    plan: Plan = QUICK if args.quick else FULL
    started = perf_counter()
    report = _run(
        args, plan, lambda text: Console(stderr=True).print(f"[dim]{perf_counter() - started:5.0f} s  {text}")
    )
    minutes = (perf_counter() - started) / 60
    title = f"{datetime.now(UTC):%Y-%m-%d}, {plan.name} run of {minutes:.0f} minutes. {report.machine}."
    _print(console, report, title)
    if args.json:
        args.json.write_text(json.dumps({"title": title, **report.as_dict()}, indent=1) + "\n")
    if args.markdown:
        args.markdown.write_text(_markdown(report, title))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few minutes instead of fifteen and more")
    parser.add_argument("--backend", choices=BACKENDS, action="append", help="only this one; may be repeated")
    parser.add_argument("--part", choices=_PARTS, action="append", help="only this one; may be repeated")
    parser.add_argument("--peers", type=Path, metavar="PYTHON", help=f"interpreter that has the peers ({_PEERS})")
    parser.add_argument("--no-peers", action="store_true", help="leave other projects out")
    parser.add_argument("--folder", type=Path, help="where files go while it runs (the system's temporary folder)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every slice of every round")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables")
    return parser.parse_args()


def _run(args: argparse.Namespace, plan: Plan, say: Callable[[str], None]) -> Report:
    peers = None if args.no_peers else _peer_python(args.peers)
    backends: list[Backend] = args.backend or list(BACKENDS)

    with working_folder(args.folder) as folder:
        report = Report(machine=machine(folder), plan=plan.name)
        if peers is None:
            why = "left out" if args.no_peers else "not installed; `make peers` does that"
            report.remarks.append(f"Other projects: {why}.")
        for backend in backends:
            say(f"{backend}: starting")
            with ground(backend, folder) as up:
                run = _Run(report, up, plan, folder, peers, say)
                for part in args.part or _PARTS:
                    getattr(run, part)()
    return report


@dataclass(frozen=True, slots=True)
class _Run:
    """The parts of a run on one backend; each adds to the report."""

    report: Report
    up: Ground
    plan: Plan
    folder: Path
    peers: Path | None
    say: Callable[[str], None]

    def cycles(self) -> None:
        """Begin and finish, appends and loads beside raw drivers and peers."""
        who = self._entries()
        self.report.results.append(run_rounds(self.up, who, self._python, self.plan, self.folder, self.say))

    def asks(self) -> None:
        """Whole turns, and the memory of the sessions that had them."""
        who, plan = self._entries(asking=True), self.plan.for_asking()
        self.report.asks.append(run_rounds(self.up, who, self._python, plan, self.folder, self.say))
        self.say(f"{self.up.backend}: memory")
        try:
            self.report.memory.append(measure_memory(self.up, sys.executable, self.plan, self.folder))
        except WorkerFailed as exc:
            self.report.remarks.append(f"{exc}.")

    def serving(self) -> None:
        """Chat over HTTP."""
        self.say(f"{self.up.backend}: servers")
        try:
            self.report.served += measure_serving(self.up, self.plan, self.folder)
        except (RuntimeError, OSError, EOFError, StatisticsError) as exc:
            self.report.remarks.append(f"{self.up.backend}: the servers did not run ({type(exc).__name__}: {exc}).")

    def tasks(self) -> None:
        """Plans beside raw DBOS, where its database can stand, and updates of boards."""
        self.say(f"{self.up.backend}: tasks")
        try:
            self.report.boards.append(asyncio.run(measure_board(self.up)))
            if self.up.backend != "redis":
                self.report.steps += measure_steps(self.up, self.plan.rounds)
        except (TenutoError, RuntimeError, OSError, ValueError) as exc:
            self.report.remarks.append(f"{self.up.backend}: tasks did not run ({type(exc).__name__}: {exc}).")

    def engine(self) -> None:
        """The engine alone and at the door, beside the bare driver and a peer."""
        peers = self.peers is not None
        self.report.engines += measure_engine(self.up, self._python, self.plan, self.folder, self.say, peers=peers)

    def details(self) -> None:
        """Hits in L1, times of not-found; on SQLite fsyncs, new processes and assembling, too."""
        up, plan = self.up, self.plan
        try:
            self.say(f"{up.backend}: L1 hits")
            self.report.hits += asyncio.run(measure_hits(up.backend, up.new_url(), plan))
            self.say(f"{up.backend}: not-found answers")
            self.report.absences += asyncio.run(measure_absence(up.backend, up.new_url(), plan))
        except (TenutoError, ImportError, AttributeError) as exc:
            self.report.remarks.append(f"{up.backend}: our store did not run ({type(exc).__name__}: {exc}).")
        if up.backend == "sqlite":
            self.say("sqlite: counting fsyncs")
            self.report.fsyncs = count_fsyncs(up.new_url, sys.executable, plan, self.folder)
            self.say("sqlite: starting new processes")
            self.report.starts = measure_starts(up.new_url, self._entries(), self._python, plan)
            self.report.assembling = measure_assembling()

    def _entries(self, *, asking: bool = False) -> Sequence[Entry]:
        return entries(self.up.backend, peers=self.peers is not None, asking=asking)

    def _python(self, entry: Entry) -> str:
        return str(self.peers) if entry.side == "peer" else sys.executable


def _peer_python(given: Path | None) -> Path | None:
    # Not resolved: a virtual environment's interpreter is a link, and behind the link the packages are not found.
    chosen = given or _PEERS
    return chosen.absolute() if chosen.exists() else None


def _print(console: Console, report: Report, title: str) -> None:
    console.print(title)
    for table in report.tables():
        table.show(console)
    target_table(targets(report)).show(console)
    for remark in report.remarks:
        console.print(remark)


def _markdown(report: Report, title: str) -> str:
    tables = [target_table(targets(report)), *report.tables()]
    return "\n".join([title, "", *(table.markdown() for table in tables), *report.remarks]) + "\n"


if __name__ == "__main__":
    main()
