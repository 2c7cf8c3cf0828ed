"""Plans: the steps of a task as an acyclic graph, and the pure rules by which they run.

A plan is data. It has no expression language: a condition compares one value of the task's board.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec

from tenuto.errors import TenutoError
from tenuto.model.policy import TaskPolicy
from tenuto.model.task import Task, TaskError, TaskStatus
from tenuto.model.values import Json, JsonObject, Value, check_id, check_json, check_text, is_number
from tenuto.task_errors import AgentNotFound, PlanInvalid

HUMAN: Final = "human"
"""The writer of the answers to human-input steps."""
MAX_STEPS: Final = 200
MAX_RETRIES: Final = 100
MAX_CONDITIONS: Final = 8
"""Conditions of a step, and steps with one output key; a condition by `in` has twice as many values."""
LONGEST_BACKOFF: Final = timedelta(minutes=5)
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_LONGEST: Final = timedelta(days=366)
# What msgspec repeats of the input, except for names that look like fields: an error names fields and ids only.
_REPEATED: Final = re.compile(r" '.*'|(?<=unknown field) `(?![A-Za-z_.-]{1,40}`).*`(?= - at |\Z)", re.DOTALL)


class Operator(StrEnum):
    """How a condition compares. An absent key is unequal to every value and fulfils no other comparison."""

    EQUAL = "=="
    UNEQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="
    IN = "in"
    EXISTS = "exists"
    ABSENT = "absent"


_UPPER: Final = (Operator.LESS, Operator.AT_MOST)
_LOWER: Final = (Operator.GREATER, Operator.AT_LEAST)
_ORDERED: Final = (*_UPPER, *_LOWER)


class Condition(Value, frozen=True, kw_only=True, gc=True):
    """A comparison of one value of the board. Numbers and texts have an order; other values have none."""

    key: str
    operator: Operator = Operator.EQUAL
    value: Json = None

    def holds(self, board: Mapping[str, Json]) -> bool:
        """Whether the board fulfils it."""
        if self.operator is Operator.EXISTS or self.operator is Operator.ABSENT:
            return (self.key in board) is (self.operator is Operator.EXISTS)
        if self.key not in board:
            return self.operator is Operator.UNEQUAL
        found = board[self.key]
        if self.operator is Operator.IN:
            return any(_same(found, each) for each in self.value)
        if self.operator in _ORDERED:
            return _ordered(found, self.operator, self.value)
        return _same(found, self.value) is (self.operator is Operator.EQUAL)


class Step(Value, frozen=True, kw_only=True):
    """One step: an agent's work, or a question that a person answers (`human_input`).

    The output is stored on the board under `output_key`, by default the step's id. The step begins when all steps in
    `after` have ended and every condition of `when` holds; otherwise it is skipped. A failed step is repeated `retries`
    times, after a pause of `backoff` that doubles each time. If a `required` step fails, so does the task. The agent of
    a `remote` step works elsewhere: no worker calls it, and the step waits until that agent ends it.
    """

    id: str
    agent: str | None = None
    human_input: str | None = None
    output_key: str = ""
    after: tuple[str, ...] = ()
    required: bool = True
    timeout: timedelta | None = None
    retries: int = 0
    backoff: timedelta = timedelta(seconds=1)
    when: tuple[Condition, ...] = ()
    remote: bool = False

    @property
    def waits(self) -> bool:
        """Whether it waits to be ended from outside: by a person, or by an agent elsewhere."""
        return self.human_input is not None or self.remote

    @property
    def key(self) -> str:
        """The key of its output on the board."""
        return self.output_key or self.id

    @property
    def writer(self) -> str:
        """The name under which its output is written."""
        return self.agent or HUMAN

    def pause_before(self, attempt: int) -> timedelta:
        """The pause before an attempt; the first attempt is 1."""
        return min(self.backoff * 2 ** min(attempt - 2, 32), LONGEST_BACKOFF) if attempt > 1 else timedelta(0)


class Plan(Value, frozen=True, kw_only=True):
    """The steps of a task; `timeout` limits the whole task."""

    steps: tuple[Step, ...]
    timeout: timedelta | None = None

    @property
    def called_agents(self) -> frozenset[str]:
        """The agents that a worker calls."""
        return frozenset(step.agent for step in self.steps if step.agent is not None and not step.remote)

    def step(self, step_id: str) -> Step | None:
        """The step of an id."""
        return next((step for step in self.steps if step.id == step_id), None)


class StepStatus(StrEnum):
    """The status of a step. `waiting` is a human-input or remote step that was not ended yet."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


class StepRun(Value, frozen=True, kw_only=True):
    """What became of a step so far. `attempts` counts all its beginnings, `takeovers` those after a worker was lost."""

    step: str
    agent: str | None
    status: StepStatus
    attempts: int = 0
    takeovers: int = 0
    output: Json = None
    error: TaskError | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


class TaskProgress(Value, frozen=True, kw_only=True):
    """A task, its plan, and its steps in the order of the plan. A task without a plan has neither."""

    task: Task
    plan: Plan | None = None
    steps: tuple[StepRun, ...] = ()


ENDED: Final = frozenset({StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.SKIPPED})
States = Mapping[str, StepStatus]


# Running


def ready_steps(plan: Plan, states: States) -> tuple[Step, ...]:
    """The steps that may begin now, in the order of the plan; none after a required step has failed."""
    if failed_step(plan, states) is not None:
        return ()
    ended = {step_id for step_id, status in states.items() if status in ENDED}
    return tuple(
        step for step in plan.steps if _status(states, step) is StepStatus.PENDING and ended.issuperset(step.after)
    )


def outcome(plan: Plan, states: States) -> TaskStatus:
    """What the states of the steps mean for the task.

    A failed optional step counts as ended. A failed required step fails the task as soon as no other step is running
    or waiting; steps that have not begun then never begin.
    """
    status = [_status(states, step) for step in plan.steps]
    if StepStatus.RUNNING in status or StepStatus.WAITING in status:
        return TaskStatus.RUNNING
    if failed_step(plan, states) is not None:
        return TaskStatus.FAILED
    return TaskStatus.COMPLETED if ENDED.issuperset(status) else TaskStatus.RUNNING


def failed_step(plan: Plan, states: States) -> Step | None:
    """The first required step, in the order of the plan, that has failed."""
    return next((step for step in plan.steps if step.required and states.get(step.id) is StepStatus.FAILED), None)


def steps_from(plan: Plan, step_id: str) -> tuple[Step, ...]:
    """A step and all that come after it, directly or not, in the order of the plan."""
    before = _ancestors(plan)
    return tuple(step for step in plan.steps if step.id == step_id or step_id in before[step.id])


def _status(states: States, step: Step) -> StepStatus:
    return states.get(step.id, StepStatus.PENDING)


# Reading


class ConditionFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A condition on one value of the board, as written in a plan."""

    key: str
    operator: Operator = Operator.EQUAL
    value: Any = None


class StepFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A step as submitted: with an `agent`, or with `human_input`, a question to a person. Times are
    seconds."""

    id: str
    agent: str | None = None
    human_input: str | None = None
    output_key: str = ""
    after: list[str] = []
    required: bool = True
    timeout: float | None = None
    retries: int = 0
    backoff: float = 1.0
    when: ConditionFields | list[ConditionFields] | None = None
    remote: bool = False


class PlanFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A plan as submitted; `timeout` applies to the whole plan, in seconds."""

    steps: list[StepFields]
    timeout: float | None = None


def parse_plan(given: Json) -> Plan:
    """A plan from the objects of JSON or TOML; durations are seconds. `check_plan` checks its sense.

    Raises:
        PlanInvalid: a field is unknown, absent or of another type.
    """
    try:
        fields = msgspec.convert(given, PlanFields)
    except msgspec.ValidationError as error:
        raise PlanInvalid(None, f"does not fit: {_REPEATED.sub('', str(error))}") from None
    return Plan(steps=tuple(map(_to_step, fields.steps)), timeout=_duration(None, "timeout", fields.timeout))


def plan_fields(plan: Plan) -> JsonObject:
    """A plan as `parse_plan` reads it, without fields that have their default."""
    fields: JsonObject = {"steps": [_step_fields(step) for step in plan.steps]}
    return fields if plan.timeout is None else {**fields, "timeout": plan.timeout.total_seconds()}


def _to_step(fields: StepFields) -> Step:
    given = fields.when
    when = [] if given is None else [given] if isinstance(given, ConditionFields) else given
    return Step(
        id=fields.id,
        agent=fields.agent,
        human_input=fields.human_input,
        output_key=fields.output_key,
        after=tuple(fields.after),
        required=fields.required,
        timeout=_duration(fields.id, "timeout", fields.timeout),
        retries=fields.retries,
        backoff=_duration(fields.id, "backoff", fields.backoff) or timedelta(0),
        when=tuple(Condition(key=each.key, operator=each.operator, value=each.value) for each in when),
        remote=fields.remote,
    )


def _duration(step: str | None, what: str, seconds: float | None) -> timedelta | None:
    if seconds is None:
        return None
    if not 0 <= seconds <= _LONGEST.total_seconds():
        raise PlanInvalid(step, f"{what} is not a number of seconds up to a year")
    return timedelta(seconds=seconds)


def _step_fields(step: Step) -> JsonObject:
    fields = msgspec.to_builtins(step, builtin_types=(timedelta,))
    seconds = {name: value.total_seconds() for name, value in fields.items() if isinstance(value, timedelta)}
    return {**fields, **seconds}


# Checking


def check_plan(plan: Plan, *, policy: TaskPolicy, task_type: str, agents: Container[str] | None = None) -> None:
    """Refuse a plan that cannot run; with `agents`, one that names another agent.

    Raises:
        PlanInvalid: it names the step and the reason.
        AgentNotFound: no agent has the name of a step's agent.
    """
    if not 0 < len(plan.steps) <= MAX_STEPS:
        raise PlanInvalid(None, f"must have 1 to {MAX_STEPS} steps")
    _check_timeout(None, plan.timeout)
    known: set[str] = set()
    for step in plan.steps:
        _check_step(step)
        if step.id in known:
            raise PlanInvalid(step.id, "has the id of another step")
        known.add(step.id)
    for step in plan.steps:
        if unknown := [before for before in step.after if before not in known]:
            raise PlanInvalid(step.id, f"comes after {unknown[0]}, which is not a step")
    before = _ancestors(plan)
    for step in plan.steps:
        if step.id in before[step.id]:
            raise PlanInvalid(step.id, "comes after itself")
    _check_keys(plan, before)
    for step in plan.steps:
        if policy.protects(step.key) and step.writer != policy.owner_of(task_type):
            raise PlanInvalid(step.id, f"writes the protected key {step.key}, which {step.writer} may not write")
        if agents is not None and step.agent is not None and not step.remote and step.agent not in agents:
            raise AgentNotFound(step.agent, step.id)


def _check_step(step: Step) -> None:
    if _ID.fullmatch(step.id) is None:
        raise PlanInvalid(None, "has a step whose id is not 1 to 64 letters, digits, dots, dashes or underscores")
    if (step.agent is None) is (step.human_input is None):
        raise PlanInvalid(step.id, "needs either an agent or human_input")
    if step.remote and step.agent is None:
        raise PlanInvalid(step.id, "is remote, which is for steps of an agent")
    if step.agent == HUMAN:
        raise PlanInvalid(step.id, f"names the agent {HUMAN}, which is the writer of human input")
    if not 0 <= step.retries <= MAX_RETRIES:
        raise PlanInvalid(step.id, f"retries is not between 0 and {MAX_RETRIES}")
    if not timedelta(0) <= step.backoff <= LONGEST_BACKOFF:
        raise PlanInvalid(step.id, f"backoff is not between 0 and {LONGEST_BACKOFF.total_seconds():.0f} seconds")
    if len(step.when) > MAX_CONDITIONS:
        raise PlanInvalid(step.id, f"has more than {MAX_CONDITIONS} conditions")
    _check_timeout(step.id, step.timeout)
    try:
        check_id(step.key, "output_key")
        check_id(step.writer, "agent")
        check_text(step.human_input or "", "human_input")
        for condition in step.when:
            check_id(condition.key, "the key of a condition")
            check_json(condition.value, "the value of a condition")
    except TenutoError as error:
        raise PlanInvalid(step.id, str(error)) from None
    for condition in step.when:
        _check_condition(step, condition)
    if _contradict(step.when):
        raise PlanInvalid(step.id, "has conditions that cannot hold together")


def _check_timeout(step: str | None, timeout: timedelta | None) -> None:
    if timeout is not None and not timedelta(0) < timeout <= _LONGEST:
        raise PlanInvalid(step, "timeout is not greater than zero and at most a year")


def _check_condition(step: Step, condition: Condition) -> None:
    operator, value = condition.operator, condition.value
    if operator is Operator.IN and not isinstance(value, list | tuple):
        raise PlanInvalid(step.id, "compares by `in` with a value that is not a list")
    if operator is Operator.IN and len(value) > 2 * MAX_CONDITIONS:
        raise PlanInvalid(step.id, f"compares by `in` with more than {2 * MAX_CONDITIONS} values")
    if operator in _ORDERED and not (is_number(value) or isinstance(value, str)):
        raise PlanInvalid(step.id, f"compares by `{operator}` with a value that is neither a number nor a text")


def _check_keys(plan: Plan, before: Mapping[str, frozenset[str]]) -> None:
    """Refuse what depends on which of two parallel steps is faster."""
    for key, count in Counter(step.key for step in plan.steps).items():
        if count > MAX_CONDITIONS:
            raise PlanInvalid(None, f"has more than {MAX_CONDITIONS} steps that write {key}")
    for place, step in enumerate(plan.steps):
        for other in plan.steps[:place]:
            parallel = other.id not in before[step.id] and step.id not in before[other.id]
            # Steps of two branches of which only one is taken may share a key.
            if step.key == other.key and parallel and not _contradict((*step.when, *other.when)):
                raise PlanInvalid(step.id, f"writes {step.key} as step {other.id} does, and both may run in parallel")
    writers = {step.key: step.id for step in plan.steps}
    for step in plan.steps:
        for condition in step.when:
            writer = writers.get(condition.key)
            earlier = [each.id for each in plan.steps if each.key == condition.key and each.id in before[step.id]]
            if writer is not None and not earlier:
                raise PlanInvalid(step.id, f"has a condition on {condition.key}, but does not come after step {writer}")


def _ancestors(plan: Plan) -> dict[str, frozenset[str]]:
    """For each step all steps that come before it; in a cycle these include the step itself."""
    after = {step.id: step.after for step in plan.steps}

    def reach(step_id: str) -> Iterator[str]:
        seen: set[str] = set()
        to_do = list(after[step_id])
        while to_do:
            one = to_do.pop()
            if one not in seen:
                seen.add(one)
                to_do += after.get(one, ())
                yield one

    return {step_id: frozenset(reach(step_id)) for step_id in after}


def _contradict(conditions: tuple[Condition, ...]) -> bool:
    """Whether no board fulfils all conditions; some contradictions between texts and numbers are not seen."""
    keys = {condition.key for condition in conditions}
    return any(_contradict_on(key, [each for each in conditions if each.key == key]) for key in keys)


def _contradict_on(key: str, conditions: list[Condition]) -> bool:
    if all(condition.holds({}) for condition in conditions):
        return False
    if any(condition.operator is Operator.ABSENT for condition in conditions):
        return True
    chosen = [
        [condition.value] if condition.operator is Operator.EQUAL else list(condition.value)
        for condition in conditions
        if condition.operator in (Operator.EQUAL, Operator.IN)
    ]
    if chosen:
        return not any(all(each.holds({key: value}) for each in conditions) for value in chosen[0])
    lower = [each for each in conditions if each.operator in _LOWER]
    upper = [each for each in conditions if each.operator in _UPPER]
    return any(not _overlap(low, high) for low in lower for high in upper)


def _overlap(low: Condition, high: Condition) -> bool:
    both = low.operator is Operator.AT_LEAST and high.operator is Operator.AT_MOST
    return _ordered(low.value, Operator.AT_MOST if both else Operator.LESS, high.value)


def _same(one: Json, other: Json) -> bool:
    # True is 1 to Python, but not to JSON.
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _ordered(one: Json, operator: Operator, other: Json) -> bool:
    if not (is_number(one) and is_number(other)) and not (isinstance(one, str) and isinstance(other, str)):
        return False
    if operator is Operator.LESS:
        return bool(one < other)
    if operator is Operator.AT_MOST:
        return bool(one <= other)
    return bool(one > other) if operator is Operator.GREATER else bool(one >= other)
