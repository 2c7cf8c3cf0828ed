"""What the asker has told about themselves, and finding it again: the newest statement wins, and lists grow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tenuto.llm.offline.chinese import chinese_asks_all, chinese_facts, chinese_wanted
from tenuto.llm.offline.english import english_asks_all, english_facts, english_wanted
from tenuto.llm.offline.facts import About, Fact, Wanted
from tenuto.llm.offline.finding import features
from tenuto.llm.offline.talk import Line

_MOST: Final = 8
_OPPOSITES: Final = {About.LIKES: About.DISLIKES, About.DISLIKES: About.LIKES}


def facts_in(text: str) -> list[Fact]:
    """What a text tells about whoever says it, in either language."""
    sentences = Line(text=text).sentences()
    return [fact for sentence in sentences for fact in (*english_facts(sentence), *chinese_facts(sentence))]


def told(lines: Iterable[Line]) -> list[Fact]:
    """Everything the asker told, oldest first."""
    return [fact for line in lines if line.own for fact in facts_in(line.text)]


def wanted(question: str) -> Wanted | None:
    """Which fact a question asks for, if it does."""
    return chinese_wanted(question) or english_wanted(question)


def wants_all(question: str) -> bool:
    """Whether it asks for all there is."""
    return chinese_asks_all(question) or english_asks_all(question)


def current(facts: Sequence[Fact]) -> list[Fact]:
    """All that is true by now, in the order it was first told, and not without end."""
    newest: dict[object, Fact] = {}
    for fact in facts:
        newest[_mark(fact)] = fact
        if opposite := _OPPOSITES.get(fact.about):
            newest.pop((opposite, fact.value.casefold()), None)
    return list(newest.values())[-2 * _MOST :]


def known(facts: Sequence[Fact], asked: Wanted) -> list[Fact]:
    """What answers it, oldest first: all that is true together, or the newest alone."""
    now = current(facts)
    for about in asked.about:
        found = [fact for fact in now if fact.about is about and _same(fact, asked.label)]
        if found:
            return found[-_MOST:] if about.many else [next(fact for fact in reversed(facts) if fact in found)]
    return []


def replaced(facts: Sequence[Fact], by: Fact) -> Fact | None:
    """What was told of the same thing before, if it was something else."""
    same = [fact for fact in facts if _mark(fact) == _mark(by) and fact.value.casefold() != by.value.casefold()]
    return same[-1] if same and not by.about.many else None


def _mark(fact: Fact) -> tuple[About, object]:
    """What another statement must be about to take this one's place."""
    if fact.about.many:
        return fact.about, fact.value.casefold()
    return fact.about, (frozenset(features(fact.label)) or fact.label) if fact.about is About.OWN else ""


def _same(fact: Fact, asked: str) -> bool:
    """Whether a label names what was asked for: it holds all of its words, but for the one that asks for a name."""
    if fact.about is not About.OWN or fact.label == asked:
        return True
    has, wants = features(fact.label), features(asked)
    return bool(wants) and wants - features("name") <= has and not wants.isdisjoint(has)
