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
    """A fault at a time, or at the n-th event of a kind: `outage`, `cut`, `kill`, `freeze`, `deaf`, `clock`, and of the
    journal's disk `full` and `torn`."""

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
    disk: float
    sealed: bool
    journals: bool
    clients: tuple[ClientPlan, ...]
    faults: tuple[FaultPlan, ...]
    rates: dict[Fate, float]
    breaker: bool = False


FRESH = "fresh"
"""A session whose id is made for the request that creates it."""
EVENTS = ("commit", "acknowledged", "called")
JOURNAL_EVENTS = (*EVENTS, "row", "row", "replayed", "replayed")
SESSIONS = ("plain", "plain", "shared", "capped", "edited")
_KINDS = ("turn", "turn", "turn", "append", "append", "note", "read", "edit", "remake")
_PAUSES = (0.0, 0.0, 0.05, 0.5, 3.0)


def make_plan(seed: int, *, large: bool = False) -> Plan:
    """The plan of a seed. Half of the kinds of faults are off in each."""
    luck = Random(f"plan {seed}")
    processes = 3 if large else 2
    kinds = [kind for kind in ("outage", "cut", "kill", "freeze", "deaf", "clock") if luck.random() < 0.5]
    rates: dict[Fate, float] = {
        fate: luck.choice((0.01, 0.05, 0.15)) for fate in Fate if fate is not Fate.FINE and luck.random() < 0.4
    }
    clients = tuple(
        _make_client(luck, f"client{n}", processes, 16 if large else 8, _KINDS, _PAUSES)
        for n in range(luck.randint(3, 6) if large else luck.randint(1, 3))
    )
    most = 6 if large else 3
    faults = tuple(_make_fault(luck, kinds, processes, EVENTS) for _ in range(luck.randint(0, most)) if kinds)
    return _put_together(luck, seed, processes, clients, faults, rates, journals=luck.random() < 0.3)


def make_outage_plan(seed: int, *, only_outages: bool = False) -> Plan:
    """Clients that go on talking, often elsewhere, while the store is away and processes die."""
    luck = Random(f"outage {seed}")
    kinds = ("cut", "kill", "freeze", "deaf", "full", "torn")
    others = [] if only_outages else [kind for kind in kinds if luck.random() < 0.4]
    steps = ("turn", "turn", "append", "note", "read", "edit")
    pauses = (0.0, 0.1, 0.3, 1.0)
    clients = tuple(_make_client(luck, f"client{n}", 2, 20, steps, pauses) for n in range(luck.randint(1, 4)))
    outages = [
        FaultPlan(kind="outage", at=1 + luck.random() * 4, lasts=luck.choice((2.0, 6.0, 12.0)))
        for _ in range(luck.randint(1, 2))
    ]
    faults = [_make_fault(luck, others, 2, JOURNAL_EVENTS) for _ in range(luck.randint(0, 3)) if others]
    rates: dict[Fate, float] = {Fate.ANSWER_LOST: 0.05} if not only_outages and luck.random() < 0.3 else {}
    return _put_together(luck, seed, 2, clients, (*outages, *faults), rates, journals=True)


def _put_together(
    luck: Random,
    seed: int,
    processes: int,
    clients: tuple[ClientPlan, ...],
    faults: tuple[FaultPlan, ...],
    rates: dict[Fate, float],
    *,
    journals: bool,
) -> Plan:
    return Plan(
        seed=seed,
        processes=processes,
        latency=luck.choice((0.001, 0.01, 0.1)),
        disk=luck.choice((0.001, 0.05, 0.3)),
        sealed=luck.random() < 0.3,
        journals=journals,
        breaker=journals and luck.random() < 0.5,
        clients=clients,
        faults=faults,
        rates=rates,
    )


def _make_client(
    luck: Random, name: str, processes: int, most: int, kinds: tuple[str, ...], pauses: tuple[float, ...]
) -> ClientPlan:
    own = f"{luck.choice(SESSIONS)}-{name}"
    made = tuple(
        ClientStep(
            kind=luck.choice(kinds),
            session=luck.choice((own, own, FRESH, "plain-of-all", "shared-of-all", "edited-of-all")),
            keyed=luck.random() < 0.8,
            pause=luck.choice(pauses),
            gives_up_after=luck.random() * 0.3 if luck.random() < 0.1 else None,
            thinks=luck.choice((0.0, 0.1, 1.0)),
            size=luck.randint(1, 3),
        )
        for _ in range(luck.randint(2, most))
    )
    return ClientPlan(name=name, process=luck.randrange(processes), moves=luck.random() < 0.5, steps=made)


def _make_fault(luck: Random, kinds: list[str], processes: int, events: tuple[str, ...]) -> FaultPlan:
    on_event = luck.random() < 0.6
    return FaultPlan(
        kind=luck.choice(kinds),
        process=luck.randrange(processes),
        at=0.0 if on_event else luck.random() * 8,
        event=luck.choice(events) if on_event else "",
        nth=luck.randint(1, 30) if on_event else 0,
        lasts=luck.choice((0.05, 0.5, 3.0, 10.0)),
    )
