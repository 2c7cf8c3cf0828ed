"""What a visitor asks is answered by evidence that speaks of it, or not as sure (C1, C10)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import pytest

from tenuto.assistants.npc import Evidence
from tenuto.assistants.npc.facts import asked, holds
from tenuto.context import language_of
from tenuto.model.prompt import Language
from tests.unit.test_npc import ids
from tests.unit.test_npc_talk import mode, talk

_VISITORS: Final = Path(__file__).parent.parent / "data" / "npc" / "visitors.txt"
_TOLD: Final = 2
"""So many pieces are read out offline."""


def _talks(language: Language, *, known: bool) -> dict[tuple[str, ...], frozenset[str]]:
    """Talks whose last question is in a language, and the evidence that answers it."""
    lines = [line.split(" | ", 1) for line in _VISITORS.read_text(encoding="utf-8").splitlines() if " | " in line]
    talks = {tuple(text.split(" / ")): frozenset(named.split()) - {"-"} for named, text in lines}
    return {
        asked_one: answers
        for asked_one, answers in talks.items()
        if language_of(asked_one[-1]) is language and bool(answers) is known
    }


@pytest.mark.parametrize("language", list(Language))
async def test_what_no_piece_speaks_of_is_hardly_ever_told_as_sure(language: Language) -> None:
    """C1: seventy-odd questions in each language, whose words stand in the evidence and whose answers do not."""
    unknown = _talks(language, known=False)

    sure = [one[-1] for one in unknown if mode(await talk(*one)) == "normal"]

    assert len(unknown) >= 70
    assert len(sure) <= 1, sure


@pytest.mark.parametrize("language", list(Language))
async def test_what_is_on_record_is_found_in_a_visitor_s_own_words(language: Language) -> None:
    """C1: nearly always the right piece, mostly as sure; and a wrong one never is."""
    known = _talks(language, known=True)
    found = {one: await talk(*one) for one in known}

    wrong = [one for one in known if known[one].isdisjoint(ids(found[one])[:_TOLD])]
    sure = [one for one in known if one not in wrong and mode(found[one]) == "normal"]

    assert len(known) >= 80
    assert len(wrong) <= 5, wrong
    assert not [one for one in wrong if mode(found[one]) == "normal"]
    assert len(sure) >= 0.6 * len(known), [one for one in known if one not in sure]


@pytest.mark.parametrize(
    "questions",
    [
        ("What does rule 2 mean?", "Is it open on Tuesday?"),
        ("What are your opening hours?", "and on Tuesday?"),
        ("What are your opening hours?", "Is it open at 6pm?"),
        ("Are you open on weekends?",),
        ("Can we come on a Sunday?",),
        ("Can I come at 8?",),
        ("星期二开门吗？",),
        ("周末可以参观吗？",),
        ("晚上八点能进去吗？",),
    ],
)
async def test_a_day_or_an_hour_that_is_named_asks_when_it_is_open(questions: tuple[str, ...]) -> None:
    """C1, C10: no day need be on record by its own name."""
    after = await talk(*questions)

    assert (ids(after), mode(after)) == (["E-VISIT-01"], "normal")


@pytest.mark.parametrize(
    "question", ["Do you sell salt?", "Can I buy salt here?", "Does the ferry run on Sundays?", "你们卖盐吗？"]
)
async def test_a_tale_of_long_ago_does_not_tell_what_a_visitor_may_have_today(question: str) -> None:
    """C1."""
    after = await talk(question)

    assert mode(after) != "normal"
    assert not [name for name in ids(after) if name.startswith("E-STORY")]


@pytest.mark.parametrize(
    ("questions", "found", "sure"),
    [
        (("Who wrote the rules?", "Did he have children?"), "E-PERSON-01", False),
        (("Who wrote the rules?", "So he held office?"), "E-PERSON-01", True),
        (("Who founded the free school?", "How many children did he have?"), "E-PERSON-03", False),
        (("Is there a story about rule 2?", "Did he have children?"), "E-STORY-02", False),
        (("严氏家训是谁写的？", "他活了多少岁？"), "E-HIST-01", False),
        (("严氏家训是谁写的？", "他当过官吗？"), "E-PERSON-01", True),
    ],
)
async def test_he_is_who_was_spoken_of_and_nobody_else(questions: tuple[str, ...], found: str, sure: bool) -> None:
    """C10: what the records tell of others does not answer for him; what they tell of him elsewhere does."""
    after = await talk(*questions)

    assert ids(after)[0] == found
    assert (mode(after) == "normal") is sure


@pytest.mark.parametrize(
    ("questions", "found"),
    [
        (("Why was the seventh rule damaged?",), "E-HIST-04"),
        (("第七条为什么缺损？",), "E-HIST-04"),
        (("Which rule is damaged?", "why is it damaged?"), "E-HIST-04"),
        (("What is rule five and a half?",), "E-RULE-05"),
        (("Tell me the story of rule 9", "Did the Japanese kill them?"), "E-STORY-09"),
        (("Tell me the story of rule 9", "Which war was it?"), "E-STORY-09"),
    ],
)
async def test_what_is_asked_of_a_rule_beside_its_meaning_is_not_answered_with_that(
    questions: tuple[str, ...], found: str
) -> None:
    """C1: a number names the rule, and says nothing of what else is asked."""
    after = await talk(*questions)

    assert (ids(after)[0], mode(after)) == (found, "conservative")


@pytest.mark.parametrize(
    ("questions", "found"),
    [
        (("家训第几条讲读书？",), "E-RULE-02"),
        (("the last rule",), "E-RULE-10"),
        (("晒盐有几步？", "第三步是什么？"), "E-CRAFT-01"),
        (("渡口有多少级台阶？",), "E-PLACE-05"),
        (("为什么收盐不用铁耙？",), "E-CRAFT-03"),
        (("村子为什么叫盐田？",), "E-HIST-02"),
        (("严氏家训是1705年写的，对吧？",), "E-HIST-01"),
        (("Tell me the author of the ten rules.",), "E-HIST-01"),
        (("Is the school still a school?",), "E-PLACE-04"),
        (("Tell me about weddings", "tell me another story"), "E-STORY-07"),
    ],
)
async def test_what_is_on_record_is_not_declined(questions: tuple[str, ...], found: str) -> None:
    after = await talk(*questions)

    assert ids(after)[0] == found


@pytest.mark.parametrize("question", ["家训第几条讲喝酒？", "rule -1"])
async def test_no_list_stands_for_a_rule_that_there_is_not(question: str) -> None:
    assert mode(await talk(question)) == "refuse"


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("words", ["?", "where "])
async def test_endless_signs_and_asking_words_are_read_once(words: str) -> None:
    question = (words * 2000)[:1990] + "盐"

    assert await talk(*[question] * 10) is not None


@pytest.mark.parametrize(
    ("question", "text", "told"),
    [
        ("Why is the mill red?", "The mill is red.", False),
        ("Why is the mill red?", "The mill is red, so that ships can see it.", True),
        ("Why did the miller leave the mill?", "The miller left the mill.", False),
        ("Why did the miller leave the mill?", "Mice were found in the flour. The miller left.", True),
        ("Who painted the mill?", "The mill was built by Ann Lee, and painted.", False),
        ("Who painted the mill?", "The mill was painted by Ann Lee.", True),
        ("Who built the mill?", "Ann Lee of the mill, who was poor, built a boat.", False),
        ("Which country sent the mill?", "The country sent the mill.", False),
        ("Which country sent the mill?", "A far country sent the mill.", True),
        ("How much flour does the mill give?", "The mill gives flour.", False),
        ("How much flour does the mill give?", "The mill gives ten sacks of flour.", True),
        ("How much flour does one sack of the mill give?", "The mill gives one sack of flour.", False),
        ("Where is the mill from?", "The mill stands in the valley.", False),
        ("Where is the mill from?", "The mill came from the north.", True),
        ("Is the mill open on Friday?", "The mill is open in spring.", False),
        ("Is the mill open on Friday?", "The mill is open every day.", True),
        ("Can I come to the mill in May?", "The mill is open every day.", False),
        ("Can I come to the mill in May?", "The mill is open from April to June.", True),
        ("磨坊为什么是红的？", "磨坊是红的。", False),
        ("磨坊为什么是红的？", "磨坊是红的，因为船要看见它。", True),
        ("磨坊周五开门吗？", "磨坊春天开门。", False),
        ("磨坊周五开门吗？", "磨坊每天开门。", True),
        ("磨坊五月开门吗？", "磨坊每天开门。", False),
        ("磨坊五月开门吗？", "磨坊四月到六月开门。", True),
        ("哪个国家送来磨坊？", "外人送来磨坊。", False),
        ("磨坊是从哪里来的？", "磨坊在山谷里。", False),
        ("磨坊是从哪里来的？", "磨坊从北方运来。", True),
    ],
)
def test_a_reason_a_doer_a_kind_a_day_must_be_told(question: str, text: str, told: bool) -> None:
    language = language_of(question)
    title = "The mill" if language is Language.ENGLISH else "磨坊"
    piece = {"id": "M-1", "kind": "place", "title": {language.value: title}, "text": {language.value: text}}

    assert holds(msgspec.convert(piece, Evidence), asked(question), language) is told
