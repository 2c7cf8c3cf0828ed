"""The evidence a character may speak from: pieces with ids, in two languages, and a search over them.

What a question asks for is weighed by rarity: a word that no piece knows weighs most, so that a question about
something else finds little, however many common words it shares. A piece is about its title and its further words; what
else stands in its text it only mentions.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from tenuto.assistants.npc.words import asked_for, subjects, terms
from tenuto.errors import InvalidSetting
from tenuto.model.prompt import Language
from tenuto.model.values import Value

ID: Final = re.compile(r"[A-Z][A-Z0-9]*(?:-[A-Z0-9]+)+")
_K1: Final = 1.2
_B: Final = 0.6
_TITLE_WEIGHT: Final = 3


class Evidence(Value, frozen=True, kw_only=True):
    """One piece. `rule` numbers what belongs to a rule; `words` helps to find it; `personas` reserves it to some."""

    id: str
    kind: str
    title: dict[Language, str]
    text: dict[Language, str]
    rule: int | None = None
    words: dict[Language, str] = {}
    personas: tuple[str, ...] = ()

    def said(self, language: Language) -> str:
        """Its words in that language, or in the one there is."""
        return self.text.get(language) or next(iter(self.text.values()), "")

    def titled(self, language: Language) -> str:
        """Its title in that language, or in the one there is."""
        return self.title.get(language) or next(iter(self.title.values()), "")


class Hit(Value, frozen=True, kw_only=True):
    """A piece that was found; `cover` is how much of the question's weight it knows, from 0 to 1.

    It is `about` the question if they share a word of its title or further words; `shared` counts all that they share.
    """

    piece: Evidence
    score: float
    cover: float
    about: bool
    shared: int


class Corpus:
    """All the evidence there is."""

    def __init__(self, pieces: Iterable[Evidence]) -> None:
        self.pieces = tuple(pieces)
        self.by_id: Mapping[str, Evidence] = MappingProxyType({piece.id: piece for piece in self.pieces})
        if len(self.by_id) != len(self.pieces):
            raise InvalidSetting("npc_corpus", "two pieces of evidence have one id")

    @classmethod
    def load(cls, path: Path) -> Corpus:
        """The evidence of a file, one JSON object a line.

        Raises:
            InvalidSetting: the file cannot be read; the line is named.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            raise InvalidSetting("npc_corpus", f"{path.name} cannot be read") from None
        return cls(_piece(path, number, line) for number, line in enumerate(lines, 1) if line.strip())

    def of(self, kind: str, rule: int | None = None, persona: str | None = None) -> tuple[Evidence, ...]:
        """The pieces of a kind, and of one rule, in order."""
        return tuple(
            piece
            for piece in self.pieces
            if piece.kind == kind and (rule is None or piece.rule == rule) and _open_to(piece, persona)
        )

    def named(self, ids: Iterable[str], persona: str | None = None) -> tuple[Evidence, ...]:
        """The pieces with these ids, as far as there are such and the character knows them."""
        found = (self.by_id.get(name) for name in ids)
        return tuple(piece for piece in found if piece is not None and _open_to(piece, persona))

    def search(
        self, question: str, persona: str | None = None, limit: int = 4, about: str | None = None
    ) -> tuple[Hit, ...]:
        """The pieces that know most of what is asked for, best first.

        `about` is the question without the words that only ask, such as "how many": these help to find a piece and
        count for nothing in how much of the question it covers.
        """
        asked = Counter(asked_for(question, self.knows, self.joins) or subjects(question))
        covered = set(asked_for(about, self.knows, self.joins) or subjects(about)) if about is not None else set(asked)
        asked.update(covered - asked.keys())
        # A character between two words is part of what is asked, and names nothing by itself.
        subject = {term for term in covered if len(term) > 1} or covered
        whole = sum(map(self._rarity, covered))
        if not whole:
            return ()
        found = [
            Hit(
                piece=known.piece,
                score=score,
                cover=sum(self._rarity(term) for term in covered if term in known.terms) / whole,
                about=not known.subject.isdisjoint(subject),
                shared=len(known.terms.keys() & covered),
            )
            for known in self._known
            if _open_to(known.piece, persona) and (score := self._score(asked, known)) > 0
        ]
        return tuple(sorted(found, key=lambda hit: (-hit.score, hit.piece.id))[:limit])

    def cover(self, text: str, piece: Evidence) -> float:
        """How much of the text's weight a piece knows, from 0 to 1; all of it, where the text asks for nothing."""
        asked = set(asked_for(text, self.knows, self.joins))
        known = next(known.terms for known in self._known if known.piece.id == piece.id)
        whole = sum(map(self._rarity, asked))
        return sum(self._rarity(term) for term in asked if term in known) / whole if whole else 1.0

    def names(self, text: str) -> bool:
        """Whether the text has a word that some piece is about."""
        asked = terms(text)
        return any(not known.subject.isdisjoint(asked) for known in self._known)

    def knows(self, pair: str) -> bool:
        """Whether two characters stand side by side anywhere in the evidence."""
        return self._spread[pair] > 0

    def joins(self, pair: str) -> bool:
        """Whether some piece is about both characters; 子 behind a word adds nothing to it, as in 村子."""
        signs = {pair[0]} if pair[1:] == "子" else set(pair)
        return any(known.subject.issuperset(signs) for known in self._known)

    def shared_by(self, kind: str) -> frozenset[str]:
        """What all pieces of a kind are looked up by: words that tell none of them from the others."""
        each = [frozenset(known.terms) for known in self._known if known.piece.kind == kind]
        return frozenset.intersection(*each) if each else frozenset()

    def _score(self, asked: Counter[str], known: _Known) -> float:
        weight = _K1 * (1 - _B + _B * known.length / self._average)
        counts = known.terms
        return sum(
            self._rarity(term) * counts[term] * (_K1 + 1) / (counts[term] + weight) for term in asked if term in counts
        )

    @cached_property
    def _known(self) -> Sequence[_Known]:
        return [_known(piece) for piece in self.pieces]

    @cached_property
    def _average(self) -> float:
        return sum(known.length for known in self._known) / max(1, len(self._known))

    @cached_property
    def _spread(self) -> Counter[str]:
        return Counter(term for known in self._known for term in known.terms)

    def _rarity(self, term: str) -> float:
        return math.log(1 + (len(self.pieces) + 0.5) / (self._spread[term] + 0.5))


class _Known(NamedTuple):
    """A piece as it is searched: how often it says what, and what it is about. Single characters do not lengthen it."""

    piece: Evidence
    terms: Counter[str]
    subject: frozenset[str]
    length: int


def _known(piece: Evidence) -> _Known:
    found: Counter[str] = Counter()
    single: Counter[str] = Counter()
    for words, weight in ((piece.title, _TITLE_WEIGHT), (piece.words, _TITLE_WEIGHT), (piece.text, 1)):
        for text in words.values():
            for term in terms(text):
                found[term] += weight
            for sign in subjects(text):
                single[sign] += weight
    heads = [*piece.title.values(), *piece.words.values()]
    subject = frozenset(term for text in heads for term in (*terms(text), *subjects(text)))
    return _Known(piece, found + single, subject, found.total())


def _open_to(piece: Evidence, persona: str | None) -> bool:
    return not piece.personas or persona is None or persona in piece.personas


def _piece(path: Path, number: int, line: str) -> Evidence:
    try:
        piece = msgspec.json.decode(line, type=Evidence)
    except msgspec.DecodeError as unfit:
        raise InvalidSetting("npc_corpus", f"{path.name}, line {number}: {unfit}") from None
    if not ID.fullmatch(piece.id):
        raise InvalidSetting("npc_corpus", f"{path.name}, line {number}: ids look like E-RULE-01")
    return piece
