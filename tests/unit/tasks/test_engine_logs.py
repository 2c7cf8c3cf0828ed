"""What the engine's library logs passes the logging of the program, and so the redaction of log lines."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

pytest.importorskip("dbos")

from tenuto.ports import utc_now
from tenuto.stores.memory import MemoryStore
from tests.engines import engine_over
from tests.tasks import tasks_over


async def test_the_library_of_the_engine_has_no_log_of_its_own(tmp_path: Path) -> None:
    store = MemoryStore(clock=utc_now)
    async with engine_over(store, tasks_over(store, utc_now), f"sqlite:///{tmp_path / 'tasks.db'}", {}):
        library = logging.getLogger("dbos")

        assert library.propagate
        assert not [handler for handler in library.handlers if isinstance(handler, logging.StreamHandler)]
