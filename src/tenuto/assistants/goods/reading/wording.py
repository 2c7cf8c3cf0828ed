"""What a question says by itself: category, price, colour, order, number, and the words that are left over.

What a rule understands it takes out of the text; what is left over are terms, which the catalogue knows or does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from tenuto.assistants.goods.intent import MAX_LIMIT, MAX_TERMS, Bound, QueryIntent
from tenuto.assistants.goods.reading.alternatives import Alternatives
from tenuto.assistants.goods.reading.bounds import Bounds
from tenuto.assistants.goods.reading.goodness import GOODNESS
from tenuto.assistants.goods.reading.negation import Unwanted
from tenuto.assistants.goods.reading.pointing import OTHERS, PLACE
from tenuto.assistants.goods.reading.prices import Prices
from tenuto.assistants.goods.reading.suits import Suits
from tenuto.assistants.goods.words import (
    CATEGORY_PATTERNS,
    COLOR,
    CURRENCY,
    MEASURE,
    MEMORY_AND_STORAGE,
    color_of,
    cut,
    number,
    special,
    term,
    terms_in,
)
from tenuto.model.expression import expression
from tenuto.model.numbers import CARDINAL, HAN_NUMBER, ORDINAL, whole

AMONG: Final = expression(
    r"\b(?:among|amongst|out of|of|from|between|in|which of) (?:them|these|those|the above|(?:the|that|this) list)\b"
    r"|\b(?:are|do|have|will|can) (?:they|these|those)(?: all| both)?\b|\bthey(?: all| both)? (?:are|have|come)\b"
    r"|\bamong\b|其中|当中|这些|那些|这几|那几|里面|它们|上面(?:的|这|那)|刚才(?:的|那|说)"
)
# From all there is, whatever was shown: "the cheapest thing in the shop", 全店最贵的.
EVERYWHERE: Final = expression(
    r"\b(?:in|of|from) (?:the|your) (?:whole |entire )?(?:shop|store|catalogue|catalog|range|assortment)\b"
    r"|\bof all (?:your |the )?(?:goods|products|things|items)\b|\boverall\b"
    r"|\b(?:thing|product|item|article)s? (?:that )?(?:you|do you) (?:have|sell|offer|carry|stock)\b"
    r"|\byour (?:[a-z-]+ ){1,3}(?:product|item|thing|article)s?\b"
    r"|全店|全场|[整这]个?店[里内]?|店[里内]|商城|(?:所有|全部)的?(?:商品|东西|产品)[里中]?|你们(?:店|家)?(?:这里|这儿)?(?=最)"
)
CHEAPER: Final = expression(
    r"\b(?:cheaper|less expensive|lower[- ]priced?|more affordable|too (?:expensive|pricey|dear))\b"
    r"|\beven (?:less|lower|cheaper)\b"
    r"|[更再还]便宜|便宜(?:一?点|一?些)|便宜个?\s*\d|价格(?:再|更)?低(?:一?点|一?些)?|太贵"
    r"|比(?:第|它|[这那])[^,，。 ]{0,6}便宜"
)
DEARER: Final = expression(
    r"\b(?:more expensive|pricier|higher[- ](?:end|priced?)|more premium)\b"
    r"|[更再]贵|贵(?:一?点|一?些)|贵个?\s*\d|[更再]高[端档]|太便宜"
    r"|比(?:第|它|[这那])[^,，。 ]{0,6}贵"
)
# By how much: 便宜100块, "200 more expensive".
BY_SO_MUCH: Final = expression(
    rf"便宜个?\s*(?P<less>\d[\d,.]*)\s*(?:{CURRENCY})|贵个?\s*(?P<more>\d[\d,.]*)\s*(?:{CURRENCY})"
    rf"|(?:[¥$€£]\s*)?\b(?P<cheaper>\d[\d,]*)\s*(?:{CURRENCY})?\s*(?:cheaper|less expensive)\b(?! than \d)"
    rf"|(?:[¥$€£]\s*)?\b(?P<dearer>\d[\d,]*)\s*(?:{CURRENCY})?\s*more expensive\b(?! than \d)"
)
# "The cheaper of the two brands": that they are two tells nothing more.
_THE_TWO: Final = expression(
    r"\bof (?:the|these|those) two\b(?: (?:brands|models|options|ones|items|products|phones))?"
)
_NONE_OF: Final = (
    r"^(?:no,? )?none of (?:them|these|those)\W*$|^(?:这[些几][个款]?|它们)?都不(?:喜欢|要|行|合适|满意|好)\W*$"
)
NONE_OF: Final = expression(_NONE_OF)
MORE: Final = expression(
    r"^(?:(?:any|some|show|show me|see|what|anything|something|do you|have you|are there|is there)\b.{0,12})?"
    r"\b(?:more|else|others?|other ones|different ones|next)\b"
    r"(?! (?:expensive|affordable|premium|popular|about|than|detail|info))"
    rf"|{_NONE_OF}"
    r"|还有(?:没有)?(?:别的|其[他它]|更多|吗)|换一[批些]|再来(?:几|一)|更多|别的(?:呢|吗)|下一[批页]"
)
LEAD: Final = expression(
    r"^(?:and|or|but|ok(?:ay)?|then|what about|how about|what if|only|just|instead|make it|i prefer|in|with)\b"
    r"|\binstead\b|\bwhat about\b|\bhow about\b|^(?:那|那么|如果|要是|只要|就要|换成|换|改成|有没有|要)"
    r"|呢[?？]?\s*$|的呢|换成|改成"
)
_IN_STOCK: Final = expression(
    r"\b(?:not sold[- ]out|in stock)\b|(?:不|没有)缺货的?|\bavailable(?: now)?\b|有现?货(?:的|吗)?|现货"
)
# How goods stand that cannot be had now, and as a condition.
_NOT_IN_STOCK: Final = expression(
    r"(?<!not )\b(?:sold[- ]out|out of stock|unavailable|not (?:available|in stock))\b"
    r"|(?<!不)(?<!没有)(?:缺货|没货|无货|没有货|没现货|售罄|卖完|卖光|断货)了?的?"
)
SOLD_OUT: Final = Bound(of=("stock",), sign="=", amount="0")
_HOW_MANY: Final = rf"(\d{{1,2}}|(?!one\b){CARDINAL})"
_COUNTED: Final = "个款台部种双本件"
_COUNT: Final = expression(
    rf"\b(?:top|first|best)\s*{_HOW_MANY}\b"
    rf"|\b{_HOW_MANY}\s+(?:best |cheapest |good |cheap )?"
    r"(?=options|choices|recommendations|suggestions|products|items|ones|of them"
    r"|phones|laptops|tablets|watches|cameras|books|toys)"
    rf"|\bthe\s+{_HOW_MANY}(?=\s*$)"
    rf"|前\s*({HAN_NUMBER})\s*[名{_COUNTED}]?"
    rf"|(?<![第哪另外后\d零〇一二两三四五六七八九十百千])(?!一[{_COUNTED}])({HAN_NUMBER})\s*[{_COUNTED}](?!人|月|岁)"
)
_COUNT_BEST: Final = expression(
    rf"\b{_HOW_MANY} (?:most|least|best|[a-z]{{3,}}est)\b|最\S{{1,4}}的({HAN_NUMBER})[{_COUNTED}]"
)
_ONE: Final = expression(
    r"\b(?:a single|only one|just one|one) (?:option|choice|product|phone|laptop)\b"
    r"|(?<![第哪这那每十百千后另])一[款个台部双本件]"
)
_EACH: Final = expression(r"\beach\b|各")
RESORT: Final = expression(
    r"\b(?:sort|order|rank|arrange) (?:them|these|those)\b|[把将给](?:它们|这些|这几|上面|刚才)"
    r"|(?:它们|这些|这几[款个本台双件]).{0,4}(?:按|排)"
)
SEVERAL: Final = expression(r"\b(?:some|several|a few|ones|options|list)\b|哪些|几[款个种台本双件]|一些|都有|列")
_PLURAL: Final = expression(r"\s+(?!of\b)(?:[a-z0-9-]+\s+){0,3}?[a-z-]+(?<![su'])s\b(?! (?:is|among|of))")
_PLURAL_BEFORE: Final = expression(r"[a-z-]{2,}(?<![su'])s (?:with|having|that have) (?:the |an? )?$")
_RANK: Final = expression(
    rf"\b(?P<en>{ORDINAL})[ -](?=most|best|least|top|[a-z]+est\b)"
    rf"|第(?P<zh>{HAN_NUMBER})(?=便宜|贵|[高好大小轻重长短新多少薄厚快]|划算|畅销|热)|(?<=性价比)第(?P<value>{HAN_NUMBER})"
)


class Wording:
    """The words of a question while it is read; what was understood is taken out of them."""

    def __init__(self, text: str) -> None:
        self._whole = text
        self.text = text

    def read(self) -> QueryIntent:
        """Everything the text says by itself."""
        intent = QueryIntent()
        steps: tuple[Callable[[QueryIntent], QueryIntent], ...] = (
            self._suits,
            self._bounds,
            self._prices,
            self._stock,
            self._without,
            self._order,
            self._count,
            self._either,
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
            self.text = cut(self.text, *found.span())
        return found

    def _suits(self, intent: QueryIntent) -> QueryIntent:
        # Before the bounds: "size 42 or larger" is about sizes, and 6岁以上 about nobody's battery.
        suits = Suits(self.text)
        self.text = suits.rest
        return replace(intent, amounts=suits.found)

    def _bounds(self, intent: QueryIntent) -> QueryIntent:
        # Before the prices: "over 5000 mAh" is none.
        bounds = Bounds(self.text)
        self.text = bounds.rest
        return replace(intent, amounts=intent.amounts + bounds.found)

    def _prices(self, intent: QueryIntent) -> QueryIntent:
        prices = Prices(BY_SO_MUCH.sub(" ", self.text))
        self.text = prices.rest
        return replace(
            intent,
            min_price=prices.low,
            max_price=prices.high,
            currency=prices.currency,
            min_rating=prices.rating,
        )

    def _without(self, intent: QueryIntent) -> QueryIntent:
        unwanted = Unwanted(self.text)
        self.text = unwanted.rest
        return replace(intent, without=tuple(dict.fromkeys(unwanted.phrases)))

    def _stock(self, intent: QueryIntent) -> QueryIntent:
        if self.take(_NOT_IN_STOCK) is not None:
            return replace(intent, amounts=(*intent.amounts, SOLD_OUT))
        return replace(intent, in_stock=self.take(_IN_STOCK) is not None)

    def _order(self, intent: QueryIntent) -> QueryIntent:
        rank = self._rank()
        # "cheaper" is no wish for cheap goods as such: it is measured by what was shown.
        text = CHEAPER.sub(" ", DEARER.sub(" ", self.text))
        for goodness in GOODNESS:
            found = goodness.pattern.search(text)
            if found is not None:
                self.take(goodness.pattern)
                single = goodness.most and not self._several(text, found)
                limit = 1 if single else intent.limit
                return replace(intent, sort=goodness.sort, by=goodness.by, rank=rank, limit=limit)
        return intent

    def _rank(self) -> int:
        """The place in an order: 第二便宜 is 最便宜, but for the place."""
        found = _RANK.search(self.text)
        if found is None:
            return 1
        most = "" if found["en"] else "最高" if found["value"] else "最"
        self.text = f"{self.text[: found.start()]}{most}{self.text[found.end() :]}"
        return whole(found["en"] or found["zh"] or found["value"]) or 1

    def _several(self, text: str, most: re.Match[str]) -> bool:
        """Whether a superlative speaks of more than one: "the cheapest phones", "phones with the largest battery"."""
        before, after = _PLURAL_BEFORE.search(text[: most.start()]), _PLURAL.match(text, most.end())
        return SEVERAL.search(self._whole) is not None or before is not None or after is not None

    def _count(self, intent: QueryIntent) -> QueryIntent:
        self.take(_THE_TWO)
        found = self.take(_COUNT)
        if found is None and (found := _COUNT_BEST.search(self._whole)) is not None:
            # What is best was taken out of the text before: the number is left of it.
            self.text = re.sub(rf"\b{found[1]}\b", " ", self.text, count=1) if found[1] else self.text
        if found is not None:
            return replace(intent, limit=min(int(number(next(filter(None, found.groups())))), MAX_LIMIT))
        if self.take(_ONE) is not None:
            return replace(intent, limit=1)
        return intent

    def _either(self, intent: QueryIntent) -> QueryIntent:
        alternatives = Alternatives(self.text)
        self.text = alternatives.rest
        # One of each is more than one.
        each = alternatives.groups and intent.limit == 1 and _EACH.search(self._whole)
        return replace(intent, either=alternatives.groups, limit=QueryIntent().limit if each else intent.limit)

    def _colors(self, intent: QueryIntent) -> QueryIntent:
        found = self.take(COLOR)
        if found is None:
            return intent
        return replace(intent, attributes={"color": color_of(found)})

    def _category(self, intent: QueryIntent) -> QueryIntent:
        for slug, pattern in CATEGORY_PATTERNS:
            if (found := self.take(pattern)) is not None:
                return replace(intent, category=slug, terms=special(found[0]))
        return intent

    def _terms(self, intent: QueryIntent) -> QueryIntent:
        terms = list(intent.terms)
        if (pair := self.take(MEMORY_AND_STORAGE)) is not None:
            terms += [f"{pair[1]}gb", f"{pair[2]}gb"]
        while len(terms) < MAX_TERMS and (found := self.take(MEASURE)) is not None:
            terms.append(term(found[1], found[2]))
        for pattern in (EVERYWHERE, CHEAPER, DEARER, PLACE, OTHERS, AMONG, MORE, LEAD):
            self.text = pattern.sub(" ", self.text)
        terms += terms_in(self.text)
        return replace(intent, terms=tuple(dict.fromkeys(terms))[:MAX_TERMS])
