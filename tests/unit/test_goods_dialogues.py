"""Conversations with the shop at the level of its tools, in both languages (B16)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenuto.assistants.goods import Item, goods_assistant, replace_catalogue
from tenuto.stores.memory import MemoryStore
from tests.unit.shop import SOMEBODY, Shop


async def test_cheap_phones_then_the_best_value_then_the_second_one() -> None:
    """B16 in English."""
    shop = Shop()

    cheap = await shop.ask("cheap phones?")
    listed = shop.outcome.data["goods"]
    best = await shop.ask("the best value among them")
    [winner] = shop.outcome.data["goods"]
    second = await shop.ask("the second one")

    prices = [good["price"] for good in listed]
    assert len(listed) == 5
    assert all(good["category"] == "phones" and good["currency"] == "CNY" for good in listed)
    assert prices == sorted(prices)
    assert f"1. {listed[0]['name']}" in cheap
    assert winner["id"] in [good["id"] for good in listed]
    assert winner["name"] in best
    assert "on average" in best
    assert second.startswith(listed[1]["name"])
    assert shop.tool == "goods_details"


async def test_the_same_conversation_in_chinese_finds_the_same_goods() -> None:
    """B16 as the documents word it."""
    shop, english = Shop(), Shop()

    for question, the_same in [
        ("有什么便宜的手机？", "cheap phones?"),
        ("推荐其中性价比最高的", "the best value among them"),
        ("第二个怎么样", "the second one"),
    ]:
        answer = await shop.ask(question)
        await english.ask(the_same)

        assert shop.ids == english.ids
        assert all(good["name"] in answer for good in shop.outcome.data["goods"])
        assert "元" in answer


async def test_a_conversation_can_be_refined_step_by_step() -> None:
    shop = Shop()

    await shop.ask("noise cancelling headphones")
    everything = shop.ids
    await shop.ask("and under 1000?")
    below = shop.ids
    await shop.ask("which one is the cheapest?")
    [cheapest] = shop.outcome.data["goods"]
    await shop.ask("how much is it?")

    assert set(below) < set(everything)
    assert cheapest["id"] in below
    assert shop.ids == [cheapest["id"]]


async def test_more_shows_others_until_there_are_none() -> None:
    shop = Shop()
    await shop.ask("cameras")
    seen = shop.ids

    await shop.ask("show me more")
    second = shop.ids
    await shop.ask("show me more")
    third = shop.ids
    last = await shop.ask("show me more")

    assert len(set(seen + second + third)) == len(seen + second + third) == 12
    assert "That was all" in last


async def test_nothing_cheaper_is_said_plainly_and_the_cheapest_offered() -> None:
    shop = Shop()
    await shop.ask("the cheapest laptop")
    [cheapest] = shop.outcome.data["goods"]

    answer = await shop.ask("有没有更便宜的")

    assert "没有找到" in answer
    assert shop.ids[0] == cheapest["id"]


async def test_what_the_shop_does_not_have_is_not_made_up() -> None:
    shop = Shop()

    english = await shop.ask("do you sell umbrellas?")
    assert shop.outcome.data["goods"] == []
    chinese = await shop.ask("有雨伞吗")

    assert shop.outcome.data["goods"] == []
    assert "nothing" in english
    assert "没有找到" in chinese


async def test_near_alternatives_come_when_nothing_fits() -> None:
    shop = Shop()

    answer = await shop.ask("laptops under 100")

    assert answer.startswith("I found no laptops up to ¥100")
    assert shop.outcome.output["near"] == "price"
    assert all(good["category"] == "laptops" for good in shop.outcome.data["goods"])


@pytest.mark.parametrize(
    "question", ["the best value among them", "其中性价比最高的", "the second one", "第二个怎么样"]
)
async def test_pointing_at_nothing_asks_back(question: str) -> None:
    shop = Shop()

    answer = await shop.ask(question)

    assert shop.outcome.output["nothing_shown_before"]
    assert answer.endswith(("What are you looking for?", "您想找什么？"))


async def test_two_goods_are_compared_by_name() -> None:
    shop = Shop()

    answer = await shop.ask("compare Lumora Watch 4 Lite and Qinghe Care")

    assert [good["brand"] for good in shop.outcome.data["goods"]] == ["Lumora", "Qinghe"]
    assert "best value for money" in answer


async def test_a_name_that_fits_several_goods_is_asked_back() -> None:
    shop = Shop()

    answer = await shop.ask("how much is the Lumora S5")
    await shop.ask("the first one")

    assert "Which one do you mean?" in answer
    assert len(shop.ids) == 1


async def test_a_place_that_the_list_does_not_have_is_asked_back() -> None:
    shop = Shop()
    await shop.ask("cheap phones?")

    assert await shop.ask("the ninth one") == "The list I showed you has 5. Which one do you mean?"
    assert "5 款" in await shop.ask("第九个怎么样")


async def test_a_question_about_one_thing_is_answered_first() -> None:
    shop = Shop()
    await shop.ask("the cheapest laptop")

    assert (await shop.ask("does it come in white?")).startswith("Its color: ")
    assert (await shop.ask("is it for kids?")).startswith("Yes")
    assert (await shop.ask("它防水吗")).startswith("资料里没有注明")
    assert (await shop.ask("how heavy is it?")).startswith("Its weight: ")


async def test_a_shop_that_is_asked_for_nothing_in_particular_shows_what_it_has() -> None:
    shop = Shop()

    assert "phones, laptops" in await shop.ask("what do you sell?")
    assert "手机、笔记本电脑" in await shop.ask("你们店有什么？")
    assert len(shop.ids) == 5


@pytest.mark.parametrize(
    "question",
    [
        "cheap phones?",
        "the second one",
        "my order status",
        "hello",
        "其中最便宜的",
        "我的订单",
        "compare them",
        "rice cooker",
    ],
)
def test_never_more_than_one_tool_finds_itself_wanted(question: str) -> None:
    shop = Shop()
    shop.state = {"items": ["PH101", "PH102"], "prices": [1.0, 2.0], "focus": None, "intent": {"category": "phones"}}

    assert len(shop.wanted(question)) == 1


@pytest.mark.parametrize(("question", "word"), [("buy it", "cannot take orders"), ("下单吧", "不能在这里下单")])
async def test_nothing_can_be_bought_here_and_that_is_said(question: str, word: str) -> None:
    shop = Shop()
    await shop.ask("the cheapest laptop")

    assert word in await shop.ask(question)


def wearable(id_: str, name: str, **attributes: str) -> Item:
    return Item(id=id_, name=name, category="rings", price=100, stock=1, attributes=attributes)


RINGS = [
    wearable("R1", "Ring One", battery="90 min", weight="3 g", released="2025-11"),
    wearable("R2", "Ring Two", battery="2 h", weight="0.004 kg", released="2026-03"),
    wearable("R3", "Ring Three", battery="40 mAh", weight="2.5 g", released="2026-02-14"),
    wearable("R4", "Ring Four"),
]


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("rings by the longest battery life, list them", ["R2", "R1"]),
        ("list the lightest rings", ["R3", "R1", "R2"]),
        ("the heaviest ring", ["R2"]),
        ("the newest ring", ["R2"]),
        ("the ring with the shortest battery", ["R1"]),
    ],
)
async def test_amounts_are_compared_in_their_units_and_only_where_they_are_noted(
    question: str, found: list[str]
) -> None:
    """Minutes with hours and grams with kilograms; what is in mAh, or not noted at all, stands aside."""
    store = MemoryStore()
    await replace_catalogue(store.state, SOMEBODY, RINGS)
    shop = Shop(goods_assistant(store.state))

    await shop.ask(question)

    assert shop.ids == found


@pytest.mark.parametrize(
    ("question", "word"),
    [("the newest phone", "does not say when phones came out"), ("最新的手机", "没有注明手机的上市时间")],
)
async def test_what_the_catalogue_does_not_note_decides_nothing(question: str, word: str) -> None:
    shop = Shop()

    answer = await shop.ask(question)

    assert word in answer
    assert shop.ids == []


@pytest.mark.parametrize(
    ("question", "word"),
    [("phones under $300", "CNY (¥) and I do not convert dollars"), ("300美元以下的手机", "不换算美元")],
)
async def test_another_currency_is_neither_converted_nor_taken_for_ours(question: str, word: str) -> None:
    shop = Shop()

    answer = await shop.ask(question)

    assert word in answer
    assert shop.outcome.output["query"].get("max_price") is None
    assert shop.outcome.output["found"] == 32


@pytest.mark.parametrize("question", ["rings under $150", "150美元以下的rings", "rings under 150"])
async def test_a_shop_s_own_currency_is_understood(question: str) -> None:
    store = MemoryStore()
    rings = [
        replace(ring, currency="USD", price=price) for ring, price in zip(RINGS, (100, 140, 160, 200), strict=True)
    ]
    await replace_catalogue(store.state, SOMEBODY, rings)
    shop = Shop(goods_assistant(store.state))

    answer = await shop.ask(question)

    assert shop.ids == ["R1", "R2"]
    assert "¥" not in answer
    assert "convert" not in answer


async def test_the_snack_that_sells_best_is_none_for_pets() -> None:
    shop = Shop()

    await shop.ask("销量最高的零食")
    snacks = shop.ids
    await shop.ask("销量最高的宠物零食")

    assert (snacks, shop.ids) == (["FD108"], ["PT106"])
