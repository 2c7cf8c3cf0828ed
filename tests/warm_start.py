"""Processes that begin with everything imported: the programs under test, without a second of imports for each.

A helper of this process imports what a program would import first and then forks for each start. The fork gets its
own arguments, environment, folder, session and streams, and becomes a child of this process, so that waiting for it
and signals work as with any other. Linux alone can hand a grandchild over; elsewhere a program starts as usual.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from functools import cache
from pathlib import Path
from typing import Any

_TOP = Path(__file__).parents[1]
_LENGTH = 8
_SET_SUBREAPER = 36
# Rooms that need other packages, and those that read the terminal when they are imported.
_COLD = ("tenuto.__main__", "tenuto.integrations", "tenuto.cli.keyboard")
# What a server and a turn import when they first need it.
_FURTHER = ("uvicorn.lifespan.on", "uvicorn.loops.auto", "uvicorn.protocols.http.auto", "numpy", "tiktoken")
# One start at a time, the first one included: of two helpers, one would end the moment in which the other's child is
# adopted, and a process that is not our child can be neither killed nor waited for.
_starting = threading.Lock()


def open_program(*args: str, **given: Any) -> subprocess.Popen[Any]:
    """`python ARGS` as `subprocess.Popen` starts it: `-m MODULE …` or `-c PROGRAM …`, also after `-W error`."""
    kind: type[subprocess.Popen[Any]] = _WarmProcess if sys.platform == "linux" else subprocess.Popen
    return kind([sys.executable, *args], **given)


class _WarmProcess(subprocess.Popen[Any]):
    """A process that the helper forks; everything else about it is as usual."""

    def __init__(self, args: list[str], *, start_new_session: bool = False, **given: Any) -> None:
        self._leads = start_new_session
        super().__init__(args, **given)

    def _execute_child(self, args: list[str], *given: Any) -> None:
        """Where `Popen` starts a program, with the ends of its pipes or -1 for the streams of this process."""
        cwd, env = given[4], given[5]
        ends = given[9], given[12], given[14]
        order = {
            "args": args[1:],
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "leads": self._leads,
        }
        streams = [own if end == -1 else end for own, end in enumerate(ends)]
        with _starting:
            self.pid = _helper(os.getpid()).fork(order, streams)
        self._child_created = True
        self._close_pipe_fds(*given[9:15])  # type: ignore[attr-defined]


class _Helper:
    """The process that has imported everything, and forks when told so."""

    def __init__(self) -> None:
        self._line, its_end = socket.socketpair()
        with its_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm_start", str(its_end.fileno())],
                cwd=_TOP,
                pass_fds=[its_end.fileno()],
                env={name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")},
            )
        atexit.register(self.end)

    def fork(self, order: dict[str, Any], streams: list[int]) -> int:
        """The process id of a new child of ours."""
        body = json.dumps(order).encode()
        with _adopting():
            socket.send_fds(self._line, [len(body).to_bytes(_LENGTH, "big")], streams)
            self._line.sendall(body)
            answer = self._line.recv(_LENGTH)
        assert answer, "the process that forks has ended"
        return int.from_bytes(answer, "big")

    def end(self) -> None:
        self._line.close()
        self._process.wait()


@cache
def _helper(_owner: int) -> _Helper:
    # Keyed by process id: a forked worker has no helper yet.
    return _Helper()


@contextlib.contextmanager
def _adopting() -> Any:
    """Become the parent of orphans below us for a moment; ever after, the orphans of killed servers would stay."""
    control = ctypes.CDLL(None).prctl
    control(_SET_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        control(_SET_SUBREAPER, 0, 0, 0, 0)


def _serve(line: socket.socket) -> None:
    """Fork for each order, until the other end is closed."""
    while True:
        head, streams, _, _ = socket.recv_fds(line, _LENGTH, 3)
        if not head:
            return
        body = b""
        while len(body) < int.from_bytes(head, "big"):
            body += line.recv(1 << 16)
        pid = _fork_twice(line, json.loads(body), streams)
        for stream in streams:
            os.close(stream)
        line.sendall(pid.to_bytes(_LENGTH, "big"))


def _fork_twice(line: socket.socket, order: dict[str, Any], streams: list[int]) -> int:
    """The id of a process whose parent has ended, so that another one can adopt it."""
    read_end, write_end = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            os.close(write_end)
            line.close()
            _run(order, streams)
        os.write(write_end, pid.to_bytes(_LENGTH, "big"))
        os._exit(0)
    os.close(write_end)
    pid = int.from_bytes(os.read(read_end, _LENGTH), "big")
    os.close(read_end)
    os.waitpid(between, 0)
    return pid


def _run(order: dict[str, Any], streams: list[int]) -> None:
    """Be the program, and end as an interpreter does."""
    if order["leads"]:
        os.setsid()
    for own, stream in enumerate(streams):
        os.dup2(stream, own)
    for stream in streams:
        os.close(stream)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    sys.stdout = _writer(1, "strict", lines=os.isatty(1))
    sys.stderr = _writer(2, "backslashreplace", lines=True)
    code = _exit_code(order["args"])
    for written in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            written.flush()
    os._exit(code)


def _writer(number: int, errors: str, *, lines: bool) -> io.TextIOWrapper:
    raw = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=lines)


def _exit_code(args: list[str]) -> int:
    try:
        _run_python(args)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            code = (error.code or 0) & 0xFF
        else:
            sys.stderr.write(f"{error.code}\n")
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    else:
        code = 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return code


def _run_python(args: list[str]) -> None:
    if args[0] == "-W":
        warnings.simplefilter(args[1])  # type: ignore[arg-type]
        args = args[2:]
    how, what, *rest = args
    sys.argv = [how, *rest]
    sys.path[0] = ""
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        main = sys.modules["__main__"] = type(sys)("__main__")
        exec(compile(what, "<string>", "exec"), main.__dict__)


def _import_everything() -> None:
    for name in ("tenuto", *_FURTHER):
        _import(name)


def _import(name: str) -> None:
    """A module with all that lies below it; `pkgutil.walk_packages` would import the cold ones to look into them."""
    with contextlib.suppress(ImportError):
        module = importlib.import_module(name)
        if name.startswith("tenuto"):
            for below in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
                if not below.name.startswith(_COLD):
                    _import(below.name)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    own_end = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()
    _import_everything()
    # Forks look for garbage among what they make, and leave these pages alone.
    gc.freeze()
    gc.enable()
    atexit._clear()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _serve(own_end)
