"""The talk as the offline model reads it: who said what, in sentences, and never more than it can read in a moment."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tenuto.llm.offline.correcting import takes_back
from tenuto.llm.offline.phrases import is_own
from tenuto.model.expression import expression
from tenuto.model.message import Message, Role, chatter_in
from tenuto.model.prompt import Language, PromptMessage
from tenuto.model.stops import ends_sentence
from tenuto.model.talk import Asking, ToolContext

# What is read of one message, of the question, and of the whole talk, in characters; the newest of it counts.
_MESSAGE: Final = 4_000
_QUESTION: Final = 2_000
_TALK: Final = 100_000
_SENTENCE: Final = 400

_BREAK: Final = expression(r"(?<=[.!?])\s+|(?<=[。！？；])|\n")
# A list set out in one line, whose figures end no sentence: "1. Lisbon 2. Madrid". Looked for up to the next 1, where
# it would be looked for anew.
_IN_ONE_LINE: Final = expression(
    r"(?<![^\s:：,，;；])1[.)、]\s?(?:(?![\s:：,，;；]1[.)、])[^\n]){1,200}?[\s,，;；]2[.)、]"
)
_BREAK_BUT_AT_FIGURES: Final = expression(r"(?<=[.!?])(?<!\b\d\.)(?<!\b\d\d\.)\s+|(?<=[。！？；])|\n")
_LABEL: Final = expression(r"^\s*(?:[-*•]\s*)?(user|用户|assistant|助手)\s*[:：]\s*", re.IGNORECASE)
_HAN: Final = expression(r"[\u3400-\u9fff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One utterance. `own` are the words of whoever asks now.

    `chatter` is what the offline model said of itself or quoted, which is no source for another answer; `idle` are
    the words that it was the answer to. What is `retold` stands in a summary, out of its order.
    """

    text: str
    own: bool = False
    model: bool = False
    chatter: bool = False
    idle: bool = False
    retold: bool = False

    def sentences(self) -> list[str]:
        """What was said, piece by piece; overlong ones are cut."""
        end = _BREAK_BUT_AT_FIGURES if _IN_ONE_LINE.search(self.text) else _BREAK
        return [piece.strip()[:_SENTENCE] for piece in _pieces(self.text, end) if piece.strip()]


def _pieces(text: str, end: re.Pattern[str]) -> Iterator[str]:
    start = 0
    for found in end.finditer(text):
        stop = found.start() - 1
        if text[stop] == "." and "\n" not in found[0] and not ends_sentence(text, stop):
            continue
        yield text[start : found.start()]
        start = found.end()
    yield text[start:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """A question and what was said before it, oldest first. `chinese` is the language to answer in.

    It is `whole` when nothing of what was said before is missing.
    """

    question: str
    chinese: bool
    lines: tuple[Line, ...] = ()
    tools: bool = False
    whole: bool = True

    @property
    def sources(self) -> Iterator[Line]:
        """What an answer may rest on."""
        return (line for line in standing(self.lines) if not line.chatter)

    def own(self) -> list[Line]:
        """What the person who asks has said."""
        return [line for line in self.lines if line.own]

    def models(self) -> list[Line]:
        """What was answered."""
        return [line for line in self.lines if line.model]


def standing(lines: Iterable[Line]) -> list[Line]:
    """What was said, without what somebody took back by their next words."""
    kept: list[Line] = []
    for line in lines:
        if line.own and takes_back(line.text):
            said = next((place for place in reversed(range(len(kept))) if kept[place].own), None)
            kept = kept if said is None else [*kept[:said], *kept[said + 1 :]]
        else:
            kept.append(line)
    return kept


def talk_of(asking: Asking) -> Talk:
    """The talk behind an asking: the turn's own history where there is one, else what the prompt shows."""
    turn, tools = asking.turn, bool(asking.tools)
    if turn is not None:
        notes = [] if any(map(_summary, turn.history)) else _notes(asking.messages)
        lines = [*notes, *_lines(turn.history, turn.scope.user)]
        return Talk(
            question=_start(turn.question, _QUESTION),
            chinese=turn.language is Language.CHINESE,
            lines=_newest(lines),
            tools=tools,
            whole=_is_whole(turn),
        )
    said = [message for message in asking.messages if message.role in (Role.USER, Role.ASSISTANT)]
    question = said.pop().text if said and said[-1].role is Role.USER else ""
    lines = [*_notes(asking.messages), *(_shown(message) for message in said)]
    chinese = _HAN.search(question[:_QUESTION]) is not None
    return Talk(question=_start(question, _QUESTION), chinese=chinese, lines=_newest(lines), tools=tools)


def _is_whole(turn: ToolContext) -> bool:
    """Whether the history begins where the talk does; a talk whose beginning was edited begins with a later number."""
    if not turn.history:
        return True
    if any(map(_summary, turn.history)):
        return False
    stored = turn.session.messages if turn.session is not None else math.inf
    return turn.history[0].seq <= 1 or stored <= len(turn.history) + 1


def _start(text: str, limit: int) -> str:
    """A text, or of a long one its beginning and its end, where the question often stands."""
    return text if len(text) <= limit else text[: limit - limit // 4] + "\n" + text[-limit // 4 :]


def _lines(history: Sequence[Message], asker: str | None) -> Iterator[Line]:
    chat = chatter_in(history)
    for message in history:
        if summary := _summary(message):
            yield from _covered(summary)
        elif message.role is Role.USER and message.text:
            foreign = asker is not None and message.speaker is not None and message.speaker != asker
            yield Line(text=_start(message.text, _MESSAGE), own=not foreign, idle=message.turn in chat)
        elif message.role is Role.ASSISTANT and message.text:
            yield Line(text=_start(message.text, _MESSAGE), model=True, chatter=message.turn in chat)


def _summary(message: Message) -> str:
    if message.role is not Role.ITEM:
        return ""
    return "\n".join(str(part.get("text", "")) for part in message.parts if part.get("type") == "summary")


def _covered(summary: str) -> Iterator[Line]:
    """What a summary tells, line by line; where it names no speaker, they are taken for the user's words."""
    for text in summary[: 5 * _MESSAGE].splitlines():
        label = _LABEL.match(text)
        model = label is not None and label[1].lower() in ("assistant", "助手")
        words = (text[label.end() :] if label else text).strip()[:_MESSAGE]
        if model:
            words = " ".join(piece for piece in _pieces(words, _BREAK) if piece.strip() and not is_own(piece))
        if words:
            yield Line(text=words, own=not model, model=model, retold=True)


def _notes(messages: Sequence[PromptMessage]) -> list[Line]:
    """What the prompt brings of the talk beyond its window: system messages after the assistant's own."""
    notes = [message.text for message in messages if message.role is Role.SYSTEM][1:]
    return [line for note in notes for line in _covered(note) if not line.text.endswith((":", "："))]


def _shown(message: PromptMessage) -> Line:
    model = message.role is Role.ASSISTANT
    return Line(text=_start(message.text, _MESSAGE), own=not model, model=model)


def _newest(lines: Sequence[Line]) -> tuple[Line, ...]:
    room, first = _TALK, len(lines)
    while first and room > 0:
        first -= 1
        room -= len(lines[first].text)
    return tuple(lines[first:])
