"""Corrections: what a short "no, it's green" puts in the place of what was told or asked about just before; what takes
it back, and what tells that something changed.
"""

from __future__ import annotations

import re
from typing import Final

from tenuto.llm.offline.chinese import chinese_value
from tenuto.llm.offline.english import english_value
from tenuto.model.expression import expression

_LONGEST: Final = 120
_LEAD: Final = (
    r"(?:no|nope|wait|sorry|oops|hm+|well|actually|rather|correction|i was wrong|my mistake|my bad"
    r"|i(?:'ve| have)? changed my mind|on second thoughts?|scratch that|let me correct (?:that|myself)"
    r"|change (?:it|that) to"
    r"|that(?:'s| is| was) (?:wrong|not (?:right|true|correct)|incorrect|a mistake))"
)
_IS: Final = (
    r"(?:(?:it|that|they)(?:'s| is| was|'re| are| were| should be| must be)|i (?:meant?|should have said)(?: to say)?"
    r"|make (?:it|that)|should be)"
)
# With "it's" anything may follow; without it a few words that are no way of speaking: "no problem", "sorry about that".
_SPOKEN: Final = (
    r"(?:i|i'm|i'll|you|we|he|she|they|it|that|this|there|thanks?|thank|problem|worries|way|idea|need|matter|doubt|about"
    r"|for|to|not|never|no|yes|please|what|who|where|when|why|how|is|are|do|does|did|can|could|will|would|let|wait|ok|okay"
    r"|hold|one|just|but|and|so|if|my|sure|right|wrong|done|then)\b"
    r"|[\w' -]*\b(?:is|are|was|were|will|has|have|does|did|can)\b"
)
_ENGLISH: Final = expression(
    rf"\W*(?:(?:{_LEAD}[\s,.!:;-]+)+"
    rf"(?:{_IS}\s+(?:actually |really |in fact |rather )?|(?!{_SPOKEN})(?=[\w' -]{{1,40}}\W*$))"
    rf"|{_IS}\s+(?:actually|really|in fact|rather)\s+|i meant?(?: to say)?\s+|make (?:it|that)\s+)"
    r"(?:not [\w' -]{1,40}?,? (?:but |it's |it is |rather )?)?(?P<value>\S.*)",
    re.IGNORECASE,
)
_CHANGED_TO: Final = "(?:改|换|推迟|提前|挪|延|调)(?:成|到|为|在|至)了?"
_CHINESE: Final = expression(
    r"\s*(?:(?:不对|不是的?|不|错了|哦不|等等|等一下|抱歉|对不起|不好意思|(?:我)?(?:说|记|搞|弄|写)错了|(?:我)?(?:更正|纠正)(?:一下)?)"
    r"[，,。！!：:；;\s]+(?:不是.{1,20}?[，,、\s])?(?:其实|应该|而)?(?:[它那]?(?:是|叫|在)"
    rf"|{_CHANGED_TO})"
    r"|(?:不对|错了|哦不|(?:我)?(?:说|记|搞|弄|写)错了|(?:我)?(?:更正|纠正)(?:一下)?|(?:我)?(?:又)?(?:改(?:变)?主意|想了想)了?)"
    r"[，,。！!：:；;\s]+(?:还是)?(?=[^，,。！!？?我你您他她它这那不没谢请了吗吧呢]{1,10}[。！!.]*$)"
    r"|(?:其实|应该)[它那]?(?:是|叫|在)|不是.{1,20}?[，,]\s*(?:而)?(?:是|叫|在)"
    rf"|(?:请|那就|还是|又|已经|时间|后来)*{_CHANGED_TO})(?P<value>[^，,。！!？?]{{1,40}})"
    r"(?:[，,]\s*不是.{1,20})?[。！!.\s]*"
)
_TAKES_BACK: Final = expression(
    r"\W*(?:(?:no|oh|actually|wait|please|sorry|ok(?:ay)?)\W+)*"
    r"(?:(?:forget|scratch|ignore|strike|disregard|never ?mind) (?:about )?(?:it|that|this|what i (?:just )?said)"
    r"|i take (?:it|that) back)\W*"
    r"|\W*(?:(?:算了|那|哦|嗯|等等)\W*)?(?:就?[当算]我没说(?:过)?|(?:我)?收回(?:刚才|前面|上面)?(?:的?话|那句话?|说的)?|(?:刚才|前面)(?:那句|说的)?不算"
    r"|(?:请)?(?:忘了|忘掉|忽略)(?:它|这个|这句|刚才那句|刚才的话)?吧?)了?\W*",
    re.IGNORECASE,
)
_CHANGED: Final = (
    r"(?:moved?|rescheduled?|postponed?|delayed|changed?|shifted|pushed|put off|brought forward|cancell?ed|called off"
    r"|switched|swapped|replaced|renamed|sold|lost|stolen|broken|finished|over|gone|off|went (?:up|down)"
    r"|risen|raised|increased|dropped)"
)
_HAN_CHANGED: Final = (
    "改[到成在为期至]|推迟|推到|提前|延[期后到误]|挪|换|取消|调[到整]|不再|不[开办去]了|没了|丢了|卖了|晚点|涨|降"
)
_CHANGES: Final = expression(rf"\b(?:{_CHANGED}|now|no longer|any ?more|instead|late)\b|{_HAN_CHANGED}", re.IGNORECASE)
# What changes "it", whatever that was.
_CHANGES_IT: Final = expression(
    r"\W*(?:(?:oh|ok(?:ay)?|well|sorry|update|unfortunately|actually|and|but|no|wait)\W+)*"
    r"(?:(?:it|that|this|they)(?:'s|'s been|'ve been| is| are| was| were| has been| have been| got)?"
    r" (?:now |just |all )*"
    rf"{_CHANGED}\b.{{0,60}}|(?:they|we|i)(?:'ve| have)? (?:just )?{_CHANGED} (?:it|that)\b.{{0,60}})"
    rf"|\W*(?:哦|对了|但是?|不过|后来|刚|已经|又|它|这个|那个|时间|被|都)*(?:{_HAN_CHANGED}).{{0,20}}",
    re.IGNORECASE,
)
_ASKS: Final = expression(r"[?？]|吗\s*$|什么|哪[里个些]|谁")


def corrected(text: str) -> str | None:
    """What a text says instead of something said before; `None` if it corrects nothing."""
    text = text[: 2 * _LONGEST].replace("\u2019", "'").strip()
    if len(text) > _LONGEST or _ASKS.search(text):
        return None
    if found := _CHINESE.fullmatch(text):
        return chinese_value(found["value"]) or None
    if found := _ENGLISH.match(text):
        return english_value(found["value"]) or None
    return None


def takes_back(text: str) -> bool:
    """Whether a text takes back what was said just before: "forget that"."""
    return len(text) <= _LONGEST and _TAKES_BACK.fullmatch(text) is not None


def changes(sentence: str) -> bool:
    """Whether a sentence tells that something is no longer as it was: "the meeting moved to Monday"."""
    return _CHANGES.search(sentence) is not None


def changes_it(text: str) -> bool:
    """Whether a text tells so of what was spoken of just before: "it's cancelled"."""
    text = text[: 2 * _LONGEST].replace("\u2019", "'").strip()
    return len(text) <= _LONGEST and not _ASKS.search(text) and _CHANGES_IT.fullmatch(text) is not None
