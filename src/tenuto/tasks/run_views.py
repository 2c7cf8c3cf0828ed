"""Runs of agents as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from msgspec.structs import replace

from tenuto.model.agent_run import AgentKind, AgentRun
from tenuto.model.plan import StepStatus
from tenuto.model.session import usd
from tenuto.model.task import AGENT_FAILED
from tenuto.model.values import View


class RunErrorView(View, frozen=True, kw_only=True):
    """Why the last attempt failed; `code` is stable. The message of `agent_failed` is as in a task."""

    code: str
    message: str


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
        if self.error is None or self.error.code != AGENT_FAILED:
            return self
        return replace(self, error=replace(self.error, message=""))


class AgentRunList(View, frozen=True, kw_only=True):
    """The runs of a task, in the order of its plan."""

    runs: list[AgentRunView]
