"""What tests of sessions ask for."""

from __future__ import annotations

import pytest

from tenuto.sessions import Sessions
from tests.unit.sessions.memory_sessions import MemorySessions


@pytest.fixture
def harness() -> MemorySessions:
    return MemorySessions()


@pytest.fixture
def sessions(harness: MemorySessions) -> Sessions:
    return harness.sessions()
