"""The table of words that gives a `QueryIntent` without a language model, in English and Chinese.

It is a table, not a grammar: category, price bounds, sort, colour, "among them", ordinals, orders and complaints are
recognised by their words, and the rest of the question is text for the lexical index. A question is understood fully
or clumsily; a price bound is the one thing that must not be overlooked.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from msgspec.structs import replace

from tenuto.assistants.goods.intent import QueryIntent, Shown, Sort
from tenuto.model.patterns import lazy_pattern
from tenuto.recall import terms

Topic: TypeAlias = Literal["goods", "orders", "complaint"]

# A longer text is no question to a shop, and a bound in the middle of it would be overlooked.
MAX_QUESTION: Final = 2_000

CATEGORIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "phones": ("phone", "smartphone", "mobile phone", "手机"),
        "laptops": ("laptop", "notebook", "computer", "笔记本电脑", "笔记本", "电脑"),
        "tablets": ("tablet", "平板电脑", "平板"),
        "headphones": ("headphone", "earphone", "headset", "耳机"),
        "watches": ("watch", "smartwatch", "手表", "腕表"),
        "cameras": ("camera", "相机"),
        "accessories": ("accessory", "accessories", "配件"),
        "home": ("homeware", "furniture", "家居用品", "家居", "家具"),
        "kitchen": ("kitchenware", "cookware", "厨房用品", "厨具"),
        "appliances": ("appliance", "家用电器", "家电", "电器"),
        "clothes": ("clothing", "clothes", "衣服", "服装"),
        "shoes": ("shoe", "footwear", "鞋子"),
        "books": ("book", "图书", "书籍"),
        "toys": ("toy", "玩具"),
        "food": ("grocery", "groceries", "食品", "吃的"),
        "beauty": ("cosmetic", "beauty product", "化妆品", "美妆"),
        "sports": ("sports equipment", "sporting goods", "运动用品", "户外用品"),
        "pets": ("pet supplies", "pet supply", "宠物用品"),
    }
)
COLORS: Final[Mapping[str, str]] = MappingProxyType(
    {"black": "黑色", "white": "白色", "blue": "蓝色", "red": "红色", "green": "绿色", "silver": "银色"}
    | {"gold": "金色", "pink": "粉色", "purple": "紫色", "grey": "灰色", "yellow": "黄色", "brown": "棕色"}
    | {"beige": "米色", "orange": "橙色"}
)
ENGLISH_COLORS: Final = {chinese: english for english, chinese in COLORS.items()} | {"gray": "grey"}
_MATERIALS: Final = (
    {"steel": "不锈钢", "cast iron": "铸铁", "enamel": "搪瓷", "ceramic": "陶瓷", "glass": "玻璃", "plastic": "塑料"}
    | {"cotton": "棉", "wool": "羊毛", "linen": "亚麻", "polyester": "聚酯纤维", "mesh": "网布", "down": "羽绒"}
    | {"wood": "木", "oak": "橡木", "bamboo": "竹", "latex": "乳胶", "memory foam": "记忆棉", "soy wax": "大豆蜡"}
)
_UNITS: Final = {"inch": "英寸", "days": "天", "h": "小时", "min": "分钟"}
_VALUES: Final = {**COLORS, **_MATERIALS, "one size": "均码"}
# What is shown in Chinese may come back as a condition.
ENGLISH_VALUES: Final = {chinese: english for english, chinese in _VALUES.items()} | ENGLISH_COLORS
ENGLISH_UNITS: Final = {chinese: english for english, chinese in _UNITS.items()}
ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType(
    {"color": "颜色", "memory": "内存", "storage": "存储", "screen": "屏幕", "battery": "续航", "weight": "重量"}
    | {"size": "尺寸", "material": "材质", "power": "功率", "capacity": "容量", "length": "长度", "pages": "页数"}
    | {"age": "适用年龄"}
)
_ENGLISH_ATTRIBUTES: Final = {chinese: english for english, chinese in ATTRIBUTES.items()} | {"colour": "color"}

# The first row that matches decides; "not expensive" stands before "expensive".
_SORTS: Final[tuple[tuple[Sort, re.Pattern[str]], ...]] = (
    ("value", lazy_pattern(r"\b(?:best |good )?value(?: for money)?\b|性价比(?:最?[高好])?|划算|最值得?买?")),
    ("price", lazy_pattern(r"\bnot (?:too |very |so )?expensive\b|不(?:要?太)?贵|别太贵")),
    ("price", lazy_pattern(r"\bcheap(?:er|est)?\b|\b(?:affordable|inexpensive|lowest price)\b|最?便宜|实惠|平价|低价")),
    ("price_desc", lazy_pattern(r"\b(?:most )?expensive\b|\bpriciest\b|\bpremium\b|最贵|高端|高档")),
    (
        "sales",
        lazy_pattern(
            r"\bbest[- ]?sell(?:ing|ers?)\b|\b(?:most )?popular\b|销量(?:最?[高好])?|畅销|热销|热门|卖得最?好"
        ),
    ),
    (
        "rating",
        lazy_pattern(
            r"\b(?:best|top|highest)(?:[- ]rated)?\b|\brat(?:ed|ing)\b|(?:评分|好评|口碑|评价)(?:最?[高好多])?"
        ),
    ),
)
_SUPERLATIVE: Final = lazy_pattern(r"\b(?:best|cheapest|most|highest|lowest|top|priciest)\b|最")
_AMONG: Final = lazy_pattern(r"\b(?:among|of|from|out of) (?:them|these|those)\b|其中|这些|这几[款个件]|当中")
_ORDER_WORDS: Final = lazy_pattern(
    r"\border(?:s|ed)?\b|\bshipped\b|\btracking\b|\bparcel\b|订单|物流|快递|发货|单号|我买的"
)
_COMPLAINT_WORDS: Final = lazy_pattern(r"\bcomplain(?:t|ts|ing|ed)?\b|投诉")
_ORDER_NUMBER: Final = lazy_pattern(r"(?<![a-z0-9])(?:[a-z]{1,4}-?)?\d[\d-]{2,30}(?![a-z0-9])")
_ORDINALS: Final = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5} | {
    character: place for place, character in enumerate("一二三四五六七八九十", 1)
}
_POSITION: Final = lazy_pattern(
    r"\b(?:the )?(first|second|third|fourth|fifth|\d{1,2}(?:st|nd|rd|th))\b(?: one| item| order)?"
    r"|\bnumber (\d{1,2})\b|第([一二三四五六七八九十]|\d{1,2})[个款件单台本条种]?"
)
_LAST: Final = lazy_pattern(r"\bthe last one\b|最后一[个款件单]")

# What follows makes other goods of a category word: a phone case is no phone.
_NO_CATEGORY: Final = r"(?!\s*(?:(?:case|cover|charger|stand|holder|strap|bag|cable)s?|壳|套|膜|支架|充电|包|架))"
_FILLER: Final = lazy_pattern(
    r"\b(?:show|find|recommend|suggest|need|buy|look(?:ing)?|search|sell|goods|products?|items?|things?|ones?|good|got"
    r"|give|prices?|priced?|costs?|budget|money|kinds?|anything|something|much|many|okay|ok|bye|goodbye)\b"
    r"|有没有|有什么|有哪些|推荐|一下|看看|多少钱|价格|价位|预算|怎么样|商品|东西|店里|请问|你们|你好|您好|再见"
    r"|[有想要买最款个卖给找帮几]"
)

# An amount of money: a figure or a number word, with or without a currency, and no unit of anything else behind it.
_CURRENCY: Final = r"(?:(?:us|hk)?\$|[€£¥]|(?:usd|eur|gbp|rmb|cny|yuan|dollars?|euros?)(?![a-z])|元|块钱?)"
_SIGN: Final = lazy_pattern(_CURRENCY)
_CURRENCIES: Final = {"us$": "USD", "hk$": "HKD", "usd": "USD", "dollar": "$", "eur": "EUR", "euro": "EUR"} | {
    "gbp": "GBP",
    "rmb": "CNY",
    "cny": "CNY",
    "yuan": "CNY",
    "元": "CNY",
    "块": "CNY",
}
_NUMBER_WORDS: Final[Mapping[str, int]] = MappingProxyType(
    {"a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9}
    | {"ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "fifty": 50, "两": 2}
    | _ORDINALS
)
_NUMBER_WORD: Final = "|".join(filter(str.isascii, _NUMBER_WORDS))
_SCALES: Final = {"k": 1e3, "hundred": 1e2, "thousand": 1e3, "grand": 1e3, "百": 1e2, "千": 1e3, "万": 1e4}
_FIGURE: Final = r"\d{1,9}(?:,\d{3}){0,2}(?:\.\d{1,4})?(?!\d)"
_END: Final = r"(?![a-z])"
_AMOUNT: Final = (
    rf"(?:{_CURRENCY}\s*)?(?>(?<![\d.]){_FIGURE}(?:\s*(?:(?:k|thousand|hundred){_END}|[百千万]\d{{0,3}}))?"
    rf"|(?:(?:{_NUMBER_WORD})\s+(?:hundred|thousand|grand){_END}(?:\s+and)?\s*)+"
    r"|[一二两三四五六七八九十]{0,3}[百千万][一二两三四五六七八九十百千万零]*)"
    rf"(?!\s*(?:%|(?:[gtm]b|k?g|mah|hz|inch(?:es)?|[cm]?m|m?l|w|h|hours?|days?|pages?|years?|stars?){_END}"
    r"|克|公斤|千克|斤|升|毫升|厘米|米|英?寸|小时|天|页|岁|码|瓦|星|分))"
    rf"(?:\s*{_CURRENCY})?"
)
_BETWEEN: Final = lazy_pattern(
    rf"between\s+({_AMOUNT})\s+and\s+({_AMOUNT})|({_AMOUNT})\s*(?:-|–|—|~|to|到|至)\s*({_AMOUNT})"
)
_BOUND_BEFORE: Final = lazy_pattern(
    r"(?<![a-z])(?:(?P<most>(?:no|not) (?:more than|over|above|exceeding)|at most|up to|max(?:imum)?|within"
    r"|budget(?: is| of)?|<=|不超过|不高于|最多|预算[是为]?)"
    r"|(?P<below>under|below|(?:less|lower|cheaper) than|<|不到|低于|少于|小于)"
    r"|(?P<least>(?:no|not) (?:less than|under|below)|at least|from|starting (?:at|from)|min(?:imum)?|>="
    r"|不低于|不少于|至少|起码)"
    r"|(?P<above>over|above|(?:more|higher) than|>|超过|高于|大于)"
    rf"|(?P<near>around|about|roughly|大约|大概|差不多))\s*:?\s*{_AMOUNT}"
)
_BOUND_AFTER: Final = lazy_pattern(
    rf"{_AMOUNT}\s*(?:(?P<most>or (?:less|under|below|cheaper)|max{_END}|tops|以下|以内|之内|封顶)"
    r"|(?P<least>or (?:more|above|over)|and up|\+|以上|起)|(?P<near>左右|上下|or so))"
)
# The distance between "under 100" and "up to 100" in money.
_CENT: Final = 0.01
_NEARNESS: Final = 0.2


def category_slug(word: str) -> str | None:
    """The shipped name of a category as people call it."""
    folded = word.strip().casefold()
    found = _CATEGORY.fullmatch(folded)
    return folded if folded in CATEGORIES else None if found is None else _SLUGS[found[1] or found[2]]


def value_in_chinese(value: str) -> str:
    """The value of an attribute for a Chinese reader; one that is not known stays as it is."""
    amount, _, unit = value.rpartition(" ")
    return f"{amount} {_UNITS[unit]}" if amount and unit in _UNITS else _VALUES.get(value, value)


def attribute_name(name: str) -> str:
    """The name of an attribute as the catalogue notes it."""
    folded = name.strip().casefold()
    return _ENGLISH_ATTRIBUTES.get(folded, folded)


def interpret(question: str, shown: Shown) -> tuple[Topic, QueryIntent] | None:
    """What the question is about and what it asks; `None` when it has no word for a shop."""
    if len(question) > MAX_QUESTION:
        return None
    folded = unicodedata.normalize("NFKC", question).casefold()
    rest, position = _take_position(folded)
    complaint = _COMPLAINT_WORDS.search(folded) is not None
    if complaint or _ORDER_WORDS.search(folded) or (position is not None and shown.orders):
        number = _ORDER_NUMBER.search(folded)
        intent = QueryIntent(order=number[0] if number else "", position=position if shown.orders else None)
        return "complaint" if complaint else "orders", intent
    intent, rest = _take_price(rest)
    rest, words = _take_words(rest)
    intent = replace(intent, **words)
    if position is not None and not intent.category:
        return "goods", QueryIntent(position=position)
    text = " ".join(_FILLER.sub(" ", rest).split())[:200]
    intent = replace(intent, text=text if terms(text) else "")
    if intent == QueryIntent():
        return None
    named = intent.category or intent.text
    among = _AMONG.search(folded) is not None or (bool(shown.items) and not named)
    single = among and intent.sort is not None and _SUPERLATIVE.search(folded) is not None
    return "goods", replace(intent, among_previous=among, limit=1 if single else 5)


def _take_position(text: str) -> tuple[str, int | None]:
    """The text without the words for a place in a list, and that place."""
    if last := _LAST.search(text):
        return _cut(text, last), -1
    if found := _POSITION.search(text):
        word = found[1] or found[2] or found[3]
        digits = "".join(filter(str.isdecimal, word))
        return _cut(text, found), int(digits) if digits else _ORDINALS[word]
    return text, None


def _take_words(text: str) -> tuple[str, dict[str, object]]:
    """The text without the words for sort, category, colour and "among them", and what they say."""
    words: dict[str, object] = {}
    for sort, pattern in _SORTS:
        if found := pattern.search(text):
            words.setdefault("sort", sort)
            text = _cut(text, found)
    if found := _CATEGORY.search(text):
        words["category"] = found[1] or found[2]
        text = _cut(text, found)
    if found := _COLOR.search(text):
        words["attributes"] = {"color": ENGLISH_COLORS.get(found[0], found[0])}
        text = _cut(text, found)
    return _AMONG.sub(" ", text), words


def _take_price(text: str) -> tuple[QueryIntent, str]:
    """An intent with every price bound of the text, of several the strictest, and the text without them."""
    least: list[float] = []
    most: list[float] = []
    currency = ""

    def take(found: re.Match[str]) -> str:
        nonlocal currency
        if sign := _SIGN.search(found[0]):
            currency = _CURRENCIES.get(sign[0].rstrip("s钱"), sign[0])
        kind, amount = found.lastgroup, _amount(found[0])
        if kind is None:
            low, high = sorted(_amount(group) for group in found.groups() if group)
            least.append(low)
            most.append(high)
        elif kind == "near":
            least.append(amount * (1 - _NEARNESS))
            most.append(amount * (1 + _NEARNESS))
        elif kind in ("least", "above"):
            least.append(amount + _CENT if kind == "above" else amount)
        else:
            most.append(amount - _CENT if kind == "below" else amount)
        return " "

    for pattern in (_BETWEEN, _BOUND_BEFORE, _BOUND_AFTER):
        text = pattern.sub(take, text)
    intent = QueryIntent(min_price=max(least, default=None), max_price=min(most, default=None), currency=currency)
    return intent, text


def _amount(text: str) -> float:
    """The sum that figures or number words say: 2,000, 2k, 两千五, two thousand five hundred."""
    total, number, scale = 0.0, 0.0, 1.0
    for word in re.findall(rf"{_FIGURE}|[a-z]+|[一-鿿]", text):
        if word[0].isdecimal():
            number = float(word.replace(",", ""))
        elif word in _SCALES:
            scale = _SCALES[word]
            total = (total + number) * scale if word == "万" else total + (number or 1) * scale
            number = 0.0
        elif word == "十":
            number = (number or 1) * 10
        else:
            number = float(_NUMBER_WORDS.get(word, number))
    # A digit behind a scale counts in the next lower one: 两千五 is 2,500.
    return total + (number * scale / 10 if total and number < 10 else number)


def _cut(text: str, found: re.Match[str]) -> str:
    return f"{text[: found.start()]} {text[found.end() :]}"


def _alternatives(words: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


_SLUGS: Final = {word: slug for slug, words in CATEGORIES.items() for word in words}
_CATEGORY: Final = lazy_pattern(
    rf"(?:(?<![a-z])({_alternatives(filter(str.isascii, _SLUGS))})(?:e?s)?(?![a-z])"
    rf"|({_alternatives(word for word in _SLUGS if not word.isascii())})){_NO_CATEGORY}"
)
_COLOR: Final = lazy_pattern(
    rf"(?<![a-z])(?:{_alternatives([*COLORS, 'gray'])})(?![a-z])|{_alternatives(COLORS.values())}"
)
