"""Who changes their mind is followed: the new wish replaces the old one, and what is set free is free (B8, B16)."""

from __future__ import annotations

from typing import Final

import pytest

from tenuto.assistants.goods.shop import shipped_items
from tests.unit.shop import asked

ITEMS: Final = {item.id: item for item in shipped_items()}


@pytest.mark.parametrize(
    ("questions", "gone"),
    [
        (("手机", "黑色的", "不要黑色的了"), "black"),
        (("phones", "red ones", "not red after all"), "red"),
        (("red or blue phones", "no, not blue"), "blue"),
        (("降噪耳机", "算了，不要降噪"), "降噪"),
        (("wireless headphones", "not wireless"), "wireless"),
        (("phones", "Lumora", "anything but Lumora"), "lumora"),
        (("光诺的手机", "不要光诺了"), "lumora"),
    ],
)
async def test_not_so_after_all_takes_the_wish_back(questions: tuple[str, ...], gone: str) -> None:
    shop, _ = await asked(*questions)

    assert shop.outcome.output["near"] is None
    assert shop.ids
    for id_ in shop.ids:
        item = ITEMS[id_]
        assert gone not in f"{item.name} {item.name_zh} {item.tags} {item.attributes.get('color')}".lower()


@pytest.mark.parametrize(
    ("questions", "color"),
    [(("手机", "不要黑色", "还是黑色的吧"), "black"), (("phones, not red", "red ones please"), "red")],
)
async def test_and_a_no_is_taken_back_by_a_yes(questions: tuple[str, ...], color: str) -> None:
    shop, _ = await asked(*questions)

    assert {good["attributes"]["color"] for good in shop.outcome.data["goods"]} == {color}


@pytest.mark.parametrize(
    ("first", "question", "left"),
    [
        ("red phones under 1000", "any colour will do", {"category": "phones", "max_price": 1000}),
        (
            "red phones under 1000",
            "I don't care about the price",
            {"category": "phones", "attributes": {"color": "red"}},
        ),
        ("red phones under 1000", "regardless of the price", {"category": "phones", "attributes": {"color": "red"}}),
        ("phones not red", "the colour doesn't matter", {"category": "phones"}),
        ("Lumora phones", "whichever brand is fine", {"category": "phones"}),
        ("running shoes in size 45", "size doesn't matter", {"category": "shoes", "terms": ["running"]}),
        ("3000以下的红色手机", "什么颜色都行", {"category": "phones", "max_price": 3000}),
        ("3000以下的红色手机", "预算不限", {"category": "phones", "attributes": {"color": "red"}}),
        ("光诺手机", "不限品牌", {"category": "phones"}),
        ("评分4.5以上的耳机", "评分无所谓", {"category": "headphones"}),
    ],
)
async def test_what_does_not_matter_any_more_is_let_go(first: str, question: str, left: dict[str, object]) -> None:
    shop, _ = await asked(first, question)

    assert shop.outcome.output["query"] == left


@pytest.mark.parametrize(
    ("question", "said"),
    [("what colour is the first one?", "Its color: "), ("第一个是什么颜色", "颜色："), ("价格", "元")],
)
async def test_who_asks_for_a_colour_or_a_price_lets_nothing_go(question: str, said: str) -> None:
    shop, answer = await asked("phones under 1000", question)

    assert said in answer
    assert shop.tool == "goods_details"


@pytest.mark.parametrize(
    "question",
    ["never mind", "no thanks", "that's all, thanks", "forget it", "算了不买了", "不用了", "算了", "就这些，谢谢"],
)
async def test_who_wants_nothing_more_is_shown_nothing_more(question: str) -> None:
    shop, answer = await asked("phones", question)

    assert shop.tool == "shop_help"
    assert answer in (
        "All right. Whenever you are looking for something, just ask.",
        "好的。想找什么的时候，随时问我。",
    )


@pytest.mark.parametrize("question", ["算了不要黑色", "forget the red ones, show me blue ones"])
async def test_who_gives_up_one_thing_still_wants_the_rest(question: str) -> None:
    shop, _ = await asked("phones", question)

    assert shop.tool == "search_goods"


@pytest.mark.parametrize(
    ("questions", "terms"),
    [
        (("watches", "women's", "men's"), ["men"]),
        (("headphones", "wired", "wireless"), ["wireless"]),
        (("耳机", "有线的", "无线的"), ["无线"]),
        (("winter jacket in size L", "rain jacket"), ["rain", "jacket"]),
        (("dog leash", "cat tree"), ["cat", "tree"]),
        (("dog leash", "fish tank"), ["fish"]),
    ],
)
async def test_another_kind_takes_the_place_of_the_one_before(questions: tuple[str, ...], terms: list[str]) -> None:
    shop, _ = await asked(*questions)

    assert shop.outcome.output["query"]["terms"] == terms
    assert not shop.outcome.output["query"].get("amounts")


@pytest.mark.parametrize(
    ("questions", "kept"),
    [
        (("show me running shoes in size 44", "women's"), "Running"),
        (("电饭煲", "5升的"), "电饭煲"),
        (("tents", "pink ones"), "Tent"),
        (("mechanical keyboard", "pink ones"), "Keyboard"),
        (("帐篷", "粉色的"), "帐篷"),
        (("rice cooker", "5 l"), "Rice Cooker"),
    ],
)
async def test_what_goods_are_called_stays(questions: tuple[str, ...], kept: str) -> None:
    shop, _ = await asked(*questions)

    assert shop.ids
    assert all(kept in f"{ITEMS[id_].name} {ITEMS[id_].name_zh}" or "Racing" in ITEMS[id_].name for id_ in shop.ids)


@pytest.mark.parametrize("question", ["none of these", "都不喜欢", "something else"])
async def test_something_else_is_none_of_those_shown(question: str) -> None:
    shop, _ = await asked("laptops")
    shown = set(shop.ids)
    await shop.ask("are any of them red?")

    await shop.ask(question)

    assert shop.ids
    assert shown.isdisjoint(shop.ids)


@pytest.mark.parametrize("question", ["do you have other brands?", "还有别的牌子吗"])
async def test_other_brands_are_none_of_those_shown(question: str) -> None:
    shop, _ = await asked("phones")
    shown = {ITEMS[id_].brand for id_ in shop.ids}

    await shop.ask(question)

    assert shop.ids
    assert shown.isdisjoint(ITEMS[id_].brand for id_ in shop.ids)
