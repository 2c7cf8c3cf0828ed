"""What colours are called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tenuto.assistants.goods.words.text import HAN
from tenuto.model.expression import expression

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


def color_of(found: re.Match[str]) -> str:
    """The English name of the colour that `COLOR` has found."""
    return COLOR_WORDS[found[1] or found[2] or found[3]]
