"""The table of words: which `QueryIntent` a question gives without a language model, in both languages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.assistants.goods import goods_assistant
from tenuto.assistants.goods.intent import QueryIntent, Shown
from tenuto.assistants.goods.words import interpret
from tests.doubles import MemoryStore
from tests.unit.assistants.customer import Customer

ASSISTANT = goods_assistant(MemoryStore().state)
NOTHING = Shown()
GOODS = Shown(items=("PH101", "PH102"))
ORDERS = Shown(items=("PH101",), orders=("a1", "b2"))

TABLE: list[tuple[str, Shown, str, dict[str, Any]]] = [
    ("cheap phones?", NOTHING, "goods", {"category": "phone", "sort": "price"}),
    ("有什么便宜的手机？", NOTHING, "goods", {"category": "手机", "sort": "price"}),
    ("Which phones are not too expensive?", NOTHING, "goods", {"category": "phone", "sort": "price"}),
    ("不太贵的耳机", NOTHING, "goods", {"category": "耳机", "sort": "price"}),
    ("best rated laptops", NOTHING, "goods", {"category": "laptop", "sort": "rating"}),
    ("销量最高的图书", NOTHING, "goods", {"category": "图书", "sort": "sales"}),
    ("the best value among them", GOODS, "goods", {"sort": "value", "among_previous": True, "limit": 1}),
    ("推荐其中性价比最高的", GOODS, "goods", {"sort": "value", "among_previous": True, "limit": 1}),
    ("cheaper", GOODS, "goods", {"sort": "price", "among_previous": True}),
    ("under 2000?", GOODS, "goods", {"max_price": 1999.99, "among_previous": True}),
    (
        "red phones under 2000",
        NOTHING,
        "goods",
        {"category": "phone", "attributes": {"color": "red"}, "max_price": 1999.99},
    ),
    ("2000以下的红色手机", NOTHING, "goods", {"category": "手机", "attributes": {"color": "red"}, "max_price": 2000}),
    ("the second one", GOODS, "goods", {"position": 2}),
    ("第二个怎么样", GOODS, "goods", {"position": 2}),
    ("the last one", GOODS, "goods", {"position": -1}),
    ("waterproof watches", NOTHING, "goods", {"category": "watch", "text": "waterproof"}),
    ("phone case", NOTHING, "goods", {"text": "phone case"}),
    ("手机壳", NOTHING, "goods", {"text": "手机壳"}),
    ("my orders", NOTHING, "orders", {}),
    ("What is my order status?", GOODS, "orders", {}),
    ("我的订单状态如何？", NOTHING, "orders", {}),
    ("order #4122", NOTHING, "orders", {"order": "4122"}),
    ("订单GD-202611-4122到哪了", NOTHING, "orders", {"order": "gd-202611-4122"}),
    ("the second one", ORDERS, "orders", {"position": 2}),
    ("第二个", ORDERS, "orders", {"position": 2}),
    ("I want to complain about order 4122", NOTHING, "complaint", {"order": "4122"}),
    ("我要投诉第一个", ORDERS, "complaint", {"position": 1}),
    ("what about my complaint?", NOTHING, "complaint", {}),
]


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(("question", "shown", "topic", "fields"), TABLE)
def test_the_table_gives_topic_and_intent(question: str, shown: Shown, topic: str, fields: dict[str, Any]) -> None:
    assert interpret(question, shown) == (topic, QueryIntent(**fields))


BOUNDS: list[tuple[str, float | None, float | None]] = [
    ("under 2000", None, 1999.99),
    ("below ¥2,000", None, 1999.99),
    ("up to 2k", None, 2000),
    ("no more than 2.5k", None, 2500),
    ("2000 or less", None, 2000),
    ("my budget is 2000", None, 2000),
    ("under two thousand five hundred", None, 2499.99),
    ("over 2000", 2000.01, None),
    ("at least 2000", 2000, None),
    ("not under 2000", 2000, None),
    ("2000+", 2000, None),
    ("between 1000 and 2000", 1000, 2000),
    ("1000-2000", 1000, 2000),
    ("around 1000", 800, 1200),
    ("over 1000 and under 2000", 1000.01, 1999.99),
    ("2000以下", None, 2000),
    ("2k以内", None, 2000),
    ("不到两千", None, 1999.99),
    ("两千五以下", None, 2500),
    ("不超过1万2", None, 12000),
    ("三万五千以内", None, 35000),
    ("预算2000", None, 2000),
    ("2000元以上", 2000, None),
    ("不低于2000块", 2000, None),
    ("1000到2000", 1000, 2000),
    ("1000左右", 800, 1200),
]


@pytest.mark.parametrize(("said", "least", "most"), BOUNDS)
def test_a_price_bound_is_never_overlooked(said: str, least: float | None, most: float | None) -> None:
    for question in (f"phones {said}", f"{said} phones", f"{said}的手机", f"手机，{said}"):
        understood = interpret(question, NOTHING)

        assert understood is not None
        assert (understood[1].min_price, understood[1].max_price) == (least, most)


@pytest.mark.parametrize(
    "said", ["under 1.5 kg", "over 8GB", "13-15 inch", "3到6岁", "不到1.5公斤", "at least 5000 mAh"]
)
def test_an_amount_with_another_unit_is_no_price(said: str) -> None:
    understood = interpret(f"phones {said}", NOTHING)

    assert understood is not None
    assert (understood[1].min_price, understood[1].max_price) == (None, None)


@pytest.mark.parametrize(
    ("said", "currency"), [("$300", "$"), ("300 euros", "EUR"), ("300块钱", "CNY"), ("￥300", "¥")]
)
def test_a_named_currency_is_passed_on(said: str, currency: str) -> None:
    understood = interpret(f"phones under {said}", NOTHING)

    assert understood is not None
    assert understood[1].currency == currency


@pytest.mark.parametrize("question", ["hello", "你好", "thanks!", "what did you say?", "", "?", "x" * 3_000])
def test_words_that_ask_for_no_goods_give_no_intent(question: str) -> None:
    assert interpret(question, GOODS) is None


@given(
    st.integers(100, 9_999), st.sampled_from(["phones under {}", "{}以下的手机", "手机，不超过{}", "phones up to ¥{}"])
)
async def test_no_item_shown_contradicts_a_stated_bound(price: int, question: str) -> None:
    customer = Customer(ASSISTANT)

    await customer.ask(question.format(price))

    assert all(good["price"] <= price for good in customer.outcome.data["goods"])


@pytest.mark.requirement("B16")
@pytest.mark.parametrize(
    "questions",
    [
        ("cheap phones?", "the best value among them", "the second one"),
        ("有什么便宜的手机？", "推荐其中性价比最高的", "第二个怎么样"),
    ],
    ids=["en", "zh"],
)
async def test_a_list_is_chosen_from_and_pointed_at(questions: tuple[str, str, str]) -> None:
    customer = Customer()

    await customer.ask(questions[0])
    listed = customer.ids
    await customer.ask(questions[1])
    best = customer.ids
    answer = await customer.ask(questions[2])

    assert listed == ["PH126", "PH122", "PH108", "PH131", "PH109"]
    assert best == ["PH108"]
    assert customer.ids == [listed[1]]
    assert "699" in answer


async def test_a_question_outside_the_shop_is_left_to_the_model() -> None:
    """An empty rendering says nothing, and the offline model answers by itself."""
    customer = Customer()

    assert await customer.ask("When does my train leave?") == ""
    assert "nothing" in await customer.ask("umbrellas under 100")
    assert "没有找到" in await customer.ask("100以下的雨伞")


@pytest.mark.parametrize(("question", "word"), [("the third one", "not shown"), ("其中最便宜的", "还没有给您展示")])
async def test_pointing_at_nothing_is_answered_so(question: str, word: str) -> None:
    assert word in await Customer().ask(question)
