"""What the shop answers: which case it is, and what is told of it; how that sounds is each language's own."""

from __future__ import annotations

from typing import Protocol, assert_never

from tenuto.assistants.goods.cards import Card, CourtesyAnswer, DetailsAnswer, OrderCard, OrdersAnswer, SearchAnswer
from tenuto.model.values import Value


class Sentences(Value, frozen=True, kw_only=True):
    """What is always said in the same words."""

    no_goods_shown: str
    no_list_shown: str
    not_found: str
    which: str
    hint: str
    cannot_buy: str
    sign_in: str
    not_here: str
    orders: str
    sorry: str
    no_complaints: str
    hello: str
    welcome: str
    bye: str
    about: str


class Voice(Protocol):
    """A language: what the shop says in it. The modules `english` and `chinese` are such voices."""

    @property
    def SENTENCES(self) -> Sentences:  # noqa: N802 - a constant of those modules
        """What is always said in the same words."""
        ...

    def foreign_money(self, answer: SearchAnswer) -> str:
        """That prices in another currency were left out, and which one the shop has."""
        ...

    def can(self, answer: CourtesyAnswer) -> str:
        """What can be asked here, by examples."""
        ...

    def uncompared(self, answer: SearchAnswer) -> str:
        """That bounds were left out, since the catalogue notes nothing that compares with them."""
        ...

    def unnoted(self, answer: SearchAnswer) -> str:
        """That the catalogue does not tell what should decide."""
        ...

    def nothing(self, answer: SearchAnswer) -> str:
        """That there are no such goods."""
        ...

    def nearest(self, answer: SearchAnswer) -> str:
        """That there are no such goods, but others."""
        ...

    def single(self, answer: SearchAnswer) -> str:
        """The one that was asked for, and why it is the one."""
        ...

    def heading(self, answer: SearchAnswer) -> str:
        """What the list is of."""
        ...

    def line(self, good: Card, by: str | None = None) -> str:
        """An item in a list."""
        ...

    def too_far(self, length: int) -> str:
        """That the list is shorter than that."""
        ...

    def point(self, good: Card, answer: DetailsAnswer) -> str:
        """The very thing that was asked, first."""
        ...

    def portrait(self, good: Card) -> str:
        """Everything about an item."""
        ...

    def verdict(self, cheapest: Card, best_rated: Card, best_value: Card | None) -> str:
        """How several compare."""
        ...

    def no_orders(self, asked_for: bool) -> str:
        """That there are no orders, or none of that number."""
        ...

    def too_few_orders(self, length: int) -> str:
        """That fewer orders were shown than that."""
        ...

    def one_order(self, order: OrderCard) -> str:
        """An order by itself."""
        ...

    def order_line(self, order: OrderCard) -> str:
        """An order in a list."""
        ...

    def more_orders(self, count: int) -> str:
        """That there are more."""
        ...

    def cannot(self, answer: OrdersAnswer) -> str:
        """That nothing here can do that to an order, and who can."""
        ...


def tell_search(answer: SearchAnswer, voice: Voice) -> str:
    """What a search brought."""
    if answer.nothing_shown_before:
        return voice.SENTENCES.no_goods_shown
    left_out = (voice.foreign_money(answer) if answer.foreign else "") + (
        voice.uncompared(answer) if answer.uncompared else ""
    )
    return left_out + _found(answer, voice)


def tell_courtesy(answer: CourtesyAnswer, voice: Voice) -> str:
    """A word back; and what can be asked, where that may not be known yet."""
    match answer.occasion:
        case "hello":
            return voice.SENTENCES.hello + voice.can(answer)
        case "thanks":
            return voice.SENTENCES.welcome
        case "bye":
            return voice.SENTENCES.bye
        case "help":
            return voice.SENTENCES.about + voice.can(answer)
        case _:
            assert_never(answer.occasion)


def _found(answer: SearchAnswer, voice: Voice) -> str:
    if answer.unnoted is not None:
        return "\n".join(filter(None, [voice.unnoted(answer), _list(answer.goods, voice)]))
    if not answer.goods:
        return voice.nothing(answer)
    if answer.near:
        return f"{voice.nearest(answer)}\n{_list(answer.goods, voice, answer.fact)}"
    if len(answer.goods) == 1 and (answer.query.limit == 1 or answer.found == 1):
        return voice.single(answer)
    return f"{voice.heading(answer)}\n{_list(answer.goods, voice, answer.fact)}\n{voice.SENTENCES.hint}"


def tell_details(answer: DetailsAnswer, voice: Voice) -> str:
    """About one item, or several side by side."""
    if answer.nothing_shown_before:
        return voice.SENTENCES.no_list_shown
    if answer.which:
        return f"{voice.SENTENCES.which}\n{_list(answer.which, voice)}"
    if answer.list_length is not None:
        return voice.too_far(answer.list_length)
    if not answer.goods:
        return voice.SENTENCES.not_found
    if len(answer.goods) > 1:
        return _compared(answer, voice)
    good = answer.goods[0]
    return f"{voice.point(good, answer)}{voice.portrait(good)}" + (
        f"\n{voice.SENTENCES.cannot_buy}" if answer.cannot_buy else ""
    )


def _compared(answer: DetailsAnswer, voice: Voice) -> str:
    lines = [f"{place}. {voice.portrait(good)}" for place, good in enumerate(answer.goods, 1)]
    cheapest = min(answer.goods, key=lambda good: good.price)
    best_rated = max(answer.goods, key=lambda good: good.rating)
    best_value = next((good for good in answer.goods if good.id == answer.best_value), None)
    return "\n".join([*lines, voice.verdict(cheapest, best_rated, best_value)])


def tell_orders(answer: OrdersAnswer, voice: Voice) -> str:
    """About the asker's own orders."""
    if answer.shared:
        return voice.SENTENCES.not_here
    sorry = voice.SENTENCES.sorry if answer.complaint else ""
    if not answer.signed_in:
        return f"{sorry}{voice.SENTENCES.sign_in}"
    if answer.list_length is not None:
        return f"{sorry}{voice.too_few_orders(answer.list_length)}"
    if not answer.orders:
        return f"{sorry}{voice.no_orders(answer.asked_for)}"
    lines = [f"{sorry}{_orders(answer.orders, voice)}"]
    if answer.more:
        lines.append(voice.more_orders(answer.more))
    if answer.cannot:
        lines.append(voice.cannot(answer))
    elif answer.complaint:
        lines.append(voice.SENTENCES.no_complaints)
    return "\n".join(lines)


def _orders(orders: tuple[OrderCard, ...], voice: Voice) -> str:
    if len(orders) == 1:
        return voice.one_order(orders[0])
    rows = [f"{place}. {voice.order_line(order)}" for place, order in enumerate(orders, 1)]
    return "\n".join([voice.SENTENCES.orders, *rows])


def _list(goods: tuple[Card, ...], voice: Voice, by: str | None = None) -> str:
    return "\n".join(f"{place}. {voice.line(good, by)}" for place, good in enumerate(goods, 1))


def figure(amount: float) -> str:
    """A sum of money without its currency."""
    return f"{amount:,.0f}" if amount == int(amount) else f"{amount:,.2f}"


def against(price: float, average: float) -> int:
    """How many per cent a price lies above the average, or below."""
    return round(100 * (price - average) / average) if average else 0
