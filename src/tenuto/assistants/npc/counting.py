"""Which rules a question names: by their places in the list, by their neighbours, or by their words."""

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
    rf"|\b(?:(?P<named>{RULE})(?: number| no\.?)?|number|no\.)\s*#?\s*(?P<num>\d{{1,6}}|{ROMAN}|{CARDINAL})(?![\w-])",
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


def rules_named(question: str, focus: Focus, corpus: Corpus) -> Sequence[int]:
    """The rules a question names, by their places or by their words; there need not be such rules."""
    rules = corpus.of("rule")
    numbers = sorted(piece.rule for piece in rules if piece.rule is not None)
    if not numbers:
        return ()
    spoken_of = focus.listed or focus.rule is not None or RULES.search(question) is not None
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
    names = [title.lower() for title in rule.title.values()]
    return any(name in folded or (not name.isascii() and _in_short(name[:2], folded, corpus)) for name in names)


def _in_short(name: str, question: str, corpus: Corpus) -> bool:
    """Whether a rule is named by its first two characters, and not somebody by theirs: 敬天, not 严敬天."""
    place = question.find(name)
    return place >= 0 and not (place and corpus.knows(question[place - 1 : place + 1]))
