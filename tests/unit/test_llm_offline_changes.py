"""The offline model and what changes: corrections, what is taken back, lists that grow, and plain statements."""

from __future__ import annotations

import pytest

from tests.unit.test_llm_offline import talk

CHANGES = {
    "second thought": (
        ["My hotel is the Ritz", "on second thought, the Savoy", "what is my hotel?"],
        "is the Savoy (bef",
    ),
    "changed my mind": (
        ["My favourite tea is oolong", "I've changed my mind, mint.", "what's my favourite tea?"],
        "is mint",
    ),
    "scratch": (["My visit is on Friday", "Scratch that, Monday", "when is my visit?"], "is on Monday (before"),
    "as it was put": (
        ["My shift is at 6", "make it 7", "when is my shift?"],
        "Your shift is at 7 (before, you said at 6).",
    ),
    "put anew": (["My shift is at 6", "actually it's in the evening", "when is my shift?"], "Your shift is in the eve"),
    "not put twice": (["I work as a nurse", "no, as a doctor", "what do I do?"], "You work as a doctor"),
    "from": (["I come from Leeds", "no, from York", "where am I from?"], "You come from York"),
    "it": (
        ["My flight is on 3 May", "it's been postponed", "when is my flight?"],
        "Later you said: “it's been postponed”",
    ),
    "it, of what was said": (
        ["The exam starts at ten.", "It's been cancelled.", "when does the exam start?"],
        "- You: It's been",
    ),
    "cost": (["My rent is 800 euros", "The rent went up to 900", "how much is my rent?"], "“The rent went up to 900”"),
    "said, then moved": (
        ["The party is at 8", "The party was moved to 9", "when is the party?"],
        "- You: The party was moved",
    ),
    "left": (["I live in Rome", "I moved out of Rome last week", "where do I live?"], "Later you said: “I moved out"),
    "retired": (["I work as a cook", "I retired and quit my job", "what do I do?"], "Later you said: “I retired"),
    "never said": (["I like figs", "I never said I like figs", "what do I like?"], "Later you said: “I never said"),
    "all": (
        ["My exam is on Tuesday", "The exam is cancelled", "what do you know about me?"],
        "“The exam is cancelled”",
    ),
    "taken back": (["My dog is called Rex", "wait, forget that", "what's my dog's name?"], "You have not told me that"),
    "taken back, told": (["My dog is called Rex", "Scratch that."], "All right, I leave that out from now on."),
    "taken back, quoted": (
        ["The key is blue.", "ignore that", "what colour is the key?"],
        "nothing in this conversation",
    ),
    "the one before": (["My dog is Rex", "My dog is Max", "forget that", "who is my dog?"], "Your dog is Rex."),
    "added": (
        ["Packing list: socks, hat, book", "add a torch", "what's on my packing list?"],
        "book\nLater you said: “add a",
    ),
    "removed": (
        ["Tasks: sweep, cook, iron", "please remove the second", "what's on my list?"],
        "“please remove the second”",
    ),
    "added is noted": (["Packing list: socks, hat, book", "add a torch"], "Noted."),
    "in short": (
        ["I work at Acme in Rome.", "I don't work at Acme any more", "where do I work?"],
        "You have only told me that you do not work at Acme.",
    ),
    "不过敏": (["我对海鲜过敏", "其实我不对海鲜过敏", "我对什么过敏？"], "你对海鲜不过敏。"),
    "not this, that": (
        ["My favourite city is Rome.", "no, it's not Rome, it's Turin", "what's my favourite city?"],
        "Your favourite city is Turin",
    ),
    "算了": (["我住在杭州", "算了，当我没说", "我住在哪里？"], "这一点你还没有"),
    "改主意": (
        ["我最喜欢的水果是苹果", "我改主意了，香蕉", "我最喜欢的水果是什么？"],
        "水果是香蕉（之前你说的是苹果）。",
    ),
    "说错了": (["我住在北京", "说错了，上海", "我住在哪里？"], "你住在上海（之前你说的是北京）。"),
    "不再一岁一岁": (["我今年29岁", "不对，30岁", "我几岁？"], "你30岁（之前你说的是29）。"),
    "是30岁": (["我今年不是29岁，是30岁", "我几岁？"], "你30岁。"),
    "哪里人": (["我不是北京人，是上海人", "我是哪里人？"], "你来自上海。"),
    "搬到": (["我不住在苏州了，现在搬到常州了", "我住在哪里？"], "你住在常州。"),
    "离职": (
        ["我在华为工作", "我从华为离职了，现在在小米上班", "我在哪里工作？"],
        "你在小米工作（之前你说的是华为）。",
    ),
    "辞职": (["我在华为工作", "我辞职了", "我在哪里工作？"], "你在华为工作。后来你说：“我辞职了”"),
    "改到": (["我的航班是周五", "改到周六了", "我的航班是什么时候？"], "你的航班是周六（之前你说的是周五）。"),
    "取消": (["我的面试是三点", "取消了", "我的面试是什么时候？"], "三点。后来你说：“取消了”"),
    "推迟": (["婚礼在周六", "婚礼推迟到下个月了", "婚礼什么时候？"], "- 你：婚礼推迟到下个月了"),
    "晚点": (["火车七点四十发车", "火车晚点二十分钟", "火车几点发车？"], "- 你：火车晚点二十分钟"),
    "当我没说": (["我养了一只猫叫咪咪", "当我没说", "我的猫叫什么？"], "这一点你还没有"),
    "再加": (["购物清单：牛奶、鸡蛋、面包", "再加黄油", "购物清单上有什么？"], "3. 面包\n后来你说：“再加黄油”"),
}

UNCHANGED = {
    "a word on something else": (["My name is Ann", "no, the weather is fine", "who am I?"], "Your name is Ann."),
    "the weather": (["My name is Ann", "Actually it's raining", "who am I?"], "Your name is Ann."),
    "another thing": (
        ["My train is at 7", "The dentist moved to Thursday.", "when is my train?"],
        "Your train is at 7.",
    ),
    "now": (["I live in Rome", "I love Rome now", "where do I live?"], "You live in Rome."),
    "forget it": (["what is love?", "forget it", "what did I say first?"], "“what is love?”"),
    "a name is not taken back": (["My name is Ann", "forget my name", "who am I?"], "Your name is Ann."),
    "no list": (["add a torch"], "nothing in this conversation answers that"),
    "another thing's language": (["My boss is called Helen.", "我的预算是多少？"], "这一点你还没有"),
    "不，谢谢": (["我叫小明", "不对，谢谢你", "我叫什么？"], "你叫小明。"),
    "别的事": (["我的面试是三点", "快递取消了", "我的面试是什么时候？"], "你的面试是三点。"),
}


@pytest.mark.parametrize(("words", "answer"), CHANGES.values(), ids=CHANGES)
async def test_what_changed_is_told_with_its_change(words: list[str], answer: str) -> None:
    assert answer in await talk(*words)


@pytest.mark.parametrize(("words", "answer"), UNCHANGED.values(), ids=UNCHANGED)
async def test_what_changes_nothing_leaves_it_as_it_was(words: list[str], answer: str) -> None:
    told = await talk(*words)

    assert answer in told
    assert "Later you said" not in told
    assert "后来你说" not in told


@pytest.mark.parametrize(
    "text",
    [
        "Groceries: milk and eggs",
        "Anna borrowed my drill",
        "The bakery opens at 7",
        "The parcel arrived yesterday",
        "Everyone loves the soup",
        "also the plumber on Monday at 9",
        "I don't have any allergies except figs.",
        "截止日期：12月12日",
        "房租每月三千元",
        "会议室换到三楼",
    ],
)
async def test_a_statement_is_acknowledged(text: str) -> None:
    assert (await talk(text)).startswith(("Noted", "记下了"))


@pytest.mark.parametrize(
    "text",
    [
        "best restaurants in Paris",
        "cheap flights to Oslo",
        "the cheapest phones",
        "Translate this: hello",
        "Write a poem: roses",
        "a story about dragons",
        "翻译：你好",
        "北京天气",
        "手机推荐",
    ],
)
async def test_what_wants_an_answer_is_not_noted(text: str) -> None:
    assert (await talk(text)).startswith(("I am the offline model", "我是离线模型"))


async def test_what_was_just_said_is_told_however_it_is_asked() -> None:
    assert await talk("天空是蓝色的。", "刚才我说了什么？") == "你说过：“天空是蓝色的。”"
