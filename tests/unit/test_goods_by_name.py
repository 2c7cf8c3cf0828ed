"""Goods that are asked for by their name are found, and plain English is read as it is written (B8)."""

from __future__ import annotations

from typing import Final

import pytest

from tenuto.assistants.goods.shop import shipped_items
from tenuto.assistants.goods.words import is_plain_english
from tests.unit.shop import Shop, asked

ITEMS: Final = {item.id: item for item in shipped_items()}


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("Orbelle One", "Orbelle One Phone"),
        ("tessaro go", "Tessaro Go Phone"),
        ("Cooking for Two", "Cooking for Two"),
        ("Vantik V20 price", "Vantik V20 Phone"),
        ("Lumora Air 3 battery", "Lumora Air 3 Phone"),
        ("v20 ultra stock", "Vantik V20 Ultra"),
        ("usb c cable", "Snapfit Braided USB-C Cable"),
        ("memory foam pillow", "Linhouse Memory Foam Pillow"),
        ("Is the Orbelle Moon waterproof?", "Orbelle Moon"),
        ("does the Homeri Projector have bluetooth?", "Homeri Projector"),
        ("is the air fryer dishwasher safe?", "Breezia Air Fryer"),
        ("How many mAh does the Vantik Max 4 have?", "Vantik Max 4"),
        ("how many pages does Yoga at Home have?", "Yoga at Home"),
        ("奥蓓One防水吗", "Orbelle One Phone"),
        ("万擎V20有5G吗", "Vantik V20 Phone"),
        ("光诺 S5 支持5G吗", "Lumora S5 Phone"),
        ("price of Vantik V20 8+256", "Vantik V20 Phone 8 GB + 256 GB"),
        ("how much is the Lumora S5 8GB+128GB", "Lumora S5 Phone 8 GB + 128 GB"),
    ],
)
async def test_goods_asked_for_by_name_are_found(question: str, name: str) -> None:
    shop, answer = await asked(question)

    assert shop.ids
    assert all(ITEMS[id_].name.startswith(name) for id_ in shop.ids)
    assert "not find" not in answer


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("is the Lumora S5 5G?", "listed under “5g”"),
        ("Is the Orbelle One waterproof?", "no waterproof noted"),
        ("is the Homeri Projector quiet?", "Nothing is noted about “quiet”."),
        ("Lumora Air 3 battery", "6000 mAh"),
        ("光诺 S5 支持5G吗", "标注了“5g”"),
        ("奥蓓One防水吗", "没有注明防水"),
    ],
)
async def test_what_is_asked_behind_a_name_is_told(question: str, said: str) -> None:
    _, answer = await asked(question)

    assert said in answer


async def test_a_name_that_nothing_has_is_not_found() -> None:
    shop, answer = await asked("is the Foobar X9 waterproof?")

    assert answer.startswith("I do not find that one")
    assert shop.ids == []


@pytest.mark.parametrize(
    "talk", ["my dog is called Rex", "i am tired", "how old are you?", "is it raining where you are?"]
)
def test_what_people_say_of_themselves_names_no_goods(talk: str) -> None:
    assert Shop().wanted(talk) == []


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("something sweet", "sweet"),
        ("waterproof bluetooth speaker", "speaker"),
        ("a treat for the weekend", "weekend"),
        ("anything with a plain border", "border"),
        ("a stool", "stool"),
        ("something for the beach", "beach"),
        ("a trumpet", "trumpet"),
    ],
)
async def test_a_plain_word_is_no_slip_of_another(question: str, word: str) -> None:
    shop, answer = await asked(question)

    assert word in answer or all(word in ITEMS[id_].name.lower() for id_ in shop.ids)


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("wirless mouse", "wireless"),
        ("mechnical keyboard", "mechanical"),
        ("cheap bluetoth headphones", "bluetooth"),
        ("humidifer", "humidifier"),
        ("keybord", "keyboard"),
        ("shampo", "shampoo"),
    ],
)
async def test_and_a_slip_is_still_understood(question: str, word: str) -> None:
    _, answer = await asked(question)

    assert f"{word}" in answer


@pytest.mark.parametrize(
    "word", ["spend", "spending", "sweetest", "three", "speakers", "stopped", "really", "swimming"]
)
def test_plain_words_are_known_with_their_endings(word: str) -> None:
    assert is_plain_english(word)


@pytest.mark.parametrize("word", ["wireles", "wirless", "labtop", "headphons", "camra", "jaket", "keybord"])
def test_slips_are_no_plain_words(word: str) -> None:
    assert not is_plain_english(word)


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        (("Longjing", "how many grams?"), "Its weight: 250 g."),
        (("face cream", "how many ml?"), "Its size: 50 ml."),
        (("blender", "how many litres?"), "Its capacity: 1.5 L."),
        (("Lumora Air 3 phone 256gb", "how many inches?"), "Its screen: 6.7 inch."),
        (("洗发水", "多少毫升"), "尺寸：500 毫升。"),
        (("乌龙茶", "多少克"), "重量：200 克。"),
        (("洗发水", "一瓶多少钱"), "价格是 49 元。"),
    ],
)
async def test_an_amount_asked_for_by_its_unit_is_told(questions: tuple[str, ...], said: str) -> None:
    _, answer = await asked(*questions)

    assert answer.startswith(said)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("yoga mat thicker than 10mm", "thickness over 10 mm"),
        ("a rug wider than 2 m", "width over 2 m"),
        ("a tent taller than 150 cm", "height over 150 cm"),
        ("比10毫米厚的瑜伽垫", "厚度大于 10 mm"),
        ("厚度大于10毫米的瑜伽垫", "厚度大于 10 mm"),
        ("a mat thinner than 5 mm", "thickness under 5 mm"),
    ],
)
async def test_what_is_thick_is_not_held_against_what_is_long(question: str, said: str) -> None:
    shop, answer = await asked(question)

    assert said in answer
    assert shop.outcome.output["query"].get("amounts", []) == []


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("dog food under 100", ["Pawlane Puppy Food, 3 kg", "Pawlane Adult Dog Food, 10 kg"]),
        ("cat food under 50", ["Whiskero Kitten Food, 2 kg", "Pawlane Adult Cat Food, 5 kg"]),
        ("dog food under 200", ["Pawlane Puppy Food, 3 kg"]),
    ],
)
async def test_a_price_makes_no_other_food_of_dog_food(question: str, names: list[str]) -> None:
    shop, _ = await asked(question)

    assert {ITEMS[id_].name for id_ in shop.ids} == set(names)


@pytest.mark.parametrize("question", ["有多少种狗粮", "how many tents do you have?", "有几款电饭煲"])
async def test_how_many_there_are_of_something_else_begins_anew(question: str) -> None:
    shop, _ = await asked("how many books", question)

    assert shop.outcome.output["near"] is None
    assert "books" not in {good["category"] for good in shop.outcome.data["goods"]}


@pytest.mark.parametrize(
    ("question", "unknown"), [("iPhone 15", "iphone 15"), ("Galaxy 14", "galaxy 14"), ("Pixel 8 phone", "pixel 8")]
)
async def test_a_figure_belongs_to_the_name_before_it(question: str, unknown: str) -> None:
    _, answer = await asked(question)

    assert f"“{unknown}”" in answer


@pytest.mark.parametrize("question", ["number 0", "the one before that", "上一个呢"])
async def test_who_points_beside_the_list_is_asked_which(question: str) -> None:
    _, answer = await asked("phones", "the second one", question)

    assert "5" in answer
    assert answer.endswith(("Which one do you mean?", "您指的是哪一款？"))


@pytest.mark.parametrize("question", ["red dress size M", "dress in M red", "dress in M, red", "red dress in M please"])
async def test_a_size_in_one_letter_is_held_beside_a_colour(question: str) -> None:
    shop, _ = await asked(question)

    assert shop.outcome.output["query"]["amounts"] == [{"of": ["size"], "sign": "=", "amount": "M"}]
    assert shop.outcome.output["query"]["attributes"] == {"color": "red"}


@pytest.mark.parametrize(
    ("question", "brand"), [("光诺手机", "光诺"), ("Lumora的手机", "光诺"), ("Lumora phones", "Lumora")]
)
async def test_brands_are_named_in_the_language_of_the_question(question: str, brand: str) -> None:
    _, answer = await asked(question)

    assert f"{brand}手机" in answer or f"{brand} phones" in answer
