"""The shop's answers in English."""

from __future__ import annotations

from typing import Final

from tenuto.assistants.goods.cards import Card, DetailsAnswer, OrderCard, OrdersAnswer, SearchAnswer
from tenuto.assistants.goods.intent import QueryIntent
from tenuto.assistants.goods.item import OrderStatus
from tenuto.assistants.goods.words import category_name
from tenuto.model.prompt import Language

SIGN_IN: Final = "To see your orders I need to know who you are: please sign in and ask again."
NOT_HERE: Final = (
    "Others read along in this chat, so I do not show orders here. Please ask me in a conversation of your own."
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

_HINT: Final = "Ask for the best value among them, or about any of them by its number."
_SORRY: Final = "I am sorry that something went wrong."
_NEXT: Final = "\nI cannot open a complaint myself: please give our customer service the order number."


def money(amount: float, currency: str = "CNY") -> str:
    """A price as people write it."""
    figure = f"{amount:,.0f}" if amount == int(amount) else f"{amount:,.2f}"
    return f"¥{figure}" if currency == "CNY" else f"{figure} {currency}"


def tell_search(answer: SearchAnswer) -> str:
    """What a search brought."""
    if answer.nothing_shown_before:
        return "I have not shown you any goods yet. What are you looking for?"
    if not answer.goods:
        return _nothing(answer)
    if answer.near:
        return f"{_missing(answer)} The nearest I have:\n{_list(answer.goods)}"
    if len(answer.goods) == 1 and (answer.query.limit == 1 or answer.found == 1):
        return _single(answer)
    return f"{_heading(answer)}\n{_list(answer.goods)}\n{_HINT}"


def _wanted(query: QueryIntent, count: int = 2) -> str:
    """What was asked for, in words: "red Lumora phones with 256gb under ¥2,000"."""
    noun = category_name(query.category, Language.ENGLISH, count) if query.category else "goods"
    words = [*query.attributes.values(), query.brand or "", noun]
    if query.terms:
        words.append(f"for “{' '.join(query.terms)}”")
    if query.min_price is not None and query.max_price is not None:
        words.append(f"between {money(query.min_price)} and {money(query.max_price)}")
    elif query.max_price is not None:
        words.append(f"up to {money(query.max_price)}")
    elif query.min_price is not None:
        words.append(f"from {money(query.min_price)}")
    if query.below is not None:
        words.append(f"cheaper than {money(query.below)}")
    if query.above is not None:
        words.append(f"more expensive than {money(query.above)}")
    if query.min_rating is not None:
        words.append(f"rated {query.min_rating:g} or better")
    if query.in_stock:
        words.append("in stock")
    return " ".join(word for word in words if word)


def _nothing(answer: SearchAnswer) -> str:
    if answer.query.beyond:
        return "That was all I have of it. Shall I look for something else, or at another price?"
    if answer.found:
        return f"There are only {answer.found} of them."
    if answer.unknown:
        return f"I found nothing for “{' '.join(answer.unknown)}” in our catalogue. Could you put it in other words?"
    return f"I found no {_wanted(answer.query)}."


def _missing(answer: SearchAnswer) -> str:
    if answer.near == "among":
        return f"None {_LET_GO['among']} fits."
    return f"I found no {_wanted(answer.query)}: there is nothing {_LET_GO[answer.near or 'terms']}."


def _heading(answer: SearchAnswer) -> str:
    query, shown = answer.query, len(answer.goods)
    order = _ORDERED[query.sort]
    unknown = f" (I know nothing of “{' '.join(answer.unknown)}”)" if answer.unknown else ""
    if query.among:
        return f"Of those, {answer.found} fit{unknown}{', ' + order if order else ''}:"
    if answer.categories:
        kinds = ", ".join(category_name(slug, Language.ENGLISH) for slug in answer.categories)
        return f"We have {answer.found} goods: {kinds}. Here are {shown}, {order or 'best match first'}:"
    more = f"; here are {shown}" if shown < answer.found else ""
    return f"I found {answer.found} {_wanted(query)}{unknown}{more}{', ' + order if order else ''}:"


def _list(goods: tuple[Card, ...]) -> str:
    return "\n".join(f"{place}. {_line(good)}" for place, good in enumerate(goods, 1))


def _line(good: Card) -> str:
    color = f" ({good.attributes['color']})" if "color" in good.attributes else ""
    sold_out = ", sold out at the moment" if good.stock == 0 else ""
    return (
        f"{good.name}{color}: {money(good.price, good.currency)}, rated {good.rating:g}, {good.sales:,} sold{sold_out}"
    )


def _single(answer: SearchAnswer) -> str:
    good, query = answer.goods[0], answer.query
    if answer.found == 1:
        return f"There is one that fits: {_line(good)}."
    place = _PLACES[query.rank - 1] if query.rank <= len(_PLACES) else f"number {query.rank} "
    among = f" of these {answer.found}" if query.among else f" of {answer.found} {_wanted(query, answer.found)}"
    noun = "best value" if query.sort == "value" else f"{_MOST[query.sort]} one"
    return f"The {place}{noun}{among} is {_line(good)}.{_why(answer, good)}"


def _why(answer: SearchAnswer, good: Card) -> str:
    price = _against(good.price, answer.average_price)
    average = money(round(answer.average_price), good.currency)
    rating = f"{good.rating:g} stars against {answer.average_rating:.1f} on average"
    if answer.query.sort == "value":
        return f" Why: {rating}, and the price is {price} the average of {average}."
    return f" On average they cost {average} and have {answer.average_rating:.1f} stars."


def _against(price: float, average: float) -> str:
    share = round(100 * (price - average) / average) if average else 0
    return "right at" if share == 0 else f"{abs(share)} % {'above' if share > 0 else 'below'}"


def tell_details(answer: DetailsAnswer) -> str:
    """About one item, or several side by side."""
    if answer.nothing_shown_before:
        return "I have not shown you a list yet. What are you looking for?"
    if answer.which:
        return f"Several goods fit. Which one do you mean?\n{_list(answer.which)}"
    if answer.list_length is not None:
        return f"The list I showed you has {answer.list_length}. Which one do you mean?"
    if not answer.goods:
        return "I do not find that one in our catalogue. Could you give its name, or its number in the list?"
    if len(answer.goods) > 1:
        return _comparison(answer)
    return f"{_point(answer.goods[0], answer)}{_portrait(answer.goods[0])}"


def _point(good: Card, answer: DetailsAnswer) -> str:
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


def _portrait(good: Card) -> str:
    stock = f"{good.stock} in stock" if good.stock else "sold out at the moment"
    facts = "; ".join(f"{name}: {value}" for name, value in good.attributes.items())
    about = f" {facts[:1].upper()}{facts[1:]}." if facts else ""
    price = money(good.price, good.currency)
    return f"{good.name}, {price}, rated {good.rating:g} of 5, {good.sales:,} sold, {stock}.{about}"


def _comparison(answer: DetailsAnswer) -> str:
    lines = [f"{place}. {_portrait(good)}" for place, good in enumerate(answer.goods, 1)]
    cheap = min(answer.goods, key=lambda good: good.price)
    liked = max(answer.goods, key=lambda good: good.rating)
    verdict = [f"Cheapest: {cheap.name}", f"best rated: {liked.name}"]
    best = next((good.name for good in answer.goods if good.id == answer.best_value), None)
    if best:
        verdict.append(f"best value for money: {best}")
    return "\n".join([*lines, "; ".join(verdict) + "."])


def tell_orders(answer: OrdersAnswer) -> str:
    """About the asker's own orders."""
    if answer.shared:
        return NOT_HERE
    if not answer.signed_in:
        return f"{_SORRY} {SIGN_IN}" if answer.complaint else SIGN_IN
    sorry = f"{_SORRY} " if answer.complaint else ""
    if not answer.orders:
        asked = (
            "Among your orders there is none with that number." if answer.asked_for else "You have no orders here yet."
        )
        return f"{sorry}{asked}"
    if len(answer.orders) == 1:
        text = f"Your order {_order(answer.orders[0])}"
    else:
        text = "\n".join(["Your orders, latest first:", *(f"- {_order(order)}" for order in answer.orders)])
    more = f"\nThere are {answer.more} older ones." if answer.more else ""
    return f"{sorry}{text}{more}{_NEXT if answer.complaint else ''}"


def _order(order: OrderCard) -> str:
    times = f", {order.quantity} pieces" if order.quantity > 1 else ""
    parts = [f"{order.id} ({order.ordered_on}): {order.name}{times}, {money(order.total, order.currency)}"]
    received = f" on {order.delivered_on}" if order.status is OrderStatus.DELIVERED and order.delivered_on else ""
    parts.append(f"{_STATUS[order.status]}{received}")
    if order.expected_on:
        parts.append(f"expected on {order.expected_on}")
    if order.tracking and order.status is OrderStatus.SHIPPED:
        parts.append(f"tracking number {order.tracking}")
    return "; ".join(parts) + "."
