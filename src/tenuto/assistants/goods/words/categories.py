"""What categories of goods are called, and by which words people mean them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tenuto.assistants.goods.words.text import HAN, either
from tenuto.model.expression import expression
from tenuto.model.prompt import Language
from tenuto.model.values import Value


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
        "books": _category("book", "books", "图书", "本", "book", "图书 书籍 书本 童书"),
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

# Words that say more than their category: a smartwatch is a watch, but not any watch is one.
_SPECIAL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "smartwatch": "smart",
        "smart watch": "smart",
        "智能手表": "智能",
        "earbud": "earbuds",
        "headset": "headset",
        "耳塞": "入耳",
        "童书": "儿童",
    }
)

# Before the name of goods they make other goods of it: 宠物零食 is none of 零食.
PETS: Final = expression("宠物|猫咪?|狗狗?")


def special(word: str) -> tuple[str, ...]:
    """What a word for a category says beyond the category."""
    bare = word.removesuffix("es") if word.endswith("ches") else word.removesuffix("s")
    return (_SPECIAL[bare],) if bare in _SPECIAL else ()


def category_name(slug: str, language: Language, count: int = 2) -> str:
    """How the category is called; a shop's own categories are called what they are."""
    known = CATEGORIES.get(slug)
    if known is None:
        return slug
    if language is Language.CHINESE:
        return known.zh
    return known.one if count == 1 else known.many
