"""The breaker, sentence by sentence: when it opens, whom it lets through, and whose word counts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tenuto.stores.breaker import Breaker, BreakerPolicy, BreakerState
from tests.clock import Ticks

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


def _breaker() -> tuple[Breaker, Ticks]:
    ticks = Ticks()
    return Breaker(now=ticks), ticks


def _admitted(breaker: Breaker) -> int:
    generation = breaker.admit()
    assert generation is not None
    return generation


def _fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        breaker.record_failure(_admitted(breaker))


def _opened() -> tuple[Breaker, Ticks]:
    breaker, ticks = _breaker()
    _fail(breaker, 5)
    return breaker, ticks


@pytest.mark.requirement("A21", "A28")
def test_five_failures_in_a_row_open_it_for_thirty_seconds() -> None:
    breaker, _ = _breaker()

    _fail(breaker, 4)
    assert breaker.state is CLOSED
    _fail(breaker, 1)

    assert (breaker.state, breaker.rest) == (OPEN, timedelta(seconds=30))
    assert breaker.admit() is None
    assert breaker.refused == 1


@pytest.mark.requirement("T8", "S5")
def test_failures_that_are_not_in_a_row_never_open_it() -> None:
    """An answer zeroes the count."""
    breaker, _ = _breaker()

    for _ in range(10):
        _fail(breaker, 4)
        breaker.record_success(_admitted(breaker))

    assert breaker.state is CLOSED


@pytest.mark.requirement("A21", "S5", "T8")
def test_one_call_at_a_time_is_the_probe() -> None:
    """Everybody else is turned away for as long as it takes."""
    breaker, ticks = _opened()
    ticks.now += 29.9
    assert breaker.admit() is None

    ticks.now += 0.1
    probe = breaker.admit()
    ticks.now += 1000

    assert probe is not None
    assert [breaker.admit() for _ in range(3)] == [None, None, None]
    assert (breaker.state, breaker.rest) == (HALF_OPEN, timedelta(0))


@pytest.mark.requirement("A21")
def test_a_probe_that_is_answered_closes_it_and_zeroes_the_count() -> None:
    breaker, ticks = _opened()
    ticks.now += 30

    breaker.record_success(_admitted(breaker))
    _fail(breaker, 4)

    assert breaker.state is CLOSED


@pytest.mark.requirement("T8", "S5")
def test_a_failed_probe_waits_a_full_period_again() -> None:
    breaker, ticks = _opened()
    ticks.now += 100

    _fail(breaker, 1)
    ticks.now += 29.9
    assert breaker.admit() is None
    ticks.now += 0.1

    assert breaker.admit() is not None


def test_a_probe_that_was_given_up_leaves_its_place_to_the_next_call() -> None:
    breaker, ticks = _opened()
    ticks.now += 30

    breaker.release_probe(_admitted(breaker))

    assert breaker.admit() is not None
    assert breaker.admit() is None


@pytest.mark.requirement("T8")
def test_calls_of_an_earlier_generation_say_nothing() -> None:
    """Neither their failures nor their answers, however late they come."""
    breaker, ticks = _breaker()
    late = [_admitted(breaker) for _ in range(20)]
    _fail(breaker, 5)

    breaker.record_success(late[0])
    assert breaker.state is OPEN
    ticks.now += 20
    breaker.record_failure(late[1])
    assert breaker.rest == timedelta(seconds=10)
    ticks.now += 10
    probe = _admitted(breaker)
    breaker.record_failure(late[2])
    breaker.record_success(late[3])
    breaker.release_probe(late[4])
    assert breaker.state is HALF_OPEN
    breaker.record_success(probe)
    for generation in late[5:]:
        breaker.record_failure(generation)

    assert breaker.state is CLOSED


def test_what_ends_untold_while_closed_counts_for_nothing() -> None:
    breaker, _ = _breaker()

    _fail(breaker, 4)
    breaker.release_probe(_admitted(breaker))
    assert breaker.state is CLOSED
    _fail(breaker, 1)

    assert breaker.state is OPEN


@pytest.mark.requirement("X8")
def test_threshold_and_period_are_the_policys() -> None:
    ticks = Ticks()
    breaker = Breaker(BreakerPolicy(failures=3, reset=timedelta(seconds=15)), now=ticks)

    _fail(breaker, 3)

    assert (breaker.state, breaker.rest) == (OPEN, timedelta(seconds=15))
