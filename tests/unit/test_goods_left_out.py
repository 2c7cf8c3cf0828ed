"""Whatever way a question says that something is not wanted, none of it is shown (B8)."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tenuto.assistants.goods.shop import shipped_items
from tests.unit.shop import Shop, asked

ITEMS: Final = {item.id: item for item in shipped_items()}


def named(good: dict[str, Any]) -> str:
    item = ITEMS[good["id"]]
    return f"{item.name} {item.name_zh} {' '.join(item.tags)} {item.attributes.get('color', '')}".lower()


@pytest.mark.parametrize(
    ("question", "category", "unwanted"),
    [
        ("all laptops but Corvane", "laptops", "corvane"),
        ("every tablet but the Inkpond", "tablets", "inkpond"),
        ("any colour of phone but red", "phones", "red"),
        ("headphones minus Aurelto", "headphones", "aurelto"),
        ("watches aside from Tessaro", "watches", "tessaro"),
        ("cameras barring Pikselle", "cameras", "pikselle"),
        ("laptops instead of Corvane", "laptops", "corvane"),
        ("exclude Vantik from the phones", "phones", "vantik"),
        ("shoes rather than Northfen", "shoes", "northfen"),
        ("a book that is not about history", "books", "history"),
        ("non-gaming laptops", "laptops", "gaming"),
        ("科文以外的笔记本", "laptops", "科文"),
        ("有没有黑色以外的手机", "phones", "black"),
        ("除奥乐外的耳机", "headphones", "奥乐"),
        ("除去特赛的手表", "watches", "特赛"),
        ("万擎之外的平板有哪些", "tablets", "万擎"),
        ("非降噪耳机", "headphones", "降噪"),
    ],
)
async def test_what_is_not_wanted_is_not_shown(question: str, category: str, unwanted: str) -> None:
    shop, _ = await asked(question)

    goods = shop.outcome.data["goods"]
    assert shop.outcome.output["near"] is None
    assert goods
    assert all(good["category"] == category and unwanted not in named(good) for good in goods)


async def test_of_two_that_are_named_neither_is_shown() -> None:
    shop, _ = await asked("光诺和万擎以外的手机")

    assert shop.outcome.output["found"] == sum(
        item.category == "phones" and item.brand not in ("Lumora", "Vantik") for item in ITEMS.values()
    )


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("any phone but with 256 GB", {"category": "phones", "terms": ["256gb"]}),
        ("anything cheap but in red", {"sort": "price", "attributes": {"color": "red"}}),
        ("non-stick pan", {"terms": ["non-stick", "pan"]}),
        ("户外用品", {"category": "sports"}),
        ("除湿机", {"terms": ["除湿机"]}),
    ],
)
def test_what_only_sounds_like_a_negation_is_none(question: str, wanted: dict[str, Any]) -> None:
    [(_, arguments)] = Shop().wanted(question)

    assert arguments == wanted


@pytest.mark.parametrize(
    ("question", "attribute", "least", "most"),
    [
        ("food not rated below 4.6", "rating", 4.6, 5),
        ("phones not rated over 4", "rating", 0, 4),
        ("headphones, none rated under 4.4", "rating", 4.4, 5),
        ("不要评分低于4.5的耳机", "rating", 4.5, 5),
        ("phones rated above 4.5", "rating", 4.5, 5),
        ("laptops not weighing more than 1.3 kg", "weight", 0, 1.3),
        ("laptops not with a screen under 15 inch", "screen", 15, 99),
        ("laptops that do not weigh less than 2 kg", "weight", 2, 99),
    ],
)
async def test_a_not_before_what_is_measured_turns_the_comparison_round(
    question: str, attribute: str, least: float, most: float
) -> None:
    shop, _ = await asked(question)

    noted = [
        good["rating"] if attribute == "rating" else good["attributes"][attribute]
        for good in shop.outcome.data["goods"]
    ]
    assert noted
    assert all(least <= float(str(amount).split()[0]) <= most for amount in noted)


@pytest.mark.parametrize("question", ["watches, not a smartwatch", "不要智能手表的手表", "非智能手表"])
async def test_no_smartwatch_is_still_a_watch(question: str) -> None:
    shop, answer = await asked("noise-cancelling headphones", question)

    assert {good["category"] for good in shop.outcome.data["goods"]} == {"watches"}
    assert all("smart" not in ITEMS[id_].name.lower() for id_ in shop.ids)
    assert ("watches" in answer) != ("手表" in answer)


async def test_what_is_not_wanted_is_let_go_last() -> None:
    """Nothing waterproof is left without that brand: other headphones are nearer than what was left out."""
    shop, answer = await asked("waterproof headphones not from Humbee")

    assert all(good["brand"] != "Humbee" for good in shop.outcome.data["goods"])
    assert "there is nothing for “waterproof” that is not “Humbee”" in answer
