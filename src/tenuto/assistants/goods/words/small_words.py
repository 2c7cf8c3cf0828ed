"""The small words that mean nothing to a catalogue, and what a text says without them."""

from __future__ import annotations

from typing import Final

from tenuto.assistants.goods.intent import MAX_TERM_CHARACTERS, MAX_TERMS
from tenuto.assistants.goods.words.text import HAN, either
from tenuto.assistants.goods.words.units import MEMORY_AND_STORAGE
from tenuto.model.expression import expression

_SMALL_WORDS: Final = """
a about above actually after all also am among an and another any anybody anymore anyone anything are around as at
available average be been before below best better between bit brand brands bucks budget but buy buying by can carry
catalogue cheap cheaper check choice choose cny color colors colour colours come comes compare comparison cost costs
could currently deal describe description details did difference do does doing dollars don't each either else ever
find for from get getting give go goes good goods got great had has have having hello help here hey hi how i i'd i'll
i'm i've if in info information instead into is it item items its just kind kinds know less let like likes list little
look looking lot loves made make many may maybe me memory mine model models money more most much must my need needs
new nice no not now of off ok okay on one ones only option options or order ordering other others our out over own
pair perhaps please prefer price priced prices product products purchase ram rated rating ratings really recommend
recommendation recommendations recommended right rmb roughly s screen search see sell selling shall she shop should
show size so some somebody someone something sort sorts spec specs spend spending star stars stock storage stuff such
suggest suggestion suggestions sure t tell than thank thanks that that's the their them then there these they thing
things think this those to today too try type types under up us use used using variant version versions versus very vs
want wanted wants was we well were what what's when where which who whose why will wish with within without work works
worth would wouldn't yes yet you your yuan
"""
_SMALL_PHRASES: Final = """
有没有 有什么 有哪些 有木有 有啥 还有没有 还有什么 还有哪些 还有 推荐一下 推荐 介绍一下 介绍 给我 帮我 帮忙
我想要 我想买 我想 想要 想买 我要 我需要 需要 请问 请 看看 看一下 看一看 看下 找一下 找找 查一下 查找 查询 搜索
搜一下 来一 一下 一些 一点 有点 几款 几个 几种 几台 哪些 哪个 哪款 哪种 哪台 哪部 哪双 哪本 哪件
哪几款 哪几个 哪几种 哪几台 哪几双 哪几本
哪一款 哪一个 哪一台 哪一本 哪一双 哪里 什么样 什么 怎么样 怎么 如何 多少钱 多少 多大 多久 多重 多长 多高 各
可以 能不能 能否 是否 是不是 适合 合适 比较 一款 一个 一台 一部 一双 一本 一件 一种 这种 那种 这样 那样 你们 你们店
我们 店里 这里 这儿 现在 目前 今天 最近 商品 产品 东西 牌子 品牌 款式 价格 价位 价钱 预算 平均 左右 以内 以下 以上 之间
人民币 块钱 内存 存储 屏幕 颜色 用的 穿的 使用 以及 或者 还是 而且 并且 但是 不过 因为 所以 都不要 那款 这款 那个
这个 那台 这台 那双 这双 那本 这本 那件 这件 算了 谢谢 你好 您好 麻烦 好吗 行吗 可以吗 吗 呢 吧 啊 呀 嘛 的 了 和 与
或 跟 、 帮 您
"""
STOP_WORDS: Final = frozenset(_SMALL_WORDS.split())
# Small words that names have in them.
IN_NAMES: Final = frozenset({"all", "for", "go", "one", "two", "type"})
# Longest first, so that no piece of one is left behind.
STOP_PHRASES: Final = expression(either(_SMALL_PHRASES))
_TERM: Final = expression(rf"[a-z0-9][a-z0-9+.'-]*[a-z0-9+]|[a-z0-9]|[{HAN}]+")
# 给孩子 asks for 孩子, and so does 给孩子买.
_VERBS: Final = expression(r"^(?:送给|给|送|买|找|要|个|想|能)+(?=..)|(?<=.)买$")


def terms_in(text: str) -> list[str]:
    """The words that are neither grammar nor politeness."""
    left = STOP_PHRASES.sub(" ", text)
    words = (_VERBS.sub("", word.removesuffix("'s")) for word in _TERM.findall(left))
    return [word[:MAX_TERM_CHARACTERS] for word in words if _tells(word)][:MAX_TERMS]


def name_in(text: str) -> str:
    """The words that can be a name together; in names even small ones count: "the Orbelle One"."""
    text = MEMORY_AND_STORAGE.sub(r"\1gb \2gb", text)
    words = [word.removesuffix("'s") for word in _TERM.findall(STOP_PHRASES.sub(" ", text))]
    named = [word for word in words if _tells(word) or word in IN_NAMES]
    return " ".join(named[:MAX_TERMS]) if any(word not in IN_NAMES for word in named) else ""


def _tells(word: str) -> bool:
    if word.isascii():
        return word not in STOP_WORDS and (len(word) > 1 or word.isdecimal())
    return (
        word not in "有我你要买找来送给用把将按比别看个款台部双本件那这还再就都也是在没好能会上下里中大小想请卖到只点些"
    )
