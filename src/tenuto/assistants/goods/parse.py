"""From a question to a `QueryIntent`, by rules, in English and Chinese.

What a rule understands it takes out of the text; what is left over are terms, which the catalogue knows or does not.
A question that only changes something ("and under 2000?", 换成红色的) is read on top of the query before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from tenuto.assistants.goods.amounts import Amounts
from tenuto.assistants.goods.intent import (
    MAX_KEPT,
    MAX_LIMIT,
    MAX_TERM_CHARACTERS,
    MAX_TERMS,
    PREVIOUS,
    QueryIntent,
    Talk,
)
from tenuto.assistants.goods.places import PLACE, places_in
from tenuto.assistants.goods.speech import GOODNESS, ORDINALS, STOP_PHRASES, STOP_WORDS, number
from tenuto.assistants.goods.words import CATEGORY_PATTERNS, COLOR, COLOR_WORDS, HAN, MEASURE, UNITS

_CUE: Final = re.compile(
    r"\b(?:buy|purchase|shop(?:ping)? for|look(?:ing)? for|search|find|show|recommend|suggest|want|need"
    r"|get me|got any|any|(?:do|have|can) you (?:have|sell|carry|stock|got|offer)|you (?:have|sell)|is there|are there"
    r"|which|list|gift|present|something|anything)\b"
    r"|有没有|有什么|有哪些|有啥|有[^\s]{1,12}吗|推荐|想买|想要|要买|我要|需要|买[个台部双本件款点]|找"
    r"|来[一几][个台部双本件款]|送给?|卖不卖|卖[^的得]"
)
_ANYTHING: Final = re.compile(
    r"^(?:so |and )?what (?:do|can|else do) you (?:sell|have|offer|recommend)\W*$|^what(?:'s| is) (?:new|popular)\W*$"
    r"|\bwhat (?:categories|kinds? of (?:goods|things|products))\b"
    r"|^你们(?:店|这里|这儿)?里?都?[有卖](?:什么|哪些|啥)\W*$|^有(?:什么|啥)好?(?:推荐|东西|商品)的?吗?\W*$|随便看看"
)
_AMONG: Final = re.compile(
    r"\b(?:among|amongst|out of|of|from|between|in|which of) (?:them|these|those|the above|(?:the|that|this) list)\b"
    r"|\bamong\b|其中|当中|这些|那些|这几|那几|里面|它们|上面(?:的|这|那)|刚才(?:的|那|说)"
)
_CHOOSE: Final = re.compile(
    r"\bwhich (?:one|ones|is|would|should|do|has|have|are)\b"
    r"|\b(?:recommend|pick|choose) (?:me )?one\b|\bwhat (?:do|would) you recommend\b"
    r"|哪一?[个款台双本件种]|选哪|推荐哪|买哪"
)
_BETTER: Final = re.compile(
    r"\bbetter\b|\brecommend|\bshould i (?:buy|get|choose|take|pick)|\bpick one\b|\bchoose\b"
    r"|更好|哪[个款台]好|推荐|选哪|买哪"
)
_CHEAPER: Final = re.compile(
    r"\b(?:cheaper|less expensive|lower[- ]priced?|more affordable|too (?:expensive|pricey|dear))\b"
    r"|[更再还]便宜|便宜(?:一?点|一?些)|价格(?:再|更)?低(?:一?点|一?些)?|太贵"
)
_DEARER: Final = re.compile(
    r"\b(?:more expensive|pricier|higher[- ](?:end|priced?)|more premium)\b"
    r"|[更再]贵|贵(?:一?点|一?些)|[更再]高[端档]|太便宜"
)
_MORE: Final = re.compile(
    r"^(?:(?:any|some|show|show me|see|what|anything|something)\b.{0,12})?"
    r"\b(?:more|else|others?|other ones|different ones|next)\b"
    r"(?! (?:expensive|affordable|premium|popular|about|than|detail|info))"
    r"|还有(?:没有)?(?:别的|其[他它]|更多|吗)|换一[批些]|再来(?:几|一)|更多|别的(?:呢|吗)|下一[批页]"
)
_LEAD: Final = re.compile(
    r"^(?:and|or|but|ok(?:ay)?|then|what about|how about|what if|only|just|instead|make it|i prefer|in|with)\b"
    r"|\binstead\b|\bwhat about\b|\bhow about\b|^(?:那|那么|如果|要是|只要|就要|换成|换|改成|有没有|要)"
    r"|呢[?？]?\s*$|的呢|换成|改成"
)
_WITHOUT: Final = re.compile(
    r"\b(?:not|no|without|except|excluding|other than|but not|anything but)\s+(?:for |the |a |an )?([a-z][a-z0-9-]{2,})"
    rf"|(?:不要|除了|不含|别要|非)([{HAN}a-z0-9]{{1,8}}?)(?:的|之外|以外|外|牌|，|,|\s|$)"
)
_IN_STOCK: Final = re.compile(r"\bin stock\b|\bavailable(?: now)?\b|有现?货(?:的|吗)?|现货")
_COUNT: Final = re.compile(
    r"\b(?:top|first|best)\s*(\d{1,2}|two|three|four|five|six|seven|eight|nine|ten)\b"
    r"|\b(\d{1,2}|two|three|four|five|six|seven|eight|nine|ten)\s+(?:best |cheapest |good |cheap )?"
    r"(?=options|choices|recommendations|suggestions|products|items|ones|of them"
    r"|phones|laptops|tablets|watches|cameras|books|toys)"
    r"|前\s*(\d{1,2}|[一二两三四五六七八九十])\s*(?:名|个|款|台|本|双|件)?"
    r"|(?<!第)(?<!哪)(\d{1,2}|[二两三四五六七八九十])\s*[个款台部种双本件](?!人|月|岁)"
)
_AGE: Final = re.compile(r"\b\d{1,2}[- ]years?[- ]olds?\b|\d{1,2}岁")
_ONE: Final = re.compile(
    r"\b(?:a single|only one|just one|one) (?:option|choice|product|phone|laptop)\b|(?<![第哪这那每])一[款个台部双本件]"
)
_SEVERAL: Final = re.compile(r"\b(?:some|several|a few|ones|options|list)\b|哪些|几[款个种台本双件]|一些|都有|列")
_PLURAL: Final = re.compile(r"\s+(?!of\b)(?:[a-z0-9-]+\s+){0,3}?[a-z-]+(?<![su'])s\b(?! (?:is|among|of))")
_RANK: Final = re.compile(
    rf"\b({'|'.join(ORDINALS)})[ -](?=(?:most|best|cheapest|lowest|highest|least|priciest|top))"
    r"|第([二三四五六])(?=便宜|贵|高|好|划算|畅销|热)|(?<=性价比)第([二三四五])"
)
_RANKED_CHINESE: Final = re.compile(r"便宜|贵|划算|畅销|热销|性价比")
_BESIDE: Final = re.compile(
    r"\b(?:(?:your|my) name|who (?:are you|am i)|what can you do|the weather|summar|remember|translat|what time"
    r"|how are you|did (?:i|we|you) (?:ask|say|talk)|(?:tell|write)(?: me)? an? "
    r"|(?:opening|return|refund|shipping) (?:hours|polic))"
    r"|你是谁|你叫什么|我叫|我是谁|天气(?:怎|如|好|预)|笑话|总结|记得|翻译|我(?:刚才|之前|刚刚)?(?:说|问)(?:了|过)|几点|营业时间|退货政策"
)
_GREETING: Final = re.compile(
    r"^(?:hello|hi|hey|good (?:morning|afternoon|evening)|thanks?(?: you)?|ok(?:ay)?)(?![a-z-])[\s,.!~]*"
    r"|^(?:你好|您好|哈喽|嗨|谢谢|好的|请问)[\s,.!，。！~]*"
)
_TERM: Final = re.compile(rf"[a-z0-9][a-z0-9+.'-]*[a-z0-9+]|[a-z0-9]|[{HAN}]+")
_LEADING: Final = re.compile(r"^(?:送给|给|送|买|找|要|个|想|能)+(?=..)")  # 给孩子 asks for 孩子
_GLUE: Final = frozenset({"a", "an", "the", "some", "for", "with", "of", "and"})
_BARE_WORDS: Final = 4
_BARE_CHARACTERS: Final = 10


def parse(question: str, talk: Talk) -> QueryIntent | None:
    """The query a question stands for; `None` when it asks for no goods. The question is folded already."""
    text = _GREETING.sub("", question).strip()
    if not text or beside_the_point(text):
        return None
    if _ANYTHING.search(text):
        return QueryIntent(sort="sales")
    asked = Page(text).read()
    if _points(text, asked, talk) or _chooses(text, asked, talk):
        return _among(text, asked, talk)
    if talk.intent is not None and (follow := _follow_up(text, asked, talk, talk.intent)) is not None:
        return follow
    if _CHEAPER.search(text) and asked.sort is None:
        asked = replace(asked, sort="price")
    return asked if _wanted(text, asked) else None


def beside_the_point(text: str) -> bool:
    """Whether it is about the conversation, the assistant or the weather, and not about goods."""
    return _BESIDE.search(text) is not None


class Page:
    """A question while it is read; what was understood is taken out of it."""

    def __init__(self, text: str) -> None:
        self._whole = text
        self.text = text

    def read(self) -> QueryIntent:
        """Everything the text says by itself."""
        intent = QueryIntent()
        steps: tuple[Callable[[QueryIntent], QueryIntent], ...] = (
            self._amounts,
            self._without,
            self._stock,
            self._order,
            self._count,
            self._colors,
            self._category,
            self._terms,
        )
        for step in steps:
            intent = step(intent)
        return intent

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The first match, which is gone from the text afterwards."""
        found = pattern.search(self.text)
        if found is not None:
            self.text = f"{self.text[: found.start()]} {self.text[found.end() :]}"
        return found

    def _amounts(self, intent: QueryIntent) -> QueryIntent:
        amounts = Amounts(self.text)
        self.text = amounts.rest
        return replace(intent, min_price=amounts.low, max_price=amounts.high, min_rating=amounts.rating)

    def _without(self, intent: QueryIntent) -> QueryIntent:
        unwanted: list[str] = []
        while len(unwanted) < MAX_TERMS and (found := self.take(_WITHOUT)) is not None:
            word = found[1] or found[2]
            if word not in STOP_WORDS and not _CHEAPER.search(word) and word not in ("太贵", "贵"):
                unwanted.append(COLOR_WORDS.get(word.removesuffix("色"), word))
        return replace(intent, without=tuple(unwanted))

    def _stock(self, intent: QueryIntent) -> QueryIntent:
        return replace(intent, in_stock=self.take(_IN_STOCK) is not None)

    def _order(self, intent: QueryIntent) -> QueryIntent:
        rank = self.take(_RANK)
        place = 1 if rank is None else ORDINALS[rank[1]] if rank[1] else int(number(rank[2] or rank[3]))
        # "cheaper" is no wish for cheap goods as such: it is measured by what was shown.
        text = _CHEAPER.sub(" ", _DEARER.sub(" ", self.text))
        for goodness in GOODNESS:
            found = goodness.pattern.search(text)
            if found is not None:
                self.take(goodness.pattern)
                most = goodness.most or (rank is not None and _RANKED_CHINESE.search(found[0]) is not None)
                single = most and not _SEVERAL.search(self._whole) and not _PLURAL.match(text, found.end())
                return replace(intent, sort=goodness.sort, rank=place, limit=1 if single else intent.limit)
        return intent

    def _count(self, intent: QueryIntent) -> QueryIntent:
        found = self.take(_COUNT)
        if found is not None:
            return replace(intent, limit=min(int(number(next(filter(None, found.groups())))), MAX_LIMIT))
        if self.take(_ONE) is not None:
            return replace(intent, limit=1)
        return intent

    def _colors(self, intent: QueryIntent) -> QueryIntent:
        found = self.take(COLOR)
        if found is None:
            return intent
        return replace(intent, attributes={"color": COLOR_WORDS[found[1] or found[2]]})

    def _category(self, intent: QueryIntent) -> QueryIntent:
        for slug, pattern in CATEGORY_PATTERNS:
            if self.take(pattern) is not None:
                return replace(intent, category=slug)
        return intent

    def _terms(self, intent: QueryIntent) -> QueryIntent:
        terms: list[str] = []
        while len(terms) < MAX_TERMS and (found := self.take(MEASURE)) is not None:
            terms.append(found[1] + UNITS.get(found[2], found[2]))
        for pattern in (PLACE, _AGE, _AMONG, _MORE, _CHEAPER, _DEARER, _LEAD):
            self.text = pattern.sub(" ", self.text)
        terms += terms_in(self.text)
        return replace(intent, terms=tuple(dict.fromkeys(terms))[:MAX_TERMS])


def terms_in(text: str) -> list[str]:
    """The words that are neither grammar nor politeness."""
    left = STOP_PHRASES.sub(" ", text)
    words = (_LEADING.sub("", word.removesuffix("'s")) for word in _TERM.findall(left))
    return [word[:MAX_TERM_CHARACTERS] for word in words if _tells(word)][:MAX_TERMS]


def _tells(word: str) -> bool:
    if word.isascii():
        return word not in STOP_WORDS and (len(word) > 1 or word.isdecimal())
    return word not in "有我你要买找来送给用看个款台部双本件那这还再就都也是在没好能会上下里中大小想请卖到只点些"


def _constrained(asked: QueryIntent) -> bool:
    bounds = (asked.min_price, asked.max_price, asked.min_rating, asked.sort)
    return any(bound is not None for bound in bounds) or bool(asked.attributes or asked.without or asked.in_stock)


def _points(text: str, asked: QueryIntent, talk: Talk) -> bool:
    """Whether it says that it speaks of what was shown; "the cheapest among phones" after shoes does not."""
    if _AMONG.search(text) is None:
        return False
    return asked.category is None or (talk.intent is not None and talk.intent.category == asked.category)


def _chooses(text: str, asked: QueryIntent, talk: Talk) -> bool:
    """Whether it picks from what was shown without saying so: "which one is cheapest?", 最便宜的是哪个."""
    if len(talk.items) < 2 or asked.category is not None or asked.min_price or asked.max_price or asked.attributes:
        return False
    most = asked.sort is not None and asked.limit == 1
    return not asked.terms and (most or _CHOOSE.search(text) is not None)


def _among(text: str, asked: QueryIntent, talk: Talk) -> QueryIntent:
    sort, limit = asked.sort, asked.limit
    if sort is None and (_BETTER.search(text) or not (_constrained(asked) or asked.terms)):
        sort, limit = "value", 1
    elif sort is not None and limit == 5 and not _SEVERAL.search(text):
        limit = 1
    return replace(asked, category=None, sort=sort, limit=limit, among=talk.items or (PREVIOUS,))


def _follow_up(text: str, asked: QueryIntent, talk: Talk, before: QueryIntent) -> QueryIntent | None:
    """The query before this one with what the question changes; `None` when the question stands by itself."""
    if asked.category is not None and asked.category != before.category:
        return _moved(asked, before) if _LEAD.search(text) else None
    if asked.terms and not _LEAD.search(text) and not asked.category:
        return None
    if (compared := _compared(text, talk)) is not None:
        return replace(_changed(asked, before), **compared)
    if _MORE.search(text) and not _constrained(asked):
        seen = dict.fromkeys((*before.beyond, *talk.items))
        return replace(_changed(asked, before), beyond=tuple(seen)[-MAX_KEPT:])
    if asked.category is None and (_constrained(asked) or asked.terms):
        return _changed(asked, before)
    return None


def _moved(asked: QueryIntent, before: QueryIntent) -> QueryIntent:
    """Another category, the same purse."""
    if asked.min_price is None and asked.max_price is None:
        asked = replace(asked, min_price=before.min_price, max_price=before.max_price)
    return asked if asked.sort is not None else replace(asked, sort=before.sort)


def _changed(asked: QueryIntent, before: QueryIntent) -> QueryIntent:
    priced = asked.min_price is not None or asked.max_price is not None
    return replace(
        before,
        terms=asked.terms or before.terms,
        without=before.without + asked.without,
        brand=None if asked.terms else before.brand,
        attributes=before.attributes | asked.attributes,
        min_price=asked.min_price if priced else before.min_price,
        max_price=asked.max_price if priced else before.max_price,
        above=None,
        below=None,
        min_rating=asked.min_rating if asked.min_rating is not None else before.min_rating,
        in_stock=asked.in_stock or before.in_stock,
        sort=asked.sort or before.sort,
        limit=asked.limit,
        rank=asked.rank,
        among=(),
        beyond=(),
    )


def _compared(text: str, talk: Talk) -> dict[str, float | str] | None:
    """Bounds for "cheaper ones" and "more expensive ones", by the item spoken of or by the list shown."""
    prices = talk.prices
    if pointed := [talk.prices[place - 1] for place in places_in(text, True) if 0 < place <= len(talk.prices)]:
        prices = tuple(pointed)
    elif talk.focus is not None and (price := talk.price_of(talk.focus)) is not None:
        prices = (price,)
    if not prices:
        return None
    if _CHEAPER.search(text):
        return {"below": min(prices)}
    if _DEARER.search(text):
        return {"above": max(prices), "sort": "price"}
    return None


def _wanted(text: str, asked: QueryIntent) -> bool:
    if asked.category is not None:
        return True
    if asked.terms:
        return _constrained(asked) or _CUE.search(text) is not None or _bare(text, asked)
    return asked.sort is not None or (_constrained(asked) and _CUE.search(text) is not None)


def _bare(text: str, asked: QueryIntent) -> bool:
    """A few words that are nothing but a name for something."""
    words = [word for word in re.findall(r"[a-z0-9+.'-]+", text) if word not in _GLUE]
    left = sum(1 for term in asked.terms if term.isascii())
    characters = len(re.findall(f"[{HAN}]", text))
    return len(words) <= _BARE_WORDS and left == len(words) and characters <= _BARE_CHARACTERS
