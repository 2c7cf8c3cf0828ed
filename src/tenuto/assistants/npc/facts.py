"""What kind of fact a question asks for, and whether a piece of evidence holds one.

Asked "when" there must be a date, asked "how many steps" a number of steps, asked "what is it called" a name: a piece
that shares the question's words and holds no such fact does not answer it (C1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from tenuto.assistants.npc import looks
from tenuto.assistants.npc.corpus import Evidence
from tenuto.assistants.npc.words import LOOKED_AT, subjects, terms
from tenuto.model.expression import expression
from tenuto.model.prompt import Language

_SENTENCE: Final = expression(r"[。！？；!?]|\.(?=\s|$)")
_CLAUSE: Final = expression(r"[,，、]\s*|：")
# A person's piece tells its name in the title; it must know this much of the question to be the one that is meant.
_THE_ONE_MEANT: Final = 0.7
_PRECISE: Final = "条则份级步块座根盏碗本箱次间户页艘堂处"
_VAGUE: Final = "个名位种件只"
# Words such as 做 are no subject to look up, and a deed all the same.
_HAN_DEED: Final = expression(r"[\u3400-\u9fff](?<![是的了过在])")
_STARTS: Final = r"(?:^\W*|[,;:.]\s*|\b(?:by|and|know|me|of|with|to|for|but|so|say)\s+)"
_PAYING: Final = "costs?|tickets?|fees?|prices?|pay|paid|charges?|admission"
_IS: Final = r"(?:is|was|are|were|'s|did|do|does|will|can|could|has|have|had|should|may)"


class Fact(NamedTuple):
    """A fact that is asked for: what a sentence that tells it looks like, and the words it must say besides."""

    looks: re.Pattern[str]
    says: frozenset[str] = frozenset()
    name: bool = False


class Asked(NamedTuple):
    """A question taken apart: the facts it asks for, the words that say of what, and of these what somebody did."""

    facts: Sequence[Fact]
    about: str
    deed: str = ""


def asked(question: str) -> Asked:
    """The facts a question asks for; none, where anything on its subject answers it."""
    facts: list[Fact] = []
    about, deed = question[:LOOKED_AT], ""
    for asks, fact in _KINDS:
        if found := asks.search(about):
            facts.append(fact(found))
            about = f"{about[: found.start()]} {_subject(found)} {about[found.end() :]}"
            deed += _subject(found) if fact is _done_by else ""
    return Asked(facts, about, deed)


def holds(piece: Evidence, question: Asked, language: Language, cover: float = 1.0) -> bool:
    """Whether the piece, which knows `cover` of the question, tells each fact in a sentence on the subject."""
    subject = frozenset(terms(question.about) or subjects(question.about))
    heads = _words(f"{piece.titled(language)} {piece.words.get(language, '')}")
    sentences = [part for part in _SENTENCE.split(piece.said(language)) if part.strip()]
    titled = piece.kind == "person" and cover >= _THE_ONE_MEANT and not subject.isdisjoint(heads)
    for fact in question.facts:
        split = _clauses if fact.name else _as_one
        parts = [part for sentence in sentences for part in split(sentence)]
        on_it = [part for part, around in parts if subject <= heads or not subject.isdisjoint(_words(around))]
        if not (fact.name and titled) and not any(_tells(part, fact, heads) for part in on_it):
            return False
    return True


def _clauses(sentence: str) -> list[tuple[str, str]]:
    """Each clause, and the same with the one before it: a name stands beside or behind what it names."""
    clauses = _CLAUSE.split(sentence)
    return [(clause, f"{before}, {clause}") for before, clause in pairwise(["", *clauses])]


def _as_one(sentence: str) -> list[tuple[str, str]]:
    return [(sentence, sentence)]


def _tells(sentence: str, fact: Fact, heads: frozenset[str]) -> bool:
    if fact.looks.search(sentence) is None:
        return False
    return not fact.says or not fact.says.isdisjoint({*_words(sentence), *sentence, *heads})


def _words(text: str) -> frozenset[str]:
    return frozenset((*terms(text), *subjects(text)))


def _subject(found: re.Match[str]) -> str:
    """What the asking words themselves say of the subject, such as "steps" in "how many steps"."""
    return " ".join(word for group, word in found.groupdict().items() if word and group.startswith("of"))


def _like(pattern: str, *, name: bool = False) -> Callable[[re.Match[str]], Fact]:
    # People and names are known by their capitals.
    flags = 0 if pattern in (looks.PERSON, looks.PLACE, looks.NAMING) else re.IGNORECASE
    fact = Fact(expression(pattern, flags), name=name)
    return lambda _: fact


def _done_by(found: re.Match[str]) -> Fact:
    """Somebody, in a sentence that says what they did."""
    did = found["of"] or ""
    return Fact(expression(looks.PERSON), says=_words(did) | frozenset(_HAN_DEED.findall(did)))


def _things(found: re.Match[str]) -> Fact:
    """A number with the things that are counted close behind it, or with nothing but what became of them."""
    things = "|".join(re.escape(thing) for thing in terms(found["of"])) or r"\w"
    counted = rf"\b{looks.NUMBER}(?:[ -](?!of\b|and\b|in\b|at\b)[\w'-]+){{0,2}}?[ -](?:{things})"
    alone = rf"\b{looks.NUMBER} (?:is|are|was|were|have|has|came|went)\b"
    return Fact(expression(f"{counted}|{alone}", re.IGNORECASE))


def _things_in_chinese(found: re.Match[str]) -> Fact:
    measure, thing = found["measure"] or "", found["of"] or ""
    if measure and measure in _PRECISE:
        return Fact(expression(looks.NUMBER_ZH + measure))
    return Fact(expression(f"{looks.NUMBER_ZH}[{_VAGUE}]?{thing[:2]}"))


def _size(found: re.Match[str]) -> Fact:
    way = _WAYS[found["way"].lower()]
    near = rf"{looks.LENGTH}[^.,;]{{0,12}}\b(?:{way})\b|\b(?:{way})\b[^.,;]{{0,12}}{looks.LENGTH}"
    return Fact(expression(near, re.IGNORECASE))


def _size_in_chinese(found: re.Match[str]) -> Fact:
    way = found["way"]
    return Fact(expression(f"{way}[约有达近]?{looks.LENGTH_ZH}|{looks.LENGTH_ZH}{way}"))


def _in_unit(found: re.Match[str]) -> Fact:
    return Fact(expression(rf"{looks.NUMBER}[ -]?{found['unit'][:4]}", re.IGNORECASE))


_WAYS: Final = {
    "long": "long|length",
    "wide": "wide|width|broad",
    "broad": "wide|width|broad",
    "tall": "tall|high|height",
    "high": "tall|high|height",
    "deep": "deep|depth",
    "thick": "thick|thickness",
    "far": "from|away|distance",
}
_TIMES_ZH: Final = "分钟|小时|天|日|夜|周|个月|年|代"
_WHO_ZH: Final = r"(?:由|被|是)?(?:谁|哪位|何人|什么人)"
_KINDS: Final[Sequence[tuple[re.Pattern[str], Callable[[re.Match[str]], Fact]]]] = [
    (expression(pattern, re.IGNORECASE), fact)
    for pattern, fact in (
        (r"\b(?:today|now|nowadays|currently|these days)\b|现在|如今|目前|今天|当今", _like(looks.PRESENT)),
        (
            rf"\bwhat(?:'s| {_IS}) (?:the |his |her |their )?(?:full |real |first )?names?\b(?: of)?"
            rf"|\bwhat(?:'s| {_IS}) (?P<of>.{{1,60}}?)\b(?:called|named|names?)\b"
            r"|(?:的名字)?(?:都|又)?叫(?:做|作)?(?:什么|啥)(?:名字?)?|名字是什么|什么名字|姓什么|姓名",
            _like(looks.NAMING, name=True),
        ),
        (
            rf"\b(?:how much|what) (?:{_IS} )?(?=.{{0,60}}\b(?:{_PAYING})\b)"
            r"|\bhow expensive\b|多少钱|什么价钱?|价格|票价|贵不贵",
            _like(looks.MONEY),
        ),
        (
            r"\b(?P<of>(?:tele)?phone) number\b|\b(?P<of_mail>e-?mail|web ?site)\b"
            r"|(?P<of_zh>电话|邮箱|网址)(?:号码)?(?:是多少)?",
            _like(looks.CONTACT),
        ),
        (
            # An age in the records is commonly one of some day in a life.
            r"\bhow old(?= (?:is|are)(?: \w+){1,3}\W*$|\W*$)|\byour age\b|多大(?:年纪|岁数)|^\W*(?:几岁|多大)了?\W*$"
            r"|(?:(?<=[他她你您])|[今现]年)(?:几岁|多大)(?!.*(?:开始|入行|时|可以|能))",
            _like(looks.AGE_NOW),
        ),
        (
            rf"\b(?:how old|what age|which age)\b|\b(?:{looks.NUMBER})[ -]years?[ -]olds?\b"
            rf"|几岁|多少岁|什么年纪|{looks.NUMBER_ZH}岁",
            _like(looks.AGE),
        ),
        (r"\bwhat time\b|\bwhat hours?\b|几点钟?|什么钟点", _like(looks.CLOCK)),
        (
            r"\b(?:what|which) (?:year|century|era|dynasty)\b|哪一?年|何年|什么年代|哪个?朝代?|什么朝代",
            _like(looks.YEAR),
        ),
        (
            r"\b(?:what|which) (?:days?|dates?|months?|seasons?|weekdays?)\b"
            r"|几月[份到至和]*(?:几月)?|哪一?天|几号|星期几|周几|哪个?季节?|哪几?个月|什么日子",
            _like(looks.DAY),
        ),
        (
            rf"{_STARTS}when(?= {_IS}\b)|\b(?:since|until|till|from) when\b|\bwhen\W*$|什么时候|何时|啥时候?|什么时间",
            _like(looks.WHEN),
        ),
        (
            r"\bhow many (?:seconds|minutes|hours|days|nights|weeks|months|years|generations)\b"
            r"|\bhow long (?:did|does|do|will|would) (?:it|this|that|they|he|she) take\b"
            rf"|\bhow long(?= (?:did|do|does|has|have|will|must|had)\b)"
            rf"|多久|多长时间|(?:多少|几)个?(?:{_TIMES_ZH})",
            _like(looks.DURATION),
        ),
        (r"\bhow long\b", _like(f"{looks.LENGTH}[^.,;]{{0,12}}\\blong\\b|{looks.DURATION}")),
        (r"\bhow (?P<way>wide|broad|tall|high|deep|thick|far)\b", _size),
        (r"有?多(?P<way>[长宽高深厚远])", _size_in_chinese),
        (r"\bhow (?:heavy|much (?:does .{1,40} )?weigh)\b|有?多重|多少(?:斤|公斤|担|吨)", _like(looks.WEIGHT)),
        (r"\bhow (?:big|large)\b|多大|多少亩|面积", _like(looks.AREA)),
        (r"\bin (?P<unit>percent|kilo\w+|met(?:er|re)s|feet|tons|pounds|yuan|dollars)\b", _in_unit),
        (rf"\bhow many\b ?(?P<of>(?:(?!(?:{_IS}|of|in|the)\b)\w+ ?){{0,3}})", _things),
        (rf"(?:多少|几(?!乎))(?P<measure>[{_PRECISE}{_VAGUE}])?(?P<of>[\u3400-\u9fff]{{0,4}})", _things_in_chinese),
        (r"\bwhat colou?rs?\b|什么颜色", _like(looks.COLOUR)),
        (r"\blook(?:s|ed)? like\b|长什么样|什么样子|什么模样", _like(looks.SHAPE)),
        (rf"第几[{_PRECISE}]?|哪一?[级则条]", _like(looks.RANK)),
        (rf"{_STARTS}who(?:m|se)?\b(?: {_IS}\b)?(?P<of> (?:in )?(?!{_IS}\b|the\b)\w+)?", _done_by),
        (rf"{_WHO_ZH}(?P<of>(?![是的在])[\u3400-\u9fff]{{1,2}})?", _done_by),
        (
            r"\b(?:afterwards|in the end|what (?:came|happened|comes|was) (?:next|then|later))\b"
            r"|^\W*(?:and )?then(?: what)?\W*$|后来|然后呢|之后呢|(?:结果|结局|最后)(?:呢|怎么?样|如何)",
            _like(looks.LATER),
        ),
        (
            r"^\W*(?:but |and |so )?why(?: (?:is|was) (?:that|this|it)| so| not)?\W*$"
            r"|^\W*[那可但]?是?(?:为什么|为何)呢?\W*$",
            _like(looks.REASON),
        ),
        (rf"{_STARTS}where\b(?!.*\bfrom\W*$)|在?(?:哪里|哪儿|(?<!是)什么地方|何处|什么位置)|在哪", _like(looks.PLACE)),
    )
]
