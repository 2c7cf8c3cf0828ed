"""The process in which one contender runs: it does what the conductor writes to its standard input, a JSON line each.

    python -m bench.worker KEY URL

Standard output belongs to the answers, so whatever a library prints goes to standard error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import warnings
from typing import Any, Final, TextIO

from bench.commits import CommitCounter
from bench.contenders import open_contender
from bench.workload import Contender, Pool, Words

COUNT_COMMITS: Final = "BENCH_COUNT_COMMITS"
_log = logging.getLogger(__name__)


class Worker:
    """A contender, its sessions by length, and the words it is given."""

    def __init__(self, contender: Contender, counter: CommitCounter) -> None:
        self._contender = contender
        self._counter = counter
        self._words = Words()
        self._pools: dict[int, Pool] = {}

    async def seed(self, *, history: int, sessions: int, prefix: str, phases: int) -> dict[str, Any]:
        """Make the sessions of one length."""
        pool = self._pools[history] = Pool(self._contender, prefix, sessions, history)
        await pool.fill(self._words, phases)
        return {"sessions": len(pool.sessions)}

    async def measure(self, *, history: int, what: Any, at_once: int, seconds: float, at_most: int) -> dict[str, Any]:
        """Run one slice."""
        measured = await self._pools[history].measure(what, self._words, at_once, seconds, at_most)
        return measured.as_dict()

    async def mark(self, *, path: str) -> dict[str, Any]:
        """Leave an fsync on a file of this name in the trace of system calls."""
        file = os.open(path, os.O_CREAT | os.O_WRONLY)
        os.fsync(file)
        os.close(file)
        return {}

    async def commits(self) -> dict[str, Any]:
        """How many SQLite commits were counted so far."""
        return {"commits": self._counter.commits}


async def serve(key: str, url: str, answers: TextIO) -> None:
    """Answer until the input ends."""
    counter = CommitCounter()
    if os.environ.get(COUNT_COMMITS):
        counter.install()
    contender = await open_contender(key, url)
    worker = Worker(contender, counter)
    _say(answers, {"ok": {}})
    try:
        while line := await asyncio.to_thread(sys.stdin.readline):
            request = json.loads(line)
            act = getattr(worker, request.pop("do"))
            try:
                _say(answers, {"ok": await act(**request)})
            except Exception as exc:
                _log.exception("the request failed")
                _say(answers, {"error": f"{type(exc).__name__}: {exc}"[:300]})
    finally:
        await contender.close()


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def main() -> None:
    """Give standard output away, then serve."""
    warnings.simplefilter("ignore")
    logging.basicConfig(level=logging.ERROR)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asyncio.run(serve(sys.argv[1], sys.argv[2], answers))


if __name__ == "__main__":
    main()
