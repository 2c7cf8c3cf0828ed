"""Parts of a list that was shown: places, the others, one in another colour, something asked about all (B16)."""

from __future__ import annotations

import pytest

from tests.unit.shop import Shop


@pytest.mark.parametrize(
    ("question", "places"),
    [
        ("the first two", [0, 1]),
        ("前两个", [0, 1]),
        ("the last one", [4]),
        ("最后一个", [4]),
        ("the last two", [3, 4]),
        ("最后两个", [3, 4]),
        ("the second and the third", [1, 2]),
        ("第二个和第三个", [1, 2]),
    ],
)
async def test_a_part_of_the_list_is_told_of(question: str, places: list[int]) -> None:
    shop = Shop()
    await shop.ask("cheap phones?")
    listed = shop.ids

    await shop.ask(question)

    assert shop.ids == [listed[place] for place in places]


@pytest.mark.parametrize(
    ("choose", "other"),
    [
        ("which of the first two is cheaper?", "and the other one?"),
        ("前两个哪个便宜", "另一个呢"),
        ("which is more expensive, the first or the second?", "the other one"),
        ("compare the first two >> the cheaper one", "the other one"),
        ("比较前两个 >> 便宜的那个", "另一个呢"),
    ],
)
async def test_the_other_one_is_the_one_that_was_not_chosen(choose: str, other: str) -> None:
    shop = Shop()
    await shop.ask("phones")
    first, second = shop.ids[:2]
    prices = {good["id"]: good["price"] for good in shop.outcome.data["goods"]}

    for question in choose.split(" >> "):
        await shop.ask(question)
    [chosen] = shop.ids
    await shop.ask(other)

    dearer = "expensive" in choose
    assert chosen == sorted((first, second), key=lambda id_: prices[id_], reverse=dearer)[0]
    assert shop.ids == [second if chosen == first else first]


@pytest.mark.parametrize(("pick", "others"), [("the second one", "the other two"), ("第二个", "另外两个呢")])
async def test_the_others_are_all_that_were_not_spoken_of(pick: str, others: str) -> None:
    shop = Shop()
    await shop.ask("rice cookers")
    listed = shop.ids
    await shop.ask(pick)

    await shop.ask(others)

    assert shop.ids == [listed[0], listed[2]]


@pytest.mark.parametrize(("question", "said"), [("the other one", "has 5. Which one"), ("另一个呢", "您指的是哪一款")])
async def test_another_one_of_many_is_asked_back(question: str, said: str) -> None:
    shop = Shop()
    await shop.ask("cheap phones?")
    await shop.ask("the second one")

    assert said in await shop.ask(question)


@pytest.mark.parametrize(
    ("question", "said"), [("compare them", "1 more was left out"), ("比较一下", "还有 1 款没有列入")]
)
async def test_a_comparison_of_too_many_says_how_many_it_left_out(question: str, said: str) -> None:
    shop = Shop()
    await shop.ask("cheap phones?")
    listed = shop.ids

    answer = await shop.ask(question)

    assert shop.ids == listed[:4]
    assert said in answer


@pytest.mark.parametrize("question", ["the third one, but in red", "第三个，但是要红色的", "第三个换成红色的"])
async def test_one_of_the_list_in_another_colour_is_sought_among_its_own_kind(question: str) -> None:
    shop = Shop()
    await shop.ask("cheap phones?")
    third = shop.outcome.data["goods"][2]

    await shop.ask(question)

    assert third["brand"] == "Lumora"
    assert shop.ids == ["PH109"]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("the first one, but in red", "no red Qinghe phones: there is nothing of that brand"),
        ("第一个，但是要红色的", "这个品牌没有"),
    ],
)
async def test_where_its_brand_has_none_those_of_others_are_near(question: str, said: str) -> None:
    shop = Shop()
    await shop.ask("cheap phones?")

    answer = await shop.ask(question)

    assert said in answer
    assert {good["attributes"]["color"] for good in shop.outcome.data["goods"]} == {"red"}


async def test_something_like_it_but_cheaper_is_of_its_kind_and_cheaper() -> None:
    shop = Shop()
    await shop.ask("phones")
    second = shop.outcome.data["goods"][1]

    await shop.ask("something like the second one but cheaper")

    goods = shop.outcome.data["goods"]
    assert goods
    assert all(good["brand"] == second["brand"] and good["price"] < second["price"] for good in goods)


@pytest.mark.parametrize(
    "question", ["are they waterproof?", "which of them is waterproof?", "它们防水吗", "其中哪些防水"]
)
async def test_a_trait_of_what_was_shown_is_told_by_who_has_it(question: str) -> None:
    shop = Shop()
    await shop.ask("sports headphones")
    await shop.ask(question)

    assert sorted(shop.ids) == ["HP106", "HP107", "HP110"]


@pytest.mark.parametrize(
    ("question", "said"), [("are any of them waterproof?", "None among those"), ("里面有防水的吗", "里面没有符合的")]
)
async def test_where_none_of_them_has_it_that_is_said(question: str, said: str) -> None:
    shop = Shop()
    await shop.ask("cheap phones?")

    assert said in await shop.ask(question)


@pytest.mark.parametrize(("question", "said"), [("are they dustproof?", "I cannot tell"), ("它们防尘吗", "没法判断")])
async def test_what_the_catalogue_does_not_note_of_them_is_not_claimed(question: str, said: str) -> None:
    shop = Shop()
    await shop.ask("cheap phones?")

    answer = await shop.ask(question)

    assert said in answer
    assert shop.ids == []


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("how heavy are they?", "1. Stratop Fly 13 Laptop 16 GB + 512 GB SSD: 0.9 kg"),
        ("它们有多重", "1. 思拓 飞 13 笔记本电脑 16GB+512GB：0.9 公斤"),
        ("what do they cost?", "SSD: ¥5,599"),
        ("它们都是什么颜色", "16GB+512GB：黑色"),
    ],
)
async def test_one_thing_is_told_of_all_that_were_shown(question: str, said: str) -> None:
    shop = Shop()
    await shop.ask("list the lightest laptops")

    answer = await shop.ask(question)

    assert said in answer
    assert len(shop.ids) == 5
