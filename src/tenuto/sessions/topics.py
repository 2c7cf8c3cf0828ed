"""Hot topics: the words that the titles of many sessions share (C14).

English words count by their stem and are shown as they are mostly written. Chinese has no blanks, and a pair of
neighbouring characters is seldom a word, so a topic there is a string of characters that recurs: the longest one,
unless a part of it is much more frequent.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final, TypeAlias

from tenuto.model import Session
from tenuto.model.analytics import Topic
from tenuto.recall import readable_words

MIN_USERS: Final = 3
"""How many users, or sessions without a user, must have raised a topic.

What one person asks about is theirs; with two, each knows the other's. Sessions without a user tell of no person, and
each counts as one: visitors cannot be told apart.
"""
# What follows in a longer title, or in a longer run of Chinese, seldom names the subject, and takes time.
_TITLE: Final = 80
_RUN: Final = 16
_SHORTEST: Final = 2
# What stands in the place of private values, whole or cut: [REDACTED_EMAIL], [EMAIL_1], [REDACTED_EM...
_PLACEHOLDER: Final = re.compile(r"\[[A-Z][A-Z0-9_]+\b\]?")


# The user of a session, and the day of its last change.
_Raised: TypeAlias = tuple[str | None, date]


@dataclass(slots=True)
class _Tally:
    """In how many sessions of each day, of which users, and in how many without a user, a term occurred."""

    days: Counter[date] = field(default_factory=Counter)
    users: set[str] = field(default_factory=set)
    without_user: int = 0

    def add(self, raised: Sequence[_Raised]) -> None:
        users = [user for user, _ in raised if user is not None]
        self.users.update(users)
        self.without_user += len(raised) - len(users)
        self.days.update([day for _, day in raised])

    @property
    def sessions(self) -> int:
        return self.days.total()

    @property
    def is_shared(self) -> bool:
        return len(self.users) + self.without_user >= MIN_USERS


def count_topics(sessions: Iterable[Session], limit: int) -> tuple[Topic, ...]:
    """The most frequent topics that at least `MIN_USERS` users, or sessions without one, raised.

    Each session counts once for each topic.
    """
    words: defaultdict[str, _Tally] = defaultdict(_Tally)
    spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)
    # Many sessions have the same title, as the first question of a guide is.
    runs: defaultdict[tuple[str, ...], list[_Raised]] = defaultdict(list)
    for session in sessions:
        raised = session.scope.user, session.updated_at.date()
        found, cjk = readable_words(_PLACEHOLDER.sub(" ", session.title[:_TITLE]))
        for term, word in dict(found).items():
            if len(word) >= _SHORTEST and not word.isdecimal():
                words[term].add((raised,))
                spellings[term][word] += 1
        runs[tuple([run[:_RUN] for run in cjk])].append(raised)
    tallies = {_usual(spellings[term]): tally for term, tally in _raised(words).items()} | _cjk_words(runs)
    topics = [
        Topic(name=name, sessions=tally.sessions, users=len(tally.users), days=dict(sorted(tally.days.items())))
        for name, tally in tallies.items()
    ]
    return tuple(sorted(topics, key=lambda topic: (-topic.sessions, -topic.users, topic.name))[:limit])


def _usual(spellings: Counter[str]) -> str:
    """The most frequent spelling; of equal ones that without capitals."""
    return min(spellings, key=lambda spelling: (-spellings[spelling], not spelling.islower(), spelling))


def _raised(tallies: Mapping[str, _Tally]) -> dict[str, _Tally]:
    return {term: tally for term, tally in tallies.items() if tally.is_shared}


def _cjk_words(runs: Mapping[tuple[str, ...], Sequence[_Raised]]) -> dict[str, _Tally]:
    """Recurring strings of characters in runs, of which the users and days are given."""
    strings: dict[str, _Tally] = {}
    shorter: dict[str, _Tally] = {}
    for size in range(_SHORTEST, _RUN + 1):
        tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
        for own, raised in runs.items():
            for string in {run[at : at + size] for run in own for at in range(len(run) - size + 1)}:
                # A string is not more frequent than its parts.
                if size == _SHORTEST or (string[1:] in shorter and string[:-1] in shorter):
                    tallies[string].add(raised)
        shorter = _raised(tallies)
        strings |= shorter
        if not shorter:
            break
    return _without_fragments(strings)


def _without_fragments(strings: Mapping[str, _Tally]) -> dict[str, _Tally]:
    """The strings without those that two times of three are a part of a longer one."""
    kept: dict[str, _Tally] = {}
    within: Counter[str] = Counter()
    for string in sorted(strings, key=len, reverse=True):
        tally = strings[string]
        if 3 * within[string] >= 2 * tally.sessions:
            continue
        kept[string] = tally
        for size in range(_SHORTEST, len(string)):
            for at in range(len(string) - size + 1):
                part = string[at : at + size]
                within[part] = max(within[part], tally.sessions)
    return kept
