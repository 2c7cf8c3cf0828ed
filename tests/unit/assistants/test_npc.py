"""Characters speak from evidence alone: what they look up, how sure they are, what they cite."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.assistants import npc
from tenuto.assistants.npc import Corpus, Evidence, PolicyMode, cited, evidence_tool, npc_assistant
from tenuto.assistants.npc.corpus import ID
from tenuto.context import language_of
from tenuto.errors import Invalid, InvalidSetting
from tenuto.model.generation import ToolCall, ToolContext, ToolOutput, ToolResult
from tenuto.model.prompt import Language
from tenuto.ports import OfflineTool, Tool
from tests.samples import ANN

pytestmark = pytest.mark.requirement("C1", "C10", "C13", "C16")


NPC: Final = npc_assistant()
ALL_RULES: Final = [f"E-RULE-{number:02d}" for number in range(1, 11)]
_QUESTIONS: Final = Path(__file__).parent.parent.parent / "data" / "npc" / "questions.txt"
_QUOTED: Final = 2
"""How many pieces an answer without a model quotes."""


def turn(question: str, state: dict[str, Any] | None = None, persona: str | None = "guide_lin") -> ToolContext:
    return ToolContext(
        scope=ANN,
        session=None,
        question=question,
        language=language_of(question),
        now=datetime(2026, 11, 1, tzinfo=UTC),
        state=state or {},
        persona=persona,
    )


def plan(asked: ToolContext, tool: Tool = NPC.tools[0]) -> dict[str, Any] | None:
    assert isinstance(tool, OfflineTool)
    return tool.plan(asked)


def render(outcome: ToolOutput, asked: ToolContext, tool: Tool = NPC.tools[0]) -> str:
    assert isinstance(tool, OfflineTool)
    return tool.render(outcome.output, asked)


async def talk(*questions: str, persona: str | None = "guide_lin", state: dict[str, Any] | None = None) -> ToolOutput:
    """What the last of these questions finds."""
    outcome = ToolOutput(output=None, state=state or {})
    for question in questions:
        asked = turn(question, state := {**(state or {}), **outcome.state}, persona)
        arguments = plan(asked)
        assert arguments is not None, question
        outcome = await NPC.tools[0].run(arguments, asked)
    return outcome


def ids(outcome: ToolOutput) -> list[str]:
    return [piece["id"] for piece in outcome.output["evidence"]]


def mode(outcome: ToolOutput) -> str:
    return str(outcome.data["policy_mode"])


@pytest.mark.requirement("C10")
@pytest.mark.parametrize(
    "questions",
    [
        ("家训有哪些？", "第一条是什么意思？", "有没有具体的故事？"),
        ("请问严氏家训有哪些？", "第一条孝悌为本是什么意思？", "有什么具体的故事吗？"),
        ("What are the family rules?", "What does the first one mean?", "Is there any concrete story?"),
    ],
)
async def test_the_three_turns_of_the_documents(questions: tuple[str, str, str]) -> None:
    """What is left out is resolved from the topic; each factual question looks up evidence anew."""
    rules, meaning, story = [await talk(*questions[:count]) for count in (1, 2, 3)]

    assert ids(rules) == ALL_RULES
    assert ids(meaning) == ["E-RULE-01", "E-MEAN-01"]
    assert ids(story) == ["E-STORY-01"]
    assert {mode(outcome) for outcome in (rules, meaning, story)} == {"normal"}
    quoted = render(story, turn(questions[2]))
    assert story.output["evidence"][0]["text"] in quoted
    assert ID.findall(quoted) == ["E-STORY-01"]


@pytest.mark.requirement("C1")
@pytest.mark.parametrize(
    ("questions", "expected", "found"),
    [
        # English, one question
        (("rules",), "normal", "E-RULE-01"),
        (("What are the ten family rules?",), "normal", "E-RULE-01"),
        (("tell me about rule seven",), "normal", "E-RULE-07"),
        (("What does the 8th rule mean?",), "normal", "E-RULE-08"),
        (("Who founded the free school?",), "normal", "E-PERSON-03"),
        (("How wide is the Yielding Channel?",), "normal", "E-PLACE-03"),
        (("How deep is the Yielding Channel?",), "conservative", "E-PLACE-03"),
        (("How is salt made here?",), "conservative", "E-CRAFT-01"),
        (("Where is the hall?",), "conservative", "E-PLACE-01"),
        (("Who invented the light bulb?",), "refuse", None),
        (("What is the capital of France?",), "refuse", None),
        (("What is the weather like today?",), "refuse", None),
        (("What is the eleventh rule?",), "refuse", None),
        (("What does 'carpe diem' mean?",), "refuse", None),
        # English, after other questions
        (("rules", "and the third?"), "normal", "E-RULE-03"),
        (("rules", "Is there a story about rule 5?"), "normal", "E-STORY-05"),
        (("rule 2", "Who painted the story of rule 3?"), "conservative", "E-STORY-03"),
        (("Tell me about the Yielding Channel", "tell me more about it"), "conservative", "E-PLACE-03"),
        (("Tell me about the Yielding Channel", "What does the first one mean?"), "conservative", "E-PLACE-03"),
        (("rule 5", "any story about bananas?"), "refuse", None),
        (("What does the third one mean?",), "refuse", None),
        (("why?",), "refuse", None),
        # Chinese, one question
        (("家训",), "normal", "E-RULE-01"),
        (("严氏家训十则有哪些",), "normal", "E-RULE-01"),
        (("第十则是什么意思",), "normal", "E-RULE-10"),
        (("盐是怎么晒出来的？",), "normal", "E-CRAFT-01"),
        (("古法晒盐有几步？",), "normal", "E-CRAFT-01"),
        (("耕读传家有什么故事吗",), "conservative", "E-STORY-02"),
        (("让渠有多深？",), "conservative", "E-PLACE-03"),
        (("家训是谁写的",), "conservative", "E-HIST-01"),
        (("祠堂在哪里",), "conservative", "E-PLACE-01"),
        (("谁发明了电灯？",), "refuse", None),
        (("明天股票会涨吗",), "refuse", None),
        (("今天天气怎么样",), "refuse", None),
        (("第十一条是什么意思？",), "refuse", None),
        (("第一百零一条家训",), "refuse", None),
        # Chinese, after other questions
        (("家训有哪些", "那第三条呢？"), "normal", "E-RULE-03"),
        (("家训有哪些", "第三个是什么意思？"), "normal", "E-RULE-03"),
        (("家训有哪些", "谁违反过第三条？"), "conservative", "E-RULE-03"),
        (("让渠有多长？", "为什么？"), "conservative", "E-PLACE-03"),
        (("第二条是什么意思", "画蛇添足是什么意思"), "refuse", None),
        (("那个呢？",), "refuse", None),
    ],
)
async def test_what_a_question_finds_and_how_sure_it_is(
    questions: tuple[str, ...], expected: str, found: str | None
) -> None:
    """Evidence that covers little of a question makes the answer careful, and none makes a refusal."""
    outcome = await talk(*questions)

    assert mode(outcome) == expected
    assert ids(outcome)[:1] == ([found] if found else [])
    assert (outcome.final_answer is None) is (expected != "refuse")


@pytest.mark.requirement("C1")
@pytest.mark.parametrize("language", list(Language))
async def test_what_the_evidence_does_not_answer_is_hardly_ever_normal(language: Language) -> None:
    """And what it answers is mostly found. The thresholds were chosen on these questions and their neighbours."""
    lines = [line.split(" | ") for line in _QUESTIONS.read_text(encoding="utf-8").splitlines() if " | " in line]
    asked = {text: set(named.split()) - {"-"} for named, text in lines if language_of(text) is language}
    outcomes = {text: await talk(text) for text in asked}

    sure = [text for text, outcome in outcomes.items() if mode(outcome) == "normal"]
    right = [text for text, outcome in outcomes.items() if asked[text] & set(ids(outcome)[:_QUOTED])]
    answered = [text for text in asked if asked[text]]

    assert len(asked) > 50
    assert len(set(sure) - set(right)) <= 1, set(sure) - set(right)
    assert len(right) >= 0.6 * len(answered), set(answered) - set(right)
    assert len(set(sure) & set(right)) >= 3


@pytest.mark.parametrize("question", ["第十一条是什么意思？", "Is there a story about rule 11?"])
async def test_no_other_rule_answers_for_one_that_does_not_exist(question: str) -> None:
    outcome = await talk("家训有哪些", question)

    assert outcome.data == {"policy_mode": "refuse", "evidence": []}
    assert "11" in (outcome.final_answer or "")
    assert "10" in (outcome.final_answer or "")


async def test_a_model_that_asks_for_a_rule_that_does_not_exist_gets_no_other() -> None:
    outcome = await NPC.tools[0].run({"query": "the meaning of the family rule", "rule": 11}, turn("?"))

    assert mode(outcome) == "refuse"


@pytest.mark.parametrize(
    "words",
    [
        "你好", "谢谢！", "好的，再见", "Hello!", "thanks a lot", "bye", "你是谁？", "Who are you?",
        "我叫小明", "我叫什么名字？", "What did I ask?",
    ],
)  # fmt: skip
def test_small_talk_and_what_only_the_talk_knows_need_no_evidence(words: str) -> None:
    assert plan(turn(words)) is None


@pytest.mark.requirement("C1")
@pytest.mark.parametrize(
    "words", ["I am Ann, who wrote the rules?", "我叫小明，家训有哪些", "Hello! Where is the hall?"]
)
def test_a_question_beside_small_talk_needs_evidence(words: str) -> None:
    assert plan(turn(words)) is not None


@pytest.mark.requirement("C13")
async def test_characters_do_not_share_their_topics() -> None:
    """Switching the character within a session mixes nothing up."""
    listed = await talk("第一条家训是什么意思？", persona="ancestor_yan")

    other = await talk("有没有具体的故事？", persona="craftsman_fu", state=listed.state)

    assert "E-STORY-01" not in ids(other)
    assert "ancestor_yan" not in other.state


@pytest.mark.parametrize("question", ["莲子是做什么用的？", "Tell me about lotus seeds"])
async def test_some_evidence_is_reserved_to_some_characters(question: str) -> None:
    knows = await talk(question, persona="craftsman_fu")
    does_not = await talk(question, persona="ancestor_yan")

    assert ids(knows) == ["E-CRAFT-02"]
    assert mode(does_not) == "refuse"


@pytest.mark.requirement("C13")
@pytest.mark.parametrize("question", ["Tell me more about it", "为什么？"])
async def test_reserved_evidence_is_not_quoted_for_being_in_the_state(question: str) -> None:
    """A client may have written the state."""
    state = {"ancestor_yan": ["E-CRAFT-02", "E-NOWHERE-01"]}

    assert ids(await talk(question, persona="ancestor_yan", state=state)) == []


@pytest.mark.parametrize(
    ("question", "persona", "opening"),
    [
        ("第一条是什么意思", "ancestor_yan", "后生问得好。"),
        ("祠堂在哪里", "ancestor_yan", "此事老夫只记得大概，载籍所存不多："),
        ("rule 1", "craftsman_fu", "That one I know. "),
        ("Where is the hall?", None, "There is little on record about this. What I can tell you: "),
    ],
)
async def test_an_answer_quotes_its_evidence_in_the_voice_of_the_character(
    question: str, persona: str | None, opening: str
) -> None:
    outcome = await talk(question, persona=persona)
    quoted = render(outcome, turn(question, persona=persona))

    assert quoted.startswith(opening)
    assert ID.findall(quoted) == ids(outcome)[:_QUOTED]
    assert all(piece["text"] in quoted for piece in outcome.output["evidence"][:_QUOTED])


async def test_a_list_names_every_rule_with_its_number() -> None:
    outcome = await talk("rules")

    lines = render(outcome, turn("rules")).splitlines()

    assert lines[0] == "Gladly. The family has 10 rules:"
    assert lines[10] == "10. Respect nature, waste nothing [E-RULE-10]"


def mend(answer: str, given: tuple[ToolResult, ...]) -> str:
    assert NPC.postprocess is not None
    return NPC.postprocess(answer, given, turn("第一条?"))


def results(*named: str) -> tuple[ToolResult, ...]:
    output = {"evidence": [{"id": name} for name in named]}
    return (ToolResult(call=ToolCall(id="c", name="retrieve_evidence"), output=output),)


@pytest.mark.requirement("C16")
@pytest.mark.parametrize(
    ("answer", "mended"),
    [
        ("孝为先 [E-RULE-01]。", "孝为先 [E-RULE-01]。"),
        ("孝为先。", "孝为先。"),
        ("孝为先 [E-RULE-99]。", "孝为先。"),
        ("孝为先 [E-RULE-01, E-RULE-99]。", "孝为先 [E-RULE-01]。"),
        ("孝为先（E-MEAN-01）。", "孝为先（E-MEAN-01）。"),
        ("依据E-RULE-99，孝为先；见 E-MEAN-01。", "依据，孝为先；见 E-MEAN-01。"),
        ("Piety first, see E-RULE-01, E-RULE-99.", "Piety first, see E-RULE-01."),
        ("Piety first **e‑rule‑99**, says `E-MYTH-7`.", "Piety first, says."),
        ("Piety first.\nSources: E-RULE-98, E-RULE-99", "Piety first."),
        ("Read (UTF-8) COVID-19, E-MAIL, ISO-9001-X [S-1].", "Read (UTF-8) COVID-19, E-MAIL, ISO-9001-X."),
    ],
)
def test_an_answer_cites_what_was_looked_up_and_only_where_it_used_it(answer: str, mended: str) -> None:
    """An invented id is removed, and no id is added behind words that cite none."""
    assert mend(answer, results("E-RULE-01", "E-MEAN-01")) == mended


@pytest.mark.requirement("C1", "C16")
def test_an_id_from_earlier_talk_is_no_citation() -> None:
    """Nothing was looked up in this turn."""
    assert mend("As I said [E-RULE-01].", ()) == "As I said."
    assert mend("As E-RULE-01 says.", ()) == "As says."


def test_the_evidence_of_an_answer_is_what_it_names() -> None:
    looked_up = [{"id": name, "title": "a"} for name in ("E-RULE-01", "E-RULE-10", "E-MEAN-01")]

    assert cited("孝为先 [E-RULE-10, E-MEAN-01]。", looked_up) == looked_up[1:]


@pytest.mark.parametrize("arguments", [{}, {"query": 5}, {"query": "x", "kind": "all"}, {"query": "x", "rule": "one"}])
async def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        await NPC.tools[0].run(arguments, turn("?"))


@given(text=st.text(max_size=300), kept=st.lists(st.text()) | st.integers() | st.dictionaries(st.text(), st.none()))
async def test_any_text_and_any_state_are_accepted(text: str, kept: Any) -> None:
    asked = turn(text, {"guide_lin": kept})

    outcome = await NPC.tools[0].run(plan(asked) or {"query": text}, asked)

    assert mode(outcome) in list(PolicyMode)


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("words", ["哦", "!", "the first ", "第", " ", "啊" * 500])
async def test_a_question_of_a_megabyte_costs_no_more_than_its_beginning(words: str) -> None:
    asked = turn((words * 1_000_000)[:1_000_000] + "盐?")

    outcome = await NPC.tools[0].run(plan(asked) or {"query": asked.question}, asked)

    assert len(ids(outcome)) <= 10


def test_the_shipped_evidence_is_whole() -> None:
    corpus = Corpus.load(Path(npc.__file__).parent / "shipped" / "evidence.jsonl")
    for piece in corpus.pieces:
        assert set(piece.personas) <= set(NPC.personas)
        assert all(piece.title[language] and piece.text[language] for language in Language)
    for number in range(1, 11):
        assert [len(corpus.of(kind, number)) for kind in ("rule", "meaning", "story")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{", "line 1"),
        ('{"id": "x", "kind": "a", "title": {}, "text": {}}', "line 1: ids look like E-RULE-01"),
        ('\n{"id": "E-1", "kind": "a", "title": {"fr": "x"}, "text": {}}', "line 2"),
        ('{"id": "E-1", "kind": "a", "title": {}, "text": {}}\n' * 2, "one id"),
    ],
)
def test_evidence_that_does_not_fit_is_refused_with_its_line(tmp_path: Path, line: str, error: str) -> None:
    (tmp_path / "evidence.jsonl").write_text(line)

    with pytest.raises(InvalidSetting, match=error):
        Corpus.load(tmp_path / "evidence.jsonl")


async def test_a_site_brings_its_own_evidence_and_characters(tmp_path: Path) -> None:
    (tmp_path / "evidence.jsonl").write_text(
        '{"id": "M-1", "kind": "place", "title": {"en": "The mill"}, "text": {"en": "The mill was built in 1820."}}\n'
    )
    (tmp_path / "characters.toml").write_text('[miller]\nname.en = "The miller"\nsystem.en = "You are the miller."\n')
    own = npc_assistant(corpus=tmp_path)
    asked = turn("When was the mill built?", persona="miller")

    outcome = await own.tools[0].run(plan(asked, own.tools[0]) or {}, asked)

    assert render(outcome, asked, own.tools[0]) == "The mill was built in 1820. [M-1]"
    assert own.persona(None) == own.personas["miller"]
    with pytest.raises(InvalidSetting, match=r"evidence.jsonl cannot be read"):
        npc_assistant(corpus=tmp_path / "nowhere")
    (tmp_path / "characters.toml").write_text('[miller]\nname.en = "The miller"\nmood.en = "dry"\n')
    with pytest.raises(InvalidSetting, match=r"characters.toml: .*mood"):
        npc_assistant(corpus=tmp_path)


async def test_a_piece_in_one_language_is_quoted_in_that_one() -> None:
    piece = Evidence(id="M-1", kind="place", title={Language.ENGLISH: "Mill"}, text={Language.ENGLISH: "A mill."})
    tool = evidence_tool(Corpus([piece]), {})

    outcome = await tool.run({"query": "mill"}, turn("磨坊 mill 在哪里"))

    assert outcome.output["evidence"] == [{"id": "M-1", "kind": "place", "title": "Mill", "text": "A mill."}]
