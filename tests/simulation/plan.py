"""Plans: what a seed stands for, as plain data. A plan can be kept, changed, shrunk and run again."""

from __future__ import annotations

from random import Random

import msgspec

from tests.simulation.store import Fate


class ClientStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing a client does: `turn`, `append`, `note` (an append without a key), `read`, `edit` or `remake`."""

    kind: str
    session: str
    keyed: bool = True
    pause: float = 0.0
    gives_up_after: float | None = None
    thinks: float = 0.0
    size: int = 1


class ClientPlan(msgspec.Struct, frozen=True):
    """A client: where it begins, and whether it goes on elsewhere when a process fails it, or whenever it likes."""

    name: str
    process: int
    moves: bool
    steps: tuple[ClientStep, ...]


class FaultPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fault at a time, or at the n-th event of a kind: `outage`, `cut`, `kill`, `freeze`, `deaf`, `clock`."""

    kind: str
    process: int = 0
    at: float = 0.0
    event: str = ""
    nth: int = 0
    lasts: float = 1.0


class Plan(msgspec.Struct, frozen=True):
    """A story: processes, their clients, the faults, and how often a call of each process meets which fate."""

    seed: int
    processes: int
    latency: float
    sealed: bool
    journals: bool
    clients: tuple[ClientPlan, ...]
    faults: tuple[FaultPlan, ...]
    rates: dict[Fate, float]


EVENTS = ("commit", "acknowledged", "called")
SESSIONS = ("plain", "plain", "shared", "capped", "edited")


def make_plan(seed: int, *, large: bool = False, journals: bool = False) -> Plan:
    """The plan of a seed. Half of the kinds of faults are off in each."""
    luck = Random(f"plan {seed}")
    processes = 3 if large else 2
    kinds = [kind for kind in ("outage", "cut", "kill", "freeze", "deaf", "clock") if luck.random() < 0.5]
    rates = {fate: luck.choice((0.01, 0.05, 0.15)) for fate in Fate if fate is not Fate.FINE and luck.random() < 0.4}
    clients = tuple(
        _make_client(luck, f"client{n}", processes, 16 if large else 8)
        for n in range(luck.randint(3, 6) if large else luck.randint(1, 3))
    )
    faults = tuple(_make_fault(luck, kinds, processes) for _ in range(luck.randint(0, 6 if large else 3)) if kinds)
    return Plan(
        seed=seed,
        processes=processes,
        latency=luck.choice((0.001, 0.01, 0.1)),
        sealed=luck.random() < 0.3,
        journals=journals,
        clients=clients,
        faults=faults,
        rates=rates,
    )


def _make_client(luck: Random, name: str, processes: int, steps: int) -> ClientPlan:
    own = f"{luck.choice(SESSIONS)}-{name}"
    kinds = ("turn", "turn", "turn", "append", "append", "note", "read", "edit", "remake")
    made = tuple(
        ClientStep(
            kind=luck.choice(kinds),
            session=luck.choice((own, own, "plain-of-all", "shared-of-all", "edited-of-all")),
            keyed=luck.random() < 0.8,
            pause=luck.choice((0.0, 0.0, 0.05, 0.5, 3.0)),
            gives_up_after=luck.random() * 0.3 if luck.random() < 0.1 else None,
            thinks=luck.choice((0.0, 0.1, 1.0)),
            size=luck.randint(1, 3),
        )
        for _ in range(luck.randint(2, steps))
    )
    return ClientPlan(name=name, process=luck.randrange(processes), moves=luck.random() < 0.5, steps=made)


def _make_fault(luck: Random, kinds: list[str], processes: int) -> FaultPlan:
    on_event = luck.random() < 0.6
    return FaultPlan(
        kind=luck.choice(kinds),
        process=luck.randrange(processes),
        at=0.0 if on_event else luck.random() * 8,
        event=luck.choice(EVENTS) if on_event else "",
        nth=luck.randint(1, 30) if on_event else 0,
        lasts=luck.choice((0.05, 0.5, 3.0, 10.0)),
    )
