"""A title without a model: the phrase of the question that says most, as far as its words allow the rules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import regex

from tenuto.model.prompt import Language
from tenuto.sessions.title_rules import CHARACTERS, SMALL, WORDS, length, tidy, title_case

_LOOK_AT: Final = 1000
# What a phrase loses for each word before it: of two that say as much, the one that begins the sentence is its subject.
_LATE: Final = 0.2
_LATEST: Final = 0.6
_ARTICLES: Final = frozenset(["a", "an", "the", "some", "any", "my", "our", "your", "this", "that", "these", "those"])
_EMPTY_WORDS: Final = """
i me we us you he she it they them am be been being was were do does did have has had can could will would should shall
may might must not no yes so if then else when where who whom whose which what why how there here just also very really
please thanks thank hi hello hey dear want need like know think let tell give show help find get go make say ask about
more most much many good best better new all every each other another one two first s t re ve ll d m don isn doesn didn
what's who's where's how's when's it's that's there's here's let's i'm i'd i've i'll you're we're they're
remember remind note noted
"""
# Words that a title neither begins nor ends with, and that say nothing about its subject.
_EMPTY: Final = SMALL | frozenset(_EMPTY_WORDS.split())
_OPENERS: Final = regex.compile(
    r"^(?:(?:hi|hello|hey|please|so|ok|okay|well|and|also|now)[,!. ]+|(?:can|could|would|will) you (?:please )?"
    r"|(?:help|tell|show|give|teach|explain to) (?:me|us)(?: with| about| how to| the| to| a)? "
    r"|i(?:'d| would) (?:like|love)(?: to)? |i(?:'m| am) (?:looking for|trying to|planning|going to|interested in) "
    r"|i (?:want|need|have|think)(?: to)? |(?:we|i) (?:want|need) to |what(?:'s| is| are| does| do) (?:the )?"
    r"|how (?:do|can|should|to|does) (?:i |we |you |one )?|how much (?:is|are|does) |where (?:is|are|can i) "
    r"|why (?:is|are|does|do) |who (?:is|are|was) |when (?:is|are|was|does) |do you (?:have|know)(?: about| of)? "
    r"|my name is \w+(?:,| and)? ?|is there |are there |explain |recommend(?: me)? |my )+",
    regex.IGNORECASE,
)
# "How tall is the hall?" is about the hall's height.
_MEASURES: Final = {
    "big": "size", "deep": "depth", "expensive": "price", "far": "distance", "fast": "speed", "heavy": "weight",
    "high": "height", "large": "size", "long": "length", "old": "age", "tall": "height", "wide": "width",
}  # fmt: skip
_MEASURED: Final = regex.compile(
    r"^how (\w+) (is|are|was|were|(?:do|does|did)(?: it take(?: to)?)?) (.+)", regex.IGNORECASE
)
_CHINESE_OPENERS: Final = regex.compile(
    r"^(?:你好|您好|请问|请你?|麻烦你?|那么?|嗯|好的|我想(?:要|知道|了解|问|买|找|学)?|我要|我们?想|我需要|我打算|能不能|能否|可不可以"
    r"|可以|帮(?:我|忙)|给我|告诉我|介绍|推荐|解释|说说|讲讲|了解|一下|一些|几个|一个|一款|关于|有没有|你们?有|什么是|如何用?|怎么用|怎么样?|怎样"
    r"|为什么|有哪些|哪些|哪个|下|[，,。！!\s])+"
)
# Read from the end (`(?r)`): from the front, every place of a long clause would be tried as the beginning of its end.
_CHINESE_ENDINGS: Final = regex.compile(
    r"(?r)(?:吗|呢|吧|啊|呀|了|的|是什么(?:意思)?|有哪些|有什么|怎么办|怎么样|如何|是谁|在哪里?|多少钱?|好不好|可以|什么|哪些|哪个|好)++$"
)
# A mark between two figures is part of a number: 7:40, 1,299, 16：9.
_CLAUSES: Final = regex.compile(r"[，。！!？?；;、…\n]+|(?<!\d)[,:：]+|[,:：]+(?!\d)")
_JOINTS: Final = regex.compile(r"(?<=的)|(?=以及)|(?<!以)(?=[和与及并在从把被给对])")
_WHERE: Final = regex.compile(r"(?<=[A-Za-z0-9])[里中上]$")
_NUMBER: Final = regex.compile(r"[$€£¥]?\d[\d.,:/-]*(?<![.,:/-])%?")
_WORD: Final = regex.compile(
    rf"{_NUMBER.pattern}(?!-?[\p{{L}}\p{{N}}_])|[\p{{L}}\p{{N}}_][\p{{L}}\p{{N}}_\'’.+#&/-]*[\p{{L}}\p{{N}}_+#]|[\p{{L}}\p{{N}}]"
)
# The dot of "U.S." ends no sentence.
_SENTENCE: Final = regex.compile(r"(?<![.!?;:\n])(?<!\b\p{L}\.\p{L})[.!?;:\n]+(?:\s|$)|[()]")

# What is no talk: blocks of code go, addresses of pages become the site's name, paths the file's, calls the function's.
_FENCED: Final = regex.compile(r"```.*?(?:```|\Z)", regex.DOTALL)
# Also the mark that stands in the place of one, or of anything else that is private.
_MAIL: Final = regex.compile(r"\[[A-Z][A-Z0-9_]*\]|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}")
_ADDRESS: Final = regex.compile(
    r"(?:https?://|(?<![\w.])(?=www\.))(?:www\.)?([\w-]+(?:\.[\w-]+)*)[^\s，。！？、）)\u3400-\u9fff]*"
)
_PATH: Final = regex.compile(r"(?<![\w/\\])(?:[A-Za-z]:|[.~]{1,2})?(?:[\\/][\w.-]++){2,}(?<=[\\/]([\w.-]+))")
_CALL: Final = regex.compile(r"(?<=\w)\([^()\n]{0,60}\)")
_CODE_LINE: Final = regex.compile(
    r"\s*(?:(?:async )?def \w+\(|class \w+[:(]|import \w+|from \w+ import|function \w*\(|(?:const|let|var) \w+ ?="
    r"|#include|select\b.+\bfrom)",
    regex.IGNORECASE,
)
_POSSESSIVE: Final = regex.compile(r"['’]s?$")
_ENDING: Final = regex.compile(r"(?<=\p{L}{2})ies$|(?<=\p{L}{3})(?:ing|ed|es|s|e)$")
_CODE_SIGNS: Final = frozenset("{}()[]=;<>|\\")
_CODE: Final = 0.1


def from_talk(question: str, answer: str, language: Language) -> str | None:
    """A title of words that were said; `None` where there are too few to keep the rules."""
    asked, told = _spoken(question[:_LOOK_AT]), _spoken(answer[:_LOOK_AT])
    if not asked.strip() or _is_code(asked):
        return None
    found = _chinese(asked, told) if language is Language.CHINESE else _english(asked, told)
    return tidy(found, language) if found is not None else None


def _spoken(text: str) -> str:
    """A text as somebody would say it, without what only machines read."""
    text = _MAIL.sub("\n ", _FENCED.sub("\n", text))
    text = _PATH.sub(r"\1", _ADDRESS.sub(r"\1", text))
    return text if _is_code(text) else _CALL.sub("", text).replace("`", "")


def _is_code(text: str) -> bool:
    """Whether so much of it is brackets and the like that no phrase of it says anything."""
    return _CODE_LINE.match(text) is not None or sum(sign in _CODE_SIGNS for sign in text) > _CODE * len(text)


def _english(question: str, answer: str) -> str | None:
    """Of all runs of three to five words, the one whose words carry most; small words count only between others."""
    weights = _weights(question, answer)
    best: tuple[float, list[str]] | None = None
    for number, sentence in enumerate(_SENTENCE.split(question)):
        subject = _MEASURED.sub(_subject, _OPENERS.sub("", sentence.strip()))
        words = [word for word in _WORD.findall(subject) if word.lower() not in _ARTICLES]
        for start, run in _runs(words):
            score = sum(weights.get(word.lower(), 0.0) for word in run) / len(run) ** 0.5
            score -= 0.3 * number + min(_LATE * start, _LATEST)
            if best is None or score > best[0]:
                best = score, run
    if best is not None:
        return title_case(best[1])
    return _gathered(question, weights)


def _subject(asked: regex.Match[str]) -> str:
    """What a question after a measure is about, and the measure by its noun."""
    does = asked[2].lower().startswith("d")
    return asked[3] if does else f"{asked[3]} {_MEASURES.get(asked[1].lower(), '')}"


def _runs(words: Sequence[str]) -> list[tuple[int, list[str]]]:
    """The runs that can stand as a title, and where each begins."""
    fewest, most = WORDS
    spans = [
        (start, list(words[start : start + size]))
        for start in range(len(words))
        for size in range(fewest, most + 1)
        if start + size <= len(words)
    ]
    return [
        (start, run)
        for start, run in spans
        if run[0].lower() not in _EMPTY and run[-1].lower() not in _EMPTY and _tells(run)
    ]


def _tells(run: Sequence[str]) -> bool:
    """Whether at least two of its words tell something, and none of them the same as another."""
    telling = [stem(word) for word in run if word.lower() not in _EMPTY]
    return len(telling) == len(set(telling)) >= 2


def stem(word: str) -> str:
    """A word without its ending: "phones" and "phone" are one."""
    bare = _POSSESSIVE.sub("", word.lower())
    return _ENDING.sub(lambda ending: "y" if ending[0] == "ies" else "", bare)


def _weights(question: str, answer: str) -> Mapping[str, float]:
    """What a word is worth: what the answer takes up again is what the question is about; names are worth more."""
    weights: defaultdict[str, float] = defaultdict(float)
    said = Counter(word.lower() for word in _WORD.findall(answer))
    for word in _WORD.findall(question):
        low = word.lower()
        if _NUMBER.fullmatch(low):
            weights[low] = 1.5
        elif low not in _EMPTY and low not in _ARTICLES:
            weights[low] = 2 + min(said[low], 3) + (1 if any(map(str.isupper, word)) else 0) + (len(low) > 6)
    return weights


def _gathered(question: str, weights: Mapping[str, float]) -> str | None:
    """The telling words of a question that has no run of them, each once."""
    fewest, most = WORDS
    telling = [word for word in _WORD.findall(question) if word.lower() in weights]
    words = list({stem(word): word for word in reversed(telling)}.values())[::-1]
    if all(map(_NUMBER.fullmatch, words)):
        return None
    return title_case(words[:most]) if len(words) >= fewest else None


def _chinese(question: str, answer: str) -> str | None:
    """The clause of the question that the answer takes up most, cut where words join if it is too long.

    One that says too little without its frame keeps it: 孝悌是什么意思.
    """
    fewest, most = CHARACTERS
    framed = [_CHINESE_OPENERS.sub("", part.strip()) for part in _CLAUSES.split(question)]
    clauses = [_CHINESE_ENDINGS.sub("", part) for part in framed]
    wanted = [clause for clause in clauses if length(clause) >= 2]
    fitting = [short for clause in wanted for short in _within(clause)]
    pairs = Counter(answer[place : place + 2] for place in range(len(answer) - 1))

    def score(clause: str) -> tuple[float, int]:
        shared = sum(min(pairs[clause[place : place + 2]], 2) for place in range(len(clause) - 1))
        return shared + length(clause) / 2, -question.find(clause)

    if fitting:
        return max(fitting, key=score)
    whole = [part for part, clause in zip(framed, clauses, strict=True) if clause in wanted]
    return next((text for text in ("".join(wanted), "".join(whole)) if fewest <= length(text) <= most), None)


def _within(clause: str) -> list[str]:
    """The clause, or its parts between places where words join, of the right length."""
    fewest, most = CHARACTERS
    if length(clause) <= most:
        return [clause] if length(clause) >= fewest else []
    cuts = [0, *(match.start() for match in _JOINTS.finditer(clause)), len(clause)]
    parts = [
        _WHERE.sub("", clause[start:end].strip("的以和与及并 "))
        for place, start in enumerate(cuts)
        for end in cuts[place + 1 : place + 1 + most]
    ]
    return list(dict.fromkeys(part for part in parts if fewest <= length(part) <= most))
