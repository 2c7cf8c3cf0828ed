"""The shop's tools for goods: search, details, and what can be asked.

Each reads the question by the same rules, and at most one of all the shop's tools finds itself wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from tenuto.assistants.goods.intent import (
    MAX_KEPT,
    PREVIOUS,
    Courtesy,
    Details,
    QueryIntent,
    Talk,
    as_json,
    read_arguments,
    schema_of,
    state_of,
    talk_in,
)
from tenuto.assistants.goods.reading import guessed
from tenuto.assistants.goods.searching import Found, claimed, let_go, looked_up, search
from tenuto.assistants.goods.shop import Catalogue, Item, Shelf, noted_under
from tenuto.assistants.goods.telling import (
    CourtesyAnswer,
    DetailsAnswer,
    SearchAnswer,
    brand_card,
    card,
    tell_courtesy,
    tell_details,
    tell_search,
    told,
)
from tenuto.assistants.goods.words import fold
from tenuto.model.prompt import Language
from tenuto.model.talk import ToolContext, ToolOutput, ToolSpec
from tenuto.model.values import Json, JsonObject

_CANDIDATES: Final = 5
_MAX_BRANDS: Final = 10


class SearchGoods:
    """Finds goods, also among those shown before."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.spec = ToolSpec(
            name="search_goods",
            description=(
                "Search the shop's catalogue. Use it for every question about which goods there are, what they cost, "
                "and which of them is cheapest, best rated, best value, or has most or least of something. For a "
                "follow-up on the goods shown last "
                '("the best value among them") set among to ["previous"]; for a changed wish ("and under 2000?") '
                "repeat the earlier conditions with the change. Where the answer has near, nothing fitted: the goods "
                "in it came up when that condition was dropped. Words under unknown are not in the catalogue."
            ),
            parameters=schema_of(QueryIntent),
        )

    def plan(self, turn: ToolContext) -> JsonObject | None:
        """The query the question stands for."""
        return guessed(turn, QueryIntent)

    async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
        """Search; the answer's list is what the next question can point at."""
        intent = read_arguments(arguments, QueryIntent)
        talk = talk_in(turn.state)
        if PREVIOUS in intent.among and not talk.items:
            return ToolOutput(output=as_json(SearchAnswer(nothing_shown_before=True)))
        shelf = await self._catalogue.shelf(turn.scope)
        found = search(shelf, intent, talk)
        plain = as_json(_answer(found, shelf, turn.language))
        return ToolOutput(output=plain, data={"goods": plain["goods"]}, state=state_of(_shown(found, talk)))

    def render(self, output: Json, turn: ToolContext) -> str:
        """The list, or the one that was asked for and why it is the one."""
        return told(output, SearchAnswer, turn, tell_search)


class GoodsDetails:
    """Tells about one item, or compares several."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.spec = ToolSpec(
            name="goods_details",
            description=(
                "Everything about one item, or several side by side: by id, by place in the list shown last "
                '("the second one" is places [2]), or by name.'
            ),
            parameters=schema_of(Details),
        )

    def plan(self, turn: ToolContext) -> JsonObject | None:
        """Which goods the question is about."""
        return guessed(turn, Details)

    async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
        """Look the goods up; from then on "it" is the one."""
        asked = read_arguments(arguments, Details)
        talk = talk_in(turn.state)
        if asked.places and not talk.items:
            return ToolOutput(output=as_json(DetailsAnswer(nothing_shown_before=True)))
        shelf = await self._catalogue.shelf(turn.scope)
        looked = looked_up(shelf, asked, talk)
        items = looked.items
        claim, by = claimed(items, asked.claim)
        about = by or looked.about or asked.about
        answer = DetailsAnswer(
            goods=tuple(card(item, turn.language) for item in items),
            which=tuple(card(item, turn.language) for item in looked.which),
            about=fold(_noted_under(items, about), 40) if about else None,
            fact=_listed(shelf, items[0], about) if about is not None and len(items) == 1 else None,
            listed=tuple(item.id for item in items if about is not None and _listed(shelf, item, about)),
            list_length=len(talk.items) if _past_the_end(asked, talk) else None,
            best_value=max(items, key=shelf.value).id if len(items) > 1 else None,
            cannot_buy=asked.buy,
            cannot_sum=asked.sum,
            claim=claim,
            more=looked.more,
            missing=looked.missing,
        )
        plain = as_json(answer)
        goods = plain["goods"] or plain["which"]
        state = state_of(_discussed(items or looked.which, talk))
        return ToolOutput(output=plain, data={"goods": goods}, state=state)

    def render(self, output: Json, turn: ToolContext) -> str:
        """What was asked about it, then the rest."""
        return told(output, DetailsAnswer, turn, tell_details)


class ShopHelp:
    """Says what can be asked here."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.spec = ToolSpec(
            name="shop_help",
            description="What kinds of goods the shop has. Use it when the user asks what you can do or what there is.",
            parameters=schema_of(Courtesy),
        )

    def plan(self, turn: ToolContext) -> JsonObject | None:
        """Whether it is a greeting, thanks, or a question for help."""
        return guessed(turn, Courtesy)

    async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
        """Look up what there is; what was shown before can still be pointed at."""
        asked = read_arguments(arguments, Courtesy)
        shelf = await self._catalogue.shelf(turn.scope)
        return ToolOutput(output=as_json(CourtesyAnswer(occasion=asked.occasion, categories=shelf.categories)))

    def render(self, output: Json, turn: ToolContext) -> str:
        """A word back, and examples."""
        return told(output, CourtesyAnswer, turn, tell_courtesy)


def _answer(found: Found, shelf: Shelf, language: Language) -> SearchAnswer:
    return SearchAnswer(
        goods=() if found.brands else tuple(card(item, language) for item in found.goods),
        found=found.total,
        query=_called(found.query, shelf, language),
        near=found.near,
        let_go=let_go(found.query, found.held) if found.near else QueryIntent(),
        unknown=found.unknown,
        average_price=found.average_price,
        average_rating=found.average_rating,
        categories=shelf.categories if _names_nothing(found.query) else (),
        by=found.by,
        tied=found.tied,
        even=found.even,
        unnoted=found.unnoted,
        ahead=found.ahead,
        currency=shelf.currency,
        foreign=found.foreign,
        uncompared=found.uncompared,
        brand=shelf.brand_name(found.query.brand, language) if found.query.brand else None,
        brands=tuple(brand_card(brand, language) for brand in found.brands[:_MAX_BRANDS]),
        more_brands=len(found.brands[_MAX_BRANDS:]),
    )


def _called(query: QueryIntent, shelf: Shelf, language: Language) -> QueryIntent:
    """The query with the brands that are not wanted by their names in the question's language."""
    brands = {phrase: shelf.brand(phrase) for phrase in query.without}
    names = {phrase: shelf.brand_name(brand, language) for phrase, brand in brands.items() if brand is not None}
    return replace(query, without=tuple(names.get(phrase, phrase) for phrase in query.without))


def _names_nothing(query: QueryIntent) -> bool:
    return replace(query, sort=None, by=(), limit=1, rank=1, beyond=(), about=None) == QueryIntent(limit=1)


def _shown(found: Found, talk: Talk) -> Talk:
    """What the next question can point at.

    A pick from a list leaves that list as it is: "the second one" still counts in it. A single answer of a new search
    brings those that came after it.
    """
    if not found.goods:
        return talk
    if found.brands:
        return Talk(intent=replace(found.query, brands=False, sort=None, by=()), total=found.total)
    single = len(found.goods) == 1
    if found.even:
        return replace(talk, focus=None, spoken=tuple(item.id for item in found.goods), orders=(), order=None)
    if single and found.query.among and not found.near:
        focus = found.goods[0].id
        spoken = () if set(found.query.among) == set(talk.items) else found.query.among
        return replace(talk, focus=focus, spoken=spoken, met=talk.meeting(focus), orders=(), order=None)
    listed = found.ranked[:_CANDIDATES] if single and not found.near else found.goods
    asked = replace(found.query, about=None)
    return Talk(
        items=tuple(item.id for item in listed),
        prices=tuple(item.price for item in listed),
        focus=found.goods[0].id if single else None,
        # What was let go to find the nearest is not asked for again, and all of the nearest are shown.
        intent=_went_before(talk) if found.query.among else _nearest(found) if found.near else asked,
        total=0 if found.query.among or found.near else found.total,
        met=talk.meeting(found.goods[0].id) if single else (),
    )


def _nearest(found: Found) -> QueryIntent:
    return replace(found.held, limit=5, about=None)


def _went_before(talk: Talk) -> QueryIntent | None:
    """The query whose goods were chosen from: "something else" is none of them."""
    if talk.intent is None:
        return None
    return replace(talk.intent, beyond=tuple(dict.fromkeys((*talk.intent.beyond, *talk.items)))[-MAX_KEPT:])


def _discussed(items: Sequence[Item], talk: Talk) -> Talk:
    if not items:
        return talk
    focus = items[0].id if len(items) == 1 else None
    if all(item.id in talk.items for item in items):
        ids = tuple(item.id for item in items)
        spoken = talk.spoken if focus in talk.spoken else ids if len(ids) > 1 else ()
        met = talk.met if focus is None else talk.meeting(focus)
        return replace(talk, focus=focus, spoken=spoken, met=met, orders=(), order=None)
    return Talk(
        items=tuple(item.id for item in items[:MAX_KEPT]),
        prices=tuple(item.price for item in items[:MAX_KEPT]),
        focus=focus,
        spoken=tuple(item.id for item in items) if len(items) > 1 else (),
        met=talk.met if focus is None else talk.meeting(focus),
        intent=QueryIntent(category=items[0].category),
    )


def _past_the_end(asked: Details, talk: Talk) -> bool:
    return bool(asked.places) and not talk.at(asked.places)


def _listed(shelf: Shelf, item: Item, about: str) -> bool:
    """Whether the item is noted with that word."""
    terms, unknown = shelf.known((about,))
    return bool(terms) and not unknown and all(map(shelf.by_id[item.id].fits, terms))


def _noted_under(items: Sequence[Item], about: str) -> str:
    """The attribute under which such an amount is noted: the millilitres of a cream are its size."""
    return next((name for item in items if (name := noted_under(item, about)) is not None), about)
