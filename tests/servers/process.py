"""One server process: start it, stop it, kill it, freeze it, bring it back on the same port and data."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar, Self

import psutil

LOOPBACK = "127.0.0.1"
START_SECONDS = 90.0
START_ATTEMPTS = 5
STOP_SECONDS = 60.0
# Below the range that systems hand out for outgoing connections: while a server is down, nothing
# else takes its port, and a client that keeps trying cannot end up connected to itself.
PORTS = range(20000, 32000)


class ServerFailed(RuntimeError):
    """A server did not start or did not answer in time. The message carries the end of its log."""


@dataclass(kw_only=True)
class ServerProcess(ABC):
    """A server in the foreground with its own folder; what it says goes to `folder/log`."""

    command: Sequence[str]
    folder: Path
    port: int
    uid: int | None = None
    """Run as this user instead of our own; only root may say so."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    _popen: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @abstractmethod
    def answers(self) -> bool:
        """Whether the server takes requests now. Quick, and False instead of an error."""

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._popen is None:
            raise ServerFailed(f"{self._name} is not running")
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether the process is there, frozen or not."""
        return self._popen is not None and self._popen.poll() is None

    def start(self) -> Self:
        """Start and wait until the server answers. One that ends by itself gets a few more chances."""
        deadline = time.monotonic() + START_SECONDS
        for _ in range(START_ATTEMPTS):
            if self._attempt(deadline):
                return self
            # After a kill the port or a lock file may need a moment to come free.
            time.sleep(0.1)
        raise ServerFailed(f"{self._name} did not start:\n{self.log_tail()}")

    def stop(self) -> None:
        """Ask the server to end, wait for it; the data stays for `restart`."""
        self.thaw()
        self._end(self.stop_signal)

    def kill(self) -> None:
        """SIGKILL for the server and its children: nothing is flushed, no client is told."""
        # A child that is born while we count them would go on for a while, and keep the next start from its data.
        self.freeze()
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        # The parent first, and by itself: once it stands still it makes no more children.
        self._hold(self._family()[:1])
        self._hold(self._family())

    def thaw(self) -> None:
        """SIGCONT: go on after `freeze`; without one nothing happens."""
        _send(signal.SIGCONT, self._family())

    def restart(self) -> None:
        """Stop if running, then start on the same port and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Kill the server and remove its folder: the end of the data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self, lines: int = 20) -> str:
        """The last lines the server wrote."""
        log = self.folder / "log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _name(self) -> str:
        return f"{Path(self.command[0]).name} on port {self.port}"

    def _attempt(self, deadline: float) -> bool:
        self._spawn()
        while self.running and time.monotonic() < deadline:
            if self.answers():
                return True
            time.sleep(0.005)
        return False

    def _spawn(self) -> None:
        if self.running:
            return
        self._forget()
        with (self.folder / "log").open("ab") as log:
            self._popen = subprocess.Popen(
                self.command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the tests, which then end their servers in order.
                start_new_session=True,
                user=self.uid,
                group=self.uid,
                extra_groups=None if self.uid is None else [],
            )
        tell_reaper(f"+{self._popen.pid}")

    def _family(self) -> list[psutil.Process]:
        # Postgres children lead sessions of their own, so a process group would miss them.
        if not self.running:
            return []
        parent = psutil.Process(self.pid)
        return [parent, *parent.children(recursive=True)]

    def _hold(self, processes: Sequence[psutil.Process]) -> None:
        _send(signal.SIGSTOP, processes)
        wait_until(lambda: all(map(_still, processes)), f"{self._name} stands still")

    def _end(self, how: signal.Signals) -> None:
        family = self._family()
        _send(how, family if how is signal.SIGKILL else family[:1])
        try:
            wait_until(lambda: all(map(ended, family)), f"{self._name} ends on {how.name}", STOP_SECONDS)
        finally:
            _send(signal.SIGKILL, family)
            self._forget()

    def _forget(self) -> None:
        if self._popen is not None:
            self._popen.wait()
            tell_reaper(f"-{self._popen.pid}")
            self._popen = None


def ended(process: psutil.Process) -> bool:
    """Whether a process does nothing any more."""
    # An orphan may stay a zombie for as long as process 1 likes; it holds no port and no file.
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _still(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_STOPPED or ended(process)
    except psutil.NoSuchProcess:
        return True


def _send(what: signal.Signals, processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        try:
            process.send_signal(what)
        except psutil.NoSuchProcess:
            continue


def new_folder(name: str, uid: int | None = None) -> Path:
    """A temporary folder that also goes away when the test process is killed."""
    folder = Path(tempfile.mkdtemp(prefix=f"tenuto-{name}-"))
    tell_reaper(str(folder))
    if uid is not None:
        os.chown(folder, uid, uid)
    return folder


def free_port() -> int:
    """A loopback port without a listener, and that no server of this run had before.

    A server that is down, or on its way up, does not hold its port. So each worker chooses among ports of its
    own, and none twice.
    """
    while True:
        # Not from `random`: Hypothesis seeds it, and two runs would choose the same ports.
        port = secrets.choice(_own_ports())
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            _own_ports().remove(port)
            return port


@cache
def _own_ports() -> list[int]:
    """The ports that this worker has not handed out yet."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return list(PORTS[worker :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))])


def accepts(port: int) -> bool:
    """Whether something listens on a loopback port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1):
            return True
    except OSError:
        return False


def wait_until(holds: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    """Poll a state of a server that sends no event when it is reached."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise ServerFailed(f"waited {seconds:g} s in vain: {what}")
        time.sleep(0.005)


def tell_reaper(line: str) -> None:
    """Put a pid or a folder on the list of the process that clears up after us."""
    told = _reaper(os.getpid()).stdin
    assert told is not None
    told.write(line + "\n")
    told.flush()


@cache
def _reaper(_owner: int) -> subprocess.Popen[str]:
    # Keyed by process id: a forked worker gets a reaper of its own.
    script = Path(__file__).with_name("reaper.py")
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(script)], stdin=subprocess.PIPE, text=True, start_new_session=True
    )
    atexit.register(process.communicate)
    return process
