"""Questions for goods in English and Chinese, by themselves and on top of what was shown (B8, B16)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.assistants.goods.intent import Courtesy, Details, OrderQuestion, QueryIntent, Talk, as_json
from tenuto.assistants.goods.reading import MAX_READ, folded_question, read
from tenuto.assistants.goods.words import fold, number

NOTHING = Talk()
ITEMS = ["A", "B", "C", "D", "E"]
SHOWN = Talk(items=tuple(ITEMS), prices=(599, 699, 799, 899, 999), intent=QueryIntent(category="phones", sort="price"))
FOCUSED = Talk(items=SHOWN.items, prices=SHOWN.prices, focus="C", intent=SHOWN.intent)
ORDERED = Talk(items=SHOWN.items, prices=SHOWN.prices, intent=SHOWN.intent, orders=("X", "Y", "Z"))
ONE_ORDER = Talk(items=SHOWN.items, prices=SHOWN.prices, intent=SHOWN.intent, orders=("X", "Y", "Z"), order=2)


def asked(question: str, talk: Talk = NOTHING) -> Any:
    """What is understood, as JSON; `None` when nothing is."""
    understood = read(fold(question, MAX_READ).strip(), talk)
    return None if understood is None else as_json(understood)


ALONE: list[tuple[str, dict[str, Any]]] = [
    ("cheap phones?", {"category": "phones", "sort": "price"}),
    ("有什么便宜的手机？", {"category": "phones", "sort": "price"}),
    ("Do you have any affordable smartphones?", {"category": "phones", "sort": "price"}),
    ("I'm looking for a laptop", {"category": "laptops"}),
    ("我想买笔记本电脑", {"category": "laptops"}),
    ("phones under 2000", {"category": "phones", "max_price": 2000.0}),
    ("phones for less than ¥2,000", {"category": "phones", "max_price": 2000.0, "currency": "¥"}),
    ("a tablet up to 1.5k", {"category": "tablets", "max_price": 1500.0}),
    ("手机2000以下", {"category": "phones", "max_price": 2000.0}),
    ("两千元以内的手机", {"category": "phones", "max_price": 2000.0, "currency": "CNY"}),
    ("不超过三千五的平板", {"category": "tablets", "max_price": 3500.0}),
    ("预算3000左右的笔记本", {"category": "laptops", "min_price": 2400.0, "max_price": 3600.0}),
    ("laptops around 5000", {"category": "laptops", "min_price": 4000.0, "max_price": 6000.0}),
    ("laptops between 4000 and 6000", {"category": "laptops", "min_price": 4000.0, "max_price": 6000.0}),
    ("3000到5000的平板", {"category": "tablets", "min_price": 3000.0, "max_price": 5000.0}),
    ("2-3千的手机", {"category": "phones", "min_price": 2000.0, "max_price": 3000.0}),
    ("两三千的手机", {"category": "phones", "min_price": 2000.0, "max_price": 3000.0}),
    ("千元机推荐", {"category": "phones", "min_price": 1000.0, "max_price": 2000.0, "currency": "CNY"}),
    ("phones over 5000", {"category": "phones", "min_price": 5000.0}),
    ("5000以上的手机", {"category": "phones", "min_price": 5000.0}),
    ("headphones rated above 4.5", {"category": "headphones", "min_rating": 4.5}),
    ("评分4.5以上的耳机", {"category": "headphones", "min_rating": 4.5}),
    ("4 star headphones", {"category": "headphones", "min_rating": 4.0}),
    ("256GB red phone", {"category": "phones", "terms": ["256gb"], "attributes": {"color": "red"}}),
    ("红色256G手机", {"category": "phones", "terms": ["256gb"], "attributes": {"color": "red"}}),
    ("手机 12+256", {"category": "phones", "terms": ["12gb", "256gb"]}),
    ("a pair of shoes", {"category": "shoes"}),
    ("16 inch laptop", {"category": "laptops", "terms": ["16inch"]}),
    ("14寸笔记本", {"category": "laptops", "terms": ["14inch"]}),
    ("65W charger", {"terms": ["65w", "charger"]}),
    ("the cheapest laptop", {"category": "laptops", "sort": "price", "limit": 1}),
    ("最便宜的笔记本", {"category": "laptops", "sort": "price", "limit": 1}),
    ("the three cheapest laptops", {"category": "laptops", "sort": "price", "limit": 3}),
    ("推荐三款耳机", {"category": "headphones", "limit": 3}),
    ("top 3 watches", {"category": "watches", "limit": 3}),
    ("best value phone", {"category": "phones", "sort": "value", "limit": 1}),
    ("性价比最高的手机", {"category": "phones", "sort": "value", "limit": 1}),
    ("性价比高的笔记本", {"category": "laptops", "sort": "value"}),
    ("best phones", {"category": "phones", "sort": "rating"}),
    ("best-selling books", {"category": "books", "sort": "sales"}),
    ("销量最好的耳机", {"category": "headphones", "sort": "sales", "limit": 1}),
    ("热销的玩具有哪些", {"category": "toys", "sort": "sales"}),
    ("the most expensive camera", {"category": "cameras", "sort": "price_desc", "limit": 1}),
    ("最贵的相机是哪款", {"category": "cameras", "sort": "price_desc", "limit": 1}),
    ("second cheapest phone", {"category": "phones", "sort": "price", "limit": 1, "rank": 2}),
    ("第二便宜的手机", {"category": "phones", "sort": "price", "limit": 1, "rank": 2}),
    ("rice cooker", {"terms": ["rice", "cooker"]}),
    ("I need a rice cooker", {"terms": ["rice", "cooker"]}),
    ("电饭煲", {"terms": ["电饭煲"]}),
    ("推荐几款降噪耳机", {"category": "headphones", "terms": ["降噪"]}),
    ("有没有适合跑步的运动鞋", {"terms": ["跑步", "运动鞋"]}),
    ("phone case", {"terms": ["phone", "case"]}),
    ("手机壳", {"terms": ["手机壳"]}),
    ("Lumora phones", {"category": "phones", "terms": ["lumora"]}),
    ("光诺手机", {"category": "phones", "terms": ["光诺"]}),
    ("phones but not red", {"category": "phones", "without": ["red"]}),
    ("不要红色的手机", {"category": "phones", "without": ["red"]}),
    ("waterproof watches in stock", {"category": "watches", "terms": ["waterproof"], "in_stock": True}),
    ("有现货的相机", {"category": "cameras", "in_stock": True}),
    ("books for kids", {"category": "books", "terms": ["kids"]}),
    ("给孩子的书", {"category": "books", "terms": ["孩子"]}),
    (
        "show me some toys for a 3 year old",
        {"category": "toys", "amounts": [{"of": ["age"], "sign": "=", "amount": "3"}]},
    ),
    ("最便宜的书", {"category": "books", "sort": "price", "limit": 1}),
    ("hi-fi headphones", {"category": "headphones", "terms": ["hi-fi"]}),
    ("你好，有便宜的耳机吗", {"category": "headphones", "sort": "price"}),
    ("Hello! Any good tablets?", {"category": "tablets", "sort": "rating"}),
    ("what's the cheapest thing you have?", {"sort": "price", "limit": 1}),
    ("ＣＨＥＡＰ　ＰＨＯＮＥＳ", {"category": "phones", "sort": "price"}),
    ("ch\u200beap pho\u200bnes", {"category": "phones", "sort": "price"}),
    ("a cold weather jacket", {"terms": ["cold", "weather", "jacket"]}),
    ("tell me about headphones", {"category": "headphones"}),
    ("耳机怎么样", {"category": "headphones"}),
    ("the best value among them", {"sort": "value", "limit": 1, "among": ["previous"]}),
    ("phone with the largest battery", {"category": "phones", "sort": "most", "by": ["battery"], "limit": 1}),
    ("phones with the largest battery", {"category": "phones", "sort": "most", "by": ["battery"]}),
    ("电池最大的手机", {"category": "phones", "sort": "most", "by": ["battery"], "limit": 1}),
    (
        "which headphones have the best battery life?",
        {"category": "headphones", "sort": "most", "by": ["battery"], "limit": 1},
    ),
    ("续航最长的耳机有哪些", {"category": "headphones", "sort": "most", "by": ["battery"]}),
    ("the lightest laptop", {"category": "laptops", "sort": "least", "by": ["weight"], "limit": 1}),
    ("最轻的笔记本", {"category": "laptops", "sort": "least", "by": ["weight"], "limit": 1}),
    ("内存最大的笔记本", {"category": "laptops", "sort": "most", "by": ["memory"], "limit": 1}),
    ("laptop with the least memory", {"category": "laptops", "sort": "least", "by": ["memory"], "limit": 1}),
    ("second largest screen tablet", {"category": "tablets", "sort": "most", "by": ["screen"], "limit": 1, "rank": 2}),
    ("屏幕第二大的平板", {"category": "tablets", "sort": "most", "by": ["screen"], "limit": 1, "rank": 2}),
    ("the newest phone", {"category": "phones", "sort": "most", "by": ["released"], "limit": 1}),
    ("最新款手机", {"category": "phones", "sort": "most", "by": ["released"], "limit": 1}),
    ("worst rated laptop", {"category": "laptops", "sort": "least", "by": ["rating"], "limit": 1}),
    ("销量最低的玩具", {"category": "toys", "sort": "least", "by": ["sales"], "limit": 1}),
    ("the book with the most pages", {"category": "books", "sort": "most", "by": ["pages"], "limit": 1}),
    ("noise cancelling headphones", {"category": "headphones", "terms": ["noise", "cancelling"]}),
    ("phones under $300", {"category": "phones", "max_price": 300.0, "currency": "$"}),
    ("phones under 300 USD", {"category": "phones", "max_price": 300.0, "currency": "USD"}),
    ("300美元以下的手机", {"category": "phones", "max_price": 300.0, "currency": "USD"}),
    (
        "laptops between €500 and €900",
        {"category": "laptops", "min_price": 500.0, "max_price": 900.0, "currency": "EUR"},
    ),
    ("200英镑左右的耳机", {"category": "headphones", "min_price": 160.0, "max_price": 240.0, "currency": "GBP"}),
]

FOLLOWING: list[tuple[str, dict[str, Any]]] = [
    ("the best value among them", {"sort": "value", "limit": 1, "among": ITEMS}),
    ("推荐其中性价比最高的", {"sort": "value", "limit": 1, "among": ITEMS}),
    ("which of these phones is the cheapest?", {"sort": "price", "limit": 1, "among": ITEMS}),
    ("which one is the cheapest?", {"sort": "price", "limit": 1, "among": ITEMS}),
    ("最便宜的是哪个", {"sort": "price", "limit": 1, "among": ITEMS}),
    ("这些里面哪个销量最好", {"sort": "sales", "limit": 1, "among": ITEMS}),
    ("销量最高的呢", {"sort": "sales", "limit": 1, "among": ITEMS}),
    ("which one do you recommend?", {"sort": "value", "limit": 1, "among": ITEMS}),
    ("哪个更好", {"sort": "rating", "limit": 1, "among": ITEMS}),
    ("which of them are in stock?", {"in_stock": True, "among": ITEMS}),
    ("哪个有货", {"in_stock": True, "among": ITEMS}),
    ("the second cheapest among them", {"sort": "price", "limit": 1, "rank": 2, "among": ITEMS}),
    ("cheaper ones", {"category": "phones", "below": 599.0, "sort": "price"}),
    ("有没有更便宜的", {"category": "phones", "below": 599.0, "sort": "price"}),
    ("that's too expensive", {"category": "phones", "below": 599.0, "sort": "price"}),
    ("太贵了", {"category": "phones", "below": 599.0, "sort": "price"}),
    ("cheaper than the second one", {"category": "phones", "below": 699.0, "sort": "price"}),
    ("更贵一点的", {"category": "phones", "above": 999.0, "sort": "price"}),
    ("something better", {"category": "phones", "sort": "rating"}),
    ("what about red", {"category": "phones", "attributes": {"color": "red"}, "sort": "price"}),
    ("红色的呢", {"category": "phones", "attributes": {"color": "red"}, "sort": "price"}),
    ("only black ones", {"category": "phones", "attributes": {"color": "black"}, "sort": "price"}),
    ("and under 2000?", {"category": "phones", "max_price": 2000.0, "sort": "price"}),
    ("2000以下的呢", {"category": "phones", "max_price": 2000.0, "sort": "price"}),
    ("what about laptops?", {"category": "laptops", "sort": "price"}),
    ("换成耳机", {"category": "headphones", "sort": "price"}),
    ("那笔记本呢", {"category": "laptops", "sort": "price"}),
    ("what about Lumora?", {"category": "phones", "terms": ["lumora"], "sort": "price"}),
    ("换成光诺的", {"category": "phones", "terms": ["光诺"], "sort": "price"}),
    ("show me more", {"category": "phones", "sort": "price", "beyond": ITEMS}),
    ("还有别的吗", {"category": "phones", "sort": "price", "beyond": ITEMS}),
    ("换一批", {"category": "phones", "sort": "price", "beyond": ITEMS}),
    ("I want a tablet", {"category": "tablets"}),
    ("best rice cooker", {"terms": ["rice", "cooker"], "sort": "rating", "limit": 1}),
    ("which has the largest battery?", {"sort": "most", "by": ["battery"], "limit": 1, "among": ITEMS}),
    ("电池最大的是哪个", {"sort": "most", "by": ["battery"], "limit": 1, "among": ITEMS}),
    ("the lightest one", {"sort": "least", "by": ["weight"], "limit": 1, "among": ITEMS}),
    ("with a bigger screen", {"category": "phones", "sort": "most", "by": ["screen"]}),
    ("屏幕更大的呢", {"category": "phones", "sort": "most", "by": ["screen"]}),
    ("还有更便宜的吗", {"category": "phones", "below": 599.0, "sort": "price"}),
    ("最厚的是哪本", {"sort": "most", "by": ["thickness", "pages"], "limit": 1, "among": ITEMS}),
    ("哪本最厚", {"sort": "most", "by": ["thickness", "pages"], "limit": 1, "among": ITEMS}),
    ("which one has 内存 最大", {"sort": "most", "by": ["memory"], "limit": 1, "among": ITEMS}),
    ("anything heavier?", {"category": "phones", "sort": "most", "by": ["weight"]}),
    ("sort by rating", {"category": "phones", "sort": "rating"}),
    ("sort by price, highest first", {"category": "phones", "sort": "price_desc"}),
    ("by popularity", {"category": "phones", "sort": "sales"}),
    ("price low to high", {"category": "phones", "sort": "price"}),
    ("sort by weight", {"category": "phones", "sort": "least", "by": ["weight"]}),
    ("按评分排序", {"category": "phones", "sort": "rating"}),
    ("按价格从高到低排", {"category": "phones", "sort": "price_desc"}),
    ("按电池容量排序", {"category": "phones", "sort": "most", "by": ["battery"]}),
    ("sort them by price", {"sort": "price", "among": ITEMS}),
    ("order them by rating", {"sort": "rating", "among": ITEMS}),
    ("把这些按销量排序", {"sort": "sales", "among": ITEMS}),
    ("小米的", {"category": "phones", "terms": ["小米"], "sort": "price"}),
    ("光诺的", {"category": "phones", "terms": ["光诺"], "sort": "price"}),
    ("the Lumora ones", {"category": "phones", "terms": ["lumora"], "sort": "price"}),
    ("红的", {"category": "phones", "attributes": {"color": "red"}, "sort": "price"}),
    ("换成深蓝的", {"category": "phones", "terms": ["深"], "attributes": {"color": "blue"}, "sort": "price"}),
    ("不是红色的", {"category": "phones", "without": ["red"], "sort": "price"}),
    ("and cheaper than 500", {"category": "phones", "max_price": 500.0, "sort": "price"}),
    ("比第二个便宜的", {"category": "phones", "below": 699.0, "sort": "price"}),
    ("比第二个贵的", {"category": "phones", "above": 699.0, "sort": "price"}),
    ("the two cheapest", {"category": "phones", "limit": 2, "sort": "price"}),
]

ABOUT_ONE: list[tuple[str, Talk, dict[str, Any]]] = [
    ("the second one", SHOWN, {"places": [2]}),
    ("第二个怎么样", SHOWN, {"places": [2]}),
    ("number 3", SHOWN, {"places": [3]}),
    ("the last one", SHOWN, {"places": [-1]}),
    ("倒数第二个", SHOWN, {"places": [-2]}),
    ("最后一个", SHOWN, {"places": [-1]}),
    ("the first and the third", SHOWN, {"places": [1, 3]}),
    ("compare the first two", SHOWN, {"places": [1, 2]}),
    ("对比一下第一个和第三个", SHOWN, {"places": [1, 3]}),
    ("第二个的内存多大", SHOWN, {"places": [2], "about": "memory"}),
    ("compare them", SHOWN, {"ids": ["A", "B", "C", "D", "E"]}),
    ("compare the top two", SHOWN, {"places": [1, 2]}),
    ("compare top 2", SHOWN, {"places": [1, 2]}),
    ("compare 2 and 4", SHOWN, {"places": [2, 4]}),
    ("对比2和4", SHOWN, {"places": [2, 4]}),
    ("compare it with the second one", FOCUSED, {"ids": ["C"], "places": [2]}),
    ("把它和第二个对比一下", FOCUSED, {"ids": ["C"], "places": [2]}),
    ("compare it with Lumora S5", FOCUSED, {"ids": ["C"], "names": ["lumora s5"]}),
    ("how much is it?", FOCUSED, {"ids": ["C"], "about": "price"}),
    ("它多少钱", FOCUSED, {"ids": ["C"], "about": "price"}),
    ("is it waterproof?", FOCUSED, {"ids": ["C"], "about": "waterproof"}),
    ("这个有现货吗", FOCUSED, {"ids": ["C"], "about": "stock"}),
    ("how much is the Lumora S5", NOTHING, {"names": ["lumora s5"], "about": "price"}),
    ("光诺S5多少钱", NOTHING, {"names": ["光诺 s5"], "about": "price"}),
    ("compare Lumora S5 and Vantik V20", NOTHING, {"names": ["lumora s5", "vantik v20"]}),
    ("光诺S5和万擎V20有什么区别", NOTHING, {"names": ["光诺 s5", "万擎 v20"]}),
    ("第二个怎么样", NOTHING, {"places": [2]}),
    ("第十一个怎么样", SHOWN, {"places": [11]}),
    ("the twelfth one", SHOWN, {"places": [12]}),
    ("buy it", FOCUSED, {"ids": ["C"], "buy": True}),
    ("order the second one", SHOWN, {"places": [2], "buy": True}),
    ("把第一个加入购物车", SHOWN, {"places": [1], "buy": True}),
]

ABOUT_ORDERS: list[tuple[str, dict[str, Any]]] = [
    ("my order status", {}),
    ("What is the status of my order?", {}),
    ("where is my package?", {}),
    ("我的订单状态如何？", {}),
    ("我的订单到哪了", {}),
    ("什么时候发货", {}),
    ("订单GD202611124742到哪了", {"order": "GD202611124742"}),
    ("gd202611124742", {"order": "GD202611124742"}),
    ("my phone arrived broken", {"complaint": True, "bought": "phone"}),
    ("我要投诉", {"complaint": True}),
    ("我要退货", {"complaint": True}),
    ("cancel my order", {"change": "cancel"}),
    ("I want to cancel order GD202611124742", {"order": "GD202611124742", "change": "cancel"}),
    ("取消订单", {"change": "cancel"}),
    ("change the delivery address", {"change": "change"}),
    ("帮我改一下收货地址", {"change": "change"}),
]

AFTER_ORDERS: list[tuple[str, Talk, dict[str, Any]]] = [
    ("the first one", ORDERED, {"places": [1]}),
    ("第一个", ORDERED, {"places": [1]}),
    ("the last one", ORDERED, {"places": [-1]}),
    ("the latest one", ORDERED, {"places": [1]}),
    ("取消第二个", ORDERED, {"places": [2], "change": "cancel"}),
    ("cancel it", ORDERED, {"change": "cancel"}),
    ("cancel it", ONE_ORDER, {"places": [2], "change": "cancel"}),
    ("取消它", ONE_ORDER, {"places": [2], "change": "cancel"}),
    ("has it shipped?", ONE_ORDER, {"places": [2]}),
    ("has it shipped?", ORDERED, {}),
    ("什么时候到", ONE_ORDER, {"places": [2]}),
    ("我的订单", ONE_ORDER, {}),
    ("the first one is broken", ORDERED, {"places": [1], "complaint": True}),
]

COURTESIES: list[tuple[str, dict[str, Any]]] = [
    ("hello", {"occasion": "hello"}),
    ("Hi there!", {"occasion": "hello"}),
    ("good morning", {"occasion": "hello"}),
    ("你好", {"occasion": "hello"}),
    ("您好，在吗？", {"occasion": "hello"}),
    ("thanks!", {"occasion": "thanks"}),
    ("ok, thank you very much", {"occasion": "thanks"}),
    ("谢谢", {"occasion": "thanks"}),
    ("bye", {"occasion": "bye"}),
    ("再见", {"occasion": "bye"}),
    ("who are you?", {}),
    ("what can you do for me?", {}),
    ("你是谁", {}),
    ("你能做什么？", {}),
]

NOT_FOR_THE_SHOP = [
    "",
    "hello, my name is Ann",
    "what is my name?",
    "what's the weather like today?",
    "今天天气怎么样",
    "what did I ask first?",
    "can you summarise what we said?",
    "😀",
    "?!",
]


@pytest.mark.parametrize(("question", "intent"), ALONE, ids=[question for question, _ in ALONE])
def test_a_question_becomes_a_query(question: str, intent: dict[str, Any]) -> None:
    assert asked(question) == intent


@pytest.mark.parametrize(("question", "intent"), FOLLOWING, ids=[question for question, _ in FOLLOWING])
def test_a_follow_up_is_read_on_top_of_what_was_shown(question: str, intent: dict[str, Any]) -> None:
    assert asked(question, SHOWN) == intent


@pytest.mark.parametrize(("question", "talk", "details"), ABOUT_ONE, ids=[question for question, *_ in ABOUT_ONE])
def test_a_question_about_particular_goods_names_them(question: str, talk: Talk, details: dict[str, Any]) -> None:
    assert isinstance(read(fold(question, MAX_READ), talk), Details)
    assert asked(question, talk) == details


@pytest.mark.parametrize(("question", "orders"), ABOUT_ORDERS, ids=[question for question, _ in ABOUT_ORDERS])
def test_a_question_about_orders_is_one(question: str, orders: dict[str, Any]) -> None:
    assert isinstance(read(fold(question, MAX_READ), SHOWN), OrderQuestion)
    assert asked(question, SHOWN) == orders


@pytest.mark.parametrize(("question", "talk", "orders"), AFTER_ORDERS, ids=[question for question, *_ in AFTER_ORDERS])
def test_after_orders_were_shown_one_points_at_orders(question: str, talk: Talk, orders: dict[str, Any]) -> None:
    """B16, A30: and not at the goods that were shown before them."""
    assert isinstance(read(fold(question, MAX_READ), talk), OrderQuestion)
    assert asked(question, talk) == orders


@pytest.mark.parametrize("question", ["cheap phones?", "有什么便宜的手机", "the cheapest laptop", "red shoes"])
def test_goods_can_be_asked_for_after_orders(question: str) -> None:
    assert isinstance(read(fold(question, MAX_READ), ONE_ORDER), QueryIntent)


@pytest.mark.parametrize(("question", "courtesy"), COURTESIES, ids=[question for question, _ in COURTESIES])
def test_a_greeting_is_one_whatever_was_shown(question: str, courtesy: dict[str, Any]) -> None:
    for talk in (NOTHING, SHOWN, FOCUSED, ORDERED):
        assert isinstance(read(folded_question(question), talk), Courtesy)
        assert asked(question, talk) == courtesy


@pytest.mark.parametrize("question", NOT_FOR_THE_SHOP)
def test_small_talk_asks_for_nothing(question: str) -> None:
    assert asked(question) is None
    assert asked(question, SHOWN) is None


def test_cheaper_is_measured_by_the_item_spoken_of() -> None:
    assert asked("cheaper ones", FOCUSED) == {"category": "phones", "below": 799.0, "sort": "price"}
    assert asked("有更便宜的吗", FOCUSED) == {"category": "phones", "below": 799.0, "sort": "price"}


def test_the_budget_moves_along_to_another_category() -> None:
    before = Talk(items=("A", "B"), prices=(1, 2), intent=QueryIntent(category="phones", max_price=2000))

    assert asked("what about tablets?", before) == {"category": "tablets", "max_price": 2000.0}
    assert asked("I want a tablet", before) == {"category": "tablets"}


def test_a_bound_by_what_was_shown_does_not_outlive_its_question() -> None:
    before = Talk(items=("A",), prices=(500,), intent=QueryIntent(category="phones", below=600, sort="price"))

    assert asked("what about red", before) == {"category": "phones", "attributes": {"color": "red"}, "sort": "price"}


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("2000", 2000),
        ("2,000", 2000),
        ("1.5k", 1500),
        ("3千", 3000),
        ("2万", 20000),
        ("two", 2),
        ("十五", 15),
        ("一百二十", 120),
        ("两千", 2000),
        ("两千五", 2500),
        ("三千零五", 3005),
        ("一万二", 12000),
    ],
)
def test_numbers_are_read_in_digits_and_words(text: str, amount: float) -> None:
    assert number(text) == amount


WORDS = """
cheap cheapest best value under over between and the second one among them red phone phones laptop it its compare not
more 2000 3,000 2k 4.5 stars 256gb 便宜 最 其中 第二 个 手机 的 呢 换成 以下 以上 到 千 万 两 订单 比较 不要 除了
有没有 ? ， ' " ( ) # %
"""
words = st.sampled_from(WORDS.split())


@given(
    st.one_of(
        st.text(max_size=80), st.lists(words, max_size=12).map(" ".join), st.lists(words, max_size=12).map("".join)
    )
)
def test_any_text_is_read_without_a_fault(text: str) -> None:
    for talk in (NOTHING, SHOWN, FOCUSED):
        read(fold(text, MAX_READ).strip(), talk)


@pytest.mark.parametrize("text", ["\ufdfa" * 400, "rated " * 400, " \n" * 1000 + "1" + " " * 1000])
def test_what_is_read_of_a_question_is_short_and_has_single_blanks(text: str) -> None:
    """One sign can fold to eighteen, and blanks without end are shared out between the patterns' own."""
    assert len(folded_question(text)) <= MAX_READ
    assert "  " not in folded_question(text)
    assert "\n" not in folded_question(text)


def test_blanks_within_an_amount_do_not_matter() -> None:
    wanted = read(folded_question(f"phones rated{' ' * 100}above{' ' * 100}4 , under \n 2000{' ' * 50}yuan"), NOTHING)

    assert isinstance(wanted, QueryIntent)
    assert (wanted.min_rating, wanted.max_price) == (4, 2000)
