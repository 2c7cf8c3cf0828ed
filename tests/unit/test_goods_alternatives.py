"""Either this or that, and neither: what a question leaves open and what it rules out, in both languages (B8)."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.assistants.goods.intent import QueryIntent, Talk
from tenuto.assistants.goods.reading import folded_question, read
from tests.unit.shop import Shop


@pytest.mark.parametrize(
    ("question", "found", "colors"),
    [
        ("red or blue phones", 13, {"red", "blue"}),
        ("phones, either red or gold", 8, {"red", "gold"}),
        ("红色或者蓝色的手机", 13, {"red", "blue"}),
        ("手机，红色、蓝色都可以", 13, {"red", "blue"}),
    ],
)
async def test_goods_of_either_colour_are_found_and_no_others(question: str, found: int, colors: set[str]) -> None:
    shop = Shop()

    await shop.ask(question)

    assert shop.outcome.output["found"] == found
    assert {good["attributes"]["color"] for good in shop.outcome.data["goods"]} <= colors
    assert all(good["category"] == "phones" for good in shop.outcome.data["goods"])


@pytest.mark.parametrize(
    ("question", "found", "said"),
    [
        ("phones or tablets under 1000", 9, "phones or tablets up to ¥1,000"),
        ("phones and tablets under 1000", 9, "phones or tablets up to ¥1,000"),
        ("1000元以内的手机或平板", 9, "1,000 元以内的手机或平板电脑"),
        ("phones with 8GB or 12GB", 24, "phones for “8gb” or “12gb”"),
        ("8G或者12G内存的手机", 24, "“8gb”或“12gb”的手机"),
        ("hiking boots or rain boots", 2, "“hiking boots” or “rain boots”"),
        ("登山靴或雨靴", 2, "“登山靴”或“雨靴”"),
        ("cat food and dog food", 4, "“cat food” or “dog food”"),
        ("猫粮和狗粮都有哪些", 4, "“猫粮”或“狗粮”"),
        ("wired or wireless headphones", 16, "headphones for “wired” or “wireless”"),
        ("有线或者无线的耳机", 10, "“有线”或“无线”的耳机"),
        ("Lumora or Orbelle phones", 15, "phones for “lumora” or “orbelle”"),
    ],
)
async def test_alternatives_of_any_kind_are_found_and_named(question: str, found: int, said: str) -> None:
    shop = Shop()

    answer = await shop.ask(question)

    assert shop.outcome.output["found"] == found
    assert said in answer


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("headphones, but neither red nor white", 8),
        ("headphones that are not red or white", 8),
        ("耳机，不要红色也不要白色", 8),
        ("不要红色和白色的耳机", 8),
        ("neither Lumora nor Vantik phones", 17),
        ("phones, no Lumora or Vantik", 17),
        ("phones that aren't from Lumora or Vantik", 17),
        ("不要光诺也不要万擎的手机", 17),
        ("除了光诺和万擎，还有哪些手机", 17),
        ("headphones without noise cancelling", 14),
        ("novels, but not mysteries", 3),
        ("除了推理小说还有什么小说", 3),
    ],
)
async def test_what_is_not_wanted_is_not_found(question: str, found: int) -> None:
    shop = Shop()

    answer = await shop.ask(question)

    assert shop.outcome.output["found"] == found
    assert "but not “" in answer or "不要“" in answer


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("phones, neither Xiaomi nor Huawei", "I know nothing of “xiaomi huawei”"),
        ("我要买手机，不要小米也不要华为", "没有和“小米 华为”有关的信息"),
        ("Huawei or Lumora phones", "I know nothing of “huawei”"),
        ("华为或者光诺的手机", "没有和“华为”有关的信息"),
        ("the cheapest quantum laptop", "I know nothing of “quantum”, so I left that out"),
        ("最便宜的量子笔记本", "没有和“量子”有关的信息"),
    ],
)
async def test_words_that_could_not_be_used_are_named(question: str, said: str) -> None:
    shop = Shop()

    answer = await shop.ask(question)

    assert said in answer
    assert shop.ids


@pytest.mark.parametrize(
    ("first", "then", "found"),
    [
        ("red or blue phones", "in green instead", 5),
        ("red or blue phones", "I don't want Lumora", 10),
        ("红色或者蓝色的手机", "光诺的就算了", 10),
        ("phones or tablets under 1000", "only the tablets", 3),
        ("1000元以内的手机或平板", "只看平板", 3),
        ("phones", "red or blue ones", 13),
        ("phones but not red", "red or blue ones", 13),
        ("headphones, neither red nor white", "wireless, please", 4),
        ("耳机，不要红色也不要白色", "有线的", 3),
    ],
)
async def test_a_follow_up_narrows_or_replaces_what_was_left_open(first: str, then: str, found: int) -> None:
    """B16: follow-ups are read over the query before them."""
    shop = Shop()
    await shop.ask(first)

    await shop.ask(then)

    assert shop.outcome.output["found"] == found


ALONE: list[tuple[str, dict[str, Any]]] = [
    ("wireless and waterproof headphones", {"terms": ("wireless", "waterproof")}),
    ("not too expensive phones", {"sort": "price", "without": ()}),
    ("why not red phones", {"attributes": {"color": "red"}, "without": ()}),
    ("phones with 8GB or more", {"either": ()}),
    ("phones around 2000 or so", {"either": ()}),
    ("不要太贵的手机", {"without": ()}),
    ("不要户外的手表", {"without": ("户外",)}),
    ("这个不要了，有没有手机", {"without": ()}),
    ("not red and waterproof phones", {"without": ("red",), "terms": ("waterproof",)}),
    ("还是红色的手机吧", {"either": (), "attributes": {"color": "red"}}),
]


@pytest.mark.parametrize(("question", "expected"), ALONE, ids=[question for question, _ in ALONE])
def test_an_and_or_a_not_reaches_no_further_than_it_is_said(question: str, expected: dict[str, Any]) -> None:
    wanted = read(folded_question(question), Talk())

    assert isinstance(wanted, QueryIntent)
    assert {name: getattr(wanted, name) for name in expected} == expected
