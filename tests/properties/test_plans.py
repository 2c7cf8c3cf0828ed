"""Laws of plans: every acyclic plan ends, no step begins before those it comes after, and the order is determined."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.model.plan import (
    ENDED,
    Condition,
    Operator,
    Plan,
    Step,
    StepStatus,
    check_plan,
    outcome,
    parse_plan,
    plan_fields,
    ready_steps,
    steps_from,
)
from tenuto.model.policy import TaskPolicy
from tenuto.model.task import TaskStatus
from tenuto.task_errors import PlanInvalid

POLICY = TaskPolicy()
ENDS = st.sampled_from(sorted(ENDED))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """An acyclic plan: each step comes after some of those drawn before it; the listed order is another one."""
    count = draw(st.integers(1, 9))
    steps = [
        Step(
            id=f"s{number}",
            agent="worker",
            after=tuple(f"s{before}" for before in sorted(draw(st.sets(st.integers(0, number - 1), max_size=3))))
            if number
            else (),
            required=draw(st.booleans()),
        )
        for number in range(count)
    ]
    return Plan(steps=tuple(draw(st.permutations(steps))))


def run(plan: Plan, ends: dict[str, StepStatus], seed: int) -> tuple[list[str], dict[str, StepStatus]]:
    """Run a plan in which any running step may end next; returns the order of beginnings and the last states."""
    chance, begun = random.Random(seed), []
    states: dict[str, StepStatus] = {}
    while outcome(plan, states) is TaskStatus.RUNNING:
        for step in ready_steps(plan, states):
            assert all(states[before] in ENDED for before in step.after)
            states[step.id] = StepStatus.RUNNING
            begun.append(step.id)
        running = [step_id for step_id, status in states.items() if status is StepStatus.RUNNING]
        assert running, "nothing runs, and the task has not ended"
        over = chance.choice(running)
        states[over] = ends[over]
    return begun, states


@given(plans(), st.data(), st.integers(0, 99))
def test_an_acyclic_plan_ends_and_no_step_begins_early_or_twice(plan: Plan, data: st.DataObject, seed: int) -> None:
    check_plan(plan, policy=POLICY, task_type="any", agents=["worker"])
    ends = {step.id: data.draw(ENDS) for step in plan.steps}

    begun, states = run(plan, ends, seed)

    assert len(begun) == len(set(begun))
    failed = [step for step in plan.steps if step.required and states.get(step.id) is StepStatus.FAILED]
    assert outcome(plan, states) is (TaskStatus.FAILED if failed else TaskStatus.COMPLETED)
    assert failed or len(begun) == len(plan.steps)


@given(plans(), st.integers(0, 99))
def test_the_same_endings_give_the_same_order(plan: Plan, seed: int) -> None:
    ends = {step.id: StepStatus.COMPLETED for step in plan.steps}

    assert run(plan, ends, seed) == run(plan, ends, seed)


@given(plans(), st.data())
def test_a_plan_that_is_bent_into_a_circle_is_refused(plan: Plan, data: st.DataObject) -> None:
    first = data.draw(st.sampled_from(plan.steps))
    last = data.draw(st.sampled_from(steps_from(plan, first.id)))
    bent = Plan(
        steps=tuple(
            Step(id=step.id, agent="worker", after=(*step.after, last.id)) if step is first else step
            for step in plan.steps
        )
    )

    with pytest.raises(PlanInvalid, match="comes after itself"):
        check_plan(bent, policy=POLICY, task_type="any")


@given(plans())
def test_a_plan_is_read_back_as_it_was_written(plan: Plan) -> None:
    assert parse_plan(plan_fields(plan)) == plan


VALUES = st.integers(0, 3)
CONDITIONS = st.builds(
    Condition,
    key=st.just("route"),
    operator=st.sampled_from([each for each in Operator if each is not Operator.IN]),
    value=VALUES,
) | st.builds(Condition, key=st.just("route"), operator=st.just(Operator.IN), value=st.lists(VALUES, max_size=3))


@given(st.lists(CONDITIONS, min_size=1, max_size=3))
def test_conditions_that_some_board_fulfils_are_never_called_contradictory(conditions: list[Condition]) -> None:
    boards = [{}, *({"route": number / 2} for number in range(-2, 9))]
    plan = Plan(steps=(Step(id="one", agent="worker", when=tuple(conditions)),))

    try:
        check_plan(plan, policy=POLICY, task_type="any")
    except PlanInvalid:
        assert not any(all(each.holds(board) for each in conditions) for board in boards)
    else:
        assert any(all(each.holds(board) for each in conditions) for board in boards)
