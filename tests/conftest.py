"""What every test may ask for: a clock, and real servers shared by the whole session.

A shared server is for reading and writing. A test that kills or freezes one starts its own with
`tests.servers`. A server that cannot be started is an error here, never a skip.
"""

from __future__ import annotations

import ast
import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.clock import FakeClock
from tests.open_data import missing_data_notice as absent_data
from tests.providers import ScriptedProvider, start_provider
from tests.servers import (
    PostgresDatabase,
    PostgresServer,
    RedisCluster,
    RedisSentinel,
    RedisServer,
    redis_programs,
    start_cluster,
    start_postgres,
    start_redis,
    start_sentinel,
)
from tests.servers.process import new_folder
from tests.timeouts import lengthen_store_timeouts

if sys.version_info < (3, 12):
    # Python 3.11 fails (SystemError) when two threads make trees of sources and the collector calls back in between, as
    # Hypothesis has it do. Reports of failures need trees, and so does the embedder's thread, which reads numpy files.
    _parse, _parsing = ast.parse, threading.RLock()

    def _parse_alone(*args: Any, **named: Any) -> Any:
        with _parsing:
            return _parse(*args, **named)

    ast.parse = _parse_alone

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A suite started in the background ignores Ctrl-C, and so would every program under test.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of processes are started here: from compiled modules they begin in half the time, and a worker need not
# rewrite the assertions of every test anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Thousands of small databases: in memory they take half the time, and a killed process loses nothing there either.
_IN_MEMORY = Path("/dev/shm")
_ROOM = 4 * 1024**3
if "TMPDIR" not in os.environ and os.access(_IN_MEMORY, os.W_OK) and shutil.disk_usage(_IN_MEMORY).free > _ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_IN_MEMORY)

# Tests leave no journal in the user's own folder.
os.environ["XDG_STATE_HOME"] = str(new_folder("state"))

lengthen_store_timeouts()

pytest_plugins = ["tests.forks", "tests.requirements"]

# Imports and tests by the thousand make objects that stay: looking through them for garbage again and again would be a
# quarter of the work of collecting them, and a part of every test's.
gc.disable()

IN_CI = bool(os.environ.get("CI"))

EXPLORING = bool(os.environ.get("EXPLORE"))

# Examples that talk to real servers have no fair deadline on a busy machine; pytest-timeout stands above
# them all. The same examples run each time, so that a red run can be repeated and means the change at hand.
settings.register_profile(
    "tenuto", deadline=None, derandomize=not EXPLORING, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tenuto")


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that the test moves."""
    return FakeClock()


@pytest.fixture
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, and no settings but the defaults."""
    for name in os.environ:
        if name.startswith(("TENUTO_", "MEMORY_")) or name in ("PORT", "REDIS_URL"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LOGNAME", "otto")
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def valkey() -> Iterator[RedisServer]:
    """A standalone server: Valkey from the wheel. `valkey.flush()` empties it."""
    with start_redis(fsync="no") as server:
        yield server


@pytest.fixture(scope="session")
def redis_on_path() -> Iterator[RedisServer]:
    """The `redis-server` on PATH; ask for it only where `"redis" in redis_programs()`."""
    with start_redis("redis", fsync="no") as server:
        yield server


@pytest.fixture(scope="session", params=sorted(redis_programs()) or ["valkey"])
def redis_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A standalone server of each flavour on this machine: the test runs once on each."""
    with start_redis(request.param, fsync="no") as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """Three nodes that share the slots."""
    with start_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def redis_sentinel() -> Iterator[RedisSentinel]:
    """A primary and a replica under three Sentinels."""
    with start_sentinel() as group:
        yield group


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A Postgres server; `admin_url` and `app_url` lead to its shared database `main`."""
    # Tests count transactions and rows; a vacuum that comes by itself would be counted with them.
    with start_postgres(autovacuum="off") as server:
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[PostgresDatabase]:
    """An empty database for this test alone, owned by a role that is no superuser."""
    database = postgres.new_database()
    yield database
    postgres.drop_database(database)


@pytest.fixture(scope="session")
def running_provider() -> Iterator[ScriptedProvider]:
    """One scripted provider of models for all tests."""
    with start_provider() as provider:
        yield provider


@pytest.fixture
def provider(running_provider: ScriptedProvider) -> Iterator[ScriptedProvider]:
    """A provider that is asked nothing yet, and whose script must hold."""
    running_provider.clear()
    yield running_provider
    assert not running_provider.script_faults


def pytest_report_header() -> list[str]:
    """Say which data is missing, where some is."""
    absent = absent_data()
    return [absent] if absent else []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of data that is not at hand; the header has said so."""
    if absent_data() is None:
        return
    left_out = [item for item in items if item.get_closest_marker("open_data")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    """From here on, garbage is looked for among what tests make."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped test is a failed build: a promise that was not looked at."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if IN_CI and reporter is not None and reporter.stats.get("skipped") and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
