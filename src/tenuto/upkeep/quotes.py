"""Quotations: sentences of a user that state something about them, remembered where no model takes notes."""

from __future__ import annotations

import re
from typing import Final

from tenuto.llm.offline.phrases import is_question, is_request, match_intent
from tenuto.recall.lexical import split_sentences, terms

# What is read of one message, and what may come of it.
READ: Final = 4_000
MOST: Final = 8
# A statement has at most so many characters.
LONGEST: Final = 400
_FIRST_PERSON: Final = re.compile(
    r"\b(?:i|i'm|i've|i'd|i'll|me|my|mine|myself|we|we're|we've|us|our|ours|remember)\b|[我咱俺]|本人|记住",
    re.IGNORECASE,
)


def states_something(text: str) -> bool:
    """Whether a message is more than questions and small talk."""
    return any(
        terms(sentence) and not is_question(sentence) and match_intent(sentence) is None
        for sentence in split_sentences(text[:READ])
    )


def quotable_sentences(text: str) -> list[str]:
    """The sentences of a user that state something about them, as they were said; of many, the longest."""
    candidates = [sentence for sentence in split_sentences(text[:READ]) if not junk_reason(sentence)]
    longest = sorted(candidates, key=len, reverse=True)[:MOST]
    return [sentence for sentence in candidates if sentence in longest]


def junk_reason(sentence: str) -> str:
    """Why a sentence is not worth a memory; empty if it is."""
    if is_question(sentence) or is_request(sentence):
        return "question"
    if match_intent(sentence) is not None:
        return "small talk"
    if _FIRST_PERSON.search(sentence) is None:
        return "not about the user"
    if not terms(sentence):
        return "too short"
    return "too long" if len(sentence) > LONGEST else ""
