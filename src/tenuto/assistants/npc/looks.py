"""What facts look like in a sentence: dates, numbers of things, sizes, sums of money, people, places and names.

Patterns in English and in Chinese, to be searched without regard to capitals, save those that know a name by them.
"""

from __future__ import annotations

from typing import Final

from tenuto.model.numbers import CARDINAL, HAN_NUMBER, ORDINAL

NUMBER: Final = rf"(?:\d[\d,.]*+|(?:{CARDINAL}[ -])?(?:hundred|thousand)|{CARDINAL}|dozens?|both|a single)"
NUMBER_ZH: Final = rf"(?:{HAN_NUMBER}[多余来]?|[半数])"

_REIGNS: Final = (
    "hongwu|yongle|xuande|chenghua|jiajing|wanli|chongzhen|shunzhi|kangxi|yongzheng|qianlong|jiaqing|daoguang|xianfeng"
    "|tongzhi|guangxu|xuantong"
)
_REIGNS_ZH: Final = "洪武|永乐|宣德|成化|嘉靖|万历|崇祯|顺治|康熙|雍正|乾隆|嘉庆|道光|咸丰|同治|光绪|宣统|民国"
YEAR: Final = (
    rf"\b1\d{{3}}s?\b|\b20\d\d\b|\b(?:{_REIGNS})\b|\bcentury\b|\bdynasty\b|\bRepublic\b"
    r"|\b(?:in|since|from|of) \d{3,4}\b|\b(?:BC|AD|CE)\b|公元"
    rf"|\d{{4}}年|年间|年代|世纪|{_REIGNS_ZH}"
)
MONTHS: Final = "january|february|march|april|(?-i:May)|june|july|august|september|october|november|december"
WEEKDAYS: Final = "mondays?|tuesdays?|wednesdays?|thursdays?|fridays?|saturdays?|sundays?|weekdays?|weekends?"
WEEKDAYS_ZH: Final = "(?:周|星期|礼拜)[一二三四五六日天末]|周末|平日|工作日|节假日|假日"
_DAYS: Final = rf"{WEEKDAYS}|new year|festival|holidays?"
DAY: Final = (
    rf"\b(?:{MONTHS}|{_DAYS}|spring|summer|autumn|winter)\b|first day of|every day"
    rf"|{NUMBER_ZH}月|正月|腊月|初[一二三四五六七八九十]|周[一二三四五六日末]|星期|除夕|春节|[清明端午中秋重阳]{{2}}节|[春夏秋冬]天|头一天|每天"
)
WEEK: Final = rf"\b(?:{WEEKDAYS})\b|\b(?:every day|daily)\b|{WEEKDAYS_ZH}|每天|天天"
SEASONS_ZH: Final = f"{HAN_NUMBER}月|[春夏秋冬][天季]"
MONTH: Final = rf"\b(?:{MONTHS}|spring|summer|autumn|winter|all year)\b|{SEASONS_ZH}|全年"
HOURS: Final = rf"(?:{NUMBER}|noon|midnight)"
CLOCK: Final = (
    rf"\bo'clock\b|\d ?[ap]\.?m\b|\d:\d\d|\bfrom {HOURS} to {HOURS}\b|\bat {HOURS} in the\b|\b(?:noon|midnight)\b"
    rf"|{NUMBER_ZH}(?:点|时(?!候|间))|清晨|中午|午夜"
)
WHEN: Final = rf"{YEAR}|{DAY}|{CLOCK}|\bin the (?:war|flood|drought)\b|抗战|大旱|大水"
_TIMES: Final = "seconds?|minutes?|hours?|days?|nights?|weeks?|months?|years?|suns?|generations?"
# What is measured by a time is not a time: 一年的米, "a year of rice".
DURATION: Final = (
    rf"\b{NUMBER}[ -](?:whole )?(?:{_TIMES})\b(?! of (?!sun))"
    rf"|{NUMBER_ZH}(?:分钟|小时|天|日|夜|周|个月|年|个日头|代)(?!的|级)"
)
AGE: Final = (
    rf"\bat {NUMBER}\b(?! in\b)|\bage[ds]? {NUMBER}\b|\b{NUMBER} (?:years? old|and up|or older)\b|{NUMBER_ZH}岁"
)
AGE_NOW: Final = (
    rf"\b(?:is|are|now) {NUMBER}(?: years? old)?\b|\b{NUMBER} years? old\b|(?:今年|现年|现在|已经?){NUMBER_ZH}岁?"
)
LENGTH: Final = rf"\b{NUMBER}[ -](?:li|feet|foot|met(?:er|re)s?|miles?|kilomet(?:er|re)s?|paces|inch(?:es)?)\b"
LENGTH_ZH: Final = rf"{NUMBER_ZH}(?:里|尺|米|丈|步|公里|厘米)"
WEIGHT: Final = rf"\b{NUMBER} (?:pounds?|kilo\w*|tons?|catt(?:y|ies)|grams?)\b|{NUMBER_ZH}(?:斤|担|公斤|吨|克|两)"
AREA: Final = rf"\b{NUMBER} (?:mu|acres?|hectares?|square \w+)\b|{NUMBER_ZH}(?:亩|顷|平方)"
MONEY: Final = (
    rf"[$€£¥￥]|\b{NUMBER} (?:yuan|coins?|taels?|dollars?|pounds?|euros?|rmb)\b|\bfree of charge\b|\bfor free\b"
    rf"|\bpaid nothing\b|\bno (?:fee|charge)\b|{NUMBER_ZH}(?:元|块钱|文|两银|角)|免费|不收"
)
CONTACT: Final = r"\d[\d -]{5,}\d|@|https?:|www\."
COLOUR: Final = r"\b(?:white|black|red|yellow|blue|green|gr[ae]y|brown|golden)\b|[白黑红黄蓝绿灰青紫金]"
SHAPE: Final = rf"{COLOUR}|\b(?:round|square|wooden|made of|wide|tall|shaped?)\b|形|[圆方]的|[木石瓦]做?的"
RANK: Final = rf"\b{ORDINAL}\b|第\s*{HAN_NUMBER}"
NOWADAYS: Final = r"\b(?:today|now|nowadays|still|currently)\b|今天|现在|如今|至今|目前|仍|现[藏存]"
PRESENT: Final = rf"{NOWADAYS}|\b(?:every|each)\b|每[年天]"
EACH: Final = r"\b(?:each|every|per|an?) (?:year|day|month|week)\b|\b(?:yearly|daily)\b|每"
LATER: Final = (
    r"\b(?:later|afterwards?|since|from then on|in the end|the next day|came back|no longer|today|still)\b"
    r"|后来|从此|此后|之后|第二天|回来|至今|今天|现在"
)
# A reason stands behind "because", or as what was meant, found or wished before the deed.
REASON: Final = (
    r"\b(?:because|so that|in order|hence|therefore|for fear|has been called|meant to|found|wished|hearing)\b"
    r"|\bwhich (?:makes|turns|warms|gives|keeps)\b|^\W*when\b"
    rf"|\bto (?!(?:the|an?|his|her|its|their|this|that|him|them|it|be|try|{NUMBER})\b)(?-i:[a-z]{{3,}})"
    "|因为|所以|为了|由此|因此|以免|便于|以便|从此|意思是|发现|[会能][让使]|替|想要|，[见便]"
)

_ROLES: Final = (
    r"child(?:ren)?|elders?|eldest|youngest|mothers?|fathers?|sons?|daughters?|wife|husband|teachers?|pupils?"
    r"|workers?|officials?|boatm[ae]n|famil(?:y|ies)|clan|bride|groom|people|men|women|visitors?|merchants?"
    r"|founder|author|ancestor|brothers?|sisters?"
)
_ROLES_ZH: Final = "孩子|母亲|父亲|儿子|女儿|长辈|先生|工人|盐工|船工|族长|族人|全族|子弟|官府|先祖|新人|年长的人"
_SURNAMES: Final = (
    "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯于董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡"
    "贾丁魏薛叶阎余潘杜戴夏钟汪田任姜范方石姚谭廖邹熊金陆郝孔白崔康毛邱秦江史顾侯邵孟龙万段严"
)
NAMED: Final = rf"(?<=\w )[A-Z][a-z]+|\b(?:the|an?) \w|[{_SURNAMES}][\u3400-\u9fff]{{1,2}}|阿[\u3400-\u9fff]"
PERSON: Final = (
    rf"\b[A-Z][a-z]+ [A-Z][a-z]+|\b(?:{_ROLES}|[Hh]e|[Ss]he)\b"
    rf"|[{_SURNAMES}][\u3400-\u9fff]{{1,2}}|{_ROLES_ZH}|阿[\u3400-\u9fff]"
)
PLACE: Final = (
    r"\b(?:in|at|on|by|near|beside|before|inside|outside|behind|into|across|along|to|from)\b"
    r" (?:the|a|its|this|\w+'s|[A-Z])"
    r"|\b(?:east|west|north|south|middle) of\b|在[\u3400-\u9fff]|村[东西南北中]|[东西]厢|[厅边旁岸]"
)
HOME: Final = r"\bfrom (?:the )?\w+|\bcame (?:north|south|east|west)\b|从|来自|人氏"
NAMING: Final = (
    r"\b(?:called|named|known as) (?:the )?[A-Z]|\bname(?:, | is | was )|[叫称]做?(?!什么)[\u3400-\u9fff]|名[叫为]"
    r"|字[\u3400-\u9fff]{2}，|姓[\u3400-\u9fff]"
)
