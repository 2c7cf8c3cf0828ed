"""The offline model's own words, in English and Chinese."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.llm.offline.facts import About, Fact
from tenuto.model.expression import expression
from tenuto.model.values import Value


class Phrases(Value, frozen=True, kw_only=True):
    """Whole sentences, but for the places in braces."""

    hello: str
    hello_name: str
    fine: str
    met: str
    forgiven: str
    all_right: str
    modest: str
    blamed: str
    welcome: str
    bye: str
    about: str
    can_tools: str
    connect: str
    languages: str
    stays: str
    taken_back: str
    no_reminders: str
    listed: str
    cannot: str
    cannot_again: str
    away: str
    noted: str
    noted_facts: str
    not_told: str
    not_in_this: str
    later: str
    only_denied: str
    all_facts: str
    more_facts: str
    no_facts: str
    also: str
    before: str
    item: str
    item_missing: str
    no_list: str
    you_said: str
    i_said: str
    you_asked_first: str
    earliest: str
    part: str
    nothing_yet: str
    found: str
    nothing_about: str
    summary: str
    you: str
    me: str
    failed: str
    empty: str
    comma: str
    stop: str


ENGLISH: Final = Phrases(
    hello="Hello!",
    hello_name="Hello, {name}!",
    fine="All is well here, thank you. What can I find for you?",
    met="Nice to meet you too.",
    forgiven="No problem at all.",
    all_right="All right.",
    modest="That is kind of you.",
    blamed="I am sorry. I am only the offline model: I find again what was said here, and understand little else.",
    welcome="You're welcome.",
    bye="Goodbye! This conversation stays here, so you can pick it up again at any time.",
    about=(
        "I am tenuto's offline model, not a language model: I find again what was said in this conversation. "
        "Tell me something (“My favourite colour is green”), ask for it later, or say “summarise”."
    ),
    can_tools="I also answer with what this assistant's own tools find.",
    connect="For free answers connect a language model with the setting TENUTO_MODEL, such as openai:… or ollama:….",
    languages="I answer in English and in Chinese, whichever you ask in.",
    stays="I take nothing back by myself: to have it gone, delete this conversation.",
    taken_back="All right, I leave that out from now on. It stays written in this conversation until you delete it.",
    no_reminders="I cannot remind anybody; it stays written in this conversation, where I find it again.",
    listed="This is the list:",
    cannot=(
        "I am the offline model, not a language model, and nothing in this conversation answers that. I can find again "
        "what was said here, list it or sum it up."
    ),
    cannot_again="Nothing in this conversation answers that, and offline I know nothing else.",
    away="The language model cannot be reached just now, so the offline model answers.",
    noted="Noted. Ask me about it whenever you like; I find it again in this conversation.",
    noted_facts="Noted: {facts}.",
    not_told="You have not told me that in this conversation yet.",
    not_in_this="You have not told me that in English, and I do not translate. In Chinese you said: {said}",
    later="Later you said: “{text}”",
    only_denied="You have only told me that {facts}",
    all_facts="This is what you have told me:",
    more_facts="And {count} more; ask me for any of it.",
    no_facts="You have not told me anything about yourself in this conversation yet.",
    also=", and also ",
    before=" (before, you said {value})",
    item="{place} was: {item}",
    item_missing="There is no such item: the list has {count}.",
    no_list="I see no list in this conversation that you could mean.",
    you_said="You said: “{text}”",
    i_said="I said: “{text}”",
    you_asked_first="Your first words were: “{text}”",
    earliest="The earliest of your words there are: “{text}”",
    part="I see only the newer part of this conversation.",
    nothing_yet="Nothing has been said in this conversation yet.",
    found="This is what I find in our conversation:",
    nothing_about="I find nothing about “{topic}” in this conversation.",
    summary="In short, this is what we talked about:",
    you="You: {text}",
    me="Me: {text}",
    failed="Looking that up did not work just now ({tools}). Please try again in a moment.",
    empty="I need a few words to go on. What would you like to know?",
    comma="; ",
    stop=".",
)

CHINESE: Final = Phrases(
    hello="你好！",
    hello_name="你好，{name}！",
    fine="这里一切都好，谢谢。需要我找什么？",
    met="我也很高兴认识你。",
    forgiven="没关系。",
    all_right="好的。",
    modest="谢谢你。",
    blamed="抱歉。我只是离线模型，只能找出这里说过的内容，别的懂得不多。",
    welcome="不客气。",
    bye="再见！这段对话会保留下来，你随时可以接着聊。",
    about=(
        "我是 tenuto 的离线模型，不是大语言模型：我能把这段对话里说过的内容找出来。"
        "可以先告诉我一些事（比如“我最喜欢的颜色是绿色”），之后再问我，或者说“总结一下”。"
    ),
    can_tools="我也会用这个助手自带的工具查到的结果来回答。",
    connect="想要自由问答，请用设置项 TENUTO_MODEL 接入一个语言模型，例如 openai:… 或 ollama:…。",
    languages="我用中文和英文回答，你用哪种问，我就用哪种答。",
    stays="我自己不会删改；要去掉说过的话，请删除这段对话。",
    taken_back="好的，之后我不再提它。要去掉说过的话，请删除这段对话。",
    no_reminders="我不能按时提醒，不过这句话留在了这段对话里，之后我能找到它。",
    listed="列表是这样的：",
    cannot="我是离线模型，不是大语言模型，这段对话里也没有这个问题的答案。我可以找出、列出或总结这里说过的内容。",
    cannot_again="这段对话里没有这个问题的答案，离线时我也不知道别的。",
    away="语言模型暂时联系不上，现在由离线模型回答。",
    noted="记下了。之后随时可以问我，我会在这段对话里找到它。",
    noted_facts="记下了：{facts}。",
    not_told="这一点你还没有在这段对话里告诉过我。",
    not_in_this="这一点你没有用中文告诉过我，我也不会翻译。你用英文说过：{said}",
    later="后来你说：“{text}”",
    only_denied="你只告诉过我，{facts}",
    all_facts="你告诉过我这些：",
    more_facts="还有 {count} 条，可以随时问我。",
    no_facts="在这段对话里，你还没有告诉过我关于你自己的事。",
    also="，还有",
    before="（之前你说的是{value}）",
    item="{place}是：{item}",
    item_missing="没有这一项：列表里一共有 {count} 项。",
    no_list="这段对话里没有看到你指的列表。",
    you_said="你说过：“{text}”",
    i_said="我说过：“{text}”",
    earliest="其中你最早的一句话是：“{text}”",
    part="我只看得到这段对话里较新的部分。",
    you_asked_first="你的第一句话是：“{text}”",
    nothing_yet="这段对话里还没有说过什么。",
    found="我在我们的对话里找到这些：",
    nothing_about="这段对话里没有找到关于“{topic}”的内容。",
    summary="简单来说，我们聊了这些：",
    you="你：{text}",
    me="我：{text}",
    failed="刚才没有查成功（{tools}），请稍后再试一次。",
    empty="请多说几个字，我才知道你想问什么。",
    comma="；",
    stop="。",
)

_PLACE: Final = expression(r"\{\w+\}")


def is_own(sentence: str) -> bool:
    """Whether the offline model says this of itself, or says it again: no part of what a talk is about."""
    return _OWN.fullmatch(sentence.strip()) is not None


def _own_sentences() -> Iterator[str]:
    """Patterns of all that is said in ready-made words, sentence by sentence; those of a single word tell nothing."""
    for phrases in (ENGLISH, CHINESE):
        for name in phrases.__struct_fields__:
            for sentence in _END.split(getattr(phrases, name)):
                words = _PLACE.split(sentence.strip().rstrip("。."))
                if len("".join(words)) > _SHORT:
                    yield ".{1,600}?".join(map(re.escape, words))


_END: Final = expression(r"(?<=[.!?])\s+|(?<=[。！？])")
_SHORT: Final = 3
_OWN: Final = expression(rf"(?:{'|'.join(_own_sentences())})[。.]?", re.DOTALL)

_ENGLISH_FACTS: Final = {
    About.NAME: "your name is {value}",
    About.AGE: "you are {value}",
    About.BORN: "you were born {value}",
    About.HOME: "you live in {value}",
    About.ORIGIN: "you come from {value}",
    About.JOB: "you work as {value}",
    About.WORKPLACE: "you work {value}",
    About.BEING: "you are {value}",
    About.LIKES: "you like {value}",
    About.DISLIKES: "you do not like {value}",
    About.ALLERGY: "you are allergic to {value}",
    About.SPEAKS: "you speak {value}",
    About.OWN: "your {label} {verb} {value}",
    About.NOTE: "{value}",
}
_ENGLISH_DENIED: Final = {
    About.NAME: "your name is not {value}",
    About.AGE: "you are not {value}",
    About.BORN: "you were not born {value}",
    About.HOME: "you do not live in {value}",
    About.ORIGIN: "you do not come from {value}",
    About.JOB: "you do not work as {value}",
    About.WORKPLACE: "you do not work {value}",
    About.BEING: "you are not {value}",
    About.ALLERGY: "you are not allergic to {value}",
    About.SPEAKS: "you do not speak {value}",
    About.OWN: "your {label} {verb} not {value}",
}
_CHINESE_FACTS: Final = {
    About.NAME: "你叫{value}",
    About.AGE: "你{value}岁",
    About.BORN: "你{value}出生",
    About.HOME: "你住在{value}",
    About.ORIGIN: "你来自{value}",
    About.JOB: "你的工作是{value}",
    About.WORKPLACE: "你在{value}工作",
    About.BEING: "你是{value}",
    About.LIKES: "你喜欢{value}",
    About.DISLIKES: "你不喜欢{value}",
    About.ALLERGY: "你对{value}过敏",
    About.SPEAKS: "你会说{value}",
    About.OWN: "你{of}{label}{verb}{value}",
    About.NOTE: "{value}",
}
_CHINESE_DENIED: Final = {
    About.NAME: "你不叫{value}",
    About.AGE: "你不是{value}岁",
    About.BORN: "你不是{value}出生",
    About.HOME: "你不住在{value}",
    About.ORIGIN: "你不是来自{value}",
    About.JOB: "你的工作不是{value}",
    About.WORKPLACE: "你不在{value}工作",
    About.BEING: "你不是{value}",
    About.ALLERGY: "你对{value}不过敏",
    About.SPEAKS: "你不会说{value}",
    About.OWN: "你{of}{label}不{verb}{value}",
}
_PREPOSITION: Final = expression(r"^(?:at|for|in) ")
# What English puts around a value and Chinese says by other means.
_ENGLISH_AROUND: Final = expression(r"^(?:at|for|in|on) |(?: years? old| yo)$")
_TURNED: Final = {
    "i am": "you are", "i'm": "you're", "i've": "you've", "i'll": "you'll", "i'd": "you'd", "i was": "you were",
    "i": "you", "me": "you", "my": "your", "mine": "yours", "myself": "yourself",
}  # fmt: skip
_FIRST_PERSON: Final = expression(rf"\b(?:{'|'.join(_TURNED)})\b", re.IGNORECASE)


def fact_words(fact: Fact, chinese: bool) -> str:
    """A fact, told to the one who told it, as a clause."""
    value, label = turned(fact.value), turned(fact.label)
    if label and chinese is label.isascii():
        return _in_own_words(fact, chinese)
    if chinese:
        verb = fact.verb if fact.verb and not fact.verb.isascii() else "是"
        of = "" if label.startswith("最") else "的"
        said = _CHINESE_DENIED if fact.denied else _CHINESE_FACTS
        return said[fact.about].format(value=_ENGLISH_AROUND.sub("", value), label=label, of=of, verb=verb)
    if fact.about is About.WORKPLACE and not _PREPOSITION.match(value):
        value = f"at {value}"
    verb = fact.verb if fact.verb.isascii() and fact.verb else "is"
    return (_ENGLISH_DENIED if fact.denied else _ENGLISH_FACTS)[fact.about].format(value=value, label=label, verb=verb)


def _in_own_words(fact: Fact, chinese: bool) -> str:
    """What the user calls theirs has its name in one language only; in the other it is quoted."""
    return ("你说过" if chinese else "you said ") + quote_of(fact)


def quote_of(fact: Fact) -> str:
    """A fact about what the user calls theirs, as they put it."""
    if fact.label.isascii():
        return f"“my {fact.label} {fact.verb}{' not' if fact.denied else ''} {fact.value}”"
    of, no = "" if fact.label.startswith("最") else "的", "不" if fact.denied else ""
    return f"“我{of}{fact.label}{no}{fact.verb}{fact.value}”"


def turned(text: str) -> str:
    """The same words from the other side: my becomes your, 我 becomes 你."""
    return _FIRST_PERSON.sub(lambda found: _TURNED[found[0].lower()], text).replace("我", "你")
