"""The model without a language model: the assistant's offline tools, and quotes from the conversation."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

import regex

from tenuto.llm.offline.answers import compose_answer, load_conversation
from tenuto.llm.offline.phrases import PHRASES
from tenuto.llm.sanitize import sound
from tenuto.model.generation import (
    ModelDone,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ToolCall,
    ToolCallRequested,
    ToolContext,
    ToolResult,
)
from tenuto.model.values import JsonObject
from tenuto.ports import OfflineTool, Tool

_log = logging.getLogger(__name__)

_GRAPHEME: Final = regex.compile(r"\X")
# A streamed piece is a word, or so many characters where words have no blanks between them.
_PIECE: Final = 3
_LONGEST: Final = 24


class OfflineModel:
    """Answers without a language model, and says so.

    It calls the tools whose `plan` asks for it, renders what they return, and else quotes the conversation. The same
    request always gets the same answer. A `stand_in` answers because the real model cannot.
    """

    def __init__(self, *, stand_in: bool = False) -> None:
        self._stand_in = stand_in

    @property
    def name(self) -> str:
        """What settings and traces call it."""
        return "offline"

    async def answer(self, asking: ModelRequest, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """Ask for tools, or answer in words."""
        calls = _plan_calls(asking, tools)
        for call in calls:
            yield ToolCallRequested(call=call)
        if not calls:
            for piece in pieces(sound(self._text(asking, tools))):
                yield TextDelta(text=piece)
        yield ModelDone(model=self.name, offline=True)

    def _text(self, asking: ModelRequest, tools: Sequence[Tool]) -> str:
        if asking.turn is not None and asking.results:
            if rendered := [text for result in asking.results if (text := _render(result, asking.turn, tools))]:
                return "\n\n".join(rendered)
            if failed := [result.call.name for result in asking.results if result.failed is not None]:
                return PHRASES[asking.turn.language].tools_failed.format(tools=", ".join(dict.fromkeys(failed)))
        conversation = load_conversation(asking)
        answer = compose_answer(conversation)
        return f"{PHRASES[conversation.language].stand_in}\n{answer}" if self._stand_in else answer


def _plan_calls(asking: ModelRequest, tools: Sequence[Tool]) -> list[ToolCall]:
    """Calls of the tools that the question needs and that have not run yet; each runs once in a turn."""
    turn = asking.turn
    if turn is None:
        return []
    ran = {result.call.name for result in asking.results}
    planned = [(tool.spec.name, _plan(tool, turn)) for tool in tools if tool.spec.name not in ran]
    stamp = f"{int(turn.now.timestamp() * 1000):x}"
    return [
        ToolCall(id=f"call_{stamp}_{len(ran) + number}", name=name, arguments=arguments)
        for number, (name, arguments) in enumerate(planned)
        if arguments is not None
    ]


def _plan(tool: Tool, turn: ToolContext) -> JsonObject | None:
    if not isinstance(tool, OfflineTool):
        return None
    try:
        return tool.plan(turn)
    except Exception as exc:
        # A tool is user code: one that fails here is not called.
        _log.warning("tool %s failed to plan a call: %s", tool.spec.name, type(exc).__name__)
        return None


def _render(result: ToolResult, turn: ToolContext, tools: Sequence[Tool]) -> str:
    if result.failed is not None:
        return ""
    tool = next((one for one in tools if one.spec.name == result.call.name and isinstance(one, OfflineTool)), None)
    if not isinstance(tool, OfflineTool):
        return result.output if isinstance(result.output, str) else ""
    try:
        return tool.render(result.output, turn).strip()
    except Exception as exc:
        _log.warning("tool %s failed to render its output: %s", result.call.name, type(exc).__name__)
        return ""


def pieces(text: str) -> Iterator[str]:
    """A text in the small pieces it is streamed in; none of them splits a grapheme."""
    piece: list[str] = []
    for grapheme in _GRAPHEME.findall(text):
        piece.append(grapheme)
        wide = not grapheme.isascii() and len(piece) >= _PIECE
        if grapheme.isspace() or wide or len(piece) >= _LONGEST:
            yield "".join(piece)
            piece.clear()
    if piece:
        yield "".join(piece)
