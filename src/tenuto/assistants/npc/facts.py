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
from tenuto.assistants.npc.visiting import as_a_visit, of_a_visitor, whether
from tenuto.assistants.npc.words import LOOKED_AT, subjects, terms
from tenuto.model.expression import expression
from tenuto.model.prompt import Language

_SENTENCE: Final = expression(r"[。！？；!?]|\.(?=\s|$)")
_CLAUSE: Final = expression(r"[,;，、]\s*|：")
# A person's piece tells its name in the title; it must know this much of the question to be the one that is meant.
_THE_ONE_MEANT: Final = 0.7
_MOST: Final = 2 / 3
# What is told of long ago, or of how to live, says nothing of a visit unless it speaks of today.
_TALES: Final = frozenset({"story", "meaning", "rule", "origin"})
_TODAY: Final = expression(looks.NOWADAYS, re.IGNORECASE)
_PASSIVE: Final = expression(r"\b(?:is|are|was|were|been)\b[^,]{1,60}\bby\b")
# Of whom a piece is about, it tells what they did; what others did to them stands beside such a word.
_DONE_TO_SOMEBODY: Final = expression(r"\b(?:him|her|by (?:his|her|[A-Z]\w+))\b|[被由]")
_OBJECT: Final = expression(r" (?:(?:the|an?|his|her|its|their) )?(?P<of>\w+(?: \w+)?)")
_PRECISE: Final = "条则份级步块座根盏碗本箱次间户页艘堂处"
_VAGUE: Final = "个名位种件只"
# Words such as 做 are no subject to look up, and a deed all the same.
_HAN_DEED: Final = expression(r"[\u3400-\u9fff](?<![是的了过在])")
_STARTS: Final = r"(?:^\W*|[,;:.]\s*|\b(?:by|and|know|me|of|with|to|for|but|so|say)\s+)"
_PAYING: Final = "costs?|tickets?|fees?|prices?|pay|paid|charges?|admission"
_IS: Final = r"(?:is|was|are|were|'s|did|do|does|will|can|could|has|have|had|should|may)"


class Fact(NamedTuple):
    """A fact that is asked for: what a sentence that tells it looks like, and the words it must say besides.

    A `name` stands in a clause beside what it names; an `agent` beside what they did, and what they did it to. A kind
    of thing may be `headed` by the piece's title. A fact of the `whole`, as a reason is, needs a sentence that knows
    most of what is asked.
    """

    looks: re.Pattern[str]
    says: frozenset[str] = frozenset()
    done_to: frozenset[str] = frozenset()
    name: bool = False
    agent: bool = False
    headed: bool = False
    whole: bool = False


class Asked(NamedTuple):
    """A question taken apart: the facts it asks for, the words that say of what, and of these what somebody did.

    `whether` it is so and what is there for a `visitor` ask for no kind of fact, and for evidence that speaks of it.
    """

    facts: Sequence[Fact]
    about: str
    deed: str = ""
    whether: bool = False
    visitor: bool = False


def asked(question: str) -> Asked:
    """The facts a question asks for; none, where anything on its subject answers it."""
    facts: list[Fact] = []
    question = question[:LOOKED_AT]
    about, deed = question, ""
    for asks, fact in _KINDS:
        if found := asks.search(about):
            facts.append(fact(found))
            about = f"{about[: found.start()]} {_subject(found)} {about[found.end() :]}"
            deed += _subject(found) if fact is _done_by else ""
    visitor = of_a_visitor(question)
    dated = any(fact in (_WEEK, _MONTH, _HOUR) for fact in facts)
    return Asked(facts, as_a_visit(about) if visitor and dated else about, deed, whether(question), visitor)


def holds(piece: Evidence, question: Asked, language: Language, cover: float = 1.0) -> bool:
    """Whether the piece, which knows `cover` of the question, tells each fact in a sentence on the subject."""
    subject = frozenset(terms(question.about) or subjects(question.about))
    head = f"{piece.titled(language)} {piece.words.get(language, '')}"
    heads = _words(head)
    sentences = [part for part in _SENTENCE.split(piece.said(language)) if part.strip()]
    titled = piece.kind == "person" and cover >= _THE_ONE_MEANT and not subject.isdisjoint(heads)
    for fact in question.facts:
        parts = [part for before, sentence in pairwise(["", *sentences]) for part in _split(before, sentence, fact)]
        on_it = [part for part, around in parts if _is_on(subject, heads, _words(around), fact)]
        told = [*on_it, head] if fact.headed else on_it
        if fact.done_to and piece.kind == "person" and fact.done_to <= _words(piece.titled(language)):
            told = [part for part in told if _DONE_TO_SOMEBODY.search(part)]
        if not (fact.name and titled) and not any(_tells(part, fact, heads) for part in told):
            return False
    return True


def speaks_to(piece: Evidence, question: Asked, language: Language) -> bool:
    """Whether the piece may answer who asks: a visitor asks of today, and no tale of long ago."""
    return not question.visitor or piece.kind not in _TALES or _TODAY.search(piece.said(language)) is not None


def _is_on(subject: frozenset[str], heads: frozenset[str], said: frozenset[str], fact: Fact) -> bool:
    if fact.whole:
        return len(subject & (heads | said)) >= _MOST * len(subject)
    return subject <= heads or not subject.isdisjoint(said)


def _split(before: str, sentence: str, fact: Fact) -> list[tuple[str, str]]:
    """The parts of a sentence in which a fact is to be found, each with the words around it."""
    if fact.name:
        return _clauses(sentence)
    if fact.whole:
        return [(sentence, sentence), (f"{before}. {sentence}", sentence)]
    # Who did one thing did not do the next, where the sentence tells what was done: "was made by Ann, and sold".
    if fact.agent and _PASSIVE.search(sentence):
        return [(clause, sentence) for clause in _CLAUSE.split(sentence)]
    return [(sentence, sentence)]


def _clauses(sentence: str) -> list[tuple[str, str]]:
    """Each clause, and the same with the one before it: a name stands beside or behind what it names."""
    clauses = _CLAUSE.split(sentence)
    return [(clause, f"{before}, {clause}") for before, clause in pairwise(["", *clauses])]


def _tells(sentence: str, fact: Fact, heads: frozenset[str]) -> bool:
    if fact.looks.search(sentence) is None:
        return False
    if not fact.says.isdisjoint(heads):
        return not fact.done_to or not fact.done_to.isdisjoint(_words(sentence) | heads)
    # What is done and what it is done to stand in one clause: "the pupils built a boat", and no school.
    said_in = [{*_words(part), *part} for part in (_CLAUSE.split(sentence) if fact.done_to else [sentence])]
    wanted = [words for words in (fact.says, fact.done_to) if words]
    return any(all(not words.isdisjoint(said) for words in wanted) for said in said_in)


def _words(text: str) -> frozenset[str]:
    return frozenset((*terms(text), *subjects(text)))


def _subject(found: re.Match[str]) -> str:
    """What the asking words themselves say of the subject, such as "steps" in "how many steps"."""
    return " ".join(word for group, word in found.groupdict().items() if word and group.startswith("of"))


def _like(pattern: str, *, name: bool = False, whole: bool = False) -> Callable[[re.Match[str]], Fact]:
    # People and names are known by their capitals.
    flags = 0 if pattern in (looks.PERSON, looks.PLACE, looks.NAMING) else re.IGNORECASE
    return _just(Fact(expression(pattern, flags), name=name, whole=whole))


def _just(fact: Fact) -> Callable[[re.Match[str]], Fact]:
    return lambda _: fact


def _done_by(found: re.Match[str]) -> Fact:
    """Somebody, in a sentence that says what they did."""
    did = found["of"] or ""
    done_to = _OBJECT.match(found.string, found.end()) if did else None
    return Fact(
        expression(looks.PERSON),
        says=_words(did) | frozenset(_HAN_DEED.findall(did)),
        done_to=_words(done_to["of"]) if done_to else frozenset(),
        agent=True,
    )


def _thing(found: re.Match[str]) -> Fact:
    """A thing of the kind that is asked for, and more of it than "the country"."""
    stems = [stem.rstrip("i") for stem in terms(found["of"] or found["of_what"])] or [r"\w"]
    return Fact(expression(rf"(?<!\bthe )(?<!\ba )\b{stems[0]}", re.IGNORECASE), headed=True)


def _thing_in_chinese(found: re.Match[str]) -> Fact:
    return Fact(expression(found["of"]), headed=True)


def _amount(found: re.Match[str]) -> Fact:
    """A number of some measure; "one pan" is none, where a pan's salt is asked for."""
    named = "|".join(re.findall(r"\w+", found.string))
    measured = rf"\b{looks.NUMBER} (?!(?:{named})\b)\w+ of {found['of']}"
    return Fact(expression(f"{looks.WEIGHT}|{measured}", re.IGNORECASE))


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


_WEEK: Final = Fact(expression(looks.WEEK, re.IGNORECASE))
_MONTH: Final = Fact(expression(looks.MONTH, re.IGNORECASE))
_HOUR: Final = Fact(expression(looks.CLOCK, re.IGNORECASE))
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
        (r"\b(?:today|now|nowadays|still|currently|these days)\b|现在|如今|目前|今天|当今", _like(looks.PRESENT)),
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
        (
            rf"(?:\b(?:on|this|next|every) )?(?:\b(?:an?|the) )?\b(?:{looks.WEEKDAYS})\b|{looks.WEEKDAYS_ZH}",
            _just(_WEEK),
        ),
        (
            rf"\b(?:in|during) (?:the )?(?:{looks.MONTHS}|spring|summer|autumn|winter)\b|{looks.SEASONS_ZH}",
            _just(_MONTH),
        ),
        (
            rf"(?P<of>\b(?:open|close[ds]?|visit|come|enter|arrive|get in)\b.{{0,30}}?)"
            rf"\b(?:at|by|before|after|until|till|from) {looks.HOURS}(?: ?[ap]\.?m\b\.?| o'clock)?(?!\w)"
            rf"|(?:早上|上午|中午|下午|傍晚|晚上|夜里)?{looks.NUMBER_ZH}点[钟半]?|(?:半夜|夜里|晚上|中午)(?=.{{0,6}}[进开])",
            _just(_HOUR),
        ),
        (r"\bwhat time\b|\bwhat hours?\b|几点钟?|什么钟点", _like(looks.CLOCK)),
        (
            r"\b(?:what|which) (?:year|century|era|dynasty|reign)\b|哪个年号|哪一?年|何年|什么年代|哪个?朝代?|什么朝代",
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
            r"|\bhow much time\b(?:.{0,12}\bneed\b)?|\bhow long (?:did|does|do|will|would) (?P<of>.{1,60}?) take\b"
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
        (rf"\bhow much (?P<of>(?!(?:{_IS}|of|more|less)\b)[a-z]+)", _amount),
        (rf"\bhow many\b ?(?P<of>(?:(?!(?:{_IS}|of|in|the)\b)\w+ ?){{0,3}})", _things),
        (
            rf"(?:多少|(?<!第)几(?!乎))(?P<measure>[{_PRECISE}{_VAGUE}])?(?P<of>[\u3400-\u9fff]{{0,4}})",
            _things_in_chinese,
        ),
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
            rf"{_STARTS}which (?P<of>(?!(?:{_IS}|of|one|ones)\b)[a-z]+)\b(?= )"
            rf"|{_STARTS}what (?P<of_what>(?!(?:{_IS}|of|kind|sort|else)\b)[a-z]+)(?= {_IS}\b)",
            _thing,
        ),
        (r"(?:是|在|由)?哪[个家种](?P<of>[\u3400-\u9fff]{2})", _thing_in_chinese),
        (
            r"\bwhy\b|\bwhat (?:made|makes)\b|\bwhat.{1,20}\breasons?\b"
            r"|是?(?:为什么|为何|为啥|什么原因)(?:叫这个名字|这么叫)?",
            _like(looks.REASON, whole=True),
        ),
        (r"\b(?:each|every|per) (?:year|day|month|week)\b|每[年月天周]", _like(looks.EACH)),
        (
            r"\bfrom where\b|\bwhere\b(?=.{1,60}\bfrom\W*$)(?!.{1,60}\bname\b)|从(?:哪里|哪儿|什么地方|何处)|哪里人",
            _like(looks.HOME),
        ),
        (rf"{_STARTS}where\b(?!.*\bfrom\W*$)|在?(?:哪里|哪儿|(?<!是)什么地方|何处|什么位置)|在哪", _like(looks.PLACE)),
    )
]
