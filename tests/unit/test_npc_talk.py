"""What a talk with a character leans on: questions cut short, another one, who is asked (C1, C10)."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.assistants.npc import RetrieveEvidence, cited, npc_assistant
from tenuto.assistants.npc.corpus import ID
from tenuto.context import language_of
from tenuto.llm import OfflineModel
from tenuto.model.prompt import Language
from tenuto.model.talk import Asking, Said, ToolOutput
from tests.unit.test_npc import ids, looked_up, turn

ALL_RULES = [f"E-RULE-{n:02d}" for n in range(1, 11)]


async def talk(*questions: str, persona: str = "guide_lin") -> ToolOutput:
    """The answer to the last question of a talk."""
    state: dict[str, Any] = {}
    for question in questions[:-1]:
        state |= (await looked_up(question, state, persona)).state
    return await looked_up(questions[-1], state, persona)


def mode(outcome: ToolOutput) -> str:
    return str(outcome.data["policy_mode"])


@pytest.mark.parametrize(
    ("questions", "found", "sure"),
    [
        (("第一条是什么意思？", "有什么具体的故事吗？", "这个故事发生在什么时候？"), "E-STORY-01", True),
        (("第一条是什么意思？", "有什么具体的故事吗？", "他后来怎么样了？"), "E-STORY-01", False),
        (("第三条是什么意思", "讲个例子", "这事发生在哪一年？"), "E-STORY-03", True),
        (("第三条是什么意思", "讲个例子", "主人公是谁？"), "E-STORY-03", True),
        (("焚赌具", "后来呢？"), "E-STORY-07", True),
        (("焚赌具", "后来呢？", "什么时候的事？"), "E-STORY-07", True),
        (("开盐仓", "为何？"), "E-STORY-08", False),
        (("rule 1", "Any story?", "What happened to him afterwards?"), "E-STORY-01", False),
        (("rule 7", "tell me the story", "and then?"), "E-STORY-07", True),
        (("rule 7", "tell me the story", "When did this story happen?"), "E-STORY-07", True),
        (("Tell me the story of rule 8", "How many days?"), "E-STORY-08", True),
        (("Tell me the story of rule 8", "Who was in charge?"), "E-STORY-08", False),
        (("rule 10", "is there an example?", "who was the man?"), "E-STORY-10", True),
        (("Give me an example for rule 6", "how long did it take?"), "E-STORY-06", True),
    ],
)
async def test_a_question_about_a_story_stays_with_that_story(
    questions: tuple[str, ...], found: str, sure: bool
) -> None:
    """C1, C10: no other story and not the rules' origin answer for it; what it does not tell is not told as sure."""
    after = await talk(*questions)

    assert ids(after) == [found]
    assert mode(after) == ("normal" if sure else "conservative")


@pytest.mark.parametrize(
    ("first", "then", "found", "sure"),
    [
        ("Who wrote the rules?", "In which year?", "E-HIST-01", True),
        ("Who founded the village?", "when?", "E-HIST-02", True),
        ("Who founded the free school?", "for how long?", "E-PERSON-03", True),
        ("Tell me about the Yielding Channel", "why?", "E-PLACE-03", False),
        ("Where is the hall?", "Who pays?", "E-PLACE-01", False),
        ("家训是谁定的", "哪一年？", "E-HIST-01", True),
        ("让渠在哪里？", "多长？", "E-PLACE-03", True),
        ("让渠在哪里？", "谁挖的？", "E-PLACE-03", False),
        ("让渠在哪里？", "为什么？", "E-PLACE-03", False),
    ],
)
async def test_a_question_cut_short_is_about_what_was_told_last(first: str, then: str, found: str, sure: bool) -> None:
    """C10: it is looked up all the same, and sure only if the piece tells the fact."""
    after = await talk(first, then)

    assert ids(after) == [found]
    assert mode(after) == ("normal" if sure else "conservative")


@pytest.mark.parametrize(
    "question",
    ["Who won the world cup?", "Who is Napoleon?", "When did Napoleon die?", "What is the phone number?", "2+2?"],
)
async def test_a_question_with_a_subject_of_its_own_is_not_cut_short(question: str) -> None:
    """C1: what was told last is no answer to everything."""
    assert mode(await talk("Tell me about the Yielding Channel", question)) == "refuse"


@pytest.mark.parametrize("question", ["when?", "In which year?", "why?", "谁挖的？", "后来呢？", "什么时候的事？"])
async def test_a_question_cut_short_at_the_beginning_is_asked_back(question: str) -> None:
    after = await talk(question)

    assert mode(after) == "refuse"
    assert ("which one" if language_of(question) is Language.ENGLISH else "哪一个") in (after.reply or "")


@pytest.mark.parametrize(
    "questions",
    [
        ("严氏家训有哪些？", "一共有几条？"),
        ("严氏家训有哪些？", "一共多少条？"),
        ("家训", "总共几则？"),
        ("What are the family rules?", "How many are there?"),
        ("rules", "how many?"),
    ],
)
async def test_how_many_there_are_is_asked_of_the_list(questions: tuple[str, str]) -> None:
    assert ids(await talk(*questions)) == ALL_RULES


@pytest.mark.parametrize("questions", [("rules", "when?"), ("家训有哪些", "谁写的？"), ("第一条", "谁写的")])
async def test_who_made_them_and_when_is_asked_of_all_the_rules(questions: tuple[str, str]) -> None:
    after = await talk(*questions)

    assert (ids(after), mode(after)) == (["E-HIST-01"], "normal")


@pytest.mark.parametrize("question", ["家训第一条是什么时候写的？", "When was rule 1 of the rules written?"])
async def test_the_date_of_a_story_is_not_the_date_of_its_rule(question: str) -> None:
    assert "E-STORY-01" not in ids(await talk(question))


@pytest.mark.parametrize(
    ("questions", "found"),
    [
        (("Does rule 5 forbid lying?", "What does 'waste nothing' mean?"), "E-MEAN-10"),
        (("rule 2", "What does 'keep the law' mean?"), "E-MEAN-09"),
        (("第三条", "惜物是什么意思？"), "E-MEAN-10"),
        (("rule 5", "What does it mean in practice?"), "E-MEAN-05"),
        (("rule 5", "any interesting story?"), "E-STORY-05"),
        (("第五条", "有什么感人的故事吗"), "E-STORY-05"),
    ],
)
async def test_a_rule_in_focus_gives_way_to_another_that_is_named(questions: tuple[str, str], found: str) -> None:
    after = await talk(*questions)

    assert found in ids(after)
    assert {name[-2:] for name in ids(after)} == {found[-2:]}
    assert mode(after) == "normal"


@pytest.mark.parametrize(
    "questions",
    [
        ("rule 2", "What does 'carpe diem' mean?"),
        ("第二条是什么意思", "画蛇添足是什么意思"),
        ("rule 5", "any story about bananas?"),
        ("第五条", "那银行呢？"),
    ],
)
async def test_a_rule_in_focus_does_not_answer_for_what_nobody_knows(questions: tuple[str, str]) -> None:
    """C1."""
    assert mode(await talk(*questions)) == "refuse"


@pytest.mark.parametrize(
    ("questions", "found"),
    [
        (("Tell me the story of rule 8", "another one"), "E-STORY-09"),
        (("Tell me the story of rule 8", "tell me another story", "one more please"), "E-STORY-10"),
        (("Tell me the story of rule 10", "any more?"), "E-STORY-01"),
        (("第八条的故事", "再讲一个"), "E-STORY-09"),
        (("第八条的故事", "还有别的吗？", "换一个"), "E-STORY-10"),
        (("Tell me about the ferry", "another one"), "E-PLACE-01"),
    ],
)
async def test_another_one_is_the_next_of_its_kind(questions: tuple[str, ...], found: str) -> None:
    after = await talk(*questions)

    assert (ids(after), mode(after)) == ([found], "normal")


@pytest.mark.parametrize("questions", [("Tell me a story", "another one"), ("讲个故事", "再讲一个")])
async def test_another_story_is_not_one_that_was_just_told(questions: tuple[str, str]) -> None:
    first, then = await talk(questions[0]), await talk(*questions)

    assert ids(then)[0].startswith("E-STORY")
    assert set(ids(then)).isdisjoint(ids(first)[:2])


async def test_another_rule_is_the_next_one() -> None:
    assert "E-MEAN-03" in ids(await talk("第二条", "再来一个"))


@pytest.mark.parametrize(
    ("question", "persona", "found"),
    [
        ("Are you married?", "craftsman_fu", None),
        ("你结婚了吗", "craftsman_fu", None),
        ("Do you have kids?", "craftsman_fu", None),
        ("您成家了吗？", "ancestor_yan", None),
        ("When were you born?", "ancestor_yan", None),
        ("How long have you worked here?", "guide_lin", None),
        ("How long have you worked here?", "craftsman_fu", "E-PERSON-05"),
        ("你在这里工作多久了", "craftsman_fu", "E-PERSON-05"),
        ("How old were you when you started?", "craftsman_fu", "E-PERSON-05"),
        ("你几岁开始干这行的？", "craftsman_fu", "E-PERSON-05"),
    ],
)
async def test_of_itself_a_character_tells_what_its_own_piece_tells(
    question: str, persona: str, found: str | None
) -> None:
    """C1: a custom of the village says nothing of who is asked."""
    outcome = await looked_up(question, persona=persona)

    assert ids(outcome) == ([found] if found else [])
    assert mode(outcome) == ("normal" if found else "refuse")


@pytest.mark.parametrize(
    "questions",
    [("How old are you?",), ("你多大年纪了",), ("Who is Old Fu?", "How old is he?"), ("阿福是谁？", "他多大了？")],
)
async def test_an_age_in_the_records_is_not_the_age_today(questions: tuple[str, ...]) -> None:
    after = await talk(*questions, persona="craftsman_fu")

    assert (ids(after), mode(after)) == (["E-PERSON-05"], "conservative")


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("How do you make salt?", "E-CRAFT-01"),
        ("What time do you open?", "E-VISIT-01"),
        ("你们几点下班？", "E-VISIT-01"),
        ("Do you have activities for children?", "E-VISIT-02"),
        ("你们这里有孩子能参加的活动吗", "E-VISIT-02"),
    ],
)
async def test_you_may_be_the_place(question: str, found: str) -> None:
    outcome = await looked_up(question, persona="craftsman_fu")

    assert (ids(outcome), mode(outcome)) == ([found], "normal")


@pytest.mark.parametrize(
    "question",
    [
        "几点开门？",
        "什么时候开门？",
        "几点关门？",
        "今天开门吗",
        "要多久能逛完？",
        "星期一开门吗",
        "When do you open?",
        "Until when are you open?",
        "When do you close?",
        "Are you open on Mondays?",
        "Do you close on Mondays?",
        "How long does the tour take?",
    ],
)
async def test_a_visitor_s_first_questions_lead_to_the_opening_hours_alone(question: str) -> None:
    outcome = await looked_up(question, persona="guide_lin")

    assert (ids(outcome), mode(outcome)) == (["E-VISIT-01"], "normal")


@pytest.mark.parametrize(
    "question",
    [
        "Can my 5 year old join the salt making?",
        "Can a 4-year-old take part in the salt experience?",
        "三岁小孩能参加吗",
    ],
)
async def test_a_child_s_age_asks_for_the_age_that_is_needed(question: str) -> None:
    outcome = await looked_up(question, persona="guide_lin")

    assert (ids(outcome), mode(outcome)) == (["E-VISIT-02"], "normal")


@pytest.mark.parametrize(
    ("question", "rule"),
    [
        ("Which rule is about honesty?", 3),
        ("Is there a rule against gambling?", 7),
        ("Which rule forbids stealing?", 7),
        ("What rule covers paying taxes?", 9),
        ("有关于赌博的规矩吗？", 7),
        ("有没有禁止偷东西的规矩？", 7),
        ("哪一条讲的是孝顺？", 1),
        ("有没有关于老师的家训？", 6),
    ],
)
async def test_a_rule_is_found_by_what_it_is_about(question: str, rule: int) -> None:
    outcome = await looked_up(question)

    assert {name[-2:] for name in ids(outcome)} == {f"{rule:02d}"}
    assert mode(outcome) == "normal"


@pytest.mark.parametrize("question", ["Is there a rule about bananas?", "有关于喝酒的规矩吗"])
async def test_a_subject_that_no_rule_is_about_is_declined(question: str) -> None:
    assert mode(await looked_up(question)) == "refuse"


@pytest.mark.parametrize("question", ["Does rule 5 forbid gambling?", "Does rule 2 say anything about bananas?"])
async def test_of_a_rule_that_is_not_on_the_subject_nothing_is_sure(question: str) -> None:
    assert mode(await looked_up(question)) == "conservative"


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("抗战的时候村里发生了什么", "E-STORY-09"),
        ("Did anyone die in the war?", "E-STORY-09"),
        ("What was carved on the stone?", "E-STORY-08"),
        ("讲一个关于老师的故事", "E-STORY-06"),
    ],
)
async def test_what_the_texts_tell_is_found(question: str, found: str) -> None:
    outcome = await looked_up(question)

    assert (ids(outcome), mode(outcome)) == ([found], "normal")


@pytest.mark.parametrize("question", ["讲一个关于船的故事", "Tell me a story about a boat"])
async def test_a_story_on_a_subject_is_a_story(question: str) -> None:
    found = ids(await looked_up(question))

    assert found
    assert all(name.startswith("E-STORY") for name in found)


@pytest.mark.parametrize(
    ("words", "persona", "said"),
    [
        ("再见", "ancestor_yan", "后生慢走，一路平安。"),
        ("好的，谢谢，再见", "guide_lin", "再见，感谢您来盐田村参观。"),
        ("再见了，老先生", "ancestor_yan", "后生慢走，一路平安。"),
        ("thanks, bye!", "craftsman_fu", "Mind how you go."),
        ("See you later", None, "Goodbye, and thank you for your visit."),
    ],
)
async def test_a_character_parts_in_its_own_words_and_promises_nothing(
    words: str, persona: str | None, said: str
) -> None:
    asking = Asking(messages=(), turn=turn(words, persona=persona))
    events = [event async for event in OfflineModel().answer(asking, npc_assistant().tools)]

    assert "".join(event.text for event in events if isinstance(event, Said)) == said
    assert not ID.search(said)


@pytest.mark.parametrize("words", ["再见，祠堂在哪里", "bye. Where is the hall?"])
async def test_a_question_behind_a_farewell_is_answered(words: str) -> None:
    assert "E-PLACE-01" in ids(await looked_up(words))


def test_the_evidence_of_an_answer_is_what_it_names() -> None:
    looked_at = [
        {"id": "E-RULE-01", "title": "a"},
        {"id": "E-RULE-10", "title": "b"},
        {"id": "E-MEAN-01", "title": "c"},
    ]

    assert cited("孝为先 [E-RULE-10, E-MEAN-01]。", looked_at) == looked_at[1:]


def test_no_model_asks_for_another_one_by_itself() -> None:
    tool = npc_assistant().tools[0]
    assert isinstance(tool, RetrieveEvidence)

    assert "another" not in tool.spec.parameters["properties"]["wish"]["enum"]
