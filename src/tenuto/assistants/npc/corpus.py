"""The evidence that characters speak from: pieces with ids, in two languages, and a search over them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from tenuto.errors import InvalidSetting
from tenuto.model.prompt import Language
from tenuto.model.values import Value
from tenuto.recall import LexicalIndex

ID: Final = re.compile(r"[A-Z][A-Z0-9]*(?:-[A-Z0-9]+)+")
_TITLE_WEIGHT: Final = 3
# One shared word is weak evidence, however much of a short question it covers: full confidence needs a score of two and
# a half times the weight of a word that no piece has.
_FULL_SCORE: Final = 2.5


class Evidence(Value, frozen=True, kw_only=True):
    """One piece. `rule` numbers what belongs to a rule; `words` helps to find it; `personas` reserves it to some."""

    id: str
    kind: str
    title: dict[Language, str]
    text: dict[Language, str]
    rule: int | None = None
    words: dict[Language, str] = {}
    personas: tuple[str, ...] = ()

    def is_open_to(self, persona: str | None) -> bool:
        """Whether that character may speak from it."""
        return not self.personas or persona is None or persona in self.personas


class Match(NamedTuple):
    """A piece that shares words with a question.

    `coverage` is the share of the question's weight that the piece holds, `confidence` that share reduced where the
    score is low; both are from 0 to 1.
    """

    piece: Evidence
    score: float
    coverage: float
    confidence: float


class Corpus:
    """All the evidence of a site."""

    def __init__(self, pieces: Iterable[Evidence]) -> None:
        self.pieces = tuple(pieces)
        self._by_id: Mapping[str, Evidence] = MappingProxyType({piece.id: piece for piece in self.pieces})
        if len(self._by_id) != len(self.pieces):
            raise InvalidSetting("npc_corpus", "two pieces of evidence have one id")
        self._shapes = frozenset(map(_id_shape, self._by_id))

    @classmethod
    def load(cls, path: Path) -> Corpus:
        """The evidence of a file, one JSON object a line.

        Raises:
            InvalidSetting: the file cannot be read, or a line does not fit; the line is named.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            raise InvalidSetting("npc_corpus", f"{path.name} cannot be read") from None
        return cls(_parse_piece(path, number, line) for number, line in enumerate(lines, 1) if line.strip())

    def of(self, kind: str, rule: int | None = None, persona: str | None = None) -> tuple[Evidence, ...]:
        """The pieces of a kind, and of one rule where it is given, that the character may use, in order."""
        return tuple(
            piece
            for piece in self.pieces
            if piece.kind == kind and (rule is None or piece.rule == rule) and piece.is_open_to(persona)
        )

    def with_ids(self, ids: Iterable[str], persona: str | None) -> tuple[Evidence, ...]:
        """The pieces with these ids, unknown ids and pieces closed to the character left out."""
        pieces = (self._by_id.get(one) for one in ids)
        return tuple(piece for piece in pieces if piece is not None and piece.is_open_to(persona))

    def is_id(self, text: str) -> bool:
        """Whether a text has the shape of this corpus's ids, known or not: E-RULE-99 beside E-RULE-01, not UTF-8."""
        return _id_shape(text) in self._shapes

    def search(self, query: str, persona: str | None = None) -> list[Match]:
        """The pieces that share words with the query and are open to the character, best first."""
        full = _FULL_SCORE * self._index.rarity("")
        return [
            Match(piece, hit.score, hit.coverage, hit.coverage * min(1.0, hit.score / full))
            for hit in self._index.search(query)
            if (piece := self.pieces[hit.position]).is_open_to(persona)
        ]

    @cached_property
    def _index(self) -> LexicalIndex:
        return LexicalIndex(
            [
                (text, weight)
                for texts, weight in ((piece.title, _TITLE_WEIGHT), (piece.words, _TITLE_WEIGHT), (piece.text, 1))
                for text in texts.values()
            ]
            for piece in self.pieces
        )


def _id_shape(text: str) -> tuple[str, ...]:
    """The first part of an id, and of the others whether they are letters, digits or both."""
    first, *others = text.split("-")
    return first, *("letters" if part.isalpha() else "digits" if part.isdecimal() else "both" for part in others)


def _parse_piece(path: Path, number: int, line: str) -> Evidence:
    try:
        piece = msgspec.json.decode(line, type=Evidence)
    except msgspec.DecodeError as error:
        raise InvalidSetting("npc_corpus", f"{path.name}, line {number}: {error}") from None
    if not ID.fullmatch(piece.id):
        raise InvalidSetting("npc_corpus", f"{path.name}, line {number}: ids look like E-RULE-01")
    return piece
