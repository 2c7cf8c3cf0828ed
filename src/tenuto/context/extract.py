"""Extractive summaries: the sentences that say most, as they were said and with their speakers.

A sentence ranks by how many other sentences share its terms, by its speaker, its position, figures in it, and whether
it decides something or leaves it open. Sentences alike to a chosen one come last, while there is room; those that add
no term are left out. An earlier summary is split into its own sentences, which compete with the new ones; the messages
it was made of are not read again. The same messages always give the same summary.
"""

from __future__ import annotations

import math
import re
from collections import Counter as Multiset
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Final, TypeVar

import msgspec

from tenuto.context.sentences import Sentence, message_sentences, plain_sentences
from tenuto.context.tokens import MOST_CHARACTERS_A_TOKEN, TokenCounter
from tenuto.model.graphemes import boundary_before
from tenuto.model.message import Message, Role
from tenuto.model.patterns import lazy_pattern
from tenuto.model.prompt import Language
from tenuto.recall.lexical import terms

# Longer conversations are summarised portion by portion, each merged into the summary of those before it.
_PORTION: Final = 300
_MOST_SENTENCES: Final = 400
# Shares of terms above which two sentences are alike, and above which a later one settles a decision or an open point.
_ALIKE: Final = 0.7
_SETTLED: Final = 0.6
# Short sentences leave room for others, the more so the less room there is.
_LENGTHS: Final = (80, 500)
# How much of the summary new messages get before the earlier summary, which stands for more of them.
_NEW_SHARE: Final = 0.55
# Below these limits headings would take the room of the sentences.
_HEADED_TOKENS: Final = 48
_HEADED_CHARACTERS: Final = 80
_EARLIER: Final = 1_000_000

_DECISION: Final = lazy_pattern(
    r"\b(?:agreed?|decided?|let's|we'll|confirmed|booked|must|deadline)\b|决定|同意|确定|约定|说好|必须|截止",
    re.IGNORECASE,
)
_UNDECIDED: Final = lazy_pattern(
    r"\b(?:not (?:yet|sure)|undecided|later|todo|pending|still open)\b|待定|还没|尚未|不确定|稍后", re.IGNORECASE
)
_QUESTION: Final = lazy_pattern(r"[?？]|[吗呢]$")
# What users say of themselves is seldom said twice: it counts for more than all that shared terms give.
_OF_ONESELF: Final = 1.4
_FIRST_PERSON: Final = lazy_pattern(r"\b(?:i|my|we|our)\b|我", re.IGNORECASE)
_FIGURE: Final = lazy_pattern(r"\d")

K = TypeVar("K")


class Section(StrEnum):
    """The paragraphs of a summary."""

    MAIN = "main"
    AGREED = "agreed"
    OPEN = "open"


class Labels(msgspec.Struct, frozen=True):
    """A summary's own words."""

    sections: dict[Section, str]
    speakers: dict[Role, str]
    member: str
    nothing: str


_LABELS: Final = {
    Language.ENGLISH: Labels(
        sections={Section.MAIN: "Main points:", Section.AGREED: "Agreed:", Section.OPEN: "Open:"},
        speakers={Role.USER: "User: ", Role.ASSISTANT: "Assistant: ", Role.SYSTEM: "System: ", Role.TOOL: "Tool: "},
        member="A member: ",
        nothing="(Nothing was said in words.)",
    ),
    Language.CHINESE: Labels(
        sections={Section.MAIN: "主要内容：", Section.AGREED: "约定：", Section.OPEN: "待定："},
        speakers={Role.USER: "用户：", Role.ASSISTANT: "助手：", Role.SYSTEM: "系统：", Role.TOOL: "工具："},
        member="一位成员：",
        nothing="（没有文字内容。）",
    ),
}
_PARTS: Final = {label: part for labels in _LABELS.values() for part, label in labels.sections.items()}
_SPEAKERS: Final = {label.strip(): role for labels in _LABELS.values() for role, label in labels.speakers.items()} | {
    labels.member.strip(): Role.USER for labels in _LABELS.values()
}


class _Line(msgspec.Struct, frozen=True):
    """A candidate: a sentence with its terms and its paragraph. Those of an earlier summary have a negative order."""

    text: str
    role: Role
    order: tuple[int, int]
    terms: frozenset[str]
    section: Section


def summarise(
    messages: Sequence[Message],
    previous: str = "",
    *,
    tokens: int,
    characters: int | None = None,
    language: Language,
    counter: TokenCounter,
    redact: Callable[[str], str] = str,
    in_chat: bool = False,
) -> str:
    """The messages in short, within so many tokens and characters, merged with the summary of those before them.

    Up to three paragraphs: main points, decisions, open points; sentences in their order, with their speakers. Never
    empty. Every message passes `redact` before anything is taken from it. In a chat each sentence of a user is "a
    member's": whoever asks next may be another one.
    """
    writer = _SummaryWriter(tokens, characters, counter, _LABELS[language], in_chat)
    for start in range(0, len(messages), _PORTION):
        new = _new_lines(message_sentences(messages[start : start + _PORTION], redact))
        previous = writer.merge(new, _old_lines(previous)) or previous
    return previous if previous.strip() else writer.shorten(writer.labels.nothing)


def _new_lines(sentences: Sequence[Sentence]) -> list[_Line]:
    last_answer = max((one.message for one in sentences if one.role is Role.ASSISTANT), default=-1)
    # A sentence repeated word for word would raise the weight of its own terms.
    unique = {(one.role, one.text): one for one in reversed(sentences) if not one.chatter}
    sections = [(_section_of(one, last_answer), one) for one in unique.values()]
    # Of too many: decisions and open points, then the first sentences of all messages.
    sections.sort(key=lambda each: (each[0] is Section.MAIN, each[1].place, each[1].message))
    lines = [
        _Line(one.text, one.role, (one.message, one.place), frozenset(terms(one.text)), section)
        for section, one in sections[:_MOST_SENTENCES]
    ]
    lines.sort(key=lambda line: line.order)
    return [line for line in lines if line.terms] or lines


def _section_of(one: Sentence, last_answer: int) -> Section:
    if one.role is Role.TOOL:
        return Section.MAIN
    asks = _QUESTION.search(one.text) is not None
    if _UNDECIDED.search(one.text) or (asks and one.role is Role.USER and one.message > last_answer):
        return Section.OPEN
    return Section.AGREED if not asks and _DECISION.search(one.text) else Section.MAIN


def _old_lines(previous: str) -> list[_Line]:
    """An earlier summary, line by line: an extracted one by its headings and speakers, a model's as main points."""
    section = Section.MAIN
    lines: list[_Line] = []
    for row, raw in enumerate(previous.splitlines()):
        section, text = _split_label(raw.strip(), _PARTS, section)
        role, text = _split_label(text, _SPEAKERS, Role.ITEM)
        lines += [
            _Line(sentence, role, (row - _EARLIER, place), frozenset(terms(sentence)), section)
            for place, sentence in enumerate(plain_sentences(text))
        ]
    return lines


def _split_label(line: str, labels: Mapping[str, K], default: K) -> tuple[K, str]:
    for label, value in labels.items():
        if line.startswith(label):
            return value, line[len(label) :].strip()
    return default, line


def _scores(lines: Sequence[_Line]) -> dict[tuple[int, int], float]:
    """How much each line says, by its order."""
    spread = Multiset(term for line in lines for term in line.terms)
    central = [sum(spread[term] for term in line.terms) / (len(line.terms) + 4) for line in lines]
    most, last = max(central, default=0.0) or 1.0, max((line.order[0] for line in lines), default=0)
    return {
        line.order: share / most
        + (0.0 if line.role is Role.TOOL else _signals(line))
        + (0.4 if place == 0 else 0.15 if line.order[1] == 0 else 0.0)
        + 0.1 * max(0, line.order[0]) / (last if last > 0 else 1)
        for place, (line, share) in enumerate(zip(lines, central, strict=True))
    }


def _signals(line: _Line) -> float:
    """What speaks for a sentence beside its terms: the user says it (of themselves), figures, a decision."""
    asks = _QUESTION.search(line.text) is not None
    if line.role is Role.USER:
        speaker = 0.3 if asks or not _FIRST_PERSON.search(line.text) else _OF_ONESELF
    else:
        speaker = -0.3 if asks else 0.0
    return speaker + (0.15 if _FIGURE.search(line.text) else 0.0) + (0.5 if line.section is not Section.MAIN else 0.0)


def _is_settled(line: _Line, statements: Sequence[_Line]) -> bool:
    """Whether a later statement made the decision again, or speaks of the open point."""
    if line.section is Section.MAIN or not line.terms:
        return False
    enough, own, order = _SETTLED * len(line.terms), line.terms, line.order
    return any(
        len(own & other.terms) >= enough
        and other.order > order
        and (line.section is other.section or (line.section is Section.OPEN and not _QUESTION.search(other.text)))
        for other in statements
    )


def _is_alike(line: _Line, other: _Line) -> bool:
    fewer = min(len(line.terms), len(other.terms))
    return len(line.terms & other.terms) >= _ALIKE * fewer if fewer else line.text == other.text


def _adds_nothing(line: _Line, other: _Line) -> bool:
    # "Not" is no term: of two sentences with the same terms the longer one may deny the other.
    shorter = len(line.text) <= len(other.text)
    return shorter and line.terms <= other.terms if line.terms else line.text == other.text


class _SummaryWriter:
    """Writes a summary of limited length."""

    def __init__(
        self, tokens: int, characters: int | None, counter: TokenCounter, labels: Labels, in_chat: bool
    ) -> None:
        self.labels = labels
        self._in_chat = in_chat
        self._tokens = tokens
        self._characters = math.inf if characters is None else characters
        self._counter = counter
        self._costs: dict[str, int] = {}
        self._headings = ""
        if tokens >= _HEADED_TOKENS and self._characters >= _HEADED_CHARACTERS:
            self._headings = "".join(labels.sections.values())

    def merge(self, new: Sequence[_Line], old: Sequence[_Line]) -> str:
        """The best lines of both within the limits; the new ones are served first, with a share of the room."""
        lines = [*old, *new]
        statements = [line for line in lines if line.section is not Section.OPEN]
        lines = [line for line in lines if not _is_settled(line, statements)]
        by_rank = self._rank(lines)
        fresh = [line for line in by_rank if line.order[0] >= 0]
        earlier = [line for line in by_rank if line.order[0] < 0]
        selection: list[_Line] = []
        self._choose(fresh, selection, _NEW_SHARE if earlier else 1.0, _is_alike)
        self._choose([*earlier, *fresh], selection, 1.0, _is_alike)
        self._choose(by_rank, selection, 1.0, _adds_nothing)
        # The labels of speakers are not counted while choosing.
        while len(selection) > 1 and not self._fits(self._write(selection)):
            selection.pop()
        text = self._write(selection)
        if by_rank and not (selection and self._fits(text)):
            return self.shorten((selection or fresh or by_rank)[0].text)
        return text

    def shorten(self, text: str) -> str:
        """A text within the limits, cut if it must be."""
        while not self._fits(text) and len(text) > 1:
            text = text[: boundary_before(text, max(1, len(text) * 3 // 4 - 1))].rstrip("… ") + "…"
        return text

    def _rank(self, lines: Sequence[_Line]) -> list[_Line]:
        """Best first, but the best of each paragraph before all others."""
        least, most = _LENGTHS
        unit = max(least, min(most, self._tokens * 2, self._characters))
        scores = _scores(lines)
        by_score = sorted(lines, key=lambda line: (len(line.text) / unit - scores[line.order], line.order))
        firsts = {section: line.order for line in reversed(by_score) for section in [line.section]}
        return sorted(by_score, key=lambda line: firsts[line.section] != line.order)

    def _choose(
        self, candidates: Sequence[_Line], selection: list[_Line], share: float, repeats: Callable[[_Line, _Line], bool]
    ) -> None:
        """Add lines that repeat no chosen one, best first, while this share of the summary lasts."""
        tokens = share * self._tokens - self._counter.count_fixed(self._headings) - sum(map(self._cost, selection))
        characters = share * self._characters - len(self._headings) - sum(len(line.text) + 1 for line in selection)
        for line in candidates:
            size = len(line.text) + 1
            # Most lines are too long for the room that is left, which the length alone tells.
            if size > min(characters, tokens * MOST_CHARACTERS_A_TOKEN) or (cost := self._cost(line)) > tokens:
                continue
            if not any(line is other or repeats(line, other) for other in selection):
                selection.append(line)
                tokens, characters = tokens - cost, characters - size

    def _cost(self, line: _Line) -> int:
        cost = self._costs.get(line.text)
        if cost is None:
            cost = self._costs[line.text] = self._counter.count(line.text) + 1
        return cost

    def _fits(self, text: str) -> bool:
        return len(text) <= self._characters and self._counter.count(text) <= self._tokens

    def _write(self, selection: Sequence[_Line]) -> str:
        rows: list[str] = []
        for section, heading in self.labels.sections.items():
            lines = sorted((line for line in selection if line.section is section), key=lambda line: line.order)
            if lines and self._headings:
                rows.append(heading)
            for (role, member), group in groupby(lines, key=self._speaker):
                *texts, last = (line.text for line in group)
                label = self.labels.member if member else self.labels.speakers.get(role, "")
                rows.append(label + " ".join([*map(_end_sentence, texts), last]))
        return "\n".join(rows)

    def _speaker(self, line: _Line) -> tuple[Role, tuple[int, int] | None]:
        """Lines with the same one share a row; those of users in a chat may be of several members."""
        return line.role, line.order if self._in_chat and line.role is Role.USER else None


def _end_sentence(text: str) -> str:
    """A sentence with a final full stop, so that it stays apart from the next one."""
    return text if not text[-1:].isalnum() else text + ("." if text[-1].isascii() else "。")
