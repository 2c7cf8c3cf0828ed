"""Sixty questions as shoppers ask them, in both languages: each is held against the shipped catalogue itself (B8, B16).

What is right is told by a condition on the items, not by a list of ids: the answer's count must be that of the goods
that meet it, and all that is shown must meet it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

import pytest

from tenuto.assistants.goods import Item
from tenuto.assistants.goods.shop import shipped_items
from tests.unit.shop import Shop

ITEMS: Final = {item.id: item for item in shipped_items()}
Check: TypeAlias = Callable[[Shop, list[str]], bool]
Holds: TypeAlias = Callable[[Item], bool]


def amount(item: Item, name: str) -> float:
    """How much the item notes; less than nothing where it notes none."""
    found = re.match(r"[\d.]+", item.attributes.get(name, ""))
    return float(found[0]) if found else -1.0


def comes_in(item: Item, size: int) -> bool:
    low, _, high = item.attributes.get("size", "").partition("-")
    return low.isdecimal() and high.isdecimal() and int(low) <= size <= int(high)


def color(item: Item) -> str:
    return item.attributes.get("color", "")


def all_that(holds: Holds) -> Check:
    """All goods of the catalogue that meet it, and no others."""
    right = {id_ for id_, item in ITEMS.items() if holds(item)}

    def check(shop: Shop, before: list[str]) -> bool:
        output = shop.outcome.output
        return output["near"] is None and output["found"] == len(right) > 0 and set(shop.ids) <= right

    return check


def exactly(*ids: str) -> Check:
    return lambda shop, before: sorted(shop.ids) == sorted(ids)


def those(pick: Callable[[list[str]], list[str]]) -> Check:
    """These of the goods that were shown before."""
    return lambda shop, before: bool(shop.ids) and shop.ids == pick(before)


def orders(*ids: str) -> Check:
    return lambda shop, before: [order["id"] for order in shop.outcome.data["orders"]] == list(ids)


def no_goods(shop: Shop, before: list[str]) -> bool:
    return not shop.outcome.data.get("goods")


def none_of_them(shop: Shop, before: list[str]) -> bool:
    return shop.outcome.output["near"] == "among" and not set(shop.ids) & set(before)


def cheaper(ids: list[str]) -> list[str]:
    return sorted(ids, key=lambda id_: ITEMS[id_].price)[:1]


def phone(item: Item) -> bool:
    return item.category == "phones"


def running(item: Item) -> bool:
    return item.category == "shoes" and "running" in item.tags


def light(item: Item) -> bool:
    return item.category == "laptops" and "light" in item.tags and amount(item, "weight") <= 1.3


def red_or_blue(item: Item) -> bool:
    return phone(item) and color(item) in ("red", "blue")


def plain(item: Item) -> bool:
    return item.category == "headphones" and color(item) not in ("red", "white")


def for_age(age: int) -> Holds:
    return lambda item: item.category == "toys" and amount(item, "age") <= age


def gift_for_her(item: Item) -> bool:
    return "gift" in item.tags and "women" in item.tags and item.price <= 500


def strong(item: Item) -> bool:
    return phone(item) and amount(item, "memory") >= 12 and amount(item, "battery") >= 5000


def no_mystery(item: Item) -> bool:
    return "novel" in item.tags and "mystery" not in item.tags


def large(item: Item) -> bool:
    return phone(item) and amount(item, "memory") in (12, 16) and color(item) != "red"


def small_price(item: Item) -> bool:
    return item.category in ("phones", "tablets") and item.price <= 2000


def enough_memory(item: Item) -> bool:
    return phone(item) and item.price <= 2000 and amount(item, "memory") >= 8


ENGLISH: Final[list[list[tuple[str, Check]]]] = [
    [
        ("do you have any red or blue phones?", all_that(red_or_blue)),
        ("I don't want Lumora", all_that(lambda item: red_or_blue(item) and item.brand != "Lumora")),
        ("compare the first two", those(lambda before: before[:2])),
    ],
    [
        ("I need a laptop or a tablet for my kid", exactly("LT118", "TB108", "TB109", "TB114")),
        ("which of them is the cheapest?", exactly("TB108")),
    ],
    [
        ("running shoes in size 46", all_that(lambda item: running(item) and comes_in(item, 46))),
        ("are any of them waterproof?", none_of_them),
    ],
    [
        ("toys for a 5 year old", all_that(for_age(5))),
        ("just the ones under 100", all_that(lambda item: for_age(5)(item) and item.price <= 100)),
        ("tell me about the last one", those(lambda before: before[-1:])),
    ],
    [
        ("headphones, but neither red nor white", all_that(plain)),
        ("wireless, please", all_that(lambda item: plain(item) and "wireless" in item.tags)),
        (
            "which ones cost less than 600?",
            all_that(lambda item: plain(item) and "wireless" in item.tags and item.price < 600),
        ),
    ],
    [("a gift for my wife under 500", all_that(gift_for_her))],
    [
        ("where's my order GD202611114122?", orders("GD202611114122")),
        ("has order 4192 shipped yet?", orders("GD202611144192")),
    ],
    [
        ("phone with at least 12GB of RAM and a battery of 5000 mAh or more", all_that(strong)),
        ("which one has the biggest screen?", exactly("PH120")),
    ],
    [("what's the difference between the Aurelto Quiet 1 and the Quiet 2?", exactly("HP101", "HP102"))],
    [("tents lighter than 5 kg", exactly("SP107")), ("and a sleeping bag?", exactly("SP109"))],
    [("is there any cat food in stock?", all_that(lambda item: "cat food" in item.tags and item.stock > 0))],
    [("do you deliver to Berlin?", no_goods)],
    [("novels, but not mysteries", all_that(no_mystery)), ("which is the longest?", exactly("BK104"))],
    [
        ("hiking boots or rain boots in size 44 or larger", exactly("SH108", "SH116")),
        ("which one is cheaper?", exactly("SH116")),
        ("and the other one?", exactly("SH108")),
    ],
    [("show me the three best rated tablets", exactly("TB101", "TB111", "TB114"))],
    [
        (
            "any phones that aren't black and have 256 GB?",
            all_that(lambda item: phone(item) and color(item) != "black" and amount(item, "storage") == 256),
        )
    ],
]
CHINESE: Final[list[list[tuple[str, Check]]]] = [
    [
        ("有没有红色或者蓝色的手机", all_that(red_or_blue)),
        ("光诺的就算了", all_that(lambda item: red_or_blue(item) and item.brand != "Lumora")),
        ("前两个有什么区别", those(lambda before: before[:2])),
    ],
    [
        ("给6岁孩子买什么玩具好", all_that(for_age(6))),
        ("100块以内的呢", all_that(lambda item: for_age(6)(item) and item.price <= 100)),
        ("最后一个多少钱", those(lambda before: before[-1:])),
    ],
    [("2000元以内的手机或平板", all_that(small_price)), ("只看手机，要8G以上内存的", all_that(enough_memory))],
    [
        ("42码能穿的跑鞋", all_that(lambda item: running(item) and comes_in(item, 42))),
        ("里面有防水的吗", none_of_them),
    ],
    [("我要买手机，不要苹果也不要华为", all_that(phone))],
    [("送女朋友的礼物，500块以内", all_that(gift_for_her))],
    [("订单号GD202611114122到哪了", orders("GD202611114122")), ("尾号4192的那单发货了吗", orders("GD202611144192"))],
    [
        ("轻薄的笔记本，重量不超过1.3公斤", all_that(light)),
        ("哪个评分最高", exactly("LT101")),
        ("另外两个呢", exactly("LT102", "LT109")),
    ],
    [("猫粮和狗粮都有哪些", exactly("PT101", "PT102", "PT103", "PT104"))],
    [
        ("除了推理小说还有什么小说", all_that(no_mystery)),
        ("第二个和第三个哪个便宜", those(lambda before: cheaper(before[1:3]))),
    ],
    [("有没有2升以上的电饭煲", exactly("AP101", "AP102")), ("它们都是白色的吗", exactly("AP101", "AP102"))],
    [("冬天穿的外套", exactly("CL116"))],
    [("你们支持货到付款吗", no_goods)],
    [
        ("耳机，既不要红色也不要白色", all_that(plain)),
        ("有线的", all_that(lambda item: plain(item) and "wired" in item.tags)),
    ],
    [("销量最高的手机是哪个", exactly("PH111"))],
    [("评分4.5以上的面霜或者精华", exactly("BE101"))],
    [
        ("12G或者16G内存的手机，不要红色", all_that(large)),
        ("哪几个有货", all_that(lambda item: large(item) and item.stock > 0)),
    ],
]


@pytest.mark.parametrize("dialogue", ENGLISH + CHINESE, ids=[talk[0][0] for talk in ENGLISH + CHINESE])
async def test_a_shopper_is_understood(dialogue: list[tuple[str, Check]]) -> None:
    shop = Shop()
    before: list[str] = []

    for question, is_right in dialogue:
        answer = await shop.ask(question)

        assert is_right(shop, before), f"{question} -> {answer}"
        before = [good["id"] for good in shop.outcome.data.get("goods", [])]
