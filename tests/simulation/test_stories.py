"""Stories of several processes, one store and everything that goes wrong, by seed.

`TENUTO_SIM_SEED=24` tells one story again (`large:24` a large one), `TENUTO_SIM_SECONDS=3600` goes on with new seeds.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Iterator

import pytest

from tests.simulation.laws import broken_law
from tests.simulation.plan import Plan, make_plan
from tests.simulation.plants import PLANTS, Plant
from tests.simulation.shrink import shrink
from tests.simulation.world import World

_SMALL, _LARGE = 160, 20
_PLANTED = 400
_TOLD_TWICE = 20


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
        yield make_plan(int(named.rpartition(":")[2]), large=named.startswith("large"))
        return
    yield from (make_plan(seed) for seed in range(_SMALL))
    yield from (make_plan(seed, large=True) for seed in range(_LARGE))
    until = time.monotonic() + float(os.environ.get("TENUTO_SIM_SECONDS", "0"))
    seed = secrets.randbits(40)
    while time.monotonic() < until:
        seed += 1
        yield make_plan(seed, large=seed % 5 == 0)


def test_no_story_breaks_a_law() -> None:
    for count, plan in enumerate(plans()):
        world = check(plan)
        if count % _TOLD_TWICE == 0:
            assert World(plan).run().digest == world.digest, "the same seed must tell the same story"
        if os.environ.get("TENUTO_SIM_SEED"):
            logging.getLogger(__name__).warning("%s", "\n".join(world.story))


@pytest.mark.parametrize(("plant", "laws"), PLANTS, ids=lambda value: getattr(value, "__name__", None))
def test_a_planted_fault_is_found(plant: Plant, laws: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    found = next((broken for seed in range(_PLANTED) if (broken := broken_law(World(make_plan(seed)).run()))), None)

    assert found is not None
    assert found[0] in laws
