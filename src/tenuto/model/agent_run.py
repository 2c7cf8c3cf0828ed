"""An agent's run: what became of its work on one step, what it cost, and what is the agent's own."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from tenuto.model.message import Message
from tenuto.model.plan import StepStatus
from tenuto.model.task import BoardView, Note, TaskError
from tenuto.model.values import Json, JsonObject, Value


class AgentKind(StrEnum):
    """What an agent is."""

    FUNCTION = "function"
    PYDANTIC_AI = "pydantic_ai"
    ASSISTANT = "assistant"


class RunToolCall(Value, frozen=True, kw_only=True):
    """A call of a tool. Its arguments are the agent's own."""

    name: str
    ok: bool = True
    seconds: float = 0.0
    arguments: Json = None


class RunMessage(Value, frozen=True, kw_only=True):
    """A message between an agent and its model."""

    role: str
    text: str


class AgentRun(Value, frozen=True, kw_only=True):
    """The work of an agent on one step of a task, all attempts together.

    Messages, the arguments of tool calls and the output are for the agent alone; for other readers they are empty. The
    first two are removed when the task ends, or an hour after they were written.
    """

    id: str
    task_id: str
    step: str
    agent: str
    kind: AgentKind
    status: StepStatus
    attempts: int
    error: TaskError | None = None
    output: Json = None
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nanos: int = 0
    tool_calls: tuple[RunToolCall, ...] = ()
    messages: tuple[RunMessage, ...] = ()
    started_at: datetime | None = None
    ended_at: datetime | None = None


class AgentSnapshot(Value, frozen=True, kw_only=True):
    """All that an agent sees of a task at one moment, for agents in other processes.

    `history` are the newest messages of the task's session, oldest first; `messages` those of the agent's own runs.
    """

    task_id: str
    agent: str
    goal: str
    session_id: str | None
    history: tuple[Message, ...]
    profile: JsonObject
    board: BoardView
    notes: tuple[Note, ...]
    messages: tuple[RunMessage, ...]
    prompt: str
