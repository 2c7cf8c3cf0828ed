"""What goods a question about orders names: "did the sleeping bag ship?", 投影仪到哪了, "did I ever buy headphones?".

Such a question is a frame with a gap, and what fills the gap is the thing. Where it is filled, "it" was not left out:
the order spoken of before is not the one that is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from tenuto.assistants.goods.words import name_in
from tenuto.model.expression import expression
from tenuto.model.numbers import CARDINAL, ORDINAL

PERSON: Final = (
    r"wife|husband|mother|mom|mum|father|dad|brother|sister|son|daughter|child|kid|girlfriend|boyfriend|partner|fianc[eé]e?"
    r"|aunt|uncle|cousin|niece|nephew|grand(?:ma|pa|mother|father|son|daughter)|friend|buddy|mate|boss|manager|colleague"
    r"|co-?worker|classmate|roommate|flatmate|neighbou?r|teacher|client|customer"
)
HAN_PERSON: Final = (
    r"老婆|妻子|太太|老公|丈夫|爱人|对象|女朋友|男朋友|女友|男友|妈妈?|母亲|爸爸?|父亲|爸妈|父母|公公|婆婆|岳母|岳父|儿子|女儿|孩子"
    r"|哥哥?|姐姐?|弟弟?|妹妹?|爷爷|奶奶|外公|外婆|姥姥|姥爷|叔叔|阿姨|舅舅|姑姑|表[哥姐弟妹]|家人|亲戚"
    r"|朋友|闺蜜|哥们|同事|同学|室友|邻居|老板|领导|老师|客户|顾客"
)

_EN: Final = r"[a-z0-9][a-z0-9 '+.-]{1,40}?"
_SHOP: Final = r"(?!(?:store|shop|sale|discount|site|website|price|delivery (?:man|guy|service))\b)"
# "Does it ship with a charger?" and "do they come in red?" are asked of goods.
_THEN: Final = r"(?= (?:yet|already|today|tomorrow|soon|now|home|back|this|next)\b|\W*$)"
_UNDER_WAY: Final = (
    rf"(?:ship(?:ped|ping)?{_THEN}|sent{_THEN}|arriv(?:e|ed|ing)\b|delivered\b|dispatched\b|refunded\b|returned\b"
    rf"|cancell?ed\b|paid(?: for)?{_THEN}|com(?:e|ing){_THEN}|here yet\b|out for delivery\b"
    r"|on (?:its|the|their) way\b|in transit\b)"
)
_BETWEEN: Final = r"(?:(?:been|be|already|yet|still|finally|really|not|now|got|get) )*"
_NOW: Final = r"(?= (?:now|right|at|yet|order|please|i|that|from)\b|\W*$)"
_BOUGHT: Final = r"(?:buy|bought|order(?:ed)?|purchased?)"
_ENGLISH: Final = (
    rf"\b(?:has|have|hasn't|haven't|did|didn't|is|isn't|are|aren't|was|wasn't|were|will) (?:the|my|our) {_SHOP}"
    rf"({_EN}) {_BETWEEN}{_UNDER_WAY}",
    rf"\bwhen (?:will|is|are|does|do|did|can|should|was|were) (?:the|my|our) {_SHOP}({_EN}) {_BETWEEN}"
    rf"(?:{_UNDER_WAY}|expected\b|due\b|here\b|ordered\b|bought\b|purchased\b)",
    rf"\b(?:the|my|our) {_SHOP}({_EN}) (?:(?:has|have|did|is|are|was|were)(?:n't| not)|never|still) "
    rf"(?:(?:has|have|is|are|not|never)(?:n't| not)? )?{_BETWEEN}{_UNDER_WAY}",
    rf"\b(?:never|not|haven't|hasn't|didn't|don't) (?:yet )?(?:received?|got|gotten|get) (?:my|the|our) ({_EN}){_NOW}",
    rf"\bwhere(?:'s| is| are) my ({_EN}){_NOW}",
    r"\b(?:status|whereabouts|track(?:ing)?(?: number)?|news|updates?) (?:of |on |for |about )?"
    rf"(?:the|my|our) ({_EN}){_NOW}",
    rf"\bwhat (?:happened|is happening) (?:to|with) (?:the|my|our) ({_EN}){_NOW}",
    r"\b(?:where|when|has|have|did|is|was|status|track|cancel|return|happened)\b[^,.?]{0,20} the "
    rf"({_EN}) (?:that )?i(?:'ve| have)? (?:just )?(?:got|received|bought|ordered|purchased|paid)\b",
    r"\b(?:did|didn't|have|haven't|had) i (?:(?:ever|already|also|once|actually|previously|not|really|just) )*"
    rf"{_BOUGHT} (?:(?:a|an|any|some|the|my|that|this|another|these|those|pair of) )*"
    rf"({_EN})(?= (?:here|before|already|yet|from you|with you|last|this|in|on|at|or)\b|\W*$)",
    rf"\b(?:what|which|how many|how much) ({_EN}) (?:did|have|had) i (?:(?:ever|already|just) )*{_BOUGHT}\b",
    r"\b(?:how much|what) (?:did|have|had) i (?:spen[dt]|pa(?:y|id)) (?:for|on) "
    rf"(?:(?:the|my|our|all|these|those|a|an) )*({_EN})(?= (?:last|this|in|altogether|so far|again|back)\b|\W*$)",
    rf"\bhow much (?:was|were|did) my ({_EN})(?= cost| order|\W*$)",
)
# With orders just shown, "the projector" is one of them.
_ENGLISH_SHOWN: Final = (
    rf"\bwhere(?:'s| is| are) (?:the|our) ({_EN}){_NOW}",
    rf"\bhow much (?:was|were|did) (?:the|our) ({_EN})(?= cost| again|\W*$)",
    r"^(?:and |what about |how about |and what about )?(?:the|my) "
    rf"(?![^?]*\b(?:is|are|was|were|has|have|i)\b)({_EN})\W*$",
)

_HAN: Final = r"[^,，。!！?？\s]"
_ASKS: Final = r"(?:了?[吗么没]|了没有)"
_WHEN: Final = r"(?:什么时候|啥时候|何时|几号|哪天|几时|多久|多长时间)"
_HAN_UNDER_WAY: Final = (
    rf"(?:到哪[里儿]?[了啦]|(?:到|送到|送达|发货|发出|寄出|出库|签收){_ASKS}|(?:退款|退货|取消|付款|付钱|退|寄|发)了[吗么没]"
    r"|(?:为什么|怎么|为啥|咋)(?:会|就)?被?(?:取消|退款|退货|退回)"
    rf"|{_WHEN}(?:才|能|会|可以)*(?:到|送[到达货来]|发货|发出|寄|收到|退款)"
    r"|没有?(?:到货?|发货|发出|收到|送到|送达|签收|退款)(?=了?\W*$|[呢吗啊])|(?:还|怎么)不(?:到|发货)(?=了?\W*$|[呢吗啊]))"
)
_MEASURE: Final = r"[个款台部双本件次盒包张条种]"
_ONCE: Final = r"(?:以前|之前|曾经|有没有|是不是|是否|到底|好像|也|都|已经|还|总共|一共|上次|最近|是|从来)*"
_BUY: Final = r"(?:买|订|订购|购买|下单)"
_CHINESE: Final = (
    rf"^({_HAN}{{1,14}}?){_HAN_UNDER_WAY}",
    rf"(?:我|咱们?|^){_ONCE}{_BUY}过(?!的)(?:(?:几|多少|哪些?|哪几|什么|[一两]){_MEASURE}?)?({_HAN}{{1,10}}?)(?:[吗么没]|没有|\W*$)",
    rf"(?:我|咱们?){_ONCE}{_BUY}过的({_HAN}{{1,10}}?)(?:都?有哪些|是哪|\W*$)",
    rf"(?:我|咱们?){_ONCE}{_BUY}了(?:几|多少|哪些|哪几){_MEASURE}?({_HAN}{{1,10}}?)\W*$",
    rf"(?:我|咱们?){_ONCE}{_BUY}了(?:[一两]{_MEASURE})?({_HAN}{{1,10}}?)[吗么没]\W*$",
    rf"^({_HAN}{{1,10}}?)(?:我|咱们?){_ONCE}{_BUY}过",
    rf"(?:我|咱们?){_ONCE}{_WHEN}{_BUY}的({_HAN}{{1,10}}?)\W*$",
    rf"^({_HAN}{{1,10}}?)(?:我|是)*(?:{_WHEN}|(?:花了?)?多少钱?){_BUY}的",
    rf"(?:买|在)({_HAN}{{1,8}}?)上?{_ONCE}花了(?:多少|几)",
    rf"^({_HAN}{{1,10}}?){_ONCE}花了我?(?:多少|几)",
)
_CHINESE_SHOWN: Final = (
    rf"^({_HAN}{{1,10}}?)(?:现在)?在哪[里儿]?[了呢]?\W*$",
    rf"^(?:那|那么)?({_HAN}{{1,8}}?)呢\W*$",
)
# Whoever wants to give something back; 退烧药 and 退休 are other things.
_BACK: Final = tuple(
    map(
        expression,
        (
            r"\b(?:want|like|need|have|going|wish|trying) to (?:return|exchange|send back|give back) "
            rf"(?:the|my|our|these|those|this) ({_EN})"
            r"(?= (?:back|i|that|which|because|since|from|for|please|as)\b|\W*$)",
            rf"(?:要|想|需要|申请|打算)退(?:掉|还|货)?(?![货款换休出房税烧步])(?:我的|这个|那个)?({_HAN}{{1,8}}?)\W*$",
            rf"把({_HAN}{{1,8}}?)退(?:了|掉|货|回)",
            rf"^({_HAN}{{1,8}}?)(?:我)?(?:想|要)退(?:了|掉|货|款|\W*$)",
        ),
    )
)
_FRAMES: Final = tuple(map(expression, (*_ENGLISH, *_CHINESE)))
_FRAMES_SHOWN: Final = tuple(map(expression, (*_ENGLISH_SHOWN, *_CHINESE_SHOWN)))
# These do not tell by themselves that it is about orders: "my phone is on ...", 睡袋的订单, "the phone you sent me".
_BESIDE: Final = tuple(
    map(
        expression,
        (
            r"\bmy (?:new )?([a-z][a-z -]{2,30}?)"
            r"(?= (?:ship|arriv|been|on|here|deliver|yet|com|going|order|sent|still|is|was)|\W*$)",
            r"\bthe ([a-z][a-z -]{2,30}?) (?:that )?"
            r"(?:you (?:have )?(?:sent|delivered)|i (?:have )?(?:got|received|bought|ordered))",
            r"(?:收到|(?<![想要])买|订|你们[发寄送]|[发寄送]来)的([^,，。!！?？\s是到发]{1,8}?)"
            r"(?=屏幕|电池|用|打|开|充|是|坏|碎|裂|破|到|发|有|不|没|怎|$|[,，。!！?？])",
            rf"\bcancel (?:the|my|our) ({_EN}){_NOW}",
            rf"取消(?:掉|我的|那个|这个)*({_HAN}{{1,8}}?)\W*$",
            rf"把({_HAN}{{1,8}}?)取消",
            r"我的([^,，。!！?？\s]{1,8}?)(?=到|发|送|什么时候|在哪|呢|怎么|还没|签收)",
            rf"^({_HAN}{{1,10}}?)的?(?:订单|快递|包裹|物流|单子|[那这]一?单)",
        ),
    )
)
_NO_GOODS: Final = expression(
    r"(?:(?:last|this|next|in|on|from|since|yesterday|today|before|here|already|yet) ?\b.*)"
    rf"|(?:(?:latest|last|recent|newest|other|next|most|expensive|cheapest|biggest|whole|all|{ORDINAL}|{CARDINAL}) )*"
    rf"(?:orders?|packages?|parcels?|deliver(?:y|ies)|shipments?|purchases?|refunds?|ones?|{ORDINAL}|{CARDINAL}|last|latest"
    r"|other|others|rest|cheapest|money|account|address|stuff|things?|items?|goods|products?|anything|something|everything|total|times?|pieces?)"
    r"(?: status| number)?"
    r"|(?:已经?|未|没有?|待|被|还没有?|正在|在|不)?(?:取消|退货|退款|换货|退换|退|付款|支付|发货|签收|送达|收货|完成|运输|寄出|到货|路上|途中)"
    r"[中了过]*"
    r"|(?:超过|低于|高于|大于|小于|不到|最贵|最便宜|最近|最新|最早|最后)?(?:一|\d+(?:元|块钱?)?)?(?:以上|以下|以内|多)?"
    r"|东西|订单|单子?|快递|包裹|货|物流|商品|购物|全部|什么"
)
# What stands around a thing, and is none: whose it is, when, and how it is asked.
_AROUND: Final = expression(
    r"^(?:那么?|请问|麻烦|帮我|帮忙|给我|[查看问][一下]*|我想知道|想问|所以|但是?|可是|(?:我们?|咱们?|你们?|您)(?:家?的)?"
    rf"|新?(?:买|订|下单|购买|收到|寄|发)的|(?:{HAN_PERSON})的"
    r"|(?:昨天|前天|今天|刚才|刚刚|刚|之前|以前|上次|最近|上上?个?(?:周|月|星期)|这个?(?:周|月)|本[周月]|去年|今年"
    r"|\d{1,4}(?:年|月份?|[日号])|[一二三四五六七八九十]{1,2}月份?)的?"
    r"|[它他她]们?|[这那]一?[个款台部双本件些单笔]|第[一二三四五六七八九十\d]+[个款台部双本件单笔]?"
    r"|现在|目前|大概|大约|预计|估计|到底|究竟|应该|一般|具体|最快|最晚|还|都|又|也|就|是|会|能|可以|可能|已经?|怎么|为什么"
    r"|总共|一共|所有的?|全部的?)"
    r"|(?:的|我|是|都|还|又|已经?|大概|预计|到底|究竟|现在|今天|明天|后天|一共|总共|怎么|为什么|有没有|最快|最晚|一直|了)$"
)
_AND: Final = expression(r" (?:and|or|&) (?:(?:my|the|our|a|an) )?|(?<=.)[和跟与及、](?=.)(?:我的)?")
_ENGLISH_AROUND: Final = expression(
    rf"^(?:(?:new|other|whole|{PERSON})(?:'s)? )+(?=.)| (?:order|package|parcel|already|yet|now|then|again|please)$"
)


def thing_in(text: str, shown: bool) -> str:
    """The goods that a question of orders names; where orders were `shown` last, a name is enough."""
    return next(_things(text, (*_FRAMES, *_BACK, *_BESIDE, *(_FRAMES_SHOWN if shown else ()))), "")


def asks_of_a_thing(text: str, shown: bool) -> bool:
    """Whether it can only be asked of something that was ordered, and says what that is."""
    return any(_things(text, (*_FRAMES, *(_FRAMES_SHOWN if shown else ()))))


def wants_to_give_back(text: str) -> bool:
    """Whether something that was bought is to go back: "I want to return the earbuds", 把耳机退了."""
    return any(_things(text, _BACK))


def _things(text: str, frames: Iterable[re.Pattern[str]]) -> Iterator[str]:
    fillings = (found[1] for frame in frames if (found := frame.search(text)) is not None)
    return filter(None, map(_thing, fillings))


def _thing(said: str) -> str:
    """What fills the gap without what stands around it, with commas between several; nothing where it is no goods."""
    bare = _ENGLISH_AROUND.sub("", said.strip())
    while (inner := _AROUND.sub("", bare)) != bare:
        bare = inner
    names = (name_in(part) for part in _AND.split(bare) if not _NO_GOODS.fullmatch(part))
    return ", ".join(name for name in names if name and not _NO_GOODS.fullmatch(name))
