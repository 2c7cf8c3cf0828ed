"""Which process holds a lease, told by the id of its turn, and whether that process is gone.

A killed process leaves its leases behind. Another one of the same machine can tell so at once; elsewhere, and where
`/proc` does not exist, a lease is held until it expires. Clients see ids of turns, so the process is masked with a key
that only processes of the same boot, host and namespaces know; they recognise each other by the bits left zero.
"""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

_PID_BITS, _START_BITS = 22, 48  # The kernel's own limit of pids, and ticks since the boot.
_PROC = Path("/proc")
_SHARED = ".shared"


class _Process(NamedTuple):
    """A process: the key of its machine, its pid, and its start, which tells it from a later one of that pid."""

    machine: bytes
    pid: int
    started: int


def with_holder(turn_id: str, *, shared: bool = False) -> str:
    """The id of a turn that this process runs until its end; a `shared` one can be followed in others."""
    here, mark = _current(os.getpid()), _SHARED if shared else ""
    if here is None:
        return f"{turn_id}.{mark}" if mark else turn_id
    return f"{turn_id}.{_mask(turn_id, here.machine) ^ (here.pid << _START_BITS | here.started):032x}{mark}"


def is_shared(turn_id: str) -> bool:
    """Whether the turn can be followed in other processes."""
    return turn_id.endswith(_SHARED)


def is_holder_gone(turn_id: str) -> bool:
    """Whether the turn's process was on this machine and does not run any more; in doubt it does."""
    holder = _holder(turn_id)
    return holder is not None and not _is_running(*holder)


def is_held_here(turn_id: str) -> bool:
    """Whether the turn is this process's own."""
    here, holder = _current(os.getpid()), _holder(turn_id)
    return here is not None and holder == (here.pid, here.started)


def _holder(turn_id: str) -> tuple[int, int] | None:
    """Pid and start of the turn's process, if it was on this machine."""
    plain, _, holder = turn_id.removesuffix(_SHARED).partition(".")
    here = _current(os.getpid())
    if here is None or not holder:
        return None
    try:
        pid, started = divmod(int(holder, 16) ^ _mask(plain, here.machine), 1 << _START_BITS)
    except ValueError:
        return None
    return (pid, started) if 0 < pid < 1 << _PID_BITS else None


def _is_running(pid: int, started: int) -> bool:
    try:
        _, state, since = _stat(str(pid))
    except (FileNotFoundError, ProcessLookupError):
        # `hidepid` hides processes of other users here, but not from signals.
        try:
            os.kill(pid, 0)
        except OSError as error:
            return not isinstance(error, ProcessLookupError)
        return True
    except (OSError, ValueError):
        return True
    return since == started and state not in "ZX"


@lru_cache(maxsize=1)
def _current(pid: int) -> _Process | None:
    """The process of this pid, which is the caller's own: a fork is another one."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        # A process start is told in the time of the reader's own time namespace.
        spaces = [(_PROC / "self/ns" / space).readlink() for space in ("pid", "time")]
        machine = f"{boot} {spaces} {platform.node()}"
        own, _, started = _stat("self")
    except (OSError, ValueError):
        return None
    # Under the `/proc` of another namespace the pids mean other processes.
    return _Process(blake2b(machine.encode()).digest(), pid, started) if own == pid else None


def _mask(turn_id: str, machine: bytes) -> int:
    return int.from_bytes(blake2b(turn_id.encode(), key=machine, digest_size=16).digest(), "big")


def _stat(process: str) -> tuple[int, str, int]:
    """Pid, state and start of a process; its name, in brackets, may contain anything."""
    before, _, after = (_PROC / process / "stat").read_text(errors="replace").rpartition(")")
    fields = after.split()
    if len(fields) < 20:
        raise ValueError(process)
    return int(before.partition(" ")[0]), fields[0], int(fields[19])
