"""`python -m bench`: measure, print tables and targets, and stop every server that was started."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Final

from rich.console import Console

from bench.absence import measure_absence
from bench.contenders import BACKENDS, Backend, Entry, entries
from bench.fsyncs import count_fsyncs
from bench.grounds import Ground, ground, machine, working_folder
from bench.hits import measure_hits
from bench.plan import FULL, QUICK, Plan
from bench.report import Report
from bench.rounds import run_rounds
from bench.startup import measure_starts
from bench.targets import target_table, targets
from bench.turns import measure_assembling, measure_turns
from tenuto.errors import TenutoError

_PEERS: Final = Path(".venv-peers/bin/python")


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
    parser.add_argument("--peers", type=Path, metavar="PYTHON", help=f"interpreter that has the peers ({_PEERS})")
    parser.add_argument("--no-peers", action="store_true", help="leave other projects out")
    parser.add_argument("--folder", type=Path, help="where files go while it runs (the system's temporary folder)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every slice of every round")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables")
    return parser.parse_args()


def _run(args: argparse.Namespace, plan: Plan, say: Callable[[str], None]) -> Report:
    peers = None if args.no_peers else _peer_python(args.peers)
    backends: list[Backend] = args.backend or list(BACKENDS)

    def python(entry: Entry) -> str:
        return str(peers) if entry.side == "peer" else sys.executable

    with working_folder(args.folder) as folder:
        report = Report(machine=machine(folder), plan=plan.name)
        if peers is None:
            why = "left out" if args.no_peers else "not installed; `make peers` does that"
            report.remarks.append(f"Other projects: {why}.")
        for backend in backends:
            say(f"{backend}: starting")
            with ground(backend, folder) as up:
                who = entries(backend, peers=peers is not None)
                report.results.append(run_rounds(up, who, python, plan, folder, say))
                _our_own(report, up, plan, say)
                if backend == "sqlite":
                    say("sqlite: counting fsyncs")
                    report.fsyncs = count_fsyncs(up.new_url, sys.executable, plan, folder)
                    say("sqlite: starting new processes")
                    report.starts = measure_starts(up.new_url, who, python, plan)
                    report.assembling = measure_assembling()
    return report


def _our_own(report: Report, up: Ground, plan: Plan, say: Callable[[str], None]) -> None:
    """What only concerns our store: hits in L1, and the times of not-found."""
    try:
        say(f"{up.backend}: L1 hits")
        report.hits += asyncio.run(measure_hits(up.backend, up.new_url(), plan))
        say(f"{up.backend}: not-found answers")
        report.absences += asyncio.run(measure_absence(up.backend, up.new_url(), plan))
        say(f"{up.backend}: whole turns")
        report.turns += asyncio.run(measure_turns(up.backend, up.new_url()))
    except (TenutoError, ImportError, AttributeError) as exc:
        report.remarks.append(f"{up.backend}: our store did not run ({type(exc).__name__}: {exc}).")


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
