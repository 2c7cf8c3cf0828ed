"""What is noted about goods: attributes, materials and units by their names, and the words that ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tenuto.model.expression import expression

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
_PARTS: Final = r"(?:the |its |their )?(?:memory|ram|storage|disk|battery|screen|display|weight|power|capacity|stock)\b"
# "How much" alone asks for the price, "how much memory" does not.
_HOW_MUCH: Final = (
    rf"how much(?:\W*$|(?:'s| is| are| was| were)\b(?! {_PARTS})| (?:for|would|will|money|it|they|this|that|these)\b)"
)
# What a question about an item is after.
ASPECTS: Final = (
    ("price", expression(rf"{_HOW_MUCH}|\bprice|\bcosts?\b|\bsells? for\b|多少钱|价格|价钱|什么价|怎么卖|贵不贵|贵吗")),
    (
        "stock",
        expression(
            r"in stock|available|availability|how many[^,.]{0,20} left|(?:any|how much stock) left|how much stock"
            r"|\bstock\b|sold[- ]out|out of stock|有货|现货|库存|有没有货|缺货|没货|售罄|卖[完光]|断货|还剩|剩[多几]"
        ),
    ),
    ("rating", expression(r"\brat(?:ing|ed)|\breviews?\b|评分|评价|口碑|好评")),
    ("sales", expression(r"how many.*sold(?![- ]out)|sales|销量|卖了多少")),
    ("color", expression(r"\bcolou?rs?\b|颜色|什么色")),
    ("memory", expression(r"\bmemory\b|\bram\b|内存|运存")),
    ("storage", expression(r"\bstorage\b|disk|how many (?:gb|gigs?|gigabytes)\b|存储|硬盘|多少g(?!ram)")),
    ("screen", expression(r"\bscreen|display|how many inch(?:es)?\b|屏幕|几寸|多少寸|多少英寸")),
    (
        "battery",
        expression(
            r"battery|how long (?:does|do|will) .{1,30} last|how many (?:mah|milliamp hours|hours)\b"
            r"|电池|续航|能用多久|多少(?:毫安|mah)"
        ),
    ),
    (
        "weight",
        expression(
            r"\bweighs?\b|weight|heavy|how many (?:grams?|g|kg|kilos?|kilograms?|pounds?|ounces?)\b"
            r"|重量|多重|重不重|(?:多少|几)(?:克|公斤|千克|斤)(?!多少|[一要]?多少钱)"
        ),
    ),
    ("size", expression(r"\bsizes?\b|how big|尺码|尺寸|多大")),
    ("material", expression(r"material|made of|材质|面料|什么做的")),
    ("power", expression(r"\bwatts?\b|\bpower\b|功率|多少瓦")),
    (
        "capacity",
        expression(
            r"capacity|how much (?:can|does) .{1,30} hold|how many (?:lit(?:re|er)s?|ml|millilit(?:re|er)s?)\b"
            r"|容量|(?:多少|几)(?:升|毫升)"
        ),
    ),
    (
        "length",
        expression(
            r"\blength|how long (?:is|are)\b|how many (?:cm|centimet(?:re|er)s|met(?:re|er)s)\b"
            r"|长度|多长|(?:多少|几)(?:厘米|米)"
        ),
    ),
    ("pages", expression(r"\bpages?\b|页数|多少页|几页")),
    ("age", expression(r"\bwhat ages?\b|适用年龄|几岁")),
)
