"""How people tell and ask about themselves in Chinese."""

from __future__ import annotations

import re
from typing import Final

from tenuto.llm.offline.facts import About, Fact, Wanted

_VALUE: Final = 120
_CLAUSE: Final = re.compile(r"[，,。！!？?；;\n]|\s{2,}")
_ASKING: Final = re.compile(r"什么|谁|哪|吗$|呢$|几[岁点号个]|多少|多大|怎么|如何|是不是|有没有|对不对")
# Possessive, and each character has one way through it: anything else would try every way to cut up a long tail.
_TAIL: Final = re.compile(r"(?:就(?:好|行|可以)|好了|[吧啦哦呀啊了呢的]|\s)++$")
_AGE: Final = r"[0-9０-９一二三四五六七八九十百两]{1,5}"
_BARE_LABELS: Final = "生日|电话|手机号码?|邮箱|地址|微信|身高|体重"

_PLAIN: Final[tuple[tuple[About, re.Pattern[str]], ...]] = tuple(
    (about, re.compile(pattern))
    for about, pattern in (
        (About.NAME, r"我(?:现在|其实|改名)*(?:叫做|叫|名叫)(?![了你他她它不来去过醒人做])(.{1,20})"),
        (About.NAME, r"我的?(?:中文|英文|真|全)?(?:名字|姓名|全名)(?:是|为|叫)(.{1,20})"),
        (About.NAME, r"(?:^|请|可以|就|还是|都|以后|大家)叫我(.{1,20})"),
        (About.AGE, rf"我(?:今年|现在|已经|刚满?)*(?:是|有)?({_AGE})(?:周)?岁"),
        (About.HOME, r"我(?:现在|目前|一直|家|们家)*(?:住在?|搬到了?|搬去了?|家在|定居在?)(?!一起)(.{1,40})"),
        (About.ORIGIN, r"我(?:是)?(?:来自|出生在|老家在|老家是)(.{1,40})"),
        (About.ORIGIN, r"我是(.{1,10})人$"),
        (About.WORKPLACE, r"我(?:现在|目前)?在(.{1,30}?)(?:工作|上班|任职)"),
        (About.BEING, r"我(?:也)?是(?:一?[名个位])(.{1,30})"),
        (About.BEING, r"我是(.{0,8}(?:师|生|员|家|医|工|者))$"),
        (About.DISLIKES, r"我(?:很|最|一直|也|都)*(?:不喜欢|不爱|讨厌|不吃|不喝)(.{1,40})"),
        (About.LIKES, r"我(?:很|最|一直|也|都|特别|非常|比较)*(?:喜欢|爱|偏爱)(?!的|上|你)(.{1,40})"),
        (About.ALLERGY, r"我对(.{1,20}?)过敏"),
    )
)
_OWN: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"我(最(?:喜欢|爱)的[^，。！？是]{1,12}?)(是)(.{1,60})",
        rf"我({_BARE_LABELS})(是|为)(.{{1,60}})",
        r"我(?:的|家的?)((?:最喜欢的|最爱的)?[^，。！？是叫]{1,16}?)(叫做|叫|是|为|在)(.{1,60})",
    )
)
_NOTE: Final = re.compile(
    r"(?:请|麻烦)?(?:你)?(?:帮我|替我)?(?:一定要)?(?:记住|记得|记一下|记下来?|记着|别忘了|不要忘记?了?)[：:，,]?\s*(.{2,})",
    re.DOTALL,
)
_KNOWN_LABELS: Final = {
    "名字": About.NAME,
    "姓名": About.NAME,
    "年龄": About.AGE,
    "工作": About.JOB,
    "职业": About.JOB,
    "老家": About.ORIGIN,
    "家乡": About.ORIGIN,
    "家": About.HOME,
}


def chinese_facts(sentence: str) -> list[Fact]:
    """What a sentence tells about the speaker, in its order."""
    note = _NOTE.match(sentence)
    if note and not _ASKING.search(sentence.rstrip("？?。！!")):
        return _facts(note[1]) or [Fact(about=About.NOTE, value=note[1].strip().rstrip("。！!.")[:_VALUE])]
    return _facts(sentence)


def _facts(sentence: str) -> list[Fact]:
    if "我" not in sentence:
        return []
    found = (_of_clause(clause.strip()) for clause in _CLAUSE.split(sentence) if "我" in clause)
    return [fact for fact in found if fact is not None and fact.value and not fact.value.startswith("不")]


def _of_clause(clause: str) -> Fact | None:
    if _ASKING.search(clause):
        return None
    for own in _OWN:
        if match := own.search(clause):
            label = match[1].strip()
            about = _KNOWN_LABELS.get(label, About.OWN)
            return Fact(about=about, value=_value(match[3]), label=label, verb=match[2])
    for about, pattern in _PLAIN:
        if match := pattern.search(clause):
            return Fact(about=about, value=_value(match[1]))
    return None


def _value(text: str) -> str:
    text = text.strip()
    return _TAIL.sub("", text) or text


_ASKS: Final[tuple[tuple[re.Pattern[str], tuple[About, ...]], ...]] = tuple(
    (re.compile(pattern), about)
    for pattern, about in (
        (
            r"我(?:的名字)?(?:是)?叫(?:做)?(?:什么|啥|谁)|我的?(?:名字|姓名)(?:是|叫)?(?:什么|啥|谁|呢|吗|$|[?？])"
            r"|(?:记得|知道|说出|告诉我)我的(?:名字|姓名)",
            (About.NAME,),
        ),
        (r"我是谁|我是什么人", (About.NAME, About.BEING, About.JOB)),
        (r"我(?:现在)?(?:家)?(?:住在?|家在|住址)(?:哪|什么)", (About.HOME, About.ORIGIN)),
        (
            r"我(?:是)?(?:来自|从)哪|我是哪里?儿?人|我是什么地方|我老家(?:是|在)哪|我是哪里的",
            (About.ORIGIN, About.HOME),
        ),
        (r"我(?:今年|现在)?(?:多大|几岁|多少岁)", (About.AGE,)),
        (r"我(?:现在)?在(?:哪里?|哪儿|什么(?:公司|地方|单位))(?:工作|上班)", (About.WORKPLACE, About.JOB)),
        (
            r"我(?:是)?(?:做|干)(?:什么|啥)(?:工作|的|职业)?|我的?(?:工作|职业)是(?:什么|啥)",
            (About.JOB, About.BEING, About.WORKPLACE),
        ),
        (r"我(?:最)?(?:不喜欢|讨厌|不爱|不吃|不喝)(?:吃|喝)?(?:什么|啥|哪)", (About.DISLIKES,)),
        (r"我对(?:什么|啥)过敏|我有什么过敏", (About.ALLERGY,)),
        (r"我(?:最|都|平时)?(?:喜欢|爱)(?!的)[\u3400-\u9fff]{0,2}(?:什么|啥|哪)", (About.LIKES,)),
    )
)
_TO_ASK: Final = (
    r"(?:是什么(?:时候)?|是啥|是多少|是谁|是哪[\u3400-\u9fff]{0,3}|叫什么(?:名字)?|叫啥|在哪里?儿?|是几[\u3400-\u9fff]{0,2}"
    r"|几号|什么时候|呢|吗)"
)
_WORD: Final = r"[\u3400-\u9fffA-Za-z0-9]"
_ASKS_OWN: Final = tuple(
    re.compile(pattern + r"[\s?？。！!]*$")
    for pattern in (
        rf"我(最(?:喜欢|爱)的{_WORD}{{1,12}}?){_TO_ASK}",
        rf"我({_BARE_LABELS})(?:{_TO_ASK})?",
        rf"我(?:的|家的?)((?:最喜欢的|最爱的)?{_WORD}{{1,14}}?){_TO_ASK}",
        rf"(?:记得|知道|告诉我)我(?:的|家的?)({_WORD}{{1,14}}?)(?:吗|么)?",
    )
)
_ASKS_ALL: Final = re.compile(
    r"(?:知道|记得|了解)(?:关于)?我的?(?:哪些|什么|多少)(?!名字)|关于我.{0,6}(?:知道|记得|了解)|对我(?:了解|知道)"
    r"|我(?:都)?告诉过?你(?:了)?(?:哪些|什么)"
)


def chinese_wanted(question: str) -> Wanted | None:
    """Which fact about themselves somebody asks for."""
    for pattern, about in _ASKS:
        if pattern.search(question):
            return Wanted(about=about)
    for own in _ASKS_OWN:
        if match := own.search(question):
            return Wanted(about=(_KNOWN_LABELS.get(match[1], About.OWN),), label=match[1])
    return None


def chinese_asks_all(question: str) -> bool:
    """Whether everything known about the asker is asked for."""
    return _ASKS_ALL.search(question) is not None
