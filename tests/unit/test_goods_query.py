"""What a query brings from a shelf: everything that fits, in order, and honest words when nothing does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.assistants.goods.intent import QueryIntent, Sort, Talk
from tenuto.assistants.goods.searching import search
from tenuto.assistants.goods.shop import Item, Shelf, shipped_items
from tenuto.assistants.goods.shop.shelf import stem

SHELF = Shelf(shipped_items())


def brings(**fields: Any) -> list[Item]:
    return list(search(SHELF, QueryIntent(limit=20, **fields), Talk()).goods)


def item(id_: str, price: float, rating: float, sales: int = 1000, stock: int = 1) -> Item:
    return Item(id=id_, name=id_, category="things", price=price, rating=rating, sales=sales, stock=stock)


def first(items: list[Item], sort: Sort) -> str:
    return search(Shelf(items), QueryIntent(sort=sort, limit=1), Talk()).goods[0].id


def test_best_value_weighs_rating_against_price() -> None:
    middle = item("middle", 100, 4.5)

    assert first([middle, item("dear", 300, 4.6)], "value") == "middle"
    assert first([middle, item("poor", 80, 3.4)], "value") == "middle"
    assert first([middle, item("cheaper and as good", 60, 4.5)], "value") == "cheaper and as good"
    assert first([middle, item("praised by three", 99, 4.9, sales=3)], "value") == "middle"


def test_what_is_sold_out_comes_last_in_any_order() -> None:
    items = [item("gone", 1, 5.0, sales=10**6, stock=0), item("there", 1000, 3.1)]

    for sort in ("price", "rating", "sales", "value"):
        assert first(items, sort) == "there"


def test_words_fit_in_either_language_and_number() -> None:
    assert brings(terms=("rice", "cookers")) == brings(terms=("电饭煲",)) != []
    assert brings(brand="光诺") == brings(brand="lumora") != []
    assert (
        brings(category="手机", attributes={"颜色": "红色"})
        == brings(category="phones", attributes={"color": "red"})
        != []
    )


def test_a_chinese_run_without_spaces_is_taken_apart() -> None:
    [lamp] = brings(terms=("一个台灯啊",))

    assert "台灯" in lamp.name_zh


def test_words_of_people_stand_for_words_of_the_catalogue() -> None:
    assert brings(terms=("girlfriend",)) == brings(terms=("women",)) != []
    assert {found.id for found in brings(category="books", terms=("孩子",))} >= {
        found.id for found in brings(category="books", terms=("儿童",))
    }


def test_a_colour_in_a_name_counts_as_a_colour() -> None:
    assert [found.name for found in brings(terms=("tea",), attributes={"color": "green"})] == [
        "Greenridge Farm Longjing Green Tea, 250 g"
    ]


def test_a_category_word_inside_a_name_is_a_word() -> None:
    assert {found.category for found in brings(category="food", terms=("cat",))} == {"pets"}


def test_one_character_is_a_word_only_where_it_stands_alone() -> None:
    assert {found.category for found in brings(terms=("锅",))} == {"kitchen"}
    assert brings(terms=("算",)) == brings()


def test_what_is_for_pets_does_not_pass_for_what_people_have() -> None:
    assert {snack.category for snack in brings(terms=("零食",))} == {"food"}
    assert brings(terms=("零食",), sort="sales")[0].id == "FD108"


@pytest.mark.parametrize("terms", [("宠物零食",), ("狗", "零食"), ("猫零食",), ("狗狗零食",), ("给猫买", "零食")])
def test_who_names_a_pet_gets_what_pets_have(terms: tuple[str, ...]) -> None:
    assert [treat.id for treat in brings(terms=terms)] == ["PT106"]


def test_pieces_of_words_that_only_pets_have_still_fit() -> None:
    assert {bed.category for bed in brings(terms=("软窝",))} == {"pets"}


def test_unknown_words_are_told_and_do_not_pass_for_known_ones() -> None:
    alone = search(SHELF, QueryIntent(terms=("umbrella",)), Talk())
    beside = search(SHELF, QueryIntent(category="phones", terms=("submarine",)), Talk())

    assert (alone.goods, alone.unknown) == ((), ("umbrella",))
    assert beside.total == 32
    assert beside.unknown == ("submarine",)


def test_an_unknown_brand_brings_no_other_brand() -> None:
    found = search(SHELF, QueryIntent(brand="Nosuch"), Talk())

    assert found.goods == ()
    assert found.unknown == ("nosuch",)


def test_a_choice_among_shown_goods_stays_among_them() -> None:
    among = ("PH101", "PH103", "LT101", "gone")
    found = search(SHELF, QueryIntent(among=among, sort="price"), Talk())

    assert {good.id for good in found.goods} == {"PH101", "PH103", "LT101"}


def test_where_none_of_the_shown_fits_the_others_of_its_kind_are_near() -> None:
    blue = [found.id for found in brings(category="phones", attributes={"color": "blue"})]
    found = search(SHELF, QueryIntent(among=tuple(blue), attributes={"color": "red"}), Talk())

    assert found.near == "among"
    assert {(good.category, good.attributes["color"]) for good in found.goods} == {("phones", "red")}


def test_nothing_is_near_to_goods_that_are_gone() -> None:
    assert search(SHELF, QueryIntent(among=("gone", "away"), sort="value"), Talk()).goods == ()


def test_stems_meet_their_plurals() -> None:
    assert [stem(word) for word in ("phones", "watches", "batteries", "glass", "dress", "dresses", "children's")] == [
        "phone",
        "watch",
        "battery",
        "glass",
        "dress",
        "dress",
        "children",
    ]


prices = st.none() | st.floats(0, 15_000)
intents = st.builds(
    QueryIntent,
    category=st.sampled_from([None, "phones", "food", "nowhere"]),
    terms=st.lists(st.sampled_from(["waterproof", "降噪", "gift", "x y z", "'; --"]), max_size=2).map(tuple),
    brand=st.sampled_from([None, "Lumora", "清禾", "Nosuch"]),
    attributes=st.sampled_from([{}, {"color": "red"}, {"storage": "256 GB"}]),
    min_price=prices,
    max_price=prices,
    above=prices,
    below=prices,
    min_rating=st.none() | st.floats(0, 5),
    in_stock=st.booleans(),
    sort=st.sampled_from([None, "price", "price_desc", "rating", "sales", "value"]),
    limit=st.integers(-5, 500),
    rank=st.integers(-5, 500),
    among=st.lists(st.sampled_from(["PH101", "PH102", "FD101", "gone", "previous"]), max_size=3).map(tuple),
)


@given(intents)
def test_what_is_brought_fits_every_condition_unless_it_is_said_to_be_near(intent: QueryIntent) -> None:
    found = search(SHELF, intent, Talk(items=("PH103",), prices=(1.0,)))

    assert len(found.goods) <= 20
    assert found.total >= len(found.goods)
    for good in found.goods if found.near is None else ():
        assert intent.min_price is None or good.price >= intent.min_price
        assert intent.max_price is None or good.price <= intent.max_price
        assert intent.above is None or good.price > intent.above
        assert intent.below is None or good.price < intent.below
        assert intent.min_rating is None or good.rating >= intent.min_rating
        assert not intent.in_stock or good.stock > 0
        assert intent.brand != "Lumora" or good.brand == "Lumora"
        assert intent.category not in ("phones", "food") or good.category == intent.category
