"""How a question is put: the patterns by which the offline model knows what is wanted."""

from __future__ import annotations

import re
from typing import Final

from tenuto.llm.offline.correcting import changes, changes_it
from tenuto.llm.offline.facts import About
from tenuto.llm.offline.kinds import Kind, holds
from tenuto.model.expression import expression

_I: Final = re.IGNORECASE

GREETING: Final = expression(
    r"\W*(?:(?:hi+|hello+|hey+|hiya|howdy|yo|greetings|good (?:morning|afternoon|evening|day))\b"
    r"|你好|您好|嗨|哈喽|早上好|上午好|中午好|下午好|晚上好|早安|大家好|在吗)(?P<rest>.*)",
    _I | re.DOTALL,
)
THANKS: Final = expression(
    r"\W*+(?:(?:ok(?:ay)?|great|cool|perfect|nice)\b|好的?|太好了)?\W*+(?:many )?"
    r"(?:(?:thanks?|thx|cheers)\b|谢谢[您你]?|多谢|感谢|谢了|辛苦了)(?P<rest>.*)",
    _I | re.DOTALL,
)
# Words that want a word back and nothing else, by the name of what is said.
SMALL_TALK: Final = tuple(
    (answer, expression(rf"\W*+(?:{pattern})\W*+$", _I))
    for answer, pattern in (
        (
            "fine",
            r"(?:and )?how (?:are you|do you do|is it going|are things)(?: doing)?(?: today)?|how's it going|what's up"
            r"|how do you feel(?: today)?"
            r"|你?(?:最近)?还?好吗|你怎么样",
        ),
        ("met", r"(?:very )?(?:nice|pleased|good|glad) to meet you(?: too)?|很?高兴认识[你您]|幸会"),
        (
            "forgiven",
            r"(?:oh,? )?(?:i'm |i am )?(?:so |very )?sorry(?: about that)?|my (?:bad|apologies)|对不起|抱歉|不好意思",
        ),
        (
            "all_right",
            r"ok(?:ay)?|yes|yep|yeah|no|nope|sure|great|cool|nice|fine|good|perfect|alright|all right|i see|got it"
            r"|understood|lol|(?:ha){1,9}|wow|hm{1,9}|oh"
            r"|嗯{1,9}|哦{1,9}|好的?|是的?|对|不是?|行|可以|明白了?|知道了|哈{1,9}|呵呵|不错|太好了",
        ),
        (
            "modest",
            r"i (?:really )?(?:love|like) you"
            r"|you(?:'re| are) (?:so |very |really )?(?:great|nice|cool|smart|awesome|amazing|helpful|good|the best)"
            r"|well done|good (?:job|bot)|我[好很]?(?:爱|喜欢)你|你(?:真是?|太|好|很)(?:棒|好|聪明|厉害)了?",
        ),
        (
            "blamed",
            r"you(?:'re| are) (?:so |very |really |just )?(?:stupid|dumb|useless|bad|terrible|an? idiot|wrong|no help)"
            r"|that(?:'s| is| was) (?:wrong|not (?:true|right|correct)|useless|nonsense)"
            r"|你(?:真是?|太|好|很|是)?(?:笨蛋?|蠢|傻瓜?|没用|差)了?|[你这]?[说答]?错了|不对",
        ),
    )
)
BYE: Final = expression(
    r"\W*(?:(?:good ?bye|bye(?:[ -]?bye)?|see you|good night)\b.{0,10}|再见|拜拜|晚安|回头见)\W*$", _I
)
WHO_ARE_YOU: Final = expression(
    r"\b(?:who|what) are you\b|\bwhat can you do\b|\bhow (?:do|can) (?:you|i use you) (?:work|help)"
    r"|^\W*(?:can you )?help(?: me)?\W*$|\bwhat(?:'s| is) your name\b"
    r"|\bhow does (?:this|it) work\b|这个?(?:东西)?(?:是)?怎么用"
    r"|\bwho (?:made|built|created|wrote|owns) you\b|\bhow old are you\b|\bwhere are you from\b"
    r"|^\W*what(?:'s| is) this(?: (?:thing|place|site|app|tool))?\W*$"
    r"|^\W*这(?:里|个)?是(?:什么|啥|干什么的)[\u3400-\u9fff]{0,2}\W*$"
    r"|\bare you (?:an? )?(?:ai|bot|robot|human|llm|gpt|chatgpt|real|language model)\b"
    r"|谁(?:做|开发|创造|制造|发明)了?[的出]?你|你(?:今年)?(?:多大|几岁)|你(?:来自|从)哪|你是哪"
    r"|你是谁|你是什么|你叫什么|你能(?:做|干|帮).{0,4}(?:什么|啥|哪些)|你会(?:做)?(?:什么|啥)|怎么用你|^\W*帮助\W*$"
    r"|你是(?:不是)?.{0,4}(?:机器人|人工智能|AI|GPT|模型|真人)",
    _I,
)
# What it can do and cannot, by the name of what is said of it.
OF_ITSELF: Final = tuple(
    (answer, expression(pattern, _I))
    for answer, pattern in (
        (
            "languages",
            r"\b(?:do|can|could) you (?:also )?(?:speak|understand|talk|answer|reply|write)(?: to me)?(?: in)? "
            r"(?:english|chinese|mandarin|german|french|spanish|portuguese|italian|russian|japanese|korean|arabic|hindi"
            r"|(?:any )?other languages?)\b.{0,20}$|\b(?:what|which) languages (?:do|can) you\b"
            r"|你(?:会|能|可以|懂)(?:不会|不能)?(?:说|讲|用|写)?(?:.{0,3}[英中日法德俄韩][文语]|普通话|别的语言|其他语言)"
            r"|你(?:会|懂|能说)(?:哪些|什么|几种)语言",
        ),
        (
            "connect",
            r"\b(?:connect|add|use|set up|configure|plug in)\b.{0,12}\b(?:language )?(?:model|llm)\b"
            r"|(?:接入|连接|配置|使用|换)(?:一个|别的|其他)?(?:语言|大语言|大)?模型",
        ),
        (
            "stays",
            r"^\W*(?:please |can you |could you )*"
            r"(?:forget\b(?! (?:it|about it|that)\W*$)"
            r"|(?:delete|erase|remove|clear) (?:my|me|our|everything|all|what i|this (?:conversation|chat|session))\b)"
            r"|^\W*(?:请|帮我|麻烦|你)*(?:把.{1,12})?(?:忘掉|忘记|忘了)"
            r"|^\W*(?:请|帮我|麻烦|你)*(?:删除|删掉|清空|清除|抹掉)(?:我|这段|这个|这些|本次|所有|全部|对话|聊天|记录)",
        ),
        ("no_reminders", r"^\W*(?:please |can you |could you )*(?:remind me to|wake me)\b|^\W*(?:请|到时|记得)*提醒我"),
    )
)
LIST: Final = expression(
    r"\bwhat(?:'s| is| was) (?:on|in) (?:my|the|that|our) (?:\w+ ){0,2}list\b"
    r"|\b(?:show|repeat|read) (?:me )?(?:my|the|that) (?:\w+ ){0,2}list\b"
    r"|(?:清单|列表|单子)(?:上|里|里面)?(?:都)?(?:有|是)(?:什么|哪些|啥)",
    _I,
)
# How people say who they are without saying that it is a name, and the like.
HINTS: Final = {
    About.NAME: expression(r"^我是[^不的一，。！？]{2,8}(?=[，。！？,.!]|$)"),
    About.ALLERGY: expression(
        r"\bi(?:'m|'ve)? (?!.*\bmy\b).*\ballerg|\bmy allerg|^[^我]*我(?!的|家|们)(?:有|对|也|很|会).*过敏", _I
    ),
}
AGAIN: Final = expression(
    r"^\W*(?:please |can you |could you )*(?:repeat(?: (?:that|it|this|yourself|your (?:last )?answer))?"
    r"|say (?:that|it) again|come again|pardon(?: me)?)\b.{0,20}$"
    r"|\bwhat did you (?:just )?(?:say|answer|tell me)\s*[?.!]*$|\bwhat was your (?:last |previous )?(?:answer|reply)\b"
    r"|^.{0,6}再说一[遍次]|^.{0,6}重复一[遍下次]|没听清|没看清"
    r"|你(?:刚才|刚刚|刚|上次|之前)?(?:说|回答)(?:了|的)?(?:是)?(?:什么|啥)[\s?？。]*$",
    _I,
)
WHAT_I_SAID: Final = expression(
    r"\bwhat did i (?:just )?(?P<at_first>first )?(?:say|ask|write|tell you)(?: you)?"
    r"(?: (?:just now|before|last|earlier|(?P<first>(?:at )?first)))?\s*[?.!]*$"
    r"|\bwhat(?:'s| is| was) (?:my|the) (?P<which>first|last|previous) "
    r"(?:question|message|thing i (?:said|asked|told you|wrote))\b"
    r"|\bwhat was (?:my|the) (?:question|message)\b|\bwhat i just (?:said|asked)\b"
    r"|^\W*(?:刚才|刚刚|上次|之前|前面)?我(?:刚才|刚刚|刚|上次|之前|前面)?(?:都)?(?:说|问|讲)(?:了|过|的)?(?:是)?(?:什么|啥|哪些)(?:话|问题)?[\s?？。]*$"
    r"|我的?(?P<who>第一|最后一|上一?|刚才的?|前一)[个句条]?(?:问题|话|消息)",
    _I,
)
_BEFORE: Final = r"(?:刚才|刚刚|之前|前面|以前)?"
_SPOKE: Final = r"(?:说|提|聊|讲|谈|讨论|决定)"
TOPICS: Final = tuple(
    expression(pattern + r"[\s?？.。!！]*$", _I)
    for pattern in (
        r"\bwhat (?:did|have|had) (?:i|we|you)(?: just| ever| already)? (?:say|said|tell|told|mention(?:ed)?"
        r"|talk(?:ed)?|discuss(?:ed)?|write|written|decide[d]?|agree[d]?)(?: you| me)?(?: something| anything)?"
        r"(?: about| regarding| on| of| for| concerning)? (.{1,80}?)(?: before| earlier| so far| again)?",
        r"\b(?:did|have) (?:i|we|you) (?:ever |already )?(?:mention(?:ed)?|say|said|talk(?:ed)?|discuss(?:ed)?"
        r"|tell you|told you)(?: anything about| something about| about)? (.{1,80}?)(?: before| earlier| already)?",
        r"\bwhat do you (?:know|remember) (?:about|of) (.{1,80}?)",
        r"^(?:and |so |but )?what about (?!me\b|you\b|us\b)(.{1,80}?)",
        r"\b(?:remind me|tell me again)(?: about| of| what (?:i|we) said about| what) (.{1,80}?)",
        rf"关于(.{{1,30}}?)(?:的(?:事|事情|话题|内容)?)?[，,]?(?:我们?|你|咱们)?{_BEFORE}(?:都)?{_SPOKE}(?:过|了|到|的)*"
        r"(?:是)?(?:什么|啥|哪些|吗|没有|怎么说的)?",
        rf"(?:我们?|你|咱们){_BEFORE}(?:都)?{_SPOKE}(?:过|了|到)*(?:什么|哪些|啥)?关于(.{{1,30}}?)"
        r"(?:的(?:什么|事|内容|话)?)?(?:吗|呢)?",
        rf"(?:我们?|你|咱们){_BEFORE}(?:有没有)?(?:说|提|聊|讲|谈)(?:过|到过?)(.{{1,30}}?)(?:吗|没有|没|么|的什么|什么)",
        rf"(?:我们?|你){_BEFORE}(?:是)?怎么说(.{{1,30}}?)的",
    )
)
SUM_UP: Final = expression(
    r"\b(?:summari[sz]e|sum (?:(?:it|this|that|things) )?up|recap|tl;?dr|(?:a|the|short) summary)\b"
    r"|\bwhat (?:have|did) we (?:talk(?:ed)?|discuss(?:ed)?|sa(?:y|id))(?: about)?(?: so far| today)?\s*[?.!]*$"
    r"|总结|概括|小结|归纳|回顾一下|我们(?:都|刚才|今天|之前)*(?:聊|说|谈|讨论)(?:了|过)*(?:些)?(?:什么|啥|哪些)",
    _I,
)
# Whoever begins so wants something done, and tells nothing.
ORDER: Final = expression(
    r"\W*(?:(?:please|tell|write|give|explain|show|list|make|create|translate|help|find|compare|describe|suggest"
    r"|recommend|generate|draft|compose|calculate|compute|solve|sing|draw|let's|continue|go on|more|why|and|or|add"
    r"|search|look|open|send|book|buy|order|play|set|stop|remove|delete|cancel|change)\b"
    r"|请|帮|给我|写|告诉|解释|翻译|推荐|介绍|列|画|算|计算|查|找|继续|讲|说说|来|做|生成|再|去掉|删|移除|取消|改成|换成)",
    _I,
)
TELLS: Final = expression(
    r"\b(?:is|are|was|were|am|will|has|have|had|must|need|needs|want|wants|went|bought|booked|costs?|starts?|ends?"
    r"|begins?|got|met|saw|made|took|plan|planned|decided|agreed|meets?|arrives?|leaves?)\b|'(?:s|m|re|ve|ll)\b"
    r"|[是在有了要会将于去定叫没不住]"
    # Whoever speaks of somebody in three words or more tells something, whatever the verb.
    r"|^\W*(?:i|we|he|she|they|my|our|his|her|their|there|it)(?:'\w+)? \w+(?: |n't )\w+"
    r"|^[我他她]们?\S{2,}",
    _I,
)
_LITTLE: Final = (
    r"(?:me|us|him|her|them|it|my|our|his|their|the|an?|this|that|to|in|on|at|for|from|by|with|about|off|out|up|\d"
    r"|yesterday|today|again|already|late|early)"
)
# What tells without such a verb: what is set out behind a colon, whoever does something, known by the verb's ending,
# and a Chinese sentence with a number of something.
_TELLS_TOO: Final = expression(
    r"^\W*[\w' -]{2,40}[:：]\s*\S"
    r"|^\W*(?:(?:the|an?|this|that|every|each|some|all) )?(?:[\w'-]+ ){1,3}?"
    rf"(?:[\w'-]+ed(?= {_LITTLE}\b|\W*$)"
    r""
    r"|[\w'-]+[^\Ws](?<!')s (?=(?:me|us|him|her|them|it|my|our|his|their|the|an?)\b|(?:at |in |by )?\d))"
    r"|^(?=.{6,})[\u3400-\u9fff].*[0-9一二三四五六七八九十百千两半][点号日块元岁斤米]",
    _I,
)
_GOES_ON: Final = expression(r"\W*(?:and|also|plus|oh|还有|另外|对了)\b[\s,:，：]*|\W*(?:还有|另外|对了)[，,\s]*", _I)
OF_A_NAME: Final = expression(r"(?:'s?|s')? names?$")
NAMES: Final = expression(r"\b(?:called|named|names?)\b|\w,? [A-Z][a-z]|[叫名]")
# Words around "the second one" that ask nothing more than which it is.
AROUND_ITEMS: Final = expression(
    r"\b(?:mean(?:s|ing)?|detail(?:s|ed)?|explain|about|list|tell|more|repeat|again|name|number)\b"
    r"|\b(?:which|what) \w+(?= (?:is|was|comes|came)\b)|\b(?:is|was|comes|came)\b"
    r"|是?哪[个一]?[\u3400-\u9fff]{0,3}|意思|具体|内容|解释|详细|说明|介绍|讲讲|说说|一下|刚才|说的|提到|上面|里面|列表|那[个条点]"
)


def tells(text: str) -> bool:
    """Whether somebody tells something, rather than wanting something done."""
    if changes_it(text):
        return True
    rest = text[on.end() :] if (on := _GOES_ON.match(text)) else text
    if ORDER.match(rest):
        return False
    dated = rest != text and holds(Kind.WHEN, rest)
    return dated or changes(rest) or any(pattern.search(rest) for pattern in (TELLS, _TELLS_TOO))


def is_small_talk(text: str) -> bool:
    """Whether a text is thanks, a farewell or the like, and tells nothing."""
    return any(pattern.match(text) for pattern in (THANKS, BYE, *(pattern for _, pattern in SMALL_TALK)))
