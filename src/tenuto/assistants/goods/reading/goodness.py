"""Ways to be first: cheapest, best rated, best value, and most or least of an attribute such as battery or weight."""

from __future__ import annotations

import re
from typing import Final

from tenuto.assistants.goods.intent import Sort
from tenuto.model.expression import expression
from tenuto.model.values import Value


class Goodness(Value, frozen=True, kw_only=True):
    """A way to be first; `most` tells superlatives from mere wishes, `by` names the attributes that decide."""

    sort: Sort
    pattern: re.Pattern[str]
    most: bool
    by: tuple[str, ...] = ()


def _good(sort: Sort, most: bool, english: str, chinese: str, by: tuple[str, ...] = ()) -> Goodness:
    return Goodness(sort=sort, most=most, by=by, pattern=expression(rf"\b(?:{english})\b|{chinese}"))


# What can be more or less, by its nouns in both languages.
NOUNS: Final = (
    (("battery",), r"batter(?:y|ies)(?: (?:life|capacity|size))?", r"电池(?:容量|寿命)?|续航(?:时间|能力)?|电量"),
    (("screen",), r"(?:screen|display)s?(?: size)?", r"屏幕?(?:尺寸)?|显示屏"),
    (("memory",), r"memory|ram", r"运?行?内存|运存"),
    (("storage",), r"(?:storage|disk|ssd|drive)(?: (?:space|capacity))?", r"存储(?:空间|容量)?|硬盘(?:容量)?"),
    (("capacity", "storage", "battery"), r"capacity|volume", r"容量|容积"),
    (("power",), r"power|wattage", r"功率|动力"),
    (("weight",), r"weight", r"重量"),
    (("length",), r"length", r"长度"),
    (("pages",), r"(?:number of )?pages|page count", r"页数?"),
    (("size", "screen", "capacity"), r"size", r"尺寸|尺码|个头"),
    (("stock",), r"stock", r"库存"),
)
_MOST: Final = r"(?:most|largest|biggest|greatest|highest|longest(?:[- ]lasting)?|strongest|best|max(?:imum)?)"
_LEAST: Final = r"(?:least|smallest|lowest|shortest|fewest|weakest|worst|min(?:imum)?)"
_MORE: Final = (
    r"(?:more|larger|bigger|greater|higher|longer(?:[- ]lasting)?|stronger|better"
    r"|good|big|large|long(?:[- ]lasting)?|great|high|strong|lots of|plenty of)"
)
_LESS: Final = r"(?:less|smaller|lower|shorter|fewer|weaker|small|low|little)"
_MUCH_HAN: Final = "大高多长久强好足耐"
# 屏幕多大 asks how large it is.
_HOW: Final = "多[大少久长重高厚]"
_LITTLE_HAN: Final = "小低少短轻差弱"


def _of_nouns(sort: Sort, most: bool, degree: str, signs: str) -> tuple[Goodness, ...]:
    """The largest battery, "battery is the largest", 电池最大, 最大的电池; or "a large battery", 电池更大, 大电池."""
    very = "最" if most else "(?:更|很|比较|够|要)?"
    return tuple(
        _good(
            sort,
            most,
            rf"{degree} (?:{english})|(?:{english}) (?:is |are )?(?:the )?{degree}",
            rf"(?:{chinese})\s?(?:是)?{very}(?!{_HOW})[{signs}](?:用|久)?|{very}[{signs}](?:的)?(?:{chinese})",
            by,
        )
        for by, english, chinese in NOUNS
    )


_SUPERLATIVES: Final = (
    _good(
        "value",
        True,
        r"best (?:value|deal|buy|bang)(?: for (?:the |your |my )?(?:money|price|buck))?"
        r"|(?:most|best) (?:cost[- ]effective|value for money|bang for (?:the|your) buck|worth(?: it| buying)?)"
        r"|(?:greatest|highest|most) value|best price[- ](?:performance|quality)(?: ratio)?",
        r"性价比(?:是)?最[高好强大]|最(?:有|具)性价比|性价比之王|最划算|最值得?买?|最超值|最物有所值",
    ),
    _good(
        "price",
        True,
        r"cheapest|lowest[- ]price[ds]?|lowest prices?|least expensive|most affordable|lowest cost",
        r"最便宜|最低价|价格最低|价钱最低|最实惠|最平价|最省钱|最不贵",
    ),
    _good(
        "price_desc",
        True,
        r"most expensive|priciest|dearest|highest[- ]priced?|most luxurious|most premium",
        r"最贵|价格最高|最高端|最高档|最豪华",
    ),
    _good(
        "sales",
        True,
        r"best[- ]?sell(?:ing|ers?)|sells? (?:the )?(?:best|most)|most popular|most sold|most bought"
        r"|top[- ]sell(?:ing|ers?)|hottest",
        r"销量(?:是)?最[高好大多]|卖[得的]最[好火多]|最畅销|最热[门销]?|最火爆?|最受欢迎|买[得的]?最多|人气最[高旺]|销量(?:第一|冠军)",
    ),
    _good(
        "rating",
        True,
        r"(?:best|highest|top)[- ](?:rated|reviewed|ratings?|quality)|best reviews?|best|finest|top[- ]notch",
        r"评[价分](?:是)?最[高好]|口碑最[好佳]|质量最[好佳]|最好评|最好用?|最佳|最优质|好评最多",
    ),
)
# By an adjective alone; which attribute decides may depend on the goods.
_BIG: Final = ("screen", "size", "capacity", "length", "weight")
# 比第二个轻: next to what it is compared with the bare adjective is enough.
_THAN: Final = "比[^,，。 ]{0,6}?[个款台部本双件它]"
# 轻的那个: and so it is before what one of two is called by.
_THE: Final = "(?=一?点?的那)"
_ADJECTIVES: Final = (
    _good("least", True, r"worst(?:[- ](?:rated|reviewed))?|(?:lowest|least)[- ]rated|lowest ratings?",
          r"评[价分](?:是)?最[低差]|口碑最差|最差", ("rating",)),
    _good("least", True, r"least popular|worst[- ]selling|lowest sales",
          r"销量(?:是)?最[低差少]|卖[得的]最[差少]|最冷门", ("sales",)),
    _good("least", True, r"lightest(?:[- ]weight)?", r"最轻[便薄巧]?", ("weight",)),
    _good("most", True, r"heaviest", r"最[重沉](?!要|视|磅)", ("weight",)),
    _good("most", True, r"newest|latest|most recent(?:ly released)?",
          r"最新(?:款|出|上市|发布)?|最近上市", ("released",)),
    _good("least", True, r"oldest", r"最[老旧]款?|最早上市", ("released",)),
    _good("most", True, r"longest[- ]lasting", r"最(?:耐用|持久)", ("battery",)),
    _good("most", True, r"longest", r"最长", ("length", "pages")),
    _good("least", True, r"shortest", r"最短", ("length", "pages")),
    _good("most", True, r"thickest", r"最厚", ("thickness", "pages")),
    _good("least", True, r"thinnest|slimmest", r"最薄", ("thickness", "pages")),
    _good("most", True, r"fastest|quickest", r"最快|速度最快", ("speed",)),
    _good("most", True, r"most powerful|strongest", r"性能最[强好高]|最强(?:劲|大)?", ("power", "speed")),
    _good("least", True, r"quietest", r"最(?:安静|静音)|噪音最[小低]", ("noise",)),
    _good("most", True, r"sharpest|highest resolution", r"最清晰|分辨率最高", ("resolution",)),
    _good("most", True, r"largest|biggest", r"最大", _BIG),
    _good("least", True, r"smallest|tiniest|most compact", r"最小巧?", _BIG),
    _good("least", False, r"lighter(?:[- ]weight)?", rf"更轻[便薄]?|轻(?:一?点|一?些)|{_THAN}轻|轻{_THE}", ("weight",)),
    _good("least", False, r"not (?:too |very |so |that )?heavy|light[- ]?weight",
          r"[别不](?:要|能)?太?重(?!要)", ("weight",)),
    _good("most", False, r"heavier", rf"更重|重(?:一?点|一?些)|{_THAN}重|重{_THE}", ("weight",)),
    _good("most", False, r"thicker", rf"更厚|厚(?:一?点|一?些)|{_THAN}厚|厚{_THE}", ("thickness", "pages")),
    _good("least", False, r"thinner|slimmer", rf"更薄|薄(?:一?点|一?些)|{_THAN}薄|薄{_THE}", ("thickness", "pages")),
    _good("most", False, r"longer", rf"更长|长(?:一?点|一?些)|{_THAN}长|长{_THE}", ("length", "pages", "battery")),
    _good("least", False, r"shorter", rf"更短|短(?:一?点|一?些)|{_THAN}短|短{_THE}", ("length", "pages", "battery")),
    _good("most", False, r"more powerful|stronger", r"更强|强(?:一?点|一?些)", ("power", "speed")),
    _good("most", False, r"newer", r"更新(?:一?点|一?些|的款?)|新一?点", ("released",)),
    _good("most", False, r"larger|bigger", rf"更大|大(?:一?点|一?些)|{_THAN}大|大{_THE}", _BIG),
    _good("least", False, r"smaller|more compact", rf"更小|小(?:一?点|一?些)|{_THAN}小|小{_THE}", _BIG),
)  # fmt: skip
_WISHES: Final = (
    _good(
        "value",
        False,
        r"good value|value for money|cost[- ]effective|worth (?:the money|buying|it)|bang for (?:the|your) buck"
        r"|good deals?|price[- ](?:performance|quality)(?: ratio)?",
        r"性价比(?:比?较|更|很|要)?[高好]?|划算|超值|物有所值|值得买",
    ),
    _good(
        "price",
        False,
        r"cheap|affordable|inexpensive|low[- ](?:cost|priced?)|budget|economical|not (?:too |very |so )?expensive",
        r"便宜|实惠|平价|低价|省钱|经济型|不(?:太|要太)?贵|价格低",
    ),
    _good(
        "price_desc",
        False,
        r"expensive|premium|high[- ]end|luxury|pricey|flagship",
        r"高端|高档|豪华|贵[一]?点|(?<![不太更再])贵(?=[的呢,.!?，。！？]|$)",
    ),
    _good(
        "sales",
        False,
        r"popular|trending|hot[- ]selling|hot",
        r"热销|热门|畅销|爆款|受欢迎|销量[高好]|人气",
    ),
    _good(
        "rating",
        False,
        r"(?:well|highly)[- ](?:rated|reviewed)|good reviews?|good|great|nice|better|high[- ]quality|decent",
        r"口碑好|评[价分][高好]|质量好|好评|好用|不错|靠谱|更好|好一?[点些]",
    ),
)
# Goods put in order are a search, whatever else the words may be about.
ORDERING: Final = expression(
    r"\b(?:sort|order|rank|arrange)(?:ed|ing)?\b.{0,24}\bby\b|\bfirst\W*$|\b(?:high|low)(?:est)? to (?:high|low)"
    r"|排序|排列|排一?下|[从由].{1,2}到|[降升]序|^按"
)
_SORT_BY: Final = (
    r"(?:(?:sort|order|rank|arrange)(?:ed|ing)?"
    r"(?: (?:it|them|these|those|all|everything|the (?:list|results)))?(?: again)? |^)by (?:the |their )?"
)
_DOWN: Final = (
    r",? \(?(?:desc(?:ending)?|(?:from )?(?:the )?high(?:est)?|(?:from )?most expensive|down)\b"
    r"(?: to low(?:est)?| first)?"
)
_UP: Final = (
    r",? \(?(?:asc(?:ending)?|(?:from )?(?:the )?low(?:est)?|(?:from )?cheapest|up)\b(?: to high(?:est)?| first)?"
)
_ARRANGED: Final = "(?:来|重新)?(?:排序|排列|排一?下|排个?序|排)"
_HIGH_TO_LOW: Final = "(?:从|由)[高大多长重贵]到[低小少短轻]|降序"
_LOW_TO_HIGH: Final = "(?:从|由)[低小少短轻]到[高大多长重]|升序"


def _ordered(noun: str, han: str, down: Sort, up: Sort, by: tuple[str, ...] = ()) -> tuple[Goodness, ...]:
    """ "sort by rating", 按价格排序, 价格从高到低; where no direction is said, people mean the good end first."""
    cheap = up == "price" or by == ("weight",)
    above, below = (by if sort in ("most", "least") else () for sort in (down, up))
    by_noun = rf"{_SORT_BY}(?:{noun})"
    named = rf"(?:按照?|以|根据)(?:{han})的?(?:[高低多少])?(?:{_ARRANGED})?"
    high_to_low = rf"(?:按照?|以|根据)?(?:{han})的?(?:{_HIGH_TO_LOW})(?:{_ARRANGED})?"
    low_to_high = rf"(?:按照?|以|根据)?(?:{han})的?(?:{_LOW_TO_HIGH})(?:{_ARRANGED})?"
    descending = _good(
        down,
        False,
        rf"{by_noun}(?:{_DOWN}){'' if cheap else '?'}|(?:{noun}):? high(?:est)? to low(?:est)?",
        high_to_low if cheap else rf"{high_to_low}|{named}",
        above,
    )
    ascending = _good(
        up,
        False,
        rf"{by_noun}(?:{_UP}){'?' if cheap else ''}|(?:{noun}):? low(?:est)? to high(?:est)?",
        rf"{low_to_high}|{named}" if cheap else low_to_high,
        below,
    )
    return (descending, ascending) if cheap else (ascending, descending)


_ORDERS: Final = (
    _good("price", False, r"(?:cheapest|lowest priced?) first", "从便宜到贵"),
    _good("price_desc", False, r"(?:most expensive|highest priced?) first", "从贵到便宜"),
    _good("rating", False, r"(?:best|highest|top)[- ]rated first", "好评优先"),
    _good("sales", False, r"(?:most popular|best[- ]?sell(?:ing|ers?)) first", "销量优先"),
    *_ordered("prices?|costs?", "价格?|价钱", "price_desc", "price"),
    *_ordered("ratings?|reviews?|stars?|scores?", "评分|评价|口碑", "rating", "least", ("rating",)),
    *_ordered("sales|popularity", "销量|人气|热度", "sales", "least", ("sales",)),
    _good("value", False, rf"{_SORT_BY}value(?: for money)?", rf"(?:按照?|以|根据)?性价比{_ARRANGED}"),
    *(good for by, english, han in NOUNS for good in _ordered(english, han, "most", "least", by)),
)
# Superlatives first, the more special before the more general: "best value" is not just "best", and "best battery"
# speaks of the battery.
GOODNESS: Final = (
    *_ORDERS,
    *_of_nouns("most", True, _MOST, _MUCH_HAN),
    *_of_nouns("least", True, _LEAST, _LITTLE_HAN),
    *_SUPERLATIVES,
    *_of_nouns("most", False, _MORE, _MUCH_HAN),
    *_of_nouns("least", False, _LESS, _LITTLE_HAN),
    *_ADJECTIVES,
    *_WISHES,
)
