"""Conditions hold until they are changed, and the one that is let go is named (B8)."""

from __future__ import annotations

from typing import Final

import pytest

from tenuto.assistants.goods.shop import shipped_items
from tests.unit.shop import asked

ITEMS: Final = {item.id: item for item in shipped_items()}


@pytest.mark.parametrize(
    ("questions", "ids"),
    [
        (("冲锋衣 XL 码 不要红色", "不超过两百的童书"), {"BK116", "BK117", "BK118"}),
        (("推理小说", "科幻的呢"), {"BK104", "BK105"}),
        (("有苹果手机吗", "猫粮和狗粮各推荐一个"), {"PT101", "PT102", "PT103", "PT104"}),
    ],
)
async def test_another_wish_leaves_the_one_before_it(questions: tuple[str, ...], ids: set[str]) -> None:
    shop, _ = await asked(*questions)

    assert set(shop.ids) == ids


async def test_what_could_not_be_had_is_not_asked_for_again_and_the_rest_still_is() -> None:
    shop, answer = await asked("noise-cancelling headphones under 800", "do you have them in white?", "and over-ear?")

    assert shop.ids == ["HP102"]
    assert answer.startswith("I found one pair of headphones for “noise-cancelling over-ear” up to ¥800: ")


async def test_the_only_one_is_told_with_what_it_fits() -> None:
    _, answer = await asked("降噪耳机 300以内")

    assert answer.startswith("找到一款 300 元以内、“降噪”的耳机：")


@pytest.mark.parametrize(
    ("questions", "most", "sort"),
    [
        (("phones over 5000", "less expensive"), 4799, None),
        (("phones over 5000", "有没有便宜一点的"), 4799, None),
        (("三千左右的手机", "第一个怎么样", "比它便宜的有吗"), 2899, None),
        (("phones between 2000 and 3000", "anything cheaper but with more storage?"), 2098, "storage"),
    ],
)
async def test_cheaper_ones_begin_with_the_nearest(questions: tuple[str, ...], most: int, sort: str | None) -> None:
    shop, _ = await asked(*questions)

    goods = shop.outcome.data["goods"]
    assert all(good["price"] <= most for good in goods)
    assert all(good["attributes"]["storage"] == "256 GB" for good in goods) if sort else goods[0]["price"] == most


@pytest.mark.parametrize(
    ("question", "most"),
    [("便宜100块的有吗", 899), ("500 cheaper", 499), ("有没有便宜500元的", 499)],
)
async def test_cheaper_by_so_much_is_measured_by_what_was_shown(question: str, most: int) -> None:
    """The cheapest of those shown costs ¥999."""
    shop, _ = await asked("手机", question)

    assert shop.outcome.output["query"]["max_price"] == most


@pytest.mark.parametrize(
    ("question", "said", "kept"),
    [
        ("running shoes for men size 44 under 500, not white", "nothing for “men” as well", "running"),
        ("any jackets for women in M?", "nothing for “women” as well", "jacket"),
        ("waterproof white tents", "nothing in white, for “waterproof” as well", "tent"),
        ("waterproof tents under 100", "nothing for “waterproof” as well, at that price", "tent"),
        ("a sofa under 500", "nothing at that price", "sofa"),
        ("male running shoes size 50", "nothing with size 50", "running"),
        ("不要纯棉的T恤", "去掉“纯棉”之后就没有了", "T恤"),
    ],
)
async def test_what_was_let_go_is_named(question: str, said: str, kept: str) -> None:
    shop, answer = await asked(question)

    assert shop.outcome.output["near"] is not None
    assert said in answer
    assert all(
        kept in f"{good['name']} {good['tags']}".lower() or kept in good["name"] for good in shop.outcome.data["goods"]
    )


async def test_a_size_in_one_letter_is_held() -> None:
    shop, _ = await asked("any jackets in M?")

    assert shop.outcome.output["query"]["amounts"] == [{"of": ["size"], "sign": "=", "amount": "M"}]
    assert shop.outcome.output["near"] is None


async def test_an_ordinary_word_is_no_slip_and_what_goods_are_called_is_let_go_last() -> None:
    shop, answer = await asked("Something for my mother's birthday? She likes cooking, max 300")

    assert "lite" not in answer.lower()
    assert shop.ids == ["BK114"]
    assert "nothing for “mother birthday” as well" in answer
