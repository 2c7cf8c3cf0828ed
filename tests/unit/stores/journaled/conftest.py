"""A process at the three points where most of its stories begin."""

from __future__ import annotations

import pytest

from tests.outages import Process
from tests.samples import ANN


@pytest.fixture
async def talked(here: Process) -> Process:
    """Ann has said something in session `s`, and heard an answer."""
    await here.turn(ANN, "s", "one", "1")
    return here


@pytest.fixture
def alone(talked: Process) -> Process:
    """Behind that turn, the store went away."""
    talked.goes_away()
    return talked


@pytest.fixture
def away(here: Process) -> Process:
    """The store is away, and nothing has been said yet."""
    here.goes_away()
    return here
