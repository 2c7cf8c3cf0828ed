"""Amounts that are compared: read in both languages, held to the goods in their units, and never taken for a price."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.assistants.goods import Item, goods_assistant, replace_catalogue
from tenuto.assistants.goods.intent import Bound, QueryIntent, Sign, Talk, as_json, schema_of
from tenuto.assistants.goods.reading import folded_question, read
from tenuto.assistants.goods.searching import search
from tenuto.assistants.goods.shop import Shelf, shipped_items
from tenuto.stores.memory import MemoryStore
from tests.unit.shop import SOMEBODY, Shop

SHELF: Final = Shelf(shipped_items())


def bounds(question: str) -> list[str]:
    """The amounts a question holds goods to, as "memory > 8 GB"."""
    wanted = read(folded_question(question), Talk())
    assert isinstance(wanted, QueryIntent)
    assert wanted.min_price is None
    assert wanted.max_price is None
    return [f"{next(iter(bound.of), '?')} {bound.sign} {bound.amount}" for bound in wanted.amounts]


COMPARED: list[tuple[str, list[str]]] = [
    ("phones with more than 8GB memory", ["memory > 8 GB"]),
    ("内存大于8GB的手机", ["memory > 8 GB"]),
    ("有没有超过8GB内存的手机", ["memory > 8 GB"]),
    ("phone with battery over 5000mAh", ["battery > 5000 mAh"]),
    ("电池超过5000毫安的手机", ["battery > 5000 mAh"]),
    ("电池大于5000的手机", ["battery > 5000"]),
    ("laptop with at least 32GB memory", ["memory >= 32 GB"]),
    ("内存不少于32GB的笔记本", ["memory >= 32 GB"]),
    ("内存至少三十二GB的笔记本", ["memory >= 32 GB"]),
    ("32GB以上内存的笔记本", ["memory >= 32 GB"]),
    ("a laptop with 16GB+ memory", ["memory >= 16 GB"]),
    ("laptops, 16 gigabytes of RAM or more", ["memory >= 16 GB"]),
    ("16G内存以上的笔记本", ["memory >= 16 g"]),
    ("laptops with 16 gigs or more", ["memory >= 16 GB"]),
    ("phones with atleast 12gb ram", ["memory >= 12 GB"]),
    ("phones with at least 256GB", ["storage >= 256 GB"]),
    ("storage >= 1TB laptop", ["storage >= 1 TB"]),
    ("laptops lighter than 1.5 kg", ["weight < 1.5 kg"]),
    ("laptops under 1500g", ["weight < 1500 g"]),
    ("不到1.5公斤的笔记本", ["weight < 1.5 kg"]),
    ("比1.5公斤轻的笔记本", ["weight < 1.5 kg"]),
    ("三斤以下的笔记本", ["weight <= 3 斤"]),
    ("laptop that weighs less than 3 lbs", ["weight < 3 lb"]),
    ("13-15 inch laptops", ["screen >= 13 inch", "screen <= 15 inch"]),
    ("laptops with a screen between 13 and 15 inches", ["screen >= 13 inch", "screen <= 15 inch"]),
    ("屏幕在13到15寸之间的笔记本", ["screen >= 13 inch", "screen <= 15 inch"]),
    ("phones with memory between 8 and 16", ["memory >= 8", "memory <= 16"]),
    ("tablets bigger than 25cm", ["screen > 25 cm"]),
    ("books with more than 400 pages", ["pages > 400"]),
    ("四百页以上的书", ["pages >= 400"]),
    ("页数超过400的书", ["pages > 400"]),
    ("headphones that last over 24 hours", ["battery > 24 h"]),
    ("续航30小时以上的耳机", ["battery >= 30 h"]),
    ("a watch with a battery of at least two weeks", ["battery >= 2 weeks"]),
    ("功率1000瓦以上的家电", ["power >= 1000 W"]),
    ("appliances up to 1kW", ["power <= 1 kW"]),
    ("容量大于3升的电饭煲", ["capacity > 3 L"]),
    ("a cable longer than 1m", ["screen > 1 m"]),
    ("3米以上的数据线", ["screen >= 3 m"]),
    ("laptop around 1.5kg", ["weight >= 1.35 kg", "weight <= 1.65 kg"]),
    ("销量超过10000的手机", ["sales > 10000"]),
    ("phones rated below 4", ["rating < 4"]),
    ("phones with over 5000mAh and more than 8GB", ["battery > 5000 mAh", "memory > 8 GB"]),
    # Negations turn the sign round.
    ("a laptop no heavier than 1.2kg", ["weight <= 1.2 kg"]),
    ("laptops with no less than 16GB memory", ["memory >= 16 GB"]),
    ("nothing over 2kg, laptops", ["weight <= 2 kg"]),
    ("不要8GB以下内存的手机", ["memory > 8 GB"]),
    ("不超过1.5公斤的笔记本", ["weight <= 1.5 kg"]),
    ("笔记本是不是超过1.5公斤", ["weight > 1.5 kg"]),
    # Units that nothing here is noted in are amounts all the same.
    ("phone with a screen over 120Hz", ["? > 120 hz"]),
    ("5000万像素以上的手机", ["? >= 5000 万像素"]),
    # No comparisons: a plain amount is a word, and these are none at all.
    ("8GB+256GB phone", []),
    ("16 inch laptop", []),
    ("headphones delivered within 2 days", []),
]


@pytest.mark.parametrize(("question", "found"), COMPARED, ids=[question for question, _ in COMPARED])
def test_a_comparison_is_read_with_its_attribute_sign_and_unit(question: str, found: list[str]) -> None:
    """B8: as conditions of the query."""
    assert bounds(question) == found


@pytest.mark.parametrize(
    ("question", "intent"),
    [
        ("phones over 5000", {"category": "phones", "min_price": 5000.0}),
        ("phones with good battery under 2000", {"max_price": 2000.0, "sort": "most", "by": ["battery"]}),
        ("大电池 3000以下的手机", {"max_price": 3000.0, "sort": "most", "by": ["battery"]}),
        ("headphones rated above 4.5", {"min_rating": 4.5}),
        ("watches, nothing over 1000", {"max_price": 1000.0}),
        ("I don't want anything under 500, watches", {"min_price": 500.0}),
        ("不要2000以上的手机", {"max_price": 2000.0}),
        ("phones not too expensive", {"sort": "price"}),
        ("phones without 8GB", {"without": ["8gb"]}),
        ("不要8GB的手机", {"without": ["8gb"]}),
    ],
)
def test_prices_ratings_and_plain_amounts_are_no_bounds(question: str, intent: dict[str, Any]) -> None:
    wanted = read(folded_question(question), Talk())

    assert isinstance(wanted, QueryIntent)
    found = as_json(wanted)
    found.pop("category")
    intent.pop("category", None)
    assert found == intent


@pytest.mark.parametrize(
    ("english", "chinese", "name", "values"),
    [
        ("phones with more than 8GB memory", "内存大于8GB的手机", "memory", {"12 GB", "16 GB"}),
        ("phone with battery over 5000mAh", "电池超过5000mAh的手机", "battery", {"5500 mAh", "6000 mAh"}),
        ("laptop with at least 32GB memory", "内存至少32GB的笔记本", "memory", {"32 GB", "64 GB"}),
        ("laptops with over 900GB storage", "硬盘大于900GB的笔记本", "storage", {"1 TB", "2 TB"}),
        ("laptops under 1.2kg", "低于1.2公斤的笔记本", "weight", {"0.9 kg", "1.1 kg"}),
        ("phones smaller than 16.3 cm", "小于16.3厘米的手机", "screen", {"6.1 inch", "6.4 inch"}),
    ],
)
async def test_both_languages_find_the_goods_within_the_bound_and_show_the_amount(
    english: str, chinese: str, name: str, values: set[str]
) -> None:
    shop, other = Shop(), Shop()

    said = await shop.ask(english)
    await other.ask(chinese)
    await shop.call("search_goods", {**shop.outcome.output["query"], "limit": 20})

    assert {good["attributes"][name] for good in shop.outcome.data["goods"]} == values
    assert {good["attributes"][name] for good in other.outcome.data["goods"]} <= values
    assert other.outcome.output["found"] == len(shop.ids)
    assert any(f"{name} {value}" in said for value in values)


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("headphones with battery over 5000mAh", "compares with “battery over 5000 mAh”, so I left that out"),
        ("电池大于5000mAh的耳机", "没有注明耳机可以和“续航大于 5000 mAh”比较的数据"),
        ("phones with a screen over 120Hz", "compares with “over 120 hz”, so I left that out"),
        ("phones no heavier than 200g", "compares with “weight of at most 200 g”, so I left that out"),
    ],
)
async def test_a_bound_that_nothing_compares_with_is_said_and_left_out(question: str, word: str) -> None:
    shop = Shop()

    answer = await shop.ask(question)

    assert word in answer
    assert shop.outcome.output["found"] in (18, 32)
    assert not shop.outcome.output["query"].get("max_price")


async def test_where_nothing_has_so_much_those_that_come_nearest_are_shown() -> None:
    shop = Shop()

    answer = await shop.ask("phones with more than 20GB memory")

    assert answer.startswith("I found no phones with memory over 20 GB: ")
    assert shop.outcome.output["near"] == "amounts"
    assert shop.outcome.data["goods"][0]["attributes"]["memory"] == "16 GB"


async def test_bounds_add_up_over_a_conversation_and_a_new_one_replaces_its_like() -> None:
    shop = Shop()

    await shop.ask("laptops with at least 16GB memory")
    await shop.ask("and under 2 kg?")
    answer = await shop.ask("内存32GB以上的呢")

    kept = [(bound["of"], bound["sign"], bound["amount"]) for bound in shop.outcome.output["query"]["amounts"]]
    assert kept == [(["weight"], "<", "2 kg"), (["memory"], ">=", "32 GB")]
    assert "重量 1.3 公斤" in answer


@pytest.mark.parametrize(
    "question", ["lighter than the second one", "anything lighter than it?", "有没有比第二个轻的", "比它更轻的"]
)
async def test_goods_are_compared_with_one_that_was_shown(question: str) -> None:
    shop = Shop()
    await shop.ask("laptops")
    await shop.ask("the second one")
    [second] = shop.outcome.data["goods"]

    await shop.ask(question)

    assert second["attributes"]["weight"] == "2.3 kg"
    assert shop.outcome.output["query"]["amounts"] == [{"of": ["weight"], "sign": "<", "amount": "2.3 kg"}]
    assert shop.outcome.output["found"] == 14


async def test_which_of_those_shown_are_within_a_bound() -> None:
    shop = Shop()
    await shop.ask("laptops")
    shown = shop.ids

    answer = await shop.ask("which ones have at least 32GB memory?")

    assert set(shop.ids) < set(shown)
    assert answer.startswith("Of those 5, one fits: ")


async def test_a_shop_s_own_attributes_and_units_are_compared_too() -> None:
    store = MemoryStore()
    rings = [
        Item(id="R1", name="Ring One", category="rings", price=1, stock=1, attributes={"续航": "90 分钟"}),
        Item(id="R2", name="Ring Two", category="rings", price=1, stock=1, attributes={"battery": "2 h"}),
        Item(id="R3", name="Ring Three", category="rings", price=1, stock=1, attributes={"battery": "40 mAh"}),
    ]
    await replace_catalogue(store.state, SOMEBODY, rings)
    shop = Shop(goods_assistant(store.state))

    await shop.ask("rings with a battery over 100 minutes")
    assert shop.ids == ["R2"]
    await shop.call("search_goods", {"amounts": [{"of": ["续航"], "sign": "<=", "amount": "1.5 hours"}]})
    assert shop.ids == ["R1"]


NAMES = st.sampled_from(["memory", "storage", "battery", "screen", "weight", "power", "capacity", "pages", "rating"])
OPPOSITE: dict[Sign, Sign] = {">": "<=", "<": ">="}


@given(NAMES, st.floats(0.1, 3000).map(lambda figure: round(figure, 1)), st.sampled_from(list(OPPOSITE)))
def test_a_bound_and_its_opposite_part_the_goods_that_note_the_attribute(name: str, figure: float, sign: Sign) -> None:
    """A law: nobody is in both parts, and together they are everybody whom the unit speaks of."""
    parts = [
        search(SHELF, QueryIntent(amounts=(Bound(of=(name,), sign=each, amount=f"{figure}"),)), Talk())
        for each in (sign, OPPOSITE[sign])
    ]
    found = [part.total if part.near is None else 0 for part in parts]
    everybody = search(
        SHELF, QueryIntent(amounts=(Bound(of=(name,), sign=">=", amount="0"),)), Talk()
    ).total  # zero is below any amount

    assert sum(found) == everybody


@given(st.integers(1, 4), st.sampled_from([">", ">=", "<", "<="]))
def test_the_same_amount_in_another_unit_finds_the_same_goods(terabytes: int, sign: Sign) -> None:
    found = [
        search(SHELF, QueryIntent(amounts=(Bound(of=("storage",), sign=sign, amount=amount),)), Talk())
        for amount in (f"{terabytes} TB", f"{1024 * terabytes} GB")
    ]

    assert found[0].ranked == found[1].ranked
    assert found[0].near == found[1].near


def test_a_model_is_told_how_to_give_bounds() -> None:
    amounts = schema_of(QueryIntent)["properties"]["amounts"]["items"]

    assert amounts["properties"].keys() == {"of", "sign", "amount", "than"}
    assert amounts["required"] == ["sign"]


PIECES = """
memory battery 内存 电池 over under at least not 不 大于 以上 以下 比 between and 到 之间 8 16gb 5000 mah 1.5 kg g a
三 万 的 + - ~ , or more
"""
pieces = st.sampled_from(PIECES.split())


@given(st.lists(pieces, max_size=40).map(" ".join) | st.lists(pieces, max_size=60).map("".join))
def test_any_mixture_of_words_of_comparison_is_read_without_a_fault(text: str) -> None:
    read(folded_question(text), Talk(intent=QueryIntent(category="phones")))
