"""Words of people for words of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# Any of them will do.
SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        word: tuple(meant.split())
        for words, meant in (
            ("child children boy girl son daughter baby toddler", "kid baby"),
            ("elderly grandma grandpa grandmother grandfather parents", "senior"),
            ("girlfriend wife mother mom mum woman lady ladies", "women"),
            ("boyfriend husband father dad man", "men"),
            ("present birthday", "gift"),
            ("game games gamer", "gaming"),
            ("run runner jogging", "running"),
            ("sport", "sports"),
            ("anc noise-canceling canceling", "noise-cancelling cancelling"),
            ("pants", "trousers jeans"),
            ("jumper pullover", "sweater"),
            ("bike cycling", "bike bicycle"),
            ("study studying school", "student"),
            ("work", "office business"),
            ("sci-fi scifi", "科幻"),
            ("画画 绘图 画图", "画画 绘画"),
            ("photo photos photography", "camera 拍照"),
            ("孩子 小孩 小孩子 小朋友 宝宝 儿子 女儿", "儿童 宝宝"),
            ("老年人 爷爷 奶奶 爸妈 父母 长辈", "老人"),
            ("女朋友 女友 老婆 妻子 妈妈 女生 女孩子 女性", "女士 女装"),
            ("男朋友 男友 老公 丈夫 爸爸 男生 男性", "男士 男装"),
            ("礼物 送人 生日礼物 礼品", "礼物 送礼 礼盒"),
            ("玩游戏 打游戏", "游戏"),
            ("锻炼", "健身"),
            ("上班 工作", "办公"),
            ("上学 大学生", "学生"),
            ("拍照片 照相", "拍照"),
            ("猫咪", "猫"),
            ("狗狗", "狗"),
        )
        for word in words.split()
    }
)
