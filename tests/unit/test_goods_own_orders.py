"""Whose orders the shop shows, and what it says of them (B16, A30)."""

from __future__ import annotations

from datetime import date

import pytest

from tenuto.assistants.goods import Order, OrderStatus, goods_assistant, replace_orders
from tenuto.model import Scope
from tenuto.stores.memory import MemoryStore
from tests.unit.shop import ANN, BOB, SOMEBODY, Shop


async def test_orders_are_shown_to_their_buyer() -> None:
    """B16: a question with a user id about "my order status"."""
    shop = Shop(scope=ANN)

    english = await shop.ask("my order status")
    own = [order["id"] for order in shop.outcome.data["orders"]]
    chinese = await shop.ask("我的订单状态如何？")

    assert len(own) == 4
    assert all(order in english and order in chinese for order in own)


async def test_a_user_without_orders_has_none() -> None:
    shop = Shop(scope=Scope(tenant="acme", user="nobody"))

    assert await shop.ask("my order status") == "You have no orders here yet."


@pytest.mark.parametrize(("question", "word"), [("my order status", "sign in"), ("我的订单到哪了", "登录")])
async def test_without_identity_the_user_is_asked_to_sign_in(question: str, word: str) -> None:
    """A30: the answer comes at once, in the user's language, and holds no order."""
    shop = Shop(scope=SOMEBODY)

    answer = await shop.ask(question)

    assert word in answer
    assert shop.outcome.reply == answer
    assert shop.outcome.data == {}


async def test_orders_are_not_shown_where_others_read_along() -> None:
    """A30: a group chat's session belongs to everybody in it."""
    shop = Shop(scope=Scope(tenant="acme", user="1001", chat="family"))

    answer = await shop.ask("my order status")

    assert "GD2026" not in answer
    assert shop.outcome.data == {}


async def test_other_peoples_orders_are_not_found_whatever_is_named() -> None:
    """A30: neither a number nor an argument made up by a model opens somebody else's order."""
    assistant = goods_assistant(MemoryStore().state)
    ann, bob = Shop(assistant, ANN), Shop(assistant, BOB)
    await ann.ask("my order status")
    others = [order["id"] for order in ann.outcome.data["orders"]]

    for number in others:
        answer = await bob.ask(f"where is my order {number}?")
        assert answer == "Among your orders there is none with that number."
    for made_up in ({"user": "1001"}, {"user_id": "1001", "order": others[0]}, {"scope": {"user": "1001"}}):
        await bob.call("my_orders", made_up)
        assert not set(others) & {order["id"] for order in bob.outcome.data["orders"]}


async def test_the_same_user_id_of_another_tenant_or_site_sees_nothing_of_it() -> None:
    store = MemoryStore()
    order = Order(id="X-1", item="PH101", name="Phone", status=OrderStatus.PAID, ordered_on=date(2026, 11, 1))
    await replace_orders(store.state, Scope(tenant="acme", user="ann"), [order])
    assistant = goods_assistant(store.state)

    for scope in (Scope(tenant="evil", user="ann"), Scope(tenant="acme", site="museum", user="ann")):
        shop = Shop(assistant, scope)
        await shop.ask("my order status")
        assert shop.outcome.data == {"orders": []}
    shop = Shop(assistant, Scope(tenant="acme", user="ann"))
    await shop.ask("my order status")
    assert [found["id"] for found in shop.outcome.data["orders"]] == ["X-1"]


async def test_a_complaint_is_met_politely_and_promises_nothing() -> None:
    """A30: nothing is written for it."""
    store = MemoryStore()
    shop = Shop(goods_assistant(store.state))
    await shop.ask("my order status")
    before = await store.state.list_state(ANN, "goods")

    english = await shop.ask("my kettle arrived broken, I want to complain")
    chinese = await shop.ask("我要投诉")

    assert english.startswith("I am sorry")
    assert "customer service" in english
    assert "很抱歉" in chinese
    assert await store.state.list_state(ANN, "goods") == before


@pytest.mark.parametrize(
    ("questions", "words"),
    [
        (("my orders", "the second one", "cancel it"), ("cannot cancel", "customer service")),
        (("我的订单", "第二个", "取消它"), ("不能取消订单", "人工客服")),
    ],
    ids=["en", "zh"],
)
async def test_orders_can_be_pointed_at_and_what_cannot_be_done_is_said(
    questions: tuple[str, str, str], words: tuple[str, str]
) -> None:
    """B16, A30: from what was shown, and no goods are searched for it."""
    shop = Shop()
    await shop.ask("cheap phones?")

    await shop.ask(questions[0])
    listed = [order["id"] for order in shop.outcome.data["orders"]]
    await shop.ask(questions[1])
    picked = [order["id"] for order in shop.outcome.data["orders"]]
    answer = await shop.ask(questions[2])

    assert shop.tool == "my_orders"
    assert picked == [order["id"] for order in shop.outcome.data["orders"]] == listed[1:2]
    assert all(word in answer for word in (*words, listed[1]))


async def test_places_point_at_goods_again_once_goods_were_shown() -> None:
    shop = Shop()
    await shop.ask("my orders")
    await shop.ask("cheap phones?")
    [first, *_] = shop.ids

    await shop.ask("the first one")

    assert shop.ids == [first]


async def test_a_place_that_the_orders_do_not_have_is_asked_back() -> None:
    shop = Shop()
    await shop.ask("my orders")

    assert await shop.ask("the ninth one") == "I showed you 4 orders. Which one do you mean?"
    assert "4 个" in await shop.ask("第十一个")


async def test_the_session_keeps_no_order_number() -> None:
    """A30: an order number is sensitive, and what a session keeps beside its messages passes no redaction."""
    shop = Shop()

    answer = await shop.ask("my orders")

    assert "GD2026" in answer
    assert "GD2026" not in str(shop.state)


GO = [
    Order(id="GO-1234", item="PH101", name="Phone", status=OrderStatus.SHIPPED, ordered_on=date(2026, 11, 1)),
    Order(id="GO-5678", item="PH102", name="Case", status=OrderStatus.PAID, ordered_on=date(2026, 11, 2)),
    Order(id="1234567", item="PH103", name="Lamp", status=OrderStatus.PAID, ordered_on=date(2026, 11, 3)),
]


@pytest.mark.parametrize(
    "question",
    [
        "where is my order GO-1234",
        "where is GO-1234?",
        "GO-1234",
        "order no. 1234",
        "order number 1234?",
        "order #1234",
        "order id: go1234",
        "has 1234 shipped?",
        "has order 1234 been delivered yet?",
        "track 1234",
        "my order ending in 1234",
        "订单1234到哪了",
        "订单号GO-1234",
        "尾号1234的那单发货了吗",
        "1234发货了吗",
        "1234号订单什么时候到",
        "1234那单呢",
        "单号1234",
    ],
)
async def test_an_order_is_found_by_its_number_as_people_write_it(question: str) -> None:
    """A30, B16: whole or only its end, with or without the dash; nobody else sees anything of it."""
    store = MemoryStore()
    await replace_orders(store.state, ANN, GO)
    assistant = goods_assistant(store.state)
    ann, bob = Shop(assistant, ANN), Shop(assistant, BOB)

    answer = await ann.ask(question)
    refused = await bob.ask(question)

    assert [order["id"] for order in ann.outcome.data["orders"]] == ["GO-1234"]
    assert "GO-1234" in answer
    assert bob.outcome.data["orders"] == []
    assert "1234" not in refused


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        ("where is my order GD202611114122?", "GD202611114122"),
        ("has 4122 shipped?", "GD202611114122"),
        ("尾号4192的订单", "GD202611144192"),
    ],
)
async def test_the_shipped_orders_are_found_the_same_way(question: str, shown: str) -> None:
    shop = Shop(scope=ANN)
    await shop.ask("my orders")

    await shop.ask(question)

    assert [order["id"] for order in shop.outcome.data["orders"]] == [shown]


@pytest.mark.parametrize(
    "question",
    [
        "I want to order 100 mooncakes",
        "can I order 2000 tea bags",
        "phones for 1234 yuan",
        "is the 256GB out of stock?",
        "where is the 256GB",
        "1234元的手机",
        "5000的单反有哪些",
        "预算3000单反相机推荐",
        "128GB单卡手机",
        "我想下单100个月饼",
    ],
)
def test_a_number_that_is_no_order_s_asks_for_none(question: str) -> None:
    assert "my_orders" not in [tool.spec.name for tool, _ in Shop().wanted(question)]


@pytest.mark.parametrize("number", ["34", "9999", "O-1234X"])
async def test_a_number_that_fits_no_order_finds_none(number: str) -> None:
    store = MemoryStore()
    await replace_orders(store.state, ANN, GO)
    shop = Shop(goods_assistant(store.state), ANN)

    await shop.call("my_orders", {"order": number})

    assert shop.outcome.data["orders"] == []


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("do you deliver to Berlin?", "ask our customer service"),
        ("can I return shoes?", "ask our customer service"),
        ("do you take credit cards?", "ask our customer service"),
        ("你们支持货到付款吗", "请咨询人工客服"),
        ("运费多少", "请咨询人工客服"),
    ],
)
async def test_how_the_shop_does_business_is_not_made_up(question: str, said: str) -> None:
    shop = Shop()

    assert said in await shop.ask(question)
    assert shop.outcome.data == {}


@pytest.mark.parametrize("question", ["can I have a cheap phone?", "could we have some red shoes"])
def test_a_wish_is_no_question_about_business(question: str) -> None:
    assert [tool.spec.name for tool, _ in Shop().wanted(question)] == ["search_goods"]
