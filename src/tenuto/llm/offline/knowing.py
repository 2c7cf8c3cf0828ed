"""What the asker has told about themselves, and finding it again: the newest statement wins, and lists grow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tenuto.llm.offline.asks import is_small_talk
from tenuto.llm.offline.chinese import chinese_asks_all, chinese_facts, chinese_wanted
from tenuto.llm.offline.claims import Claim, may_hedge
from tenuto.llm.offline.correcting import changes, changes_it, corrected
from tenuto.llm.offline.english import english_asks_all, english_facts, english_wanted
from tenuto.llm.offline.facts import About, Fact, Wanted, fitted
from tenuto.llm.offline.finding import features, is_question
from tenuto.llm.offline.kinds import holds, kind_asked
from tenuto.llm.offline.labels import Fit, fit
from tenuto.llm.offline.talk import Line, standing
from tenuto.model.expression import expression

_MOST: Final = 8
_ASKED: Final = 200
_DOING: Final = expression(
    r"^(?:[吃喝看玩打听读学穿用]|(?:to |drinking |eating |playing |watching |reading |the |an? ))(?=.)"
)
_PLACED: Final = expression(r"^(?:in|from|at|near) ")
_FEW: Final = 3
_FAVOURITE: Final = expression(r"favou?rite|最(?:喜欢|爱)的")
# How a place, a work or a liking ends.
_LEAVES: Final = expression(
    r"\b(?:quit|left|leaving|resigned|fired|laid off|retired|no longer|any ?more|stopped|gave up|used to"
    r"|moved (?:out|away))\b"
    r"|辞|离职|离开|不再|搬[走离出]|戒|以前|不.{1,6}了",
    re.IGNORECASE,
)
_WORK: Final = expression(r"\bmy (?:old )?job\b|工作|辞职|离职", re.IGNORECASE)
_OPPOSITES: Final = {About.LIKES: About.DISLIKES, About.DISLIKES: About.LIKES}


def facts_in(text: str, claim: Claim = Claim.STATED) -> list[Fact]:
    """What a text tells about whoever says it, in either language; or what it only hedges."""
    sentences = Line(text=text).sentences()
    return [fact for one in sentences for fact in (*english_facts(one, claim), *chinese_facts(one, claim))]


def told(lines: Iterable[Line]) -> list[Fact]:
    """Everything the asker told, oldest first; "no, it's green" tells of what was spoken of just before."""
    facts: list[Fact] = []
    before: Fact | None = None
    for line in standing(lines):
        if not line.own:
            continue
        if found := facts_in(line.text):
            facts += found
            before = found[-1]
        elif before is not None and (value := corrected(line.text)) and _may_be(before, value):
            # Of several that can be true at once, the one that was wrong goes.
            facts = [fact for fact in facts if fact != before] if before.about.many else facts
            before = fitted(before, value)
            facts.append(before)
        elif before is not None and changes_it(line.text):
            before = replace(before, later=line.text.strip())
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
    """What answers it, oldest first: all that is true together, or the newest alone; else what is not so.

    What is called just as it was asked for comes before what is called so and more.
    """
    now = current(facts)
    for denied in (False, True):
        for about in asked.about:
            fits = [(_fit(fact, asked), fact) for fact in now if fact.about is about and fact.denied is denied]
            best = max((one for one, _ in fits), default=Fit.NONE)
            found = [fact for one, fact in fits if one is best and one is not Fit.NONE]
            if found:
                return found[-_MOST:]
    return []


def hedged(lines: Sequence[Line], asked: Wanted) -> str | None:
    """The newest words by which it was guessed, heard or denied to have been said."""
    own = [sentence for line in lines if line.own for sentence in line.sentences() if not is_question(sentence)]
    for sentence in reversed(own):
        facts = [fact for fact in _hedged_in(sentence) if fact.about in asked.about]
        if any(_fit(fact, asked) for fact in facts):
            return sentence
    return None


def _hedged_in(sentence: str) -> list[Fact]:
    return facts_in(sentence, Claim.HEDGED) if may_hedge(sentence) else []


def in_other_words(facts: Sequence[Fact], asked: Wanted, question: str, chinese: bool) -> list[Fact]:
    """What is called theirs in the other language and may be what is asked for: a favourite, or what is of its kind."""
    favourite, kind = _FAVOURITE.match(asked.label) is not None, kind_asked(question)
    others = [fact for fact in current(facts) if fact.label and fact.label.isascii() is chinese and not fact.denied]
    alike = [fact for fact in others if (_FAVOURITE.match(fact.label) is not None) is favourite]
    return [fact for fact in alike if favourite or (kind is not None and holds(kind, fact.value))][-_FEW:]


def changed_since(facts: Sequence[Fact], lines: Sequence[Line]) -> dict[Fact, str]:
    """The newest words by which what was told has changed: "I moved the meeting to Monday", "I quit my job"."""
    found = {fact: fact.later for fact in facts if fact.later}
    pending = [fact for fact in facts if not fact.later and not fact.denied]
    for sentence in reversed([one for line in lines if line.own for one in line.sentences()]):
        if not pending:
            break
        said = {_mark(fact) for fact in facts_in(sentence)}
        pending = [fact for fact in pending if _mark(fact) not in said]
        if not is_question(sentence):
            hedges = {_mark(fact) for fact in _hedged_in(sentence)}
            found |= {fact: sentence for fact in pending if _mark(fact) in hedges or _has_changed(fact, sentence)}
            pending = [fact for fact in pending if fact not in found]
    return found


def _has_changed(fact: Fact, sentence: str) -> bool:
    said = features(sentence)
    if fact.about is About.OWN:
        about = features(fact.label) - features("name")
        return bool(about) and changes(sentence) and about <= said
    about = features(fact.value)
    worked = fact.about in (About.JOB, About.WORKPLACE) and _WORK.search(sentence) is not None
    return _LEAVES.search(sentence) is not None and (worked or (bool(about) and about <= said))


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


def _may_be(before: Fact, value: str) -> bool:
    """Whether a value can stand in another's place: after "My name is Ann" nobody is called "raining"."""
    if before.about not in (About.NAME, About.HOME, About.ORIGIN) or not value[:1].islower():
        return True
    return not before.value[:1].isupper() or (" " not in _PLACED.sub("", value) and not value.endswith("ing"))


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
    return _alike(fact.value, before.value) or (_begins(before, fact) if fact.denied else not fact.about.many)


def _begins(known: Fact, denied: Fact) -> bool:
    """Whether a shorter name of it is denied: "at Acme" of "at Acme in Rome"."""
    placed = known.about in (About.HOME, About.WORKPLACE)
    return placed and known.value.casefold().startswith(f"{denied.value.casefold()} ")


def _alike(one: str, other: str) -> bool:
    """Whether two values are the same thing: 喝咖啡 is 咖啡, "green tea" is not "tea"."""
    one, other = (_DOING.sub("", value.casefold()) for value in (one, other))
    return one == other


def _fit(fact: Fact, asked: Wanted) -> Fit:
    return fit(fact.label, asked.label, fact.value) if fact.about is About.OWN else Fit.WHOLE
