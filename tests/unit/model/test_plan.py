"""Plans are read from plain objects, and those that cannot run are refused with the step and the reason."""

from __future__ import annotations

import tomllib
from datetime import timedelta
from typing import Any

import pytest

from tenuto.model.plan import Condition, Operator, Plan, Step, check_plan, parse_plan, plan_fields
from tenuto.model.policy import TaskPolicy
from tenuto.task_errors import AgentNotFound, PlanInvalid

POLICY = TaskPolicy(owners={"refund": "approver"})


def plan_of(*steps: dict[str, Any], **fields: Any) -> Plan:
    return parse_plan({"steps": [{"agent": "worker", **step} for step in steps], **fields})


def refusal(*steps: dict[str, Any], task_type: str = "any", **fields: Any) -> str:
    with pytest.raises(PlanInvalid) as excinfo:
        check_plan(plan_of(*steps, **fields), policy=POLICY, task_type=task_type)
    return str(excinfo.value)


def test_a_plan_of_toml_has_the_same_fields_as_one_of_json() -> None:
    text = """
    timeout = 60
    [[steps]]
    id = "route"
    agent = "router"
    [[steps]]
    id = "labour"
    agent = "labour-law"
    output_key = "opinion"
    after = ["route"]
    retries = 2
    backoff = 0.5
    required = false
    timeout = 3
    when = {key = "route", value = "labour"}
    [[steps]]
    id = "approve"
    human_input = "Send it?"
    after = ["labour"]
    when = [{key = "opinion", operator = "exists"}]
    """

    plan = parse_plan(tomllib.loads(text))

    assert plan.timeout == timedelta(minutes=1)
    assert plan.steps[1] == Step(
        id="labour",
        agent="labour-law",
        output_key="opinion",
        after=("route",),
        retries=2,
        backoff=timedelta(seconds=0.5),
        required=False,
        timeout=timedelta(seconds=3),
        when=(Condition(key="route", value="labour"),),
    )
    assert plan.steps[2].when == (Condition(key="opinion", operator=Operator.EXISTS),)
    assert [step.key for step in plan.steps] == ["route", "opinion", "approve"]
    assert parse_plan(plan_fields(plan)) == plan
    check_plan(plan, policy=POLICY, task_type="any", agents={"router", "labour-law"})


def test_pauses_double_and_are_bounded() -> None:
    step = Step(id="one", agent="worker", backoff=timedelta(seconds=2))

    pauses = [step.pause_before(attempt).total_seconds() for attempt in (1, 2, 3, 4, 100)]

    assert pauses == [0, 2, 4, 8, 300]


def test_a_condition_tells_true_from_one_and_an_absent_key_from_null() -> None:
    assert not Condition(key="n", value=1).holds({"n": True})
    assert Condition(key="n", value=1).holds({"n": 1.0})
    assert Condition(key="n", value=None).holds({"n": None})
    assert not Condition(key="n", value=None).holds({})
    assert not Condition(key="n", operator=Operator.LESS, value=3).holds({"n": "2"})


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([{"id": "a"}, {"id": "a"}], "step a has the id of another step"),
        ([{"id": "a", "after": ["b"]}], "step a comes after b, which is not a step"),
        ([{"id": "a", "after": ["b"]}, {"id": "b", "after": ["a"]}], "step a comes after itself"),
        ([{"id": "a", "after": ["a"]}], "step a comes after itself"),
        ([{"id": "a", "output_key": "x"}, {"id": "b", "output_key": "x"}], "step b writes x as step a does"),
        ([{"id": "a", "output_key": "final_decision"}], "step a writes the protected key final_decision"),
        ([{"id": "a", "human_input": "really?"}], "step a needs either an agent or human_input"),
        ([{"id": "a", "agent": "human"}], "step a names the agent human"),
        ([{"id": "a", "retries": 1000}], "step a retries is not between"),
        ([{"id": "a", "timeout": 0}], "step a timeout is not greater"),
        ([{"id": "a", "when": {"key": "a", "value": 1}}], "step a has a condition on a"),
        ([{"id": "a", "when": {"key": "k", "operator": "in", "value": 1}}], "step a compares by `in`"),
        (
            [{"id": "a", "when": {"key": "k", "operator": "in", "value": [*range(17)]}}],
            "step a compares by `in` with more",
        ),
        ([{"id": "a", "when": [{"key": f"k{n}", "value": 1} for n in range(9)]}], "step a has more than 8 conditions"),
        ([{"id": f"s{n}", "output_key": "x"} for n in range(9)], "the plan has more than 8 steps that write x"),
        ([{"id": "a", "when": {"key": "k", "operator": "<", "value": []}}], "step a compares by `<`"),
        (
            [{"id": "a", "when": [{"key": "k", "value": 1}, {"key": "k", "value": 2}]}],
            "step a has conditions that cannot hold together",
        ),
        ([{"id": "a b"}], "the plan has a step whose id"),
        ([], "the plan must have 1 to 200 steps"),
    ],
)
def test_a_plan_that_cannot_run_is_refused_with_step_and_reason(steps: list[dict[str, Any]], said: str) -> None:
    assert refusal(*steps).startswith(said)


@pytest.mark.parametrize(
    "given",
    [None, [], {"steps": 3}, {"steps": [{"id": "a", "agnet": "x"}]}, {"steps": [{"id": "a", "timeout": -1}]}, {}],
)
def test_what_is_no_plan_is_refused(given: Any) -> None:
    with pytest.raises(PlanInvalid):
        parse_plan(given)


def test_branches_of_which_one_is_taken_may_share_a_key() -> None:
    route = {"id": "route"}
    branches = [
        {"id": name, "after": ["route"], "output_key": "opinion", "when": {"key": "route", "value": name}}
        for name in ("labour", "contract")
    ]

    check_plan(plan_of(route, *branches), policy=POLICY, task_type="any")


def test_the_owner_of_protected_keys_depends_on_the_type() -> None:
    step = {"id": "decide", "agent": "approver", "output_key": "final_decision"}

    check_plan(plan_of(step), policy=POLICY, task_type="refund")

    assert "approver may not write" in refusal(step, task_type="review")


@pytest.mark.requirement("E15")
def test_an_unknown_agent_is_named_by_its_step() -> None:
    with pytest.raises(AgentNotFound) as excinfo:
        check_plan(plan_of({"id": "a"}), policy=POLICY, task_type="any", agents=["reader"])

    assert (excinfo.value.agent, excinfo.value.step) == ("worker", "a")
    assert str(excinfo.value) == "step a names the agent worker, which does not exist"
