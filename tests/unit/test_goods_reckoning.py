"""Nothing is reckoned out, what is claimed of two is held against the catalogue, what is sold out counted (B8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import pytest

from tenuto.assistants.goods.shop import shipped_items
from tests.unit.shop import asked

ITEMS: Final = {item.id: item for item in shipped_items()}
NO_SUMS: Final = ("I reckon nothing out", "我不做计算")


@pytest.mark.parametrize(
    ("questions", "count"),
    [
        (("the second one", "how much is it together with the first one?"), 2),
        (("the second one", "what would 3 of them cost?"), 5),
        (("the first one", "how much for two?"), 1),
        (("the first one", "two boxes, what's the total price?"), 1),
        (("the first one", "how much is it per 100 g?"), 1),
        (("the first and the third, how much in total?",), 2),
        (("how much cheaper is the first than the second?",), 2),
        (("the first one", "how many can I buy for 5000?"), 1),
        (("第一个", "买三个多少钱"), 1),
        (("第一个和第二个一共多少钱",), 2),
        (("第一个", "每100克多少钱"), 1),
        (("第一个比第二个便宜多少",), 2),
        (("第一个", "第二个", "两个一起多少钱"), 2),
    ],
)
async def test_prices_are_told_one_by_one_and_not_reckoned_with(questions: tuple[str, ...], count: int) -> None:
    shop, answer = await asked("tablets under 1600", *questions)

    goods = shop.outcome.data["goods"]
    assert answer.splitlines()[-1].startswith(NO_SUMS)
    assert len(goods) == count
    assert all(f"{good['price']:,.0f}" in answer for good in goods)


@pytest.mark.parametrize(
    "question",
    ["how much is it?", "how much does the second one cost?", "它多少钱", "一个多少钱", "what does one cost?"],
)
async def test_the_price_of_one_is_just_told(question: str) -> None:
    _, answer = await asked("tablets under 1600", "the second one", question)

    assert not any(said in answer for said in NO_SUMS)


def held(answer: str) -> str:
    return answer.splitlines()[0]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("is the first one cheaper than the second?", "No:"),
        ("is the second cheaper than the first?", "Yes:"),
        ("is the third one more expensive than the first one?", "No:"),
        ("is the first bigger than the second?", "Yes:"),
        ("does the first one have more power than the third?", "Yes:"),
        ("is the second heavier than the first?", "Our catalogue does not note that of both, so I cannot tell:"),
        ("第一个比第二个贵吗", "是的："),
        ("第三个比第一个贵吗", "不是："),
        ("第三个的功率比第一个大吗", "不是："),
        ("第一个比第二个重吗", "商品目录里没有都注明这一项，所以没法判断："),
    ],
)
async def test_whether_one_is_more_than_another_is_answered_from_the_catalogue(question: str, said: str) -> None:
    """¥599, 4 L and 1200 W; ¥289 and 3 L; ¥147, 1.2 L and 300 W; and the list stays what it was."""
    shop, answer = await asked("rice cooker", question)
    await shop.ask("第三个")

    assert held(answer) == said
    assert [ITEMS[id_].name for id_ in shop.ids] == ["Homeri Mini Rice Cooker, 1.2 L"]


@pytest.mark.parametrize(
    ("question", "said"), [("is it cheaper than the first?", "Yes:"), ("它比第一个贵吗", "不是：")]
)
async def test_it_is_the_one_spoken_of(question: str, said: str) -> None:
    _, answer = await asked("rice cooker", "the second one", question)

    assert held(answer) == said


async def test_who_is_even_is_neither_more_nor_less() -> None:
    _, answer = await asked("phones", "第二个的电池比第一个大吗")

    assert held(answer) == "不是，两者相同："


@pytest.mark.parametrize(
    "question", ["lighter than the second one", "比第二个轻的", "anything cheaper than the third?", "有没有比它便宜的"]
)
async def test_who_looks_for_cheaper_or_lighter_ones_still_searches(question: str) -> None:
    shop, _ = await asked("laptops", "the second one", question)

    assert shop.tool == "search_goods"


@pytest.mark.parametrize(
    "question", ["它和光诺 Lite 2 哪个好", "is it better than the Lumora Lite 2?", "it or the Lumora Lite 2?"]
)
async def test_it_is_compared_with_goods_of_some_name(question: str) -> None:
    shop, _ = await asked("phones", "the second one", question)

    assert {ITEMS[id_].name.partition(" Phone")[0] for id_ in shop.ids} == {"Orbelle One", "Lumora Lite 2"}


@pytest.mark.parametrize("question", ["which of the two is cheaper?", "两个哪个便宜"])
async def test_the_two_are_those_spoken_of_last(question: str) -> None:
    shop, answer = await asked("phones under 1000", "the first one", "the fifth one", question)

    assert [ITEMS[id_].price for id_ in shop.ids] == [899]
    assert "2" in answer


@pytest.mark.parametrize(
    "question",
    [
        "how many are sold out?",
        "which are sold out?",
        "which ones are out of stock?",
        "有几款缺货",
        "哪些卖完了",
        "没货的有哪些",
    ],
)
async def test_what_is_sold_out_is_found_and_counted(question: str) -> None:
    shop, _ = await asked("appliances", question)

    assert set(shop.ids) == {id_ for id_, item in ITEMS.items() if item.category == "appliances" and not item.stock}
    assert shop.outcome.output["near"] is None


async def test_where_nothing_is_sold_out_nothing_is_shown() -> None:
    shop, answer = await asked("Vantik phones", "which are sold out?")

    assert shop.ids == []
    assert answer == "I found no Vantik phones with nothing in stock."


@pytest.mark.parametrize(
    ("question", "said"),
    [("is it sold out?", "Yes, "), ("它卖完了吗", "有现货"), ("how many have been sold?", "have been sold")],
)
async def test_of_one_it_is_told_how_it_stands(question: str, said: str) -> None:
    _, answer = await asked("appliances", "the second one", question)

    assert said in answer


@pytest.mark.parametrize(
    "question", ["can I buy 3 of them?", "I'll take two", "can I get a dozen?", "能买三台吗", "要两个"]
)
async def test_who_wants_several_is_told_the_stock_and_that_nothing_is_sold_here(question: str) -> None:
    shop, answer = await asked("appliances", question)

    assert shop.tool == "goods_details"
    assert answer.splitlines()[-1].startswith(("I cannot take orders here", "我不能在这里下单"))


@pytest.mark.parametrize(
    ("questions", "category"),
    [
        (("what brands of phones do you sell?",), "phones"),
        (("how many brands of laptops are there?",), "laptops"),
        (("tablets", "which brands are there?"), "tablets"),
        (("手机有哪些牌子",), "phones"),
        (("有几个品牌的相机",), "cameras"),
        (("耳机", "有什么品牌"), "headphones"),
    ],
)
async def test_brands_are_listed_with_how_many_goods_they_have(questions: tuple[str, ...], category: str) -> None:
    shop, answer = await asked(*questions)

    counted: dict[str, int] = {}
    for item in ITEMS.values():
        if item.category == category:
            counted[item.brand] = counted.get(item.brand, 0) + 1
    listed = shop.outcome.output["brands"]
    assert sorted(brand["goods"] for brand in listed) == sorted(counted.values())
    assert str(len(counted)) in answer.splitlines()[0]
    assert shop.ids == []


async def test_the_best_rated_brand_comes_first() -> None:
    shop, _ = await asked("which brand of headphones has the best rating?")

    rated = [brand["rating"] for brand in shop.outcome.output["brands"]]
    assert rated == sorted(rated, reverse=True)


@pytest.mark.parametrize("question", ["what brand is it?", "第二个是什么牌子"])
async def test_the_brand_of_one_is_in_what_is_told_of_it(question: str) -> None:
    shop, _ = await asked("phones", "the second one", question)

    assert [ITEMS[id_].brand for id_ in shop.ids] == ["Orbelle"]


@pytest.mark.parametrize(
    ("question", "price"),
    [
        ("what's the cheapest thing in the shop?", min),
        ("the most expensive product you sell", max),
        ("what is your cheapest item?", min),
        ("全店最便宜的是什么", min),
        ("你们店里最贵的东西", max),
        ("所有商品里最便宜的", min),
    ],
)
async def test_what_is_asked_of_the_whole_shop_is_answered_from_all_of_it(
    question: str, price: Callable[[Iterable[float]], float]
) -> None:
    shop, _ = await asked("phones", question)

    assert ITEMS[shop.ids[0]].price == price(item.price for item in ITEMS.values())


@pytest.mark.parametrize("question", ["the cheapest one", "which is the cheapest?", "最便宜的是哪个"])
async def test_and_what_is_asked_of_those_shown_from_those(question: str) -> None:
    shop, _ = await asked("phones", question)

    assert ITEMS[shop.ids[0]].price == 999


@pytest.mark.parametrize(
    ("question", "count"),
    [
        ("the three cheapest snacks", 3),
        ("two best-rated kettles or blenders", 2),
        ("the four lightest laptops", 4),
        ("最便宜的三款手机", 3),
    ],
)
async def test_so_many_of_the_best_are_shown(question: str, count: int) -> None:
    shop, answer = await asked(question)

    assert len(shop.ids) == count
    assert "I know nothing of" not in answer


async def test_a_price_may_be_exact() -> None:
    shop, _ = await asked("I want to spend exactly 49")

    assert {ITEMS[id_].price for id_ in shop.ids} == {49}
