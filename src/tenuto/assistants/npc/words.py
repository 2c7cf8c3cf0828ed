"""What a text is looked up by: English words without their endings, Chinese in pairs of characters or in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

LOOKED_AT: Final = 2000
"""So much of a text is read."""
# A figure by itself counts something, and is no subject; a year may be one.
_WORD: Final = re.compile(r"(?![0-9]{1,2}(?![a-z0-9]))[a-z0-9]+|[\u3400-\u9fff]+")
_ENDINGS: Final = re.compile(r"(?<=[a-z]{2})(?P<y>i(?:es|ed)|y)$|(?<=[a-z]{3})(?:ing|ed|es|s|e)$")
_Y: Final = re.compile(r"(?<=[a-z]{2})y$")
_COMMON_WORDS: Final = """
a about afterwards all also altogether am an and another any anybody anyone anything are as at be because been but by
bye called came can come could did do does during else everybody everyone exactly for from get give go goodbye got had
happen happened happens has have he her here him his how i if in is it its just let like many may me mine more most
much my no nobody not now of on or other our out please really say she since should so some somebody someone such tell
than that the their them then there these they this till those to today tomorrow until too total up us use used uses
very want was we went were what when where which while who whom whose why will with would yesterday yet you your one
ones thing things know s t re ll ve
"""
_COMMON_PAIRS: Final = """
请问 什么 怎么样 怎么 怎样 如何 哪个 哪些 哪里 为什 可以 能不 不能 多少 几个 一下 一个 有没 没有 是不 不是 我想 想要
再见 知道 告诉 诉我 给我 我讲 讲讲 说说 介绍 绍一 谢谢 你好 您好 一些 这个 那个 的是 是什 是谁 有什 有哪 还有
一起 一共 总共 大概 大约 到底 究竟 最后 后来 当时 曾经 其实 开始 有关于 关于 有关 时候 期间 发生 村里 换一 来一
当过 做过 有过 去过 到过 来过 是否 能否 可否 地方 之后 之前 以后 以前 影响
"""
# Forms that no ending tells, and words that mean the same to somebody who asks about a place.
_SAME_WORDS: Final = """
children:child kids:child kid:child men:man women:woman wrote:write written:write built:build began:begin begun:begin
taught:teach kept:keep sold:sell burnt:burn led:lead gave:give given:give brought:bring bought:buy made:make
became:become held:hold stood:stand knelt:kneel ate:eat eaten:eat left:leave lost:lose paid:pay hung:hang drew:draw
fought:fight chose:choose won:win threw:throw thrown:throw grew:grow grown:grow sank:sink dug:dig rowed:row carved:cut
carve:cut engraved:cut inscribed:cut shut:close start:begin started:begin starts:begin wed:wedding marry:marriage
married:marriage opens:open founder:found founded:found establish:found established:found died:die dies:die dead:die
death:die deaths:die killed:die kill:die lying:lie lies:lie lied:lie liar:lie stolen:steal
"""
# Characters that hold a sentence together; a pair with one of them says nothing about the subject.
_HOLDING: Final = frozenset(
    "是的了吗呢么怎啊呀吧在有和与及个这那其它我你您他她们请什哪谁为会能把被就都也还又很用来叫要对于"
)
# Characters that are no subject when they stand alone, such as 做 in 怎么做.
_NO_SUBJECT: Final = _HOLDING | frozenset("做说讲问看想去给好不没到得过干办行再上下里中一二三四五六七八九十")
_HAN: Final = re.compile(r"[\u3400-\u9fff]")
_SAME: Final = dict(pair.split(":") for pair in _SAME_WORDS.split())
_COMMON: Final = frozenset((_COMMON_WORDS + _COMMON_PAIRS).split())
_ASIDE: Final = re.compile("|".join(_COMMON_PAIRS.split()))


def terms(text: str) -> list[str]:
    """What a text is looked up by: English words without their endings, Chinese in pairs of characters."""
    found: list[str] = []
    for word in _WORD.findall(text[:LOOKED_AT].lower()):
        if word[0].isascii():
            # Looked for before its ending goes: "like" is common, "lik" is nothing.
            found += [] if word in _COMMON else [_stem(_SAME.get(word, word))]
        else:
            for run in _ASIDE.split(word):
                pairs = (run[place : place + 2] for place in range(len(run) - 1))
                found += [pair for pair in pairs if _HOLDING.isdisjoint(pair)]
    return found


def _stem(word: str) -> str:
    # "pay", "pays" and "paying" are one word.
    return _Y.sub("i", _ENDINGS.sub(lambda ending: "i" if ending["y"] else "", word))


def subjects(text: str) -> list[str]:
    """Single Chinese characters that a short question may be about: 盐 in 盐是什么."""
    return [sign for sign in _HAN.findall(_ASIDE.sub(" ", text[:LOOKED_AT])) if sign not in _NO_SUBJECT]


Known: TypeAlias = Callable[[str], bool]
"""Whether two characters stand side by side anywhere in what is looked through."""


def asked_for(text: str, known: Known, joined: Known) -> list[str]:
    """What a question is looked up by: its terms, its Chinese cut into words where pairs of characters are known.

    A pair that nobody knows is looked up by its two characters where they are `joined`, as 铁耙 is where rakes and iron
    are spoken of.
    """
    runs = [run for word in _WORD.findall(text[:LOOKED_AT].lower()) for run in _ASIDE.split(word)]
    return [term for run in runs for term in (terms(run) if run.isascii() else _cut(run, known, joined))]


def _cut(run: str, known: Known, joined: Known) -> Iterator[str]:
    """The pairs of a run that are known, then what stands between them: pairs, or one character alone."""
    places = [place for place in range(len(run) - 1) if known(run[place : place + 2])]
    yield from (run[place : place + 2] for place in places)
    explained = {place + step for place in places for step in (0, 1)}
    rest = "".join(" " if place in explained or sign in _HOLDING else sign for place, sign in enumerate(run))
    for stretch in rest.split():
        alone = len(stretch) == 1 or (len(stretch) == 2 and joined(stretch))
        yield from subjects(stretch) if alone else terms(stretch)
