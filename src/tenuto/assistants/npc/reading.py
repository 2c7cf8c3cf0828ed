"""What a visitor wants to know: which rule, its meaning or a story, what was listed before, or anything else.

Talk before the question tells what "the first one" and "it" are; it is never taken for a fact (C1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from tenuto.assistants.npc.corpus import Corpus, Evidence
from tenuto.assistants.npc.counting import ANY_RULES, RULE, RULES, beside_places, rule_on, rules_named, subject_of_rules
from tenuto.assistants.npc.facts import asked
from tenuto.assistants.npc.focus import Focus, focus_of
from tenuto.assistants.npc.personal import of_itself
from tenuto.assistants.npc.pointing import leans, own_words, points, says_nothing
from tenuto.assistants.npc.words import LOOKED_AT, subjects, terms
from tenuto.model.expression import expression
from tenuto.model.talk import ToolContext
from tenuto.model.values import Value


class Wish(StrEnum):
    """What kind of answer is wanted."""

    LIST = "list"
    MEANING = "meaning"
    STORY = "story"
    ORIGIN = "origin"
    ABOUT = "about"
    ITSELF = "itself"
    ANOTHER = "another"
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
    r"意思|含义|意义|何意|怎么理解|如何理解|解释|什么道理|\b(mean(?:s|ing)?|explain|understand|sense)\b", re.IGNORECASE
)
_ALL: Final = expression(
    r"有哪些|哪几|哪十|几条|几则|多少|全部|所有|列|是什么[?？]?$|讲讲|介绍|说说"
    r"|\b(what are|which|list|all|tell me|how many|name)\b",
    re.IGNORECASE,
)
_ORIGIN: Final = expression(
    r"谁|何时|什么时候|哪一?年|来历|由来|年代|作者|\d{3,4}年|\b(who|when|wrote|origin|year|author|in \d{4})\b",
    re.IGNORECASE,
)
_MAKING: Final = expression(
    r"写定?|制定|定下|立下|编写?|创立|提出|作者"
    r"|\b(wrote|written|made|composed|created|drafted|invented|established|author)\b",
    re.IGNORECASE,
)
_HOW_MANY_RULES: Final = expression(
    rf"(?:多少|几)[条则个]?|\bhow many(?= (?:\w+ ){{0,2}}{RULE}\b)|\bname\b", re.IGNORECASE
)
_BACK: Final = expression(r"具体|还有|再|呢[?？]?$|\b(concrete|details?)\b", re.IGNORECASE)
# What a question names as its subject: "what does X mean?", "a story about X", 那X呢.
_SUBJECT: Final = expression(
    r"\bwhat (?:does|do|is meant by) (?P<of1>.{1,80}?) means?\b|\b(?:meaning|sense) of (?P<of2>.{1,80})"
    r"|\b(?:stor(?:y|ies)|tales?|examples?|anecdotes?) (?:about|of|on|with) (?P<of3>.{1,80})"
    r"|\bwhat about (?P<of4>.{1,80})"
    r"|^(?P<of5>.{1,40}?)(?:又|到底|究竟)?是?(?:什么意思|何意|的含义|的意思)|关于(?P<of6>.{1,40}?)的?(?:故事|事迹|例子|典故|传说)"
    r"|^那?(?P<of7>.{1,40}?)呢[?？]?$",
    re.IGNORECASE,
)
# What may be asked of any rule, and is answered with what it means.
_OF_ANY_RULE: Final = expression(
    r"\b(?:in practice|difference|differ|compare|number|important|means?)\b|区别|不同|比较|内容|怎么说|说的|讲的",
    re.IGNORECASE,
)
_ANOTHER: Final = expression(
    r"再(?:来|讲|说|给我讲)(?:一|两)?[个段]|换一?[个段]|(?:别|其他|其它|另外)(?:的|一个)?(?:故事|呢|吗|$)|另一?个|还有(?:别的|其他|其它|吗|呢)"
    r"|还有.{0,4}故事|\b(?:another|one more|any (?:others?|more)|(?:some|the) others?"
    r"|(?:other|more) (?:ones|stories|tales)|a different (?:one|story)|what else)\b",
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
_BYE: Final = r"再见|再会|拜拜|告辞|下次见|回头见|bye|goodbye|bye[ -]bye|farewell|see you(?: later| soon)?"
_FILLING: Final = r"[啊呀了吧哦,，!！.。~ ]*+"
_GREETING: Final = expression(rf"\W*+(?:(?:{_HELLO})(?: there| everyone)?{_FILLING}){{1,4}}\W*", re.IGNORECASE)
_SMALL_TALK: Final = expression(
    rf"\W*+(?:(?:{_HELLO}|{_BYE}|谢谢|多谢|感谢|好的|好|嗯|哦|明白了?|知道了"
    r"|thanks?|thank you|ok|okay|great|i see|there|everyone)"
    rf"{_FILLING}){{1,4}}(?:very much|a lot)?\W*",
    re.IGNORECASE,
)
_PARTING: Final = expression(
    rf"\W*+(?:(?:谢谢|多谢|感谢|好的|好|嗯|那|thanks?|thank you|ok|okay|{_BYE})[你您]?{_FILLING}){{0,4}}"
    rf"(?:{_BYE}){_FILLING}"
    # A name may follow, and no question.
    r"(?!.*(?:[哪什谁几吗怎多是]|\b(?:wh\w+|how|is|are|do|does|can)\b))(?:[^\W\d_]{1,10}\W*){0,2}",
    re.IGNORECASE,
)
_OURSELVES: Final = expression(
    r"我叫|我的名字|我是谁|我姓|我来自|我喜欢|我刚才|我问|你还?记得我|我们刚才|聊了什么"
    r"|\b(my name|i am|i'm|who am i|call me|i like|i love|i come from|did i|do you remember me|we talked"
    r"|i (?:just )?(?:asked|said))\b",
    re.IGNORECASE,
)
_HOW_MANY: Final = expression(r"多少|几[个条则]|\bhow many\b", re.IGNORECASE)


def understand(turn: ToolContext, corpus: Corpus) -> Wanted | None:
    """What is asked for, `None` for small talk and for what only the conversation knows."""
    question = turn.question[:LOOKED_AT].strip()
    if _WHO_ARE_YOU.search(question):
        return Wanted(wish=Wish.ABOUT, query=question)
    if _SMALL_TALK.fullmatch(question) or parts(question) or _OURSELVES.search(question):
        return None
    focus = focus_of(turn)
    named = rules_named(question, focus, corpus)
    if named:
        return _of_rules(question, named, focus, corpus)
    if of_itself(question):
        return Wanted(wish=Wish.ITSELF, query=question)
    if (shown := rule_on(question, corpus, turn.persona)) is not None:
        wish = Wish.STORY if shown.kind == "story" else Wish.MEANING
        return Wanted(wish=wish, query=question, rule=shown.rule)
    if _lists(question, corpus):
        return Wanted(wish=Wish.LIST, query=question)
    last = corpus.named(focus.evidence, turn.persona)
    if (wanted := _of_the_talk(question, focus, last, corpus)) is not None:
        return wanted
    if focus.rule is not None and _points_back(question, focus.rule, corpus):
        if _of_what_was_told(question, last):
            return Wanted(wish=Wish.BACK, query=question)
        return _of_rules(question, [focus.rule], focus, corpus)
    if _asks_origin(question, corpus):
        return Wanted(wish=Wish.ORIGIN, query=question)
    return Wanted(wish=Wish.SEARCH, query=question)


def _of_rules(question: str, rules: Sequence[int], focus: Focus, corpus: Corpus) -> Wanted:
    """What is wanted of rules: a story, what they mean, or where they come from."""
    if _STORY.search(question):
        wish = Wish.STORY
    else:
        wish = Wish.ORIGIN if _asks_origin_of(rules[0], question, focus, corpus) else Wish.MEANING
    return Wanted(wish=wish, query=question, rule=rules[0], also=() if wish is Wish.ORIGIN else tuple(rules[1:]))


def greets(question: str) -> bool:
    """Whether it is a greeting and nothing else."""
    return _GREETING.fullmatch(question[:LOOKED_AT].strip()) is not None


def asks_for_a_story(question: str) -> bool:
    """Whether a story is wanted, and not what else there is on the subject."""
    return _STORY.search(question) is not None


def parts(question: str) -> bool:
    """Whether it takes leave and does nothing else."""
    return _PARTING.fullmatch(question[:LOOKED_AT].strip()) is not None


def _lists(question: str, corpus: Corpus) -> bool:
    """Whether all the rules are asked for, be it by a question that says nothing but their name."""
    if _ORIGIN.search(question) or not says_nothing(asked(subject_of_rules(question)).about):
        return False
    if RULES.search(question) and _ALL.search(question):
        other = _HOW_MANY_RULES.sub(" ", question)
        return not asked(other).facts and not _leads_elsewhere(_left(_ALL.sub(" ", other)), corpus, "rule")
    named = ANY_RULES.sub(" ", question)
    return named != question and corpus.shared_by("rule").issuperset((*terms(named), *subjects(named)))


def _asks_origin(question: str, corpus: Corpus) -> bool:
    """Whether it is asked who made the rules, or when; who reads or copies them is another question."""
    if not _ORIGIN.search(question) or not RULES.search(question):
        return False
    return _of_the_making(_ORIGIN.sub(" ", question), corpus)


def _asks_origin_of(rule: int, question: str, focus: Focus, corpus: Corpus) -> bool:
    """Whether it is asked who made a rule, or when; while a story of it is told, that is what is asked about."""
    if not _ORIGIN.search(question):
        return False
    if RULES.search(question) or _MAKING.search(question):
        return True
    return rule == focus.rule and not any(piece.kind == "story" for piece in corpus.named(focus.evidence))


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
    return ANY_RULES.sub(" ", asked(question).about)


def _of_the_talk(question: str, focus: Focus, last: Sequence[Evidence], corpus: Corpus) -> Wanted | None:
    """What a question wants that points at what was told last, or at nothing; at a rule while one is talked about."""
    if len(last) > 1 and all(piece.kind == "rule" for piece in last):
        return _of_a_list(question, last, corpus)
    if last and (another := _another(question, focus, last)) is not None:
        return another
    if not leans(question, corpus, last):
        return None
    if focus.rule is not None and any(piece.rule is not None for piece in last):
        if _STORY.search(question) or not (asked(question).facts or _of_what_was_told(question, last)):
            return None
        if not points(question) and _asks_origin_of(focus.rule, question, focus, corpus):
            return Wanted(wish=Wish.ORIGIN, query=question)
    return Wanted(wish=Wish.BACK if last else Wish.UNCLEAR, query=question)


def _of_what_was_told(question: str, last: Sequence[Evidence]) -> bool:
    """Whether it asks something of a story that was told of a rule, and not for the rule's meaning or more of it."""
    told = any(piece.kind not in ("rule", "meaning") for piece in last)
    asks_more = _STORY.search(question) or _MEANING.search(question) or says_nothing(own_words(question))
    return told and not asks_more


def _of_a_list(question: str, last: Sequence[Evidence], corpus: Corpus) -> Wanted | None:
    """Of a list it must be said which one; how many it has and where it comes from are asked of the whole."""
    if not leans(question, corpus, last):
        return None
    if _HOW_MANY.search(question):
        return Wanted(wish=Wish.LIST, query=question)
    whole = _ORIGIN.search(question) and not points(question)
    return Wanted(wish=Wish.ORIGIN if whole else Wish.UNCLEAR, query=question)


def _another(question: str, focus: Focus, last: Sequence[Evidence]) -> Wanted | None:
    """One more of what was told last, where nothing else is asked for: the next story, the next rule."""
    if not _ANOTHER.search(question) or not says_nothing(own_words(_ANOTHER.sub(" ", question))):
        return None
    kind = last[0].kind
    if _STORY.search(question) and kind != "story":
        return Wanted(wish=Wish.SEARCH, query=question) if focus.rule is None else None
    if kind in ("rule", "meaning") and focus.rule is not None:
        return Wanted(wish=Wish.MEANING, query=question, rule=focus.rule + 1)
    return Wanted(wish=Wish.ANOTHER, query=question)


def _points_back(question: str, rule: int, corpus: Corpus) -> bool:
    """Whether the question leans on the rule that was talked about: it says so, or names no subject of its own."""
    if not (points(question) or _BACK.search(question) or _STORY.search(question) or _MEANING.search(question)):
        return False
    words = _words_of_its_own(question)
    if says_nothing(words):
        return True
    best = corpus.search(words, limit=1)
    if best and best[0].cover >= _WELL_KNOWN and best[0].piece.rule != rule:
        return False
    return not _names_another_subject(question, rule, corpus)


def _names_another_subject(question: str, rule: int, corpus: Corpus) -> bool:
    """Whether it says of what, and no piece of the rule knows that."""
    found = _SUBJECT.search(question)
    subject = _words_of_its_own(found[found.lastgroup]) if found and found.lastgroup else ""
    own = [piece for piece in corpus.pieces if piece.rule == rule]
    return not says_nothing(subject) and all(corpus.cover(subject, piece) < _HALF_KNOWN for piece in own)


def beside_meaning(words: str) -> str:
    """The words without asking for a meaning; as they are, where they say nothing else."""
    left = _MEANING.sub(" ", words)
    return words if says_nothing(left) else left


def beside_rules(question: str) -> str:
    """What a question that names a rule says besides: "damaged" in "why was the seventh rule damaged?"."""
    return _OF_ANY_RULE.sub(" ", _words_of_its_own(beside_places(question)))


def _words_of_its_own(question: str) -> str:
    return ANY_RULES.sub(" ", _MEANING.sub(" ", _STORY.sub(" ", own_words(question))))
