"""What the offline model answers out of the talk: one rule after the other, the first that applies.

It quotes, and claims nothing that was not said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from tenuto.llm.offline import asks
from tenuto.llm.offline.claims import Claim
from tenuto.llm.offline.correcting import takes_back
from tenuto.llm.offline.facts import About, Fact, Wanted
from tenuto.llm.offline.finding import (
    Found,
    answers,
    distinct,
    features,
    is_question,
    key_sentences,
    matches,
    with_corrections,
)
from tenuto.llm.offline.kinds import fits, holds, kind_asked, without_asking
from tenuto.llm.offline.knowing import (
    all_known,
    changed_since,
    current,
    facts_in,
    hedged,
    in_other_words,
    known,
    replaced,
    told,
    told_by,
    wanted,
    wants_all,
)
from tenuto.llm.offline.labels import of_another, thing_asked
from tenuto.llm.offline.lists import Place, changes_list, list_changes, newest_list, place_in
from tenuto.llm.offline.phrases import CHINESE, ENGLISH, Phrases, fact_words, quote_of, turned
from tenuto.llm.offline.talk import Line, Talk

# How much is quoted of one utterance, how many sentences tell what was said, and how far back a list may lie.
_QUOTE: Final = 600
_SENTENCES: Final = 5
_LISTS_WITHIN: Final = 12
_SHARED: Final = 0.5
# How much of what was spoken of last a sentence must share for a question to go on from it.
_GOES_ON: Final = 0.25
# How many facts are told at once.
_FACTS: Final = 16

Rule: TypeAlias = Callable[[Talk, Phrases], str | None]


def reply_to(talk: Talk, stand_in: bool = False) -> str:
    """An answer in the language of the talk; there always is one."""
    phrases = CHINESE if talk.chinese else ENGLISH
    for rule in _RULES:
        if answer := rule(talk, phrases):
            return answer
    # What was told beside the question is kept, and that is said.
    facts = facts_in(talk.question)
    return _paragraph(talk, [_noted_facts(facts, talk, phrases) if facts else "", _cannot(talk, phrases, stand_in)])


def _empty(talk: Talk, phrases: Phrases) -> str | None:
    return None if any(sign.isalnum() for sign in talk.question) else phrases.empty


def _greet(talk: Talk, phrases: Phrases) -> str | None:
    """Greet back, by name where it is known; the first time with a word on who is speaking."""
    found = asks.GREETING.match(talk.question)
    facts = facts_in(talk.question)
    if found is None or not (facts or _is_polite(found["rest"])) or wanted(talk.question):
        return None
    facts_now = current(told([*talk.lines, _own(talk.question)]))
    names = [fact.value for fact in facts_now if fact.about is About.NAME and not fact.denied]
    hello = phrases.hello_name.format(name=names[-1]) if names else phrases.hello
    if facts:
        return _paragraph(talk, [hello, _noted_facts(facts, talk, phrases)])
    if talk.models():
        return hello
    return _paragraph(talk, [hello, phrases.about, phrases.can_tools if talk.tools else ""])


def _is_polite(rest: str) -> bool:
    return len(rest) < 40 and features(rest) <= features("everyone morning assistant friend bot tenuto today help lot")


def _thank(talk: Talk, phrases: Phrases) -> str | None:
    found = asks.THANKS.match(talk.question)
    if found and asks.BYE.match(found["rest"]):
        return _paragraph(talk, [phrases.welcome, phrases.bye])
    if found and _is_polite(found["rest"]) and not is_question(found["rest"]):
        return phrases.welcome
    return phrases.bye if asks.BYE.match(talk.question) else None


def _small_talk(talk: Talk, phrases: Phrases) -> str | None:
    """Words that want a word back and nothing else."""
    said = next((answer for answer, pattern in asks.SMALL_TALK if pattern.match(talk.question)), None)
    return getattr(phrases, said) if said is not None else None


def _taken_back(talk: Talk, phrases: Phrases) -> str | None:
    """What was told last is left out from now on."""
    gone = takes_back(talk.question) and talk.own() and not is_question(talk.own()[-1].text)
    return phrases.taken_back if gone else None


def _introduce(talk: Talk, phrases: Phrases) -> str | None:
    if not asks.WHO_ARE_YOU.search(talk.question):
        return None
    return _paragraph(talk, [phrases.about, phrases.can_tools if talk.tools else "", phrases.connect])


def _of_itself(talk: Talk, phrases: Phrases) -> str | None:
    """What it can do and cannot."""
    said = next((answer for answer, pattern in asks.OF_ITSELF if pattern.search(talk.question)), None)
    return getattr(phrases, said) if said is not None else None


def _personal(talk: Talk, phrases: Phrases) -> str | None:
    """Facts about the asker."""
    everything, asked = wants_all(talk.question), wanted(talk.question)
    if not everything and asked is None:
        return None
    facts = told([*talk.lines, _own(talk.question)])
    if everything or asked is None:
        return _everything(facts, talk, phrases)
    kind = kind_asked(talk.question) if About.OWN in asked.about else None
    if found := [fact for fact in known(facts, asked) if fits(kind, fact.value)]:
        return _known(found, facts, talk, phrases)
    return _said_otherwise(asked, facts, talk, phrases) or _missing(phrases.not_told, talk, phrases)


def _everything(facts: list[Fact], talk: Talk, phrases: Phrases) -> str:
    """All that the asker told of themselves, and that it is not all if there is no end to it."""
    shown, left = all_known(facts, _FACTS)
    if not shown:
        return _missing(phrases.no_facts, talk, phrases)
    changed = changed_since(shown, talk.lines)
    rows = [f"- {_told(fact, changed.get(fact), talk, phrases)}" for fact in shown]
    return "\n".join([phrases.all_facts, *rows, *([phrases.more_facts.format(count=left)] if left else [])])


def _told(fact: Fact, changed: str | None, talk: Talk, phrases: Phrases) -> str:
    """A fact, and what changed it since."""
    later = phrases.later.format(text=_cut(changed)) if changed else ""
    return _paragraph(talk, [_sentence(fact_words(fact, talk.chinese), phrases), later])


def _said_otherwise(asked: Wanted, facts: list[Fact], talk: Talk, phrases: Phrases) -> str | None:
    """Words that may hold the fact that was asked for, where nothing tells it plainly."""
    if About.OWN in asked.about:
        if said := _said_of(asked.label, talk):
            return _quoted(with_corrections(talk, said, features(asked.label)), phrases)
        if others := in_other_words(facts, asked, talk.question, talk.chinese):
            return phrases.not_in_this.format(said=phrases.comma.join(map(quote_of, others)))
    words = hedged(talk.lines, asked) or _hinted(asked, talk)
    return phrases.you_said.format(text=_cut(words)) if words else None


def _hinted(asked: Wanted, talk: Talk) -> str | None:
    """The newest words by which the asker may have said it: who they are, what does them harm."""
    hints = [asks.HINTS[about] for about in asked.about if about in asks.HINTS]
    own = [sentence for line in talk.own() for sentence in line.sentences() if not is_question(sentence)]
    return next((sentence for sentence in reversed(own) if any(hint.search(sentence) for hint in hints)), None)


def _said_of(label: str, talk: Talk) -> list[Found]:
    """What was said of something of the asker's; asked for its name, only what names somebody."""
    thing = asks.OF_A_NAME.sub("", label)
    said = answers(talk, thing, kind_asked(talk.question), but=lambda sentence: of_another(sentence, label))
    return said if thing == label else [one for one in said if asks.NAMES.search(one.sentence)]


def _missing(words: str, talk: Talk, phrases: Phrases) -> str:
    """That something was not said; of a talk that is not seen to its beginning, no more than is seen."""
    return words if talk.whole else _paragraph(talk, [words, phrases.part])


def _known(found: list[Fact], facts: list[Fact], talk: Talk, phrases: Phrases) -> str:
    first, *more = found
    clauses = phrases.comma.join(fact_words(fact, talk.chinese) for fact in found)
    if first.denied:
        return _sentence(phrases.only_denied.format(facts=clauses), phrases)
    if len({fact.label for fact in found}) > 1:
        return _sentence(clauses, phrases)
    words = phrases.also.join([fact_words(first, talk.chinese), *(turned(fact.value) for fact in more)])
    before = replaced(facts, first)
    answer = _sentence(words + (phrases.before.format(value=turned(before.value)) if before else ""), phrases)
    changed = dict.fromkeys(changed_since(found, talk.lines).values())
    return _paragraph(talk, [answer, *(phrases.later.format(text=_cut(text)) for text in changed)])


def _repeat(talk: Talk, phrases: Phrases) -> str | None:
    """What either side said last, or first."""
    if asks.AGAIN.search(talk.question):
        said = talk.models()
        return said[-1].text if said else phrases.nothing_yet
    if (found := asks.WHAT_I_SAID.search(talk.question)) is None:
        return None
    own = talk.own()
    if not own:
        return phrases.nothing_yet
    if found["first"] or found["at_first"] or (found["which"] or "").lower() == "first" or found["who"] == "第一":
        return _first(own, talk, phrases)
    return phrases.you_said.format(text=_cut(own[-1].text))


def _first(own: Sequence[Line], talk: Talk, phrases: Phrases) -> str:
    first = _cut(next((line for line in own if not line.retold), own[0]).text)
    if talk.whole:
        return phrases.you_asked_first.format(text=first)
    return _paragraph(talk, [phrases.part, phrases.earliest.format(text=first)])


def _list(talk: Talk, phrases: Phrases) -> str | None:
    """All of the list that was named last."""
    lately = talk.lines[-_LISTS_WITHIN:]
    if not asks.LIST.search(talk.question) or not (items := newest_list(lately)):
        return None
    rows = [f"{place}. {_cut(item)}" for place, item in enumerate(items, 1)]
    return "\n".join([phrases.listed, *rows, *(phrases.later.format(text=_cut(text)) for text in list_changes(lately))])


def _item(talk: Talk, phrases: Phrases) -> str | None:
    """The second one of the list that was named last."""
    place = place_in(talk.question)
    if place is None:
        return None
    items = newest_list(talk.lines[-_LISTS_WITHIN:])
    extra = _beside(place, talk.question)
    if not items or not extra <= features(" ".join(items)):
        return _missing(phrases.no_list, talk, phrases) if talk.lines and not extra else None
    if abs(place.number) > len(items):
        return phrases.item_missing.format(count=len(items))
    item = items[place.number - 1 if place.number > 0 else place.number]
    return _sentence(phrases.item.format(place=_capital(place.words), item=_cut(item)), phrases)


def _beside(place: Place, question: str) -> set[str]:
    """What else a question talks of: "the first rule of thermodynamics" is no item of a list of phones."""
    rest = asks.AROUND_ITEMS.sub(" ", question.replace(place.found, " "))
    return features(rest)


def _topic(talk: Talk, phrases: Phrases) -> str | None:
    """What was said about something."""
    topic = next((found[1].strip() for pattern in asks.TOPICS if (found := pattern.search(talk.question))), None)
    if not topic or not (about := features(topic)):
        return None
    said = [one for one in distinct(matches(talk, about)) if one.score >= _SHARED][:3]
    if not said:
        return _missing(phrases.nothing_about.format(topic=topic), talk, phrases)
    return _quoted(with_corrections(talk, sorted(said, key=lambda one: one.place), about), phrases)


def _sum_up(talk: Talk, phrases: Phrases) -> str | None:
    if not asks.SUM_UP.search(talk.question) or len(talk.question) > _QUOTE:
        return None
    found = key_sentences(talk, _SENTENCES)
    return "\n".join([phrases.summary, *(f"- {_who(one, phrases)}" for one in found)]) if found else phrases.nothing_yet


def _noted(talk: Talk, phrases: Phrases) -> str | None:
    """The user tells something; it is in the log already."""
    if is_question(talk.question):
        return None
    if facts := told_by(talk.question, talk.lines):
        return _noted_facts(facts, talk, phrases)
    if changes_list(talk.question):
        return phrases.noted if newest_list(talk.lines[-_LISTS_WITHIN:]) else None
    hedges = facts_in(talk.question, Claim.HEDGED)
    return phrases.noted if hedges or asks.tells(talk.question) else None


def _noted_facts(facts: list[Fact], talk: Talk, phrases: Phrases) -> str:
    clauses = phrases.comma.join(fact_words(fact, talk.chinese) for fact in current(facts))
    return phrases.noted_facts.format(facts=clauses.removesuffix("."))


def _pointing(talk: Talk, phrases: Phrases) -> str | None:
    """A question for a time or a place and for nothing else goes on from what was spoken of last: and where is it?"""
    kind = kind_asked(talk.question)
    if kind is None or features(without_asking(talk.question)):
        return None
    about = next(filter(None, map(_spoken_of, reversed(talk.own()))), None)
    said = [one for one in matches(talk, about) if holds(kind, one.sentence) and one.score >= _GOES_ON] if about else []
    return _quoted(with_corrections(talk, said[:1], about or set()), phrases) if said else None


def _spoken_of(line: Line) -> set[str]:
    asked = wanted(line.text)
    return features(asked.label if asked is not None and asked.label else without_asking(line.text))


def _said_before(talk: Talk, phrases: Phrases) -> str | None:
    """Any question at all, if a sentence of the talk seems to answer it."""
    if len(talk.question) > _QUOTE or asks.ORDER.match(talk.question):
        return None
    about = features(without_asking(talk.question)) or features(talk.question)
    mine = thing_asked(talk.question)
    said = answers(talk, talk.question, but=lambda sentence: of_another(sentence, mine))
    found = with_corrections(talk, said, about)
    return _quoted(found, phrases) if found else None


def _cannot(talk: Talk, phrases: Phrases, stand_in: bool) -> str:
    if stand_in:
        return _paragraph(talk, [phrases.away, phrases.cannot_again])
    lately = [line.text for line in talk.models()[-2:]]
    if any(phrases.connect in text or phrases.cannot_again in text for text in lately):
        return phrases.cannot_again
    return _paragraph(talk, [phrases.cannot, phrases.can_tools if talk.tools else "", phrases.connect])


_RULES: Final[Sequence[Rule]] = (
    _empty,
    _small_talk,
    _greet,
    _thank,
    _introduce,
    _taken_back,
    _of_itself,
    _personal,
    _repeat,
    _topic,
    _list,
    _item,
    _sum_up,
    _noted,
    _pointing,
    _said_before,
)


def _own(text: str) -> Line:
    return Line(text=text, own=True)


def _quoted(found: Sequence[Found], phrases: Phrases) -> str:
    if len(found) == 1:
        said = phrases.i_said if found[0].line.model else phrases.you_said
        return said.format(text=_cut(found[0].sentence))
    return "\n".join([phrases.found, *(f"- {_who(one, phrases)}" for one in found)])


def _who(one: Found, phrases: Phrases) -> str:
    return (phrases.me if one.line.model else phrases.you).format(text=_cut(one.sentence))


def _paragraph(talk: Talk, sentences: Sequence[str]) -> str:
    return ("" if talk.chinese else " ").join(filter(None, sentences))


def _sentence(clause: str, phrases: Phrases) -> str:
    clause = _capital(clause.rstrip())
    return clause if clause.endswith((".", "!", "?", "。", "！", "？")) else clause + phrases.stop


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _QUOTE else text[:_QUOTE].rstrip() + "…"
