"""How people ask: which number, which words mean the same, and the small words that mean nothing to a catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tenuto.assistants.goods.words import either
from tenuto.model.expression import expression
from tenuto.model.numbers import whole

_SMALL_WORDS: Final = """
a about above actually all also am among an and another any anybody anyone anything are around as at available be
been before below best better between bit brand brands bucks budget but buy buying by can carry catalogue cheap
cheaper check choice choose cny color colors colour colours compare comparison cost costs could currently deal
describe description details did difference do does doing dollars don't each either else ever find for from get
getting give go goes good goods got great had has have having hello help here hey hi how i i'd i'll i'm i've if in
info information instead into is it item items its just kind kinds know less let like list little look looking lot
made make many may maybe me memory mine model models money more most much must my need needs new nice no not now of
off ok okay on one ones only option options or other others our out over own pair perhaps please prefer price priced
prices product products purchase ram rated rating ratings really recommend recommendation recommendations
recommended right rmb roughly s screen search see sell selling shall she shop should show size so some somebody
someone something sort sorts spec specs star stars stock storage stuff such suggest suggestion suggestions sure t
tell than thank thanks that that's the their them then there these they thing things think this those to today too
try type types under up us use used using versus very vs want wanted wants was we well were what what's when where
which who whose why will wish with within without work works worth would wouldn't yes yet you your yuan
"""
_SMALL_PHRASES: Final = """
有没有 有什么 有哪些 有木有 有啥 还有没有 还有什么 还有哪些 还有 推荐一下 推荐 介绍一下 介绍 给我 帮我 帮忙
我想要 我想买 我想 想要 想买 我要 我需要 需要 请问 请 看看 看一下 看一看 看下 找一下 找找 查一下 查找 查询 搜索
搜一下 来一 一下 一些 一点 有点 几款 几个 几种 几台 哪些 哪个 哪款 哪种 哪台 哪部 哪双 哪本 哪件
哪一款 哪一个 哪一台 哪一本 哪一双 哪里 什么样 什么 怎么样 怎么 如何 多少钱 多少
可以 能不能 能否 是否 是不是 适合 合适 比较 一款 一个 一台 一部 一双 一本 一件 一种 这种 那种 这样 那样 你们 你们店
我们 店里 这里 这儿 现在 目前 今天 最近 商品 产品 东西 牌子 品牌 款式 价格 价位 价钱 预算 左右 以内 以下 以上 之间
人民币 块钱 内存 存储 屏幕 颜色 用的 穿的 使用 以及 或者 还是 而且 并且 但是 不过 因为 所以 都不要 那款 这款 那个
这个 那台 这台 那双 这双 那本 这本 那件 这件 算了 谢谢 你好 您好 麻烦 好吗 行吗 可以吗 吗 呢 吧 啊 呀 嘛 的 了 和 与
或 跟 、 帮 您
"""


_POWERS: Final = {"k": 1000, "百": 100, "千": 1000, "万": 10_000}


def number(text: str) -> float:
    """A number written in digits (`2,000`, `1.5k`, `3千`), in English or in Chinese words (两千五)."""
    text = text.strip().replace(",", "").replace(" ", "")
    bare = text.rstrip("k千万百")
    if text[:1].isdecimal():
        return float(bare) * (_POWERS[text[len(bare)]] if len(bare) < len(text) else 1)
    return float(whole(text) or 0)


# Words of people for words of the catalogue; any of them will do.
SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        word: tuple(meant.split())
        for words, meant in (
            ("child children boy girl son daughter baby toddler", "kid baby"),
            ("elderly grandma grandpa grandmother grandfather parents", "senior"),
            ("girlfriend wife mother mom mum woman lady ladies", "women"),
            ("boyfriend husband father dad man", "men"),
            ("present birthday", "gift"),
            ("game games gamer", "gaming"),
            ("run runner jogging", "running"),
            ("sport", "sports"),
            ("anc noise-canceling canceling", "noise-cancelling cancelling"),
            ("pants", "trousers jeans"),
            ("jumper pullover", "sweater"),
            ("bike cycling", "bike bicycle"),
            ("study studying school", "student"),
            ("work", "office business"),
            ("sci-fi scifi", "科幻"),
            ("画画 绘图 画图", "画画 绘画"),
            ("photo photos photography", "camera 拍照"),
            ("孩子 小孩 小孩子 小朋友 宝宝 儿子 女儿", "儿童 宝宝"),
            ("老年人 爷爷 奶奶 爸妈 父母 长辈", "老人"),
            ("女朋友 女友 老婆 妻子 妈妈 女生 女孩子 女性", "女士 女装"),
            ("男朋友 男友 老公 丈夫 爸爸 男生 男性", "男士 男装"),
            ("礼物 送人 生日礼物 礼品", "礼物 送礼 礼盒"),
            ("玩游戏 打游戏", "游戏"),
            ("锻炼", "健身"),
            ("上班 工作", "办公"),
            ("上学 大学生", "学生"),
            ("拍照片 照相", "拍照"),
        )
        for word in words.split()
    }
)

STOP_WORDS: Final = frozenset(_SMALL_WORDS.split())
# Longest first, so that no piece of one is left behind.
STOP_PHRASES: Final = expression(either(_SMALL_PHRASES))
