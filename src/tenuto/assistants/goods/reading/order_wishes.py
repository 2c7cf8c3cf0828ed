"""What somebody wants of the own orders: those on the way, those of last month, that of a phone; and complaints."""

from __future__ import annotations

import re
from typing import Final

from tenuto.assistants.goods.intent import OrderState, Period, Pick
from tenuto.model.expression import expression

# Something is wrong with it, whatever it is.
_BROKEN: Final = expression(
    r"\b(?:complain(?:t|ts|ing)?|broken|damaged|defective|faulty|not working|doesn't work|stopped working|wrong item"
    r"|(?:does not|doesn't|won't|will not|can't|cannot|didn't|did not) (?:even )?"
    r"(?:work|(?:turn|switch|power) on|start|boot|charge)"
    r"|refund(?! polic)|(?:get|want) my money back|return (?:it|this|my|the item)|terrible service)\b"
    r"|投诉|坏了|[是都全]坏的|破了|破损|损坏|碎了|裂了|开不了机|打不开了|充不[上了进]电|质量问题|假货|发错|少发|漏发|差评"
    r"|(?:我要|想|申请|怎么)(?:退货|退款|换货|退换|退$)|售后"
)
# Something came, and somebody is not glad about it.
_CAME: Final = expression(
    r"\b(?:you (?:have )?(?:sent|delivered)|i (?:have )?(?:got|received|bought|ordered)|my order"
    r"|(?:it|order|parcel) (?:came|arrived))\b"
    r"|收到|(?<![想要])买的|你们[发寄送]的|寄来|发来"
)
_WRONG: Final = expression(
    r"\b(?:unhappy|angry|disappoint(?:ed|ing)|dissatisfied|unacceptable|awful|terrible|horrible|useless|rubbish|garbage"
    r"|crap|dead|scam|fake|cracked|scratched|smashed|shattered|torn|leak(?:s|ing|ed)?|dirty|empty|missing|wrong|stained"
    r"|smells?)\b"
    r"|坏|碎|裂[了开纹缝]|破[了损洞的]|漏[水电油了]|脏|划痕|瑕疵|用不了|没法用|不能用|不亮|不转|不响|不对|有问题|是假的|假的|错的|差劲|垃圾|失望|生气|不满意|骗"
)
# Not glad about us, without saying why.
_UPSET: Final = expression(
    r"\bi(?:'m| am) (?:\w+ )?(?:unhappy|angry|disappointed|furious|dissatisfied)\b"
    r"|\bripped off\b|\bworst (?:shop|service)\b"
    r"|太差劲|太让人失望|太失望|什么破|垃圾(?:店|商品|服务)|骗人|骗子|气死"
)

# A "not" first: what is not sent yet is not sent. Nothing here is ever unpaid, which is an answer too.
_STATES: Final[tuple[tuple[tuple[OrderState, ...], str], ...]] = (
    (
        ("unpaid",),
        r"\bunpaid\b|\b(?:not|haven't|hasn't|isn't|aren't)\b[^,.?]{0,16}\bpaid\b|\bawaiting payment\b"
        r"|[没未待](?:有)?(?:付款|支付|付钱)",
    ),
    (
        ("paid", "shipped"),
        r"\b(?:not|haven't|hasn't|never|still to)\b[^,.?]{0,16}\b(?:arriv|deliver|receiv)|\bundelivered\b"
        r"|\b(?:pending|outstanding|open(?= orders?\b))\b|没(?:有)?(?:到|收到|送到|签收|完成)|未(?:到|签收|送达|完成)",
    ),
    (
        ("paid",),
        r"\b(?:not|haven't|hasn't)\b[^,.?]{0,16}\b(?:ship|sent|left|dispatch)|\b(?:unshipped|unsent)\b"
        r"|待发货|[没未](?:有)?发(?:货|出)?",
    ),
    (
        ("shipped",),
        r"\bon (?:the|its|their) way\b|\bin transit\b|\bshipped\b|\bdispatched\b"
        r"|在路上|运输|在途|待收货|已经?发[货出]|发货了?的",
    ),
    (("delivered",), r"\bdelivered\b|\barrived?\b|\breceived\b|\bcompleted\b|签收|送[到达]|到货|到了|已完成|收到"),
    (("cancelled",), r"\bcancell?ed\b|\bdid i (?:ever )?cancel\b|取消[了过]?的|已取消|取消[了过]|被取消"),
    (("refunding",), r"\bbeing refunded\b|\brefunding\b|退款中|在退款"),
    (("refunding", "returned"), r"\brefunded\b|退款的|退[了过]款|已退款"),
    (
        ("returned",),
        r"\b(?:returned|sent back|given back)\b|\bdid i (?:ever )?return\b"
        r"|已退货|退货?[了过]?的|退[货掉回][了过]?|退过货?",
    ),
)
_STATED: Final = tuple((states, expression(pattern)) for states, pattern in _STATES)
_STATE: Final = (
    r"(?:un(?:paid|shipped|sent|delivered)|paid|shipped|dispatched|delivered|received|completed|pending|outstanding|open"
    r"|cancell?ed|refund(?:ed|ing)|returned|arrived)"
)
_THOSE: Final = expression(
    r"\b(?:which|what|any|anything|how many|those|the ones|all)\b|\bdid i (?:ever )?(?:cancel|return)\b"
    rf"|\b{_STATE} (?:(?:but|not|yet) )*(?:orders?|ones?|purchases?|items?|parcels?|packages?)\b"
    # "Have my orders arrived?" asks of all of them.
    r"|^(?!(?:are|have|did|has|is|were|was|will|do|does)\b)(?:[a-z]+ )*?orders "
    rf"(?:(?:that|which|are|were|have|been|still|not|yet|already|on|in) )*(?:{_STATE}|the way|transit)\b"
    rf"|^{_STATE} but\b|^not (?:yet )?{_STATE}\b"
    r"|哪|有没有|有几|几个|多少|的(?:订单|单子?|有|那|\W*$|呢)|了的|过订单|有[^,，。]{1,6}的吗"
)
_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_HAN_MONTHS: Final = ("一", "二", "三", "四", "五", "六", "七", "八", "九", "十", "十一", "十二")
_LAST_MONTH: Final = expression(r"\blast month\b|上个?月")
_THIS_MONTH: Final = expression(r"\bthis month\b|[这本]个?月")
_MONTH: Final = expression(
    rf"\b(?:in|from|of|during) (?P<en>{'|'.join(_MONTHS)})\b"
    r"|(?<!\d)(?P<digits>1[0-2]|[1-9])月(?!\d)|(?P<zh>十[一二]?|[一二三四五六七八九])月(?!初|底)"
)
_YEAR: Final = expression(r"\b(?:in|from|of|during)(?: [a-z]+)? (20\d\d)\b|(?<!\d)(20\d\d)年")
# When orders were made, not when they come: "will my order arrive today?" is about no order of today.
_MADE: Final = r"(?:buy|bought|order(?:s|ed)?|purchased?|spen[dt]|pa(?:y|id))"
_HAN_MADE: Final = r"(?:我|都|一共|总共|刚)*(?:买|订(?!单)|下[了过]?单|花了|的?(?:订单|单子?))"
_TIMES: Final[tuple[tuple[Period, str, str], ...]] = (
    ("today", "today", "今天"),
    ("yesterday", "yesterday", "昨天"),
    ("this_week", "this week", "这个?(?:周|星期)|本周"),
    ("last_week", "last week", "上个?(?:周|星期)"),
    ("this_year", "this year", "今年"),
    ("last_year", "last year", "去年"),
)
_PERIODS: Final = tuple(
    (
        period,
        expression(
            rf"\b{_MADE}(?: (?!arriv|deliver|com|ship|get|be\b|due|reach)[a-z]+){{0,3}} {english}\b"
            rf"|\b{english}(?:'s)? (?:(?:did|have) )?(?:i |we )?{_MADE}\b|(?:{chinese}){_HAN_MADE}"
        ),
    )
    for period, english, chinese in _TIMES
)
SPENT: Final = expression(
    r"\b(?:how much|what) (?:did|have|had) i (?:spen[dt]|pa(?:y|id))\b|花了我?(?:多少|几)|多少钱?(?:买|订)的"
)
_MANY: Final = expression(
    r"\bhow many (?:[a-z]+ ){0,2}?(?:orders|purchases|parcels|packages|deliveries)\b"
    r"|\bhow many (?:of (?:them|those|these)|are|were|have|ones)\b"
    r"|(?:几|多少)[个笔张]?订?单|订单[^,，。]{0,4}(?:几|多少)[个笔张]|有(?:几|多少)[个笔单]"
)
_BOUNDED: Final = expression(
    r"\b(?:over|above|under|below|more than|less than|at least|at most|up to|between|or more|or less|cheaper than)\b"
    r"|以上|以下|以内|超过|不到|低于|高于|大于|小于|不超过|多于|少于"
)
_ORDER_NOUN: Final = r"(?:orders?|purchases?|packages?|parcels?|deliver(?:y|ies)|shipments?)"
_PICKS: Final[tuple[tuple[Pick, re.Pattern[str]], ...]] = (
    (
        "latest",
        expression(
            rf"\b(?:last|latest|newest|most recent) {_ORDER_NOUN}\b(?<!orders)(?<!purchases)(?<!packages)(?<!parcels)"
            r"|\bwhat did i (?:buy|order) last\b(?! \w)|上次我?都?(?:买|订)[了的]|最近(?:一次)?买的(?:是|东西)"
            r"|(?:最近|最新|最后)的?(?:那|一|那一)[个笔张次]?(?:订单|单)|最新的?订单|上一[个笔张]?(?:订单|单)"
        ),
    ),
    (
        "earliest",
        expression(
            rf"\b(?:very first|oldest|earliest|first ever) {_ORDER_NOUN}\b|最早的?(?:那|一|那一)?[个笔张次]?(?:订单|单)"
        ),
    ),
    (
        "dearest",
        expression(
            rf"\b(?:most expensive|dearest|biggest|priciest) (?:{_ORDER_NOUN}|(?:thing|item)s? (?:that )?i)\b"
            rf"|\b{_ORDER_NOUN} (?:was|is|cost|did i pay) the most\b(?! recent)"
            r"|最贵的?(?:那|一|那一|这)?[个笔张]?(?:订单|单)|哪一?[个笔张]?(?:订单|单)最贵"
        ),
    ),
    (
        "cheapest",
        expression(
            rf"\bcheapest (?:{_ORDER_NOUN}|(?:thing|item)s? (?:that )?i)\b"
            r"|最便宜的?(?:那|一|那一|这)?[个笔张]?(?:订单|单)|哪一?[个笔张]?(?:订单|单)最便宜"
        ),
    ),
)


def is_complaint(text: str) -> bool:
    """Whether somebody is not content with what they got."""
    if _BROKEN.search(text) or _UPSET.search(text):
        return True
    return _CAME.search(text) is not None and _WRONG.search(text) is not None


def states_in(text: str) -> tuple[OrderState, ...]:
    """The states that orders are asked for by: "which are still on the way?", 还没发货的有哪些."""
    if not _THOSE.search(text):
        return ()
    return next((states for states, pattern in _STATED if pattern.search(text)), ())


def month_in(text: str) -> tuple[int | None, int | None]:
    """How many months ago orders were made, or in which month of the year."""
    if _LAST_MONTH.search(text):
        return 1, None
    if _THIS_MONTH.search(text):
        return 0, None
    found = _MONTH.search(text)
    if found is None:
        return None, None
    if found["digits"]:
        return None, int(found["digits"])
    return None, 1 + (_MONTHS.index(found["en"]) if found["en"] else _HAN_MONTHS.index(found["zh"]))


def period_in(text: str) -> Period | None:
    """The days, week or year that orders were made in."""
    return next((period for period, pattern in _PERIODS if pattern.search(text)), None)


def year_in(text: str) -> int | None:
    """The year of the calendar that orders were made in."""
    found = _YEAR.search(text)
    return None if found is None else int(found[1] or found[2])


def pick_in(text: str) -> Pick | None:
    """Which single one of all the orders is asked for: the latest, the dearest."""
    return next((pick for pick, pattern in _PICKS if pattern.search(text)), None)


def asks_how_many(text: str) -> bool:
    """Whether the orders are to be counted."""
    return _MANY.search(text) is not None


def bounds_totals(text: str) -> bool:
    """Whether an amount is named that orders are to lie above or below, and not just some amount."""
    return _BOUNDED.search(text) is not None
