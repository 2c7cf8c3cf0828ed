"""What a `QueryIntent` finds on a catalogue: items that meet every condition, in order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.assistants.goods.catalogue import Catalogue
from tenuto.assistants.goods.intent import QueryIntent, Sort
from tenuto.assistants.goods.item import Item, shipped_items

SHELF = Catalogue(shipped_items())


def find(**fields: Any) -> list[Item]:
    return list(SHELF.search(QueryIntent(limit=20, **fields)).items)


def item(id_: str, price: float, rating: float = 4.0, sales: int = 1000, stock: int = 1, **rest: Any) -> Item:
    return Item(id=id_, name=id_, category="things", price=price, rating=rating, sales=sales, stock=stock, **rest)


def first(items: list[Item], sort: Sort) -> str:
    return Catalogue(items).search(QueryIntent(sort=sort, limit=1)).items[0].id


def test_best_value_weighs_rating_against_price() -> None:
    middle = item("middle", 100, 4.5)

    assert first([middle, item("dear", 300, 4.6)], "value") == "middle"
    assert first([middle, item("poor", 80, 3.4)], "value") == "middle"
    assert first([middle, item("cheaper and as good", 60, 4.5)], "value") == "cheaper and as good"
    assert first([middle, item("praised by three", 99, 4.9, sales=3)], "value") == "middle"


def test_sold_out_items_come_last_in_any_order() -> None:
    items = [item("gone", 1, 5.0, sales=10**6, stock=0), item("there", 1000, 3.1)]

    for sort in ("price", "rating", "sales", "value"):
        assert first(items, sort) == "there"


def test_text_category_brand_and_colour_are_found_in_either_language() -> None:
    assert find(text="rice cookers") == find(text="电饭煲") != []
    assert find(brand="光诺") == find(brand="lumora") != []
    assert find(category="手机") == find(category="Phones") == find(category="phone") != []
    assert find(attributes={"颜色": "红色"}) == find(attributes={"color": "red"}) != []
    assert find(attributes={"屏幕": ">= 6.4 英寸"}) == find(attributes={"screen": ">= 6.4 inch"}) != []
    assert find(attributes={"material": "不锈钢"}) == find(attributes={"material": "steel"}) != []
    assert find(category="phones", text="256GB") == find(category="phones", text="256 GB") != []


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ("8 GB", {"b"}),
        (">= 8 GB", {"b", "c"}),
        ("> 8GB", {"c"}),
        ("<= 8 gb", {"a", "b"}),
        ("< 1 TB", {"a", "b", "c"}),
        (">= 8", {"b", "c"}),
        (">= 8 kg", set()),
    ],
)
def test_an_attribute_keeps_its_bound_in_its_unit(wanted: str, ids: set[str]) -> None:
    sizes = {"a": "4 GB", "b": "8 GB", "c": "16 GB", "d": ""}
    catalogue = Catalogue([item(id_, 1, attributes={"memory": size} if size else {}) for id_, size in sizes.items()])

    assert {found.id for found in catalogue.search(QueryIntent(attributes={"memory": wanted})).items} == ids


def test_a_price_in_another_currency_finds_nothing() -> None:
    """Nothing is converted, so that no bound is broken."""
    assert find(category="phones", max_price=3000, currency="USD") == []
    assert find(category="phones", max_price=3000, currency="¥") == find(category="phones", max_price=3000) != []


def test_a_category_of_its_own_is_found_by_its_name_or_as_text() -> None:
    catalogue = Catalogue(
        [Item(id="L1", name="Lute", category="instruments", price=900, tags=("guitar",)), item("x", 1)]
    )

    for name in ("instruments", "Instrument", "guitar"):
        assert [found.id for found in catalogue.search(QueryIntent(category=name)).items] == ["L1"]
    assert catalogue.search(QueryIntent(category="phones")).total == 0


def test_text_that_matches_nothing_is_said_to_be_ignored_or_finds_nothing() -> None:
    beside = SHELF.search(QueryIntent(category="phones", text="submarine"))

    assert (beside.total, beside.text_ignored) == (32, True)
    assert SHELF.search(QueryIntent(text="submarine")).total == 0
    assert SHELF.search(QueryIntent(text="submarine", max_price=500)).total == 0


def test_a_search_among_items_stays_among_them() -> None:
    found = SHELF.search(QueryIntent(sort="price"), among=("PH103", "LT101", "PH101", "gone"))

    assert [good.id for good in found.items] == sorted(
        ("PH103", "LT101", "PH101"), key=lambda id_: (SHELF.by_id[id_].stock == 0, SHELF.by_id[id_].price)
    )


prices = st.none() | st.floats(0, 15_000)
intents = st.builds(
    QueryIntent,
    category=st.sampled_from(["", "phones", "手机", "food", "nowhere"]),
    text=st.sampled_from(["", "waterproof", "降噪", "gift", "x y z", "'; --"]),
    brand=st.sampled_from(["", "Lumora", "清禾", "Nosuch"]),
    attributes=st.sampled_from([{}, {"color": "red"}, {"storage": ">= 256 GB"}]),
    min_price=prices,
    max_price=prices,
    currency=st.sampled_from(["", "CNY", "$"]),
    sort=st.sampled_from([None, "price", "price_desc", "rating", "sales", "value"]),
    limit=st.integers(-5, 500),
)


@pytest.mark.requirement("B8")
@given(intents, st.none() | st.lists(st.sampled_from(["PH101", "PH102", "FD101", "gone"]), max_size=3))
def test_every_item_found_meets_every_condition(intent: QueryIntent, among: list[str] | None) -> None:
    found = SHELF.search(intent, among)

    assert len(found.items) <= 20
    assert found.total >= len(found.items)
    for good in found.items:
        assert intent.min_price is None or good.price >= intent.min_price
        assert intent.max_price is None or good.price <= intent.max_price
        assert intent.currency != "$" or (intent.min_price, intent.max_price) == (None, None)
        assert not intent.brand or intent.brand in (good.brand, good.brand_zh)
        assert intent.category not in ("phones", "food") or good.category == intent.category
        assert "color" not in intent.attributes or good.attributes["color"] == "red"
        assert among is None or good.id in among
