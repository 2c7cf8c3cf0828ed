"""Quotations: what users state about themselves, in their own words, remembered where no model takes notes.

A sentence about the user is quoted with the statements that follow it: alone it is often not found again, since what it
was about stands in the next ones. A sentence that states and asks ("I am vegan, what can I eat?") is kept whole.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from tenuto.llm.offline.phrases import is_question, is_request, match_intent
from tenuto.recall.lexical import split_sentences, terms

# What is read of one message, and what may come of it.
READ: Final = 4_000
MOST: Final = 8
# A quotation has at most so many characters.
LONGEST: Final = 400
_LONGEST_INSTRUCTION: Final = 200
_FIRST_PERSON: Final = re.compile(
    r"\b(?:i|i'm|i've|i'd|i'll|me|my|mine|myself|we|we're|we've|us|our|ours|remember)\b|[我咱俺]|本人|记住",
    re.IGNORECASE,
)
_CLAUSE_END: Final = re.compile(r"[,;:，；：、–—]+|\s-\s")


def states_something(text: str) -> bool:
    """Whether a message is more than questions and small talk. A request is: a model tells whether it is for now."""
    return any(
        _states(sentence) or (terms(sentence) and match_intent(sentence) is None and not is_question(sentence.strip()))
        for sentence in split_sentences(text[:READ])
    )


def possible_instructions(text: str) -> list[str]:
    """The sentences that may say how the user wants to be answered: no questions, no small talk; of many, the shortest.

    A request is among them: only its meaning tells whether it is for now.
    """
    sentences = [
        sentence
        for sentence in split_sentences(text[:READ])
        if len(sentence) <= _LONGEST_INSTRUCTION
        and terms(sentence)
        and match_intent(sentence) is None
        and not is_question(sentence.strip())
    ]
    shortest = sorted(sentences, key=len)[:MOST]
    return [sentence for sentence in sentences if sentence in shortest]


def quotable_sentences(text: str, without: Collection[str] = ()) -> list[str]:
    """The sentences of a user that state something about them, as they were said; of many, the longest.

    Each comes with the statements up to the next one, the first also with those before it, as far as there is room.
    Sentences in `without` are left out.
    """
    quotations: list[str] = []
    before = ""
    for sentence in split_sentences(text[:READ]):
        if sentence in without:
            continue
        reason = junk_reason(sentence)
        if not reason:
            together = f"{before} {sentence}".strip()
            quotations.append(together if len(together) <= LONGEST else sentence)
            before = ""
        elif reason == _OF_OTHERS:
            together = f"{quotations[-1] if quotations else before} {sentence}".strip()
            if len(together) > LONGEST:
                continue
            if quotations:
                quotations[-1] = together
            else:
                before = together
    longest = sorted(quotations, key=len, reverse=True)[:MOST]
    return [quotation for quotation in quotations if quotation in longest]


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
    return "too long" if len(text) > LONGEST else ""


_OF_OTHERS: Final = "not about the user"


def _states(text: str) -> bool:
    """Whether a sentence or clause says something, or a clause of a question says something of the user."""
    if not terms(text) or match_intent(text) is not None:
        return False
    return not _asks(text) or _is_of_the_user(text)


def _is_of_the_user(sentence: str) -> bool:
    if _FIRST_PERSON.search(sentence) is None:
        return False
    clauses = _CLAUSE_END.split(sentence) if _asks(sentence) else [sentence]
    return any(
        not _asks(clause) and match_intent(clause) is None and _FIRST_PERSON.search(clause) and terms(clause)
        for clause in clauses
    )


def _asks(text: str) -> bool:
    return is_question(text.strip()) or is_request(text.strip())
