"""An intent in the catalogue's own words, and the words of it that the catalogue does not have."""

from __future__ import annotations

from msgspec.structs import replace

from tenuto.assistants.goods.intent import MAX_LIMIT, MAX_TERMS, PREVIOUS, QueryIntent, Talk
from tenuto.assistants.goods.shop import Shelf
from tenuto.assistants.goods.words import COLOR_WORDS, SYNONYMS, fold, special


def settled(shelf: Shelf, intent: QueryIntent, talk: Talk) -> tuple[QueryIntent, list[str]]:
    """The intent in the catalogue's own words, and the words that it does not have."""
    intent = _likened(shelf, intent)
    category, terms, unknown = _named(shelf, intent)
    brands = {term: brand for term in terms if (brand := shelf.brand(term)) is not None}
    # A brand among the words was named later than the one that the conversation was about.
    brand = next(iter(brands.values()), None) or (shelf.brand(intent.brand) if intent.brand else None)
    if intent.brand and brand is None:
        unknown.append(fold(intent.brand, 40))
    groups = [_phrases(shelf, group, unknown) for group in intent.either[:MAX_TERMS]]
    others = [fold(item.brand or item.brand_zh, 40) for item in shelf.items(intent.unlike)]
    without = (*_unwanted(shelf, intent.without, unknown), *dict.fromkeys(filter(None, others)))
    if brand is not None and any(shelf.brand(phrase) == brand for phrase in without):
        # Of a brand and its negation the one said last counts, and words are said later than what was settled before.
        without = tuple(phrase for phrase in without if shelf.brand(phrase) != brand) if brands else without
        brand = brand if brands else None
    query = replace(
        intent,
        category=category,
        brand=brand,
        terms=tuple(term for term in terms if term not in brands and not _implied(term, category)),
        either=tuple(group for group in groups if group),
        without=tuple(dict.fromkeys(without)),
        unlike=(),
        attributes=dict(_attribute(name, value) for name, value in list(intent.attributes.items())[:MAX_TERMS]),
        among=talk.items if PREVIOUS in intent.among else intent.among,
        limit=min(max(intent.limit, 1), MAX_LIMIT),
        rank=min(max(intent.rank, 1), MAX_LIMIT),
    )
    return query, list(dict.fromkeys(unknown))


def _likened(shelf: Shelf, intent: QueryIntent) -> QueryIntent:
    """Goods like one of the shelf: of its category and brand, but not that one."""
    item = next(iter(shelf.items([intent.like] if intent.like else [])), None)
    if item is None:
        return replace(intent, like=None)
    brand = intent.brand or item.brand or item.brand_zh or None
    return replace(intent, like=None, category=item.category, brand=brand, beyond=(*intent.beyond, item.id))


def _named(shelf: Shelf, intent: QueryIntent) -> tuple[str | None, list[str], list[str]]:
    """The category, the other words that fit something, and those that fit nothing."""
    category = shelf.category(intent.category) if intent.category else None
    texts = (
        intent.terms[:MAX_TERMS] if category or not intent.category else (*intent.terms[:MAX_TERMS], intent.category)
    )
    terms, unknown = shelf.known(texts)
    if category is None and not intent.category and not intent.among:
        # A word of a category that was misspelt is read as that word only here.
        category = next((slug for term in terms if (slug := shelf.category(term)) is not None), None)
        terms = [term for term in terms if category is None or shelf.category(term) != category]
    return category, terms, unknown


def _unwanted(shelf: Shelf, phrases: tuple[str, ...], unknown: list[str]) -> tuple[str, ...]:
    """What is not wanted in the catalogue's words: no smartwatches are watches that are smart, not all watches."""
    kinds = [(special(fold(phrase, 40)), shelf.category(phrase)) for phrase in phrases]
    said = (
        " ".join((*more, category)) if more and category else phrase
        for phrase, (more, category) in zip(phrases, kinds, strict=True)
    )
    return _phrases(shelf, tuple(said), unknown)


def _phrases(shelf: Shelf, phrases: tuple[str, ...], unknown: list[str]) -> tuple[str, ...]:
    """The phrases all of whose words the catalogue has; the words that it has not join `unknown`."""
    settled: list[str] = []
    for phrase in phrases[:MAX_TERMS]:
        if (category := shelf.category(phrase)) is not None:
            settled.append(category)
            continue
        known, missing = shelf.known((phrase,))
        unknown += missing
        if known and not missing:
            settled.append(" ".join(known))
    return tuple(dict.fromkeys(settled))


def _implied(term: str, category: str | None) -> bool:
    """Whether all goods of the category are for those people anyhow, noted or not: toys are for children."""
    return category == "toys" and not {"kid", "kids", "儿童"}.isdisjoint((term, *SYNONYMS.get(term, ())))


def _attribute(name: str, value: str) -> tuple[str, str]:
    key = fold(name, 40).replace("colour", "color").replace("颜色", "color")
    folded = fold(value, 40).strip()
    return key, COLOR_WORDS.get(folded.removesuffix("色"), folded) if key == "color" else folded
