"""A state machine drives the breaker beside a plain model of what was promised."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeAlias

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from tenuto.stores.breaker import Breaker, BreakerPolicy, BreakerState

RESET = 30.0
# Which call it is, and what the breaker gave it; Hypothesis types what stands for none of them as anything.
Call: TypeAlias = Any


class Calls(RuleBasedStateMachine):
    """Calls begin, and end in any order, while time passes.

    The model is the story of what happened: how many failures in a row since the last change, when it opened, and
    which call is the probe. It has no generations: it forgets the calls that no longer count.
    """

    under_way = Bundle("under_way")

    @initialize(most=st.integers(1, 4))
    def begin_closed(self, most: int) -> None:
        self.now = 0.0
        self.most = most
        self.breaker = Breaker(BreakerPolicy(failures=most, reset=timedelta(seconds=RESET)), now=lambda: self.now)
        self.in_a_row = 0
        self.opened_at: float | None = None
        self.probe: int | None = None
        self.counting: set[int] = set()
        self.began = 0

    @rule(seconds=st.sampled_from([0.0, 1.0, 29.0, 30.0, 100.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(target=under_way, crowd=st.integers(1, 4))
    def begin(self, crowd: int) -> Call:
        return multiple(*(call for _ in range(crowd) if (call := self._admitted()) is not None))

    def _admitted(self) -> Call | None:
        generation = self.breaker.admit()
        closed = self.opened_at is None
        probing = not closed and self.probe is None and self.now >= (self.opened_at or 0.0) + RESET

        assert (generation is not None) == (closed or probing)
        if generation is None:
            return None
        self.began += 1
        if closed:
            self.counting.add(self.began)
        else:
            self.probe = self.began
        return self.began, generation

    @rule(call=consumes(under_way))
    def answer(self, call: Call) -> None:
        self.breaker.record_success(call[1])
        if call[0] == self.probe:
            self.opened_at = self.probe = None
            self.in_a_row = 0
        elif call[0] in self.counting:
            self.in_a_row = 0

    @rule(call=consumes(under_way))
    def fail(self, call: Call) -> None:
        self.breaker.record_failure(call[1])
        if call[0] == self.probe:
            self.opened_at, self.probe = self.now, None
        elif call[0] in self.counting:
            self.in_a_row += 1
            if self.in_a_row == self.most:
                self.opened_at = self.now
                self.counting.clear()

    @rule(call=consumes(under_way))
    def give_up(self, call: Call) -> None:
        self.breaker.release_probe(call[1])
        if call[0] == self.probe:
            self.probe = None

    @invariant()
    def it_stands_where_the_story_says(self) -> None:
        if self.opened_at is None:
            expected = BreakerState.CLOSED
        else:
            expected = BreakerState.OPEN if self.probe is None else BreakerState.HALF_OPEN
        assert self.breaker.state is expected


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
