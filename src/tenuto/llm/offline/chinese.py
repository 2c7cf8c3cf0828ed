"""How people tell and ask about themselves in Chinese."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from tenuto.llm.offline.claims import Claim, chinese_claim
from tenuto.llm.offline.facts import About, Fact, Wanted, fitted
from tenuto.model.expression import expression

_VALUE: Final = 120
_CLAUSE: Final = expression(r"[，,。！!？?；;\n]|\s{2,}")
_ASKING: Final = expression(r"什么|谁|哪|吗$|呢$|几[岁点号个只口]|多少|多[大高重久长]|怎么|如何|是不是|有没有|对不对")
# Possessive, and each character has one way through it: anything else would try every way to cut up a long tail.
_TAIL: Final = expression(r"(?:就(?:好|行|可以)|好了|[吧啦哦呀啊了呢的]|\s)++$")
_AGE: Final = r"[0-9０-９一二三四五六七八九十百两]{1,5}"
BARE_LABELS: Final = "生日|电话|手机号码?|邮箱|地址|微信|身高|体重"

# Whom one has, said without 的: 我姐姐叫小丽.
KIN: Final = (
    "爸爸|妈妈|爸|妈|父亲|母亲|姐姐|姐|妹妹|妹|哥哥|哥|弟弟|弟|爷爷|奶奶|外公|外婆|老婆|老公|妻子|丈夫|太太|先生|女朋友|男朋友|女友|男友"
    "|儿子|女儿|孩子|宝宝|舅舅|叔叔|阿姨|姑姑|老板|同事|朋友|室友|同学|老师|邻居|狗|猫"
)
_LATELY: Final = "上个?月|上个?星期|上周|这周|这个月|去年|前年|今年|昨天|前天|今天|最近|刚|后来|其实|又"
_NO: Final = r"(?P<no>不再?|没有?)?"
_PLAIN: Final[tuple[tuple[About, re.Pattern[str]], ...]] = tuple(
    (about, expression(pattern))
    for about, pattern in (
        (About.NAME, rf"我(?:现在|其实|改名)*{_NO}(?:叫做|叫|名叫)(?![了你他她它不来去过醒人做])(?P<value>.{{1,20}})"),
        (About.NAME, rf"我的?(?:中文|英文|真|全)?(?:名字|姓名|全名){_NO}(?:是|为|叫)(?P<value>.{{1,20}})"),
        (About.NAME, r"(?:^|请|可以|就|还是|都|以后|大家)(?P<no>别|不要)?叫我(?P<value>.{1,20})"),
        (About.AGE, rf"我(?:今年|现在|已经|刚满?)*{_NO}(?:是|有|到)?(?P<value>{_AGE})(?:周)?岁"),
        (About.AGE, r"我(?:今年|现在|已经|都|快)*(?P<value>[二三四五六七八九]?十[一二三四五六七八九]?|\d{2})了$"),
        (
            About.HOME,
            rf"我(?:从.{{1,12}}?)?(?:现在|目前|一直|已经|家|们家|{_LATELY})*{_NO}"
            r"(?:住在?|搬到了?|搬去了?|家在|定居在?)(?!一起|过)(?P<value>.{1,40})",
        ),
        (About.BORN, r"我(?:是)?出生[于在](?P<value>\d{2,4}年.{0,12})"),
        (About.BORN, r"我(?:是)?(?P<value>\d{2,4}年.{0,12}?)(?:出生|生)的?$"),
        (About.ORIGIN, rf"我{_NO}(?:是)?(?:来自|出生在|老家在|老家是)(?P<value>.{{1,40}})"),
        (About.ORIGIN, rf"我{_NO}是(?P<value>.{{1,10}})人$"),
        (About.WORKPLACE, rf"我(?:现在|目前)?{_NO}在(?P<value>.{{1,30}}?)(?:工作|上班|任职)"),
        (About.BEING, rf"我(?:也)?{_NO}是(?:一?[名个位])(?P<value>.{{1,30}})"),
        (About.BEING, rf"我{_NO}是(?P<value>.{{0,8}}(?:师|生|员|家|医|工|者))$"),
        (
            About.DISLIKES,
            r"我(?:很|最|一直|也|都|现在)*(?:不(?:再|太|怎么|是很)?(?:喜欢|爱)|讨厌|不吃|不喝)(?P<value>.{1,40})",
        ),
        (
            About.LIKES,
            r"我(?:很|最|一直|也|都|还|特别|非常|比较)*(?:喜欢|爱|偏爱)(?!的|上|你)[：:]?\s*(?P<value>.{1,40})",
        ),
        (About.ALLERGY, r"我(?P<no>不)对(?P<value>.{1,20}?)过敏"),
        (About.ALLERGY, rf"我对(?P<value>.{{1,20}}?){_NO}过敏"),
        (About.SPEAKS, rf"我(?:也|还)?{_NO}会[说讲](?P<value>.{{1,30}})"),
    )
)
_OWN: Final = tuple(
    expression(pattern)
    for pattern in (
        rf"我(?P<label>最(?:喜欢|爱)的[^，。！？是不]{{1,12}}?){_NO}(?P<verb>是)(?P<value>.{{1,60}})",
        rf"我(?P<label>{BARE_LABELS}){_NO}(?P<verb>是|为)(?P<value>.{{1,60}})",
        rf"我(?:的|家的?)?(?P<label>(?:{KIN})(?:的(?!名字)[^，。！？是叫不]{{1,12}}?|(?:{BARE_LABELS})))"
        rf"{_NO}(?P<verb>叫做|叫|是|为|在)(?P<value>.{{1,60}})",
        rf"我(?:的|家的?)?(?P<label>{KIN})的名字{_NO}(?P<verb>是|叫)(?P<value>.{{1,60}})",
        rf"我(?:的|家的?)?(?P<label>{KIN}){_NO}(?P<verb>叫做|叫|是|在)(?P<value>.{{1,60}})",
        r"我家?(?:还|也)?(?:有|养)了?(?:一?[只条个位名头匹]|一)(?P<label>[^，。！？是叫不]{1,10}?)[，,]?"
        r"(?P<verb>叫做|叫)(?P<value>.{1,20})",
        r"我(?:的|家的?)(?P<label>(?:最喜欢的|最爱的)?[^，。！？是叫不]{1,16}?)"
        rf"{_NO}(?P<verb>叫做|叫|是|为|在)(?P<value>.{{1,60}})",
    )
)
# A clause that goes on about the same person, and one that puts another thing in a denied one's place.
_GOES_ON: Final = expression(
    rf"^(?:但是?|不过|可是?|而且|也|还|并且|又|现在|已经|目前|{_LATELY})*"
    r"(?=不|讨厌|(?:很|最|更|特别|非常|比较)?(?:喜欢|爱)|住|搬[到去]|来自|对.+过敏|今年|会[说讲]|在.+(?:工作|上班)"
    r"|是一?[名个位]|是.{0,8}(?:师|生|员|家|医|工|者)$)"
)
# 我的猫叫咪咪，今年两岁: the cat is two.
_OF_OTHERS: Final = expression(rf"^我(?:的|家|{KIN})(?!名字|姓名)")
_INSTEAD: Final = expression(r"^(?:而|其实)?(?:是|叫|在|住在)(?P<value>.{1,40})$")
_NOTE: Final = expression(
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


def chinese_facts(sentence: str, claim: Claim = Claim.STATED) -> list[Fact]:
    """What a sentence tells about the speaker, in its order; or what it only hedges."""
    note = _NOTE.match(sentence)
    if note and not _ASKING.search(sentence.rstrip("？?。！!")):
        found = _facts(note[1], claim)
        if found or claim is not Claim.STATED:
            return found
        return [Fact(about=About.NOTE, value=note[1].strip().rstrip("。！!.")[:_VALUE])]
    return _facts(sentence, claim)


def _facts(sentence: str, claim: Claim) -> list[Fact]:
    if "我" not in sentence or chinese_claim(sentence, "") is not Claim.STATED:
        return []
    found: list[Fact] = []
    before: Fact | None = None
    told = False
    for clause in filter(None, map(str.strip, _CLAUSE.split(sentence))):
        before = _of_clause(_whole(clause) if told else clause, claim) or _in_place(clause, before)
        told = not _OF_OTHERS.match(clause) and (before is not None or clause.startswith("我"))
        if before is not None and before.value and not before.value.startswith("不"):
            found.append(before)
    return found


def _whole(clause: str) -> str:
    """A clause with the 我 that it leaves out after another one: 我喜欢咖啡，但是不喜欢茶."""
    goes_on = _GOES_ON.match(clause) if "我" not in clause else None
    return f"我{clause[goes_on.end() :]}" if goes_on else clause


def _in_place(clause: str, before: Fact | None) -> Fact | None:
    """What is so instead: 我的名字不是小明，是小红."""
    instead = _INSTEAD.match(clause) if before is not None and before.denied else None
    return fitted(before, chinese_value(instead["value"])) if before and instead else None


def _of_clause(clause: str, claim: Claim) -> Fact | None:
    if "我" not in clause or _ASKING.search(clause):
        return None
    for own in _OWN:
        if (match := own.search(clause)) and chinese_claim(clause, clause[: match.start()]) is claim:
            about, verb = _KNOWN_LABELS.get(match["label"], About.OWN), match["verb"]
            # A name is told as one, however it was put: 我妹妹的名字是安娜, 我妹妹叫安娜.
            verb = "叫" if "的名字" in match[0] else verb
            return _stated(
                match, Fact(about=about, value=chinese_value(match["value"]), label=match["label"], verb=verb)
            )
    for about, pattern in _PLAIN:
        if (match := pattern.search(clause)) and chinese_claim(clause, clause[: match.start()]) is claim:
            return _stated(match, Fact(about=about, value=chinese_value(match["value"])))
    return None


def _stated(match: re.Match[str], fact: Fact) -> Fact:
    return replace(fact, denied=bool(match.groupdict().get("no")))


def chinese_value(text: str) -> str:
    """What a clause names, without the small words at its end."""
    text = text.strip()
    return _TAIL.sub("", text) or text


_ASKS: Final[tuple[tuple[re.Pattern[str], tuple[About, ...]], ...]] = tuple(
    (expression(pattern), about)
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
        (r"我(?:今年|现在)?(?:多大|几岁|多少岁)", (About.AGE, About.BORN)),
        (r"我(?:是)?(?:什么时候|哪年|哪一年|几几年)(?:出)?生", (About.BORN,)),
        (r"我会[说讲](?:什么|哪|几)", (About.SPEAKS,)),
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
    r"|几号|什么时候|呢)"
)
_WORD: Final = r"[\u3400-\u9fffA-Za-z0-9]"
_ASKS_OWN: Final = tuple(
    expression(pattern + r"[\s?？。！!]*$")
    for pattern in (
        rf"我(最(?:喜欢|爱)的{_WORD}{{1,12}}?){_TO_ASK}",
        rf"我({BARE_LABELS})(?:{_TO_ASK})?",
        rf"我(?:的|家的?)?((?:{KIN})(?:的(?!名字){_WORD}{{1,12}}?|(?:{BARE_LABELS}))){_TO_ASK}",
        rf"我(?:的|家的?)?({KIN})(?:的名字)?{_TO_ASK}",
        rf"我(?:的|家的?)((?:最喜欢的|最爱的)?{_WORD}{{1,14}}?){_TO_ASK}",
        rf"(?:记得|知道|告诉我)我(?:的|家的?)({_WORD}{{1,14}}?)(?:吗|么)?",
    )
)
_ASKS_ALL: Final = expression(
    r"(?:知道|记得|了解)(?:关于)?我的?(?:哪些|什么|多少)(?!名字)|关于我.{0,6}(?:知道|记得|了解)|对我(?:了解|知道)"
    r"|我(?:都)?告诉过?你(?:了)?(?:哪些|什么)|你还?(?:记得|认识)我[吗么]"
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
