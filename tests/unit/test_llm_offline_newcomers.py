"""The offline model with newcomers: what they say first, in both languages, answered without pretence."""

from __future__ import annotations

import pytest

import tenuto
from tenuto.llm.offline.lists import items_in
from tenuto.llm.offline.talk import Line
from tenuto.model import Role
from tenuto.model.talk import Asking
from tests.unit.test_llm_offline import message, said, talk, turn_of

TALKS = {
    "called": (["I have a dog called Rex and two cats", "what's my dog's name?"], "Your dog's name is Rex."),
    "named": (["I've got a sister named Zoe.", "what is my sister called?"], "Your sister's name is Zoe."),
    "names without a verb": (["I have two cats, Mia and Tom", "and my cats' names?"], "I have two cats, Mia and Tom"),
    "no name was said": (["my dog is brown", "what's my dog's name?"], "You have not told me that"),
    "numbered in a line": (["My trip: 1. Lisbon 2. Madrid 3. Rome", "which city is second?"], "was: Madrid."),
    "last of them": (["I like Mia, Tom and Sue", "Trip: 1. Lisbon 2. Rome", "and the last one?"], "was: Rome."),
    "summed up whole": (["My trip: 1. Lisbon 2. Madrid 3. Rome", "summarize"], "My trip: 1. Lisbon 2. Madrid 3. Rome"),
    "first": (["hi", "what is the capital of France?", "what did I ask first?"], "Your first words were: “hi”"),
    "first said": (["hi", "I like tea.", "what did I say first?"], "Your first words were: “hi”"),
    "last told": (["hi", "I like tea.", "what did I tell you last?"], "You said: “I like tea.”"),
    "thanks and bye": (["thanks, bye"], "Goodbye!"),
    "this": (["what is this?"], "I am tenuto's offline model"),
    "languages": (["Can you speak Chinese?"], "I answer in English and in Chinese"),
    "our": (["my wife is called Anna and our son is Ben", "what's my wife's name?"], "Your wife's name is Anna."),
    "whole list": (["I need to buy: milk, eggs and bread", "what's on my list?"], "1. milk\n2. eggs\n3. bread"),
    "to forget is no question": (["My name is Ann", "forget my name"], "I take nothing back by myself"),
    "an order is not noted": (["remove the eggs"], "nothing in this conversation answers that"),
    "no reminders": (["remind me to call mum at 5pm"], "I cannot remind anybody"),
    "connecting": (["how do I connect a model?"], "TENUTO_MODEL"),
    "work": (["How does this work?"], "I am tenuto's offline model"),
    "狗叫": (["我有一只狗叫旺财，还有两只猫", "我的狗叫什么名字？"], "你的狗叫旺财。"),
    "养了": (["我养了一只猫叫咪咪", "我的猫叫什么？"], "你的猫叫咪咪。"),
    "一行的列表": (["我打算去：1. 上海 2. 北京 3. 西安", "第二个是哪个城市？"], "第二个是：北京。"),
    "列表的最后": (["我打算去：1. 上海 2. 北京 3. 西安", "最后一个呢？"], "最后一个是：西安。"),
    "整句总结": (["我打算去：1. 上海 2. 北京 3. 西安", "总结一下"], "1. 上海 2. 北京 3. 西安"),
    "搬家": (["我住在杭州", "其实我上个月搬到苏州了", "我现在住在哪里？"], "你住在苏州（之前你说的是杭州）。"),
    "第一句": (["你好", "法国的首都是哪里？", "我第一个问题是什么？"], "你的第一句话是：“你好”"),
    "谢谢再见": (["谢谢，再见"], "不客气。再见！"),
    "这是什么": (["这是什么？"], "我是 tenuto 的离线模型"),
    "省略的我": (["我是汤姆，今年42岁，来自上海", "我几岁？"], "你42岁。"),
    "我是谁": (["我是汤姆，今年42岁", "我叫什么？"], "你说过：“我是汤姆，今年42岁”"),
    "很喜欢": (["我不喜欢咖啡，但是很喜欢茶", "我喜欢什么？"], "你喜欢茶。"),
    "整个清单": (["我要买：牛奶、鸡蛋和面包", "我的清单上有什么？"], "1. 牛奶\n2. 鸡蛋\n3. 面包"),
    "忘掉": (["我叫小明", "忘掉我的名字"], "我自己不会删改"),
    "不是记事": (["去掉鸡蛋"], "这段对话里也没有这个问题的答案"),
    "提醒": (["提醒我五点给妈妈打电话"], "我不能按时提醒"),
    "接入": (["怎么接入模型？"], "TENUTO_MODEL"),
    "GPT": (["你是ChatGPT吗？"], "我是 tenuto 的离线模型"),
    "安全吗": (["我的数据安全吗？"], "我是离线模型"),
    "语言": (["你会说英语吗？"], "我用中文和英文回答"),
}  # fmt: skip


@pytest.mark.parametrize(("words", "answer"), TALKS.values(), ids=TALKS)
async def test_newcomers_are_answered_in_their_language(words: list[str], answer: str) -> None:
    assert answer in await talk(*words)


@pytest.mark.parametrize(
    ("question", "answer", "part"),
    [
        ("what is my dog's name?", "You have not told me that", "I see only the newer part"),
        ("what did I ask first?", "“so it goes”", "I see only the newer part"),
        ("what do you know about me?", "You have not told me anything", "I see only the newer part"),
        ("what did I say about Rome?", "nothing about “Rome”", "I see only the newer part"),
        ("我的狗叫什么名字？", "你还没有", "较新的部分"),
        ("我第一个问题是什么？", "“so it goes”", "较新的部分"),
    ],
)
async def test_of_a_talk_that_is_not_seen_to_its_beginning_no_more_is_claimed(
    question: str, answer: str, part: str
) -> None:
    newer = [message(41, Role.USER, "so it goes"), message(42, Role.ASSISTANT, "Noted.", metadata={"offline": True})]

    told = await said(Asking(messages=(), turn=turn_of(question, newer)))

    assert answer in told
    assert part in told


async def test_a_talk_whose_first_words_were_edited_is_seen_to_its_beginning() -> None:
    """Sequence numbers are never given twice, so that it begins with a later one."""
    async with tenuto.open("memory://") as t:
        ann = t.scope(user="ann")
        session = (await t.ask(ann, "My cat is ill.")).session_id
        await t.ask(ann, "My name is Ann.", session_id=session, edit=1)

        first = await t.ask(ann, "what did I say first?", session_id=session)
        other = await t.ask(ann, "what is my dog's name?", session_id=session)

    assert first.text == "Your first words were: “My name is Ann.”"
    assert other.text == "You have not told me that in this conversation yet."


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("Trip: 1. Lisbon 2. Madrid 3. Rome", ["Lisbon", "Madrid", "Rome"]),
        ("1) tea, 2) milk", ["tea", "milk"]),
        ("去：1、上海 2、北京", ["上海", "北京"]),
        ("I paid 1. It was 3. Fine", []),
        ("It is 1.5 or 2.5 km", []),
    ],
)
def test_what_is_numbered_within_a_line_is_a_list(text: str, items: list[str]) -> None:
    assert items_in(text) == items


def test_a_figure_ends_a_sentence_where_it_counts_nothing() -> None:
    assert Line(text="I am 35. I live in Porto.").sentences() == ["I am 35.", "I live in Porto."]
    assert Line(text="Trip: 1. Lisbon 2. Rome. Nice!").sentences() == ["Trip: 1. Lisbon 2. Rome.", "Nice!"]
