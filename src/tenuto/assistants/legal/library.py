"""The texts that the experts quote, and what they say about a question: which field it is in, which texts answer it.

There are no rules of language: fields and texts are ranked by the words they share with the question, and with the
user's turns before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import as_file, files
from typing import Final, NamedTuple

from tenuto.assistants.legal.plan import Field
from tenuto.assistants.npc.corpus import Corpus, Evidence, Match

# Below either, a match is chance: one common word, or a small part of what was asked.
_LEAST_SCORE: Final = 4.0
_LEAST_CONFIDENCE: Final = 0.12
_NEAR: Final = 0.6
_MOST_QUOTED: Final = 2
# How much the turns before count. On their own, "the non-compete part of that contract" is contract law, and an
# employment contract before it makes it labour law; a question with words of one field alone stays in that field.
_CONTEXT_WEIGHT: Final = 3.0
_CONTEXT_DECAY: Final = 0.5
# The other field is asked, too, if it comes this near.
_BESIDE: Final = 0.5


class Ranking(NamedTuple):
    """The field that leads, and whether the other one should be asked beside it."""

    lead: Field
    aside: bool


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

    def rank(self, question: str, earlier: Sequence[str]) -> Ranking | None:
        """The field of a question that follows these turns of its user, newest first; `None` if no text is near."""
        asked = self._confidences(question)
        before = dict.fromkeys(Field, 0.0)
        for age, text in enumerate(earlier):
            for field, found in self._confidences(text).items():
                before[field] = max(before[field], found * _CONTEXT_DECAY**age)
        weights = {field: asked[field] * (1 + _CONTEXT_WEIGHT * before[field]) for field in Field}
        if not any(weights.values()):
            weights = before
        lead = max(Field, key=weights.__getitem__)
        if not weights[lead]:
            return None
        other = lead.other
        return Ranking(lead, aside=asked[other] > 0 and weights[other] >= _BESIDE * weights[lead])

    def find(self, field: Field, question: str) -> tuple[Evidence, ...]:
        """The texts of a field that answer a question, best first; few or none."""
        found = [match for match in self._corpus.search(question) if match.piece.kind == field and _is_near(match)]
        return tuple(match.piece for match in found[:_MOST_QUOTED] if match.score >= _NEAR * found[0].score)

    def with_ids(self, ids: Sequence[str]) -> tuple[Evidence, ...]:
        """The texts with these ids; unknown ids are left out."""
        return self._corpus.with_ids(ids, None)

    def _confidences(self, text: str) -> dict[Field, float]:
        best = dict.fromkeys(Field, 0.0)
        for match in self._corpus.search(text):
            if _is_near(match):
                field = Field(match.piece.kind)
                best[field] = max(best[field], match.confidence)
        return best


def _is_near(match: Match) -> bool:
    return match.score >= _LEAST_SCORE and match.confidence >= _LEAST_CONFIDENCE
