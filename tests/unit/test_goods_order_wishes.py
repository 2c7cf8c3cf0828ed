"""Which of one's orders are meant, by how they stand, what was bought and when; and what is a complaint (B16, A30)."""

from __future__ import annotations

from datetime import date

import pytest

from tenuto.assistants.goods import Order, OrderStatus, goods_assistant, replace_orders
from tenuto.model import Scope
from tenuto.stores.memory import MemoryStore
from tests.unit.shop import ANN, SOMEBODY, Shop

BUYER = Scope(tenant="acme", user="12345")
PHONES = ["GD202611144765", "GD202610124795"]
BOOK = "GD202611124760"


def shown(shop: Shop) -> list[str]:
    return [order["id"] for order in shop.outcome.data["orders"]]


@pytest.mark.parametrize(
    ("complaint", "orders"),
    [
        ("我收到的东西是坏的！太差劲了", None),
        ("收到的手机是坏的", PHONES),
        ("我收到的手机屏幕碎了，怎么办？", PHONES),
        ("你们发来的手机有划痕", PHONES),
        ("买的手机用不了", PHONES),
        ("东西不对，我要退", None),
        ("I'm really unhappy, the phone you sent me doesn't turn on", PHONES),
        ("the book I received is torn", [BOOK]),
        ("this is unacceptable, I got an empty box", None),
        ("the phone won't charge", None),
    ],
)
async def test_a_complaint_gets_the_orders_it_may_be_about_and_no_goods(
    complaint: str, orders: list[str] | None
) -> None:
    shop = Shop(scope=BUYER)

    answer = await shop.ask(complaint)

    assert shop.outcome.output["complaint"]
    assert answer.startswith(("I am sorry", "很抱歉"))
    assert shown(shop) == (orders or [PHONES[0], BOOK, PHONES[1]])


@pytest.mark.parametrize("question", ["想买的破壁机有吗", "碎花裙", "wireless charging stand", "a used camera?"])
async def test_goods_are_no_complaint(question: str) -> None:
    shop = Shop(scope=BUYER)

    await shop.ask(question)

    assert shop.tool == "search_goods"


@pytest.mark.parametrize(
    ("question", "orders"),
    [
        ("which of my orders are still on the way?", ["GD202611114122"]),
        ("is any of them delivered?", ["GD202610154144", "GD202610034163"]),
        ("which ones have not been sent yet?", ["GD202611144192"]),
        ("which of them have not arrived?", ["GD202611144192", "GD202611114122"]),
        ("哪些还没发货", ["GD202611144192"]),
        ("有没有已签收的", ["GD202610154144", "GD202610034163"]),
        ("哪些还在路上", ["GD202611114122"]),
    ],
)
async def test_orders_are_asked_for_by_how_they_stand(question: str, orders: list[str]) -> None:
    shop = Shop(scope=ANN)
    await shop.ask("Has my order shipped yet?")
    everything = shown(shop)

    await shop.ask(question)

    assert len(everything) == 4
    assert shown(shop) == orders


async def test_where_none_stands_so_that_is_said_and_all_are_shown() -> None:
    shop = Shop(scope=ANN)

    answer = await shop.ask("which of my orders were cancelled?")

    assert answer.startswith("None of your orders is like that.")
    assert len(shown(shop)) == 4


@pytest.mark.parametrize(
    ("question", "orders"),
    [("and the phone?", PHONES), ("手机呢", PHONES), ("has my book arrived?", [BOOK]), ("我的书到哪了", [BOOK])],
)
async def test_orders_are_asked_for_by_what_was_bought(question: str, orders: list[str]) -> None:
    shop = Shop(scope=BUYER)
    await shop.ask("Did my book ship?")
    first = shown(shop)

    await shop.ask(question)

    assert first == [BOOK]
    assert shown(shop) == orders


@pytest.mark.parametrize("question", ["what's the status of my recent order?", "where is my thingamajig?"])
async def test_by_a_word_that_no_goods_have_no_order_is_left_out(question: str) -> None:
    shop = Shop(scope=BUYER)

    answer = await shop.ask(question)

    assert len(shown(shop)) == 3
    assert "None" not in answer


def paid(id_: str, day: date, total: float, status: OrderStatus = OrderStatus.DELIVERED) -> Order:
    return Order(id=id_, item="PH101", name="Phone", status=status, ordered_on=day, total=total)


@pytest.mark.parametrize(
    ("question", "orders"),
    [
        ("what did I order last month?", ["A-102", "A-101"]),
        ("我上个月买了什么", ["A-102", "A-101"]),
        ("my orders this month", ["A-103"]),
        ("my orders from november", ["A-100"]),
        ("11月的订单", ["A-100"]),
    ],
)
async def test_orders_are_asked_for_by_their_month(question: str, orders: list[str]) -> None:
    """It is January 2026; one order was spoken of before, and does not stand in the way."""
    shop = await buyer()
    await shop.ask("order A-103")

    await shop.ask(question)

    assert shown(shop) == orders


@pytest.mark.parametrize(
    ("question", "sum_"),
    [("how much did I spend last month?", "¥300"), ("我上个月花了多少钱", "300 元"), ("我一共花了多少钱", "777 元")],
)
async def test_what_was_spent_is_added_up_without_what_was_given_back(question: str, sum_: str) -> None:
    shop = await buyer()

    answer = await shop.ask(question)

    assert sum_ in answer.splitlines()[-1]


async def buyer() -> Shop:
    store = MemoryStore()
    orders = [
        paid("A-100", date(2025, 11, 30), 70),
        paid("A-101", date(2025, 12, 1), 300),
        paid("A-102", date(2025, 12, 31), 99, OrderStatus.RETURNED),
        paid("A-103", date(2026, 1, 2), 407),
    ]
    await replace_orders(store.state, ANN, orders)
    return Shop(goods_assistant(store.state), ANN)


@pytest.mark.parametrize(("question", "said"), [("my orders", "a new conversation"), ("我的订单", "新的对话")])
async def test_who_has_to_sign_in_is_told_that_the_talk_begins_anew(question: str, said: str) -> None:
    shop = Shop(scope=SOMEBODY)

    assert said in await shop.ask(question)
