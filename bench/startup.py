"""What a new process pays before its first message: processor time of a child that imports, opens and loads.

python -m bench.startup KEY URL [--seed]     does so for one contender
"""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench.contenders import Entry, open_contender
from bench.plan import Plan
from bench.workload import Words

_ROOT: Final = Path(__file__).parents[1]
_SESSION: Final = "start-0"
_OURS: Final = """
import asyncio, tenuto

async def main():
    async with tenuto.open({url!r}) as t:
        pass

asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Start:
    """Processor seconds, user and system, of one kind of process."""

    name: str
    cpu: float


def measure_starts(
    new_url: Callable[[], str], entries: Sequence[Entry], pythons: Callable[[Entry], str], plan: Plan
) -> list[Start]:
    """Python alone, our import, our store opened; then import and one load for everybody on SQLite."""
    ours = _OURS.format(url=new_url())
    starts = [
        _median("Python alone", [sys.executable, "-c", "pass"], plan.starts),
        _median("import tenuto", [sys.executable, "-c", "import tenuto"], plan.starts),
        _median("import tenuto, open SQLite", [sys.executable, "-c", ours], plan.starts),
    ]
    for entry in entries:
        if entry.side == "raw":
            continue
        command = [pythons(entry), "-m", "bench.startup", entry.key, new_url()]
        if _cpu([*command, "--seed"]) is not None:
            count = plan.peer_starts if entry.side == "peer" else plan.starts
            starts.append(_median(f"{entry.name}: import, open, load 20", command, count))
    return starts


def _median(name: str, command: Sequence[str], count: int) -> Start:
    """The first is left out: it may have to compile modules or make the file."""
    if count > 1:
        _cpu(command)
    took = [cpu for cpu in (_cpu(command) for _ in range(count)) if cpu is not None]
    return Start(name, median(took) if took else math.nan)


def _cpu(command: Sequence[str]) -> float | None:
    """Processor seconds of a command; `None` when it failed."""
    process = subprocess.Popen(
        command,
        cwd=_ROOT,
        env=_with_compiled_modules(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime if process.returncode == 0 else None


def _with_compiled_modules() -> dict[str, str]:
    """Installed packages have their modules compiled; where the shell forbids that, each start would compile anew."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


async def _start(key: str, url: str, *, seed: bool) -> None:
    contender = await open_contender(key, url)
    if seed:
        words = Words()
        await contender.seed(_SESSION, [words.turn() for _ in range(10)])
    await contender.load(_SESSION)
    await contender.close()


if __name__ == "__main__":
    asyncio.run(_start(sys.argv[1], sys.argv[2], seed="--seed" in sys.argv))
