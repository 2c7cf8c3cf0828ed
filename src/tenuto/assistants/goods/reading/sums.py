"""Questions that ask for a reckoning: what goods cost together, what three of them do, or how much one saves."""

from __future__ import annotations

from typing import Final

from tenuto.assistants.goods.intent import Details, QueryIntent, Talk
from tenuto.assistants.goods.reading.pointing import PRONOUN, THE_TWO, THEY, places_in
from tenuto.assistants.goods.words import UNIT
from tenuto.model.expression import expression
from tenuto.model.numbers import CARDINAL, HAN_NUMBER

_MANY: Final = rf"(?:\d{{1,3}}|(?!one\b){CARDINAL}|a dozen|half a dozen|a pair|a couple)"
_PIECES: Final = r"(?:pieces?|boxes|box|packs?|packets?|bags?|bottles?|tins?|cans?|pairs?|units?|copies|sets?)"
_COUNTED: Final = "个款台部双本件盒包袋瓶箱份套只斤条"
_PRICE: Final = r"(?:how much|what|price|costs?|pay|total)"
_TOGETHER: Final = expression(
    r"\b(?:(?:al)?together|in total|total(?: price| cost)?|in all|combined|sum|add(?:ed|s)? up|both)\b"
    r"|一起|一共|总共|总价|合计|加起来|加在一起|都买"
)
_MONEY: Final = expression(rf"\b{_PRICE}\b|多少|几块|几元|什么价|价格")
_OF_ITSELF: Final = expression(r"一共|总共|总价|合计|加起来|加在一起|\btotal (?:price|cost)\b|\badd(?:ed)? up\b")
_TIMES: Final = expression(
    rf"\b{_MANY} (?:of (?:it|them|these|those|the)\b|{_PIECES}\b)|\bhow much (?:for|are|is|would|do) {_MANY}\W*$"
    rf"|\b(?:would|do|does|for|buy|get|take) {_MANY} (?:cost|be)\b"
    rf"|(?:买|要|来|拿)(?!第)(?!一[{_COUNTED}]){HAN_NUMBER}[{_COUNTED}]"
    rf"|(?<![第前后这那哪])(?!一[{_COUNTED}]){HAN_NUMBER}[{_COUNTED}](?:要|得|是)?多少钱"
)
_PER: Final = expression(
    rf"\b(?:per|each|for every|a) (?:\d+ ?)?(?:{UNIT}|piece|page|cup|serving|sheet|bag|sachet|pair)\b|\bunit price\b"
    rf"|(?:每|平均一?|一)(?:\d+)?(?:{UNIT}|[页片包袋杯条只颗])(?:要|是|合)?(?:多少钱|价格|几块|多少)|单位价格"
)
_APART: Final = expression(
    r"\bhow much (?:cheaper|less|more expensive|dearer|more)(?: expensive)?\b(?= (?:is|are|does|do|would|than)\b|\W*$)"
    r"|\b(?:price difference|difference in price)\b|\bhow much (?:do|would|will|can) (?:i|we) save\b"
    r"|便宜(?:了|出)?多少|贵(?:了|出)?多少|差(?:了)?多少钱?|差价|价差|省多少|能省几"
)
_FOR_SO_MUCH: Final = expression(
    r"\bhow many (?:of (?:it|them) )?(?:can|could|do) (?:i|we|you) (?:buy|get|afford)\b"
    rf"|(?:能|可以|够)(?:买|拿)(?:到|下)?(?:几|多少)[{_COUNTED}]"
)


def reckoned(text: str, asked: QueryIntent, talk: Talk) -> Details | None:
    """The goods whose prices a folded text wants to be reckoned with; the answer gives them one by one."""
    if not talk.items or asked.category is not None:
        return None
    together = _TOGETHER.search(text) is not None and _MONEY.search(text) is not None
    times = _TIMES.search(text) is not None and _MONEY.search(text) is not None
    per = _PER.search(text) is not None and _MONEY.search(text) is not None
    if not (together or times or per or _APART.search(text) or _FOR_SO_MUCH.search(text)):
        return None
    return Details(
        ids=_meant(text, talk, together=together or _APART.search(text) is not None), about="price", sum=True
    )


def _meant(text: str, talk: Talk, *, together: bool) -> tuple[str, ...]:
    """Those that are named, the two spoken of, "it", or all that were shown."""
    it = (talk.focus,) if talk.focus is not None and PRONOUN.search(text) else ()
    if named := tuple(dict.fromkeys((*it, *talk.at(places_in(text, True))))):
        return named
    if together and talk.pair and (THE_TWO.search(text) or THEY.search(text) or talk.focus is None):
        return talk.pair
    return (talk.focus,) if talk.focus is not None and not THEY.search(text) else talk.them
