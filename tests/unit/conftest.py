"""What unit tests may ask for besides."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator

import pytest

_MOST_SECONDS = 20


@pytest.fixture
def brief() -> Iterator[None]:
    """Ends a test that computes for too long: its own work counts, and not what a busy machine does meanwhile."""

    def ended(*_: object) -> None:
        raise AssertionError(f"it computes for longer than {_MOST_SECONDS} seconds")

    before = signal.signal(signal.SIGVTALRM, ended)
    signal.setitimer(signal.ITIMER_VIRTUAL, _MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.fixture
async def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets so many seconds pass for the event loop without waiting for them."""
    loop = asyncio.get_running_loop()
    now, passed = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: now() + passed[0])

    def pass_(seconds: float) -> None:
        passed[0] += seconds

    return pass_
