"""Shrinking: the smallest plan found that still breaks the same law."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from tests.simulation.plan import Plan

_Item = TypeVar("_Item")


def shrink(plan: Plan, breaks: Callable[[Plan], bool], attempts: int = 300) -> Plan:
    """Leave out faults, clients and steps, halves first, while the plan still breaks the law."""
    found = True
    while found and attempts > 0:
        found = False
        for smaller in _smaller(plan):
            attempts -= 1
            if attempts <= 0:
                break
            if breaks(smaller):
                plan, found = smaller, True
                break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    for kept in _without_some(plan.faults):
        yield replace(plan, faults=kept)
    for fate in plan.rates:
        yield replace(plan, rates={other: rate for other, rate in plan.rates.items() if other is not fate})
    for clients in _without_some(plan.clients):
        if clients:
            yield replace(plan, clients=clients)
    for place, client in enumerate(plan.clients):
        for steps in _without_some(client.steps):
            if steps:
                clients = (*plan.clients[:place], replace(client, steps=steps), *plan.clients[place + 1 :])
                yield replace(plan, clients=clients)


def _without_some(items: tuple[_Item, ...]) -> Iterator[tuple[_Item, ...]]:
    if len(items) > 2:
        yield items[: len(items) // 2]
        yield items[len(items) // 2 :]
    for place in range(len(items)):
        yield (*items[:place], *items[place + 1 :])
