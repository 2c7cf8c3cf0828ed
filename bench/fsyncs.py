"""How many fsyncs a cycle costs on SQLite with 32 cycles at once, counted from the outside by strace.

strace stops a process at the calls it counts and nowhere else (`--seccomp-bpf`). That makes an fsync slower by some
tens of microseconds, hence the groups a little larger; the rate under it is shown beside, so that one sees how much.
Where strace is missing, commits are counted instead: in WAL mode with synchronous=FULL each of them is one fsync, and
the fsyncs of checkpoints are then left out.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.contenders import LENGTH_OF_RATIOS, Entry, entry
from bench.crew import Crew, WorkerFailed
from bench.plan import Plan

_AT_ONCE: Final = 32
_SESSIONS: Final = 128
_ASKED: Final = ("sqlite: tenuto", "sqlite: raw group commit", "sqlite: raw, one fsync each")


@dataclass(frozen=True, slots=True)
class Fsyncs:
    """What one contender's cycles cost."""

    key: str
    per_cycle: float
    rate: float
    how: str


def count_fsyncs(new_url: Callable[[], str], python: str, plan: Plan, folder: Path) -> list[Fsyncs]:
    """Ours beside the raw ways. Who cannot be opened is left out."""
    counted = []
    for place, key in enumerate(_ASKED):
        try:
            counted.append(_count(entry(key), new_url(), python, plan, folder / f"fsyncs-{place}"))
        except WorkerFailed:
            continue
    return counted


def _count(one: Entry, url: str, python: str, plan: Plan, folder: Path) -> Fsyncs:
    folder.mkdir()
    trace = folder / "trace"
    tracing = _strace(trace)
    begin, end = folder / "begin", folder / "end"
    with Crew(one, url, python, folder / "log", wrapped_in=tracing, count_commits=not tracing) as crew:
        crew.seed(LENGTH_OF_RATIOS, _SESSIONS)
        crew.measure(LENGTH_OF_RATIOS, "cycle", _AT_ONCE, 2, 200)
        crew.mark(begin)
        before = crew.commits()
        measured = crew.measure(LENGTH_OF_RATIOS, "cycle", _AT_ONCE, 30, plan.fsync_cycles)
        commits = crew.commits() - before
        crew.mark(end)
    fsyncs = _between(trace, begin, end) if tracing else commits
    how = "fsync and fdatasync, by strace" if tracing else "commits, as strace is not installed"
    return Fsyncs(one.key, fsyncs / measured.operations, measured.operations / measured.seconds, how)


def _strace(trace: Path) -> Sequence[str]:
    """The command in front of the worker; none where strace is missing or may not trace."""
    program = shutil.which("strace")
    if program is None or platform.system() != "Linux":
        return ()
    command = [program, "-f", "-qq", "--seccomp-bpf", "-y", "-e", "trace=fsync,fdatasync", "-o", str(trace)]
    works = subprocess.run([*command, "true"], capture_output=True, timeout=20).returncode == 0
    return command if works else ()


def _between(trace: Path, begin: Path, end: Path) -> int:
    """Calls between the two marks. A call that another thread interrupts is two lines, of which one names it fully."""
    lines = trace.read_text(errors="replace").splitlines()
    calls = [line for line in lines if "sync(" in line]
    first = next(place for place, line in enumerate(calls) if f"<{begin}>" in line)
    last = next(place for place, line in enumerate(calls) if f"<{end}>" in line)
    return last - first - 1
