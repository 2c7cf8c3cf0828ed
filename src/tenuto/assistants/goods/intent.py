"""What a question asks of the catalogue, and what the conversation has shown so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from tenuto.errors import Invalid
from tenuto.model.expression import expression
from tenuto.model.values import JsonObject, Value

Sort: TypeAlias = Literal["price", "price_desc", "rating", "sales", "value", "most", "least"]
Change: TypeAlias = Literal["cancel", "change"]
Occasion: TypeAlias = Literal["hello", "thanks", "bye", "help", "policy", "nothing", "unclear"]
OrderState: TypeAlias = Literal["unpaid", "paid", "shipped", "delivered", "cancelled", "refunding", "returned"]
Period: TypeAlias = Literal["today", "yesterday", "this_week", "last_week", "this_year", "last_year"]
Pick: TypeAlias = Literal["latest", "earliest", "dearest", "cheapest"]
Sign: TypeAlias = Literal[">", ">=", "<", "<=", "="]
Claim: TypeAlias = Literal["yes", "no", "same", "unnoted"]

# A question is read up to here: nobody asks for goods in more words, and the work stays the same for any text.
MAX_READ: Final = 400
PREVIOUS: Final = "previous"  # in place of ids: the goods shown last
MAX_LIMIT: Final = 20
MAX_TERMS: Final = 8
MAX_TERM_CHARACTERS: Final = 40
MAX_KEPT: Final = 60
# So many are compared side by side; one thing is told of so many.
MAX_PLACES: Final = 4
MAX_LISTED: Final = 10

_TWO: Final = 2
_PLACE: Final = expression(r"at `\$\.?([a-z_]*)")
_T = TypeVar("_T")


class Bound(Value, frozen=True, kw_only=True):
    """How much goods must have of an attribute: "more than 8 GB of memory"."""

    of: Annotated[
        tuple[str, ...],
        Meta(
            description="The attribute: battery, screen, memory, storage, weight, capacity, power, length, pages, "
            "size, age, rating, sales, stock or another; of several the first that the goods have in this unit"
        ),
    ] = ()
    sign: Annotated[Sign, Meta(description="How it must compare; 'at least' and 以上 are >=, 'over' and 大于 are >")]
    amount: Annotated[
        str,
        Meta(description="As the user said it, with its unit: 8 GB, 1.5 kg, 6.5 inch; a size bare: 42, XL"),
    ] = ""
    than: Annotated[
        str | None, Meta(description="Instead of an amount: the id of goods, for 'lighter than that one'")
    ] = None


class QueryIntent(Value, frozen=True, kw_only=True):
    """A question put as a query. Everything given must hold; `among` narrows it to goods already shown."""

    category: Annotated[
        str | None,
        Meta(
            description="One of phones, laptops, tablets, headphones, watches, cameras, accessories, home, kitchen, "
            "appliances, clothes, shoes, books, toys, food, beauty, sports, pets, or what this shop calls it"
        ),
    ] = None
    terms: Annotated[
        tuple[str, ...], Meta(description="Words that must fit: kind, feature, use or name, such as waterproof, 降噪")
    ] = ()
    either: Annotated[
        tuple[tuple[str, ...], ...],
        Meta(
            description="Groups of alternatives, of each of which one must fit: colours, categories, brands, amounts "
            'or words, such as [["red", "blue"]], [["phones", "tablets"], ["8GB", "12GB"]]'
        ),
    ] = ()
    without: Annotated[tuple[str, ...], Meta(description="What must not fit, each a word or a phrase")] = ()
    brand: Annotated[str | None, Meta(description="The brand, in any language")] = None
    attributes: Annotated[
        dict[str, str], Meta(description='Facts that must hold, such as {"color": "red", "storage": "256 GB"}')
    ] = {}
    amounts: Annotated[
        tuple[Bound, ...], Meta(description="Amounts that must hold, two for a range; prices have fields of their own")
    ] = ()
    min_price: Annotated[float | None, Meta(description="Lowest price, as the user named it")] = None
    max_price: Annotated[float | None, Meta(description="Highest price, as the user named it")] = None
    currency: Annotated[
        str | None,
        Meta(description="The currency of these prices, such as USD, where the user named one; never convert them"),
    ] = None
    above: Annotated[float | None, Meta(description="More expensive than this, for 'a better one than that'")] = None
    below: Annotated[float | None, Meta(description="Cheaper than this, for 'cheaper ones' than those shown")] = None
    min_rating: Annotated[float | None, Meta(description="Lowest rating, from 0 to 5")] = None
    in_stock: Annotated[bool, Meta(description="Only what can be had now")] = False
    sort: Annotated[
        Sort | None,
        Meta(
            description="Best first by: price (cheapest), price_desc, rating, sales, value (for money); most or least "
            "of the attribute in `by`"
        ),
    ] = None
    by: Annotated[
        tuple[str, ...],
        Meta(
            description="With sort most or least: battery, screen, memory, storage, weight, capacity, power, length, "
            "pages, released, rating, sales or another attribute; of several the first that the goods have"
        ),
    ] = ()
    limit: Annotated[int, Meta(description="How many to show; 1 for a superlative such as 'the cheapest'")] = 5
    rank: Annotated[int, Meta(description="Where to start in that order: 2 for 'the second cheapest'")] = 1
    among: Annotated[
        tuple[str, ...],
        Meta(description='Ids to choose among; ["previous"] for the goods shown last ("which of them ...")'),
    ] = ()
    beyond: Annotated[tuple[str, ...], Meta(description="Ids to leave out, because they were shown already")] = ()
    about: Annotated[
        str | None,
        Meta(description="With limit 1, what is asked of the one found: price, stock, memory, battery or another"),
    ] = None
    like: Annotated[
        str | None,
        Meta(description="The id of goods whose category and brand are wanted again, for 'that one, but in red'"),
    ] = None
    unlike: Annotated[
        tuple[str, ...], Meta(description="Ids of goods whose brands are not wanted, for 'have you got other brands?'")
    ] = ()
    brands: Annotated[
        bool, Meta(description="Whether the brands of such goods are asked for, and not the goods themselves")
    ] = False


class Details(Value, frozen=True, kw_only=True):
    """A question about particular goods: by id, by place in what was shown last, or by name."""

    ids: Annotated[tuple[str, ...], Meta(description="Ids of the goods")] = ()
    places: Annotated[
        tuple[int, ...], Meta(description="Places in the list shown last: 1 for the first one, -1 for the last one")
    ] = ()
    names: Annotated[tuple[str, ...], Meta(description="Names, or parts of names; two of them to compare")] = ()
    about: Annotated[
        str | None, Meta(description="What exactly is asked: price, stock, rating, or an attribute such as battery")
    ] = None
    buy: Annotated[
        bool, Meta(description="Whether the user wants to buy it; the answer tells that nothing here can do it")
    ] = False
    sum: Annotated[
        bool,
        Meta(
            description="Whether a total, a multiple, a price per amount or a difference is asked; nothing adds it up"
        ),
    ] = False
    claim: Annotated[
        Bound | None,
        Meta(description="For 'is the first lighter than the second?': of what, and > or <; no amount is needed"),
    ] = None
    unsplit: Annotated[
        bool, Meta(description="Whether behind the one name follows what is asked of it: 'vantik v20 price'")
    ] = False


class OrderQuestion(Value, frozen=True, kw_only=True):
    """A question about the asker's own orders; whose they are is never an argument."""

    order: Annotated[str | None, Meta(description="The order number, if one was named")] = None
    places: Annotated[
        tuple[int, ...], Meta(description="Places in the orders shown last: 1 for the first one, -1 for the last one")
    ] = ()
    states: Annotated[
        tuple[OrderState, ...], Meta(description="Only orders that stand so; paid ones are not sent yet")
    ] = ()
    bought: Annotated[
        str, Meta(description="Only orders of such goods: phone, projector, or a name; commas between several")
    ] = ""
    months_ago: Annotated[int | None, Meta(description="Only orders of that month: 0 for this one, 1 for the last")] = (
        None
    )
    month: Annotated[int | None, Meta(description="Only orders of that month of the year, from 1 to 12")] = None
    year: Annotated[int | None, Meta(description="Only orders of that year, such as 2026")] = None
    period: Annotated[Period | None, Meta(description="Only orders that were made then")] = None
    min_total: Annotated[float | None, Meta(description="Only orders that cost so much or more")] = None
    max_total: Annotated[float | None, Meta(description="Only orders that cost so much or less")] = None
    currency: Annotated[str | None, Meta(description="The currency of these amounts, where the user named one")] = None
    pick: Annotated[Pick | None, Meta(description="The one order that is the latest, or cost most, of those")] = None
    counted: Annotated[bool, Meta(description="Whether the user asks how many such orders there are")] = False
    somebody_else: Annotated[
        bool, Meta(description="Whether the user asks for another person's orders; the answer tells that it cannot be")
    ] = False
    spent: Annotated[bool, Meta(description="Whether the user asks what these orders cost together")] = False
    complaint: Annotated[bool, Meta(description="Whether the user complains about an order")] = False
    change: Annotated[
        Change | None,
        Meta(description="What the user wants done to the order; the answer tells that nothing here can do it"),
    ] = None


class Courtesy(Value, frozen=True, kw_only=True):
    """Words that ask for no goods: a greeting, thanks, what can be asked here, or how the shop does business."""

    occasion: Annotated[Occasion, Meta(description="What the user's words are")] = "help"


class Talk(Value, frozen=True, kw_only=True):
    """What the conversation has shown: the last list with its prices, the item spoken of last, the last query.

    `spoken` are those of the list that were compared or chosen from last, where that were not all of it.
    `orders` are there while orders were shown last ("the first one" is an order then), by marks that tell nobody
    their numbers; `order` is the place of the one spoken of. `total` are all that fitted the last query, of which the
    list may be a part; `met` those shown one by one since the last list, the latest last.
    """

    items: tuple[str, ...] = ()
    prices: tuple[float, ...] = ()
    focus: str | None = None
    spoken: tuple[str, ...] = ()
    intent: QueryIntent | None = None
    orders: tuple[str, ...] = ()
    order: int | None = None
    total: int = 0
    met: tuple[str, ...] = ()

    @property
    def them(self) -> tuple[str, ...]:
        """Whom "they" and "the other one" speak of."""
        return self.spoken if self.spoken and set(self.spoken) <= set(self.items) else self.items

    @property
    def alone(self) -> bool:
        """Whether only one was shown, so that the others of the list have not been seen."""
        return self.focus is not None and self.intent is not None and self.intent.limit == 1

    @property
    def pair(self) -> tuple[str, ...]:
        """Whom "the two" speak of: two that were shown together, or the last two shown one by one; else nobody."""
        together = () if self.alone and not self.spoken else self.them
        return together if len(together) == _TWO else self.met[-_TWO:] if len(self.met) >= _TWO else ()

    def meeting(self, item: str) -> tuple[str, ...]:
        """Those shown one by one, with that one as the latest."""
        return (*(met for met in self.met if met != item), item)[-MAX_PLACES:]

    def at(self, places: Iterable[int]) -> tuple[str, ...]:
        """The goods at those places of the list, counted from 1, or from -1 backwards; no place is beyond its ends."""
        return tuple(self.items[place - (place > 0)] for place in places if 0 < abs(place) <= len(self.items))

    def price_of(self, item: str) -> float | None:
        """What the item was shown at."""
        return dict(zip(self.items, self.prices, strict=False)).get(item)


def talk_in(state: JsonObject) -> Talk:
    """What the tools left in the session. Clients may write there as well, so that anything unfit counts as nothing."""
    try:
        return msgspec.convert(state, Talk)
    except (msgspec.ValidationError, Invalid):
        return Talk()


def state_of(talk: Talk) -> JsonObject:
    """The state to leave behind: every key, so that none of an earlier turn shines through."""
    return {
        "items": list(talk.items[:MAX_KEPT]),
        "prices": list(talk.prices[:MAX_KEPT]),
        "focus": talk.focus,
        "spoken": list(talk.spoken[:MAX_KEPT]),
        "intent": None if talk.intent is None else as_json(talk.intent),
        "orders": list(talk.orders),
        "order": talk.order,
        "total": talk.total,
        "met": list(talk.met),
    }


def as_json(value: Value) -> JsonObject:
    """A value as plain JSON: a tool's arguments, output or state."""
    plain: JsonObject = msgspec.json.decode(msgspec.json.encode(value))
    return plain


def read_arguments(arguments: JsonObject, kind: type[_T]) -> _T:
    """Arguments as a model makes them up: numbers as text and `null` for what is left out will do.

    Raises:
        Invalid: they do not fit; the message tells where, not what.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as exc:
        place = _PLACE.search(str(exc))
        raise Invalid(f"the argument {place[1] or 'list' if place else 'list'} does not fit the schema") from None


def schema_of(kind: type) -> JsonObject:
    """The JSON schema of arguments, without references, as models take it."""
    _, components = msgspec.json.schema_components((kind,))
    return _object(components[kind.__name__], components)


def _object(schema: JsonObject, components: JsonObject) -> JsonObject:
    properties = {name: _plain(field, components) for name, field in schema["properties"].items()}
    required = {"required": schema["required"]} if schema["required"] else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}


def _plain(field: JsonObject, components: JsonObject) -> JsonObject:
    """A field without its `null`, since what is not wanted is left out, and with what it refers to."""
    kept = {name: value for name, value in field.items() if name not in ("anyOf", "default")}
    if named := str(kept.get("items", {}).get("$ref", "")).rpartition("/")[2]:
        kept["items"] = _object(components[named], components)
    for option in field.get("anyOf", ()):
        if named := str(option.get("$ref", "")).rpartition("/")[2]:
            kept |= _object(components[named], components)
        elif option != {"type": "null"}:
            kept |= option
    return kept
