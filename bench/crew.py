"""The conductor's side of the workers: start them, ask them, end them."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil

from bench.contenders import LENGTH_OF_RATIOS, Entry
from bench.worker import COUNT_COMMITS
from bench.workload import PHASES, Measured, Operation

_PATIENCE: Final = 600.0
_ROOT: Final = Path(__file__).parents[1]


class WorkerFailed(RuntimeError):
    """A contender could not be opened, or a request of it went wrong."""


class Crew:
    """One worker process."""

    def __init__(
        self,
        entry: Entry,
        url: str,
        python: str,
        log: Path,
        *,
        wrapped_in: Sequence[str] = (),
        count_commits: bool = False,
    ) -> None:
        self.entry = entry
        self._log = log
        self._file = log.open("w")
        self._process = subprocess.Popen(
            [*wrapped_in, python, "-m", "bench.worker", entry.key, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._file,
            cwd=_ROOT,
            env={
                **os.environ,
                # This tree, whatever is installed.
                "PYTHONPATH": f"{_ROOT / 'src'}{os.pathsep}{_ROOT}",
                "TENUTO_JOURNAL": str(log.with_suffix(".journal")),
                COUNT_COMMITS: "1" if count_commits else "",
            },
        )
        self._ready = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def ready(self) -> None:
        """Wait until the contender is open."""
        if not self._ready:
            self._answer()
            self._ready = True

    def seed(self, history: int, sessions: int, prefix: str = "s") -> None:
        """Have the sessions of one length made."""
        phases = PHASES if "ask" in self.entry.operations and history >= LENGTH_OF_RATIOS else 1
        self._ask("seed", history=history, sessions=sessions, prefix=prefix, phases=phases)

    def measure(self, history: int, what: Operation, at_once: int, seconds: float, at_most: int) -> Measured:
        """Have one slice run."""
        answer = self._ask("measure", history=history, what=what, at_once=at_once, seconds=seconds, at_most=at_most)
        return Measured(**answer)

    def resident_bytes(self) -> int:
        """Memory of the process."""
        return int(psutil.Process(self._process.pid).memory_info().rss)

    def mark(self, path: Path) -> None:
        """Leave a mark in the trace of system calls."""
        self._ask("mark", path=str(path))

    def commits(self) -> int:
        """How many SQLite commits there were; 0 unless they are counted."""
        return int(self._ask("commits")["commits"])

    def end(self) -> None:
        """Close the input, which ends the worker; kill it when it does not care."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it is gone already
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._file.close()

    def _ask(self, do: str, **arguments: Any) -> Any:
        self.ready()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failed("it ended") from None
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        # A line is written and flushed whole, so once something is there, the line is.
        if not select.select([self._process.stdout], [], [], _PATIENCE)[0]:
            raise self._failed(f"no answer within {_PATIENCE:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise self._failed("it ended")
        answer = json.loads(line)
        if "error" in answer:
            raise self._failed(answer["error"])
        return answer["ok"]

    def _failed(self, why: str) -> WorkerFailed:
        last = self._log.read_text(errors="replace").strip().splitlines()[-1:]
        return WorkerFailed(f"{self.entry.key}: {why}{'; ' + last[0] if last and why == 'it ended' else ''}")
