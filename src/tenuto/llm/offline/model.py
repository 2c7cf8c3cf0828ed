"""The model without a model: tools that serve themselves, and the talk itself."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

import regex

from tenuto.llm.offline.phrases import CHINESE, ENGLISH
from tenuto.llm.offline.replies import reply_to
from tenuto.llm.offline.talk import talk_of
from tenuto.llm.sound import sound
from tenuto.model.prompt import Language
from tenuto.model.talk import Asking, Called, Ended, ModelEvent, Said, ToolCall, ToolContext, ToolResult
from tenuto.model.values import JsonObject
from tenuto.ports import Greeting, OfflineTool, Tool

_log = logging.getLogger(__name__)

_GRAPHEME: Final = regex.compile(r"\X")
# A piece is a word, or so many characters where words have no blanks between them.
_PIECE: Final = 3
_LONGEST: Final = 24


class OfflineModel:
    """Answers without a language model, and says so.

    It asks the tools that see themselves wanted, tells what they found, and else answers out of the conversation.
    The same asking always gets the same answer. A `stand_in` answers because the real model cannot.
    """

    def __init__(self, *, stand_in: bool = False) -> None:
        self._stand_in = stand_in

    @property
    def name(self) -> str:
        """What settings and traces call it."""
        return "offline"

    async def answer(self, asking: Asking, tools: Sequence[Tool]) -> AsyncIterator[ModelEvent]:
        """Ask for tools, or say what there is to say."""
        calls = _calls(asking, tools)
        for call in calls:
            yield Called(call=call)
        if not calls:
            for piece in pieces(sound(self._words(asking, tools))):
                yield Said(text=piece)
        yield Ended(model=self.name, offline=True)

    def _words(self, asking: Asking, tools: Sequence[Tool]) -> str:
        if asking.turn is not None and asking.results:
            found = [words for result in asking.results if (words := _told(result, asking.turn, tools))]
            if found:
                return "\n\n".join(found)
            if failed := [result.call.name for result in asking.results if result.failed is not None]:
                phrases = CHINESE if asking.turn.language is Language.CHINESE else ENGLISH
                return phrases.failed.format(tools=", ".join(dict.fromkeys(failed)))
        return _greeting(asking.turn, tools) or reply_to(talk_of(asking), self._stand_in)


def _calls(asking: Asking, tools: Sequence[Tool]) -> list[ToolCall]:
    """The tools this question wants and that did not run yet; each runs once in a turn."""
    turn = asking.turn
    if turn is None:
        return []
    ran = {result.call.name for result in asking.results}
    wanted = [(tool.spec.name, _guess(tool, turn)) for tool in tools if tool.spec.name not in ran]
    stamp = f"{int(turn.now.timestamp() * 1000):x}"
    return [
        ToolCall(id=f"call_{stamp}_{len(ran) + number}", name=name, arguments=arguments)
        for number, (name, arguments) in enumerate(wanted)
        if arguments is not None
    ]


def _guess(tool: Tool, turn: ToolContext) -> JsonObject | None:
    if not isinstance(tool, OfflineTool):
        return None
    try:
        return tool.plan(turn)
    except Exception as exc:
        # A tool is somebody's own code; one that stumbles over a question is not wanted for it.
        _log.warning("tool %s could not look at a question: %s", tool.spec.name, type(exc).__name__)
        return None


def _greeting(turn: ToolContext | None, tools: Sequence[Tool]) -> str:
    """The greeting of whoever speaks here, where that is somebody."""
    if turn is None:
        return ""
    for tool in tools:
        try:
            if isinstance(tool, Greeting) and (words := tool.greet(turn)):
                return words
        except Exception as exc:
            _log.warning("tool %s could not greet: %s", tool.spec.name, type(exc).__name__)
    return ""


def _told(result: ToolResult, turn: ToolContext, tools: Sequence[Tool]) -> str:
    if result.failed is not None:
        return ""
    serving = [tool for tool in tools if tool.spec.name == result.call.name and isinstance(tool, OfflineTool)]
    if not serving:
        return result.output if isinstance(result.output, str) else ""
    try:
        return serving[0].render(result.output, turn).strip()
    except Exception as exc:
        _log.warning("tool %s could not tell what it found: %s", result.call.name, type(exc).__name__)
        return ""


def pieces(text: str) -> Iterator[str]:
    """A text in the small pieces it is streamed in; none of them splits a character."""
    piece: list[str] = []
    for grapheme in _GRAPHEME.findall(text):
        piece.append(grapheme)
        wide = not grapheme.isascii() and len(piece) >= _PIECE
        if grapheme.isspace() or wide or len(piece) >= _LONGEST:
            yield "".join(piece)
            piece.clear()
    if piece:
        yield "".join(piece)
