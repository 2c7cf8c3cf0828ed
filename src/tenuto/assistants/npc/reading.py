"""What a visitor wants to know: which rule, its meaning or a story, what was listed before, or anything else.

Talk before the question tells what "the first one" and "it" are; it is never taken for a fact (C1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from tenuto.assistants.npc.corpus import Corpus, Evidence
from tenuto.assistants.npc.counting import RULE, RULES, rules_named
from tenuto.assistants.npc.facts import asked
from tenuto.assistants.npc.focus import Focus, focus_of
from tenuto.assistants.npc.pointing import leans
from tenuto.assistants.npc.words import LOOKED_AT, subjects, terms
from tenuto.model.expression import expression
from tenuto.model.talk import ToolTurn
from tenuto.model.values import Value


class Wish(StrEnum):
    """What kind of answer is wanted."""

    LIST = "list"
    MEANING = "meaning"
    STORY = "story"
    ORIGIN = "origin"
    ABOUT = "about"
    SEARCH = "search"
    BACK = "back"
    UNCLEAR = "unclear"


class Wanted(Value, frozen=True, kw_only=True):
    """A question, understood as far as rules go: the wish, the rules it is about, and words to search by."""

    wish: Wish
    query: str
    rule: int | None = None
    also: tuple[int, ...] = ()

    def rules(self) -> tuple[int, ...]:
        """All the rules it names, each once."""
        return () if self.rule is None else tuple(dict.fromkeys((self.rule, *self.also)))[:_MOST_RULES]


# So many rules are told side by side; whoever asks for more of them gets the first.
_MOST_RULES: Final = 5
_WELL_KNOWN: Final = 0.7
_HALF_KNOWN: Final = 0.5
_STORY: Final = expression(r"故事|事迹|例子|典故|传说|\b(stor(?:y|ies)|tales?|examples?|anecdotes?)\b", re.IGNORECASE)
_MEANING: Final = expression(
    r"意思|含义|何意|怎么理解|如何理解|解释|什么道理|\b(mean(?:s|ing)?|explain|understand|sense)\b", re.IGNORECASE
)
_ANY_RULES: Final = expression(rf"{RULES.pattern}|\b{RULE}\b", re.IGNORECASE)
_ALL: Final = expression(
    r"有哪些|哪几|哪十|几条|几则|多少|全部|所有|列|是什么[?？]?$|讲讲|介绍|说说"
    r"|\b(what are|which|list|all|tell me|how many|name)\b",
    re.IGNORECASE,
)
_ORIGIN: Final = expression(r"谁|何时|什么时候|哪一?年|来历|由来|年代|\b(who|when|wrote|origin|year)\b", re.IGNORECASE)
_MAKING: Final = expression(
    r"写定?|制定|定下|立下|编写?|创立|提出|作者"
    r"|\b(wrote|written|made|composed|created|drafted|invented|established|author)\b",
    re.IGNORECASE,
)
_HOW_MANY_RULES: Final = expression(
    rf"(?:多少|几)[条则个]?|\bhow many(?= (?:\w+ ){{0,2}}{RULE}\b)|\bname\b", re.IGNORECASE
)
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
_HOW_MANY: Final = expression(r"多少|几[个条则]|\bhow many\b", re.IGNORECASE)


def understand(turn: ToolTurn, corpus: Corpus) -> Wanted | None:
    """What is asked for, `None` for small talk and for what only the conversation knows."""
    question = turn.question[:LOOKED_AT].strip()
    if _WHO_ARE_YOU.search(question):
        return Wanted(wish=Wish.ABOUT, query=question)
    if _SMALL_TALK.fullmatch(question) or _OURSELVES.search(question):
        return None
    focus = focus_of(turn)
    named = rules_named(question, focus, corpus)
    rule = named[0] if named else None
    if rule is None and _lists(question, corpus):
        return Wanted(wish=Wish.LIST, query=question)
    last = corpus.named(focus.evidence, turn.persona)
    if rule is None and (wish := _of_the_talk(question, focus, last, corpus)) is not None:
        return Wanted(wish=wish, query=question)
    if rule is None and focus.rule is not None and _points_back(question, corpus):
        rule = focus.rule
    if _asks_origin(question, rule, focus, corpus):
        return Wanted(wish=Wish.ORIGIN, query=question, rule=rule)
    if rule is None:
        return Wanted(wish=Wish.SEARCH, query=question)
    wish = Wish.STORY if _STORY.search(question) else Wish.MEANING
    return Wanted(wish=wish, query=question, rule=rule, also=tuple(named[1:]))


def greets(question: str) -> bool:
    """Whether it is a greeting and nothing else."""
    return _GREETING.fullmatch(question[:LOOKED_AT].strip()) is not None


def _lists(question: str, corpus: Corpus) -> bool:
    """Whether all the rules are asked for, be it by a question that says nothing but their name."""
    if _ORIGIN.search(question):
        return False
    if RULES.search(question) and _ALL.search(question):
        other = _HOW_MANY_RULES.sub(" ", question)
        return not asked(other).facts and not _leads_elsewhere(_left(_ALL.sub(" ", other)), corpus, "rule")
    named = _ANY_RULES.sub(" ", question)
    return named != question and corpus.shared_by("rule").issuperset((*terms(named), *subjects(named)))


def _asks_origin(question: str, rule: int | None, focus: Focus, corpus: Corpus) -> bool:
    """Whether it is asked who made the rules, or when; who reads or copies them is another question."""
    if not _ORIGIN.search(question):
        return False
    if rule is not None:
        return rule == focus.rule or RULES.search(question) is not None
    return RULES.search(question) is not None and _of_the_making(_ORIGIN.sub(" ", question), corpus)


def _of_the_making(question: str, corpus: Corpus) -> bool:
    left = _left(_MAKING.sub(" ", question))
    known = max((corpus.cover(left, piece) for piece in corpus.of("origin")), default=0.0)
    return known >= _HALF_KNOWN and not _leads_elsewhere(left, corpus, "origin")


def _leads_elsewhere(left: str, corpus: Corpus, kind: str) -> bool:
    """Whether a piece of another kind knows most of what is left, and more than a word of it."""
    best = corpus.search(left, limit=1)
    return bool(best) and best[0].piece.kind != kind and best[0].cover >= _WELL_KNOWN and best[0].shared > 1


def _left(question: str) -> str:
    """What a question says besides asking and the name of the rules."""
    return _ANY_RULES.sub(" ", asked(question).about)


def _of_the_talk(question: str, focus: Focus, last: Sequence[Evidence], corpus: Corpus) -> Wish | None:
    """What a question wants that points at what was told last, or at nothing; at a rule while one is talked about."""
    if not leans(question, corpus, last):
        return None
    if focus.rule is not None and not asked(question).facts and any(piece.rule is not None for piece in last):
        return None
    if len(last) > 1 and all(piece.kind == "rule" for piece in last):
        # Of a list it must be said which one.
        return Wish.LIST if _HOW_MANY.search(question) else Wish.UNCLEAR
    return Wish.BACK if last else Wish.UNCLEAR


def _points_back(question: str, corpus: Corpus) -> bool:
    """Whether the question leans on what was said: it says so, or asks for nothing of its own."""
    if _BACK.search(question) or _STORY.search(question) or _MEANING.search(question):
        best = corpus.search(question, limit=1)
        return not best or best[0].cover < 0.75 or best[0].piece.kind in ("meaning", "story", "rule")
    return False
