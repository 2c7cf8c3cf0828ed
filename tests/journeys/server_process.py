"""A server in a process of its own, on a port that it chooses."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from queue import Queue
from threading import Thread

import httpx

from tests.journeys.terminal import own_settings
from tests.warm_start import open_program

WAIT = 90


class ServerProcess:
    """A server process. It tells its address in its log, so that no port has to be guessed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[str] = []
        self._address: Queue[str | None] = Queue()
        # Read all the time: a server whose log is not read would stand still.
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        # The stream is closed under us when the test ends first.
        with suppress(ValueError):
            for line in self.process.stderr:
                self.log.append(line)
                told = re.search(r"listening on (http://\S+:\d+)", line)
                if told is not None:
                    self._address.put(told[1])
        self._address.put(None)

    @cached_property
    def http(self) -> httpx.Client:
        """A client, once the server listens."""
        address = self._address.get(timeout=WAIT)
        assert address is not None, "".join(self.log)
        # A connection for each request: one that is kept may be closed, for its age, in the moment it is used again.
        return httpx.Client(base_url=address, timeout=WAIT, limits=httpx.Limits(max_keepalive_connections=0))

    def end(self, with_signal: signal.Signals) -> int:
        """Send a signal, wait for the end, return the exit code."""
        self.process.send_signal(with_signal)
        code = self.process.wait(timeout=WAIT)
        self._reader.join(timeout=WAIT)
        return code


def _start(store: Path, *options: str, **environ: str) -> subprocess.Popen[str]:
    return open_program(
        "-m", "tenuto", "serve", "--store", f"sqlite:///{store}", "--port", "0", *options,
        env=own_settings(**environ), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@contextmanager
def running_server(store: Path, *options: str, **environ: str) -> Iterator[ServerProcess]:
    """A server on this database, until the block ends."""
    with _start(store, *options, **environ) as process:
        server = ServerProcess(process)
        try:
            with server.http:
                yield server
        finally:
            process.kill()
