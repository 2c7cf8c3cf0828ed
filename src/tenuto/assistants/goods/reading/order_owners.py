"""Whether somebody asks for the orders of somebody else, which nobody but their buyer gets to see."""

from __future__ import annotations

from typing import Final

from tenuto.assistants.goods.reading.order_things import HAN_PERSON, PERSON
from tenuto.model.expression import expression

_NOUN: Final = r"(?:orders?|packages?|parcels?|deliver(?:y|ies)|shipments?|purchases?|order (?:status|history))\b"
_HAN_NOUN: Final = r"(?:订单|快递|包裹|物流|单子|购买记录|购物记录)"
_SURNAMES: Final = (
    "王李张刘陈杨赵黄周吴徐孙胡朱林郭罗梁宋郑谢韩唐冯董萧程曹袁邓许傅沈曾彭吕苏"
    "卢蒋蔡贾丁魏薛阎余潘杜戴钟汪姜范姚谭廖邹熊陆郝崔邱秦侯邵孟尹黎乔贺赖龚"
)
_SOMEBODY: Final = expression(
    rf"\b(?:{PERSON})s?(?: [a-z]+)?(?:'s|s') (?:[a-z]+ ){{0,2}}?{_NOUN}"
    r"|\b(?:his|her|their|(?:some|any|every)(?:one|body)(?: else)?'s|other people's|other (?:users|customers)'?"
    rf"|(?:another|the other|a different) (?:user|person|one)'s) (?:[a-z]+ ){{0,2}}?{_NOUN}"
    rf"|{_NOUN} (?:of|by|from|belonging to) (?:(?:my|the|a|an|another|some|other) )*"
    rf"(?:{PERSON}|user|account|someone|somebody)\b"
    rf"|\b(?:user|account|customer)s? (?:(?:id|no\.?|number) )?#?\d+(?:'s)? (?:[a-z]+ ){{0,2}}?{_NOUN}"
    rf"|{_NOUN} (?:for|under) (?:user|account|customer)\b"
    rf"|\bwhat (?:did|has|have) (?:my (?:{PERSON})(?: [a-z]+)?|he|she|they) (?:ever )?(?:buy|bought|order(?:ed)?)\b"
    rf"|(?:(?:{HAN_PERSON}|他们?|她们?|别人|其他人|人家)(?:家?的)|我(?:{HAN_PERSON}))(?:[^,，。给买订]{{0,4}}?){_HAN_NOUN}"
    rf"|(?:用户|账号|客户|会员)(?:号|id)?\s*\d+[^,，。]{{0,4}}{_HAN_NOUN}"
    rf"|(?:我?(?:{HAN_PERSON})|他们?|她们?)(?:最近|上次|上个?月|之前|都|以前)*(?:买|订)(?:了|过)(?:什么|哪些|啥|多少)"
)
# What's and today's are nobody's.
_NAME: Final = expression(
    r"(?:^|(?<=\s))(?!(?:what|where|how|who|when|why|here|there|that|it|he|she|let|today|yesterday|month|week|year|one"
    r"|january|february|march|april|may|june|july|august|september|october|november|december|shop|store)'s)"
    rf"(?P<en>[a-z][a-z-]+)'s (?:[a-z]+ ){{0,2}}?{_NOUN}"
    rf"|(?:^|[查看找下问])(?P<zh>[{_SURNAMES}][^的,，。\s\d]{{1,2}}|[小老阿][^的,，。\s\d])的{_HAN_NOUN}"
)


def is_somebody_elses(text: str) -> bool:
    """Whether a person is named whose orders they are: "my wife's order", 我老婆的订单."""
    return _SOMEBODY.search(text) is not None


def name_of_owner(text: str) -> str:
    """A name that orders are said to be of, "Bob's order", 张三的订单; it may be one of goods as well."""
    found = _NAME.search(text)
    return "" if found is None else found["en"] or found["zh"]
