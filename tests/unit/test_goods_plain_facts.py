"""What the shop states as a fact is one: what was asked, of the goods that were meant, and nobody wins a tie.

Each question stands for a rule, in both languages (B8, B16); what is right is read off the shipped catalogue.
"""

from __future__ import annotations

from typing import Final

import pytest

from tenuto.assistants.goods.shop import shipped_items
from tests.unit.shop import asked

ITEMS: Final = {item.id: item for item in shipped_items()}


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("how much memory does the first one have?", "Its memory: 6 GB."),
        ("how much storage does the first one have?", "Its storage: 256 GB."),
        ("how much battery does it have?", "Its battery: 4200 mAh."),
        ("how much is its memory?", "Its memory: 6 GB."),
        ("how much does it weigh?", "Nothing is noted about “weight”."),
        ("how much zoom does it have?", "Nothing is noted about “zoom”."),
        ("how much noise cancelling does it have?", "Nothing is noted about “noise cancelling”."),
        ("how much does it cost?", "It costs ¥999."),
        ("how much is it?", "It costs ¥999."),
        ("how much for the first one?", "It costs ¥999."),
        ("第一个内存多大", "内存：6 GB。"),
        ("第一个有多重", "资料里没有注明“重量”。"),
    ],
)
async def test_how_much_of_something_is_not_its_price(question: str, first: str) -> None:
    _, answer = await asked("phones under 2000", question)

    assert answer.startswith(first)


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("compare Lumora Lite 2 and Tessaro Go", ("Lumora Lite 2 Phone", "Tessaro Go Phone")),
        ("is the Orbelle One better than the Lumora Note 8?", ("Orbelle One Phone", "Lumora Note 8 Phone")),
        ("which is cheaper, the Lumora S5 or the Vantik V20?", ("Lumora S5 Phone", "Vantik V20 Phone")),
        ("对比 光诺 Lite 2 和 特赛 Go", ("Lumora Lite 2 Phone", "Tessaro Go Phone")),
        ("光诺 S5和万擎 V20哪个便宜", ("Lumora S5 Phone", "Vantik V20 Phone")),
    ],
)
async def test_goods_compared_by_name_are_all_that_bear_the_names(question: str, names: tuple[str, ...]) -> None:
    shop, _ = await asked(question)

    right = {id_ for id_, item in ITEMS.items() if item.name.startswith(names)}
    assert set(shop.ids) == right
    assert len(right) == 4


async def test_after_a_comparison_the_dearer_one_is_one_of_those_compared() -> None:
    shop, answer = await asked("compare Lumora Lite 2 and Tessaro Go", "how much is the more expensive one?")

    [dearest] = shop.outcome.data["goods"]
    assert (dearest["name"], dearest["price"]) == ("Tessaro Go Phone 6 GB + 256 GB", 999)
    assert "¥999" in answer


@pytest.mark.parametrize(("question", "said"), [("compare Lumora S5 and Foobar X9", "“foobar x9”"),
                                                ("对比光诺 S5和某某 X9", "某某 x9")])  # fmt: skip
async def test_a_name_that_nothing_has_is_told(question: str, said: str) -> None:
    shop, answer = await asked(question)

    assert said in answer.splitlines()[0]
    assert all(good["name"].startswith(("Lumora S5", "光诺 S5")) for good in shop.outcome.data["goods"])


@pytest.mark.parametrize(
    ("choice", "question", "price"),
    [
        ("第二个和第四个哪个便宜", "贵的那个多少钱", 1899),
        ("第二个和第四个哪个贵", "便宜的那个呢", 1399),
        ("which of the second and the fourth is cheaper?", "how much is the more expensive one?", 1899),
        ("compare the second and the fourth", "and the cheaper one?", 1399),
        ("第二个和第四个哪个便宜", "the cheaper of the two", 1399),
    ],
)
async def test_of_two_that_were_spoken_of_the_other_end_is_one_of_the_two(
    choice: str, question: str, price: int
) -> None:
    shop, _ = await asked("那平板呢", choice, question)

    [good] = shop.outcome.data["goods"]
    assert good["price"] == price


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        (("三千左右的手机", "第二个和第三个哪个贵"), "的价格相同"),
        (("三千左右的手机", "第二个和第三个哪个贵", "便宜的那个呢"), "的价格相同"),
        (("三千左右的手机", "比较第二个和第三个"), "价格相同，都是 2,899 元"),
        (("phones around 2000", "which of the first and the third is cheaper?"), "the same price"),
        (("phones around 2000", "the third one", "compare it with the first"), "They cost the same, ¥2,099"),
        (("compare the Lumora S5 Pro and the Orbelle Moon",), "they are rated the same, 4.7"),
    ],
)
async def test_who_costs_the_same_is_no_winner(questions: tuple[str, ...], said: str) -> None:
    shop, answer = await asked(*questions)

    assert said in answer
    assert len(shop.ids) == 2


async def test_of_several_the_first_is_told_with_those_that_cost_the_same() -> None:
    _, answer = await asked("三千左右的手机", "最贵的是哪个")

    assert "另有 1 款的价格与它相同" in answer


@pytest.mark.parametrize(
    "questions",
    [
        ("What's the cheapest phone?", "and the most expensive?", "what's the difference between the two?"),
        ("最便宜的手机", "最贵的呢", "两个有什么区别"),
        ("What's the cheapest phone?", "and the most expensive?", "compare them"),
    ],
)
async def test_the_two_are_those_that_were_shown(questions: tuple[str, ...]) -> None:
    shop, answer = await asked(*questions)

    phones = sorted((item.price, id_) for id_, item in ITEMS.items() if item.category == "phones")
    assert set(shop.ids) == {phones[0][1], phones[-1][1]}
    assert "left out" not in answer


async def test_where_no_two_were_shown_it_is_asked_which() -> None:
    _, answer = await asked("phones under 2000", "compare the two")

    assert answer == "The list I showed you has 5. Which one do you mean?"


@pytest.mark.parametrize("question", ["which one has the best camera?", "which of them has the best camera?"])
async def test_what_goods_have_is_no_kind_of_goods(question: str) -> None:
    shop, answer = await asked("phones not from Lumora, at least 12GB ram", question)

    assert {good["category"] for good in shop.outcome.data["goods"]} == {"phones"}
    assert "“camera”" in answer
    assert all("camera phone" in good["tags"] for good in shop.outcome.data["goods"])


async def test_of_these_stays_with_these() -> None:
    shop, answer = await asked("phones not from Lumora, at least 12GB ram", "the cheapest of these with 512 GB")

    assert answer.startswith("None among those I showed you fits “512gb”.")
    assert {good["category"] for good in shop.outcome.data["goods"]} == {"phones"}


@pytest.mark.parametrize("question", ["smartwatch under 1500", "any smart watches?", "智能手表有哪些"])
async def test_a_smartwatch_is_not_any_watch(question: str) -> None:
    shop, answer = await asked(question)
    await shop.ask("show me the cheapest one")

    assert "smart" in answer or "智能" in answer
    assert ITEMS[shop.ids[0]].id == "WA102"


@pytest.mark.parametrize(
    ("first", "question", "found"),
    [
        ("how many phones do you have?", "how many of them are under 1000?", 6),
        ("手机", "其中有几款是红色的", 6),
        ("phones under 2000", "how many are from Lumora?", 3),
        ("phones under 3000", "how many of these have 256 GB?", 9),
    ],
)
async def test_all_are_counted_not_only_those_shown(first: str, question: str, found: int) -> None:
    shop, answer = await asked(first, question)

    assert shop.outcome.output["found"] == found
    assert str(found) in answer


async def test_a_choice_among_those_shown_tells_among_how_many() -> None:
    _, answer = await asked("laptops", "which ones have at least 32GB memory?")

    assert answer.startswith("Of those 5, one fits")


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("最贵的那个内存多大", "内存：8 GB。"),
        ("最便宜的那个续航多久", "续航："),
        ("how much storage does the cheapest one have?", "Its storage: 256 GB."),
        ("what screen does the most expensive one have?", "Its screen: 6.1 inch."),
    ],
)
async def test_what_is_asked_of_the_best_one_is_told_of_it(question: str, said: str) -> None:
    shop, answer = await asked("三千左右的手机", question)

    assert said in answer
    assert len(shop.outcome.output["query"]["among"]) == 5
