"""Runs of agents as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from msgspec.structs import replace

from tenuto.model.agent_run import AgentKind, AgentRun
from tenuto.model.plan import StepStatus
from tenuto.model.session import usd
from tenuto.model.values import View
from tenuto.tasks.views import RunErrorView, without_exception


class RunToolCallView(View, frozen=True, kw_only=True):
    """A call of a tool; `arguments` are for its agent alone."""

    name: str
    ok: bool
    seconds: float
    arguments: Any


class RunMessageView(View, frozen=True, kw_only=True):
    """A message between an agent and its model."""

    role: str
    text: str


class AgentRunView(View, frozen=True, kw_only=True):
    """The work of an agent on one step, all attempts together. `output`, `messages` and the arguments of tool calls are
    for the agent alone, and empty for others."""

    id: str
    task_id: str
    step: str
    agent: str
    kind: AgentKind
    status: StepStatus
    attempts: int
    error: RunErrorView | None
    output: Any
    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: str
    tool_calls: list[RunToolCallView]
    messages: list[RunMessageView]
    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of(cls, value: AgentRun) -> Self:
        """The view of a run."""
        return cls.derive(
            value,
            error=RunErrorView.of(value.error) if value.error is not None else None,
            cost_usd=usd(value.cost_nanos),
            tool_calls=list(map(RunToolCallView.of, value.tool_calls)),
            messages=list(map(RunMessageView.of, value.messages)),
        )

    def without_exceptions(self) -> Self:
        """The view without what the agent's code raised, as of a task."""
        return replace(self, error=without_exception(self.error))


class AgentRunList(View, frozen=True, kw_only=True):
    """The runs of a task, in the order of its plan."""

    runs: list[AgentRunView]
