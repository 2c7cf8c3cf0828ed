"""What a follow-up means: the set of a superlative, goods compared or put in order, another topic (B16)."""

from __future__ import annotations

import pytest

from tenuto.assistants.goods.intent import QueryIntent, Talk
from tenuto.assistants.goods.reading import folded_question, read
from tenuto.assistants.goods.shop.shelf import one_slip
from tests.unit.shop import Shop


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        ("What's the most expensive laptop?", "and the lightest?", "of 18 laptops is Stratop Fly 13"),
        ("What's the most expensive laptop?", "which of them has the least memory?", "of 18 laptops is Qinghe Class"),
        ("最贵的笔记本", "最轻的呢", "18 款笔记本电脑中重量最轻的是思拓 飞 13"),
        ("最便宜的手机", "其中内存最大的是哪个", "32 款手机中内存最大的是"),
    ],
)
async def test_after_a_superlative_the_next_one_is_taken_from_the_same_set(first: str, then: str, said: str) -> None:
    """One was named; the others that came after it were never seen."""
    shop = Shop()

    await shop.ask(first)
    answer = await shop.ask(then)

    assert said in answer
    assert "among" not in shop.outcome.output["query"]


async def test_after_a_superlative_more_shows_all_but_the_one_that_was_named() -> None:
    shop = Shop()
    await shop.ask("the most expensive laptop")
    [named] = shop.ids

    await shop.ask("show me more")

    assert shop.outcome.output["found"] == 17
    assert named not in shop.ids


async def test_a_superlative_among_goods_that_were_listed_stays_among_them() -> None:
    shop = Shop()
    await shop.ask("cheap phones?")
    listed = shop.ids

    await shop.ask("the best value among them")
    answer = await shop.ask("and the most expensive?")

    assert "of these 5" in answer
    assert shop.ids[0] in listed


async def test_goods_shown_are_put_in_another_order() -> None:
    shop = Shop()
    await shop.ask("cheap phones?")
    listed = shop.ids

    answer = await shop.ask("sort them by rating")
    ratings = [good["rating"] for good in shop.outcome.data["goods"]]

    assert sorted(shop.ids) == sorted(listed)
    assert ratings == sorted(ratings, reverse=True)
    assert "best rated first" in answer


async def test_the_whole_query_is_put_in_another_order() -> None:
    shop = Shop()
    await shop.ask("phones")

    answer = await shop.ask("按价格从高到低排序")

    assert answer.startswith("找到 32 款手机，价格从高到低")


@pytest.mark.parametrize("question", ["compare the top two", "compare top 2", "compare the first two", "对比前两个"])
async def test_two_of_a_list_are_compared_and_no_more(question: str) -> None:
    shop = Shop()
    await shop.ask("cheap phones?")
    listed = shop.ids

    await shop.ask(question)

    assert shop.ids == listed[:2]


async def test_the_one_spoken_of_is_compared_with_another_of_the_list() -> None:
    shop = Shop()
    await shop.ask("cheap phones?")
    listed = shop.ids
    await shop.ask("the third one")

    await shop.ask("compare it with the second one")

    assert shop.ids == [listed[2], listed[1]]


async def test_a_brand_is_no_colour_and_one_that_is_not_sold_is_said() -> None:
    shop = Shop()
    await shop.ask("手机")

    unsold = await shop.ask("小米的")
    await shop.ask("光诺的")

    assert "没有找到和“小米”有关的商品" in unsold
    assert {good["brand"] for good in shop.outcome.data["goods"]} == {"光诺"}
    assert not shop.outcome.output["query"].get("attributes")


@pytest.mark.parametrize("question", ["3米的数据线", "美白的面霜", "高蛋白的猫粮", "大米的"])
def test_a_colour_inside_a_word_is_none(question: str) -> None:
    wanted = read(folded_question(question), Talk())

    assert isinstance(wanted, QueryIntent)
    assert wanted.attributes == {}


async def test_a_colour_does_not_stick_to_another_topic() -> None:
    shop = Shop()
    await shop.ask("red phones")

    answer = await shop.ask("what about a rice cooker?")
    await shop.ask("sort by price")

    assert answer.startswith("I found 3 goods for “rice cooker”")
    assert shop.outcome.output["found"] == 3
    assert not shop.outcome.output["query"].get("attributes")


async def test_neither_does_what_was_not_wanted() -> None:
    shop = Shop()
    await shop.ask("耳机 不要白色的")

    await shop.ask("那有没有鼠标")

    assert [good["name"] for good in shop.outcome.data["goods"]] == ["合拍 静音无线鼠标"]


@pytest.mark.parametrize(
    ("question", "category", "found"),
    [("labtop under 5000", "laptops", 8), ("wireles headphones", "headphones", 12)],
)
async def test_a_slip_of_the_pen_is_understood_and_shown_as_understood(
    question: str, category: str, found: int
) -> None:
    shop = Shop()

    answer = await shop.ask(question)

    assert shop.outcome.output["query"]["category"] == category
    assert shop.outcome.output["found"] == found
    assert "laptops" in answer or "“wireless”" in answer


@pytest.mark.parametrize(
    ("word", "other", "near"),
    [
        ("labtop", "laptop", True),
        ("wireles", "wireless", True),
        ("keyborad", "keyboard", True),
        ("laptopp", "laptop", True),
        ("laptop", "laptop", False),
        ("lamp", "laptop", False),
        ("umbrella", "camera", False),
    ],
)
def test_one_slip_is_one_letter(word: str, other: str, near: bool) -> None:
    assert one_slip(word, other) is near
    assert one_slip(other, word) is near


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("hello", ("Hello!", "phones", "my order status")),
        ("你好", ("您好！", "手机", "我的订单")),
        ("who are you?", ("assistant of this shop", "phones under 2000")),
        ("谢谢", ("不客气",)),
        ("thanks", ("You're welcome",)),
    ],
)
async def test_a_greeting_is_answered_in_role_and_says_what_can_be_asked(question: str, words: tuple[str, ...]) -> None:
    shop = Shop()

    answer = await shop.ask(question)

    assert shop.tool == "shop_help"
    assert all(word in answer for word in words)
    assert "offline" not in answer
    assert "离线" not in answer


async def test_a_word_of_thanks_leaves_what_was_shown_to_point_at() -> None:
    shop = Shop()
    await shop.ask("cheap phones?")
    listed = shop.ids

    await shop.ask("thanks!")
    await shop.ask("the second one")

    assert shop.ids == listed[1:2]
