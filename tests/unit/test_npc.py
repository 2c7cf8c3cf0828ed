"""Characters speak from evidence alone: what they look up, how sure they are, and what they cite (C1, C10, C13)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.assistants.npc import Corpus, Evidence, PolicyMode, RetrieveEvidence, npc_assistant
from tenuto.assistants.npc.corpus import ID
from tenuto.assistants.npc.telling import held_to_evidence
from tenuto.context import language_of
from tenuto.errors import Invalid, InvalidSetting
from tenuto.llm import OfflineModel
from tenuto.model.prompt import Language
from tenuto.model.talk import Asking, Said, ToolCall, ToolContext, ToolOutput, ToolResult
from tests.samples import ANN

NPC = npc_assistant()
TOOL = NPC.tools[0]
assert isinstance(TOOL, RetrieveEvidence)
NPC_PIECES = {"ancestor_yan": "E-PERSON-01", "craftsman_fu": "E-PERSON-05"}


def turn(question: str, state: dict[str, Any] | None = None, persona: str | None = "ancestor_yan") -> ToolContext:
    return ToolContext(
        scope=ANN,
        session=None,
        question=question,
        language=language_of(question),
        now=datetime(2026, 11, 1, tzinfo=UTC),
        state=state or {},
        persona=persona,
    )


async def looked_up(
    question: str, state: dict[str, Any] | None = None, persona: str | None = "ancestor_yan"
) -> ToolOutput:
    assert isinstance(TOOL, RetrieveEvidence)
    asked = turn(question, state, persona)
    arguments = TOOL.plan(asked)
    assert arguments is not None, question
    return await TOOL.run(arguments, asked)


def ids(outcome: ToolOutput) -> list[str]:
    return [piece["id"] for piece in outcome.output["evidence"]]


@pytest.mark.parametrize(
    "questions",
    [
        ("请问严氏家训有哪些？", "第一条是什么意思？", "有没有具体的故事？"),
        ("What are the family rules?", "What does the first one mean?", "Is there any concrete story?"),
    ],
    ids=["zh", "en"],
)
async def test_the_three_turns_of_the_documents(questions: tuple[str, str, str]) -> None:
    """C10: what is left out is found in what was talked about; each factual question looks up evidence anew."""
    rules = await looked_up(questions[0])
    meaning = await looked_up(questions[1], rules.state)
    story = await looked_up(questions[2], meaning.state)

    assert ids(rules) == [f"E-RULE-{n:02d}" for n in range(1, 11)]
    assert ids(meaning) == ["E-RULE-01", "E-MEAN-01"]
    assert ids(story) == ["E-STORY-01"]
    assert {outcome.data["policy_mode"] for outcome in (rules, meaning, story)} == {"normal"}
    assert isinstance(TOOL, RetrieveEvidence)
    told = TOOL.render(story.output, turn(questions[2]))
    assert "[E-STORY-01]" in told
    assert language_of(told) is language_of(questions[2])


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("那第三条呢？", "E-MEAN-03"),
        ("第10则呢", "E-MEAN-10"),
        ("最后一条是什么意思", "E-MEAN-10"),
        ("耕读是什么意思", "E-MEAN-02"),
        ("耕读传家有什么故事吗", "E-STORY-02"),
        ("and the third?", "E-MEAN-03"),
        ("tell me about rule seven", "E-MEAN-07"),
        ("what is the 8th one about?", "E-MEAN-08"),
        ("the last one?", "E-MEAN-10"),
        ("倒数第二条呢", "E-MEAN-09"),
        ("what about rule IV?", "E-MEAN-04"),
        ("rule number 5, please", "E-MEAN-05"),
        ("what does the tenth mean?", "E-MEAN-10"),
    ],
)
async def test_a_rule_is_found_by_its_place_or_its_words(question: str, found: str) -> None:
    listed = (await looked_up("家规有哪些")).state

    assert found in ids(await looked_up(question, listed))


@pytest.mark.parametrize(
    ("question", "number"),
    [
        ("第十一条是什么意思？", 11),
        ("第二十条呢", 20),
        ("第12则有什么故事", 12),
        ("第一百零一条家训", 101),
        ("第廿一条", 21),
        ("What is the eleventh rule?", 11),
        ("what does the 11th mean?", 11),
        ("and the twenty-first one?", 21),
        ("tell me about rule eleven", 11),
        ("rule XI?", 11),
        ("Is there a story about rule 99?", 99),
    ],
)
async def test_a_rule_that_there_is_not_is_declined_and_no_other_told(question: str, number: int) -> None:
    """C1: the number is taken as it stands, however it is written, and no other rule's text answers for it."""
    listed = (await looked_up("家规有哪些")).state

    outcome = await looked_up(question, listed)

    assert outcome.data == {"policy_mode": "refuse", "evidence": []}
    assert outcome.reply is not None
    assert str(number) in outcome.reply
    assert "10" in outcome.reply


@pytest.mark.parametrize("question", ["第十一条是什么意思？", "What is the eleventh rule?", "Rule XI?"])
async def test_no_list_is_needed_to_know_that_a_rule_is_not_there(question: str) -> None:
    assert (await looked_up(question)).data["policy_mode"] == "refuse"


@pytest.mark.parametrize(
    "questions", [("第十条", "下一条呢"), ("第一条", "上一条呢"), ("the last rule", "and the next one?")]
)
async def test_beyond_either_end_of_the_rules_there_is_nothing(questions: tuple[str, str]) -> None:
    state = (await looked_up("家规有哪些")).state
    state = (await looked_up(questions[0], state)).state

    assert (await looked_up(questions[1], state)).data["policy_mode"] == "refuse"


@pytest.mark.parametrize(
    ("question", "found"),
    [("第一代是谁？", "E-PERSON-02"), ("Who was the first of the Yans at Yantian?", "E-PERSON-02")],
)
async def test_not_every_number_counts_rules(question: str, found: str) -> None:
    listed = (await looked_up("家规有哪些")).state

    assert found in ids(await looked_up(question, listed))


async def test_a_model_that_asks_for_a_rule_that_there_is_not_gets_no_other() -> None:
    outcome = await TOOL.run({"query": "the meaning of the family rule", "rule": 11}, turn("?"))

    assert outcome.data["policy_mode"] == "refuse"


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("家训是谁写的？", "E-HIST-01"),
        ("Who wrote the rules?", "E-HIST-01"),
        ("祠堂在哪里？", "E-PLACE-01"),
        ("几点开放？", "E-VISIT-01"),
        ("How is salt dried?", "E-CRAFT-01"),
        ("古法晒盐怎么做", "E-CRAFT-01"),
        ("How do you make salt?", "E-CRAFT-01"),
        ("让渠是怎么来的", "E-PLACE-03"),
        ("Render me about the Yielding Channel", "E-PLACE-03"),
        ("婚礼上为什么撒盐", "E-CUSTOM-02"),
        ("你是谁？", "E-PERSON-01"),
    ],
)
async def test_other_facts_are_found_by_search(question: str, found: str) -> None:
    outcome = await looked_up(question)

    assert found in ids(outcome)
    assert outcome.data["policy_mode"] in ("normal", "conservative")


@pytest.mark.parametrize("question", ["你是谁？", "请自我介绍一下", "Who are you?", "What is your name?"])
@pytest.mark.parametrize(
    ("persona", "names"),
    [
        ("ancestor_yan", ("严氏先祖", "ancestor of the Yans")),
        ("craftsman_fu", ("阿福", "Old Fu")),
        ("guide_lin", ("小林", "Lin")),
        ("nobody", ("讲解员", "guide")),
    ],
)
async def test_characters_say_who_they_are_and_cite_only_what_tells_of_them(
    persona: str, names: tuple[str, str], question: str
) -> None:
    outcome = await looked_up(question, persona=persona)
    assert isinstance(TOOL, RetrieveEvidence)
    told = TOOL.render(outcome.output, turn(question, persona=persona))

    assert names[language_of(question) is Language.ENGLISH] in told
    assert outcome.data["policy_mode"] == "normal"
    assert ID.findall(told) == ids(outcome) == ([NPC_PIECES[persona]] if persona in NPC_PIECES else [])


@pytest.mark.parametrize("persona", ["craftsman_fu", "ancestor_yan", "guide_lin"])
async def test_how_a_thing_is_made_is_answered_with_the_craft_first(persona: str) -> None:
    outcome = await looked_up("How is salt made?", persona=persona)

    assert ids(outcome)[0] == "E-CRAFT-01"
    assert not [piece for piece in ids(outcome) if piece.startswith("E-STORY")]


@pytest.mark.parametrize(
    "question",
    [
        "谁发明了电灯？",
        "Who invented the light bulb?",
        "量子力学是什么",
        "What is the capital of France?",
        "明天股票会涨吗",
    ],
)
async def test_what_the_records_do_not_hold_is_declined_without_asking_a_model(question: str) -> None:
    outcome = await looked_up(question)

    assert outcome.data == {"policy_mode": "refuse", "evidence": []}
    assert outcome.reply is not None
    assert language_of(outcome.reply) is language_of(question)


@pytest.mark.parametrize(
    "words", ["你好", "谢谢！", "好的，再见", "Hello!", "thanks a lot", "我叫小明", "我叫什么名字？", "What did I ask?"]
)
def test_small_talk_and_what_only_the_talk_knows_need_no_evidence(words: str) -> None:
    assert isinstance(TOOL, RetrieveEvidence)

    assert TOOL.plan(turn(words)) is None


async def test_characters_do_not_share_what_they_were_talking_about() -> None:
    """C13: switching the character within a session mixes nothing up."""
    listed = await looked_up("家训有哪些", persona="ancestor_yan")

    other = await looked_up("有没有具体的故事？", listed.state, persona="craftsman_fu")

    assert "E-STORY-01" not in ids(other)
    assert set(other.state) == {"craftsman_fu"}


async def test_some_evidence_is_known_to_some_characters_only() -> None:
    knows = await looked_up("莲子是做什么用的？", persona="craftsman_fu")
    does_not = await looked_up("莲子是做什么用的？", persona="ancestor_yan")

    assert ids(knows) == ["E-CRAFT-02"]
    assert does_not.data["policy_mode"] == "refuse"


async def test_weak_evidence_makes_an_answer_careful() -> None:
    outcome = await looked_up("祠堂里的石柱有多高")

    assert outcome.data["policy_mode"] == PolicyMode.CONSERVATIVE
    assert isinstance(TOOL, RetrieveEvidence)
    assert TOOL.render(outcome.output, turn("祠堂里的石柱有多高")).startswith("此事老夫只记得大概")


@pytest.mark.parametrize("persona", ["ancestor_yan", "craftsman_fu", "guide_lin", None])
@pytest.mark.parametrize(
    "question", ["家训", "规矩", "严氏家训", "rules", "The rules?", "the Yan family rules", "rule"]
)
async def test_the_name_of_the_rules_alone_asks_for_all_of_them(question: str, persona: str | None) -> None:
    outcome = await looked_up(question, persona=persona)
    assert isinstance(TOOL, RetrieveEvidence)
    told = TOOL.render(outcome.output, turn(question, persona=persona))

    assert ids(outcome) == [f"E-RULE-{n:02d}" for n in range(1, 11)]
    assert all(piece["title"] in told for piece in outcome.output["evidence"])


@pytest.mark.parametrize("persona", ["ancestor_yan", None])
@pytest.mark.parametrize(
    "question", ["family", "tell me about family", "盐", "祠堂", "salt", "the law", "story", "意思"]
)
async def test_what_is_cited_is_told(question: str, persona: str | None) -> None:
    """An answer that names evidence says what it says, whoever is asked."""
    outcome = await looked_up(question, persona=persona)
    assert isinstance(TOOL, RetrieveEvidence)
    told = TOOL.render(outcome.output, turn(question, persona=persona))

    assert outcome.data["policy_mode"] != "refuse"
    assert any(piece["text"] in told for piece in outcome.output["evidence"])


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("盐", "E-CRAFT-01"),
        ("盐？", "E-CRAFT-01"),
        ("盐是什么", "E-CRAFT-01"),
        ("讲讲盐", "E-CRAFT-01"),
        ("渠呢", "E-PLACE-03"),
        ("船", "E-STORY-09"),
        ("灯", "E-STORY-02"),
    ],
)
async def test_a_subject_of_one_character_is_found(question: str, found: str) -> None:
    assert found in ids(await looked_up(question))


@pytest.mark.parametrize("question", ["茶", "谁", "怎么做", "2+2?", "what is 2 + 2", "7"])
async def test_signs_and_figures_alone_find_nothing(question: str) -> None:
    assert (await looked_up(question)).data["policy_mode"] == "refuse"


@pytest.mark.parametrize(
    "question",
    [
        "What is the weather like today?",
        "weather today",
        "How do I cook rice?",
        "When was the railway built?",
        "Did the family own a bank?",
        "Where can I park my car?",
        "How much is a ticket?",
        "How was the house built?",
        "how long did the war last",
        "今天天气怎么样",
        "怎么煮米饭",
        "铁路什么时候修的",
        "严家开过银行吗",
    ],
)
@pytest.mark.parametrize("persona", ["ancestor_yan", "guide_lin"])
async def test_words_that_are_mentioned_in_passing_are_no_evidence(question: str, persona: str) -> None:
    """C1: a piece must be about what is asked, or know nearly all of it."""
    assert (await looked_up(question, persona=persona)).data["policy_mode"] == "refuse"


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("Is there a school?", "E-PLACE-04"),
        ("Who was poor as a boy?", "E-PERSON-03"),
        ("What happened in the drought?", "E-STORY-08"),
        ("What do they do at weddings?", "E-CUSTOM-02"),
        ("How is New Year celebrated?", "E-CUSTOM-01"),
        ("What did the war do to the family?", "E-STORY-09"),
        ("What is the village called?", "E-HIST-02"),
        ("Which tools are used to gather salt?", "E-CRAFT-03"),
        ("How tall are the pillars?", "E-PLACE-01"),
    ],
)
async def test_what_the_records_do_hold_is_found_in_other_words(question: str, found: str) -> None:
    assert found in ids(await looked_up(question, persona="guide_lin"))


@pytest.mark.parametrize(
    ("question", "numbers"),
    [
        ("家训第五条和第六条有什么区别", [5, 6]),
        ("第五和第六条", [5, 6]),
        ("耕读和诚信有什么不同", [2, 3]),
        ("第一到第三条", [1, 2, 3]),
        ("What is the difference between rule 5 and rule 6?", [5, 6]),
        ("rules 5 and 6", [5, 6]),
        ("the fifth and the sixth rule", [5, 6]),
        ("rules one to three", [1, 2, 3]),
    ],
)
async def test_several_rules_are_told_side_by_side(question: str, numbers: list[int]) -> None:
    outcome = await looked_up(question)
    assert isinstance(TOOL, RetrieveEvidence)
    told = TOOL.render(outcome.output, turn(question))

    assert ids(outcome) == [f"E-{kind}-{n:02d}" for n in numbers for kind in ("RULE", "MEAN")]
    assert ID.findall(told) == [f"E-MEAN-{n:02d}" for n in numbers]


async def test_of_several_rules_one_that_is_not_there_is_named() -> None:
    outcome = await looked_up("第五条和第十一条有什么区别")

    assert outcome.data["policy_mode"] == "refuse"
    assert "没有第11则" in (outcome.reply or "")


@pytest.mark.parametrize(
    "question", ["next one?", "next", "and the next one?", "the next?", "next rule", "下一条呢", "下一个"]
)
async def test_the_next_one_goes_on_from_the_rule_that_was_talked_about(question: str) -> None:
    state = (await looked_up("Is there a story about rule 5?")).state

    assert "E-MEAN-06" in ids(await looked_up(question, state))


async def test_the_next_generation_is_no_rule() -> None:
    state = (await looked_up("rule 5")).state

    assert "E-RULE-06" not in ids(await looked_up("What about the next generation of salt workers?", state))


@pytest.mark.parametrize(
    ("persona", "names"),
    [
        ("ancestor_yan", ("严氏先祖", "ancestor of the Yans")),
        ("guide_lin", ("小林", "Lin")),
        (None, ("讲解员", "guide")),
    ],
)
@pytest.mark.parametrize("words", ["你好", "您好！", "hello", "Hi there!", "Good morning"])
async def test_a_greeting_is_returned_in_character(words: str, persona: str | None, names: tuple[str, str]) -> None:
    asked = turn(words, persona=persona)
    events = [event async for event in OfflineModel().answer(Asking(messages=(), turn=asked), NPC.tools)]
    said = "".join(event.text for event in events if isinstance(event, Said))

    assert names[language_of(words) is Language.ENGLISH] in said
    assert "offline" not in said
    assert "离线" not in said
    assert not ID.search(said)


def results(*named: str) -> tuple[ToolResult, ...]:
    output = {"evidence": [{"id": name} for name in named]}
    return (ToolResult(call=ToolCall(id="c", name="retrieve_evidence"), output=output),)


@pytest.mark.parametrize(
    ("answer", "mended"),
    [
        ("孝为先 [E-RULE-01]。", "孝为先 [E-RULE-01]。"),
        ("孝为先。", "孝为先。（依据：[E-RULE-01], [E-MEAN-01]）"),
        ("孝为先 [E-RULE-99]。", "孝为先。（依据：[E-RULE-01], [E-MEAN-01]）"),
        ("孝为先 [E-RULE-01, E-RULE-99]。", "孝为先 [E-RULE-01]。"),
        ("孝为先（E-MEAN-01）。", "孝为先（E-MEAN-01）。"),
    ],
)
def test_an_answer_cites_the_evidence_it_was_given_and_no_other(answer: str, mended: str) -> None:
    assert held_to_evidence(answer, results("E-RULE-01", "E-MEAN-01"), turn("第一条?")) == mended


def test_without_evidence_nothing_is_added() -> None:
    assert held_to_evidence("你好！", (), turn("你好")) == "你好！"


@pytest.mark.parametrize("arguments", [{}, {"query": 5}, {"query": "x", "wish": "all"}, {"query": "x", "rule": "one"}])
async def test_arguments_that_a_model_makes_up_are_refused_with_a_sentence(arguments: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        await TOOL.run(arguments, turn("?"))


@given(text=st.text(max_size=300), kept=st.dictionaries(st.text(max_size=12), st.integers() | st.text() | st.none()))
def test_any_text_and_any_state_are_read_without_stumbling(text: str, kept: dict[str, Any]) -> None:
    assert isinstance(TOOL, RetrieveEvidence)
    TOOL.plan(turn(text, {"ancestor_yan": kept, **kept}))


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("words", ["哦", "了", "!", "好的", "thanks "])
def test_endless_small_talk_is_read_once(words: str) -> None:
    """The end of it does not fit, and not every way to share the rest out is tried before that is known."""
    assert isinstance(TOOL, RetrieveEvidence)

    assert TOOL.plan(turn(f"hi{words * 2000}"[:1990] + "盐?")) is not None


async def test_a_question_of_a_megabyte_is_read_in_part() -> None:
    outcome = await looked_up("祠堂在哪里" + "啊" * 1_000_000)

    assert outcome.output["evidence"] == [] or len(outcome.output["evidence"]) <= 4


def test_the_shipped_evidence_is_whole() -> None:
    assert isinstance(TOOL, RetrieveEvidence)
    corpus = TOOL._corpus
    for piece in corpus.pieces:
        assert ID.fullmatch(piece.id)
        for language in Language:
            assert piece.title[language]
            assert piece.text[language]
            assert set(piece.personas) <= set(NPC.personas)
    for number in range(1, 11):
        assert [len(corpus.of(kind, number)) for kind in ("rule", "meaning", "story")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1"),
        ('{"id": "x", "kind": "a", "title": {}, "text": {}}', "E-RULE-01"),
        ('{"id": "E-1", "kind": "a", "title": {"fr": "x"}, "text": {}}', "line 1"),
        ('{"id": "E-1", "kind": "a", "title": {}, "text": {}}\n' * 2, "one id"),
    ],
)
def test_evidence_that_does_not_fit_is_refused_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "evidence.jsonl").write_text(line)

    with pytest.raises(InvalidSetting, match=said):
        Corpus.load(tmp_path / "evidence.jsonl")


async def test_a_site_brings_its_own_evidence_and_characters(tmp_path: Path) -> None:
    (tmp_path / "evidence.jsonl").write_text(
        '{"id": "M-1", "kind": "place", "title": {"en": "The mill"}, "text": {"en": "The mill was built in 1820."}}\n'
    )
    (tmp_path / "characters.toml").write_text('[miller]\nname.en = "The miller"\nsystem.en = "You are the miller."\n')
    own = npc_assistant(corpus=tmp_path)
    tool = own.tools[0]
    assert isinstance(tool, RetrieveEvidence)
    asked = turn("When was the mill built?", persona="miller")

    outcome = await tool.run(tool.plan(asked) or {}, asked)

    assert ids(outcome) == ["M-1"]
    assert own.persona(None) == own.personas["miller"]
    introduced = await tool.run({"query": "?", "wish": "about"}, asked)
    assert tool.render(introduced.output, asked) == "I am the miller."
    with pytest.raises(InvalidSetting, match="cannot be read"):
        npc_assistant(corpus=tmp_path / "nowhere")


def test_a_piece_in_one_language_is_told_in_that_one() -> None:
    piece = Evidence(id="M-1", kind="place", title={Language.ENGLISH: "Mill"}, text={Language.ENGLISH: "Old."})

    assert (piece.titled(Language.CHINESE), piece.said(Language.CHINESE)) == ("Mill", "Old.")
