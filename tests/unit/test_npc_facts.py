"""A fact of the asked kind or no sure answer; and a question that points at nothing is asked back (C1, C10, C13)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from tenuto.assistants.npc import Corpus, Evidence, RetrieveEvidence, npc_assistant
from tenuto.assistants.npc.facts import asked, holds
from tenuto.assistants.npc.focus import focus_of
from tenuto.context import language_of
from tenuto.model.prompt import Language
from tenuto.model.talk import ToolOutput
from tests.unit.test_npc import ids, looked_up, turn

_QUESTIONS: Final = Path(__file__).parent.parent / "data" / "npc" / "questions.txt"
_TOLD: Final = 2
"""So many pieces are read out offline."""


class Question(NamedTuple):
    text: str
    answers: frozenset[str]


def _questions(language: Language) -> list[Question]:
    lines = [line for line in _QUESTIONS.read_text(encoding="utf-8").splitlines() if "|" in line]
    parted = [line.split(" | ", 1) for line in lines]
    questions = [Question(text, frozenset(named.split()) - {"-"}) for named, text in parted]
    return [question for question in questions if language_of(question.text) is language]


@pytest.mark.parametrize("language", list(Language))
async def test_what_the_records_do_not_tell_is_hardly_ever_told_as_sure(language: Language) -> None:
    """C1: sixty questions near the evidence, in each language."""
    unknown = [question for question in _questions(language) if not question.answers]

    sure = [
        one.text for one in unknown if (await looked_up(one.text, persona="guide_lin")).data["policy_mode"] == "normal"
    ]

    assert len(unknown) == 60
    assert len(sure) <= 2, sure


@pytest.mark.parametrize("language", list(Language))
async def test_what_the_records_tell_is_answered_with_the_piece_that_tells_it(language: Language) -> None:
    """C1: cited among what is told, and nearly always without hesitation."""
    known = [question for question in _questions(language) if question.answers]
    found = {one: await looked_up(one.text, persona="guide_lin") for one in known}

    right = [one for one in known if not one.answers.isdisjoint(ids(found[one])[:_TOLD])]
    sure = [one for one in right if found[one].data["policy_mode"] == "normal"]

    assert len(known) == 60
    assert len(right) >= 57, [one.text for one in known if one not in right]
    assert len(sure) >= 52, [one.text for one in right if one not in sure]


@pytest.mark.parametrize(
    "question",
    [
        "When was the Yielding Channel dug?",
        "In which year was the ferry built?",
        "What time does the ferry leave?",
        "How many pupils did the free school have?",
        "How much is a ticket to the site?",
        "How deep is the Yielding Channel?",
        "Who designed the Yielding Channel?",
        "What is the name of Yan Chengxiao's mother?",
        "What was the official who wanted a stone called?",
        "What colour is the Yielding Channel?",
        "What is the phone number of the site?",
        "Who is head of the clan today?",
        "让渠是什么时候挖的？",
        "渡口是哪一年修的？",
        "义学有多少个学生？",
        "景区门票多少钱？",
        "让渠有多深？",
        "让渠是谁设计的？",
        "严承孝的母亲叫什么名字？",
        "让渠是什么颜色的？",
        "景区的电话是多少？",
        "现在的族长是谁？",
    ],
)
async def test_evidence_without_a_fact_of_the_asked_kind_makes_no_sure_answer(question: str) -> None:
    outcome = await looked_up(question, persona="guide_lin")

    assert outcome.data["policy_mode"] != "normal"


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("When was the hall restored?", "E-HIST-04"),
        ("What time does the site open?", "E-VISIT-01"),
        ("How many steps does the ferry have?", "E-PLACE-05"),
        ("How wide is the Yielding Channel?", "E-PLACE-03"),
        ("Who founded the free school?", "E-PERSON-03"),
        ("What is the name of the head of the clan?", "E-PERSON-04"),
        ("How old was Old Fu when he went to the pans?", "E-PERSON-05"),
        ("祠堂是哪年重修的？", "E-HIST-04"),
        ("景区几点开放？", "E-VISIT-01"),
        ("渡口有多少级石阶？", "E-PLACE-05"),
        ("让渠有多宽？", "E-PLACE-03"),
        ("义学是谁创办的？", "E-PERSON-03"),
        ("光绪年间的族长叫什么名字？", "E-PERSON-04"),
        ("阿福几岁下埕？", "E-PERSON-05"),
    ],
)
async def test_a_fact_of_the_asked_kind_is_told_as_sure(question: str, found: str) -> None:
    outcome = await looked_up(question, persona="guide_lin")

    assert ids(outcome)[0] == found
    assert outcome.data["policy_mode"] == "normal"


@pytest.mark.parametrize(
    ("question", "text", "told"),
    [
        ("How many years did the miller live here?", "The miller left a year of rice.", False),
        ("How many years did the miller live here?", "The miller lived here for nine years.", True),
        ("In which year did the miller come?", "The miller came with rice for nine years.", False),
        ("In which year did the miller come?", "The miller came in 1820.", True),
        ("How many wheels has the mill?", "The mill has four men and a wheel.", False),
        ("How many wheels has the mill?", "The mill has four great wheels.", True),
        ("What is the mill called?", "The mill has a name, and nobody tells it.", False),
        ("What is the mill called?", "The mill is called Old Turner.", True),
        ("What are the names of the millers?", "The names of the millers are cut into the door.", False),
        ("磨坊主在这里住了几年？", "磨坊主留下了一年的米。", False),
        ("磨坊主在这里住了几年？", "磨坊主在这里住了九年。", True),
        ("磨坊主是哪一年来的？", "磨坊主来时带着九年的米。", False),
        ("磨坊主是哪一年来的？", "磨坊主1820年来到这里。", True),
        ("磨坊有几个轮子？", "磨坊有四名工人和轮子。", False),
        ("磨坊有几个轮子？", "磨坊有四个轮子。", True),
        ("磨坊叫什么名字？", "磨坊里的人都有名字。", False),
        ("磨坊叫什么名字？", "磨坊名叫老风车。", True),
    ],
)
def test_a_number_a_unit_or_a_name_of_something_else_is_not_the_fact(question: str, text: str, told: bool) -> None:
    language = language_of(question)
    piece = _site(language, text).pieces[0]

    assert holds(piece, asked(question), language) is told


def _site(language: Language, *texts: str) -> Corpus:
    title = "The mill" if language is Language.ENGLISH else "磨坊"
    pieces = [
        {"id": f"M-{place}", "kind": "place", "title": {language.value: title}, "text": {language.value: text}}
        for place, text in enumerate(texts, 1)
    ]
    return Corpus(msgspec.convert(pieces, list[Evidence]))


@pytest.mark.parametrize(
    "question",
    [
        "What does the third one mean?",
        "And that one?",
        "What about the second?",
        "When was it built?",
        "Why did he do that?",
        "Tell me more about it.",
        "How many of them are there?",
        "第三个是什么意思？",
        "那个呢？",
        "另一个呢？",
        "它是什么时候建的？",
        "他为什么这样做？",
        "再详细说说。",
        "它们一共有多少个？",
    ],
)
@pytest.mark.parametrize("persona", ["ancestor_yan", "guide_lin"])
async def test_a_question_that_points_at_nothing_is_asked_back(question: str, persona: str) -> None:
    outcome = await looked_up(question, persona=persona)

    assert outcome.data == {"policy_mode": "refuse", "evidence": []}
    assert outcome.reply is not None
    assert ("which one" in outcome.reply) is (language_of(question) is Language.ENGLISH)
    assert ("哪一个" in outcome.reply) is (language_of(question) is Language.CHINESE)


async def _talk(*questions: str, persona: str = "guide_lin") -> list[ToolOutput]:
    state: dict[str, Any] = {}
    outcomes = []
    for question in questions:
        outcomes.append(await looked_up(question, state, persona))
        state = {**state, **outcomes[-1].state}
    return outcomes


@pytest.mark.parametrize(
    ("first", "then", "mode"),
    [
        ("Tell me about the Yielding Channel", "How long is it?", "normal"),
        ("Tell me about the Yielding Channel", "How deep is it?", "conservative"),
        ("Tell me about the Yielding Channel", "Who dug it?", "conservative"),
        ("Where is the hall?", "What is kept there?", "normal"),
        ("让渠在哪里？", "它有多长？", "normal"),
        ("让渠在哪里？", "它有多深？", "conservative"),
        ("阿福是谁？", "他晒了多少年盐？", "normal"),
        ("阿福是谁？", "他老婆叫什么名字？", "conservative"),
    ],
)
async def test_it_is_what_was_told_last(first: str, then: str, mode: str) -> None:
    """C10: and what the piece does not tell of it, it does not tell as sure."""
    before, after = await _talk(first, then)

    assert ids(after) == ids(before)
    assert after.data["policy_mode"] == mode


@pytest.mark.parametrize(
    "questions",
    [
        ("What does rule 1 mean?", "Tell me about the Yielding Channel", "How long is it?"),
        ("第一条是什么意思？", "让渠在哪里？", "它有多长？"),
    ],
)
async def test_it_is_no_longer_the_rule_once_the_talk_has_left_it(questions: tuple[str, str, str]) -> None:
    assert ids((await _talk(*questions))[-1]) == ["E-PLACE-03"]


@pytest.mark.parametrize(
    ("questions", "asked_back"),
    [
        (("What are the family rules?", "And that one?"), True),
        (("家训有哪些？", "那个呢？"), True),
        (("What are the family rules?", "How many of them are there?"), False),
        (("家训有哪些？", "它们一共有多少个？"), False),
    ],
)
async def test_of_a_list_it_must_be_said_which_one(questions: tuple[str, str], asked_back: bool) -> None:
    after = (await _talk(*questions))[-1]

    assert (after.data["policy_mode"] == "refuse") is asked_back
    assert len(ids(after)) == (0 if asked_back else 10)


@pytest.mark.parametrize("question", ["Tell me more about it", "再详细说说"])
async def test_what_a_character_does_not_know_is_not_told_for_being_in_the_state(question: str) -> None:
    """C13: anybody may have written the state."""
    state = {"ancestor_yan": {"rule": None, "listed": False, "evidence": ["E-CRAFT-02", "E-NOWHERE-01"]}}

    assert ids(await looked_up(question, state, "ancestor_yan")) == []


def test_no_more_is_read_of_a_state_than_is_ever_written_there() -> None:
    state = {"guide_lin": {"rule": None, "listed": False, "evidence": ["E-PLACE-03"] * 100_000}}

    assert len(focus_of(turn("How long is it?", state, "guide_lin")).evidence) == 12


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("家训抄本存有多少份？", "E-HIST-03"),
        ("How old are the children who copy the rules?", "E-HIST-03"),
        ("正月初一由谁领读家训？", "E-CUSTOM-01"),
        ("Who reads the rules aloud at New Year?", "E-CUSTOM-01"),
        ("严敬天封滩封了几年？", "E-STORY-10"),
    ],
)
async def test_the_rules_name_in_a_question_does_not_make_it_one_about_the_rules(question: str, found: str) -> None:
    assert ids(await looked_up(question, persona="guide_lin"))[0] == found


@pytest.mark.parametrize(
    ("question", "mode", "found"),
    [
        ("When did the story of rule 3 happen?", "normal", "E-STORY-03"),
        ("第三条的故事发生在什么时候？", "normal", "E-STORY-03"),
        ("How much does rule 3 cost?", "conservative", "E-RULE-03"),
        ("第三条家训多少钱？", "conservative", "E-RULE-03"),
    ],
)
async def test_of_a_rule_too_the_kind_of_fact_is_looked_at(question: str, mode: str, found: str) -> None:
    outcome = await looked_up(question)

    assert (outcome.data["policy_mode"], ids(outcome)[0]) == (mode, found)


def test_what_a_model_may_ask_the_tool_for_leaves_out_what_only_the_talk_tells() -> None:
    tool = npc_assistant().tools[0]
    assert isinstance(tool, RetrieveEvidence)

    assert set(tool.spec.parameters["properties"]["wish"]["enum"]).isdisjoint({"back", "unclear"})
