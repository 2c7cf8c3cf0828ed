"""A summary without a model: the sentences that say most, as they were said, and by whom.

A sentence says much when it shares words with many others that do (mutual reinforcement of sentences and words, as in
HITS: linear in the text, where comparing all pairs of sentences is not). Beyond that count: who speaks, where it
stands, names and numbers, what users tell about themselves, decisions, and what was left open. What repeats a chosen
sentence is left out; what says nearly the same of another thing ("room 3", "room 4") comes last, while there is room.
An earlier summary is taken apart into its own sentences and joined in; what it was made of is not read again. The same
talk always gives the same summary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Final, TypeVar

import msgspec

from tenuto.context.relevance import features
from tenuto.context.sentences import Sentence, sentences_of, split
from tenuto.context.tokens import Counter
from tenuto.model.graphemes import boundary_before
from tenuto.model.message import Message, Role
from tenuto.model.prompt import Language

# Longer talk is summarised portion by portion, each joined into the one before it.
_PORTION: Final = 300
_MOST_SENTENCES: Final = 600
_ROUNDS: Final = 8
_ALIKE: Final = 0.7
# Short sentences leave room for others, the more so the less room there is.
_LENGTHS: Final = (80, 500)
_ANSWERED: Final = 0.4
# How much of the summary new talk gets before an earlier summary, which has been chosen from more.
_NEW_SHARE: Final = 0.55
# Below this, headings would take what the words need.
_HEADED_TOKENS: Final = 48
_HEADED_CHARACTERS: Final = 80


class Part(StrEnum):
    """The paragraphs of a summary."""

    MAIN = "main"
    AGREED = "agreed"
    OPEN = "open"


class Labels(msgspec.Struct, frozen=True):
    """A summary's own words."""

    parts: dict[Part, str]
    speakers: dict[Role, str]
    nothing: str


_LABELS: Final = {
    Language.ENGLISH: Labels(
        parts={Part.MAIN: "Main points:", Part.AGREED: "Agreed:", Part.OPEN: "Open:"},
        speakers={Role.USER: "User: ", Role.ASSISTANT: "Assistant: ", Role.SYSTEM: "System: ", Role.TOOL: "Tool: "},
        nothing="(Nothing was said in words.)",
    ),
    Language.CHINESE: Labels(
        parts={Part.MAIN: "主要内容：", Part.AGREED: "约定：", Part.OPEN: "待定："},
        speakers={Role.USER: "用户：", Role.ASSISTANT: "助手：", Role.SYSTEM: "系统：", Role.TOOL: "工具："},
        nothing="（没有文字内容。）",
    ),
}

_AGREED: Final = re.compile(
    r"\b(agree(d|s)?|deal|decid(e|ed|ing)|decision|let'?s|we('ll| will| shall)"
    r"|i('ll| will) (take|go|choose|buy|use|pick|have|book|order)|go(ing)? with|settled?|confirm(ed)?|booked|ordered"
    r"|approved|must( not)?|never|always|deadline|due (on|by)|remember (that|to)|prefer|allergic|instead of|promised?"
    r")\b"
    r"|决定|同意|确定|确认了|说好|就这么|就选|就要|就按|选定|约定|定了|成交|必须|务必|不要|记住|记得|截止|偏好|过敏|答应"
    r"|下单|改成",
    re.IGNORECASE,
)
_OPEN: Final = re.compile(
    r"\b(todo|to-do|tbd|still (need|have to|open|unclear|waiting|missing)|not (yet )?(decided|sure|clear|known)"
    r"|undecided|later|follow[- ]up|pending|get back to|unresolved|next time|need to (check|confirm|decide|ask)"
    r"|have yet to|waiting for|open question)\b"
    r"|待定|待办|待确认|尚未|还没|还未|稍后|下次|回头|有待|未定|不确定|再确认|需要确认|之后再|以后再|考虑一下|想一想"
    r"|等.{0,6}回复",
    re.IGNORECASE,
)
_SELF: Final = re.compile(
    r"\b(i am|i'm|i (have|need|want|like|love|live|work|use)|my|we (have|need|want))\b"
    r"|我(是|叫|有|想|要|在|喜欢|需要|的)",
    re.IGNORECASE,
)
# More than all that a sentence can gain by sharing its words with others.
_OF_ONESELF: Final = 1.3
# Who somebody is, lives with, likes and plans: asked for long after it was said, and hardly ever said twice.
_PERSONAL: Final = re.compile(
    r"\b(my (full |first )?name('s| is)|call me"
    r"|(i'm|i am) (from|called|named|allergic|an? \w+|going|planning|flying|moving|\d+)"
    r"|i (live|work|was born|come from|speak|prefer|like|love|hate|dislike|plan|moved)"
    r"|my (\w+ )?(wife|husband|partner|son|daughter|child(ren)?|kids?|baby|mother|father|mum|mom|dad|sister|brother"
    r"|dog|cat|birthday|age|job|address|favou?rite|plan|goal|trip|flight|passport|allergy|doctor|boss)"
    r"|(we're|we are) (going|planning|flying|moving))\b"
    r"|我(叫|姓|今年|住|来自|出生|老家|家[有里在]|对.{1,12}过敏|不?喜欢|最爱|讨厌|打算|计划|准备|要去|会说|在.{1,12}(工作|上班)"
    r"|是.{1,12}[人师生员家]|(的|家)?(名字|生日|年龄|职业|工作|地址|老婆|老公|妻子|丈夫|儿子|女儿|孩子|爸|妈|父亲|母亲|哥|姐|弟|妹|狗|猫))",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"\d|[一二三四五六七八九十百千万两]+[个元块天年月日号点位本件台条]")
_NAME: Final = re.compile(r"(?<=[a-z,;:] )[A-Z][\w-]+|[《「“\"][^》」”\"]{2,60}+[》」”\"]")
_QUESTION: Final = re.compile(r"[?？]|[吗呢]$")
_FILLER: Final = re.compile(
    r"^(hi|hello|hey|thanks?( you)?( so much| very much)?|thank you|ok(ay)?|sure|great|perfect|good (morning|evening)"
    r"|bye|you('re| are) welcome|no problem|of course|certainly|got it|i see|yes|no|sounds good"
    r"|how can i help( you)?( today)?|let me know if .{0,60}|(is there )?anything else.{0,40}|i hope this helps.{0,20}"
    r"|(let me (look|check|see|search|find)|one moment|just a moment|hold on).{0,30}"
    r"|稍等.{0,6}|让我.{0,4}(看看|查一下|找找)"
    r"|你好|您好|谢谢.{0,4}|多谢|好的?|嗯|是的|不客气|没问题|明白了?|知道了|再见|请问.{0,4}帮.{0,6}|有什么可以帮.{0,8})\W*$",
    re.IGNORECASE,
)


class _Line(msgspec.Struct, frozen=True):
    """A candidate: a sentence with what it is about, the paragraph it belongs to, and how much it says."""

    text: str
    role: Role
    order: tuple[int, int]
    about: frozenset[str]
    part: Part
    score: float


def summarise(
    messages: Sequence[Message],
    previous: str = "",
    *,
    tokens: int,
    characters: int | None = None,
    language: Language,
    counter: Counter,
    redact: Callable[[str], str] = str,
) -> str:
    """The talk in short, within so many tokens and characters, joined with the summary of what came before it.

    Three paragraphs at most: main points, what was agreed, what is open; sentences in their order, with who said them.
    Never empty. `redact` is what every message passes before anything is taken from it.
    """
    sheet = _Sheet(tokens, characters, counter, _LABELS[language])
    for start in range(0, len(messages), _PORTION):
        new = _scored(sentences_of(messages[start : start + _PORTION], redact), begins=not previous)
        previous = sheet.joined(_settled(new), _remembered(previous)) or previous
    return previous if previous.strip() else sheet.cut_down(sheet.labels.nothing)


# How much a sentence says


def _scored(sentences: Sequence[Sentence], begins: bool) -> list[_Line]:
    # What is said again and again, word for word, would lend itself weight.
    once = list({(one.role, one.text): one for one in reversed(sentences) if not one.chatter}.values())[::-1]
    telling = [one for one in once if not _FILLER.match(one.text)] or once
    replies = [*telling, *(one for one in sentences if one.chatter)]
    answered = max((one.message for one in replies if one.role is Role.ASSISTANT), default=-1)
    worth = {
        (one.message, one.place): _salience(one.text, one.role) + _standing(one, telling, begins) for one in telling
    }
    if len(telling) > _MOST_SENTENCES:
        best = sorted(telling, key=lambda one: (-worth[one.message, one.place], one.message, one.place))
        telling = sorted(best[:_MOST_SENTENCES], key=lambda one: (one.message, one.place))
    about = [features(one.text) for one in telling]
    return [
        _Line(
            text=one.text,
            role=one.role,
            order=(one.message, one.place),
            about=words,
            part=_part(one, answered),
            score=central + worth[one.message, one.place],
        )
        for one, words, central in zip(telling, about, _centrality(about), strict=True)
    ]


def _part(one: Sentence, answered: int) -> Part:
    if one.role is Role.TOOL:
        return Part.MAIN
    asks = _QUESTION.search(one.text) is not None
    if _OPEN.search(one.text) or (asks and one.role is Role.USER and one.message > answered):
        return Part.OPEN
    return Part.AGREED if not asks and _AGREED.search(one.text) else Part.MAIN


def _standing(one: Sentence, among: Sequence[Sentence], begins: bool) -> float:
    """What speaks for a sentence by where it stands: what the talk began with, how each message begins, what is new."""
    topic = begins and one.message == among[0].message
    opens = (0.4 if topic else 0.15) if one.opens else 0.0
    return opens + 0.1 * one.message / (among[-1].message or 1)


def _settled(lines: Sequence[_Line]) -> list[_Line]:
    """Without decisions and open points that were spoken of alike again later: the last word holds."""
    last: list[_Line] = []
    for line in reversed(lines):
        if line.part is Part.MAIN or not any(line.role is other.role and _alike(line, other) for other in last):
            last.append(line)
    return last[::-1]


def _salience(text: str, role: Role) -> float:
    """What speaks for a sentence by what it says, beside the words it shares with others."""
    if role is Role.TOOL:
        return 0.0
    asks = _QUESTION.search(text) is not None
    user = role is Role.USER
    return (
        (0.3 if user else 0.0)
        + (_OF_ONESELF if user and not asks and _PERSONAL.search(text) else 0.3 if user and _SELF.search(text) else 0.0)
        + (0.2 if user and asks else -0.3 if asks else 0.0)
        + (0.15 if _NUMBER.search(text) else 0.0)
        + (0.15 if _NAME.search(text) else 0.0)
        + (0.5 if _OPEN.search(text) or (_AGREED.search(text) and not asks) else 0.0)
        - (0.5 if text.endswith((":", "：")) else 0.0)
    )


def _centrality(about: Sequence[frozenset[str]]) -> list[float]:
    """From 0 to 1: sentences gain by the words they hold, words by the sentences that hold them."""
    holds = [sorted(words) for words in about]
    weights = dict.fromkeys((word for words in holds for word in words), 1.0)
    scores = [0.0] * len(holds)
    for _ in range(_ROUNDS):
        scores = [sum(weights[word] for word in words) / (len(words) + 4) for words in holds]
        top = max(scores, default=0.0) or 1.0
        scores = [score / top for score in scores]
        weights = dict.fromkeys(weights, 0.0)
        for words, score in zip(holds, scores, strict=True):
            for word in words:
                weights[word] += score
    return scores


# What was said before


def _remembered(previous: str) -> list[_Line]:
    """An earlier summary, line by line: ours by its headings and speakers, a model's as main points."""
    part = Part.MAIN
    found: list[tuple[str, Role, tuple[int, int], Part]] = []
    for row, raw in enumerate(previous.splitlines()):
        part, line = _label(raw.strip(), _PARTS, part)
        role, line = _label(line, _SPEAKERS, Role.ITEM)
        found += [(text, role, (row - _EARLIER, place), part) for place, text in enumerate(split(line))]
    return [
        _Line(
            text=text,
            role=role,
            order=order,
            about=features(text),
            part=of,
            score=_salience(text, role) + (_TOPIC if number == 0 else _CHOSEN),
        )
        for number, (text, role, order, of) in enumerate(found)
    ]


def _label(line: str, labels: Mapping[str, K], otherwise: K) -> tuple[K, str]:
    for label, kind in labels.items():
        if line.startswith(label):
            return kind, line[len(label) :].strip()
    return otherwise, line


K = TypeVar("K")
_EARLIER: Final = 1_000_000
# What was chosen before was worth it then; and what a summary begins with is what the talk began with.
_CHOSEN: Final = 0.5
_TOPIC: Final = 0.9
_PARTS: Final = {label: part for labels in _LABELS.values() for part, label in labels.parts.items()}
_SPEAKERS: Final = {label.strip(): role for labels in _LABELS.values() for role, label in labels.speakers.items()}


# What is written


def _alike(line: _Line, other: _Line) -> bool:
    fewer = min(len(line.about), len(other.about))
    return len(line.about & other.about) >= _ALIKE * fewer if fewer else line.text == other.text


def _says_again(line: _Line, other: _Line) -> bool:
    """Whether a line brings nothing beyond one like it: for a user's words any other word is something, else a figure.

    Of decisions and open points alike the last one holds.
    """
    if not _alike(line, other):
        return False
    if line.part is not Part.MAIN:
        return True
    more = line.about - other.about
    return not (more if line.role is Role.USER else any(map(_NUMBER.search, more)))


class _Sheet:
    """A summary of limited length."""

    def __init__(self, tokens: int, characters: int | None, counter: Counter, labels: Labels) -> None:
        self.labels = labels
        self._tokens = tokens
        self._characters = characters
        self._counter = counter
        self._headed = tokens >= _HEADED_TOKENS and (characters is None or characters >= _HEADED_CHARACTERS)

    def joined(self, new: Sequence[_Line], old: Sequence[_Line]) -> str:
        """The best lines of both within the limits, the new ones first served with a share of them."""
        lasting = [line for line in old if line.part is not Part.OPEN or not _answered(line, new)]
        fresh, known = self._ranked(new), self._ranked(lasting)
        chosen: list[_Line] = []
        self._choose(fresh, chosen, _NEW_SHARE if known else 1.0)
        self._choose(known, chosen, 1.0)
        self._choose(fresh, chosen, 1.0)
        self._choose(self._ranked([*lasting, *new]), chosen, 1.0, _says_again)
        while len(chosen) > 1 and not self._fits(self._written(chosen)):
            chosen.pop()
        best = [*chosen, *fresh, *known][:1]
        if best and not (chosen and self._fits(self._written(chosen))):
            return self.cut_down(best[0].text)
        return self._written(chosen)

    def cut_down(self, text: str) -> str:
        """A text within the limits, shortened if it must be."""
        while not self._fits(text) and len(text) > 1:
            text = text[: boundary_before(text, max(1, len(text) * 3 // 4 - 1))].rstrip("… ") + "…"
        return text

    def _ranked(self, lines: Sequence[_Line]) -> list[_Line]:
        """Best first, but the best of each paragraph before all others."""
        least, most = _LENGTHS
        unit = max(least, min(most, self._tokens * 2, self._characters or most))
        by_score = sorted(lines, key=lambda line: (len(line.text) / unit - line.score, line.order))
        heads = [line for part in Part for line in [one for one in by_score if one.part is part][:1]]
        return heads + [line for line in by_score if not any(line is head for head in heads)]

    def _choose(
        self, lines: Sequence[_Line], chosen: list[_Line], share: float, told: Callable[[_Line, _Line], bool] = _alike
    ) -> None:
        """Add lines that are not `told` by a chosen one, best first, while this share of the summary lasts."""
        tokens, characters = self._used(chosen)
        most_tokens = share * self._tokens
        most_characters = share * self._characters if self._characters is not None else None
        for line in lines:
            if any(line is other or told(line, other) for other in chosen):
                continue
            more_tokens, more_characters = self._cost(line)
            if tokens + more_tokens > most_tokens:
                continue
            if most_characters is not None and characters + more_characters > most_characters:
                continue
            chosen.append(line)
            tokens, characters = tokens + more_tokens, characters + more_characters

    def _used(self, chosen: Sequence[_Line]) -> tuple[int, int]:
        headings = "".join(self.labels.parts.values()) if self._headed else ""
        costs = [(self._counter.fixed(headings), len(headings)), *map(self._cost, chosen)]
        return sum(tokens for tokens, _ in costs), sum(characters for _, characters in costs)

    def _cost(self, line: _Line) -> tuple[int, int]:
        # The speaker is written once for all that follows of the same one: what turns out too long is taken off again.
        return self._counter.count(line.text) + 1, len(line.text) + 1

    def _fits(self, text: str) -> bool:
        short = self._characters is None or len(text) <= self._characters
        return short and self._counter.count(text) <= self._tokens

    def _written(self, chosen: Sequence[_Line]) -> str:
        rows: list[str] = []
        for part, heading in self.labels.parts.items():
            lines = sorted((line for line in chosen if line.part is part), key=lambda line: line.order)
            if lines and self._headed:
                rows.append(heading)
            for role, said in groupby(lines, key=lambda line: line.role):
                *texts, last = (line.text for line in said)
                rows.append(self.labels.speakers.get(role, "") + " ".join([*map(_ended, texts), last]))
        return "\n".join(rows)


def _ended(text: str) -> str:
    """A sentence with an end, so that the next one does not run into it: people leave the full stop out."""
    return text if not text[-1:].isalnum() else text + ("." if text[-1].isascii() else "。")


def _answered(line: _Line, new: Sequence[_Line]) -> bool:
    """Whether what was left open has been spoken of since, other than by asking again."""
    wanted = _ANSWERED * len(line.about)
    return any(
        len(line.about & other.about) >= wanted and other.part is not Part.OPEN and not _QUESTION.search(other.text)
        for other in new
        if line.about
    )
