"""What the shop answers: which case it is, and what is told of it; how that sounds is each language's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar, assert_never

import msgspec

from tenuto.assistants.goods.intent import MAX_READ
from tenuto.assistants.goods.telling import chinese, english
from tenuto.assistants.goods.telling.cards import (
    Card,
    CourtesyAnswer,
    DetailsAnswer,
    OrderCard,
    OrdersAnswer,
    SearchAnswer,
)
from tenuto.assistants.goods.telling.voice import Voice
from tenuto.model.prompt import Language
from tenuto.model.talk import ToolContext
from tenuto.model.values import Json

_T = TypeVar("_T")
_AT_A_LOSS: Final[Mapping[Language, str]] = MappingProxyType(
    {Language.ENGLISH: "I could not read the answer of the shop.", Language.CHINESE: "商店的查询结果无法读取。"}
)


def told(output: Json, kind: type[_T], turn: ToolContext, tell: Callable[[_T, Voice], str]) -> str:
    """An output in words; where only the beginning of the question was read, it says so."""
    try:
        answer = msgspec.convert(output, kind)
    except msgspec.ValidationError:
        return _AT_A_LOSS[turn.language]
    voice: Voice = chinese if turn.language is Language.CHINESE else english
    return (voice.cut(MAX_READ) if len(turn.question) > MAX_READ else "") + tell(answer, voice)


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
        case "policy":
            return voice.SENTENCES.no_policies
        case "nothing":
            return voice.SENTENCES.nothing_wanted
        case "unclear":
            return voice.SENTENCES.unclear
        case "help":
            return voice.SENTENCES.about + voice.can(answer)
        case _:
            assert_never(answer.occasion)


def _found(answer: SearchAnswer, voice: Voice) -> str:
    unread = voice.unread(answer) if answer.unknown else ""
    if answer.brands:
        return "\n".join([unread + voice.of_brands(answer), *map(voice.brand_line, answer.brands)])
    if answer.unnoted is not None:
        return "\n".join(filter(None, [unread + voice.unnoted(answer), _list(answer.goods, voice)]))
    if not answer.goods:
        return voice.nothing(answer)
    if answer.even:
        return f"{unread}{voice.even(answer)}\n{_list(answer.goods, voice, answer.fact)}"
    if answer.near:
        return f"{unread}{voice.nearest(answer)}\n{_list(answer.goods, voice, answer.fact)}"
    if len(answer.goods) == 1 and (answer.query.limit == 1 or answer.found == 1):
        return unread + voice.single(answer)
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
    missing = voice.missing(answer.missing) if answer.missing else ""
    if len(answer.goods) > 1:
        return missing + _compared(answer, voice)
    good = answer.goods[0]
    return "\n".join(
        [f"{missing}{voice.point(good, answer.about, answer.fact)}{voice.portrait(good)}", *_cannot(answer, voice)]
    )


def _cannot(answer: DetailsAnswer, voice: Voice) -> list[str]:
    """What was asked for beside it and nothing here does."""
    bought = [voice.SENTENCES.cannot_buy] if answer.cannot_buy else []
    return [*([voice.SENTENCES.cannot_sum] if answer.cannot_sum else []), *bought]


def _compared(answer: DetailsAnswer, voice: Voice) -> str:
    more = [voice.too_many(len(answer.goods), answer.more)] if answer.more else []
    if (about := answer.about) is not None:
        claim = [voice.CLAIMS[answer.claim]] if answer.claim is not None else []
        facts = [
            f"{place}. {voice.fact(good, about, good.id in answer.listed)}"
            for place, good in enumerate(answer.goods, 1)
        ]
        return "\n".join([*claim, *facts, *more, *_cannot(answer, voice)])
    lines = [f"{place}. {voice.portrait(good)}" for place, good in enumerate(answer.goods, 1)]
    price, rating = min(good.price for good in answer.goods), max(good.rating for good in answer.goods)
    cheapest = [good for good in answer.goods if good.price == price]
    best_rated = [good for good in answer.goods if good.rating == rating]
    best_value = next((good for good in answer.goods if good.id == answer.best_value), None)
    return "\n".join([*lines, voice.verdict(cheapest, best_rated, best_value, len(lines)), *more])


def tell_orders(answer: OrdersAnswer, voice: Voice) -> str:
    """About the asker's own orders."""
    if answer.shared:
        return voice.SENTENCES.not_here
    sorry = voice.SENTENCES.sorry if answer.complaint else ""
    if answer.others:
        return voice.SENTENCES.others_orders
    if not answer.signed_in:
        return f"{sorry}{voice.SENTENCES.sign_in}"
    if answer.list_length is not None:
        return f"{sorry}{voice.too_few_orders(answer.list_length)}"
    if not answer.orders:
        return f"{sorry}{voice.no_orders(answer.asked_for)}"
    none = voice.SENTENCES.no_such_order if answer.none_such else ""
    count = voice.counted(answer.counted) if answer.counted else ""
    lines = [f"{sorry}{none}{count}{_orders(answer.orders, voice)}"]
    if answer.more:
        lines.append(voice.more_orders(answer.more))
    if answer.spent is not None and not answer.none_such:
        lines.append(voice.spent(answer.spent, answer.currency))
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
