"""A catalogue in memory: its items, and which of them a word fits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import median
from typing import Final

from tenuto.assistants.goods.shop.item import Item, in_language
from tenuto.assistants.goods.words import (
    CATEGORIES,
    CATEGORY_PATTERNS,
    COLORS,
    HAN,
    PETS,
    SYNONYMS,
    fold,
    is_plain_english,
    terms_in,
)
from tenuto.model.expression import expression
from tenuto.model.prompt import Language

_MAX_TEXT: Final = 2000
_WORD: Final = expression(r"[a-z0-9][a-z0-9+.'-]*")
_HAN: Final = expression(f"[{HAN}]+")
_SPACED_UNIT: Final = expression(r"(?<=\d)\s+(?=[a-z])")
_MAX_RUN: Final = 16
# One question holds the same few words against every item.
_STEMS: Final = 256
# In shorter words a slip makes another word.
_SPELT: Final = 5
# So many of the goods that it fits are called by a word that is a name for a kind of goods.
MOSTLY: Final = 0.5


class Entry:
    """One item as words see it: English stems, and its Chinese text, in which any piece can be found."""

    __slots__ = ("han", "item", "runs", "words")

    def __init__(self, item: Item) -> None:
        known = CATEGORIES.get(item.category)
        color = COLORS.get(item.attributes.get("color", ""), "")
        texts = [item.name, item.name_zh, item.brand, item.brand_zh, item.category, color]
        texts += [*item.tags, *item.attributes.values(), known.zh if known else "", known.one if known else ""]
        text = fold("\n".join(texts), _MAX_TEXT)
        found = _WORD.findall(text) + _WORD.findall(_SPACED_UNIT.sub("", text))
        self.item = item
        self.words = frozenset(stem(part) for word in found for part in (word, *word.split("-")) if part)
        self.runs = frozenset(_HAN.findall(text))
        self.han = "\n".join(self.runs)

    def fits(self, term: str) -> bool:
        """Whether the word, or one that means the same, belongs to the item."""
        return any(self._holds(word) for word in (term, *SYNONYMS.get(term, ())))

    def is_called(self, term: str) -> bool:
        """Whether the word is part of the item's name, which tells the kind of goods, not just a trait."""
        name = fold(f"{self.item.name}\n{self.item.name_zh}", _MAX_TEXT)
        return stem(term) in map(stem, _WORD.findall(name)) if term.isascii() else term in name

    def is_for_pets(self, term: str) -> bool:
        """Whether it is what the word means, but for pets: 宠物零食."""
        return any(run.endswith(term) and PETS.fullmatch(run.removesuffix(term)) for run in self.runs)

    def _holds(self, word: str) -> bool:
        if not word.isascii():
            # One character alone is in many a word; it counts where it is one (茶, 锅).
            return word in self.han if len(word) > 1 else word in self.runs
        return stem(word) in self.words or ("-" in word and all(stem(part) in self.words for part in word.split("-")))


class Shelf:
    """All items of one catalogue, ready to be searched."""

    def __init__(self, items: Iterable[Item]) -> None:
        self.entries = tuple(map(Entry, items))
        self.by_id = {entry.item.id: entry for entry in self.entries}
        self._words = frozenset[str]().union(*(entry.words for entry in self.entries))
        self._han = "\n".join(entry.han for entry in self.entries)
        self._runs = frozenset[str]().union(*(entry.runs for entry in self.entries))
        self._brands = {
            fold(name, _MAX_TEXT): entry.item.brand or entry.item.brand_zh
            for entry in self.entries
            for name in (entry.item.brand, entry.item.brand_zh)
            if name
        }
        self._categories = {fold(entry.item.category, _MAX_TEXT): entry.item.category for entry in self.entries}
        self._typical = _typical(self.entries)
        currencies = Counter(entry.item.currency for entry in self.entries)
        self.currency = currencies.most_common(1)[0][0] if currencies else "CNY"

    def items(self, ids: Sequence[str]) -> list[Item]:
        """Those of the ids that there are, in their order."""
        return [self.by_id[id_].item for id_ in ids if id_ in self.by_id]

    @property
    def categories(self) -> tuple[str, ...]:
        """What there is, in the catalogue's own order."""
        return tuple(self._categories.values())

    def brand(self, name: str) -> str | None:
        """The brand of that name, in either language."""
        return self._brands.get(fold(name, _MAX_TEXT).strip())

    def brand_name(self, brand: str, language: Language) -> str:
        """What the brand is called in that language."""
        own = (entry.item for entry in self.entries if brand in (entry.item.brand, entry.item.brand_zh))
        return next((in_language(language, item.brand, item.brand_zh) for item in own), brand)

    def category(self, name: str) -> str | None:
        """The category of that name, or the one people mean by it, where there is such a one here."""
        folded = fold(name, _MAX_TEXT).strip()
        if folded in self._categories:
            return self._categories[folded]
        meant = (slug for slug, pattern in CATEGORY_PATTERNS if pattern.fullmatch(folded))
        return next((slug for slug in meant if slug in self._categories), None)

    def known(self, texts: Iterable[str]) -> tuple[list[str], list[str]]:
        """The words of the texts that fit some item, and those that fit none."""
        known: list[str] = []
        unknown: list[str] = []
        foreign = False
        for term in (term for text in texts for term in terms_in(fold(text, _MAX_TEXT))):
            # A figure behind a name that nothing has belongs to that name: there is no "15" of an "iPhone 15".
            pieces = [] if foreign and term.isdecimal() else self._pieces(term)
            foreign = not pieces and term.isascii()
            known += pieces
            if not pieces and (len(term) > 1 or term.isascii()):
                unknown.append(term)
        return list(dict.fromkeys(known)), unknown

    def share_called(self, term: str) -> float:
        """How many of the goods that a word fits are called by it: nearly all tents, but few of what is waterproof."""
        fitting = [entry for entry in self.entries if entry.fits(term)]
        return sum(entry.is_called(term) for entry in fitting) / len(fitting) if fitting else 0.0

    def is_kind(self, term: str) -> bool:
        """Whether the word is a name for a kind of goods, more than a trait that many kinds have."""
        return self.share_called(term) >= MOSTLY

    def value(self, item: Item) -> float:
        """Quality for money: rating above a plain 3, by the price against what such goods usually cost.

        Ratings that few sales stand behind are drawn towards the middle; the price counts by less than its
        proportion, or else the cheapest would always win.
        """
        rating = (item.rating * item.sales + 4.0 * 100) / (item.sales + 100)
        typical = self._typical.get(item.category) or 1.0
        return (rating - 3.0) / math.pow(max(item.price / typical, 0.01), 0.35)

    def _pieces(self, term: str) -> list[str]:
        """The term itself where it is known, else the longest known pieces of a Chinese run without spaces."""
        if self._knows(term):
            return [term]
        if term.isascii():
            return [meant] if (meant := self._misspelt(term)) is not None else []
        if len(term) > 2 and PETS.fullmatch(term[0]) and self._knows(term[0]) and self._knows(term[1:]):
            return [term[0], term[1:]]
        pieces, at, run = [], 0, term[:_MAX_RUN]
        while at < len(run) - 1:
            end = next((end for end in range(len(run), at + 1, -1) if self._knows(run[at:end])), at + 1)
            if end > at + 1:
                pieces.append(run[at:end])
            at = end
        return pieces

    def _misspelt(self, term: str) -> str | None:
        """The one word of the catalogue that a longer word is a slip away from; the answer shows it as understood."""
        if len(term) < _SPELT or not term.isalpha() or is_plain_english(term):
            return None
        near = [
            word
            for word in self._words
            if word[0] == term[0]
            and (one_slip(term, word) or (len(stem(term)) >= _SPELT and one_slip(stem(term), word)))
        ]
        return near[0] if len(near) == 1 else None

    def _knows(self, term: str) -> bool:
        return any(self._holds(word) for word in (term, *SYNONYMS.get(term, ())))

    def _holds(self, word: str) -> bool:
        if not word.isascii():
            return word in self._han if len(word) > 1 else word in self._runs
        return all(stem(part) in self._words for part in (word.split("-") if "-" in word else (word,)) if part)


@lru_cache(maxsize=_STEMS)
def stem(word: str) -> str:
    """An English word without its plural or possessive ending."""
    word = word.removesuffix("'s").strip(".'-")
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us")):
        return word[:-1]
    return word


def one_slip(word: str, other: str) -> bool:
    """Whether the words differ by one letter: left out, too many, another one, or two that changed places."""
    short, long = sorted((word, other), key=len)
    if len(long) - len(short) > 1 or short == long:
        return False
    same = next((at for at, (one, two) in enumerate(zip(short, long, strict=False)) if one != two), len(short))
    if len(short) < len(long):
        return short[same:] == long[same + 1 :]
    swapped = long[same + 1 : same + 2] + long[same : same + 1] + long[same + 2 :]
    return short[same + 1 :] == long[same + 1 :] or short[same:] == swapped


def _typical(entries: Sequence[Entry]) -> dict[str, float]:
    prices: dict[str, list[float]] = {}
    for entry in entries:
        prices.setdefault(entry.item.category, []).append(entry.item.price)
    return {category: median(found) for category, found in prices.items()}
