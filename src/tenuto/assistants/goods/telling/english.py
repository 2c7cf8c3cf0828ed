"""The shop's answers in English."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tenuto.assistants.goods.intent import Claim
from tenuto.assistants.goods.shop import OrderStatus
from tenuto.assistants.goods.telling.cards import (
    BrandCard,
    Card,
    CourtesyAnswer,
    OrderCard,
    OrdersAnswer,
    SearchAnswer,
)
from tenuto.assistants.goods.telling.voice import Sentences, against
from tenuto.assistants.goods.telling.wishes_english import bounds, money, wanted
from tenuto.assistants.goods.words import category_name
from tenuto.model.prompt import Language

SENTENCES: Final = Sentences(
    no_goods_shown="I have not shown you any goods yet. What are you looking for?",
    no_list_shown="I have not shown you a list yet. What are you looking for?",
    not_found="I do not find that one in our catalogue. Could you give its name, or its number in the list?",
    which="Several goods fit. Which one do you mean?",
    hint="Ask for the best value among them, or about any of them by its number.",
    cannot_buy="I cannot take orders here: I only find goods and tell about them.",
    cannot_sum="I reckon nothing out: what I gave is the price of one, as our catalogue has it.",
    sign_in="To see your orders I need to know who you are: please sign in and ask again. That begins a new "
    "conversation: what I showed you in this one does not come along.",
    not_here=(
        "Others read along in this chat, so I do not show orders here. Please ask me in a conversation of your own."
    ),
    orders="Your orders, latest first:",
    sorry="I am sorry that something went wrong. ",
    no_complaints="I cannot open a complaint myself: please give our customer service the order number.",
    hello="Hello! ",
    welcome="You're welcome. Is there anything else you are looking for?",
    bye="Goodbye!",
    no_policies=(
        "I only know this shop's goods and your own orders. About delivery, payment, discounts, returns and guarantees "
        "please ask our customer service."
    ),
    no_such_order="None of your orders is like that. ",
    others_orders="I see the orders of the person who is asking and nobody else's: their buyer has to ask for them.",
    nothing_wanted="All right. Whenever you are looking for something, just ask.",
    unclear=(
        "I did not understand that. I know what our catalogue notes of the goods: their price, stock, rating, sales "
        "and attributes. Ask about one of them by its number, or for goods that have something."
    ),
    about="I am the assistant of this shop; I answer from its catalogue and your own orders. ",
)
_ORDERED: Final = {
    "price": "cheapest first",
    "price_desc": "most expensive first",
    "rating": "best rated first",
    "sales": "best selling first",
    "value": "best value first",
    None: "",
}
_MOST: Final = {
    "price": "cheapest",
    "price_desc": "most expensive",
    "rating": "best rated",
    "sales": "best selling",
    "value": "best value",
    None: "best match",
}
_PLACES: Final = ("", "second ", "third ", "fourth ", "fifth ")
_LET_GO: Final = {
    "price": "at that price",
    "attributes": "with exactly that",
    "either": "of these",
    "amounts": "with such an amount",
    "terms": "that fits all of it",
    "brand": "of that brand",
    "rating": "with that rating",
    "stock": "in stock",
    "without": "without that",
}
_STATUS: Final = {
    OrderStatus.PAID: "paid, not sent yet",
    OrderStatus.SHIPPED: "on its way",
    OrderStatus.DELIVERED: "delivered",
    OrderStatus.CANCELLED: "cancelled",
    OrderStatus.REFUNDING: "refund under way",
    OrderStatus.RETURNED: "returned",
}

# What goods have most and least of.
_AMOUNTS: Final = {
    "battery": ("largest battery", "smallest battery"),
    "screen": ("largest screen", "smallest screen"),
    "memory": ("most memory", "least memory"),
    "storage": ("most storage", "least storage"),
    "capacity": ("largest capacity", "smallest capacity"),
    "weight": ("highest weight", "lowest weight"),
    "size": ("largest size", "smallest size"),
    "power": ("highest power", "lowest power"),
    "length": ("greatest length", "smallest length"),
    "pages": ("most pages", "fewest pages"),
    "released": ("latest release", "earliest release"),
    "rating": ("highest rating", "lowest rating"),
    "sales": ("highest sales", "lowest sales"),
    "stock": ("largest stock", "smallest stock"),
}
_MONEY: Final = {
    "CNY": "CNY (¥)",
    "$": "dollars",
    "USD": "US dollars",
    "EUR": "euros",
    "GBP": "pounds",
    "JPY": "yen",
    "HKD": "Hong Kong dollars",
}
CLAIMS: Final[Mapping[Claim, str]] = {
    "yes": "Yes:",
    "no": "No:",
    "same": "No, they are even:",
    "unnoted": "Our catalogue does not note that of both, so I cannot tell:",
}
_CANNOT: Final = {"cancel": "cancel an order", "change": "change an order"}


def cut(length: int) -> str:
    """That only so many characters of the question were read."""
    return f"I read only the first {length} characters of that. "


def foreign_money(answer: SearchAnswer) -> str:
    """That prices in another currency were left out, and which one the shop has."""
    own, named = _MONEY.get(answer.currency, answer.currency), answer.foreign or ""
    return f"Our prices are in {own} and I do not convert {_MONEY.get(named, named)}, so I left that price out. "


def can(answer: CourtesyAnswer) -> str:
    """What can be asked here, by examples."""
    kinds = ", ".join(category_name(slug, Language.ENGLISH) for slug in answer.categories[:4])
    sold = f" We sell {kinds}{' and more' if len(answer.categories) > 4 else ''}." if kinds else ""
    return (
        f"I can help you find and compare goods, and tell you where your orders are.{sold} "
        "Ask, for example: “phones under 2000”, “laptops with at least 32 GB memory”, “the best value among them”, "
        "“my order status”."
    )


def uncompared(answer: SearchAnswer) -> str:
    """That bounds were left out, since the catalogue notes nothing that compares with them."""
    noun = category_name(answer.query.category, Language.ENGLISH) if answer.query.category else "these goods"
    said = bounds(answer.uncompared)
    return f"Our catalogue notes nothing of {noun} that compares with “{said}”, so I left that out. "


def unread(answer: SearchAnswer) -> str:
    """That words of the question were left out, since the catalogue does not know them."""
    return f"I know nothing of “{' '.join(answer.unknown)}”, so I left that out. "


def unnoted(answer: SearchAnswer) -> str:
    """That the catalogue does not tell what should decide."""
    noun = "these goods" if answer.query.among else wanted(answer)
    if answer.unnoted == "released":
        return f"Our catalogue does not say when {noun} came out, so I cannot put them in that order."
    return f"Our catalogue gives no {answer.unnoted} of {noun} to compare them by, so I cannot put them in that order."


def nothing(answer: SearchAnswer) -> str:
    """That there are no such goods."""
    if answer.query.beyond:
        return "That was all I have of it. Shall I look for something else, or at another price?"
    if answer.found:
        return f"There are only {answer.found} of them."
    if answer.unknown and answer.query.among:
        return f"Nothing is noted about “{' '.join(answer.unknown)}” in our catalogue, so I cannot tell."
    if answer.unknown:
        return f"I found nothing for “{' '.join(answer.unknown)}” in our catalogue. Could you put it in other words?"
    return f"I found no {wanted(answer)}."


def nearest(answer: SearchAnswer) -> str:
    """That there are no such goods, but others."""
    return f"{_missing(answer)} The nearest I have:"


def _missing(answer: SearchAnswer) -> str:
    if answer.query.among:
        return f"None among those I showed you fits{_conditions(answer)}."
    return f"I found no {wanted(answer)}: there is nothing {_let_go(answer)}."


def _conditions(answer: SearchAnswer, link: str = "") -> str:
    """What those chosen from had to meet."""
    asked = [*answer.query.attributes.values(), *answer.query.terms]
    return f"{link} “{' '.join(asked)}”" if asked else ""


def _let_go(answer: SearchAnswer) -> str:
    """The condition that nothing met, by what it was."""
    gone = answer.let_go
    too = " as well" if len(gone.terms) < len(answer.query.terms) else ""
    parts = [
        f"in {' and '.join(gone.attributes.values())}" if gone.attributes else "",
        f"that is {' or '.join(gone.either[0])}" if gone.either else "",
        f"for “{' '.join(gone.terms)}”{too}" if gone.terms else "",
        f"with {bounds(gone.amounts)}" if gone.amounts else "",
        f"without {' or '.join(f'“{phrase}”' for phrase in gone.without)}" if gone.without else "",
        _LET_GO["price"] if gone.min_price is not None or gone.max_price is not None else "",
    ]
    told = ", ".join(filter(None, parts)) or _LET_GO[answer.near or "terms"]
    unwanted = "" if gone.without else " or ".join(f"“{phrase}”" for phrase in answer.query.without)
    return f"{told} that is not {unwanted}" if unwanted else told


def heading(answer: SearchAnswer) -> str:
    """What the list is of."""
    query, shown = answer.query, len(answer.goods)
    order = f"{_amount(answer)} first" if answer.by else _ORDERED.get(query.sort, "")
    unknown = f" (I know nothing of “{' '.join(answer.unknown)}”)" if answer.unknown else ""
    if query.among:
        return f"Of those {len(query.among)}, {answer.found} fit{unknown}{', ' + order if order else ''}:"
    if answer.categories:
        kinds = ", ".join(category_name(slug, Language.ENGLISH) for slug in answer.categories)
        return f"We have {answer.found} goods: {kinds}. Here are {shown}, {order or 'best match first'}:"
    more = f"; here are {shown}" if shown < answer.found else ""
    return f"I found {answer.found} {wanted(answer)}{unknown}{more}{', ' + order if order else ''}:"


def of_brands(answer: SearchAnswer) -> str:
    """Of how many brands the goods are."""
    count = len(answer.brands) + answer.more_brands
    shown = f"; here are {len(answer.brands)}" if answer.more_brands else ""
    noun = wanted(answer)
    return f"{noun[:1].upper()}{noun[1:]}: {answer.found}, of {count} brand{'s' * (count > 1)}{shown}:"


def brand_line(brand: BrandCard) -> str:
    """A brand in a list."""
    low, high = money(brand.lowest, brand.currency), money(brand.highest, brand.currency)
    price = low if brand.lowest == brand.highest else f"{low} to {high}"
    return f"- {brand.name}: {brand.goods}, {price}, rated {brand.rating:g} on average"


def line(good: Card, by: str | None = None) -> str:
    """An item in a list, with what it was chosen by."""
    color = f" ({good.attributes['color']})" if "color" in good.attributes else ""
    sold_out = ", sold out at the moment" if good.stock == 0 else ""
    fact = f", {by} {good.attributes[by]}" if by in good.attributes else ""
    price = money(good.price, good.currency)
    return f"{good.name}{color}: {price}{fact}, rated {good.rating:g}, {good.sales:,} sold{sold_out}"


def _amount(answer: SearchAnswer) -> str:
    most, least = _AMOUNTS.get(answer.by or "", (f"most {answer.by}", f"least {answer.by}"))
    return least if answer.query.sort == "least" else most


def single(answer: SearchAnswer) -> str:
    """The one that was asked for, and why it is the one."""
    good, query = answer.goods[0], answer.query
    if answer.found == 1:
        found = (
            f"Of those {len(query.among)}, one fits{_conditions(answer)}"
            if query.among
            else f"I found one {wanted(answer, 1)}"
        )
        return f"{found}: {line(good, answer.fact)}.{_asked_of(answer)}"
    place = _PLACES[query.rank - 1] if query.rank <= len(_PLACES) else f"number {query.rank} "
    among = (
        f" of these {answer.found}{_conditions(answer, ' for')}"
        if query.among
        else f" of {answer.found} {wanted(answer, answer.found)}"
    )
    if answer.by:
        noun = f"one with the {place}{_amount(answer)}"
    else:
        noun = f"{place}best value" if query.sort == "value" else f"{place}{_MOST.get(query.sort, _MOST[None])} one"
    return f"The {noun}{among} is {line(good, answer.fact)}.{_asked_of(answer)}{_others(answer)}{_why(answer, good)}"


def _asked_of(answer: SearchAnswer) -> str:
    """What else was asked of the one."""
    return f" {point(answer.goods[0], answer.query.about).rstrip()}" if answer.query.about else ""


def _others(answer: SearchAnswer) -> str:
    """Whoever has as much, and whoever would come before it if it were in stock."""
    tied = f" {answer.tied} more {'has' if answer.tied == 1 else 'have'} the same {_decides(answer)}." * bool(
        answer.tied
    )
    ahead = f" ({answer.ahead} that would come before it {'is' if answer.ahead == 1 else 'are'} sold out.)"
    return tied + (ahead if answer.ahead else "")


def _why(answer: SearchAnswer, good: Card) -> str:
    share = against(good.price, answer.average_price)
    price = "right at" if share == 0 else f"{abs(share)} % {'above' if share > 0 else 'below'}"
    average = money(round(answer.average_price), good.currency)
    rating = f"{good.rating:g} stars against {answer.average_rating:.1f} on average"
    if answer.query.sort == "value":
        return f" Why: {rating}, and the price is {price} the average of {average}."
    return f" On average they cost {average} and have {answer.average_rating:.1f} stars."


def too_far(length: int) -> str:
    """That the list is shorter than that."""
    return f"The list I showed you has {length}. Which one do you mean?"


def point(good: Card, about: str | None, noted: bool | None = None) -> str:
    """The very thing that was asked, first."""
    match about:
        case None:
            return ""
        case "price":
            return f"It costs {money(good.price, good.currency)}. "
        case "stock":
            return f"Yes, {good.stock} in stock. " if good.stock else "It is sold out at the moment. "
        case "rating":
            return f"It is rated {good.rating:g} of 5. "
        case "sales":
            return f"{good.sales:,} have been sold. "
        case _ if about in good.attributes:
            return f"Its {about}: {good.attributes[about]}. "
        case _ if noted:
            return f"Yes, it is listed under “{about}”. "
        case _:
            return f"Nothing is noted about “{about}”. "


def portrait(good: Card) -> str:
    """Everything about an item."""
    stock = f"{good.stock} in stock" if good.stock else "sold out at the moment"
    facts = "; ".join(f"{name}: {value}" for name, value in good.attributes.items())
    about = f" {facts[:1].upper()}{facts[1:]}." if facts else ""
    price = money(good.price, good.currency)
    return f"{good.name}, {price}, rated {good.rating:g} of 5, {good.sales:,} sold, {stock}.{about}"


def fact(good: Card, about: str, listed: bool = False) -> str:
    """An item in a list, with the one thing that was asked about all of them; or that it is listed with it."""
    facts = {
        "price": money(good.price, good.currency),
        "stock": f"{good.stock} in stock" if good.stock else "sold out at the moment",
        "rating": f"rated {good.rating:g} of 5",
        "sales": f"{good.sales:,} sold",
    }
    said = f"listed under “{about}”" if listed else f"no {about} noted"
    return f"{good.name}: {facts.get(about) or good.attributes.get(about, said)}"


def too_many(shown: int, more: int) -> str:
    """That not all of them were looked at."""
    return f"I look at {shown} at a time; {more} more {'was' if more == 1 else 'were'} left out."


def missing(names: Sequence[str]) -> str:
    """That nothing here has such a name."""
    return f"I do not find {' or '.join(f'“{name}”' for name in names)} in our catalogue.\n"


def even(answer: SearchAnswer) -> str:
    """That none of them is ahead of the others."""
    which = (
        f"of these {answer.found}{_conditions(answer, ' for')}"
        if answer.query.among
        else f"of {answer.found} {wanted(answer, answer.found)}"
    )
    return f"None {which} is ahead: they all have the same {_decides(answer)}."


def verdict(cheapest: Sequence[Card], best_rated: Sequence[Card], best_value: Card | None, compared: int) -> str:
    """How so many compare; those that cost as little or are rated as high share the place."""
    price = f"They cost the same, {money(cheapest[0].price, cheapest[0].currency)}"
    rating = f"they are rated the same, {best_rated[0].rating:g}"
    parts = [
        price if len(cheapest) == compared else f"Cheapest: {_names(cheapest)}",
        rating if len(best_rated) == compared else f"best rated: {_names(best_rated)}",
    ]
    return "; ".join([*parts, *([f"best value for money: {best_value.name}"] if best_value else [])]) + "."


def _names(goods: Sequence[Card]) -> str:
    return " and ".join(good.name for good in goods)


def _decides(answer: SearchAnswer) -> str:
    """What the goods were to be put in order by."""
    return answer.by or ("price" if answer.query.sort in ("price", "price_desc") else answer.query.sort or "rank")


def no_orders(asked_for: bool) -> str:
    """That there are no orders, or none of that number."""
    return "Among your orders there is none with that number." if asked_for else "You have no orders here yet."


def too_few_orders(length: int) -> str:
    """That fewer orders were shown than that."""
    return f"I showed you {length} {'order' if length == 1 else 'orders'}. Which one do you mean?"


def one_order(order: OrderCard) -> str:
    """An order by itself."""
    return f"Your order {order_line(order)}"


def counted(count: int) -> str:
    """How many orders are as asked for."""
    return f"{'That is one order' if count == 1 else f'Those are {count} orders'}. "


def more_orders(count: int) -> str:
    """That there are more."""
    return f"There {'is 1 older one' if count == 1 else f'are {count} older ones'}."


def spent(total: float, currency: str) -> str:
    """What the orders cost together."""
    return f"Together: {money(total, currency)}, without what was cancelled or given back."


def cannot(answer: OrdersAnswer) -> str:
    """That nothing here can do that to an order, and who can."""
    which = "its number" if len(answer.orders) == 1 else "the number of the one you mean"
    return f"I cannot {_CANNOT[answer.cannot or 'change']}: please give our customer service {which}."


def order_line(order: OrderCard) -> str:
    """An order in a list."""
    times = f", {order.quantity} pieces" if order.quantity > 1 else ""
    parts = [f"{order.id} ({order.ordered_on}): {order.name}{times}, {money(order.total, order.currency)}"]
    received = f" on {order.delivered_on}" if order.status is OrderStatus.DELIVERED and order.delivered_on else ""
    parts.append(f"{_STATUS[order.status]}{received}")
    if order.expected_on:
        parts.append(f"expected on {order.expected_on}")
    if order.tracking and order.status is OrderStatus.SHIPPED:
        parts.append(f"tracking number {order.tracking}")
    return "; ".join(parts) + "."
