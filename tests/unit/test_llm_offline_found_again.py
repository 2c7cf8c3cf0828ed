"""What the offline model says it noted, it finds again: other wordings, changes, other languages, and summaries."""

from __future__ import annotations

import pytest

from tenuto.context import Counter
from tenuto.context.extract import summarise
from tenuto.llm.offline.kinds import Kind, fits, holds, kind_asked
from tenuto.model import Message, Role
from tenuto.model.prompt import Language
from tenuto.model.talk import Asking
from tests.unit.test_llm_offline import message, said, talk, turn_of

TALKS = {
    "女儿几岁": (["我女儿今年五岁", "我女儿几岁？"], "你说过：“我女儿今年五岁”"),
    "儿子多大": (["我儿子八岁了", "我儿子多大了？"], "我儿子八岁了"),
    "爸爸": (["我爸爸六十岁了", "我爸多大？"], "我爸爸六十岁了"),
    "不是妈妈": (["我爸爸六十岁了", "我妈多大？"], "没有这个问题的答案"),
    "几点开会": (["我明天上午十点有个会", "明天几点开会？"], "你说过：“我明天上午十点有个会”"),
    "干什么": (["我下周三要去北京开会", "我去北京干什么？"], "你说过：“我下周三要去北京开会”"),
    "什么颜色": (["我的车是红色的", "我的车是什么颜色"], "你说过：“我的车是红色的”"),
    "什么牌子": (["我的车是红色的", "我的车是什么牌子？"], "没有这个问题的答案"),
    "猫几岁": (["我的猫叫咪咪，今年两岁", "我的猫几岁？"], "你说过：“我的猫叫咪咪，今年两岁”"),
    "不是我几岁": (["我的猫叫咪咪，今年两岁", "我几岁？"], "这一点你还没有"),
    "不是时间": (["我买了一台电脑，花了六千块", "什么时候买的？"], "没有这个问题的答案"),
    "几楼": (["会议室在三楼", "会议室在几楼？"], "你说过：“会议室在三楼”"),
    "航班号": (["我的航班是CA1234", "我的航班号是多少？"], "你的航班是CA1234。"),
    "多少钱": (["这件大衣花了八百块", "大衣多少钱？"], "这件大衣花了八百块"),
    "改期": (["我的会议是周五下午三点", "会议改到周一了", "我的会议是什么时候？"], "三点。后来你说：“会议改到周一了”"),
    "那在哪": (["我的会议是周五，在302室", "会议改到周一了", "我的会议是什么时候？", "在哪里？"], "302室"),
    "几点": (["我周五下午三点要看牙医", "我什么时候看牙医？", "几点？"], "周五下午三点"),
    "左右都不懂": (["你好", "几点？"], "没有这个问题的答案"),
    "job": (["I live in Berlin and work as a nurse", "What do I do for a living?"], "You work as a nurse."),
    "home": (["I live in Berlin and work as a nurse", "where do I live?"], "You live in Berlin."),
    "three in one": (["I love tea, hate coffee and speak French", "what don't I like?"], "You do not like coffee."),
    "somebody else's": (["My parents live in Rome and work as nurses", "what do I do?"], "You have not told me"),
    "another name": (["My name is Ann", "I changed my name to Bea", "who am I?"], "Your name is Bea (before"),
    "from": (["Hi, I'm Ann from Berlin", "where am I from?"], "You come from Berlin."),
    "a baker from": (["I'm a baker from Ghent", "where do I come from?"], "You come from Ghent."),
    "only a baker": (["I'm a baker from Ghent", "what do I do?"], "You are a baker."),
    "from nowhere": (["I'm Ann from accounting", "where am I from?"], "You have not told me"),
    "not in English": (["我最喜欢的茶是龙井", "What's my favourite tea?"], "not told me that in English"),
    "quoted, not translated": (["我最喜欢的茶是龙井", "What's my favourite tea?"], "“我最喜欢的茶是龙井”"),
    "no favourite": (["我最喜欢的茶是龙井", "What's my dog's name?"], "You have not told me that in this"),
    "不是中文": (["My favourite colour is green", "我最喜欢的颜色是什么？"], "“my favourite colour is green”"),
    "moved": (
        ["My meeting is on Friday at 3pm in room 12", "I moved the meeting to Monday", "when is my meeting?"],
        "Later you said: “I moved the meeting to Monday”",
    ),
    "said anew": (
        ["My meeting is on Friday", "I moved the meeting", "My meeting is on Monday", "when is my meeting?"],
        "Your meeting is on Monday (before, you said on Friday).",
    ),
    "where it is": (
        ["My meeting is on Friday in room 12", "when is my meeting?", "Where is it?"],
        "You said: “My meeting is on Friday in room 12”",
    ),
    "cancelled": (["My exam is on Tuesday", "The exam is cancelled", "when is my exam?"], "“The exam is cancelled”"),
    "not its place": (["My car is red", "where is my car?"], "You have not told me that"),
    "its price": (["My rent is 800", "how much is my rent?"], "Your rent is 800."),
    "by number": (["Room 12 is for the party", "what is in room 12?"], "Room 12 is for the party"),
    "by another number": (["Room 12 is for the party at 1", "what is in room 1?"], "nothing in this conversation"),
    "the brother's": (["my brother's is Tom", "what's my brother's name?"], "Your brother's is Tom."),
    "capitals": (["My dog Rex is ill"], "Noted: your dog Rex is ill."),
    "capitals compared": (["My Favorite Color is green", "what's my favourite colour?"], "colour is green."),
}  # fmt: skip


@pytest.mark.parametrize(("words", "answer"), TALKS.values(), ids=TALKS)
async def test_what_was_noted_is_found_again(words: list[str], answer: str) -> None:
    assert answer in await talk(*words)


@pytest.mark.parametrize(
    ("question", "kind", "answer", "no_answer"),
    [
        ("When is it?", Kind.WHEN, "on Friday at three", "in room 12"),
        ("what time?", Kind.WHEN, "at 9:40", "in Rome"),
        ("where is it?", Kind.WHERE, "in room 12", "on Friday"),
        ("how old is she?", Kind.AGE, "she is 4 years old", "she is here"),
        ("which colour is it?", Kind.COLOUR, "it is grey", "it is big"),
        ("how much is it?", Kind.PRICE, "45 euros", "45 people"),
        ("几点？", Kind.WHEN, "上午十点", "在三楼"),
        ("在哪里？", Kind.WHERE, "在三楼", "改到周一"),
        ("多大了", Kind.AGE, "五岁", "五个"),
        ("什么颜色", Kind.COLOUR, "红色的", "很大"),
        ("多少钱", Kind.PRICE, "八百块", "八百人"),
    ],
)
def test_a_question_wants_a_kind_of_answer(question: str, kind: Kind, answer: str, no_answer: str) -> None:
    assert kind_asked(question) is kind
    assert holds(kind, answer)
    assert not holds(kind, no_answer)


def test_what_is_of_no_kind_may_be_any_answer() -> None:
    assert fits(Kind.WHEN, "after lunch")
    assert not fits(Kind.WHERE, "red")
    assert fits(None, "red")


async def test_a_name_is_known_however_much_was_noted_since() -> None:
    notes = [f"Remember that shelf {number} holds jar {number}." for number in range(30)]

    assert await talk("My name is Ann.", *notes, "What is my name?") == "Your name is Ann."


async def test_who_somebody_is_comes_before_notes_and_what_is_left_out_is_counted() -> None:
    notes = [f"Remember that shelf {number} holds jar {number}." for number in range(30)]

    rows = (await talk("My name is Ann.", *notes, "What do you know about me?")).splitlines()

    assert rows[1] == "- Your name is Ann."
    assert rows[-2] == "- Shelf 29 holds jar 29."
    assert rows[-1] == "And 15 more; ask me for any of it."


PLACES = [
    "bakery",
    "mill",
    "school",
    "bank",
    "church",
    "gym",
    "park",
    "inn",
    "zoo",
    "well",
    "pool",
    "farm",
    "barn",
    "arena",
    "court",
    "tower",
]
ENGLISH = ["My name is Ann and my passport expires in March.", "We fly to Oslo on 3 May."]
ENGLISH += [f"District {number} has a {place}." for number, place in enumerate(PLACES, 1)]
HALLS = [
    "茶馆",
    "书店",
    "学校",
    "银行",
    "剧院",
    "公园",
    "泳池",
    "农场",
    "画廊",
    "食堂",
    "花店",
    "药房",
    "球场",
    "车库",
    "邮局",
    "酒楼",
]
CHINESE = ["我叫李雷，护照三月到期", "我女儿今年五岁"] + [
    f"第{number}区有{hall}" for number, hall in enumerate(HALLS, 1)
]


def covered(texts: list[str], language: Language) -> list[Message]:
    """A talk with the offline model after a compression: all of it is in a summary."""
    replies = [message(2 * at, Role.ASSISTANT, "Noted.", metadata={"offline": True}) for at in range(1, len(texts) + 1)]
    asked = [message(2 * at - 1, Role.USER, text) for at, text in enumerate(texts, 1)]
    log = [one for pair in zip(asked, replies, strict=True) for one in pair]
    short = summarise(log, tokens=500, language=language, counter=Counter())
    return [message(len(log) + 1, Role.ITEM, "", parts=({"type": "summary", "text": short},))]


@pytest.mark.parametrize(
    ("texts", "language", "question", "answer"),
    [
        (ENGLISH, Language.ENGLISH, "What is my name?", "Your name is Ann."),
        (ENGLISH, Language.ENGLISH, "When does my passport expire?", "my passport expires in March"),
        (ENGLISH, Language.ENGLISH, "when do we fly to Oslo?", "We fly to Oslo on 3 May."),
        (ENGLISH, Language.ENGLISH, "What is in district 3?", "District 3 has a school."),
        (ENGLISH, Language.ENGLISH, "What is in district 13?", "District 13 has a barn."),
        (CHINESE, Language.CHINESE, "我叫什么？", "你叫李雷。"),
        (CHINESE, Language.CHINESE, "我女儿几岁？", "我女儿今年五岁"),
        (CHINESE, Language.CHINESE, "第3区有什么？", "第3区有学校"),
        (CHINESE, Language.CHINESE, "第13区有什么？", "第13区有球场"),
    ],
)
async def test_after_a_compression_names_plans_and_facts_are_found_in_the_summary(
    texts: list[str], language: Language, question: str, answer: str
) -> None:
    """E13, T12: what is told in short is a source for the next question."""
    history = covered(texts, language)

    assert answer in await said(Asking(messages=(), turn=turn_of(question, history)))
