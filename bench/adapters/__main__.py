"""`python -m bench.adapters [NAME …]`: turns per second of both sides, in slices that alternate.

A module of this package has `SIDES`: for `ours` and `theirs` an async context manager that opens a store in a folder,
and yields a function `(writer, number)`, which takes one turn in the conversation of that writer.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Final, TypeAlias

from rich.console import Console
from rich.table import Table

Turn: TypeAlias = Callable[[int, int], Awaitable[object]]
Side: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Turn]]

_OWN: Final = {"__init__.py", "__main__.py"}
_TARGET: Final = 3.0


def main() -> None:
    """Parse, run, print."""
    known = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.name not in _OWN)
    parser = argparse.ArgumentParser(prog="python -m bench.adapters", description=__doc__)
    parser.add_argument("names", nargs="*", default=known, metavar="NAME", help=", ".join(known))
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one slice")
    parser.add_argument("--slices", type=int, default=5, help="of each side")
    args = parser.parse_args()
    table = Table(
        "adapter", "tenuto, turns/s", "framework, turns/s", "ratio", "processor, ms a turn", title_justify="left"
    )
    for name in args.names:
        sides = import_module(f"bench.adapters.{name}").SIDES
        table.add_row(name, *asyncio.run(_compare(sides, args.writers, args.seconds, args.slices)))
    Console(width=120).print(table)


async def _compare(sides: Mapping[str, Side], writers: int, seconds: float, slices: int) -> tuple[str, ...]:
    rates: dict[str, list[float]] = {"ours": [], "theirs": []}
    costs: dict[str, list[float]] = {"ours": [], "theirs": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(slices):
            for side in rates:
                with tempfile.TemporaryDirectory(dir=folder) as place:
                    async with sides[side](Path(place)) as turn:
                        rate, cost = await _measure(turn, writers, seconds)
                rates[side].append(rate)
                costs[side].append(cost)
    ours, theirs = median(rates["ours"]), median(rates["theirs"])
    mark = "" if ours >= _TARGET * theirs else f" (target {_TARGET:g})"
    paid = f"{median(costs['ours']):.2f} / {median(costs['theirs']):.2f}"
    return f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.1f}{mark}", paid


async def _measure(turn: Turn, writers: int, seconds: float) -> tuple[float, float]:
    """Turns per second and milliseconds of processor time a turn."""
    for writer in range(writers):
        await turn(writer, 0)
    began, spent = perf_counter(), process_time()
    until = began + seconds

    async def write(writer: int) -> int:
        for number in count(1):
            if perf_counter() >= until:
                return number - 1
            await turn(writer, number)
        return 0

    done = sum(await asyncio.gather(*map(write, range(writers))))
    return done / (perf_counter() - began), (process_time() - spent) * 1000 / max(done, 1)


if __name__ == "__main__":
    main()
