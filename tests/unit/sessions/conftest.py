"""What tests of sessions ask for."""

from __future__ import annotations

import pytest

from tenuto.sessions import Sessions
from tests.unit.sessions.announced import Room


@pytest.fixture
def room() -> Room:
    return Room()


@pytest.fixture
def sessions(room: Room) -> Sessions:
    return room.sessions()
