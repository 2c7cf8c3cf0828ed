"""What a visitor wants to know: which rule, its meaning or a story, what was listed before, or anything else.

Talk before the question tells what "the first one" and "it" are; it is never taken for a fact (C1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from tenuto.assistants.npc.corpus import Corpus, Evidence, subjects, terms
from tenuto.model.expression import expression
from tenuto.model.numbers import CARDINAL, HAN_NUMBER, ORDINAL, ROMAN, whole
from tenuto.model.talk import ToolTurn
from tenuto.model.values import JsonObject, Value


class Wish(StrEnum):
    """What kind of answer is wanted."""

    LIST = "list"
    MEANING = "meaning"
    STORY = "story"
    ORIGIN = "origin"
    ABOUT = "about"
    SEARCH = "search"


class Wanted(Value, frozen=True, kw_only=True):
    """A question, understood as far as rules go: the wish, the rules it is about, and words to search by."""

    wish: Wish
    query: str
    rule: int | None = None
    also: tuple[int, ...] = ()

    def rules(self) -> tuple[int, ...]:
        """All the rules it names, each once."""
        return () if self.rule is None else tuple(dict.fromkeys((self.rule, *self.also)))[:_MOST_RULES]


class Focus(Value, frozen=True, kw_only=True):
    """What a character and its visitor were talking about."""

    rule: int | None = None
    listed: bool = False
    evidence: tuple[str, ...] = ()


# So many rules are told side by side; whoever asks for more of them gets the first.
_MOST_RULES: Final = 5
_RULE: Final = r"(?:rule|precept|maxim)s?"
# "What does the third mean?" points at a list; "the third generation" does not.
_POINTING: Final = (
    r"(?=\s*(?:$|[?.!,;:)]|and\b|or\b|then\b|please\b|means?\b|says?\b|is\b|about\b"
    r"|of (?:them|these|those|the rules)\b))"
)
_PLACE: Final = expression(
    rf"(?P<back>倒数)?第\s*(?P<zh>{HAN_NUMBER})\s*(?:(?P<of>[条则])|[个点句项]|(?=$|[^\u3400-\u9fff]|[呢是的有讲说又和与跟到至]))"
    rf"|\b(?P<en>{ORDINAL})(?: (?:family |house )?(?P<noun>{_RULE})\b| (?:one|point|item)\b|{_POINTING})"
    rf"|\b(?:(?P<named>{_RULE})(?: number| no\.?)?|number|no\.)\s*#?\s*(?P<num>\d{{1,6}}|{ROMAN}|{CARDINAL})(?![\w-])",
    re.IGNORECASE,
)
# What goes on counting behind a place: "and 6", 、六条, "to the eighth".
_MORE: Final = expression(
    rf"[条则]?\s*(?:[,、和与及跟&]|\b(?:and|or)\b|(?P<up_to>[到至]|\b(?:to|through)\b))\s*(?:the\s|第)?"
    rf"(?P<number>{HAN_NUMBER}|{ORDINAL}|{CARDINAL})(?:(?=[条则有的是讲说])|\s*{_RULE}\b|{_POINTING})",
    re.IGNORECASE,
)
_ONE: Final = rf"(?:one|{_RULE})\b"
_LAST: Final = expression(
    rf"最后一?[条则个]|\b(?:very )?last {_ONE}|\bthe (?:very )?last(?=\s*[?.!]*$| of )", re.IGNORECASE
)
_BESIDE: Final = (
    (
        1,
        expression(
            rf"下一?[条则个]|接下来(?=呢|$)|\b(?:next|following) {_ONE}|\bthe next(?=\s*[?.!]*$)"
            r"|^\W*(?:and |what about )?next\W*$",
            re.IGNORECASE,
        ),
    ),
    (
        -1,
        expression(
            rf"[上前]一[条则个]|\b(?:previous|preceding) {_ONE}|\bthe previous(?=\s*[?.!]*$)|\bthe one before\b",
            re.IGNORECASE,
        ),
    ),
)
_STORY: Final = expression(r"故事|事迹|例子|典故|传说|\b(stor(?:y|ies)|tales?|examples?|anecdotes?)\b", re.IGNORECASE)
_MEANING: Final = expression(
    r"意思|含义|何意|怎么理解|如何理解|解释|什么道理|\b(mean(?:s|ing)?|explain|understand|sense)\b", re.IGNORECASE
)
_RULES: Final = expression(r"家训|家规|族规|祖训|规矩|\b(?:family |house |ten )?(?:rules|precepts)\b", re.IGNORECASE)
_ANY_RULES: Final = expression(rf"{_RULES.pattern}|\b{_RULE}\b", re.IGNORECASE)
_ALL: Final = expression(
    r"有哪些|哪几|哪十|几条|几则|多少|全部|所有|列|是什么[?？]?$|讲讲|介绍|说说"
    r"|\b(what are|which|list|all|tell me|how many|name)\b",
    re.IGNORECASE,
)
_ORIGIN: Final = expression(r"谁|何时|什么时候|哪年|来历|由来|年代|\b(who|when|wrote|origin|year)\b", re.IGNORECASE)
_BACK: Final = expression(
    r"[它这那]|其中|刚才|上面|具体|详细|还有|再|呢[?？]?$|\b(it|its|this|that|them|those|these|more|concrete|detail)\b",
    re.IGNORECASE,
)
_WHO_ARE_YOU: Final = expression(
    r"[你您](?:是谁|叫什么|是什么人|是哪位|是做什么的|贵姓|怎么称呼)|(?:怎么|如何)称呼[你您]|自我介绍|介绍(?:一下|下)?[你您]?自己"
    r"|\bwho are you\b|\b(?:what(?:'s| is)|tell me|know) your name\b|\bwhat are you called\b"
    r"|\bwho am i (?:talking|speaking) (?:to|with)\b"
    r"|\bintroduce yourself\b|\babout yourself\b",
    re.IGNORECASE,
)
_HELLO: Final = (
    r"你们?好|您好|嗨|哈喽|大家好|早安|早上好|上午好|中午好|下午好|晚上好"
    r"|hi|hello|hey|greetings|good (?:morning|afternoon|evening|day)"
)
_FILLING: Final = r"[啊呀了吧哦,，!！.。~ ]*+"
_GREETING: Final = expression(rf"\W*+(?:(?:{_HELLO})(?: there| everyone)?{_FILLING}){{1,4}}\W*", re.IGNORECASE)
_SMALL_TALK: Final = expression(
    rf"\W*+(?:(?:{_HELLO}|谢谢|多谢|感谢|再见|拜拜|好的|好|嗯|哦|明白了?|知道了"
    r"|thanks?|thank you|bye|goodbye|ok|okay|great|i see|there|everyone)"
    rf"{_FILLING}){{1,4}}(?:very much|a lot)?\W*",
    re.IGNORECASE,
)
_OURSELVES: Final = expression(
    r"我叫|我的名字|我是谁|我姓|我来自|我喜欢|我刚才|我问|你还?记得我|我们刚才|聊了什么"
    r"|\b(my name|i am|i'm|who am i|call me|i like|i love|i come from|did i|do you remember me|we talked"
    r"|i (?:just )?(?:asked|said))\b",
    re.IGNORECASE,
)
_LOOKED_AT: Final = 2000


def understand(turn: ToolTurn, corpus: Corpus) -> Wanted | None:
    """What is asked for, `None` for small talk and for what only the conversation knows."""
    question = turn.question[:_LOOKED_AT].strip()
    if _WHO_ARE_YOU.search(question):
        return Wanted(wish=Wish.ABOUT, query=question)
    if _SMALL_TALK.fullmatch(question) or _OURSELVES.search(question):
        return None
    focus = focus_of(turn)
    named = _rules(question, focus, corpus)
    rule = named[0] if named else None
    if rule is None and _lists(question, corpus):
        return Wanted(wish=Wish.LIST, query=question)
    if rule is None and focus.rule is not None and _points_back(question, corpus):
        rule = focus.rule
    if _ORIGIN.search(question) and (_RULES.search(question) or (rule is not None and rule == focus.rule)):
        return Wanted(wish=Wish.ORIGIN, query=question, rule=rule)
    if rule is None:
        return Wanted(wish=Wish.SEARCH, query=question)
    wish = Wish.STORY if _STORY.search(question) else Wish.MEANING
    return Wanted(wish=wish, query=question, rule=rule, also=tuple(named[1:]))


def greets(question: str) -> bool:
    """Whether it is a greeting and nothing else."""
    return _GREETING.fullmatch(question[:_LOOKED_AT].strip()) is not None


def focus_of(turn: ToolTurn) -> Focus:
    """What this character and its visitor were talking about; anybody may have written the state, so it is checked."""
    kept = turn.state.get(turn.persona or "")
    if not isinstance(kept, dict):
        return Focus()
    rule, listed, evidence = kept.get("rule"), kept.get("listed"), kept.get("evidence")
    return Focus(
        rule=rule if type(rule) is int else None,
        listed=listed is True,
        evidence=tuple(map(str, evidence)) if isinstance(evidence, list) else (),
    )


def kept(turn: ToolTurn, focus: Focus) -> JsonObject:
    """The focus as the session keeps it, apart for each character."""
    return {turn.persona or "": {"rule": focus.rule, "listed": focus.listed, "evidence": list(focus.evidence)}}


def _rules(question: str, focus: Focus, corpus: Corpus) -> Sequence[int]:
    """The rules a question names, by their places or by their words; there need not be such rules."""
    rules = corpus.of("rule")
    numbers = sorted(piece.rule for piece in rules if piece.rule is not None)
    if not numbers:
        return ()
    spoken_of = focus.listed or focus.rule is not None or _RULES.search(question) is not None
    places = list(_PLACE.finditer(question))
    if places and (spoken_of or any(place["of"] or place["noun"] or place["named"] for place in places)):
        return list(dict.fromkeys(number for place in places for number in _counted(place, numbers)))
    if _LAST.search(question) and spoken_of:
        return numbers[-1:]
    if focus.rule is not None:
        for step, pattern in _BESIDE:
            if pattern.search(question):
                return [focus.rule + step]
    return [piece.rule for piece in rules if piece.rule is not None and _names(question, piece)]


def _counted(place: re.Match[str], numbers: Sequence[int]) -> Iterator[int]:
    """The number of a place, and those that are counted on behind it."""
    last, more = _numbered(place, numbers), _MORE.match(place.string, place.end())
    yield last
    while more is not None:
        number = whole(more["number"]) or 0
        yield from range(last + 1, min(number, numbers[-1])) if more["up_to"] else ()
        yield number
        last, more = number, _MORE.match(place.string, more.end())


def _numbered(place: re.Match[str], numbers: Sequence[int]) -> int:
    number = whole(place["zh"] or place["en"] or place["num"]) or 0
    if place["back"]:
        return numbers[-number] if 0 < number <= len(numbers) else 0
    return number


def _names(question: str, rule: Evidence) -> bool:
    folded = question.lower()
    names = [title.lower() for title in rule.title.values()]
    # Of four Chinese characters the first two are what people say.
    return any(name in folded or (not name.isascii() and name[:2] in folded) for name in names)


def _lists(question: str, corpus: Corpus) -> bool:
    """Whether all the rules are asked for, be it by a question that says nothing but their name."""
    if _ORIGIN.search(question):
        return False
    if _RULES.search(question) and _ALL.search(question):
        return True
    named = _ANY_RULES.sub(" ", question)
    return named != question and corpus.shared_by("rule").issuperset((*terms(named), *subjects(named)))


def _points_back(question: str, corpus: Corpus) -> bool:
    """Whether the question leans on what was said: it says so, or asks for nothing of its own."""
    if _BACK.search(question) or _STORY.search(question) or _MEANING.search(question):
        best = corpus.search(question, limit=1)
        return not best or best[0].cover < 0.75 or best[0].piece.kind in ("meaning", "story", "rule")
    return False
