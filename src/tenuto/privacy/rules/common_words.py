"""Common words that follow an introduction but are no names: "I am Late", 我是高中生.

A value after words such as "I am" is a name only if it is none of these.
"""

from __future__ import annotations

from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.privacy.rules.labels import words

_ENGLISH: Final = frozenset(
    words(
        """a an the not so very too also just still now here there back home away only really almost already never
        always at in on from with for of by to as about and or but if no yes your his her their our my its one
        some all any both quite pretty extremely super currently originally definitely probably usually sometimes
        often late early sorry sure fine ok okay good great well bad better best happy glad sad angry mad upset
        tired sleepy hungry thirsty full sick ill healthy hurt busy free ready done finished able unable afraid
        scared aware alone alive dead old young new single married divorced engaged pregnant retired unemployed
        employed broke rich poor vegan vegetarian pescatarian celiac diabetic allergic intolerant gay straight bi
        bisexual lesbian trans queer nonbinary male female autistic dyslexic deaf blind disabled adult human
        christian catholic protestant muslim jewish hindu buddhist atheist agnostic religious american british
        english scottish welsh irish french german italian spanish portuguese dutch belgian swiss austrian
        swedish norwegian danish finnish polish czech hungarian greek turkish russian ukrainian european african
        asian arab arabic egyptian israeli iranian indian pakistani chinese taiwanese japanese korean vietnamese
        thai indonesian malaysian singaporean filipino australian canadian mexican brazilian argentinian chilean
        colombian latino latina black white brown student teacher doctor nurse engineer developer programmer
        designer manager director lawyer writer artist parent mother father mom dad son daughter brother sister
        husband wife customer client user member guest beginner expert senior junior freelancer consultant owner
        founder president chief head lead professor interested excited worried confused lost stuck curious
        convinced certain serious kidding wrong right correct impressed disappointed bored grateful thankful
        honoured honored proud ashamed jealous lucky fluent native based located available unavailable online
        offline bilingual left right-handed left-handed ceo cto cfo coo hr qa vp pm ux ui it phd md mba cs adhd
        ptsd lgbt support sales billing service services customer-service help us me them team reception accounts
        accounting finance legal marketing admin security press management head-office everyone everybody someone
        somebody anyone nobody"""
    )
)
_MOVING: Final = lazy_pattern("[a-z]{3,}ing")
# Last characters of occupations and roles; given names hardly end so.
_KINDS: Final = frozenset("员者师人民迷控党族客领工户粉士家")
_PUPILS: Final = frozenset(words("学生 中生 科生 医生 男生 女生 新生 考生 习生 业生 校生 究生 门生"))
# Words that begin with a character that is also a surname.
_CHINESE: Final = frozenset(
    words(
        """高中 高一 高二 高三 高考 高级 高管 高手 高兴 高个 高校 高铁 高层 程序 方便 方面 方程 方法 方案 方言
        马上 马来 马虎 任何 任课 任性 何时 何人 常常 常年 常客 常见 金融 金牌 金属 金色 文科 文员 文盲 文职
        文艺 文学 白领 白人 白天 白羊 黄种 黄牛 田径 田园 钟点 顾客 顾问 段子 毛病 毛坯 易怒 易胖 余生 余下
        石头 石油 龙头 万能 万一 万事 万年 林业 林区 江湖 江南 江苏 江西 江浙 武汉 武术 武警 唐山 唐人 徐州
        郑州 苏州 苏联 常州 石家 秦皇 龙岩 余姚 贺州 韩国 韩语 孟加 康复 康健 史上 史学 侯补 夏天 夏令 夏季
        雷人 乔迁 钱包 钱多 于是 于此 谢谢 许多 许久 曾经 曾任 周末 周一 周五 周边 罗马 罗嗦 梁上 宋代 宋朝
        唐代 唐朝 秦朝 孙子 孙女 胡说 胡乱 朱红 范围 范例 姜黄 杜绝 邵阳 邓州 沈阳 彭州 吕梁 陆军 陆续 陆地
        白班 司机 司法 司仪 欧洲 欧美"""
    )
)


def is_common_word(value: str) -> bool:
    """Whether a value in the place of a name is a common word."""
    first = value.partition(" ")[0]
    if first.isascii():
        plain = first.lower()
        return plain in _ENGLISH or _MOVING.fullmatch(plain) is not None
    return value[-1] in _KINDS or value[-2:] in _PUPILS or value[:2] in _CHINESE
