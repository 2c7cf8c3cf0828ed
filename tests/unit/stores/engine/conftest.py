"""A machine whose processes share a journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.machine import Machine, be_quick


@pytest.fixture
async def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Machine]:
    be_quick(monkeypatch)
    machine = Machine(tmp_path / "journal")
    yield machine
    await machine.close()
