"""What somebody wants of the own orders: those on the way, those of last month, that of a phone; and complaints."""

from __future__ import annotations

from typing import Final

from tenuto.assistants.goods.intent import OrderState
from tenuto.assistants.goods.words import name_in
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

# A "not" first: what is not sent yet is not sent.
_STATES: Final[tuple[tuple[tuple[OrderState, ...], str], ...]] = (
    (
        ("paid", "shipped"),
        r"\b(?:not|haven't|hasn't|never|still to)\b[^,.?]{0,16}\b(?:arriv|deliver|receiv)"
        r"|没(?:有)?(?:到|收到|送到|签收)|未(?:到|签收|送达)",
    ),
    (
        ("paid",),
        r"\b(?:not|haven't|hasn't)\b[^,.?]{0,16}\b(?:ship|sent|left)|\bunshipped\b|待发货|[没未](?:有)?发(?:货|出)?",
    ),
    (("shipped",), r"\bon (?:the|its|their) way\b|\bin transit\b|\bshipped\b|在路上|运输|在途|已经?发[货出]|发货了的"),
    (("delivered",), r"\bdelivered\b|\barrived?\b|\breceived\b|签收|送[到达]|到货|到了"),
    (("cancelled",), r"\bcancell?ed\b|取消了?的|已取消"),
    (("refunding",), r"\b(?:being )?refund(?:ed|ing)\b|退款中|在退款"),
    (("returned",), r"\breturned\b|已退货|退了的|退货的"),
)
_STATED: Final = tuple((states, expression(pattern)) for states, pattern in _STATES)
_THOSE: Final = expression(
    r"\b(?:which|what|any|anything|how many|those|the ones|all)\b|哪|有没有|有几|几个|多少|的(?:订单|单子?|有)|了的"
)
_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_HAN_MONTHS: Final = ("一", "二", "三", "四", "五", "六", "七", "八", "九", "十", "十一", "十二")
_LAST_MONTH: Final = expression(r"\blast month\b|上个?月")
_THIS_MONTH: Final = expression(r"\bthis month\b|[这本]个?月")
_MONTH: Final = expression(
    rf"\b(?:in|from|of|since) (?P<en>{'|'.join(_MONTHS)})\b"
    r"|(?<!\d)(?P<digits>1[0-2]|[1-9])月(?!\d)|(?P<zh>十[一二]?|[一二三四五六七八九])月(?!初|底)"
)
SPENT: Final = expression(r"\b(?:how much|what) (?:did|have) i (?:spen[dt]|pa(?:y|id))\b|花了(?:多少|几)")

_OWNED: Final = expression(
    r"\bmy (?:new )?(?P<en>[a-z][a-z -]{2,30}?)"
    r"(?= (?:ship|arriv|been|on|here|deliver|yet|com|going|order|sent|still|is|was)|\W*$)"
    r"|\bthe (?P<sent>[a-z][a-z -]{2,30}?) (?:that )?"
    r"(?:you (?:have )?(?:sent|delivered)|i (?:have )?(?:got|received|bought|ordered))"
    r"|(?:收到|(?<![想要])买|订|你们[发寄送]|[发寄送]来)的(?P<got>[^,，。!！?？\s是到发]{1,8}?)"
    r"(?=屏幕|电池|用|打|开|充|是|坏|碎|裂|破|到|发|有|不|没|怎|$|[,，。!！?？])"
    r"|我的(?P<zh>[^,，。!！?？\s]{1,8}?)(?=到|发|送|什么时候|在哪|呢|怎么|还没|签收)"
)
_NO_GOODS: Final = expression(
    r"(?:latest |last |recent |newest |other |next )?"
    r"(?:orders?|packages?|parcels?|deliver(?:y|ies)|shipments?|purchases?|refunds?"
    r"|money|account|address|stuff|things?|items?|goods)(?: status| number)?|东西|订单|快递|包裹|货|物流|商品|退款"
)
_AND: Final = expression(
    r"^(?:and|what about|how about) (?:the|my) (?P<en>[a-z][a-z -]{1,30}?)\W*$"
    r"|^(?:那|那么)?(?P<zh>[^,，。\s]{1,8}?)呢\W*$"
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


def names_another(text: str) -> bool:
    """Whether it goes on to other goods, by name: "and the phone?", 手机呢."""
    found = _AND.search(text)
    return found is not None and bool(name_in(found["en"] or found["zh"]))


def bought_in(text: str, shown: bool) -> str:
    """What the goods are called that were bought; after orders were shown, "and the phone?" is one of them too."""
    found = _OWNED.search(text) or (_AND.search(text) if shown else None)
    said = next(filter(None, found.groups()), "") if found is not None else ""
    name = name_in(said)
    return "" if _NO_GOODS.fullmatch(said) or _NO_GOODS.fullmatch(name) else name
