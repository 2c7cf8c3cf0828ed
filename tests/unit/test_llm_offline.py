"""The offline model: tools that serve themselves, and what was said in the talk, in both languages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import Invalid
from tenuto.llm import OfflineModel
from tenuto.llm.offline import chinese, english
from tenuto.llm.offline.lists import items_in
from tenuto.llm.offline.model import pieces
from tenuto.model import Message, Role, Scope, text_part, tool_result
from tenuto.model.prompt import Language, PromptMessage
from tenuto.model.talk import Asking, Called, Ended, Said, ToolCall, ToolContext, ToolOutput, ToolResult, ToolSpec
from tenuto.model.values import Json, JsonObject
from tenuto.ports import Tool
from tests.samples import SENT_AT

ANN = Scope(tenant="acme", user="ann")
GRAPHEME = regex.compile(r"\X")


def message(number: int, role: Role, text: str, **fields: Any) -> Message:
    given = {"id": f"m{number}", "role": role, "sent_at": SENT_AT, "parts": (text_part(text),), **fields}
    return Message(**{"seq": number, "turn": (number + 1) // 2, **given})


def turn_of(question: str, history: Sequence[Message] = (), scope: Scope = ANN) -> ToolContext:
    language = Language.CHINESE if re.search("[\u4e00-\u9fff]", question) else Language.ENGLISH
    return ToolContext(
        scope=scope, session=None, question=question, language=language, now=SENT_AT, history=tuple(history)
    )


async def said(asking: Asking, tools: Sequence[Tool] = (), stand_in: bool = False) -> str:
    events = [event async for event in OfflineModel(stand_in=stand_in).answer(asking, tools)]

    assert events[-1] == Ended(model="offline", offline=True)
    return "".join(event.text for event in events if isinstance(event, Said))


async def talk(*words: str) -> str:
    """The last answer of a talk; words after `>` are an assistant's that was no offline model."""
    history: list[Message] = []
    answer = ""
    for text in words:
        if text.startswith(">"):
            history.append(message(len(history) + 1, Role.ASSISTANT, text[1:]))
            continue
        answer = await said(Asking(messages=(), turn=turn_of(text, history)))
        history.append(message(len(history) + 1, Role.USER, text))
        history.append(message(len(history) + 1, Role.ASSISTANT, answer, metadata={"offline": True}))
    return answer


TALKS = {
    "name": (["My name is Ann.", "What is my name?"], "Your name is Ann."),
    "name in a greeting": (["Hi, my name is Ann, how are you?", "do you remember my name?"], "Your name is Ann."),
    "name said shortly": (["Hello, I'm Ann Lee from Leeds.", "what's my name"], "Your name is Ann Lee."),
    "nationality is no name": (["I'm German.", "what is my name?"], "You have not told me that"),
    "newest name": (["My name is Ann.", "Call me Annie.", "Who am I?"], "Your name is Annie (before, you said Ann)."),
    "said twice": (["I'm Ann.", "My name is Bea.", "My name is Ann.", "what is my name?"], "Your name is Ann (before"),
    "home": (["I live in Berlin and I work as a nurse.", "Where do I live?"], "You live in Berlin."),
    "moved": (["I live in Rome.", "I moved to Paris last year.", "where do I live?"], "Paris (before, you said Rome)."),
    "job": (["I live in Berlin and I work as a nurse.", "What do I do for a living?"], "You work as a nurse."),
    "age": (["I'm 34 years old, by the way", "how old am I?"], "You are 34 years old."),
    "lateness is no age": (["I'm 5 minutes late", "how old am I?"], "You have not told me that"),
    "favourite": (["My favourite colour is green.", "what's my favorite color?"], "Your favourite colour is green."),
    "plural": (["My children are Tom and Mia.", "Who are my children?"], "Your children are Tom and Mia."),
    "pet": (["My dog is called Rex.", "What's my dog's name?"], "Your dog's name is Rex."),
    "likes grow": (["I like tea.", "I love jazz too", "What do I like?"], "You like tea, and also jazz."),
    "likes change": (["I like tea.", "I like cake.", "I hate tea.", "What do I like?"], "You like cake."),
    "not told": (["Hello", "What is my sister's name?"], "You have not told me that in this conversation yet."),
    "from the other side": (["My plan is to visit my mother", "what is my plan?"], "is to visit your mother."),
    "a question is no fact": (["Is my name Ann?", "what is my name?"], "You have not told me that"),
    "remember": (["Please remember that the train leaves at 9:40.", "When does the train leave?"], "9:40"),
    "plain statement": (["The budget for the trip is 2000 euros", "How much is the trip's budget?"], "2000 euros"),
    "about": (["The hotel in Kyoto costs 90 euros.", "What did I say about Kyoto?"], "The hotel in Kyoto costs 90"),
    "nothing about": (["Hello", "What did we say about whales?"], "I find nothing about “whales”"),
    "all facts": (["I'm Ann. I live in Bonn.", "What do you know about me?"], "name is Ann.\n- You live in Bonn."),
    "second item": ([">1. Honour\n2. Thrift\n3. Truth", "what was the second one?"], "The second one was: Thrift."),
    "last item": ([">- Red\n- Blue", "Render me about the last one"], "The last one was: Blue."),
    "no such item": ([">- Red\n- Blue", "the fifth one?"], "There is no such item: the list has 2."),
    "item of a sentence": (["I need to buy milk, eggs and bread", "the third item?"], "The third one was: bread."),
    "not that list": ([">- Red\n- Blue", "What is the first rule of thermodynamics?"], "I am the offline model"),
    "repeat": ([">The gate closes at nine.", "Say that again"], "The gate closes at nine."),
    "what I said": (["The sky is blue.", "What did I just say?"], "You said: “The sky is blue.”"),
    "first words": (["Good morning", "Thanks", "What was my first message?"], "Your first words were: “Good morning”"),
    "thanks": (["Thanks a lot!"], "You're welcome."),
    "thanks and a question": (["I'm Ann.", "Thanks! What's my name?"], "Your name is Ann."),
    "bye": (["bye"], "Goodbye!"),
    "greeting": (["Hello"], "Hello! I am tenuto's offline model"),
    "greeting later": (["I'm Ann.", "Hi again"], "Hello, Ann!"),
    "who are you": (["Who are you?"], "not a language model"),
    "cannot": (["What is the capital of France?"], "TENUTO_MODEL"),
    "cannot again": (["What is the capital of France?", "Write a poem"], "offline I know nothing else."),
    "no words": (["?!"], "I need a few words to go on."),
    "名字": (["我叫小明，我住在上海", "我叫什么名字？"], "你叫小明。"),
    "住处": (["我叫小明，我住在上海", "我住在哪里"], "你住在上海。"),
    "改名": (["我叫小明", "以后叫我阿明吧", "我是谁？"], "你叫阿明（之前你说的是小明）。"),
    "叫外卖": (["我叫了外卖", "我叫什么？"], "这一点你还没有"),
    "年龄": (["我今年三十岁", "我多大了？"], "你三十岁。"),
    "最喜欢": (["我最喜欢的颜色是绿色。", "我最喜欢的颜色是什么"], "你最喜欢的颜色是绿色。"),
    "宠物": (["我的猫叫咪咪", "我的猫叫什么名字？"], "你的猫叫咪咪。"),
    "过敏": (["我对花生过敏", "我对什么过敏？"], "你对花生过敏。"),
    "喜欢": (["我喜欢喝茶", "我也喜欢爬山", "我喜欢什么？"], "你喜欢喝茶，还有爬山。"),
    "记住": (["请记住：明天下午三点开会，地点在三楼", "什么时候开会？"], "明天下午三点开会"),
    "关于": (["京都的酒店每晚九十欧元。", "关于京都我说过什么？"], "你说过：“京都的酒店每晚九十欧元。”"),
    "第二点": ([">家规：\n1. 孝敬父母\n2. 勤俭持家", "刚才说的第二点是什么？"], "第二点是：勤俭持家。"),
    "最后一条": ([">一、孝敬父母\n二、勤俭持家", "最后一条是什么意思"], "最后一条是：勤俭持家。"),
    "句中列表": (["我要买牛奶、鸡蛋和面包", "第三个是什么"], "第三个是：面包。"),
    "再说一遍": ([">大门九点关。", "再说一遍"], "大门九点关。"),
    "我刚才说": (["天空是蓝色的。", "我刚才说了什么？"], "你说过：“天空是蓝色的。”"),
    "知道我什么": (["我叫小明", "你知道我的哪些信息？"], "- 你叫小明。"),
    "谢谢": (["谢谢你"], "不客气。"),
    "你好": (["你好"], "你好！我是 tenuto 的离线模型"),
    "不会": (["量子力学是什么？"], "TENUTO_MODEL"),
    "asked in the other language": (["我叫小明", "What is my name?"], "Your name is 小明."),
    "quoted in the other": (["我最喜欢的颜色是绿色", "What do you know about me?"], "said “我最喜欢的颜色是绿色”"),
    "用中文问": (["My name is Ann", "我叫什么？"], "你叫Ann。"),
    "not my name": (["My name is not Ann.", "What is my name?"], "You have only told me that your name is not Ann."),
    "denied is noted so": (["I'm not allergic to nuts"], "Noted: you are not allergic to nuts."),
    "taken back": (["I'm Ann.", "My name isn't Ann.", "who am I?"], "You have only told me that your name is not Ann."),
    "instead": (["My name isn't Bob, it's Carl.", "what is my name?"], "Your name is Carl."),
    "own instead": (["My car isn't red, it's blue", "what is my car?"], "Your car is blue."),
    "eleventh item": ([">" + "\n".join(f"{n}. no {n}" for n in range(1, 13)), "the eleventh one?"], "was: no 11."),
    "第十一点": ([">" + "\n".join(f"{n}. 第{n}样" for n in range(1, 13)), "第十一个是什么"], "第十一个是：第11样。"),
    "moved away": (["I live in Rome.", "I no longer live in Rome.", "where do I live?"], "you do not live in Rome."),
    "another denied": (["I live in Rome.", "I don't live in Paris.", "where do I live?"], "You live in Rome."),
    "said after denied": (["I don't live in Rome.", "I live in Rome now.", "where do I live?"], "You live in Rome."),
    "no job": (["I am not a doctor.", "what do I do?"], "you are not a doctor."),
    "whose name": (["My sister's name is Zoe.", "what's my sister's name?"], "Your sister's name is Zoe."),
    "whose name it is": (["My sister's name is Zoe.", "who is my sister?"], "Your sister's name is Zoe."),
    "whose thing": (["my phone's battery is dead"], "Noted: your phone's battery is dead."),
    "short verb": (["My dog's called Rex.", "What's my dog's name?"], "Your dog's name is Rex."),
    "born when": (["I was born in 1990", "when was I born?"], "You were born in 1990."),
    "born where": (["I was born in Leeds", "where am I from?"], "You come from Leeds."),
    "languages": (["I speak French and German", "what languages do I speak?"], "You speak French and German."),
    "no name": (["I think my name is great", "what is my name?"], "You have not told me that"),
    "somebody's friend": (["I'm Bob's friend.", "who am I?"], "You are Bob's friend."),
    "but not": (["I like coffee but not tea", "what do I dislike?"], "You do not like tea."),
    "birthday": (["I am 30.", "I am 31 now", "how old am I?"], "You are 31 (before, you said 30)."),
    "any statement": (["Our team plays chess on Fridays"], "Noted."),
    "about a thing": (["my phone's battery is dead", "what about my phone?"], "You said: “my phone's battery is dead”"),
    "sorry": (["I'm sorry"], "No problem at all."),
    "how are you": (["I'm Ann.", "how are you?"], "All is well here"),
    "okay": (["ok"], "All right."),
    "blame": (["you are stupid"], "I am sorry."),
    "不叫": (["我不叫安", "我叫什么？"], "你只告诉过我，你不叫安。"),
    "改口": (["我叫小明", "我不叫小明", "我叫什么？"], "你不叫小明。"),
    "是小红": (["我的名字不是小明，是小红", "我叫什么？"], "你叫小红。"),
    "不住": (["我住在北京", "我不住在北京了", "我住在哪里？"], "你不住在北京。"),
    "搬家": (["我从上海搬到了杭州", "我住哪"], "你住在杭州。"),
    "不过敏": (["我对花生不过敏", "我对什么过敏？"], "你对花生不过敏。"),
    "不再喜欢": (["我喜欢喝咖啡", "我不再喜欢咖啡了", "我喜欢什么？"], "这一点你还没有"),
    "省略主语": (["我喜欢喝咖啡，但是不喜欢茶", "我不喜欢什么？"], "你不喜欢茶。"),
    "姐姐": (["我姐姐叫小丽", "我姐姐叫什么名字？"], "你的姐姐叫小丽。"),
    "妹妹的名字": (["我妹妹的名字是安娜", "我妹妹叫什么？"], "你的妹妹叫安娜。"),
    "三十五": (["我三十五了", "我几岁？"], "你三十五岁。"),
    "几只": (["我有两只猫", "我有几只猫"], "你说过：“我有两只猫”"),
    "你多大": (["你多大了"], "我是 tenuto 的离线模型"),
    "你好吗": (["你好吗"], "这里一切都好"),
    "嗯": (["嗯"], "好的。"),
    "年龄，用中文问": (["I'm 34 years old", "我多大了？"], "你34岁。"),
}  # fmt: skip


@pytest.mark.parametrize(("words", "answer"), TALKS.values(), ids=TALKS)
async def test_what_was_said_is_found_again(words: list[str], answer: str) -> None:
    assert answer in await talk(*words)


CORRECTIONS = {
    "corrected": (
        ["My favourite colour is blue", "Actually it's green", "what's my favourite color?"],
        "is green (before",
    ),
    "correction noted": (
        ["My favourite colour is blue", "Actually it's green"],
        "Noted: your favourite colour is green.",
    ),
    "corrected after asking": (
        ["I'm Ann.", "I live in Rome.", "what is my name?", "No, it's Anna.", "who am I?"],
        "is Anna",
    ),
    "corrected after thanks": (
        ["My dog is called Rex.", "thanks", "Sorry, I meant Max", "what's my dog's name?"],
        "is Max",
    ),
    "corrected in one word": (["My name is Ann.", "no, Anna", "what is my name?"], "Your name is Anna"),
    "corrected, not": (["My car is red", "No, it's blue, not red.", "what is my car?"], "Your car is blue"),
    "corrected home": (["I live in Rome.", "Wait, that's wrong. It's Paris.", "where do I live?"], "You live in Paris"),
    "corrected like": (["I like tea.", "Actually, make that coffee", "what do I like?"], "You like coffee."),
    "corrected twice": (
        ["My car is red", "Actually it's blue", "no, it's black", "what is my car?"],
        "Your car is black",
    ),
    "corrected note": (
        ["The train leaves at 9:40.", "Actually it's 10:15", "When does the train leave?"],
        "it's 10:15",
    ),
    "nothing to correct": (
        ["The sky is grey.", "Actually it's green", "what's my favourite colour?"],
        "You have not told me",
    ),
    "no correction": (
        ["My name is Ann.", "no problem", "no, thanks", "sorry about that", "what is my name?"],
        "is Ann.",
    ),
    "another matter": (
        ["My car is red", "The sky is grey.", "Actually it's blue", "what is my car?"],
        "Your car is red.",
    ),
    "不对": (
        ["我最喜欢的颜色是蓝色", "不对，是绿色", "我最喜欢的颜色是什么？"],
        "你最喜欢的颜色是绿色（之前你说的是蓝色）。",
    ),
    "不对，记下": (["我最喜欢的颜色是蓝色", "不对，是绿色"], "记下了：你最喜欢的颜色是绿色。"),
    "其实": (["我叫小明", "其实是小红", "我叫什么？"], "你叫小红"),
    "说错了": (["我的猫叫咪咪", "说错了，应该是花花", "我的猫叫什么名字？"], "你的猫叫花花"),
    "不是…是": (["我最喜欢的颜色是蓝色", "不是蓝色，是绿色", "我最喜欢的颜色是什么？"], "颜色是绿色"),
    "user's list": (["I like: apples, pears, plums", "the second one"], "The second one was: pears."),
    "user's list noted": (["I like: apples, pears, plums"], "Noted: you like apples, pears, plums."),
    "user's list again": (["I like: apples, pears, plums", "Why is that?", "the last one"], "The last one was: plums."),
    "冒号列表": (["我喜欢：苹果，梨，李子", "第二个"], "第二个是：梨。"),
    "顿号列表": (["我喜欢：苹果、梨、李子", "为什么天是蓝的？", "第二个"], "第二个是：梨。"),
    "no list but a disclaimer": (["What is the capital of France?", "the second one"], "I see no list"),
}


@pytest.mark.parametrize(("words", "answer"), CORRECTIONS.values(), ids=CORRECTIONS)
async def test_the_newest_statement_wins_and_lists_are_those_of_the_talk(words: list[str], answer: str) -> None:
    assert answer in await talk(*words)


@pytest.mark.parametrize("words", [["Summarise what we said"], ["总结一下"]], ids=["en", "zh"])
async def test_a_summary_tells_what_was_told_and_not_the_small_talk(words: list[str]) -> None:
    answer = await talk(
        "Hello", "The trip to Kyoto starts on 3 May.", "What is my name?", "我们要住在祇园的旅馆。", "Thanks!", *words
    )

    rows = answer.splitlines()[1:]
    assert "Kyoto starts on 3 May" in rows[0]
    assert "祇园" in rows[1]
    assert len(rows) == 2


@pytest.mark.parametrize("request_", ["总结一下", "Summarise our conversation so far, please.", "请总结今天的对话"])
async def test_a_summary_leaves_out_that_one_was_asked_for(request_: str) -> None:
    told = ["The trip to Kyoto starts on 3 May.", "The summary of the report is due on Friday."]

    rows = (await talk(*told, request_, "Thanks!", "Summarise what we said")).splitlines()[1:]

    assert rows == [f"- You: {words}" for words in told]


async def test_a_summary_s_own_words_are_no_part_of_the_talk() -> None:
    """What the offline model says of itself comes back in a summary of older talk, and is not told again."""
    said_of_itself = (
        "For free answers connect a language model with the setting TENUTO_MODEL, such as openai:… or ollama:…."
    )
    part = {"type": "summary", "text": f"User: We fly to Kyoto.\nAssistant: Noted. {said_of_itself} All right."}
    history = [message(41, Role.ITEM, "", parts=(part,))]

    answer = await said(Asking(messages=(), turn=turn_of("summarise", history)))

    assert answer.splitlines()[1:] == ["- You: We fly to Kyoto."]


async def test_another_speaker_in_the_room_does_not_change_who_i_am() -> None:
    history = [
        message(1, Role.USER, "My name is Ann.", speaker="ann"),
        message(3, Role.USER, "My name is Bob.", speaker="bob"),
    ]

    answer = await said(Asking(messages=(), turn=turn_of("What is my name?", history)))

    assert answer == "Your name is Ann."


async def test_a_summary_of_older_talk_is_a_source_too() -> None:
    part = {"type": "summary", "text": "User: My name is Ann.\nAssistant: My name is Tenuto.", "through": 40}
    history = [message(41, Role.ITEM, "", parts=(part,)), message(43, Role.USER, "Hello")]

    assert await said(Asking(messages=(), turn=turn_of("What is my name?", history))) == "Your name is Ann."


async def test_without_a_turn_the_prompt_is_what_was_said() -> None:
    prompt = tuple(
        PromptMessage(role=role, parts=(text_part(text),))
        for role, text in (
            (Role.SYSTEM, "You are a guide. My name is Tenuto."),
            (Role.SYSTEM, "Summary of the conversation so far:\nUser: I live in Oslo."),
            (Role.USER, "My name is Ann."),
            (Role.ASSISTANT, "Noted."),
        )
    )

    async def ask(question: str) -> str:
        return await said(Asking(messages=(*prompt, PromptMessage(role=Role.USER, parts=(text_part(question),)))))

    assert await ask("What is my name?") == "Your name is Ann."
    assert await ask("Where do I live?") == "You live in Oslo."


async def test_a_stand_in_says_why_it_answers() -> None:
    asking = Asking(messages=(), turn=turn_of("What is the capital of France?"))

    assert (await said(asking, stand_in=True)).startswith("The language model cannot be reached just now")


class Clock:
    """A tool that knows when it is wanted, and can be broken."""

    def __init__(self, name: str = "clock", word: str = "time", broken: bool = False) -> None:
        self._name, self._word, self._broken = name, word, broken

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self._name, description="Tells it.", parameters={"type": "object"})

    async def run(self, arguments: JsonObject, turn: ToolContext) -> ToolOutput:
        raise Invalid("is not run here")

    def plan(self, turn: ToolContext) -> JsonObject | None:
        if self._broken:
            raise RuntimeError("oh")
        return {"zone": "utc"} if self._word in turn.question else None

    def render(self, output: Json, turn: ToolContext) -> str:
        return f"It is {output['now']}."


async def test_tools_that_see_themselves_wanted_are_called_once_and_then_tell() -> None:
    tools = [Clock(), Clock("calendar", "day"), Clock("wall", broken=True), Clock("other", "weather")]
    asking = Asking(messages=(), turn=turn_of("What time and day is it?"), tools=tuple(tool.spec for tool in tools))

    first = [event async for event in OfflineModel().answer(asking, tools)]
    calls = [event.call for event in first if isinstance(event, Called)]
    results = tuple(ToolResult(call=call, output={"now": call.name}) for call in calls)
    second = [event async for event in OfflineModel().answer(Asking(**{**_fields(asking), "results": results}), tools)]

    assert [call.name for call in calls] == ["clock", "calendar"]
    assert len({call.id for call in calls}) == 2
    assert first[-1] == Ended(model="offline", offline=True)
    assert "".join(event.text for event in second if isinstance(event, Said)) == "It is clock.\n\nIt is calendar."


async def test_a_tool_that_ran_before_the_model_is_not_called_again() -> None:
    result = ToolResult(call=ToolCall(id="1", name="clock"), output={"now": "noon"})
    asking = Asking(messages=(), turn=turn_of("What time is it?"), results=(result,))

    assert await said(asking, [Clock()]) == "It is noon."


@pytest.mark.parametrize(
    ("question", "answer"), [("What time is it?", "did not work"), ("time 现在几点？", "没有查成功")]
)
async def test_a_failed_lookup_is_told_in_the_askers_language(question: str, answer: str) -> None:
    result = ToolResult(call=ToolCall(id="1", name="clock"), failed="timeout")

    assert answer in await said(Asking(messages=(), turn=turn_of(question), results=(result,)), [Clock()])


async def test_answers_to_tools_are_sources_and_the_models_own_chatter_is_not() -> None:
    history = [
        message(1, Role.USER, "Which phones are there?"),
        message(2, Role.TOOL, "", parts=(tool_result("1", []),), turn=1),
        message(3, Role.ASSISTANT, "The Pixel phone costs 300 euros.", turn=1, metadata={"offline": True}),
        message(4, Role.USER, "What is a Pixel?", turn=2),
        message(5, Role.ASSISTANT, "Pixel, pixel, pixel: offline I know nothing.", turn=2, metadata={"offline": True}),
    ]

    answer = await said(Asking(messages=(), turn=turn_of("How much does the Pixel phone cost?", history)))

    assert answer == "I said: “The Pixel phone costs 300 euros.”"


SCRAPS = (
    "my name is i'm what 我叫 我的 是 什么 the second one 第二点 remember 记住 ? ？ . 。 , 、 and summarise 总结 hello "
    "你好 i like live in about 关于 a 1. - \n \0 \ud800 👩‍👩‍👧 第 最后一个"
)
TEXTS = st.one_of(
    st.text(max_size=80),
    st.lists(st.sampled_from(SCRAPS.split(" ")), max_size=14).map(" ".join),
)


@given(question=TEXTS, said_before=st.lists(TEXTS, max_size=5), chinese=st.booleans())
async def test_any_talk_gets_an_answer_that_a_store_can_keep(
    question: str, said_before: list[str], chinese: bool
) -> None:
    history = [message(at + 1, Role.ASSISTANT if at % 2 else Role.USER, text) for at, text in enumerate(said_before)]
    turn = turn_of(question, history)
    language = Language.CHINESE if chinese else Language.ENGLISH

    answer = await said(Asking(messages=(), turn=ToolContext(**{**_fields(turn), "language": language})))

    assert answer.strip()
    assert "\0" not in answer
    assert answer.encode()


@given(st.text())
def test_pieces_are_small_and_make_up_the_text(text: str) -> None:
    parts = list(pieces(text))

    assert "".join(parts) == text
    assert [grapheme for part in parts for grapheme in GRAPHEME.findall(part)] == GRAPHEME.findall(text)
    assert all(len(GRAPHEME.findall(part)) <= 24 for part in parts)


def test_a_piece_never_splits_a_character() -> None:
    family = "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"

    assert list(pieces(f"ab {family}{family}你好世e\u0301x")) == ["ab ", f"{family}{family}你", "好世e\u0301", "x"]


HUGE = {
    "one word": "a" * 1_000_000,
    "my": "my " * 330_000,
    "commas": "a, " * 330_000 + "what was the second one?",
    "spaces": "my name is" + " " * 1_000_000 + "?",
    "questions": "what did i say about " * 50_000,
    "我": "我叫" * 500_000,
    "、": "、的" * 500_000 + "第二点是什么",
    "就行了": ("我的猫叫" + "就行了" * 19 + "x，") * 15_000,
    "now": "I live in" + " , . : " * 150_000 + "now?",
    "blanks": "!" + " " * 1_000_000 + "thanks",
    "a list without an end": "first, " * 150_000 + "and",
    "一项": "一项" * 500_000 + "、",
}


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE)
async def test_a_huge_question_and_a_long_history_are_answered_all_the_same(text: str) -> None:
    """1 MB questions, 500 messages: the work is bounded by what is read (the limit is far above it)."""
    history = [message(at, Role.USER if at % 2 else Role.ASSISTANT, text[: 5_000 + at]) for at in range(1, 501)]

    for question in (
        text,
        "what is my name?",
        "the second one?",
        "summarise",
        "what did I say about trains?",
        "第二点？",
    ):
        assert await said(Asking(messages=(), turn=turn_of(question, history)))


TAILS = {
    "就行了": "就行了" * 200 + "x",
    "就好了": "就好了就可以了好了" * 60 + "x",
    "的": "的 " * 300 + "x",
}


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("text", TAILS.values(), ids=TAILS)
def test_a_tail_of_small_words_is_read_once(text: str) -> None:
    """The value of a fact: what would take minutes to years, were every way to cut it up tried, is done at once."""
    assert chinese.chinese_facts(f"请记住：我的名字是{text}")
    assert chinese.chinese_value(text) == text
    assert chinese.chinese_value(text[:-1]) in ("", text[:-1].strip())


@pytest.mark.usefixtures("brief")
def test_long_runs_of_blanks_and_commas_cost_what_they_are_long() -> None:
    """So often that a cubic reading takes half a minute, and one that reads once a second."""
    for _ in range(1000):
        assert english.english_value(" ,.:" * 59 + "x")
    for _ in range(200):
        assert items_in("first, second, " * 266 + "and") == []
        assert items_in("一项" * 2000) == []


LISTS = {
    "I need to buy milk, eggs and bread": ["milk", "eggs", "bread"],
    "We have red, green, blue, or black.": ["red", "green", "blue", "black"],
    "a, b": [],
    f"{'x' * 60}, b and c": ["x" * 40, "b", "c"],
    f"a, {'x' * 60}, b, c and d": ["x" * 40, "b", "c", "d"],
    f"{'a, ' * 30}b and c": ["a"] * 20 + ["b", "c"],
    "我要买牛奶、鸡蛋和面包": ["牛奶", "鸡蛋", "面包"],
    f"要买{'茶' * 40}、{'酒' * 40}、盐": ["茶" * 30, "酒" * 30],
}


@pytest.mark.parametrize(("text", "items"), LISTS.items(), ids=range(len(LISTS)))
def test_a_list_in_a_sentence_has_short_items(text: str, items: list[str]) -> None:
    assert items_in(text) == items


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}
