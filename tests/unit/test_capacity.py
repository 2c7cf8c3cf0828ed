"""The calculation of `python -m bench.capacity`, and the page made from its figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.capacity.sizing import Load, calculate, page_tables

_ROOT = Path(__file__).parents[2]
_SAMPLE = {"messages": 10.0, "message_bytes": 800.0, "traces": 5.0, "memories": 2.0}


def _measured(backend: str) -> dict[str, Any]:
    """A session of 1 kB, ten messages of 1 kB, five traces of 2 kB, 4 kB of memories; 10 ms a turn, the first 60."""
    sizes = {"sessions": 1e5, "messages": 1e6, "traces": 1e6, "state": 4e5, "rest": 0.0, "resident": 9e9}
    turn = {"server_cpu": 10.0, "backend_cpu": 1.0, "resident": 3e8}
    return {
        "backend": backend,
        "stages": [{"sessions": 100, "bytes": sizes}],
        "turns": {"known sessions": turn, "unknown sessions": {**turn, "server_cpu": 60.0}},
    }


@pytest.mark.parametrize(
    ("backend", "load", "expected"),
    [
        # 25 kB each; a turn takes 20 ms on average, and a core is used to 60 %.
        ("redis", Load(sessions=1e9, turns_per_second=6000), (25e12, 1303, 10, 200)),
        ("postgres", Load(sessions=1e9, turns_per_second=6000), (25e12, 7, 1, 200)),
        # Three times the mean of 5 million turns in 30 days.
        ("sqlite", Load(sessions=1e6), (25e9, 1, 1, 1)),
        # No more than a hundred traces; messages and traces 200 and 400 bytes longer; twice the memories.
        ("sqlite", Load(sessions=1, messages=400, message_bytes=1000, memories=4), (729e3, 1, 1, 1)),
    ],
)
def test_a_plan_follows_from_the_figures(backend: str, load: Load, expected: tuple[float, int, int, int]) -> None:
    need = calculate(_measured(backend), _SAMPLE, load)
    assert (need.stored, need.by_size, need.by_turns, need.processes) == expected
    assert need.resident == expected[3] * 3e8


def test_the_capacity_page_has_the_tables_of_its_figures() -> None:
    figures = json.loads((_ROOT / "bench" / "capacity" / "figures.json").read_text())
    page = (_ROOT / "docs" / "ideas" / "capacity.md").read_text()
    assert figures["date"] in page
    for table in page_tables(figures):
        assert table.markdown().strip() in page
