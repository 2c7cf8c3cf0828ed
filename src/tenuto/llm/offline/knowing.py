"""What the asker has told about themselves, and finding it again: the newest statement wins, and lists grow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tenuto.llm.offline.asks import is_small_talk
from tenuto.llm.offline.chinese import chinese_asks_all, chinese_facts, chinese_wanted
from tenuto.llm.offline.correcting import corrected
from tenuto.llm.offline.english import english_asks_all, english_facts, english_wanted
from tenuto.llm.offline.facts import About, Fact, Wanted
from tenuto.llm.offline.finding import features, is_question
from tenuto.llm.offline.talk import Line
from tenuto.model.expression import expression

_MOST: Final = 8
_ASKED: Final = 200
_DOING: Final = expression(
    r"^(?:[吃喝看玩打听读学穿用]|(?:to |drinking |eating |playing |watching |reading |the |an? ))(?=.)"
)
# 我的航班是CA1234 tells what 我的航班号 asks for.
_NUMBER_OF: Final = expression(r"(?<=..)号码?$| numbers?$")
_FEW: Final = 3
_FAVOURITE: Final = expression(r"favou?rite|最(?:喜欢|爱)的")
_CHANGES: Final = expression(
    r"\b(?:moved?|rescheduled?|postponed?|delayed|changed?|shifted|pushed|put off|brought forward|cancell?ed|called off"
    r"|switched|swapped|replaced|renamed|sold|lost|over|now|no longer|any ?more|instead)\b"
    r"|改[到成在为期至]|推迟|推到|提前|延[期后到]|挪|换|取消|调[到整]|不再|不[开办去]了|没了|丢了|卖了",
    re.IGNORECASE,
)
_OPPOSITES: Final = {About.LIKES: About.DISLIKES, About.DISLIKES: About.LIKES}


def facts_in(text: str) -> list[Fact]:
    """What a text tells about whoever says it, in either language."""
    sentences = Line(text=text).sentences()
    return [fact for sentence in sentences for fact in (*english_facts(sentence), *chinese_facts(sentence))]


def told(lines: Iterable[Line]) -> list[Fact]:
    """Everything the asker told, oldest first; "no, it's green" tells of what was spoken of just before."""
    facts: list[Fact] = []
    before: Fact | None = None
    for line in lines:
        if not line.own:
            continue
        if found := facts_in(line.text):
            facts += found
            before = found[-1]
        elif before is not None and (value := corrected(line.text)):
            # Of several that can be true at once, the one that was wrong goes.
            facts = [fact for fact in facts if fact != before] if before.about.many else facts
            before = replace(before, value=value, denied=False)
            facts.append(before)
        elif asked := wanted(line.text[:_ASKED]):
            before = next(iter(known(facts, asked)[-1:]), None)
        elif not is_small_talk(line.text[:_ASKED]):
            before = None
    return facts


def told_by(text: str, lines: Sequence[Line]) -> list[Fact]:
    """What a text tells about whoever says it, after all that was said before."""
    if (found := facts_in(text)) or corrected(text) is None:
        return found
    before, after = told(lines), told([*lines, Line(text=text, own=True)])
    return after[-1:] if after != before else []


def wanted(question: str) -> Wanted | None:
    """Which fact a question asks for, if it does."""
    return chinese_wanted(question) or english_wanted(question)


def wants_all(question: str) -> bool:
    """Whether it asks for all there is."""
    return chinese_asks_all(question) or english_asks_all(question)


def current(facts: Sequence[Fact]) -> list[Fact]:
    """All that is true by now, in the order it was first told.

    What is denied takes back what was said before; what is said takes back what was denied.
    """
    newest: dict[object, Fact] = {}
    for fact in facts:
        for mark in [mark for mark, other in newest.items() if _takes_back(fact, other)]:
            del newest[mark]
        newest[_mark(fact)] = fact
    return list(newest.values())


def known(facts: Sequence[Fact], asked: Wanted) -> list[Fact]:
    """What answers it, oldest first: all that is true together, or the newest alone; else what is not so."""
    now = current(facts)
    for denied in (False, True):
        for about in asked.about:
            found = [fact for fact in now if fact.about is about and fact.denied is denied and _same(fact, asked.label)]
            if found:
                many = about.many or denied
                return found[-_MOST:] if many else [next(fact for fact in reversed(facts) if fact in found)]
    return []


def in_other_words(facts: Sequence[Fact], asked: Wanted, chinese: bool) -> list[Fact]:
    """What is called theirs in the other language, and may be what is asked for: a favourite for a favourite."""
    favourite = _FAVOURITE.match(asked.label) is not None
    others = [fact for fact in current(facts) if fact.label and fact.label.isascii() is chinese and not fact.denied]
    return [fact for fact in others if (_FAVOURITE.match(fact.label) is not None) is favourite][-_FEW:]


def changed_since(fact: Fact, lines: Sequence[Line]) -> str | None:
    """The newest words by which something changed that was told: "I moved the meeting to Monday"."""
    about = features(fact.label) - features("name")
    for line in reversed(lines if about else ()):
        if not line.own:
            continue
        for sentence in reversed(line.sentences()):
            if any(_mark(other) == _mark(fact) for other in facts_in(sentence)):
                return None
            if _CHANGES.search(sentence) and not is_question(sentence) and about <= features(sentence):
                return sentence
    return None


def all_known(facts: Sequence[Fact], most: int) -> tuple[list[Fact], int]:
    """Who somebody is before what they noted, the newest of it, in its order; and how many were left out."""
    now = current(facts)
    kept = sorted(now, key=lambda fact: fact.about is not About.NOTE)[-most:]
    return [fact for fact in now if fact in kept], len(now) - len(kept)


def replaced(facts: Sequence[Fact], by: Fact) -> Fact | None:
    """What was told of the same thing before, if it was something else."""
    if by.denied or by.about.many:
        return None
    same = [fact for fact in facts if _mark(fact) == _mark(by) and fact.value.casefold() != by.value.casefold()]
    # What was taken back in between was a mistake, and is not brought up again.
    denied = {fact.value.casefold() for fact in facts if fact.denied and fact.about is by.about}
    return next((fact for fact in reversed(same) if fact.value.casefold() not in denied), None)


def _mark(fact: Fact) -> tuple[About, object]:
    """What another statement must be about to take this one's place."""
    if fact.about.many or fact.denied:
        return fact.about, (fact.denied, fact.value.casefold(), fact.label)
    return fact.about, (frozenset(features(fact.label)) or fact.label) if fact.about is About.OWN else ""


def _takes_back(fact: Fact, before: Fact) -> bool:
    """Whether the newer one says that the older is no longer so."""
    if _OPPOSITES.get(fact.about) is before.about:
        return _alike(fact.value, before.value)
    if fact.about is not before.about or fact.denied is before.denied:
        return False
    if fact.about is About.OWN and features(fact.label) != features(before.label):
        return False
    # One name, one home: whoever has it needs no denials of others.
    return _alike(fact.value, before.value) or (not fact.denied and not fact.about.many)


def _alike(one: str, other: str) -> bool:
    """Whether two values are the same thing: 喝咖啡 is 咖啡, "green tea" is not "tea"."""
    one, other = (_DOING.sub("", value.casefold()) for value in (one, other))
    return one == other


def _same(fact: Fact, asked: str) -> bool:
    """Whether a label names what was asked for: it holds all of its words, but for the one that asks for a name.

    Asked for a name, "my dog is brown" tells none.
    """
    if fact.about is not About.OWN or fact.label == asked:
        return True
    has, wants, name = features(_NUMBER_OF.sub("", fact.label)), features(_NUMBER_OF.sub("", asked)), features("name")
    if name <= wants - has and fact.value[:1].islower():
        return False
    return bool(wants) and wants - name <= has and not wants.isdisjoint(has)
