"""`python -m bench.capacity`: what a number of sessions needs, by the figures of the last run; or measure anew.

python -m bench.capacity --sessions 1e9 --messages 10 --turns-per-second 5000
python -m bench.capacity --measure --json figures.json     # about ten minutes, 4 GB of memory, 12 GB of disk
python -m bench.capacity --figures figures.json --markdown # the tables of docs/ideas/capacity.md
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bench import contenders
from bench.capacity.measure import Measured, measure_stages, measure_turns
from bench.capacity.sample import SampleUser, describe_sample, sample_users
from bench.capacity.sizing import PLANNED, Load, measured_tables, page_tables, plan_table
from bench.grounds import ground, machine, working_folder

FIGURES: Final = Path(__file__).with_name("figures.json")


def measure(backends: Sequence[contenders.Backend], args: argparse.Namespace) -> dict[str, Any]:
    """Everything, as it is written to a file."""
    logging.getLogger("tenuto").setLevel(logging.ERROR)
    with working_folder(None) as folder:
        about = machine(folder)
        users = asyncio.run(sample_users(f"sqlite:///{folder}/sample.db", int(args.messages)))
        found = [asdict(_measure(backend, users, args, folder)) for backend in backends]
    return {
        "date": str(datetime.now(UTC).date()),
        "machine": about,
        "sample": describe_sample(users),
        "backends": found,
    }


def _measure(
    backend: contenders.Backend, users: Sequence[SampleUser], args: argparse.Namespace, folder: Path
) -> Measured:
    with ground(backend, folder) as up:
        url = up.new_url()
        measured = Measured(backend, up.about, asyncio.run(measure_stages(up, url, users, args.fill)))
        measured.idle_resident, measured.turns = measure_turns(up, url, args.fill[-1], args.seconds, folder)
    Console(stderr=True).print(f"[dim]{backend} is measured")
    return measured


def main() -> None:
    """Measure if it is asked for, and print what was found or what a load needs."""
    args = _parse_args()
    backends = args.backend or contenders.BACKENDS
    figures = measure(backends, args) if args.measure else json.loads(args.figures.read_text())
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    if args.markdown:
        print("\n".join(table.markdown() for table in page_tables(figures)))
        return
    for table in measured_tables(figures) if args.sessions is None else ():
        table.show(Console())
    given = {name: getattr(args, name) for name in Load.__slots__}
    for size in PLANNED if args.sessions is None else (args.sessions,):
        plan_table(figures, Load(**{**given, "sessions": size})).show(Console())


def _parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.capacity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    load = parser.add_argument_group("what is to be stored")
    load.add_argument("--sessions", type=float, help="without it: 1 million, 100 million, 1 billion")
    load.add_argument("--messages", type=float, default=10, help="in each session")
    load.add_argument("--message-bytes", type=float, help="of a message as it is stored")
    load.add_argument("--memories", type=float, help="that each session leaves behind")
    load.add_argument("--turns-per-second", type=float, help="at the peak; by default as --days gives")
    load.add_argument("--days", type=float, default=30, help="within which the sessions take place")
    load.add_argument("--shard-gb", type=float, default=32, help="memory of a Redis shard")
    load.add_argument("--server-tb", type=float, default=4, help="data on a Postgres server")
    load.add_argument("--server-cores", type=float, default=16, help="of a Postgres server")
    run = parser.add_argument_group("figures")
    run.add_argument("--figures", type=Path, default=FIGURES, help="of which run")
    run.add_argument("--measure", action="store_true", help="measure anew, on this machine")
    run.add_argument("--fill", type=int, nargs="+", default=[10_000, 100_000], help="sessions, growing")
    run.add_argument("--backend", action="append", choices=contenders.BACKENDS)
    run.add_argument("--seconds", type=float, default=12, help="of turns of each kind")
    run.add_argument("--json", type=Path, help="write the figures there")
    run.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    return parser.parse_args()


if __name__ == "__main__":
    main()
