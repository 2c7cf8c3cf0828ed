"""Which rules a question names: by their places in the list, by their neighbours, by their words, or by a subject."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from tenuto.assistants.npc.corpus import Corpus, Evidence
from tenuto.assistants.npc.focus import Focus
from tenuto.model.expression import expression
from tenuto.model.numbers import CARDINAL, HAN_NUMBER, ORDINAL, ROMAN, whole

RULE: Final = r"(?:rule|precept|maxim)s?"
# "What does the third mean?" points at a list; "the third generation" does not.
_POINTING: Final = (
    r"(?=\s*(?:$|[?.!,;:)]|and\b|or\b|then\b|please\b|means?\b|says?\b|is\b|about\b"
    r"|of (?:them|these|those|the rules)\b))"
)
_PLACE: Final = expression(
    rf"(?P<back>倒数)?第\s*(?P<zh>{HAN_NUMBER})\s*(?:(?P<of>[条则])|[个点句项]|(?=$|[^\u3400-\u9fff]|[呢是的有讲说又和与跟到至]))"
    rf"|\b(?P<en>{ORDINAL})(?: (?:family |house )?(?P<noun>{RULE})\b| (?:one|point|item)\b|{_POINTING})"
    rf"|\b(?:(?P<named>{RULE})(?: number| no\.?)?|number|no\.)\s*#?\s*"
    rf"(?P<num>(?<=\s)-\d{{1,6}}|\d{{1,6}}|{ROMAN}|{CARDINAL})(?![\w-])",
    re.IGNORECASE,
)
# What goes on counting behind a place: "and 6", 、六条, "to the eighth".
_MORE: Final = expression(
    rf"[条则]?\s*(?:[,、和与及跟&]|\b(?:and|or)\b|(?P<up_to>[到至]|\b(?:to|through)\b))\s*(?:the\s|第)?"
    rf"(?P<number>{HAN_NUMBER}|{ORDINAL}|{CARDINAL})(?:(?=[条则有的是讲说])|\s*{RULE}\b|{_POINTING})",
    re.IGNORECASE,
)
_ONE: Final = rf"(?:one|{RULE})\b"
_LAST: Final = expression(
    rf"最后一?[条则个]|\b(?:very )?last {_ONE}|\bthe (?:very )?last(?=\s*[?.!]*$| of )", re.IGNORECASE
)
_BESIDE: Final = (
    (
        1,
        expression(
            rf"下一?[条则个]|接下来(?=呢|$)|\b(?:next|following) {_ONE}|\bthe next(?=\s*[?.!]*$)"
            r"|^\W*(?:and |what about )?next\W*$",
            re.IGNORECASE,
        ),
    ),
    (
        -1,
        expression(
            rf"[上前]一[条则个]|\b(?:previous|preceding) {_ONE}|\bthe previous(?=\s*[?.!]*$)|\bthe one before\b",
            re.IGNORECASE,
        ),
    ),
)
RULES: Final = expression(r"家训|家规|族规|祖训|规矩|\b(?:family |house |ten )?(?:rules|precepts)\b", re.IGNORECASE)
ANY_RULES: Final = expression(rf"{RULES.pattern}|\b{RULE}\b", re.IGNORECASE)
_SUBJECT: Final = expression(
    rf"\b{RULE}\b(?: \w+){{0,2}}? (?:about|against|for|concerning|says?|speaks?|teach(?:es)?|tells?|covers?|deals? with"
    r"|mentions?|forbids?|prohibits?|allows?|bans?)\b"
    r"|(?:哪一?几?|第几)[条则](?:家训|家规|规矩|祖训)?(?:里|中)?(?:是|在|有)?(?:讲|说|谈|管|禁止|不许|关于|提到?)"
    r"|(?:有?关于|有关|针对|反对|禁止|不许).{1,20}?(?:家训|家规|族规|祖训|规矩)|(?:家训|家规|族规|祖训|规矩).{0,6}(?:关于|提到|说到|讲到|禁止|不许)",
    re.IGNORECASE,
)
_SAYING: Final = expression(
    r"\b(?:about|against|concerning|says?|speaks?|teach(?:es)?|tells?|covers?|deals? with|mentions?|forbids?|prohibits?"
    r"|allows?|bans?)\b|哪一?几?|第几|有?关于|有关|针对|反对|禁止|不许|提到?|说到?|讲到?|谈到?|[条则]",
    re.IGNORECASE,
)
# A rule must know this much of the subject to be the one that is on it.
_ON_IT: Final = 0.6
_LOOKED_AT: Final = 20


def subject_of_rules(question: str) -> str:
    """What it is asked of rules whether they are on; nothing, where the question asks no such thing."""
    if _SUBJECT.search(question) is None:
        return ""
    return _SAYING.sub(" ", ANY_RULES.sub(" ", _PLACE.sub(" ", question)))


def beside_places(question: str) -> str:
    """The question without the rules that it counts."""
    return _MORE.sub(" ", _PLACE.sub(" ", question))


def rule_on(question: str, corpus: Corpus, persona: str | None) -> Evidence | None:
    """The piece that shows which rule is on a subject ("a rule against gambling"); a story where none else does."""
    subject = subject_of_rules(question)
    hits = [hit.piece for hit in corpus.search(subject, persona, _LOOKED_AT) if hit.cover >= _ON_IT]
    ruled = [piece for piece in hits if piece.rule is not None]
    return next((piece for piece in ruled if piece.kind != "story"), next(iter(ruled), None))


def rules_named(question: str, focus: Focus, corpus: Corpus) -> Sequence[int]:
    """The rules a question names, by their places or by their words; there need not be such rules."""
    rules = corpus.of("rule")
    numbers = sorted(piece.rule for piece in rules if piece.rule is not None)
    if not numbers:
        return ()
    spoken_of = focus.listed or focus.rule is not None or ANY_RULES.search(question) is not None
    places = list(_PLACE.finditer(question))
    if places and (spoken_of or any(place["of"] or place["noun"] or place["named"] for place in places)):
        return list(dict.fromkeys(_counted(places, numbers)))
    if _LAST.search(question) and spoken_of:
        return numbers[-1:]
    if focus.rule is not None:
        for step, pattern in _BESIDE:
            if pattern.search(question):
                return [focus.rule + step]
    return [piece.rule for piece in rules if piece.rule is not None and _names(question, piece, corpus)]


def _counted(places: Sequence[re.Match[str]], numbers: Sequence[int]) -> Iterator[int]:
    """The numbers of places, and those that are counted on behind them."""
    reached = 0
    for place in places:
        if place.start() < reached:
            continue  # Counted on from one before it.
        last, more = _numbered(place, numbers), _MORE.match(place.string, place.end())
        yield last
        while more is not None:
            number = whole(more["number"]) or 0
            yield from range(last + 1, min(number, numbers[-1])) if more["up_to"] else ()
            yield number
            last, reached, more = number, more.end("number"), _MORE.match(place.string, more.end())


def _numbered(place: re.Match[str], numbers: Sequence[int]) -> int:
    number = whole(place["zh"] or place["en"] or place["num"]) or 0
    if place["back"]:
        return numbers[-number] if 0 < number <= len(numbers) else 0
    return number


def _names(question: str, rule: Evidence, corpus: Corpus) -> bool:
    folded = question.lower()
    names = [name for title in rule.title.values() for name in (title.lower(), *_parts(title.lower()))]
    return any(name in folded or (not name.isascii() and _in_short(name[:2], folded, corpus)) for name in names)


def _parts(title: str) -> list[str]:
    """The halves of a title such as "respect nature, waste nothing"."""
    return title.split(", ") if title.isascii() else []


def _in_short(name: str, question: str, corpus: Corpus) -> bool:
    """Whether a rule is named by its first two characters, and not somebody by theirs: 敬天, not 严敬天."""
    place = question.find(name)
    return place >= 0 and not (place and corpus.knows(question[place - 1 : place + 1]))
