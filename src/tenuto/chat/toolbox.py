"""Runs tools and collects what they leave.

A tool that fails becomes a result that says so, and the turn goes on. Tools can leave state for the next question. The
state is part of the answer's metadata, so an undo, a truncation, a fork or an export takes it along with the answer. A
turn loads only the end of the log, therefore every answer carries the state on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from msgspec.structs import replace

from tenuto.chat.request import ChatEvent, ToolFinished, ToolStarted
from tenuto.errors import Invalid, TenutoError, ToolError
from tenuto.logs import describe_exception, explain_exception
from tenuto.model import Draft, Message, Role
from tenuto.model.generation import UNREADABLE, ToolCall, ToolContext, ToolOutput, ToolResult
from tenuto.model.message import STATE, metadata_bytes
from tenuto.model.prompt import Piece
from tenuto.model.turn import ToolRun
from tenuto.model.values import JsonObject, check_json, check_text
from tenuto.ports import OfflineTool, SpanAttributes, Telemetry, Tool

Emit: TypeAlias = Callable[[ChatEvent], Awaitable[None]]
_log = logging.getLogger(__name__)


def milliseconds_since(began: float) -> float:
    """From an instant of `time.perf_counter` to now."""
    return round((time.perf_counter() - began) * 1000, 3)


class _InvalidOutput(Exception):
    """A tool's output cannot be stored; the message names the part."""


@dataclass(slots=True, kw_only=True)
class Toolbox:
    """Runs tools and collects results for the model, evidence, data and state. The turn `began` at that instant."""

    tools: Sequence[Tool]
    turn: ToolContext
    timeout: timedelta
    emit: Emit
    telemetry: Telemetry | None = None
    began: float = field(default_factory=time.perf_counter)
    results: list[ToolResult] = field(default_factory=list)
    runs: list[ToolRun] = field(default_factory=list)
    pieces: tuple[Piece, ...] | None = None
    data: JsonObject = field(default_factory=dict)
    state: JsonObject = field(default_factory=dict)
    reply: str | None = None
    intent: str | None = None

    async def run(self, call: ToolCall) -> ToolResult:
        """Run one tool; a failure becomes a result that says so."""
        await self.emit(ToolStarted(name=call.name))
        began = time.perf_counter()
        with self._span(call) as span:
            output, failed, exception = await self._call_tool(call)
            if span is not None and failed is not None:
                span.set_error(failed)
        taken = milliseconds_since(began)
        result = ToolResult(call=call, output=output, error=failed)
        self.results.append(result)
        self.runs.append(
            ToolRun(
                name=call.name,
                arguments=call.arguments,
                output=output,
                milliseconds=taken,
                error=failed,
                start=round((began - self.began) * 1000, 3),
                exception=exception,
            )
        )
        await self.emit(ToolFinished(name=call.name, milliseconds=taken, error=failed))
        return result

    def note_cut(self, result: ToolResult, tokens: int, uncut_tokens: int) -> None:
        """Record that the prompt has a part of an output."""
        place = next(place for place, each in enumerate(self.results) if each is result)
        self.runs[place] = replace(self.runs[place], tokens=tokens, uncut_tokens=uncut_tokens)

    def _span(self, call: ToolCall) -> AbstractContextManager[SpanAttributes | None]:
        if self.telemetry is None:
            return nullcontext()
        is_known = any(tool.spec.name == call.name for tool in self.tools)
        return self.telemetry.tool(call.name if is_known else "", call_id=call.id)

    async def _call_tool(self, call: ToolCall) -> tuple[object, str | None, str]:
        """The output for the model, the code of a failure, and what the tool raised, for readers of the trace."""
        tools = {tool.spec.name: tool for tool in self.tools}
        tool = tools.get(call.name)
        if tool is None:
            names = ", ".join(tools) or "none"
            return f"There is no such tool; available: {names}.", "no_such_tool", ""
        try:
            if UNREADABLE in call.arguments:
                raise Invalid("they are no JSON object, or within other text: make the call alone, or answer without")
            async with asyncio.timeout(self.timeout.total_seconds()):
                outcome = await tool.run(call.arguments, self.turn)
            _check_output(outcome)
        except TimeoutError:
            return "The tool took too long.", "tool_timeout", ""
        except ToolError as error:
            return str(error), error.code, ""
        except Invalid as error:
            return f"The arguments do not fit: {error}", error.code, ""
        except _InvalidOutput as error:
            _log.error("tool %s answered with %s", call.name, error)
            return "The tool failed.", "tool_failed", f"it answered with {error}"
        except TenutoError as error:
            return f"The tool could not answer: {error}", error.code, ""
        except Exception as error:
            _log.error("tool %s failed: %s", call.name, describe_exception(error))
            return "The tool failed.", "tool_failed", explain_exception(error)
        self.collect(outcome)
        return outcome.output, None, ""

    def collect(self, outcome: ToolOutput) -> None:
        """Add what a tool left beside its output."""
        if outcome.snippets is not None:
            self.pieces = (*(self.pieces or ()), *outcome.snippets)
        self.data = {**self.data, **outcome.data}
        self.state = {**self.state, **outcome.state}
        if outcome.final_answer is not None:
            self.reply = outcome.final_answer
        self.intent = outcome.intent or self.intent


def _check_output(outcome: ToolOutput) -> None:
    """Refuse an output that cannot be stored, as a failure of the tool."""
    for what in ("output", "data", "state"):
        try:
            check_json(getattr(outcome, what), what)
        except Invalid as error:
            raise _InvalidOutput(f"unsound {what}") from error
    if outcome.final_answer is not None:
        try:
            check_text(outcome.final_answer, "reply")
        except Invalid as error:
            raise _InvalidOutput("an unsound reply") from error


def plan_arguments(tool: OfflineTool, turn: ToolContext) -> JsonObject | None:
    """The arguments a question calls for; a tool that fails on it is not run."""
    try:
        return tool.plan(turn)
    except Exception as error:
        _log.error("a tool could not plan its arguments: %s", describe_exception(error))
        return None


def load_tool_state(messages: Sequence[Message], assistant: str) -> JsonObject:
    """The tool state in the newest answer of an assistant; clients may have written it."""
    for message in reversed(messages):
        left = message.metadata.get(STATE) if message.role is Role.ASSISTANT else None
        state = left.get(assistant) if isinstance(left, dict) else None
        if isinstance(state, dict):
            return state
    return {}


def with_tool_state(answer: Draft, assistant: str, state: JsonObject, most: int) -> Draft:
    """The answer with the tool state; with an empty state if it exceeds the size of a message.

    The empty state keeps an earlier one from being used.
    """
    for kept in (state, {}):
        with_state = replace(answer, metadata={**answer.metadata, STATE: {assistant: kept}})
        if metadata_bytes(with_state) <= most:
            return with_state
        _log.warning("the tool state of %s is too large to be stored with the answer", assistant)
    return answer
