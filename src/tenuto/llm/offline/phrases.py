"""The offline model's words: what it recognises and what it says, in English and Chinese."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from tenuto.model.patterns import lazy_pattern
from tenuto.model.prompt import Language
from tenuto.model.values import Value


class Speaker(StrEnum):
    """Who a quoted sentence comes from.

    `NOTES` is what the prompt tells of older messages: the summary. `MEMORY` is from an earlier conversation,
    `NOTED` from a note on the user.
    """

    USER = "user"
    OTHER = "other"
    MODEL = "model"
    NOTES = "notes"
    MEMORY = "memory"
    NOTED = "noted"


class Intent(StrEnum):
    """What a short message asks for, where a table of words says so."""

    GREETING = "greeting"
    THANKS = "thanks"
    FAREWELL = "farewell"
    HELP = "help"
    FIRST = "first"
    LAST = "last"
    REPEAT = "repeat"
    SUMMARY = "summary"


class Phrases(Value, frozen=True, kw_only=True):
    """Whole sentences, but for the places in braces."""

    greeting: str
    persona_greeting: str
    thanks: str
    farewell: str
    help: str
    noted: str
    nearest: str
    nothing_found: str
    connect: str
    nothing_said: str
    no_words: str
    stand_in: str
    tools_failed: str
    first: str
    last: str
    summary: str
    another_user: str
    days: tuple[str, str, str, str]
    quotes: dict[Speaker, str]


_CONNECT: Final = {
    Language.ENGLISH: (
        "For open-ended answers, connect a language model with the setting TENUTO_MODEL, such as openai:… or ollama:…."
    ),
    Language.CHINESE: "想要自由问答，请用设置项 TENUTO_MODEL 接入一个语言模型，例如 openai:… 或 ollama:…。",
}
PHRASES: Final = {
    Language.ENGLISH: Phrases(
        greeting="Hello! Tell me something and ask for it later, or say “help”.",
        persona_greeting="Hello, I am {name}. What would you like to know?",
        thanks="You're welcome.",
        farewell="Goodbye! This conversation stays here, so you can pick it up again at any time.",
        help=(
            "I am tenuto's offline model, not a language model: I quote what was said in this conversation, and answer "
            "with what this assistant's tools find. Tell me something (“My favourite colour is green”), ask for it "
            f"later, or say “summarise”. {_CONNECT[Language.ENGLISH]}"
        ),
        noted="Noted.",
        nearest="I am the offline model, not a language model, and match words only. The closest match I have:",
        nothing_found=(
            "I am the offline model, not a language model. I match words only, and no sentence here shares a word with "
            f"your question. {_CONNECT[Language.ENGLISH]}"
        ),
        connect=_CONNECT[Language.ENGLISH],
        nothing_said="There is nothing here yet for me to quote.",
        no_words="I need a few words to go on. What would you like to know?",
        stand_in="The language model did not answer, so the offline model does.",
        tools_failed="That lookup failed ({tools}). The operator of this assistant finds the cause in the trace.",
        first="Your first message that I can see is: “{text}”",
        last="Your last message was: “{text}”",
        summary="Sentences from this conversation:",
        another_user="Another user",
        days=("earlier today", "yesterday", "last week", "on {date}"),
        quotes={
            Speaker.USER: "You said: “{text}”",
            Speaker.OTHER: "{name} said: “{text}”",
            Speaker.MODEL: "I said: “{text}”",
            Speaker.NOTES: "The notes on this conversation say: “{text}”",
            Speaker.MEMORY: "You said {name}: “{text}”",
            Speaker.NOTED: "My notes say: “{text}”",
        },
    ),
    Language.CHINESE: Phrases(
        greeting="你好！可以先告诉我一些事，之后再问我，或者说“帮助”。",
        persona_greeting="你好，我是{name}。想了解些什么？",
        thanks="不客气。",
        farewell="再见！这段对话会保留下来，你随时可以接着聊。",
        help=(
            "我是 tenuto 的离线模型，不是大语言模型：我引用这段对话里说过的话，也用这个助手自带的工具查到的结果来回答。"
            "可以先告诉我一些事（比如“我最喜欢的颜色是绿色”），之后再问我，或者说“总结一下”。"
            f"{_CONNECT[Language.CHINESE]}"
        ),
        noted="记下了。",
        nearest="我是离线模型，不是大语言模型，只按词语查找，最接近的是：",
        nothing_found=(
            "我是离线模型，不是大语言模型，只按词语查找，这段对话里没有一句用到问题里的词。"
            f"{_CONNECT[Language.CHINESE]}"
        ),
        connect=_CONNECT[Language.CHINESE],
        nothing_said="这里还没有可以引用的内容。",
        no_words="请多说几个字，我才知道你想问什么。",
        stand_in="语言模型没有作答，现由离线模型回答。",
        tools_failed="查询失败（{tools}）。此助手的管理员可在追踪中查看原因。",
        first="我能看到的你的第一条消息是：“{text}”",
        last="你的上一条消息是：“{text}”",
        summary="这段对话里的句子：",
        another_user="另一位用户",
        days=("今天早些时候", "昨天", "上周", "在 {date} "),
        quotes={
            Speaker.USER: "你说过：“{text}”",
            Speaker.OTHER: "{name}说过：“{text}”",
            Speaker.MODEL: "我说过：“{text}”",
            Speaker.NOTES: "对话摘要里写着：“{text}”",
            Speaker.MEMORY: "你{name}说过：“{text}”",
            Speaker.NOTED: "记录里写着：“{text}”",
        },
    ),
}

# Each pattern is matched against a whole message in lower case, with single blanks for punctuation.
_SAID: Final = r"(?:say|ask|write|tell you)"
_INTENTS: Final = {
    Intent.GREETING: (
        r"(?:hi|hello|hey|good (?:morning|afternoon|evening|day))(?: (?:there|again|everyone|all|assistant|tenuto))*",
        r"(?:你好|您好|大家好|嗨|早上好|下午好|晚上好)[啊呀]?",
    ),
    Intent.THANKS: (
        r"(?:ok |okay |great |many )*(?:thanks|thank you|thx)(?: (?:a lot|so much|very much|again))*",
        r"(?:好的? ?)?(?:谢谢|多谢|感谢)(?:你|您|了|啦)*",
    ),
    Intent.FAREWELL: (
        r"(?:ok |thanks |thank you )*(?:bye|goodbye|good night|see you)(?: (?:bye|later|soon|then|tomorrow|now))*",
        r"(?:好的? ?)?(?:谢谢 ?)?(?:再见|拜拜|晚安|回头见)(?:了|啦)?",
    ),
    Intent.HELP: (
        r"(?:please )?help(?: me)?|(?:who|what) are you|what can (?:you do|i ask)(?: here| for me)?|how does this work",
        r"帮助|帮帮我|你是(?:谁|什么)|你(?:能|会|可以)(?:做|干)(?:些|点)?(?:什么|啥)|怎么用",
    ),
    Intent.FIRST: (
        rf"what did i {_SAID} (?:at )?first|what (?:was|were|is) (?:my (?:very )?first (?:message|words?|question)"
        r"|the first thing (?:that )?i (?:said|asked|wrote))",
        r"我(?:的)?(?:第一(?:句|条|个)(?:话|消息|问题)?|一?开始|最先|最早)(?:说|问|讲|是|的)*了?(?:些?什么|啥)?",
    ),
    Intent.LAST: (
        rf"what did i (?:just |last ){_SAID}|what did i {_SAID} (?:last|just now|before)"
        r"|what (?:was|were|is) (?:my (?:last|previous) (?:message|words?|question)|the last thing (?:that )?i "
        r"(?:said|asked|wrote))",
        r"我(?:的)?(?:刚才|刚刚|刚|上一?(?:句|条)(?:话|消息)?|最后(?:一?(?:句|条)(?:话|消息)?)?)(?:说|问|讲|是|的)*了?"
        r"(?:些?什么|啥)",
    ),
    Intent.REPEAT: (
        r"what did you (?:just )?say(?: last| just now| before)?|(?:please )?(?:say that again|repeat(?: that)?)",
        r"(?:请|麻烦)?(?:你)?再说一[遍次]|你刚才?说了?什么",
    ),
    Intent.SUMMARY: (
        r"(?:please |can you |could you )*(?:summari[sz]e|sum up|recap|(?:give me )?a summary|what did we talk about)"
        r"(?: (?:of|it|this|that|all|everything|our|the|whole|conversation|chat|discussion|what|we|i|have|said"
        r"|talked|about|so far|today|please|for me))*",
        r"(?:请|帮我|能不能|再)*(?:总结|概括|小结)(?:一下|下)?(?:我们|今天|刚才|这段|这次|的|所有|全部|对话|聊天|内容)*"
        r"|我们(?:刚才|都)?(?:聊|说|谈)了?(?:些?什么|啥)",
    ),
}
_ANY_INTENT: Final = lazy_pattern("|".join(f"(?P<{intent}>{'|'.join(words)})" for intent, words in _INTENTS.items()))
_LONGEST_INTENT: Final = 120
_PUNCTUATION: Final = lazy_pattern(r"[\W_]+")

_SUBJECT: Final = r"i|you|he|she|it|we|they|the|a|an|my|your|his|her|our|their|this|that|there|any"
_CHINESE_ASKING: Final = (
    r"什么(?:时候|名字|地方)?|哪[里儿个些]?|谁|多少钱?|几[点个岁位天年次月号]|怎么样?|怎样|为何|如何|多[大久远高长]"
)
_QUESTION: Final = lazy_pattern(
    rf"[?？][\"'”’)）]*$|[吗呢]\W*$|{_CHINESE_ASKING}"
    r"|^(?:what|when|where|which|who|whom|whose|why|how)\b[^,]*$"
    rf"|^(?:is|are|am|was|were|do|does|did|can|could|will|would|should|have|has) (?:{_SUBJECT})\b",
    re.IGNORECASE,
)
_REQUEST: Final = lazy_pattern(
    r"(?:please |now )*(?:tell|show|give|write|explain|translate|find|list|describe|remind|repeat|calculate|compare"
    r"|help|draw|suggest|recommend|search|look up|go on|continue|say|summari[sz]e)\b"
    r"|(?:请|麻烦|帮我|给我|替我|[写讲画查][一个讲查]|说说|介绍|解释|翻译|告诉我|列出|推荐|计算|搜索|继续|重复|总结)"
    r"(?!.{0,4}记)",
    re.IGNORECASE,
)
_ASKING: Final = lazy_pattern(
    rf"\b(?:how (?:much|many|long|far|often)|what (?:time|kind of))\b|关于|说过|提到|{_CHINESE_ASKING}", re.IGNORECASE
)


def match_intent(message: str) -> Intent | None:
    """What the whole message asks for by the table of words; `None` where the table has nothing."""
    if len(message) > _LONGEST_INTENT:
        return None
    plain = _PUNCTUATION.sub(" ", message.lower().replace("'s", " is").replace("’s", " is")).strip()
    found = _ANY_INTENT.fullmatch(plain)
    return Intent(found.lastgroup) if found is not None and found.lastgroup else None


def is_question(sentence: str) -> bool:
    """Whether a sentence asks: it answers nothing and is not quoted as an answer."""
    return _QUESTION.search(sentence) is not None


def is_request(sentence: str) -> bool:
    """Whether a sentence orders something, which noting it would not do."""
    return _REQUEST.match(sentence) is not None


def strip_asking(question: str) -> str:
    """A question without the words that ask, which its answer does not repeat."""
    return _ASKING.sub(" ", question)
