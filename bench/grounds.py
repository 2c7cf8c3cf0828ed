"""Where the contenders run: real servers on loopback as durable as they claim, and a folder; all gone at the end."""

from __future__ import annotations

import itertools
import os
import platform
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.contenders import Backend
from tests.servers import PostgresServer, RedisServer, start_postgres, start_redis

_DATABASES: Final = 100


@dataclass(frozen=True, slots=True)
class Ground:
    """A backend that is up. `new_url` is the address of a new database."""

    backend: Backend
    about: str
    new_url: Callable[[], str]
    server: RedisServer | PostgresServer | None = None


@contextmanager
def working_folder(inside: Path | None) -> Iterator[Path]:
    """A folder for files and logs, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="tenuto-bench-", dir=inside))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def ground(backend: Backend, folder: Path) -> Iterator[Ground]:
    """Start what the backend needs, and stop it."""
    with ExitStack() as stack:
        yield {"sqlite": _sqlite, "redis": _redis, "postgres": _postgres}[backend](stack, folder)


def _sqlite(_: ExitStack, folder: Path) -> Ground:
    numbers = itertools.count()
    about = f"SQLite {sqlite3.sqlite_version}, WAL, synchronous=FULL"
    return Ground("sqlite", about, lambda: f"sqlite:///{folder}/bench-{next(numbers)}.db")


def _redis(stack: ExitStack, _: Path) -> Ground:
    # The file that grows is not rewritten in between: a fork in one contender's slice would be unfair to it.
    server = stack.enter_context(start_redis(auto_aof_rewrite_percentage=0, databases=_DATABASES))
    numbers = iter(range(_DATABASES))
    info = server.info("server")
    version = info.get("valkey_version") or info["redis_version"]
    about = f"{server.flavour} {version}, appendonly yes, appendfsync everysec"
    return Ground("redis", about, lambda: f"redis://127.0.0.1:{server.port}/{next(numbers)}", server)


def _postgres(stack: ExitStack, _: Path) -> Ground:
    server = stack.enter_context(start_postgres(fsync=True, shared_buffers="256MB", max_wal_size="4GB"))
    version = server.sql("SHOW server_version")
    about = f"PostgreSQL {version}, fsync on, synchronous_commit on"
    return Ground("postgres", about, lambda: server.new_database().app_url, server)


def machine(folder: Path) -> str:
    """What a figure depends on: processor, cores, memory, file system, Python."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    system = os.uname()
    return (
        f"{_processor()}, {cores} cores, {pages:.0f} GiB, {system.sysname} {system.release}, "
        f"files on {_filesystem(folder)}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return os.uname().machine
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), os.uname().machine)


def _filesystem(folder: Path) -> str:
    if not shutil.which("stat"):
        return "an unknown file system"
    told = subprocess.run(["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True, timeout=10)
    return told.stdout.strip() or "an unknown file system"
