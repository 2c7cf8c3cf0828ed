"""Which of the shop's questions a text is: for goods, about particular goods, about one's own orders, or none."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec.structs import replace

from tenuto.assistants.goods.intent import (
    MAX_READ,
    Courtesy,
    Details,
    OrderQuestion,
    QueryIntent,
    Talk,
    as_json,
    talk_in,
)
from tenuto.assistants.goods.reading.courtesy import GREETING, about_policy, at_a_loss, courtesy
from tenuto.assistants.goods.reading.details import about_goods, of_the_one
from tenuto.assistants.goods.reading.freeing import freed
from tenuto.assistants.goods.reading.orders import about_orders
from tenuto.assistants.goods.reading.search import parse, renewed
from tenuto.assistants.goods.reading.wording import Wording
from tenuto.assistants.goods.words import fold
from tenuto.model.expression import expression
from tenuto.model.talk import ToolContext
from tenuto.model.values import JsonObject

Question: TypeAlias = QueryIntent | Details | OrderQuestion | Courtesy
_Kind: TypeAlias = type[QueryIntent] | type[Details] | type[OrderQuestion] | type[Courtesy]

_BESIDE: Final = expression(
    r"\b(?:(?:your|my) name|who (?:are you|am i)|what can you do|the weather|summar|remember|translat|what time"
    r"|how are you|did (?:i|we|you) (?:ask|say|talk)|(?:tell|write)(?: me)? an? "
    r"|(?:opening|return|refund|shipping) (?:hours|polic))"
    r"|你是谁|你叫什么|我叫|我是谁|天气(?:怎|如|好|预)|笑话|总结|记得|翻译|我(?:刚才|之前|刚刚)?(?:说|问)(?:了|过)|几点|营业时间|退货政策"
)


def guessed(turn: ToolContext, kind: _Kind) -> JsonObject | None:
    """The question as arguments, if it is of that kind."""
    question = understand(turn)
    return as_json(question) if isinstance(question, kind) else None


def understand(turn: ToolContext) -> Question | None:
    """What this turn's question asks of the shop."""
    question = read(folded_question(turn.question), talk_in(turn.state))
    if question is None and len(turn.question) > MAX_READ:
        return Courtesy(occasion="unclear")
    return question


def folded_question(text: str) -> str:
    """The question as it is read. Blanks come one by one: patterns that allow any number try all ways to share many."""
    return " ".join(fold(text, MAX_READ)[:MAX_READ].split())


def read(text: str, talk: Talk) -> Question | None:
    """The same for a folded text."""
    if (polite := courtesy(text)) is not None:
        return polite
    text = GREETING.sub("", text).strip()
    if not text:
        return None
    left, talk = freed(text, talk)
    asked = Wording(left).read()
    if left != text and talk.intent is not None and not left.strip(",.!?，。！？ "):
        return renewed(talk.intent)
    text = left
    if (named := about_orders(text, asked, talk) or about_policy(text)) is not None:
        return named
    if _BESIDE.search(text):
        return None
    picked, about = of_the_one(text, asked)
    wanted = parse(text, picked, talk)
    details = about_goods(text, picked, talk, wanted)
    if details is None and wanted is None and (talk.items or talk.orders):
        return at_a_loss(text)
    if details is not None or wanted is None or wanted.limit > 1:
        return details or wanted
    return replace(wanted, about=about)
