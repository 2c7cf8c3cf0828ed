"""One run of a Pydantic AI agent, and what became of it. Importing this takes a second or two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from pydantic_ai import capture_run_messages
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RunUsage
from pydantic_core import to_jsonable_python

from tenuto.llm.pydantic_ai_messages import to_call, to_messages
from tenuto.model import Message, Role
from tenuto.model.generation import ToolCall
from tenuto.model.prompt import PromptMessage
from tenuto.model.reasoning import REASONING
from tenuto.model.values import Json

# A typed output comes as the call of a tool of such a name.
_OUTPUT: Final = "final_result"


class AgentToolCall(NamedTuple):
    """A call of a tool; one that the model was asked to repeat is not `ok`."""

    call: ToolCall
    ok: bool
    seconds: float


class PydanticAgentRun:
    """Runs an agent once. What it used and said is known also if it fails."""

    def __init__(self, agent: AbstractAgent[Any, Any]) -> None:
        self._agent = agent
        self._usage = RunUsage()
        self._messages: list[ModelMessage] = []

    async def run(self, goal: str, *, instructions: str, history: Sequence[Message], deps: Any) -> Json:
        """The agent's output as JSON; `deps` are what its tools receive."""
        said = to_messages([_without_thoughts(one) for one in history if _is_spoken(one)])
        with capture_run_messages() as messages:
            try:
                done = await self._agent.run(
                    goal, message_history=said, instructions=instructions, deps=deps, usage=self._usage
                )
            finally:
                self._messages = messages[len(said) :]
        return to_jsonable_python(done.output)

    @property
    def usage(self) -> tuple[int, int, int]:
        """Requests, input tokens and output tokens."""
        return self._usage.requests, self._usage.input_tokens, self._usage.output_tokens

    @property
    def cost_nanos(self) -> int:
        """The cost in billionths of a dollar; requests without a known price count as 0."""
        return sum(_cost(message) for message in self._messages if isinstance(message, ModelResponse))

    def tool_calls(self) -> Iterator[AgentToolCall]:
        """The calls of tools that have ended."""
        asked: dict[str, tuple[ToolCallPart, datetime]] = {}
        for message in self._messages:
            for part in message.parts:
                if isinstance(message, ModelResponse) and isinstance(part, ToolCallPart):
                    if not part.tool_name.startswith(_OUTPUT):
                        asked[part.tool_call_id] = part, message.timestamp
                elif isinstance(part, ToolReturnPart | RetryPromptPart) and part.tool_call_id in asked:
                    call, since = asked.pop(part.tool_call_id)
                    ok = isinstance(part, ToolReturnPart) and part.outcome == "success"
                    yield AgentToolCall(to_call(call), ok, max((part.timestamp - since).total_seconds(), 0.0))

    def messages(self) -> Iterator[tuple[str, str]]:
        """Role and text of what was said, without the history; calls of tools are left out."""
        for message in self._messages:
            for part in message.parts:
                if isinstance(part, TextPart) and part.content:
                    yield Role.ASSISTANT, part.content
                elif isinstance(part, UserPromptPart) and isinstance(part.content, str):
                    yield Role.USER, part.content


def _is_spoken(message: Message) -> bool:
    """Whether it is text of a user or an assistant: calls of other assistants' tools mean nothing to this agent."""
    return message.role in (Role.USER, Role.ASSISTANT) and bool(message.text)


def _without_thoughts(message: Message) -> PromptMessage:
    """The message without what another model thought."""
    parts = tuple(part for part in message.parts if part["type"] != REASONING)
    return PromptMessage(role=message.role, parts=parts)


def _cost(response: ModelResponse) -> int:
    try:
        return int(response.cost().total_price * 1_000_000_000)
    except (LookupError, ValueError, AssertionError):
        return 0
