"""Lexical search in English and Chinese: fold, tokenize, stem, rank by BM25.

English is cut into words without their endings, Chinese (and Japanese, Korean) into pairs of neighbouring characters.
Words that carry no subject are left out on both sides. The same tokens serve the offline model, the evidence of
characters, the goods catalogue, the relevance gate and extractive summaries.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache
from itertools import chain
from operator import add
from typing import Final, NamedTuple

from tenuto.model.patterns import lazy_pattern

MAX_CHARACTERS: Final = 8_000
"""How much of one text is read: a megabyte takes half a second to tokenize, and its beginning tells its subject."""

# The usual constants of BM25: how fast repetition saturates, how much length counts.
_K1: Final = 1.2
_B: Final = 0.6

_CJK: Final = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_TOKEN: Final = lazy_pattern(rf"[^\W_{_CJK}]+(?:['’][^\W_{_CJK}]+)*|[{_CJK}]+")
_ASCII_TOKEN: Final = lazy_pattern("[a-z0-9]+(?:'[a-z0-9]+)*")
_CHARACTER: Final = lazy_pattern(rf"[{_CJK}]")
_STOP_WORDS_TEXT: Final = """
a about all also am an and any are as at be because been but by can could did do does for from get had has have he hello
her hers hi him his how i if in into is it its just let like me mine more most my no not of on once or our ours please
really say she should so some such tell than thank thanks that the their them then there these they this those to too
up us very want was we were what when where which who whom whose why will with would yes you your yours
i'm i've i'd i'll it's that's what's don't didn't isn't can't let's
"""
_STOP_WORDS: Final = frozenset(_STOP_WORDS_TEXT.split())
# Characters that join a sentence and name nothing: a run of Chinese is cut at them.
_PARTICLE: Final = "[的了吗呢么啊呀吧嘛是在和与及这那我你您他她它们什哪谁请]"
_PARTICLES: Final = lazy_pattern(f"{_PARTICLE}+")
_STOP_PAIRS_TEXT: Final = """
怎样 如何 为何 可以 能不 不能 多少 几个 一下 一个 一些 有没 没有 想要 告诉 谢谢 好吗 知道 介绍 讲讲 说说 关于 还有
"""
_STOP_PAIRS: Final = frozenset(_STOP_PAIRS_TEXT.split())
_CJK_STOPS: Final = lazy_pattern(rf"(?:{'|'.join(_STOP_PAIRS_TEXT.split())}|{_PARTICLE})+")
# Inflections by their last letter, longest first.
_ENDINGS: Final = {
    "s": (("ies", "y"), ("sses", "ss"), ("es", ""), ("s", "")),
    "d": (("ied", "y"), ("ed", "")),
    "g": (("ing", ""),),
}

# Where a full stop stands behind an abbreviation, an initial or a list number, the sentence goes on.
# Possessive and tried once per run of signs: a run of thousands takes linear time.
_SENTENCE_END: Final = lazy_pattern(r"[。！？；…]+[”’」』）)\"']*|(?<![.!?])[.!?]++[\"')\]]*+(?=\s|$)|\n+")
_ABBREVIATION: Final = lazy_pattern(
    r"(?:\b(?:mr|mrs|ms|dr|prof|st|no|vs|etc|inc|ltd|e\.g|i\.e|a\.m|p\.m)|(?:^|\s)[a-z]|^\s*\d{1,2})\.$", re.IGNORECASE
)


class Hit(NamedTuple):
    """A document that shares terms with a query.

    `position` is its place among the indexed documents. `score` ranks the hits of one query and has no upper bound;
    `coverage` is the share of the query's weight that the document holds, from 0 to 1, and can be compared with a
    threshold: a query term that no document has weighs most, so an unrelated question is covered little.
    """

    position: int
    score: float
    coverage: float


class LexicalIndex:
    """An immutable index over documents, each a text or several fields (`title`, `body`) with weights."""

    def __init__(self, documents: Iterable[str | Sequence[tuple[str, int]]]) -> None:
        self._documents = [_count_terms(document) for document in documents]
        self._lengths = [counts.total() for counts in self._documents]
        self._average = sum(self._lengths) / max(1, len(self._lengths)) or 1.0
        self._spread = Counter(chain.from_iterable(self._documents))

    def search(self, query: str, limit: int | None = None) -> list[Hit]:
        """Documents that share a term with the query, best first; documents of equal score in their order."""
        rarity = {term: self.rarity(term) for term in terms(query)}
        total_rarity = sum(rarity.values())
        hits: list[Hit] = []
        for position, counts in enumerate(self._documents):
            if common := [term for term in rarity if term in counts]:
                norm = _K1 * (1 - _B + _B * self._lengths[position] / self._average)
                score = sum(rarity[term] * counts[term] * (_K1 + 1) / (counts[term] + norm) for term in common)
                hits.append(Hit(position, score, sum(rarity[term] for term in common) / total_rarity))
        return sorted(hits, key=lambda hit: (-hit.score, hit.position))[:limit]

    def rarity(self, term: str) -> float:
        """How much a term tells documents apart: its inverse document frequency, above 0."""
        return math.log(1 + (len(self._documents) + 0.5) / (self._spread[term] + 0.5))


def terms(text: str, *, singles: bool = False) -> list[str]:
    """The terms of a text in order: stemmed words and pairs of CJK characters, stop words left out.

    A CJK character that stands alone between particles is a term by itself, as 盐 is in 盐是什么. `singles` adds each
    CJK character, so that a document is found by a query of one character.
    """
    if text.isascii():
        tokens = _ASCII_TOKEN.findall(text[:MAX_CHARACTERS].lower())
        return [_stem(word) for word in tokens if word not in _STOP_WORDS]
    result: list[str] = []
    # One form for what looks alike: full-width letters, ligatures, upper case, curly apostrophes.
    normalized = unicodedata.normalize("NFKC", text[:MAX_CHARACTERS]).casefold().replace("’", "'")
    for token in _TOKEN.findall(normalized):
        if _CHARACTER.match(token):
            for run in _PARTICLES.split(token):
                if len(run) == 1:
                    result.append(run)
                    continue
                result += [pair for pair in map(add, run, run[1:]) if pair not in _STOP_PAIRS]
                if singles:
                    result += run
        elif token not in _STOP_WORDS:
            result.append(_stem(token))
    return result


def find_terms(text: str, wanted: Set[str]) -> list[tuple[int, int]]:
    """Where terms stand in a text, in order: words as they are written, and characters of CJK."""
    spans: list[tuple[int, int]] = []
    for token in _TOKEN.finditer(text[:MAX_CHARACTERS]):
        start, end = token.span()
        if not _CHARACTER.match(token[0]):
            if not wanted.isdisjoint(terms(token[0])):
                spans.append((start, end))
            continue
        places = [(at, at + length) for at in range(start, end) for length in (1, 2) if at + length <= end]
        spans += [place for place in places if unicodedata.normalize("NFKC", text[slice(*place)]) in wanted]
    return spans


def readable_words(text: str) -> tuple[list[tuple[str, str]], list[str]]:
    """The words of a text for people: each with its term and as it is written, and the runs of CJK characters.

    A run ends at particles and stop words; where its words begin and end, only many texts together tell.
    """
    words: list[tuple[str, str]] = []
    runs: list[str] = []
    for token in _TOKEN.findall(unicodedata.normalize("NFKC", text[:MAX_CHARACTERS]).replace("’", "'")):
        normalized = token.casefold()
        if _CHARACTER.match(token):
            runs += filter(None, _CJK_STOPS.split(token))
        elif normalized not in _STOP_WORDS:
            words.append((_stem(normalized), token.removesuffix("'s")))
    return words, runs


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, English and Chinese; a line break ends one too, and what has no letter is none."""
    sentences: list[str] = []
    start = 0
    for end in _SENTENCE_END.finditer(text):
        if end[0] == "." and _ABBREVIATION.search(text[max(start, end.start() - 12) : end.end()]):
            continue
        sentences.append(text[start : end.end()].strip())
        start = end.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if any(map(str.isalnum, sentence))]


def _count_terms(document: str | Sequence[tuple[str, int]]) -> Counter[str]:
    if isinstance(document, str):
        return Counter(terms(document, singles=True))
    counts: Counter[str] = Counter()
    for text, weight in document:
        for term in terms(text, singles=True):
            counts[term] += weight
    return counts


@lru_cache(maxsize=16_384)
def _stem(word: str) -> str:
    """The word without its inflection, so that "pays", "paying" and "pay" are one; not always a word itself."""
    word = word.removesuffix("'s")
    for ending, rest in _ENDINGS.get(word[-1:], ()):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith(("ss", "us", "is")):
            word = word[: -len(ending)] + rest
            break
    # "run" and "running", "cook" and "cooked", "price" and "prices".
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word
