"""The offline model: the assistant's tools, and quotes from the conversation, in both languages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenuto.errors import Invalid
from tenuto.llm import OfflineModel
from tenuto.llm.offline.model import pieces
from tenuto.model import Message, Role, text_part, tool_result
from tenuto.model.generation import (
    ModelDone,
    ModelRequest,
    TextDelta,
    ToolCall,
    ToolCallRequested,
    ToolContext,
    ToolOutput,
    ToolResult,
    ToolSpec,
)
from tenuto.model.prompt import Language, PromptMessage
from tenuto.model.values import Json, JsonObject
from tenuto.ports import Tool
from tests.samples import ANN, SENT_AT, stored

GRAPHEME = regex.compile(r"\X")
NOTHING = "I am the offline model, not a language model. I match words only, and no sentence"
NOTHING_ZH = "我是离线模型，不是大语言模型，只按词语查找，这段对话里没有"


def message(number: int, role: Role, text: str, **fields: Any) -> Message:
    return stored(number, text, role=role, **fields)


def turn_of(question: str, history: Sequence[Message] = (), **fields: Any) -> ToolContext:
    language = Language.CHINESE if regex.search(r"\p{Han}", question) else Language.ENGLISH
    given = {"scope": ANN, "session": None, "language": language, "now": SENT_AT, "history": tuple(history)}
    return ToolContext(**{"question": question, **given, **fields})


async def answer_to(asking: ModelRequest, tools: Sequence[Tool] = (), stand_in: bool = False) -> str:
    events = [event async for event in OfflineModel(stand_in=stand_in).stream_answer(asking, tools)]

    assert events[-1] == ModelDone(model="offline", offline=True)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def last_answer(*words: str) -> str:
    """The last answer of a conversation; words after `>` are those of another model."""
    history: list[Message] = []
    answer = ""
    for text in words:
        if text.startswith(">"):
            history.append(message(len(history) + 1, Role.ASSISTANT, text[1:]))
            continue
        answer = await answer_to(ModelRequest(messages=(), tool_context=turn_of(text, history)))
        history.append(message(len(history) + 1, Role.USER, text))
        history.append(message(len(history) + 1, Role.ASSISTANT, answer, metadata={"offline": True}))
    return answer


ENGLISH = {
    "statement": (["My name is Ann, and my train leaves at 7:40."], "Noted."),
    "quote": (["The hotel is in Kyoto. It is big.", "Where is the hotel?"], "You said: “The hotel is in Kyoto.”"),
    "inflected": (["My train leaves at 7:40.", "Thanks!", "when did the trains leave"], "“My train leaves at 7:40.”"),
    "about": (["The hotel in Kyoto costs 90 euros.", "What did I say about Kyoto?"], "“The hotel in Kyoto costs 90"),
    "a request": (["The gate code is 4711.", "Tell me the gate code"], "You said: “The gate code is 4711.”"),
    "another model": ([">The gate closes at nine.", "When does the gate close?"], "I said: “The gate closes at nine.”"),
    "both in order": (
        ["My car is red.", "Hello", "My car is blue now.", "What colour is my car?", "My car?"],
        "You said: “My car is red.”\nYou said: “My car is blue now.”",
    ),
    "the newest is quoted": (
        [*(f"My car is {colour}." for colour in ("red", "green", "black")), "My car, after all, is blue.", "my car?"],
        "“My car, after all, is blue.”",
    ),
    "said twice, quoted once": (["My car is red.", "My car is red.", "My car?"], "You said: “My car is red.”"),
    "not told": (["My name is Ann.", "What is my dog called?"], NOTHING),
    "nearest": (
        ["The dentist moved to Friday.", "When is my appointment with the new dentist?"],
        "match words only. The closest match I have:\nYou said: “The dentist moved to Friday.”",
    ),
    "a question answers nothing": (["Is my name Ann?", "What is my name?"], NOTHING),
    "own quotes are no source": (["Where is the train?", "The train is red.", "train?", "the train?"], "“The train is"),
    "no knowledge": (["What is the capital of France?"], "TENUTO_MODEL"),
    "no order is noted": (["Write a poem"], NOTHING),
    "statement and question": (["My dog is Rex.", "I like cats. Who is my dog?"], "You said: “My dog is Rex.”"),
    "first": (
        ["Good morning", "Thanks", "What was my first message?"],
        "Your first message that I can see is: “Good morning”",
    ),
    "last": (["The sky is blue.", "What did I just say?"], "Your last message was: “The sky is blue.”"),
    "repeat": ([">The gate closes at nine.", "Thanks", "Say that again"], "I said: “The gate closes at nine.”"),
    "nothing said": (["What did I say first?"], "There is nothing here yet"),
    "nothing to sum up": (["hello", "summarise"], "There is nothing here yet"),
    "summary is no keyword": (["The summary of the report is due on Friday."], "Noted."),
    "greeting": (["Hello there!"], "Hello! Tell me something"),
    "thanks": (["Thanks a lot!"], "You're welcome."),
    "farewell": (["bye"], "Goodbye!"),
    "help": (["Who are you?"], "not a language model"),
    "no words": (["?!"], "I need a few words to go on."),
}
CHINESE = {
    "陈述": (["我最喜欢的茶是龙井。"], "记下了。"),
    "引用": (["我最喜欢的茶是龙井。", "我最喜欢的茶是什么？"], "你说过：“我最喜欢的茶是龙井。”"),
    "名字": (["我叫小明，我住在上海", "我叫什么名字？"], "你说过：“我叫小明，我住在上海”"),
    "多少钱": (["京都的酒店每晚九十欧元。", "京都的酒店多少钱？"], "你说过：“京都的酒店每晚九十欧元。”"),
    "关于": (["京都的酒店每晚九十欧元。", "关于京都我说过什么？"], "你说过：“京都的酒店每晚九十欧元。”"),
    "记住": (["请记住：明天下午三点开会"], "记下了。"),
    "什么时候": (["请记住：明天下午三点开会", "什么时候开会？"], "明天下午三点开会”"),
    "请求": (["大门的密码是4711。", "请告诉我大门的密码"], "你说过：“大门的密码是4711。”"),
    "别的模型": ([">大门九点关。", "大门几点关？"], "我说过：“大门九点关。”"),
    "先后": (
        ["我的车是红色的。", "我的车现在是蓝色的。", "我的车呢？"],
        "你说过：“我的车是红色的。”\n你说过：“我的车现在是蓝色的。”",
    ),
    "最接近": (
        ["牙医改到星期五了。", "我和新牙医约了星期几下午见面？"],
        "只按词语查找，最接近的是：\n你说过：“牙医改到星期五了。”",
    ),
    "没说过": (["我叫小明", "我妹妹多大了？"], NOTHING_ZH),
    "不知道": (["量子力学是什么？"], "TENUTO_MODEL"),
    "不照做": (["写一首诗"], NOTHING_ZH),
    "第一句": (["早上好", "谢谢", "我第一句话说了什么？"], "你的第一条消息是：“早上好”"),
    "刚才": (["天空是蓝色的。", "我刚才说了什么？"], "你的上一条消息是：“天空是蓝色的。”"),
    "再说一遍": ([">大门九点关。", "再说一遍"], "我说过：“大门九点关。”"),
    "你好": (["你好"], "你好！可以先告诉我"),
    "谢谢": (["谢谢你"], "不客气。"),
    "再见": (["再见"], "再见！"),
    "帮助": (["你是谁？"], "不是大语言模型"),
    "没有字": (["？！"], "I need a few words"),
}


@pytest.mark.parametrize(("words", "answer"), ENGLISH.values(), ids=ENGLISH)
async def test_english_conversations_are_quoted_or_refused(words: list[str], answer: str) -> None:
    assert answer in await last_answer(*words)


@pytest.mark.parametrize(("words", "answer"), CHINESE.values(), ids=CHINESE)
async def test_chinese_conversations_are_quoted_or_refused(words: list[str], answer: str) -> None:
    assert answer in await last_answer(*words)


@pytest.mark.parametrize("request_", ["Summarise what we said so far, please.", "总结一下", "请总结今天的对话"])
async def test_a_summary_quotes_statements_and_no_small_talk(request_: str) -> None:
    told = ["The trip to Kyoto starts on 3 May.", "我们要住在祇园的旅馆。"]

    rows = (await last_answer("Hello", told[0], "What is my name?", told[1], "summarise", request_)).splitlines()[1:]

    assert [row.partition("“")[2] for row in rows] == [f"{words}”" for words in told]


async def test_a_long_conversation_is_summed_up_by_its_frequent_words_in_order() -> None:
    trip = [f"The trip to Kyoto has a {thing}." for thing in ("hotel", "guide", "train", "garden", "temple")]
    other = [f"{name} likes {thing}." for name, thing in (("Bea", "tea"), ("Cal", "jazz"), ("Dan", "chess"))]

    rows = (await last_answer(*trip[:2], *other, *trip[2:], "summarise")).splitlines()[1:]

    assert rows == [f"- You said: “{words}”" for words in trip]


async def test_each_quote_says_whose_words_it_is() -> None:
    notes = "Summary of the conversation so far:\nUser: The boat leaves at noon."
    prompt = tuple(PromptMessage(role=Role.SYSTEM, parts=(text_part(text),)) for text in ("The boat is mine.", notes))
    history = [
        message(1, Role.USER, "The boat is white.", speaker="ann"),
        message(3, Role.USER, "The boat is mine, says Bob.", speaker="bob", extra={"name": "Ann"}),
    ]

    asked = turn_of("What about the boat?", history, speaker_names={"ann": "Ann", "bob": "Ann 1a2b3c"})
    answer = await answer_to(ModelRequest(messages=prompt, tool_context=asked))

    assert answer.splitlines() == [
        "The notes on this conversation say: “User: The boat leaves at noon.”",
        "You said: “The boat is white.”",
        "Ann 1a2b3c said: “The boat is mine, says Bob.”",
    ]
    unnamed = turn_of("What about the boat?", [message(1, Role.USER, "The boat is old.", speaker="cal")])
    answer = await answer_to(ModelRequest(messages=(), tool_context=unnamed))
    assert answer == "Another user said: “The boat is old.”"


async def test_without_a_turn_the_prompt_is_the_conversation() -> None:
    said = ((Role.SYSTEM, "My name is Tenuto."), (Role.USER, "My name is Ann."), (Role.USER, "What is my name?"))
    prompt = tuple(PromptMessage(role=role, parts=(text_part(text),)) for role, text in said)

    assert await answer_to(ModelRequest(messages=prompt)) == "You said: “My name is Ann.”"


async def test_answers_of_tools_are_sources_and_the_models_own_are_not() -> None:
    history = [
        message(1, Role.USER, "Which phones are there?"),
        message(2, Role.TOOL, "", parts=(tool_result("1", []),), turn=1),
        message(3, Role.ASSISTANT, "The Pixel phone costs 300 euros.", turn=1, metadata={"offline": True}),
        message(4, Role.ASSISTANT, "The Pixel phone costs nothing.", turn=2, metadata={"offline": True}),
    ]

    answer = await answer_to(
        ModelRequest(messages=(), tool_context=turn_of("How much does the Pixel phone cost?", history))
    )

    assert answer == "I said: “The Pixel phone costs 300 euros.”"


@pytest.mark.parametrize(
    ("words", "greeting"), [("hello", "Hello, I am the guide."), ("你好", "你好，我是the guide。")]
)
async def test_a_persona_greets_by_its_name(words: str, greeting: str) -> None:
    assert (
        await answer_to(ModelRequest(messages=(), tool_context=turn_of(words, persona_name="the guide")))
    ).startswith(greeting)


NO_ANSWER = ("The language model did not answer", "语言模型没有作答")


async def test_a_stand_in_says_why_it_answers() -> None:
    history = [message(1, Role.USER, "My name is Ann.")]

    for question in (
        "What is my name?",
        "What is the capital of France?",
        "I am sad.",
        "help",
        "帮助",
        "法国的首都是什么？",
    ):
        asking = ModelRequest(messages=(), tool_context=turn_of(question, history))
        answers = await answer_to(asking, stand_in=True), await answer_to(asking)
        assert [text.startswith(NO_ANSWER) for text in answers] == [True, False]
        # The model is set already.
        assert "TENUTO_MODEL" not in answers[0]


class Clock:
    """A tool that works offline, and can be broken."""

    def __init__(self, name: str = "clock", word: str = "time", broken: bool = False) -> None:
        self._name, self._word, self._broken = name, word, broken

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self._name, description="Tells it.", parameters={"type": "object"})

    async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
        raise Invalid("is not run here")

    def plan(self, turn: ToolContext) -> JsonObject | None:
        if self._broken:
            raise RuntimeError(turn.question)
        return {"zone": "utc"} if self._word in turn.question else None

    def render(self, output: Json, turn: ToolContext) -> str:
        return f"It is {output['now']}."


async def test_tools_that_plan_a_call_are_called_once_and_rendered(caplog: pytest.LogCaptureFixture) -> None:
    tools = [Clock(), Clock("calendar", "day"), Clock("wall", broken=True), Clock("other", "weather")]
    asking = ModelRequest(
        messages=(), tool_context=turn_of("What time and day is it?"), tools=tuple(tool.spec for tool in tools)
    )

    events = [event async for event in OfflineModel().stream_answer(asking, tools)]
    calls = [event.call for event in events if isinstance(event, ToolCallRequested)]
    results = tuple(ToolResult(call=call, output={"now": call.name}) for call in calls)

    assert [call.name for call in calls] == ["clock", "calendar"]
    assert len({call.id for call in calls}) == 2
    assert events[-1] == ModelDone(model="offline", offline=True)
    assert await answer_to(replace(asking, tool_results=results), tools) == "It is clock.\n\nIt is calendar."
    assert "wall" in caplog.text
    assert "time and day" not in caplog.text


@pytest.mark.parametrize(
    ("question", "answer"), [("What time is it?", "lookup failed"), ("time 现在几点？", "查询失败")]
)
@pytest.mark.parametrize("stand_in", [False, True])
async def test_a_failed_tool_is_told_in_the_question_s_language(question: str, answer: str, stand_in: bool) -> None:
    result = ToolResult(call=ToolCall(id="1", name="clock"), error="timeout")
    asking = ModelRequest(messages=(), tool_context=turn_of(question), tool_results=(result,))

    assert (await answer_to(asking, [Clock()], stand_in)).count(answer) == 1


async def test_a_tool_that_cannot_render_leaves_the_conversation_to_quote() -> None:
    result = ToolResult(call=ToolCall(id="1", name="clock"), output={"then": "noon"})
    asking = ModelRequest(messages=(), tool_context=turn_of("What time is it?"), tool_results=(result,))

    assert (await answer_to(asking, [Clock()])).startswith(NOTHING)


SCRAPS = (
    "my name is i'm what 我叫 我的 是 什么 请 记住 ? ？ . 。 , 、 and summarise 总结 hello 你好 first about 关于 1. - "
    "User: {text} \n \0 \ud800 👩‍👩‍👧 “ ”"
)
TEXTS = st.one_of(st.text(max_size=80), st.lists(st.sampled_from(SCRAPS.split(" ")), max_size=14).map(" ".join))


@given(question=TEXTS, earlier=st.lists(TEXTS, max_size=5), language=st.sampled_from(Language))
async def test_any_conversation_gets_an_answer_that_a_store_can_keep(
    question: str, earlier: list[str], language: Language
) -> None:
    history = [message(at + 1, Role.ASSISTANT if at % 2 else Role.USER, text) for at, text in enumerate(earlier)]

    answer = await answer_to(ModelRequest(messages=(), tool_context=turn_of(question, history, language=language)))

    assert answer.strip()
    assert "\0" not in answer
    assert answer.encode()


HUGE = {
    "one word": "a" * 1_000_000,
    "blanks": "my name is" + " " * 1_000_000 + "?",
    "questions": "what did i say about " * 50_000,
    "quotation marks": "?" + "\"'" * 500_000 + "x",
    "吗": "吗 ！" * 300_000 + "x",
    "总结": "请帮我" * 300_000 + "总结",
    "full stops": "a. " * 330_000,
}


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE)
async def test_a_huge_question_and_a_long_history_cost_what_is_read_of_them(text: str) -> None:
    history = [message(at, Role.USER if at % 2 else Role.ASSISTANT, text[: 5_000 + at]) for at in range(1, 501)]

    for question in (text, "what is my name?", "summarise", "我叫什么？"):
        answer = await answer_to(ModelRequest(messages=(), tool_context=turn_of(question, history)))
        assert 0 < len(answer) < 5_000


@given(st.text())
def test_pieces_are_small_and_make_up_the_text(text: str) -> None:
    parts = list(pieces(text))

    assert "".join(parts) == text
    assert [grapheme for part in parts for grapheme in GRAPHEME.findall(part)] == GRAPHEME.findall(text)
    assert all(len(GRAPHEME.findall(part)) <= 24 for part in parts)


def test_a_piece_never_splits_a_grapheme() -> None:
    family = "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"

    assert list(pieces(f"ab {family}{family}你好世e\u0301x")) == ["ab ", f"{family}{family}你", "好世e\u0301", "x"]
