"""Stories of several processes, one store and everything that goes wrong, by seed.

`TENUTO_SIM_SEED=24` tells one story again (`large:24` and `outage:24` one of those), `TENUTO_SIM_SECONDS=3600` goes on
with new seeds.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.simulation.laws import broken_law
from tests.simulation.plan import Plan, make_outage_plan, make_plan
from tests.simulation.plants import OUTAGE_PLANTS, PLANTS, Plant, each_process_has_a_folder
from tests.simulation.shrink import shrink
from tests.simulation.world import World

_SMALL, _LARGE, _OUTAGES = 200, 25, 100
_MOST_REFUSED = 0.05
_PLANTED = 100
_TOLD_TWICE = 20


def make_large_plan(seed: int) -> Plan:
    return make_plan(seed, large=True)


_KINDS = {"": make_plan, "large": make_large_plan, "outage": make_outage_plan}


def kept_plans() -> Iterator[Plan]:
    """Plans that once broke a law."""
    for path in sorted((Path(__file__).parent / "plans").glob("*.json")):
        yield msgspec.json.decode(path.read_bytes(), type=Plan)


def check(plan: Plan) -> World:
    """Tell a story and look for a broken law; a broken one is told with its smallest plan."""
    world = World(plan).run()
    broken = broken_law(world)
    if broken is None:
        return world
    law, offence = broken
    smaller = shrink(plan, lambda other: (found := broken_law(World(other).run())) is not None and found[0] == law)
    told = World(smaller).run()
    pytest.fail(f"{law}: {offence}\nseed {plan.seed}, hash {world.digest}\n{smaller}\n" + "\n".join(told.story[-200:]))


def plans() -> Iterator[Plan]:
    """The plans of the budget, fixed so that a red run is the change's doing; then as long as the variable says."""
    named = os.environ.get("TENUTO_SIM_SEED")
    if named:
        kind, _, seed = named.rpartition(":")
        yield _KINDS[kind](int(seed))
        return
    yield from kept_plans()
    yield from map(make_plan, range(_SMALL))
    yield from map(make_large_plan, range(_LARGE))
    yield from map(make_outage_plan, range(_OUTAGES))
    until = time.monotonic() + float(os.environ.get("TENUTO_SIM_SECONDS", "0"))
    number = secrets.randbits(40)
    while time.monotonic() < until:
        yield from (make_plan(number), make_large_plan(number), make_outage_plan(number))
        number += 1


@pytest.mark.requirement("T7")
def test_no_story_breaks_a_law() -> None:
    for count, plan in enumerate(plans()):
        world = check(plan)
        if count % _TOLD_TWICE == 0:
            assert World(plan).run().digest == world.digest, "the same seed must tell the same story"
        if os.environ.get("TENUTO_SIM_SEED"):
            logging.getLogger(__name__).warning("%s", "\n".join(world.story))


@pytest.mark.parametrize(
    ("plant", "laws", "start", "make"),
    [(*plant, make_plan) for plant in PLANTS] + [(*plant, make_outage_plan) for plant in OUTAGE_PLANTS],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_fault_is_found(
    plant: Plant, laws: set[str], start: int, make: Callable[[int], Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    found = next(
        (broken for seed in range(start, start + _PLANTED) if (broken := broken_law(World(make(seed)).run()))), None
    )

    assert found is not None
    assert found[0] in laws


def test_clients_that_move_are_seldom_refused_in_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a session that the store holds, any process of the machine goes on with what any other one knew."""
    assert _refused() <= _MOST_REFUSED
    each_process_has_a_folder(monkeypatch)
    assert _refused() > _MOST_REFUSED


def _refused() -> float:
    worlds = [World(make_outage_plan(seed, only_outages=True)).run() for seed in range(24)]
    calls = sum(world.counts["calls in an outage"] for world in worlds)
    assert calls > 50
    return sum(world.counts["refused in an outage"] for world in worlds) / calls
