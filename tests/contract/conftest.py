"""Runs each contract test on every backend and wrapper, one after the other on one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tenuto.ports import Store
from tenuto.tasks import Tasks
from tests.backends import BACKENDS, Backend, LastingPool, Place
from tests.clock import FakeClock
from tests.tasks import tasks_over


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Connections that outlive a test need a loop that does."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "store" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    assert isinstance(request.param, Backend)
    return request.param


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pools() -> AsyncIterator[dict[str, LastingPool]]:
    """The connections to Postgres that the tests leave to each other."""
    opened: dict[str, LastingPool] = {}
    yield opened
    for pool in opened.values():
        await pool.end()


@pytest_asyncio.fixture(loop_scope="session")
async def store(
    backend: Backend, request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path, pools: dict[str, LastingPool]
) -> AsyncIterator[Store]:
    place = Place(clock=clock, folder=tmp_path, server=request.getfixturevalue, pools=pools)
    async with backend.open(place) as opened:
        yield opened


@pytest.fixture
def tasks(store: Store, clock: FakeClock) -> Tasks:
    return tasks_over(store, clock)
