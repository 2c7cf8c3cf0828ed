"""Quotations: what users state about themselves, in their own words, remembered where no model takes notes.

A sentence about the user is quoted with the statements that follow it: alone it is often not found again, since what it
was about stands in the next ones. A sentence that states and asks ("I am vegan, what can I eat?") is kept whole.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from tenuto.llm.offline.phrases import is_question, is_request, match_intent
from tenuto.recall.lexical import split_sentences, terms

# What is read of one message: as much as a search for sessions reads, and as one request to a model holds.
READ: Final = 8_000
# A quotation has at most so many characters.
LONGEST: Final = 400
# Of a message with more quotations neighbours become one, and so many of its sentences may be instructions.
_MOST: Final = 8
_LONGEST_INSTRUCTION: Final = 200
_FIRST_PERSON: Final = re.compile(
    r"\b(?:i|i'm|i've|i'd|i'll|me|my|mine|myself|we|we're|we've|us|our|ours|remember)\b|[我咱俺]|本人|记住",
    re.IGNORECASE,
)
_CLAUSE_END: Final = re.compile(r"[,;:，；：、–—]+|\s-\s")
# Where a long sentence is parted: behind clauses, else between words. Never in a number, which is recognised as private
# by its whole.
_PLACES: Final = (
    re.compile(r"(?<=[,;:–—])(?=\s)|(?<=[，；：、])"),
    re.compile(r"(?<=[^\W\d_])(?=\s+[^\W\d_])|(?<=[\u3040-\u9fff])(?=[\u3040-\u9fff])"),
)


def states_something(text: str) -> bool:
    """Whether a message is more than questions and small talk. A request is: a model tells whether it is for now."""
    return any(
        _says_something(sentence) and (not is_question(sentence.strip()) or _is_of_the_user(sentence))
        for sentence in split_sentences(text[:READ])
    )


def possible_instructions(text: str) -> list[str]:
    """The sentences that may say how the user wants to be answered: no questions, no small talk; of many, the shortest.

    A request is among them: only its meaning tells whether it is for now.
    """
    sentences = [
        sentence
        for sentence in split_sentences(text[:READ])
        if len(sentence) <= _LONGEST_INSTRUCTION and _says_something(sentence) and not is_question(sentence.strip())
    ]
    shortest = sorted(sentences, key=len)[:_MOST]
    return [sentence for sentence in sentences if sentence in shortest]


class Quotation(NamedTuple):
    """Words of a user, and where in their message the first of them stand."""

    start: int
    text: str


def quotable_sentences(text: str, without: Collection[str] = ()) -> list[str]:
    """The texts of the quotations of a message."""
    return [one.text for one in quotations(text, without)]


def quotations(text: str, without: Collection[str] = ()) -> list[Quotation]:
    """The sentences of a user that state something about them, as they were said; of many, several together.

    Each comes with the statements up to the next one, the first also with those before it, as far as there is room.
    One without end is quoted in parts. Sentences in `without` are left out.
    """
    quoted: list[Quotation] = []
    before: list[Quotation] = []
    for sentence in split_sentences(text[:READ]):
        if sentence in without:
            continue
        one, reason = Quotation(text.find(sentence), sentence), junk_reason(sentence)
        if not reason:
            together = _join([*before, one], LONGEST)
            quoted.append(together[0] if len(together) == 1 else one)
            before = []
        elif reason == _OF_OTHERS:
            last = quoted or before
            together = _join([*last[-1:], one], LONGEST)
            if len(together) == 1 and len(together[0].text) <= LONGEST:
                last[-1:] = together
        elif reason == _TOO_LONG:
            quoted += [Quotation(one.start + sentence.find(part), part) for part in _parts(sentence)]
            before = []
    if len(quoted) > _MOST:
        # No longer than they must be: what a long one says is not found as well.
        quoted = _join(quoted, min(sum(len(one.text) for one in quoted) // _MOST, LONGEST))
    return quoted


def _join(each: Sequence[Quotation], room: int) -> list[Quotation]:
    """Neighbours as one, as far as there is room."""
    joined: list[Quotation] = []
    for one in each:
        together = f"{joined[-1].text} {one.text}" if joined else ""
        if joined and len(together) <= room:
            joined[-1] = joined[-1]._replace(text=together)
        else:
            joined.append(one)
    return joined


def _parts(sentence: str) -> list[str]:
    """The parts of a long sentence, all of them about the user as it is; what has no place to part it is left out."""
    parts = [sentence]
    for place in _PLACES:
        parts = [each for part in parts for each in ([part] if len(part) <= LONGEST else _fill(place.split(part)))]
    return [part.strip() for part in parts if len(part) <= LONGEST and _states(part)]


def _fill(pieces: Sequence[str]) -> list[str]:
    filled = [""]
    for piece in pieces:
        if len(filled[-1]) + len(piece) <= LONGEST:
            filled[-1] += piece
        else:
            filled.append(piece)
    return filled


def junk_reason(text: str) -> str:
    """Why a quotation is not worth a memory; empty if it is."""
    sentences = split_sentences(text)
    if not any(map(terms, sentences)):
        return "small talk" if match_intent(text) is not None else "too short"
    statements = [sentence for sentence in sentences if _states(sentence)]
    if not statements:
        return "small talk" if match_intent(text) is not None else "question"
    if not any(map(_is_of_the_user, statements)):
        return _OF_OTHERS
    return _TOO_LONG if len(text) > LONGEST else ""


_OF_OTHERS: Final = "not about the user"
_TOO_LONG: Final = "too long"


def _states(text: str) -> bool:
    """Whether a sentence states something, or a clause of a question states something of the user."""
    return _says_something(text) and (not _asks(text) or _is_of_the_user(text))


def _is_of_the_user(sentence: str) -> bool:
    """Whether a sentence states something of the user; one that asks, whether a clause of it does."""
    if _FIRST_PERSON.search(sentence) is None:
        return False
    if not _asks(sentence):
        return _says_something(sentence)
    return any(
        _FIRST_PERSON.search(clause) and not _asks(clause) and _says_something(clause)
        for clause in _CLAUSE_END.split(sentence)
    )


def _says_something(text: str) -> bool:
    """Whether there is more in it than stop words and small talk."""
    return bool(terms(text)) and match_intent(text) is None


def _asks(text: str) -> bool:
    return is_question(text.strip()) or is_request(text.strip())
