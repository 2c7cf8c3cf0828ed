"""What goods are called in English and Chinese: categories, colours, attributes, units."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tenuto.model.expression import expression
from tenuto.model.prompt import Language
from tenuto.model.values import Value

_INVISIBLE: Final = expression("[\u200b-\u200f\u2028-\u202f\u2060\ufeff\u00ad]")
_FOLDED: Final = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "—": "-", "–": "-", "～": "~"})
HAN: Final = "\u3400-\u9fff"


def fold(text: str, limit: int) -> str:
    """The beginning of a text in one shape: widths and cases alike, nothing invisible."""
    return _INVISIBLE.sub("", unicodedata.normalize("NFKC", text[:limit]).lower().translate(_FOLDED))


def either(*words: str) -> str:
    """A pattern for any of the words, the longest first."""
    return "|".join(sorted(" ".join(words).split(), key=len, reverse=True)).replace("_", " ")


class Category(Value, frozen=True, kw_only=True):
    """How a category is called, and by which words people mean it (`_` stands for a space)."""

    one: str
    many: str
    zh: str
    measure: str
    english: str
    chinese: str


def _category(one: str, many: str, zh: str, measure: str, english: str, chinese: str) -> Category:
    return Category(one=one, many=many, zh=zh, measure=measure, english=english, chinese=chinese)


CATEGORIES: Final[Mapping[str, Category]] = MappingProxyType(
    {
        "phones": _category(
            "phone",
            "phones",
            "手机",
            "款",
            "phone smartphone mobile_phone mobile cellphone cell_phone handset",
            "手机 智能手机 智能机",
        ),
        "laptops": _category(
            "laptop",
            "laptops",
            "笔记本电脑",
            "款",
            "laptop notebook_computer ultrabook notebook computer pc",
            "笔记本电脑 笔记本 手提电脑 电脑",
        ),
        "tablets": _category("tablet", "tablets", "平板电脑", "款", "tablet", "平板电脑 平板"),
        "headphones": _category(
            "pair of headphones", "headphones", "耳机", "款", "headphone earphone earbud headset", "耳机 耳麦 耳塞"
        ),
        "watches": _category(
            "watch", "watches", "手表", "款", "watch smartwatch smart_watch wristwatch", "智能手表 手表 腕表"
        ),
        "cameras": _category("camera", "cameras", "相机", "款", "camera", "照相机 相机 摄像机"),
        "accessories": _category(
            "accessory", "accessories", "数码配件", "款", "accessory accessories", "数码配件 配件"
        ),
        "home": _category(
            "home item",
            "home goods",
            "家居用品",
            "款",
            "home_goods homeware furniture home_decor",
            "家居用品 家居 家具 家纺",
        ),
        "kitchen": _category(
            "kitchen item", "kitchenware", "厨房用品", "款", "kitchenware kitchen cookware", "厨房用品 厨具 炊具"
        ),
        "appliances": _category(
            "appliance", "appliances", "家电", "款", "home_appliance appliance", "家用电器 家电 小家电 电器"
        ),
        "clothes": _category(
            "piece of clothing", "clothes", "服装", "款", "clothes clothing apparel garment", "衣服 服装 服饰"
        ),
        "shoes": _category("pair of shoes", "shoes", "鞋子", "双", "shoe footwear", "鞋子 鞋类"),
        "books": _category("book", "books", "图书", "本", "book", "图书 书籍 书本"),
        "toys": _category("toy", "toys", "玩具", "款", "toy", "玩具"),
        "food": _category("food", "food", "食品", "款", "food groceries grocery", "食品 吃的 食物"),
        "beauty": _category(
            "beauty product", "beauty products", "美妆", "款", "beauty_product beauty cosmetic", "美妆 化妆品 美容"
        ),
        "sports": _category(
            "sports item",
            "sports goods",
            "运动户外用品",
            "款",
            "sports_gear sporting_goods sports_equipment fitness_equipment outdoor_gear",
            "运动用品 运动器材 户外用品 健身器材 体育用品",
        ),
        "pets": _category("pet item", "pet supplies", "宠物用品", "款", "pet_supplies pet_product", "宠物用品"),
    }
)

# "phone case" and 手机壳 are no phones.
_NOT_BEFORE: Final = (
    r"(?!\s*(?:cases?|covers?|chargers?|stands?|holders?|straps?|bags?|sleeves?|cables?|screen protectors?"
    r"|shel(?:f|ves)|壳|套|膜|支架|充电|数据线|包|架|带))"
)


def _named(category: Category) -> str:
    return rf"\b(?:{either(category.english)})(?:e?s)?\b{_NOT_BEFORE}|(?:{either(category.chinese)}){_NOT_BEFORE}"


# One character alone means the category only where it stands as a word.
_SINGLE: Final = {"shoes": "鞋", "books": "书"}
CATEGORY_PATTERNS: Final = tuple(
    (
        slug,
        expression(
            _named(category)
            + (rf"|(?<![{HAN}]){_SINGLE[slug]}|(?<=[的双本色些买]){_SINGLE[slug]}" if slug in _SINGLE else "")
        ),
    )
    for slug, category in CATEGORIES.items()
)

COLORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "black": "黑色",
        "white": "白色",
        "blue": "蓝色",
        "red": "红色",
        "green": "绿色",
        "silver": "银色",
        "gold": "金色",
        "pink": "粉色",
        "purple": "紫色",
        "grey": "灰色",
        "yellow": "黄色",
        "brown": "棕色",
        "beige": "米色",
        "orange": "橙色",
    }
)
COLOR_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {color: color for color in COLORS}
    | {"gray": "grey", "golden": "gold", "violet": "purple", "粉红": "pink", "咖啡": "brown", "褐": "brown"}
    | {chinese[0]: color for color, chinese in COLORS.items()}
)
COLOR: Final = expression(
    r"\b(black|white|blue|red|green|silver|golden|gold|pink|purple|violet|gr[ea]y|yellow|brown|beige|orange)\b"
    r"(?:[- ]colou?red| colou?r)?|(粉红|咖啡|[黑白蓝红绿银金粉紫灰黄棕米橙褐])色(?:系|款)?的?"
    # Without 色 it is a colour only where it stands as a word: 小米 and 蛋白 end in one as well.
    rf"|(?:(?<![{HAN}])|(?<=[要有买换成选看找想是来个款部台双本件只就和或及的深浅机脑板表包鞋裤衣帽些点]))"
    r"(粉红|咖啡|[黑白蓝红绿银金粉紫灰黄棕橙褐])[的款]"
)

ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "color": "颜色",
        "memory": "内存",
        "storage": "存储",
        "screen": "屏幕",
        "battery": "续航",
        "weight": "重量",
        "size": "尺寸",
        "material": "材质",
        "power": "功率",
        "capacity": "容量",
        "length": "长度",
        "pages": "页数",
        "age": "适用年龄",
    }
)
MATERIALS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cotton": "棉",
        "down": "羽绒",
        "memory foam": "记忆棉",
        "latex": "乳胶",
        "linen": "亚麻",
        "oak": "橡木",
        "steel": "钢",
        "mesh": "网布",
        "plastic": "塑料",
        "polyester": "聚酯纤维",
        "wool": "羊毛",
        "soy wax": "大豆蜡",
        "ceramic": "陶瓷",
        "wood": "木",
        "cast iron": "铸铁",
        "enamel": "珐琅",
        "bamboo": "竹",
        "glass": "玻璃",
        "one size": "均码",
    }
)
UNIT_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {"inch": "英寸", "h": "小时", "days": "天", "min": "分钟", "kg": "公斤", "g": "克", "L": "升", "ml": "毫升"}
    | {"day": "天", "week": "周", "month": "个月", "weeks": "周", "months": "个月", "lb": "磅", "oz": "盎司"}
)
# What a question about an item is after.
ASPECTS: Final = (
    ("price", expression(r"how much|\bprice|\bcosts?\b|多少钱|价格|价钱|什么价|怎么卖|贵不贵")),
    ("stock", expression(r"in stock|available|availability|有货|现货|库存|有没有货|缺货")),
    ("rating", expression(r"\brat(?:ing|ed)|\breviews?\b|评分|评价|口碑|好评")),
    ("sales", expression(r"how many.*sold|sales|销量|卖了多少")),
    ("color", expression(r"\bcolou?rs?\b|颜色|什么色")),
    ("memory", expression(r"\bmemory\b|\bram\b|内存|运存")),
    ("storage", expression(r"\bstorage\b|disk|存储|硬盘|多少g")),
    ("screen", expression(r"\bscreen|display|屏幕|几寸|多少寸")),
    ("battery", expression(r"battery|电池|续航|能用多久")),
    ("weight", expression(r"\bweighs?\b|weight|heavy|重量|多重|重不重")),
    ("size", expression(r"\bsizes?\b|how big|尺码|尺寸|多大")),
    ("material", expression(r"material|made of|材质|面料|什么做的")),
    ("power", expression(r"\bwatts?\b|\bpower\b|功率|多少瓦")),
    ("capacity", expression(r"capacity|容量|多少升")),
)


def category_name(slug: str, language: Language, count: int = 2) -> str:
    """How the category is called; a shop's own categories are called what they are."""
    known = CATEGORIES.get(slug)
    if known is None:
        return slug
    if language is Language.CHINESE:
        return known.zh
    return known.one if count == 1 else known.many
