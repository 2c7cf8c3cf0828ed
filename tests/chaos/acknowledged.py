"""What clients were told, held against what the store has: losses, doubles and turns in the wrong order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

Turn: TypeAlias = tuple[str, str]
"""A question, which occurs once in its session, and its answer."""


@dataclass(frozen=True)
class Verdict:
    """The acknowledged turns, and what is wrong with them."""

    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    apart: int = 0
    """Answers that do not follow their questions at once."""

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.doubled or self.reordered or self.apart)

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(
            self.acknowledged + other.acknowledged,
            self.lost + other.lost,
            self.doubled + other.doubled,
            self.reordered + other.reordered,
            self.apart + other.apart,
        )


def check_session(acknowledged: Sequence[Turn], log: Sequence[tuple[str, str]]) -> Verdict:
    """Compare a session's acknowledged turns, in their order, with its log of roles and texts."""
    counts = Counter(text for role, text in log if role == "user")
    places = {text: place for place, (role, text) in reversed(list(enumerate(log))) if role == "user"}
    found = [(question, answer) for question, answer in acknowledged if question in places]
    answered = [("assistant", answer) in log[places[question] + 1 :] for question, answer in found]
    together = [log[places[question] : places[question] + 2] == _pair(question, answer) for question, answer in found]
    return Verdict(
        acknowledged=len(acknowledged),
        lost=len(acknowledged) - sum(answered),
        doubled=sum(count - 1 for count in counts.values()),
        reordered=sum(places[one] > places[two] for (one, _), (two, _) in pairwise(found)),
        apart=sum(answered) - sum(together),
    )


def _pair(question: str, answer: str) -> list[tuple[str, str]]:
    return [("user", question), ("assistant", answer)]


def check_all(acknowledged: Mapping[str, Sequence[Turn]], logs: Mapping[str, Sequence[tuple[str, str]]]) -> Verdict:
    """Compare every session."""
    verdicts = (check_session(turns, logs.get(session, ())) for session, turns in acknowledged.items())
    return sum(verdicts, Verdict())
