"""Whom goods suit: sizes they come in and ages they are for, compared as ranges, in both languages."""

from __future__ import annotations

import pytest

from tests.unit.shop import Shop

RUNNING = {"SH101", "SH102", "SH103", "SH104"}


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("running shoes in size 45", RUNNING),
        ("45码的跑鞋", RUNNING),
        ("running shoes in size 46", RUNNING - {"SH103"}),
        ("running shoes, size 46 or larger", RUNNING - {"SH103"}),
        ("46码以上的跑鞋", RUNNING - {"SH103"}),
        ("running shoes in size 37 or smaller", {"SH101", "SH103"}),
        ("37码以下的跑鞋", {"SH101", "SH103"}),
        ("shoes in size 47 to 48", {"SH105"}),
        ("36码到38码的跑鞋", RUNNING),
        ("jackets in XL", {"CL116", "CL117", "CL118"}),
        ("sweaters in size XXL", {"CL113"}),
        ("XXL码的毛衣", {"CL113"}),
    ],
)
async def test_goods_that_come_in_a_size_are_found_by_it(question: str, found: set[str]) -> None:
    shop = Shop()

    await shop.ask(question)

    assert set(shop.ids) == found
    assert shop.outcome.output["near"] is None


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("sweaters in size XXS", "I found no goods for “sweaters” with size XXS"),
        ("sweaters in size 4XL", "I found no goods for “sweaters” with size 4XL"),
        ("running shoes in size 50", "I found no shoes for “running” with size 50"),
        ("XXS码的毛衣", "尺寸 XXS"),
    ],
)
async def test_a_size_that_no_goods_come_in_is_said_so_beside_the_nearest(question: str, said: str) -> None:
    shop = Shop()

    assert said in await shop.ask(question)
    assert (shop.outcome.output["near"], shop.outcome.output["unnoted"]) == ("amounts", None)


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("toys for a 5 year old", 9),
        ("toys for my five-year-old son", 9),
        ("给5岁孩子买什么玩具好", 9),
        ("适合五岁的玩具", 9),
        ("toys for kids under 3", 5),
        ("3岁以下宝宝的玩具", 7),
        ("toys for an 18 month old baby", 3),
        ("toys for 3 to 6 year olds", 9),
        ("3到6岁的玩具", 9),
        ("toys for ages 8 and up", 6),
        ("8岁以上的玩具", 6),
    ],
)
async def test_goods_are_found_by_the_age_they_are_noted_for(question: str, found: int) -> None:
    shop = Shop()

    await shop.ask(question)

    assert shop.outcome.output["found"] == found
    assert all(good["category"] == "toys" for good in shop.outcome.data["goods"])


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("tablets for a 6 year old", "nothing of tablets that compares with “age 6”"),
        ("6岁孩子用的平板", "没有按这一条筛选"),
    ],
)
async def test_an_age_that_goods_do_not_note_is_said_to_be_left_out(question: str, said: str) -> None:
    shop = Shop()

    assert said in await shop.ask(question)
    assert shop.outcome.output["found"] == 14


@pytest.mark.parametrize("question", ["toys for my kid", "给孩子买玩具"])
async def test_toys_are_for_children_whether_that_is_noted_or_not(question: str) -> None:
    shop = Shop()

    await shop.ask(question)

    assert shop.outcome.output["found"] == 20


@pytest.mark.parametrize(
    ("first", "then"), [("toys for a 5 year old", "just the ones under 100"), ("5岁孩子的玩具", "100块以内的呢")]
)
async def test_a_follow_up_keeps_the_age(first: str, then: str) -> None:
    """B16."""
    shop = Shop()
    await shop.ask(first)

    await shop.ask(then)

    assert shop.outcome.output["found"] == 6
    assert all(good["price"] <= 100 for good in shop.outcome.data["goods"])


@pytest.mark.parametrize("question", ["any basketball of size 7?", "find me a 28 cm frying pan", "7号篮球"])
async def test_what_is_no_size_of_somebody_stays_a_word(question: str) -> None:
    shop = Shop()

    await shop.ask(question)

    assert not shop.outcome.output["query"].get("amounts")
    assert shop.ids[0] in ("SP114", "KI101")
