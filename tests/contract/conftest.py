"""Runs each contract test on every backend and wrapper."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenuto.ports import Store
from tests.backends import BACKENDS, Backend, Place
from tests.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    assert isinstance(request.param, Backend)
    return request.param


@pytest.fixture
async def store(
    backend: Backend, request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path
) -> AsyncIterator[Store]:
    async with backend.open(Place(clock=clock, folder=tmp_path, server=request.getfixturevalue)) as opened:
        yield opened
