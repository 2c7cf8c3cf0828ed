"""What the engine and its library log: through the redaction of log lines, and an outage once, not with each poll."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("dbos")

from tenuto.app import open_app
from tenuto.errors import StoreUnavailable
from tenuto.ports import utc_now
from tenuto.server import task_worker
from tenuto.server.task_worker import TaskWorker
from tenuto.settings import Settings
from tenuto.tasks.engines import _queues
from tenuto.tasks.engines._queues import QueueReader, RunningTasks
from tests.doubles import MemoryStore
from tests.engines import engine_over
from tests.tasks import tasks_over
from tests.timeouts import wait_until


async def test_the_library_of_the_engine_has_no_log_of_its_own(tmp_path: Path) -> None:
    store = MemoryStore(clock=utc_now)
    async with engine_over(store, tasks_over(store, utc_now), f"sqlite:///{tmp_path / 'tasks.db'}", {}):
        library = logging.getLogger("dbos")

        assert library.propagate
        assert not [handler for handler in library.handlers if isinstance(handler, logging.StreamHandler)]


def test_a_database_that_is_away_is_logged_once_and_when_it_is_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, looks = QueueReader(RunningTasks(1, ())), [OSError(), OSError(), None, None, OSError(), ValueError(), None]

    def look(_: object) -> Sequence[str]:
        failure = looks.pop(0)
        if not looks:
            reader.close()
        if failure is not None:
            raise failure
        return ()

    monkeypatch.setattr(_queues, "_IDLE", 0)
    monkeypatch.setattr(reader, "_waiting_queues", look)
    reader.read(threading.Event(), None)  # type: ignore[arg-type]  # the looks need no database

    assert [record.getMessage().split(" at ")[0] for record in caplog.records] == [
        "reading the queues of tasks failed, and is tried again: OSError",
        "reading the queues of tasks works again",
        "reading the queues of tasks failed, and is tried again: OSError",
        "reading the queues of tasks failed, and is tried again: ValueError",
        "reading the queues of tasks works again",
    ]


async def test_a_server_that_tries_to_open_the_engine_again_says_once_why_it_cannot(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def away() -> bool:
        nonlocal tries
        tries += 1
        raise StoreUnavailable

    monkeypatch.setattr(task_worker, "_FIRST_PAUSE", 0)
    async with open_app(Settings(store="memory://")) as app:
        monkeypatch.setattr(app.tasks, "has_runs", away)
        async with TaskWorker(app).running():
            await wait_until(lambda: tries > 2)

    assert [record.getMessage() for record in caplog.records].count(
        "this server does not work on tasks: the session store does not answer"
    ) == 1
