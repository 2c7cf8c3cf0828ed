"""Finding again what was said: the sentences that share a question's words, and the ones that carry a talk.

Words are compared without their endings, Chinese by pairs of characters; how much a shared one counts depends on how
rare it is in this talk.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from tenuto.llm.offline.asks import SUM_UP
from tenuto.llm.offline.correcting import changes, changes_it, corrected
from tenuto.llm.offline.kinds import Kind, fits, holds, kind_asked, without_asking
from tenuto.llm.offline.talk import Line, Talk
from tenuto.model.expression import expression

# How much of a question a sentence must share to pass for an answer to it, and one that holds what is asked for, be it
# a time. The latter is also the better answer of two.
_ENOUGH: Final = 0.6
_ENOUGH_OF_ITS_KIND: Final = 0.55
_OF_ITS_KIND: Final = 0.25
# A single character within a longer word: 会 and 开会.
_PARTLY: Final = 0.5

_WORD: Final = expression(r"[a-z0-9]+(?:['’][a-z]+)?|[\u00c0-\u024f\u0370-\u1fff]+|[\u3400-\u9fff]+", re.IGNORECASE)
_NUMBERED: Final = expression(r"\b([a-z]{2,20}) (?:no\.? |number |#)?(\d{1,6})(?![\w:.,]\d|\w)")
_ENDING: Final = expression(r"(?:ies|ing|ed|es|s|e|y)?(?:'s|’s)?$")
_COMMON_WORDS: Final = """
a about actually again ago all also am an and any anything are as ask asked at be been before being but by can could
did do does doing done earlier else for from get give had has have he hello her here hers hi him his how i i'm if in
into is it it's its just know let like main many may me mean mention mentioned more most much my no not now of off ok
on one or our out please question really regarding remember remind s said same say saying says she should so some
something still talk talked tell than thank thanks that that's the their them then there these they thing things this
those to told too up us very was we were what what's when where where's which while who who's whom whose why will
with would yes yet you your
"""
_COMMON: Final = frozenset(_COMMON_WORDS.split())
# Characters that hold a Chinese sentence together, and the words one asks with: what stands between them counts.
_GLUE: Final = expression(
    "[干做](?:什么|啥|嘛)|什么时候|什么|怎么样|怎么|怎样|如何|为什么|哪里|哪儿|哪些|哪个|哪一|多少|几[点号楼层岁月年天周次个位]|多[久大高长远重]|是不是|有没有|能不能|请问|告诉"
    "|记得|知道|刚才|刚刚|之前|以前|关于|我们|你们|他们|一下|这个|那个|这些|那些|可以|还有|已经|现在"
    "|[几一二两三四五六七八九十百]{1,4}[只个条本台口位次件辆岁]"
    "|[我你您他她它谁哪的了吗呢吧啊呀是在有和与跟就都也还很请把被叫这那个们着]"
)
_ASKS: Final = expression(
    r"[?？]\s*$|[吗呢么]\s*[。.!！]?$|什么|怎么|如何|为什么|哪[里儿个些年天位种]|哪$|多少|几[点号只个岁口位次条本]|多[大久长高远重]"
    r"|谁|是不是|有没有|对不对|[是对]吧\s*$"
    r"|^(?:what|who|whom|whose|when|where|which|why|how|is|are|am|was|were|do|does|did|can|could|will|would|should"
    r"|may|shall|tell me|do you)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Found:
    """A sentence, who said it, and how well it fits; `place` orders it in the talk."""

    line: Line
    sentence: str
    score: float
    place: int


def is_question(sentence: str) -> bool:
    """Whether a sentence asks for something rather than telling it."""
    return _ASKS.search(sentence.strip()) is not None


def features(text: str) -> set[str]:
    """What is worth comparing in a text."""
    found: set[str] = set()
    for word in _WORD.findall(text.lower()):
        if "\u3400" <= word[0] <= "\u9fff":
            for run in filter(None, _GLUE.split(word)):
                found.update(run[at : at + 2] for at in range(len(run) - 1)) if len(run) > 1 else found.add(run)
                # 爸爸 is 爸.
                found.update(one for one, next_ in pairwise(run) if one == next_)
        elif word not in _COMMON:
            stem = _ENDING.sub("", word) if len(word) > 3 else word
            found.add(stem if len(stem) > 1 else word)
    return found


def numbered(text: str) -> set[str]:
    """What a text names by a number: "district 3" is neither "district 38" nor something that opens at 3."""
    return {" ".join(found.groups()) for found in _NUMBERED.finditer(text.lower()) if found[1] not in _COMMON}


def matches(talk: Talk, wanted: set[str], lines: Iterable[Line] | None = None) -> list[Found]:
    """Sentences that tell something with those features, best first; of equals the newest."""
    if not wanted:
        return []
    told = [
        (place, line, sentence, features(sentence) | numbered(sentence))
        for place, line in enumerate(talk.sources if lines is None else lines)
        for sentence in line.sentences()
        if not is_question(sentence)
    ]
    seen = Counter(feature for *_, has in told for feature in has & wanted)
    weights = {feature: math.log(1 + (1 + len(told)) / (1 + seen[feature])) for feature in wanted}
    whole = sum(weights.values())
    found = [
        Found(line, sentence, sum(weights[feature] * _shared(feature, has) for feature in wanted) / whole, place)
        for place, line, sentence, has in told
    ]
    return sorted((one for one in found if one.score > 0), key=lambda one: (-round(one.score, 3), -one.place))


def _shared(feature: str, has: set[str]) -> float:
    """How much of a feature a sentence has: a Chinese word of one character may be a part of a longer one."""
    if feature in has:
        return 1.0
    if not "\u3400" <= feature[0] <= "\u9fff":
        return 0.0
    parts = any(feature in other for other in has) if len(feature) == 1 else not has.isdisjoint(feature)
    return _PARTLY if parts else 0.0


def answers(
    talk: Talk, question: str, kind: Kind | None = None, *, but: Callable[[str], bool] = lambda _: False
) -> list[Found]:
    """The one or two sentences that seem to answer the question, but for some; empty when none does.

    `kind` is what is asked for where the question itself does not tell.
    """
    kind = kind or kind_asked(question)
    wanted = features(without_asking(question)) or features(question)
    found = sorted(_of_kind(matches(talk, wanted | numbered(question)), kind), key=lambda one: -round(one.score, 3))
    found = distinct(one for one in found if not but(one.sentence))
    return [one for one in found[:2] if one.score >= 0.9 * found[0].score]


def _of_kind(found: Iterable[Found], kind: Kind | None) -> Iterator[Found]:
    for one in found:
        held = kind is not None and holds(kind, one.sentence)
        if fits(kind, one.sentence) and one.score >= (_ENOUGH_OF_ITS_KIND if held else _ENOUGH):
            yield replace(one, score=one.score + (_OF_ITS_KIND if held else 0.0))


def with_corrections(talk: Talk, found: Sequence[Found], about: set[str]) -> list[Found]:
    """What was found, and behind each what its speaker put right or changed since; the newest is never left out."""
    lines = list(talk.sources)
    whole: list[Found] = []
    for one in found:
        whole.append(one)
        if not one.line.model:
            later = [
                (place, line) for place, line in enumerate(lines) if place > one.place and line.own is one.line.own
            ]
            whole += [Found(line, text, one.score, place) for place, line in later[:1] for text in _put_right(line)]
            whole += [Found(line, text, one.score, place) for place, line in later for text in _changed(line, about)]
    return distinct(whole)


def _put_right(line: Line) -> list[str]:
    return [line.text.strip()] if corrected(line.text) or changes_it(line.text) else []


def _changed(line: Line, about: set[str]) -> list[str]:
    """Where a line tells that what was asked about has changed; half of its words are enough to know it by."""
    said = [one for one in line.sentences() if changes(one) and not is_question(one)]
    return [one for one in said if about and sum(_named(feature, one) for feature in about) >= len(about) / 2]


def _named(feature: str, sentence: str) -> bool:
    """Whether a sentence may speak of it: 会议 is what 开会 asks for."""
    if "\u3400" <= feature[0] <= "\u9fff":
        return not set(feature).isdisjoint(sentence)
    return feature in features(sentence)


def distinct(found: Iterable[Found]) -> list[Found]:
    """Each sentence once."""
    return list({one.sentence.casefold().strip(" .!。！"): one for one in reversed(list(found))}.values())[::-1]


def key_sentences(talk: Talk, limit: int) -> list[Found]:
    """The sentences that carry most of the talk's recurring words, in the order they were said.

    Each one picked lowers the worth of what it already tells, so that the next brings something new. What users tell
    and ask weighs more than what they were answered.
    """
    told = [
        (place, line, sentence, features(sentence))
        for place, line in enumerate(talk.sources)
        for sentence in line.sentences()
        if not (line.idle and is_question(sentence)) and (line.model or not _asks_to_sum_up(sentence))
    ]
    weights = Counter(feature for *_, has in told for feature in has)
    picked: list[Found] = []
    rest = [one for one in told if len(one[3]) > 1 or (one[3] and len(told) <= limit)]
    while rest and len(picked) < limit:
        best = max(rest, key=lambda one: (_worth(one[3], weights, one[1]), one[0]))
        rest.remove(best)
        if _worth(best[3], weights, best[1]) <= 0:
            break
        picked.append(Found(best[1], best[2], 1.0, best[0]))
        for feature in best[3]:
            weights[feature] = 0
    return sorted(picked, key=lambda one: one.place)


_OF_THE_TALK: Final = features(
    "conversation chat discussion everything far today short briefly 对话 聊天 内容 到目前为止 今天"
)


def _asks_to_sum_up(sentence: str) -> bool:
    """Whether it is a request for a summary and nothing else: no part of what the talk is about."""
    rest = SUM_UP.sub(" ", sentence)
    return rest != sentence and features(rest) <= _OF_THE_TALK


def _worth(has: Sequence[str] | set[str], weights: Counter[str], line: Line) -> float:
    worth = sum(math.sqrt(weights[feature]) for feature in has) / math.sqrt(len(has) + 2)
    return worth if line.model else 1.5 * worth
