"""Memory of a process per 1,000 sessions that it knows: 20 imported messages and one turn in each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.contenders import IMPORTED, entry
from bench.crew import Crew
from bench.grounds import Ground
from bench.plan import ASKING, Plan
from bench.workload import WINDOW

_WARM: Final = 200
_LONG: Final = 300.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident bytes of the process: before, and for each 1,000 sessions more."""

    backend: str
    before: int
    per_thousand: float


def measure_memory(up: Ground, python: str, plan: Plan, folder: Path) -> Memory:
    """The process has served some sessions before, so that libraries and pools are loaded."""
    with Crew(entry(f"{up.backend}: {IMPORTED}"), up.new_url(), python, folder / f"{up.backend}-memory.log") as crew:
        sizes = []
        for prefix, sessions in (("warm", _WARM), ("known", plan.known_sessions)):
            crew.seed(WINDOW, sessions, prefix)
            crew.measure(WINDOW, "ask", ASKING, _LONG, sessions)
            sizes.append(crew.resident_bytes())
    return Memory(up.backend, sizes[0], (sizes[1] - sizes[0]) * 1000 / plan.known_sessions)
