"""The texts that the experts quote, and what they say about a question: which field it is in, which texts answer it.

There are no rules of language: fields and texts are ranked by the words they share with the question, and with the
user's turns before it. A question stays with the expert that holds the conversation as long as some of its words are of
that field; where the scores are near each other, the user is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import as_file, files
from typing import Final, NamedTuple

from tenuto.assistants.legal.plan import LegalField
from tenuto.assistants.npc.corpus import Corpus, Evidence, Match

# Below either, a match is chance: one common word, or a small part of what was asked.
_LEAST_SCORE: Final = 4.0
_LEAST_CONFIDENCE: Final = 0.12
_NEAR: Final = 0.6
_MOST_QUOTED: Final = 2
# The part of the other field's score at which a question is connected with the field of the conversation: "the
# non-compete part of that contract" after an employment contract is, "my landlord keeps the deposit" is not.
_CONNECTED: Final = 0.25
# How much a turn before counts, by its age.
_CONTEXT_DECAY: Final = 0.8
# Two scores that differ by less are a close call.
_CLOSE: Final = 1.1
# The other field is asked, too, if it comes this near.
_BESIDE: Final = 0.5


class EarlierTurn(NamedTuple):
    """What the user said before, and the field whose expert answered, if it is known."""

    text: str
    lead: LegalField | None = None


class Ranking(NamedTuple):
    """The field that leads, whether the other one should be asked beside it, and whether it was a close call."""

    lead: LegalField
    aside: bool = False
    close: bool = False


class Library:
    """All texts of both fields."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self.texts = corpus.pieces

    @classmethod
    def shipped(cls) -> Library:
        """The sample texts that come with tenuto. They are no legal advice."""
        with as_file(files(__package__).joinpath("shipped", "corpus.jsonl")) as path:
            return cls(Corpus.load(path))

    def rank(self, question: str, earlier: Sequence[EarlierTurn]) -> Ranking | None:
        """The field of a question that follows these turns of its user, newest first; `None` if no text is near."""
        held = self._earlier_scores(earlier)
        if not any(held.values()):
            confidences = self._confidences(question)
            lead = max(LegalField, key=confidences.__getitem__)
            return (
                Ranking(lead, aside=confidences[lead.other] >= _BESIDE * confidences[lead] > 0)
                if confidences[lead]
                else None
            )
        holder = max(LegalField, key=held.__getitem__)
        other, scores, confidences = holder.other, self._scores(question), self._confidences(question)
        if scores[holder] >= scores[other]:
            return Ranking(holder)
        if scores[holder] < _CONNECTED * scores[other]:
            if confidences[other]:
                return Ranking(other)
            return Ranking(holder, close=not scores[holder] and scores[other] >= _LEAST_SCORE)
        stay, leave = scores[holder] + held[holder], scores[other] + held[other]
        if leave > _CLOSE * stay:
            return Ranking(other)
        aside = confidences[other] > 0 and leave >= _BESIDE * stay
        return Ranking(holder, aside=aside, close=stay < _CLOSE * leave)

    def _earlier_scores(self, earlier: Sequence[EarlierTurn]) -> dict[LegalField, float]:
        """The score of each field in the turns before: a turn counts for the expert that answered it."""
        held = dict.fromkeys(LegalField, 0.0)
        for age, (text, lead) in enumerate(earlier):
            scores, confidences = self._scores(text), self._confidences(text)
            field = lead or max(LegalField, key=confidences.__getitem__)
            if lead is None and not confidences[field]:
                continue
            held[field] = max(held[field], max(_LEAST_SCORE, *scores.values()) * _CONTEXT_DECAY**age)
        return held

    def find(self, field: LegalField, question: str, *, held: bool = False) -> tuple[Evidence, ...]:
        """The texts of a field that answer a question, best first; few or none.

        In a conversation that is `held` in this field, a text may share a smaller part of the question.
        """
        matches = [match for match in self._corpus.search(question) if match.piece.kind == field]
        found = [match for match in matches if _is_near(match)]
        if held and not found:
            found = [match for match in matches if match.score >= _LEAST_SCORE]
        return tuple(match.piece for match in found[:_MOST_QUOTED] if match.score >= _NEAR * found[0].score)

    def with_ids(self, ids: Sequence[str]) -> tuple[Evidence, ...]:
        """The texts with these ids; unknown ids are left out."""
        return self._corpus.with_ids(ids, None)

    def _scores(self, text: str) -> dict[LegalField, float]:
        best = dict.fromkeys(LegalField, 0.0)
        for match in self._corpus.search(text):
            field = LegalField(match.piece.kind)
            best[field] = max(best[field], match.score)
        return best

    def _confidences(self, text: str) -> dict[LegalField, float]:
        best = dict.fromkeys(LegalField, 0.0)
        for match in self._corpus.search(text):
            if _is_near(match):
                field = LegalField(match.piece.kind)
                best[field] = max(best[field], match.confidence)
        return best


def _is_near(match: Match) -> bool:
    return match.score >= _LEAST_SCORE and match.confidence >= _LEAST_CONFIDENCE
