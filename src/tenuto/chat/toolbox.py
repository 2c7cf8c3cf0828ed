"""An assistant's tools at work within one turn: whatever a tool or a model does wrong, the turn goes on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeAlias

from tenuto.chat.request import ChatEvent, ToolFinished, ToolStarted
from tenuto.chat.timing import milliseconds_since
from tenuto.errors import Invalid, TenutoError
from tenuto.llm import UNREADABLE
from tenuto.model.generation import ToolCall, ToolContext, ToolOutput, ToolResult
from tenuto.model.prompt import Piece
from tenuto.model.trace import ToolRun
from tenuto.model.values import JsonObject, check_json, check_text
from tenuto.ports import OfflineTool, Tool

Emit: TypeAlias = Callable[[ChatEvent], Awaitable[None]]

_log = logging.getLogger(__name__)


class _InvalidOutput(Exception):
    """A tool's answer holds what no store can keep; says which part of it."""


class Toolbox:
    """Runs tools, and collects what they brought: results for the model, evidence, data and state for the session."""

    def __init__(self, *, tools: Sequence[Tool], turn: ToolContext, timeout: timedelta, emit: Emit) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}
        self._turn = turn
        self._timeout = timeout.total_seconds()
        self._emit = emit
        self.results: list[ToolResult] = []
        self.runs: list[ToolRun] = []
        self.pieces: tuple[Piece, ...] | None = None
        self.data: JsonObject = {}
        self.state: JsonObject = {}
        self.reply: str | None = None

    @property
    def any_failed(self) -> bool:
        """Whether any tool did not answer."""
        return any(result.failed for result in self.results)

    async def run(self, call: ToolCall) -> ToolResult:
        """Run one tool; a failure becomes a result that says so."""
        await self._emit(ToolStarted(name=call.name))
        began = time.perf_counter()
        output, failed = await self._call_tool(call)
        taken = milliseconds_since(began)
        result = ToolResult(call=call, output=output, failed=failed)
        self.results.append(result)
        self.runs.append(
            ToolRun(name=call.name, arguments=call.arguments, output=output, milliseconds=taken, error=failed)
        )
        await self._emit(ToolFinished(name=call.name, milliseconds=taken, failed=failed))
        return result

    async def _call_tool(self, call: ToolCall) -> tuple[object, str | None]:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return f"There is no such tool; there are: {known}.", "no_such_tool"
        try:
            if UNREADABLE in call.arguments:
                raise Invalid("they are no JSON object")
            async with asyncio.timeout(self._timeout):
                outcome = await tool.run(call.arguments, self._turn)
            _check_output(outcome)
        except TimeoutError:
            return "The tool took too long.", "tool_timeout"
        except Invalid as unfit:
            return f"The arguments do not fit: {unfit}", unfit.code
        except _InvalidOutput as unsound:
            _log.error("tool %s answered with %s", call.name, unsound)
            return "The tool failed.", "tool_failed"
        except TenutoError as refused:
            return f"The tool could not answer: {refused}", refused.code
        except Exception as fault:
            # Only its kind: the text of a stranger's exception may quote what a user said.
            _log.error("tool %s failed: %s", call.name, type(fault).__name__)
            return "The tool failed.", "tool_failed"
        self._collect(outcome)
        return outcome.output, None

    def _collect(self, outcome: ToolOutput) -> None:
        if outcome.pieces is not None:
            self.pieces = (*(self.pieces or ()), *outcome.pieces)
        self.data = {**self.data, **outcome.data}
        self.state = {**self.state, **outcome.state}
        if outcome.reply is not None:
            self.reply = outcome.reply


def _check_output(outcome: ToolOutput) -> None:
    """Refuse an answer that could not be stored, as a fault of the tool and not of the question."""
    for what in ("output", "data", "state"):
        try:
            check_json(getattr(outcome, what), what)
        except Invalid as unfit:
            raise _InvalidOutput(f"unsound {what}") from unfit
    if outcome.reply is not None:
        try:
            check_text(outcome.reply, "reply")
        except Invalid as unfit:
            raise _InvalidOutput("an unsound reply") from unfit


def plan_arguments(tool: OfflineTool, turn: ToolContext) -> JsonObject | None:
    """The arguments a question calls for; a tool that stumbles over it is not wanted."""
    try:
        return tool.plan(turn)
    except Exception as fault:
        _log.error("a tool could not look at a question: %s", type(fault).__name__)
        return None
