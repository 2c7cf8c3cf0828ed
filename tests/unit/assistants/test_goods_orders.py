"""A user's own orders and complaint cases: shown to that user alone."""

from __future__ import annotations

from datetime import date

import pytest

from tenuto.assistants.goods import (
    Case,
    CaseStatus,
    Order,
    OrderStatus,
    Shop,
    goods_assistant,
    replace_cases,
    replace_orders,
)
from tenuto.errors import Invalid
from tenuto.model import Scope
from tests.clock import START
from tests.doubles import MemoryStore
from tests.unit.assistants.customer import ANN, BOB, SOMEBODY, Customer

VISITOR = Scope(tenant="acme", visitor=True)


@pytest.mark.requirement("B16")
@pytest.mark.parametrize("question", ["What is my order status?", "我的订单状态如何？"])
async def test_orders_are_shown_to_their_buyer(question: str) -> None:
    customer = Customer()

    answer = await customer.ask(question)

    shown = [order["id"] for order in customer.outcome.data["orders"]]
    assert shown == ["GD202611144192", "GD202611114122", "GD202610154144", "GD202610034163"]
    assert all(number in answer for number in shown)


@pytest.mark.requirement("A30")
@pytest.mark.parametrize("scope", [SOMEBODY, VISITOR])
@pytest.mark.parametrize(("question", "word"), [("my orders", "sign in"), ("投诉订单4122", "登录")])
async def test_without_a_user_the_answer_asks_to_sign_in(scope: Scope, question: str, word: str) -> None:
    """A fixed reply; no model is asked, and nothing is written."""
    store = MemoryStore()
    customer = Customer(goods_assistant(store.state), scope)

    answer = await customer.ask(question)

    assert word in answer
    assert customer.outcome.final_answer == answer
    assert customer.outcome.data == {}


async def test_orders_are_not_shown_where_others_read_along() -> None:
    customer = Customer(scope=Scope(tenant="acme", user="1001", channel="lark", chat="team"))

    answer = await customer.ask("my orders")

    assert "GD2026" not in answer
    assert customer.outcome.data == {}


@pytest.mark.requirement("A30")
async def test_orders_of_other_users_are_not_found_by_number_or_argument() -> None:
    assistant = goods_assistant(MemoryStore().state)
    ann, bob = Customer(assistant, ANN), Customer(assistant, BOB)
    await ann.ask("my order status")
    others = [order["id"] for order in ann.outcome.data["orders"]]

    for number in others:
        assert await bob.ask(f"where is my order {number}?") == "None of your orders has that number."
        assert "None of your orders has that number" in await bob.ask(f"I complain about order {number}")
    for made_up in ({"user": "1001"}, {"user_id": "1001", "order": others[0]}, {"scope": {"user": "1001"}}):
        with pytest.raises(Invalid):
            await bob.call("my_orders", made_up)
    assert await Shop(MemoryStore().state).cases(BOB) == ()


async def test_the_same_user_id_of_another_tenant_or_site_sees_nothing() -> None:
    store = MemoryStore()
    order = Order(id="X-1", item="PH101", name="Phone", status=OrderStatus.PAID, ordered_on=date(2026, 11, 1))
    ann = Scope(tenant="acme", user="ann")
    await replace_orders(store.state, ann, [order])
    assistant = goods_assistant(store.state)
    await Customer(assistant, ann).ask("complaint")

    for scope in (Scope(tenant="evil", user="ann"), Scope(tenant="acme", site="museum", user="ann")):
        customer = Customer(assistant, scope)
        await customer.ask("my order status")
        assert customer.outcome.data == {"orders": [], "cases": []}
    customer = Customer(assistant, ann)
    await customer.ask("my order status")
    assert [found["id"] for found in customer.outcome.data["orders"]] == ["X-1"]


@pytest.mark.parametrize(
    ("question", "ids"),
    [
        ("order GO-1234", ["GO-1234"]),
        ("where is my order go 1234", ["GO-1234"]),
        ("has 678 shipped?", ["GO-5678"]),
        ("尾号5678的那单发货了吗", ["GO-5678"]),
        ("order 9999", []),
    ],
)
async def test_an_order_is_found_by_its_number_or_the_end_of_it(question: str, ids: list[str]) -> None:
    store = MemoryStore()
    day = date(2026, 11, 1)
    numbers = ("GO-1234", "GO-5678")
    orders = [Order(id=id_, item="PH101", name="Phone", status=OrderStatus.SHIPPED, ordered_on=day) for id_ in numbers]
    await replace_orders(store.state, ANN, orders)
    customer = Customer(goods_assistant(store.state))

    await customer.ask(question)

    assert [order["id"] for order in customer.outcome.data["orders"]] == ids


@pytest.mark.requirement("A30")
async def test_orders_are_pointed_at_until_goods_are_shown() -> None:
    """The session state holds no order number."""
    customer = Customer()
    answer = await customer.ask("my orders")
    listed = [order["id"] for order in customer.outcome.data["orders"]]
    assert "GD2026" in answer
    assert "GD2026" not in str(customer.state)

    for _ in range(2):
        await customer.ask("the second one")
        assert [order["id"] for order in customer.outcome.data["orders"]] == listed[1:2]

    await customer.ask("cheap phones?")
    phones = customer.ids
    await customer.ask("the second one")
    assert customer.ids == phones[1:2]


@pytest.mark.requirement("A35")
@pytest.mark.parametrize(
    ("complaint", "later", "state"),
    [("I complain about order 4122", "my complaint?", "open"), ("我要投诉订单4122", "我的投诉怎么样了", "处理中")],
    ids=["en", "zh"],
)
async def test_a_complaint_opens_one_case_that_later_questions_find(complaint: str, later: str, state: str) -> None:
    """The case is the user's, survives the conversation, and is not doubled."""
    store = MemoryStore()
    assistant = goods_assistant(store.state)

    first = await Customer(assistant).ask(complaint)
    again = await Customer(assistant).ask(later)
    orders = await Customer(assistant).ask("my orders")

    assert first == again
    assert state in again
    assert "C1" in orders
    case = Case(id="C1", order="GD202611114122", opened_on=START.date())
    assert await Shop(store.state).cases(ANN) == (case,)
    assert await Shop(store.state).cases(BOB) == ()


async def test_a_closed_case_is_shown_so_and_a_new_complaint_opens_another() -> None:
    store = MemoryStore()
    customer = Customer(goods_assistant(store.state))
    await customer.ask("complaint")
    await replace_cases(store.state, ANN, [Case(id="C1", opened_on=START.date(), status=CaseStatus.CLOSED)])

    shown = await customer.ask("my orders")
    await customer.ask("complaint")

    assert "C1, opened on 2026-01-15: closed" in shown
    assert [(case.id, case.status) for case in await Shop(store.state).cases(ANN)] == [("C1", "closed"), ("C2", "open")]


async def test_a_complaint_about_several_orders_asks_which() -> None:
    store = MemoryStore()
    day = date(2026, 11, 1)
    orders = [Order(id=f"{id_}-777", item="X", name="X", status=OrderStatus.PAID, ordered_on=day) for id_ in "AB"]
    await replace_orders(store.state, ANN, orders)

    answer = await Customer(goods_assistant(store.state)).ask("I complain about order 777")

    assert "A-777" in answer
    assert "B-777" in answer
    assert await Shop(store.state).cases(ANN) == ()
