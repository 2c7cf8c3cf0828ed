"""The shop's answers in English."""

from __future__ import annotations

from typing import Final

from tenuto.assistants.goods.shop import OrderStatus
from tenuto.assistants.goods.telling.cards import (
    Card,
    CourtesyAnswer,
    DetailsAnswer,
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
    sign_in="To see your orders I need to know who you are: please sign in and ask again.",
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
        "I only know this shop's goods and your own orders. About delivery, payment, returns and guarantees please ask "
        "our customer service."
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
    "among": "among those I showed you",
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
_CANNOT: Final = {"cancel": "cancel an order", "change": "change an order"}


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
    if answer.near == "among":
        return f"None {_LET_GO['among']} fits."
    return f"I found no {wanted(answer)}: there is nothing {_LET_GO[answer.near or 'terms']}."


def heading(answer: SearchAnswer) -> str:
    """What the list is of."""
    query, shown = answer.query, len(answer.goods)
    order = f"{_amount(answer)} first" if answer.by else _ORDERED.get(query.sort, "")
    unknown = f" (I know nothing of “{' '.join(answer.unknown)}”)" if answer.unknown else ""
    if query.among:
        return f"Of those, {answer.found} fit{unknown}{', ' + order if order else ''}:"
    if answer.categories:
        kinds = ", ".join(category_name(slug, Language.ENGLISH) for slug in answer.categories)
        return f"We have {answer.found} goods: {kinds}. Here are {shown}, {order or 'best match first'}:"
    more = f"; here are {shown}" if shown < answer.found else ""
    return f"I found {answer.found} {wanted(answer)}{unknown}{more}{', ' + order if order else ''}:"


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
        return f"{'Of those, one fits' if query.among else 'There is one that fits'}: {line(good, answer.fact)}."
    place = _PLACES[query.rank - 1] if query.rank <= len(_PLACES) else f"number {query.rank} "
    among = f" of these {answer.found}" if query.among else f" of {answer.found} {wanted(answer, answer.found)}"
    if answer.by:
        noun = f"one with the {place}{_amount(answer)}"
    else:
        noun = f"{place}best value" if query.sort == "value" else f"{place}{_MOST.get(query.sort, _MOST[None])} one"
    return f"The {noun}{among} is {line(good, answer.fact)}.{_others(answer)}{_why(answer, good)}"


def _others(answer: SearchAnswer) -> str:
    """Whoever has as much, and whoever would come before it if it were in stock."""
    tied = f" {answer.tied} more {'has' if answer.tied == 1 else 'have'} as much." if answer.tied else ""
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


def point(good: Card, answer: DetailsAnswer) -> str:
    """The very thing that was asked, first."""
    match answer.about:
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
        case about if about in good.attributes:
            return f"Its {about}: {good.attributes[about]}. "
        case about if answer.fact:
            return f"Yes, it is listed under “{about}”. "
        case about:
            return f"Nothing is noted about “{about}”. "


def portrait(good: Card) -> str:
    """Everything about an item."""
    stock = f"{good.stock} in stock" if good.stock else "sold out at the moment"
    facts = "; ".join(f"{name}: {value}" for name, value in good.attributes.items())
    about = f" {facts[:1].upper()}{facts[1:]}." if facts else ""
    price = money(good.price, good.currency)
    return f"{good.name}, {price}, rated {good.rating:g} of 5, {good.sales:,} sold, {stock}.{about}"


def fact(good: Card, about: str) -> str:
    """An item in a list, with the one thing that was asked about all of them."""
    facts = {
        "price": money(good.price, good.currency),
        "stock": f"{good.stock} in stock" if good.stock else "sold out at the moment",
        "rating": f"rated {good.rating:g} of 5",
        "sales": f"{good.sales:,} sold",
    }
    return f"{good.name}: {facts.get(about) or good.attributes.get(about, f'no {about} noted')}"


def too_many(shown: int, more: int) -> str:
    """That not all of them were looked at."""
    return f"I look at {shown} at a time; {more} more {'was' if more == 1 else 'were'} left out."


def verdict(cheapest: Card, best_rated: Card, best_value: Card | None) -> str:
    """How several compare."""
    value = f"; best value for money: {best_value.name}" if best_value else ""
    return f"Cheapest: {cheapest.name}; best rated: {best_rated.name}{value}."


def no_orders(asked_for: bool) -> str:
    """That there are no orders, or none of that number."""
    return "Among your orders there is none with that number." if asked_for else "You have no orders here yet."


def too_few_orders(length: int) -> str:
    """That fewer orders were shown than that."""
    return f"I showed you {length} {'order' if length == 1 else 'orders'}. Which one do you mean?"


def one_order(order: OrderCard) -> str:
    """An order by itself."""
    return f"Your order {order_line(order)}"


def more_orders(count: int) -> str:
    """That there are more."""
    return f"There {'is 1 older one' if count == 1 else f'are {count} older ones'}."


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
