"""A clock that the test moves."""

from __future__ import annotations

import pytest

from tests.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
