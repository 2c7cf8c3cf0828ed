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

from tenuto.errors import InvalidSetting
from tenuto.model.prompt import Language
from tenuto.model.values import Value

ID: Final = re.compile(r"[A-Z][A-Z0-9]*(?:-[A-Z0-9]+)+")
# A figure by itself counts something, and is no subject; a year may be one.
_WORD: Final = re.compile(r"(?![0-9]{1,2}(?![a-z0-9]))[a-z0-9]+|[\u3400-\u9fff]+")
_ENDINGS: Final = re.compile(r"(?<=[a-z]{2})(?P<y>i(?:es|ed)|y)$|(?<=[a-z]{3})(?:ing|ed|es|s|e)$")
_LOOKED_AT: Final = 2000
_K1: Final = 1.2
_B: Final = 0.6
_TITLE_WEIGHT: Final = 3
_COMMON_WORDS: Final = """
a about all also am an and any are as at be been but by called can could did do does else for from get give go got had
happen happened happens has have he her here him his how i if in is it its just let like many may me mine more most much
my no not now of on or other our out please really say she should so some such tell than that the their them then there
these they this those to today tomorrow too up us very want was we were what when where which while who whom whose why
will with would yesterday yet you your one ones thing things know
"""
_COMMON_PAIRS: Final = """
请问 什么 怎么 怎样 如何 哪个 哪些 哪里 为什 么样 可以 能不 不能 多少 几个 一下 一个 有没 没有 是不 不是 我想 想要
知道 告诉 诉我 给我 我讲 讲讲 说说 介绍 绍一 谢谢 你好 您好 一些 这个 那个 的是 是什 是谁 有什 有哪 还有
"""
# Characters that hold a sentence together; a pair with one of them says nothing about the subject.
_HOLDING: Final = frozenset("是的了吗呢么怎啊呀吧在有和与及个这那其它我你您他她们请什哪谁为会能把被就都也还又很用来")
# Characters that are no subject when they stand alone, such as 做 in 怎么做.
_NO_SUBJECT: Final = _HOLDING | frozenset("做说讲问看想要去给叫好对不没到得过干办行再上下里中一二三四五六七八九十")
_HAN: Final = re.compile(r"[\u3400-\u9fff]")
_COMMON: Final = frozenset((_COMMON_WORDS + _COMMON_PAIRS).split())
_ASIDE: Final = re.compile("|".join(_COMMON_PAIRS.split()))


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

    def search(self, question: str, persona: str | None = None, limit: int = 4) -> tuple[Hit, ...]:
        """The pieces that know most of what is asked for, best first."""
        asked = Counter(terms(question) or subjects(question))
        whole = sum(map(self._rarity, asked))
        if not whole:
            return ()
        found = [
            Hit(
                piece=known.piece,
                score=score,
                cover=sum(self._rarity(term) for term in asked if term in known.terms) / whole,
                about=not known.subject.isdisjoint(asked),
                shared=len(known.terms.keys() & asked.keys()),
            )
            for known in self._known
            if _open_to(known.piece, persona) and (score := self._score(asked, known)) > 0
        ]
        return tuple(sorted(found, key=lambda hit: (-hit.score, hit.piece.id))[:limit])

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


def terms(text: str) -> list[str]:
    """What a text is looked up by: English words without their endings, Chinese in pairs of characters."""
    found: list[str] = []
    for word in _WORD.findall(text[:_LOOKED_AT].lower()):
        if word[0].isascii():
            # Looked for before its ending goes: "like" is common, "lik" is nothing.
            found += [] if word in _COMMON else [_ENDINGS.sub(lambda ending: "i" if ending["y"] else "", word)]
        else:
            for run in _ASIDE.split(word):
                pairs = (run[place : place + 2] for place in range(len(run) - 1))
                found += [pair for pair in pairs if _HOLDING.isdisjoint(pair)]
    return found


def subjects(text: str) -> list[str]:
    """Single Chinese characters that a short question may be about: 盐 in 盐是什么."""
    return [sign for sign in _HAN.findall(_ASIDE.sub(" ", text[:_LOOKED_AT])) if sign not in _NO_SUBJECT]


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
