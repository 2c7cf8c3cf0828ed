"""The offline model and what is claimed: whose a thing is, what is only asked or supposed, where a value ends.

Each class of sentences stands beside sentences that look like it and are none of it.
"""

from __future__ import annotations

import pytest

from tenuto.context import Counter
from tenuto.context.extract import summarise
from tenuto.model import Role
from tenuto.model.prompt import Language
from tenuto.model.stops import ends_sentence
from tenuto.model.talk import Asking
from tests.unit.test_llm_offline import message, said, talk, turn_of

UNTOLD = "You have not told me that in this conversation yet."
NOT_SAID = "这一点你还没有在这段对话里告诉过我。"

OWNERS = {
    "mine before hers": (
        ["My vet is in York.", "My dog's vet is in Leeds.", "where is my vet?"],
        "Your vet is in York.",
    ),
    "hers": (
        ["My vet is in York.", "My dog's vet is in Leeds.", "where is my dog's vet?"],
        "Your dog's vet is in Leeds.",
    ),
    "only his": (["My brother's email is tom@example.org", "what is my email?"], UNTOLD),
    "only mine": (["My school was Oak Hill.", "what was my daughter's school?"], UNTOLD),
    "two owners": (["My sister's daughter's name is Mia", "what's my daughter's name?"], UNTOLD),
    "quoted, not mine": (["Tom's address is 3 Hill Rd.", "what is my address?"], UNTOLD),
    "her": (["Her birthday is in June", "when is my birthday?"], UNTOLD),
    "of whom": (["The colour of my bike is red", "what is my bike's colour?"], "Your bike's colour is red."),
    "of whom, not mine": (["The salary of my boss is 90", "what is my salary?"], UNTOLD),
    "beside mine": (["The milk in my fridge is sour"], "Noted. "),
    "whole before part": (["My rent is 8", "My garage rent is 2", "what is my rent?"], "Your rent is 8."),
    "parts": (
        ["My home code is 12", "My office code is 34", "what is my code?"],
        "Your home code is 12; your office code is 34.",
    ),
    "a work phone is no work": (["My work address is 9 Oak Ave.", "what is my work address?"], "address is 9 Oak Ave"),
    "keys are no car": (["My car is a Fiat", "My car keys are lost", "what is my car?"], "Your car is a Fiat."),
    "asked for a colour": (["My car is red", "My father's car is black", "what colour is my car?"], "“My car is red”"),
    "an old one": (["My address is 3 Elm Rd", "My old address is 9 Oak Rd", "what is my address?"], "is 3 Elm Rd."),
    "possession is no verb": (
        ["My sister's Toyota broke down", "who is my sister?"],
        "“My sister's Toyota broke down”",
    ),
    "asked of whom": (["my gate code is 4711", "what's the gate code of my office?"], UNTOLD),
    "and his": (["My husband is Arjun and his birthday is 4 July.", "who is my husband?"], "Your husband is Arjun."),
    "mine beside hers": (
        ["Eva's birthday is on 1 June, mine is on 5 June", "when is my birthday?"],
        "mine is on 5 June",
    ),
    "her allergy": (["My sister has a nut allergy", "what am I allergic to?"], UNTOLD),
    "my allergy": (["I have a nut allergy", "what am I allergic to?"], "You said: “I have a nut allergy”"),
    "女儿过敏": (["我女儿对牛奶过敏", "我对什么过敏？"], NOT_SAID),
    "我的": (["我的车是红色的", "我爸爸的车是黑色的", "我的车是什么颜色？"], "你说过：“我的车是红色的”"),
    "老婆的": (["我老婆的电话是123", "我的电话是多少？"], NOT_SAID),
    "老婆的电话": (["我的电话是9", "我老婆的电话是123", "我老婆的电话是多少？"], "你的老婆的电话是123。"),
    "妹妹的": (["我妹妹的生日是5月2日，我的生日是3月1日", "我的生日是哪天？"], "你的生日是3月1日。"),
    "公司的": (["我公司的地址是南山路1号", "我的地址是哪里？"], NOT_SAID),
    "他的": (["他的生日是六月", "我的生日是哪天？"], NOT_SAID),
    "工作手机": (["我的手机号是111", "我的工作手机号是222", "我的手机号是多少？"], "你的手机号是111。"),
}

UNCLAIMED = {
    "am I": (["Am I 40 years old?", "how old am I?"], UNTOLD),
    "do, unmarked": (["do i live in oslo", "where do i live?"], UNTOLD),
    "would you": (["Would you believe I speak Finnish?", "what languages do I speak?"], UNTOLD),
    "tag": (["I'm a nurse, aren't I?", "what do I do?"], UNTOLD),
    "rising": (["My dog is called Rex?", "what's my dog's name?"], UNTOLD),
    "whole": (["Can my budget be said to be so, or is it that my budget is 5?", "what is my budget?"], UNTOLD),
    "pretend": (["Let's pretend I'm a pirate", "what do I do?"], UNTOLD),
    "assuming": (["Assuming my budget is 500, what can I buy?", "what is my budget?"], UNTOLD),
    "what if": (["What if I work at NASA?", "where do I work?"], UNTOLD),
    "one day": (["When I'm 64 I will retire", "how old am I?"], UNTOLD),
    "wanted": (["I want to move to Rome and live in peace", "where do I live?"], UNTOLD),
    "a question takes nothing back": (
        ["I like tea.", "I hate figs", "Do I like figs?", "what do I like?"],
        "like tea.",
    ),
    "call me later": (["Please call me later", "who am I?"], UNTOLD),
    "call me at": (["call me at 5", "who am I?"], UNTOLD),
    "hedged is quoted": (["I think my flight is at 9", "when is my flight?"], "You said: “I think my flight is at 9”"),
    "maybe": (["Maybe I like jazz", "what do I like?"], "You said: “Maybe I like jazz”"),
    "others' words": (["He says I am a liar", "what do I do?"], "You said: “He says I am a liar”"),
    "never said": (["I didn't say I live in Rome", "where do I live?"], "You said: “I didn't say I live in Rome”"),
    "told to others": (["I told my boss my name is Max", "who am I?"], "You said: “I told my boss my name is Max”"),
    "not true": (["It's not true that I am 30", "how old am I?"], "You said: “It's not true that I am 30”"),
    "no question": (["I didn't say my car is red"], "Noted. "),
    "还是问": (["我住在上海吧？", "我住在哪里？"], NOT_SAID),
    "对不对": (["我叫小明，对不对", "我叫什么？"], NOT_SAID),
    "问号": (["我叫小明？", "我叫什么？"], NOT_SAID),
    "要是": (["要是我住在海边就好了", "我住在哪里？"], NOT_SAID),
    "假设": (["假设我叫李四", "我叫什么？"], NOT_SAID),
    "想象": (["想象我是一名宇航员", "我是做什么的？"], NOT_SAID),
    "以为": (["我以为我对花生过敏", "我对什么过敏？"], "你说过：“我以为我对花生过敏”"),
    "没说过": (["我从来没说过我喜欢爬山", "我喜欢什么？"], "你说过：“我从来没说过我喜欢爬山”"),
    "别人说": (["大家都说我的猫叫胖胖", "我的猫叫什么？"], "你说过：“大家都说我的猫叫胖胖”"),
}

CLAIMED = {
    "before a question": (
        ["I'm allergic to nuts, is this safe to eat?", "what am I allergic to?"],
        "allergic to nuts.",
    ),
    "that is said too": (["I'm allergic to nuts, is this safe to eat?"], "Noted: you are allergic to nuts. I am the"),
    "and a question": (["My name is Ann and I live in Rome, what about you?", "where do I live?"], "You live in Rome."),
    "after a polite one": (["May I introduce myself, my name is Ann", "who am I?"], "Your name is Ann."),
    "said": (["I said my name is Ann", "who am I?"], "Your name is Ann."),
    "as told": (["As I told you, I live in Rome", "where do I live?"], "You live in Rome."),
    "if you must": (["If you must know, I'm 50", "how old am I?"], "You are 50."),
    "known": (["I know that my flight is at 9", "when is my flight?"], "Your flight is at 9."),
    "not this but that": (["I'm not hungry and I live in Rome", "where do I live?"], "You live in Rome."),
    "call me": (["please call me ann", "who am I?"], "Your name is ann."),
    "everyone": (["Everybody calls me Izzy", "who am I?"], "Your name is Izzy."),
    "是一名": (["我叫王芳，是一名老师，住在武汉", "我住哪儿？"], "你住在武汉。"),
    "heard": (["My name is Ann, ok?", "who am I?"], "Your name is Ann."),
    "is that ok": (["My email is kim@example.com, is that ok?", "what's my email?"], "Your email is kim@example.com."),
    "你呢": (["我叫小明，你呢？", "我叫什么？"], "你叫小明。"),
    "你叫什么": (["我叫李雷，你叫什么名字？", "我叫什么？"], "你叫李雷。"),
    "告诉过": (["我告诉过你我住在成都", "我住在哪里？"], "你住在成都。"),
    "如果你想": (["如果你想知道，我今年40岁", "我几岁？"], "你40岁。"),
}

ENDS = {
    "vet": (["My dentist is Dr. Alvarez and my vet is Mrs. Kim", "who is my vet?"], "Your vet is Mrs. Kim."),
    "dentist": (
        ["My dentist is Dr. Alvarez and my vet is Mrs. Kim", "who is my dentist?"],
        "Your dentist is Dr. Alvarez.",
    ),
    "initials": (["My teacher is Prof. J. R. Lee. I like tea.", "who is my teacher?"], "is Prof. J. R. Lee."),
    "after initials": (["My teacher is Prof. J. R. Lee. I like tea.", "what do I like?"], "You like tea."),
    "firm": (["I work for Acme Inc. in Boston.", "where do I work?"], "You work for Acme Inc. in Boston."),
    "country": (["I was born in the U.S. in 1990.", "when was I born?"], "You were born in 1990."),
    "born": (["I was born in the U.S. in 1990.", "where was I born?"], "You come from the U.S."),
    "noon": (["My exam is at 10 a.m. My name is Ann."], "Noted: your exam is at 10 a.m.; your name is Ann."),
    "small letters": (["my doctor is dr. smith", "who is my doctor?"], "Your doctor is dr. smith."),
    "saint": (["I live in St. Ives now. It is nice.", "where do I live?"], "You live in St. Ives."),
    "street": (["My address is 5 Elm St. My shop is in York.", "what is my address?"], "Your address is 5 Elm St."),
    "letter": (["My blood type is B. My name is Ann.", "what is my blood type?"], "Your blood type is B."),
    "no": (["My name is Ann", "No. Anna.", "who am I?"], "Your name is Anna"),
}


@pytest.mark.parametrize(("words", "answer"), OWNERS.values(), ids=OWNERS)
async def test_what_is_mine_is_not_somebody_else_s(words: list[str], answer: str) -> None:
    assert answer in await talk(*words)


@pytest.mark.parametrize(("words", "answer"), UNCLAIMED.values(), ids=UNCLAIMED)
async def test_what_is_asked_or_supposed_is_no_fact_and_what_is_hedged_is_quoted(words: list[str], answer: str) -> None:
    assert answer in await talk(*words)


@pytest.mark.parametrize(("words", "answer"), CLAIMED.values(), ids=CLAIMED)
async def test_what_is_told_beside_a_question_or_in_other_words_is_a_fact(words: list[str], answer: str) -> None:
    assert answer in await talk(*words)


@pytest.mark.parametrize(("words", "answer"), ENDS.values(), ids=ENDS)
async def test_a_value_does_not_end_at_an_abbreviation(words: list[str], answer: str) -> None:
    assert answer in await talk(*words)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("at 9 a.m. on Friday", False),
        ("at 9 a.m. Friday", False),
        ("at 9 a.m. It is late", True),
        ("Mr. Okafor", False),
        ("in St. Louis", False),
        ("5 Elm St. Tom lives there", True),
        ("Room No. 5", False),
        ("No. Paris", True),
        ("tea. tom", True),
        ("Acme Inc. Tom", True),
        ("tea.", True),
    ],
)
def test_a_stop_ends_a_sentence_or_an_abbreviation(text: str, ends: bool) -> None:
    stops = [place for place, sign in enumerate(text) if sign == "." and text[place + 1 : place + 2] in ("", " ")]

    assert ends_sentence(text, stops[0]) is ends


async def test_after_a_compression_an_abbreviation_still_ends_nothing() -> None:
    """E13: the summary takes talk apart at the same places."""
    told = message(1, Role.USER, "My meeting with Dr. Lee is at 9 a.m. on Friday in St. Ives.")
    short = summarise([told], tokens=200, language=Language.ENGLISH, counter=Counter())
    history = [message(2, Role.ITEM, "", parts=({"type": "summary", "text": short},))]

    answer = await said(Asking(messages=(), turn=turn_of("when is my meeting with Dr. Lee?", history)))

    assert "at 9 a.m. on Friday in St. Ives" in answer


LONG = {
    "刚": "我" + "刚" * 390,
    "对": "别" + "对" * 390 + "我叫",
    "后来": "后来刚" * 39,
    "and": "and " * 100 + "i told my " * 20,
    "the": "the " * 90 + "ed",
    "my": "my a's " * 60,
    "dots": "a.b." * 500 + " c",
}


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
async def test_words_over_and_over_cost_what_they_are_long(text: str) -> None:
    """Each is read once, not in every way to cut it up."""
    for question in (text, f"{text}？", "what is my name?", "what do you know about me?"):
        assert await said(Asking(messages=(), turn=turn_of(question, [message(1, Role.USER, text)] * 20)))
