"""Which field a legal question is in, and which texts answer it: by shared words, and by the turns before."""

from __future__ import annotations

import pytest

from tenuto.assistants.legal.library import EarlierTurn, Library, Ranking
from tenuto.assistants.legal.plan import LegalField
from tenuto.model.prompt import Language

pytestmark = pytest.mark.requirement("E1")


LIBRARY = Library.shipped()
WORK = {"en": "There is a problem with the employment contract I signed.", "zh": "我跟公司签的劳动合同有问题"}
CLAUSE = {"en": "What about the non-compete part of that contract?", "zh": "上面那份合同里关于竞业协议的部分怎么看?"}
SMALL_TALK = "Who won the world cup?"


@pytest.mark.parametrize(
    ("question", "earlier", "lead"),
    [
        (WORK["en"], [], LegalField.LABOUR),
        (WORK["zh"], [], LegalField.LABOUR),
        (CLAUSE["en"], [], LegalField.CONTRACT),
        (CLAUSE["zh"], [], LegalField.CONTRACT),
        (CLAUSE["en"], [WORK["en"]], LegalField.LABOUR),
        (CLAUSE["zh"], [WORK["zh"]], LegalField.LABOUR),
        (CLAUSE["en"], [SMALL_TALK, WORK["en"]], LegalField.LABOUR),
        ("And what about that?", [WORK["en"]], LegalField.LABOUR),
        ("My landlord keeps the deposit", [WORK["en"]], LegalField.CONTRACT),
        ("房东不退押金", [WORK["zh"]], LegalField.CONTRACT),
        ("拖欠工资", ["房东不退押金"], LegalField.LABOUR),
        ("那份合同里的竞业条款怎么看？", [WORK["zh"]], LegalField.LABOUR),
        ("这份合同的解除条款怎么理解？", ["我的工资被拖欠"], LegalField.LABOUR),
        ("Can I terminate the contract because of that?", ["My employer pays my wages late"], LegalField.LABOUR),
        ("How long is the notice period?", ["My landlord keeps the deposit"], LegalField.CONTRACT),
        ("赔偿怎么算？", ["网购的手机坏了"], LegalField.CONTRACT),
        ("网购的东西七天内能退吗", ["加班费怎么算"], LegalField.CONTRACT),
        (SMALL_TALK, [], None),
        ("你好", [], None),
        ("", [], None),
    ],
)
def test_the_field_is_that_of_the_question_in_its_conversation(
    question: str, earlier: list[str], lead: LegalField | None
) -> None:
    ranking = LIBRARY.rank(question, [EarlierTurn(text) for text in earlier])

    assert (ranking and ranking.lead) == lead
    assert ranking is None or not ranking.close


def test_the_expert_that_answered_holds_the_conversation_and_a_close_call_is_told() -> None:
    """A turn counts for the field that answered it, whatever its own words are; without words of it, the call is
    close."""
    clause = "那份合同里的竞业条款怎么看？"
    earlier = [EarlierTurn(clause, LegalField.LABOUR), EarlierTurn(WORK["zh"], LegalField.LABOUR)]

    assert LIBRARY.rank("那解除条款呢？", earlier) == Ranking(LegalField.LABOUR)
    assert LIBRARY.rank("公司不给年假", [EarlierTurn("租房押金")]) == Ranking(LegalField.CONTRACT, close=True)
    assert LIBRARY.find(LegalField.LABOUR, clause) == ()
    assert "LAB-08" in {text.id for text in LIBRARY.find(LegalField.LABOUR, clause, held=True)}


@pytest.mark.parametrize(
    ("question", "best"),
    [
        ("How long is the notice period?", "LAB-04"),
        ("通知期多久？", "LAB-04"),
        ("My boss fired me", "LAB-05"),
        ("加班费怎么算？", "LAB-10"),
        (SMALL_TALK, None),
    ],
)
def test_the_nearest_texts_of_a_field_are_found_or_none(question: str, best: str | None) -> None:
    found = LIBRARY.find(LegalField.LABOUR, question)

    assert next((text.id for text in found), None) == best
    assert len(found) <= 2


def test_every_text_stands_in_both_languages() -> None:
    for text in LIBRARY.texts:
        assert text.kind in tuple(LegalField)
        assert set(text.title) == set(text.text) == set(Language)
