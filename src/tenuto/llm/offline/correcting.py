"""Corrections: what a short "no, it's green" puts in the place of what was told or asked about just before."""

from __future__ import annotations

import re
from typing import Final

from tenuto.llm.offline.chinese import chinese_value
from tenuto.llm.offline.english import english_value
from tenuto.model.expression import expression

_LONGEST: Final = 120
_LEAD: Final = (
    r"(?:no|nope|wait|sorry|oops|hm+|well|actually|rather|correction|i was wrong|my mistake|my bad"
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
    r"|hold|one|just|but|and|so|if|my|the|sure|right|wrong|done|then)\b"
)
_ENGLISH: Final = expression(
    rf"\W*(?:(?:{_LEAD}[\s,.!:;-]+)+"
    rf"(?:{_IS}\s+(?:actually |really |in fact |rather )?|(?!{_SPOKEN})(?=[\w' -]{{1,40}}\W*$))"
    rf"|{_IS}\s+(?:actually|really|in fact|rather)\s+|i meant?(?: to say)?\s+|make (?:it|that)\s+)"
    r"(?:not [\w' -]{1,40}?,? (?:but )?)?(?:in |at )?(?P<value>\S.*)",
    re.IGNORECASE,
)
_CHINESE: Final = expression(
    r"\s*(?:(?:不对|不是的?|不|错了|哦不|等等|等一下|抱歉|对不起|不好意思|(?:我)?(?:说|记|搞|弄|写)错了|(?:我)?(?:更正|纠正)(?:一下)?)"
    r"[，,。！!：:；;\s]+(?:不是.{1,20}?[，,、\s])?(?:其实|应该|而)?(?:[它那]?(?:是|叫|在)|改成)"
    r"|(?:其实|应该)[它那]?(?:是|叫|在)|不是.{1,20}?[，,]\s*(?:而)?(?:是|叫|在)|(?:请|那就|还是)?改成)(?P<value>[^，,。！!？?]{1,40})"
    r"(?:[，,]\s*不是.{1,20})?[。！!.\s]*"
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
