"""`tenuto serve --workers N`: several server processes on one port, started again when they die, replaced on SIGHUP.

The supervisor opens no store. It holds the listening sockets for as long as it lives, so a connection that arrives
while a worker is replaced waits for the next one. On Linux each worker has a socket of its own, among which the kernel
spreads connections; elsewhere all accept from one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tenuto.pauses import Backoff
from tenuto.server.workers import READY, WORKER, WorkerPlace, log_address
from tenuto.settings import Settings

_log = logging.getLogger(__name__)
# One that lived so long begins with a short pause again.
_SOUND_SECONDS: Final = 30.0
_FIRST_PAUSE: Final = 0.25
# Connections of its socket wait meanwhile.
_LONGEST_PAUSE: Final = 8.0
# Of a worker beyond its own `shutdown_timeout`, which it keeps to by itself.
_SPARE_SECONDS: Final = 5.0


@dataclass(eq=False)
class _Worker:
    """A server process. Over `control`, our end of a socket, we learn that it serves, and it that we are gone."""

    number: int
    process: Process
    control: socket.socket
    started_at: float
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Supervisor:
    """Keeps one process for each socket."""

    def __init__(self, settings: Settings, sockets: Sequence[socket.socket], folder: Path) -> None:
        self._settings = settings
        self._sockets = sockets
        self._folder = folder
        self._current: dict[int, _Worker] = {}
        self._living: set[_Worker] = set()
        self._locks = [asyncio.Lock() for _ in sockets]
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()

    async def run(self) -> int:
        """Serve until SIGINT or SIGTERM; returns the exit code, that of the first worker if it cannot start."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._stop.set)
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        async with asyncio.TaskGroup() as group:
            # Alone: it makes the store, and says what is wrong with the settings once.
            first = await self._start(group, 1)
            if not await self._is_ready(first) and not self._stop.is_set():
                return first.process.returncode or 1
            numbers = range(1, len(self._sockets) + 1)
            if not self._stop.is_set():
                rest = [await self._start(group, number) for number in numbers[1:]]
                await asyncio.gather(*map(self._is_ready, rest))
                log_address(self._sockets[0])
                _log.info("%d workers serve it", len(self._sockets))
            keepers = [group.create_task(self._keep(group, number)) for number in sorted(self._current)]
            reloader = group.create_task(self._replace_on_demand(group))
            await self._stop.wait()
            for task in (*keepers, reloader):
                task.cancel()
            await asyncio.wait((*keepers, reloader))
            await self._end_all()
        return 0

    # One worker

    async def _start(self, group: asyncio.TaskGroup, number: int) -> _Worker:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        listening = self._sockets[number - 1]
        place = WorkerPlace(
            number=number, of=len(self._sockets), listening=listening, control=theirs, folder=self._folder
        )
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "tenuto", "serve"),
                env=os.environ | _given(self._settings, listening) | {WORKER: place.encode()},
                pass_fds=(listening.fileno(), theirs.fileno()),
                # A terminal's Ctrl-C is ours to pass on.
                start_new_session=True,
            )
        worker = _Worker(number, process, ours, asyncio.get_running_loop().time())
        _log.info("worker %d is process %d", number, process.pid)
        self._current[number] = worker
        self._living.add(worker)
        group.create_task(self._watch(worker))
        return worker

    async def _watch(self, worker: _Worker) -> None:
        await worker.process.wait()
        worker.control.close()
        self._living.discard(worker)
        worker.ended.set()

    async def _is_ready(self, worker: _Worker) -> bool:
        """Whether it serves, as soon as it does, ends, or all are to stop."""
        ready = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(worker.control, len(READY)))
        others = [asyncio.ensure_future(each.wait()) for each in (worker.ended, self._stop)]
        try:
            await asyncio.wait((ready, *others), return_when=asyncio.FIRST_COMPLETED)
            return ready.done() and not ready.cancelled() and ready.exception() is None and ready.result() == READY
        finally:
            for each in (ready, *others):
                each.cancel()
            await asyncio.wait((ready, *others))

    async def _end(self, worker: _Worker) -> None:
        """Have it finish its requests; one that hangs is killed."""
        seconds = self._settings.shutdown_timeout.total_seconds() + _SPARE_SECONDS
        with contextlib.suppress(ProcessLookupError):
            worker.process.terminate()
        try:
            await asyncio.wait_for(worker.ended.wait(), seconds)
        except TimeoutError:
            _log.error("worker %d does not end and is killed", worker.number)
            with contextlib.suppress(ProcessLookupError):
                worker.process.kill()
            await worker.ended.wait()

    async def _end_all(self) -> None:
        for listening in self._sockets:
            listening.close()
        await asyncio.gather(*[self._end(worker) for worker in tuple(self._living)])

    # All of them

    async def _keep(self, group: asyncio.TaskGroup, number: int) -> None:
        """Start the worker of this number again whenever it dies."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            worker = self._current[number]
            await worker.ended.wait()
            async with self._locks[number - 1]:
                if self._current[number] is not worker:
                    continue  # It was replaced.
                if asyncio.get_running_loop().time() - worker.started_at >= _SOUND_SECONDS:
                    backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
                _log.error("worker %d ended (%s) and is started again", number, _how_ended(worker.process))
                await backoff.wait()
                try:
                    await self._is_ready(await self._start(group, number))
                except OSError as error:
                    _log.error("worker %d cannot be started: %s", number, error.strerror)

    async def _replace_on_demand(self, group: asyncio.TaskGroup) -> None:
        """On SIGHUP, replace one worker after the other: the next begins to serve before the last one leaves."""
        while True:
            await self._reload.wait()
            self._reload.clear()
            _log.info("the workers are replaced one after the other")
            for number in range(1, len(self._sockets) + 1):
                async with self._locks[number - 1]:
                    old = self._current[number]
                    try:
                        serves = await self._is_ready(await self._start(group, number))
                    except OSError:
                        serves = False
                    if not serves:
                        # The old ones go on: settings or code do not start.
                        self._current[number] = old
                        _log.error("worker %d does not start; the workers that serve stay", number)
                        break
                    await self._end(old)
            else:
                _log.info("the workers are replaced")


def supervise(settings: Settings, sockets: Sequence[socket.socket]) -> None:
    """Serve with one worker for each socket, until a signal says stop.

    Raises:
        SystemExit: the first worker could not start, and has said why.
    """
    # Where workers ask each other, by sockets with short paths.
    folder = Path(tempfile.mkdtemp(prefix="tenuto-"))
    try:
        with asyncio.Runner() as runner:
            code = runner.run(_run(settings, sockets, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if code:
        raise SystemExit(code)


async def _run(settings: Settings, sockets: Sequence[socket.socket], folder: Path) -> int:
    return await Supervisor(settings, sockets, folder).run()


def _given(settings: Settings, listening: socket.socket) -> dict[str, str]:
    """What options may have said, as the variables of a worker."""
    return {
        "TENUTO_STORE": settings.store,
        "TENUTO_HOST": settings.host,
        "TENUTO_PORT": str(listening.getsockname()[1]),
        "TENUTO_WORKERS": str(settings.workers),
    }


def _how_ended(process: Process) -> str:
    code = process.returncode or 0
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"
