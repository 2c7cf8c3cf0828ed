"""Questions that leave out what they are about, and those that are not understood: the shop answers, or says so."""

from __future__ import annotations

import pytest

from tests.unit.shop import asked


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("how many are left?", "Yes, 558 in stock."),
        ("and the screen?", "Its screen: 6.7 inch."),
        ("how big is the screen?", "Its screen: 6.7 inch."),
        ("how many megapixels?", "Nothing is noted about “megapixels”."),
        ("有没有别的颜色", "颜色：红色。"),
        ("多少钱", "价格是 999 元。"),
        ("还剩多少", "有现货，库存 558 件。"),
        ("能用微信吗", "资料里没有注明“微信”。"),
        ("支持快充吗", "资料里没有注明“快充”。"),
    ],
)
async def test_what_was_spoken_of_last_is_meant_without_a_word_for_it(question: str, first: str) -> None:
    shop, answer = await asked("phones under 2000", "the first one", question)

    assert answer.startswith(first)
    assert shop.ids == ["PH132"]


@pytest.mark.parametrize("question", ["and the screen?", "屏幕多大"])
async def test_after_a_list_it_is_told_of_each(question: str) -> None:
    shop, answer = await asked("phones under 2000", question)

    assert len(shop.ids) == len(answer.splitlines()) == 5


@pytest.mark.parametrize("question", ["what colors does the Lumora S5 come in?", "光诺 S5是什么颜色"])
async def test_what_is_asked_of_goods_by_name_is_told_of_all_of_that_name(question: str) -> None:
    shop, answer = await asked(question)

    assert shop.ids == ["PH101", "PH102"]
    assert ("blue" in answer and "gold" in answer) or ("蓝色" in answer and "金色" in answer)


@pytest.mark.parametrize(
    ("question", "color"), [("is there a black version?", "black"), ("hm, ok, the black one then", "black")]
)
async def test_a_colour_is_read_through_small_talk(question: str, color: str) -> None:
    shop, answer = await asked("phones under 2000", question)

    assert {good["attributes"]["color"] for good in shop.outcome.data["goods"]} == {color}
    assert "nothing" not in answer


async def test_the_black_one_is_the_one_of_the_list() -> None:
    shop, _ = await asked("phones under 2000", "the black one")

    assert shop.ids == ["PH113"]


@pytest.mark.parametrize(("question", "sort"), [("which one sells best?", "sales"), ("哪个卖得最好", "sales")])
async def test_what_sells_best_is_chosen_by_sales(question: str, sort: str) -> None:
    shop, _ = await asked("phones under 2000", question)

    assert shop.outcome.output["query"]["sort"] == sort


async def test_even_less_is_cheaper_than_before() -> None:
    shop, _ = await asked("phones under 2000", "even less")

    assert max(good["price"] for good in shop.outcome.data["goods"]) < 749


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("why?", "I did not understand that."),
        ("为什么", "这句话我没有听懂。"),
        ("how does that feel?", "I did not understand that."),
    ],
)
async def test_a_question_that_is_not_understood_is_told_so(question: str, said: str) -> None:
    shop, answer = await asked("降噪耳机", question)

    assert answer.startswith(said)
    assert shop.tool == "shop_help"


@pytest.mark.parametrize("said", ["my name is Ann", "what is my name?", "I live in Berlin"])
async def test_what_people_say_of_themselves_is_no_matter_of_the_shop(said: str) -> None:
    shop, _ = await asked("降噪耳机")

    assert shop.wanted(said) == []


@pytest.mark.parametrize("question", ["怎么付款", "有优惠吗", "any discount?", "how can I pay?", "有什么支付方式"])
async def test_how_to_pay_and_what_is_reduced_is_in_no_catalogue(question: str) -> None:
    shop, answer = await asked(question)

    assert shop.tool == "shop_help"
    assert "customer service" in answer or "客服" in answer


@pytest.mark.parametrize(("question", "name"), [("the bigger one", "10 kg"), ("大的那个", "10公斤")])
async def test_the_bigger_one_of_two_is_the_heavier_where_that_is_what_they_note(question: str, name: str) -> None:
    shop, _ = await asked("dog food", question)

    [good] = shop.outcome.data["goods"]
    assert good["name"].endswith(name)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("tablets under 1500, please, " + "for a friend of mine, " * 30, "I read only the first 400 characters"),
        ("x " * 300, "I read only the first 400 characters"),
        ("一千五以内的平板，" + "谢谢谢谢，" * 100, "这段话我只读了前 400 个字"),
    ],
)
async def test_a_question_that_was_cut_is_told_so(question: str, said: str) -> None:
    _, answer = await asked(question)

    assert answer.startswith(said)
