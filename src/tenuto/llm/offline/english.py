"""How people tell and ask about themselves in English."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tenuto.llm.offline.facts import About, Fact, Wanted

_VALUE: Final = 120
_OTHERS: Final = "i|i'm|i've|i'd|my|we|you|your|it|it's|its|he|she|they|the|that|this|there"
_ASKERS: Final = "what|where|who|when|how|why|can|could|would|please|do|does|did|is|are|was|will"
# Where a value ends: with its clause, or where the sentence turns to something else. A run of blanks is tried once, at
# its beginning.
_END: Final = re.compile(
    r"[;!?\n(]|\.(?:\s|$)|(?<!\s)\s++[-\u2013\u2014]+\s"
    rf"|(?:,|(?<![\s,]))\s++(?:and|but|so|because|since|though|although|while|then)\s+(?:{_OTHERS}|{_ASKERS}|also)\b"
    rf"|,\s*(?:{_OTHERS}|{_ASKERS}|but|so|and you|which|too|though|not|nice|pleased|hello|hi|thanks?|by the way|btw)\b"
    r"|(?<!\s)\s++(?:by the way|btw|because|but)\b",
    re.IGNORECASE,
)
# Tried once for each run of blanks and commas, at its beginning.
_TAIL: Final = re.compile(
    r"(?<![\s,.:])[\s,.:]*+"
    r"(?:\b(?:now|too|instead|please|currently|these days|today|as well|though|okay|recently|yesterday"
    r"|last (?:year|month|week)|(?:\d{1,3}|an?|two|three) (?:year|month|week|day)s? ago)\b)?[\s,.:]*+$",
    re.IGNORECASE,
)
_NO_VALUE: Final = re.compile(
    r"(?:not|what|who|where|when|how|why|if|whether|unknown|that|a secret|the same|no longer|just|being|going)\b",
    re.IGNORECASE,
)
_ASKING: Final = re.compile(
    r"\b(?:if|whether|what|who|where|when|which|how|why|do you|does|did|is|are|was|know|guess|think)\b", re.IGNORECASE
)
_SELF: Final = re.compile(r"\b(?:i|my|me|this is)\b", re.IGNORECASE)

_NAME: Final = re.compile(
    r"\b(?:my (?:full |first |real |own |new )?name(?: is|'s| was)|i(?: am|'m) called|call me|i go by)"
    r"(?: actually| really| now)?:?\s+",
    re.IGNORECASE,
)
_I_AM: Final = re.compile(r"(?:^|[,.!:]\s*|\b(?:[Hh]i|[Hh]ello|[Hh]ey|and) )(?:[Ii]'m|[Ii] am|[Tt]his is) (?=[A-Z])")
# Written like names after "I'm", and none.
_NATIONS_AND_MOODS: Final = """
american arab argentinian asian australian austrian belgian brazilian british bulgarian canadian catholic chilean
chinese christian croatian cuban czech danish dutch egyptian english european finnish french german greek hindu
hungarian indian indonesian iranian irish israeli italian japanese jewish korean malaysian mexican moroccan muslim
nigerian norwegian pakistani polish portuguese romanian russian scottish serbian spanish swedish swiss syrian
taiwanese thai turkish ukrainian vegan vegetarian vietnamese welsh monday tuesday wednesday thursday friday saturday
sunday ok okay sorry sure fine not so very here back home now i
"""
_NO_NAMES: Final = frozenset(_NATIONS_AND_MOODS.split())
_PARTICLES: Final = frozenset({"van", "von", "de", "da", "di", "la", "le", "der", "den", "bin", "al"})

_PLAIN: Final[tuple[tuple[About, re.Pattern[str]], ...]] = tuple(
    (about, re.compile(pattern, re.IGNORECASE))
    for about, pattern in (
        (
            About.HOME,
            r"\bi(?:'ve|'m| have| am)?(?: now| currently| just| recently)? (?:live|living|moved|reside)(?: now)?"
            r" (?:in|to|near) ",
        ),
        (About.ORIGIN, r"\bi(?: am|'m| come| came)(?: originally)? from |\bi was born in "),
        (
            About.AGE,
            r"\bi(?: am|'m)(?: now| already| just)? (?=\d{1,3}(?: years?(?: old)?| yo)?\s*(?:[,.;!]|and\b|but\b|$))",
        ),
        (About.JOB, r"\bi(?:'m| am)? work(?:ing)? as (?=\w)"),
        (About.WORKPLACE, r"\bi(?:'m| am)? work(?:ing)? (?=(?:at|for|in) )"),
        (
            About.DISLIKES,
            r"\bi (?:really |also )?(?:hate|dislike|can't stand|(?:don't|do not) (?:really )?(?:like|eat|drink)) ",
        ),
        (
            About.LIKES,
            r"\bi (?:really |also |do |mostly )?(?:like|love|enjoy|prefer|adore) "
            r"(?!to (?:know|see|ask|hear)\b|you\b|it\b|that\b|this\b)",
        ),
        (About.ALLERGY, r"\bi(?: am|'m)(?: also| very)? allergic to "),
        (
            About.BEING,
            r"\bi(?: am|'m)(?: also)? (?=an? (?!bit\b|little\b|lot\b|few\b|fan\b|big fan\b)"
            r"|(?:vegan|vegetarian|left-handed|married|single|retired)\b)",
        ),
    )
)
_OWN: Final = re.compile(r"\bmy ((?:[\w'-]{1,30} ){0,4}?[\w'-]{1,30}?)(?: (is|are|was|were)|'s) (?=\S)", re.IGNORECASE)
_NO_LABEL: Final = re.compile(
    r"(?:question|point|guess|bad|apolog|mistake|problem|issue|understanding|next|first|other|last|idea is|suggestion)",
    re.IGNORECASE,
)
_KNOWN_LABELS: Final = {
    "age": About.AGE,
    "hometown": About.ORIGIN,
    "job": About.JOB,
    "profession": About.JOB,
    "occupation": About.JOB,
    "employer": About.WORKPLACE,
    "allergy": About.ALLERGY,
    "allergies": About.ALLERGY,
}
_NOTE: Final = re.compile(
    r"(?:(?:ok(?:ay)?|so|and|hey|well)[, ]+)?(?:please )?(?:(?:can|could|would) you )?(?:please )?"
    r"(?:remember|keep in mind|note|make a note|don't forget|do not forget)(?: this| the following)?"
    r"(?: that\b|\s*[:,-])?\s+(?=\S)",
    re.IGNORECASE,
)
_NO_NOTE: Final = re.compile(r"(?:me|my [\w' ]{1,60}|what\b.*|when\b.*|who\b.*|how\b.*)[?.!]*$", re.IGNORECASE)


def english_facts(sentence: str) -> list[Fact]:
    """What a sentence tells about the speaker, in its order."""
    text = sentence.replace("\u2019", "'")
    if (note := _NOTE.match(text)) is None:
        return _facts(text)
    rest = text[note.end() :].strip()
    if rest.endswith("?"):
        return []
    return _facts(rest) or ([] if _NO_NOTE.match(rest) else [Fact(about=About.NOTE, value=rest.rstrip(".!")[:_VALUE])])


def _facts(text: str) -> list[Fact]:
    if not _SELF.search(text):
        return []
    asks = text.rstrip().endswith("?")
    found = [
        (at, fact)
        for at, fact in (*_names(text), *_plain(text), *_own(text))
        if fact.value and not _NO_VALUE.match(fact.value) and not (asks and _ASKING.search(text[:at]))
    ]
    return [fact for _, fact in sorted(found, key=lambda one: one[0])]


def _names(text: str) -> Iterator[tuple[int, Fact]]:
    for match in _NAME.finditer(text):
        yield match.start(), Fact(about=About.NAME, value=_name(text[match.end() :]))
    for match in _I_AM.finditer(text):
        name = _name(text[match.end() :])
        if name.split(" ")[0].lower() not in _NO_NAMES:
            yield match.start(), Fact(about=About.NAME, value=name)


def _plain(text: str) -> Iterator[tuple[int, Fact]]:
    for about, pattern in _PLAIN:
        for match in pattern.finditer(text):
            yield match.start(), Fact(about=about, value=_value(text[match.end() :]))


def _own(text: str) -> Iterator[tuple[int, Fact]]:
    for match in _OWN.finditer(text):
        about, label = _labelled(match[1])
        if _NO_LABEL.match(label) or _NAME.match(text, match.start()):
            continue
        value = _value(text[match.end() :])
        if value.lower().startswith(("called ", "named ")):
            label, value = f"{label}'s name", value.split(" ", 1)[1]
        yield match.start(), Fact(about=about, value=value, label=label, verb=(match[2] or "is").lower())


def _value(rest: str) -> str:
    rest = rest[: 2 * _VALUE]
    end = _END.search(rest)
    return _TAIL.sub("", rest[: end.start()] if end else rest)[:_VALUE].strip()


def _name(rest: str) -> str:
    """A name at the start of a text: its first word, and the following ones that are written like names as well."""
    words = _value(rest).split(",")[0].split()
    if not words or not words[0][0].isalpha():
        return ""
    if not words[0][0].isupper():
        return " ".join(words if len(words) <= 2 else words[:1])[:60]
    named = [word[0].isupper() or word.lower() in _PARTICLES for word in words[:4]]
    return " ".join(words[: named.index(False) if False in named else 4])[:60].rstrip(".")


def _labelled(label: str) -> tuple[About, str]:
    label = re.sub(r"^(?:own|new|current|old|real|actual) ", "", " ".join(label.lower().split()))
    label = re.sub(r"\bcolor\b", "colour", re.sub(r"\bfavorite\b", "favourite", label))
    return _KNOWN_LABELS.get(label, About.OWN), label


_ASKS: Final[tuple[tuple[re.Pattern[str], tuple[About, ...]], ...]] = tuple(
    (re.compile(pattern, re.IGNORECASE), about)
    for pattern, about in (
        (
            r"\b(?:what(?:'s| is| was)|remember|know|recall|tell me|remind me of|say|guess) (?:again )?"
            r"my (?:full |first |own )?name\b(?!')|\bwhat(?: do you think)? my (?:full |first )?name (?:is|was)\b"
            r"|\bwhat am i called\b|^my name\?|\bwhat do (?:you|they|people) call me\b",
            (About.NAME,),
        ),
        (r"\bwho am i\b|\bwho i am\b", (About.NAME, About.BEING, About.JOB)),
        (
            r"\bwhere (?:do|did) i (?:\w+ )?(?:live|reside)\b|\bwhere i live\b"
            r"|\b(?:what|which) (?:city|town|country|place) do i live\b",
            (About.HOME, About.ORIGIN),
        ),
        (
            r"\bwhere (?:am|was|do) i (?:come )?(?:from|born)\b|\bwhere i(?:'m| am| come) from\b",
            (About.ORIGIN, About.HOME),
        ),
        (r"\bhow old (?:am i|i am)\b", (About.AGE,)),
        (
            r"\bwhat do i do(?: for (?:a living|work))?\s*[?.!]*$"
            r"|\bwhat(?:'s| is) my (?:job|profession|occupation|work)\b",
            (About.JOB, About.BEING, About.WORKPLACE),
        ),
        (
            r"\bwhere do i work\b|\bwho do i work for\b|\bwhere i work\b|\bwho(?:'s| is) my employer\b",
            (About.WORKPLACE, About.JOB),
        ),
        (
            r"\bwhat (?:\w+ )?(?:do|did) i (?:\w+ )?(?:hate|dislike)\b"
            r"|\bwhat (?:\w+ )?(?:don't i|do i not|i don't) (?:like|eat|drink)\b",
            (About.DISLIKES,),
        ),
        (r"\bwhat (?:do|did) i (?:\w+ )?(?:like|love|enjoy|prefer)\b|\bwhat i like\b", (About.LIKES,)),
        (r"\bwhat am i allergic\b|\b(?:any|my|what) allerg", (About.ALLERGY,)),
    )
)
_LABEL: Final = r"my ((?:[\w'-]{1,30} ){0,5}?[\w'-]{1,30}?)"
_ASKS_OWN: Final = tuple(
    re.compile(pattern + r"(?: again| please| now)?\s*[?.!]*$", re.IGNORECASE)
    for pattern in (
        r"\b(?:what|when|who|where|which|whose|how (?:much|many|old|long|far|tall|big))(?:'s|'re| is| are| was| were) "
        rf"{_LABEL}(?: (called|named|on|about))?",
        r"\b(?:remember|know|recall|tell me|remind me of|remind me|repeat|say|forgotten|forget) "
        rf"(?:what |when |who |where )?{_LABEL}(?: (is|are|was|were|called))?",
    )
)
_ASKS_FAVOURITE: Final = re.compile(
    r"\b(?:what|which) ([\w-]{1,30}) do i (?:like|love|prefer)(?: most| best| the most| the best)?\s*[?.!]*$",
    re.IGNORECASE,
)
_ASKS_ALL: Final = re.compile(
    r"\b(?:what|everything|anything)\b.{0,20}\b(?:know|remember|learned|learnt)\b.{0,10}\babout me\b"
    r"|\bwhat (?:have|did) i (?:told|tell) you about (?:me|myself)\b|\btell me about (?:me|myself)\b"
    r"|\bwhat do you remember\s*[?]*$",
    re.IGNORECASE,
)


def english_wanted(question: str) -> Wanted | None:
    """Which fact about themselves somebody asks for."""
    text = question.replace("\u2019", "'")
    if favourite := _ASKS_FAVOURITE.search(text):
        return Wanted(about=(About.OWN, About.LIKES), label=_labelled(f"favourite {favourite[1]}")[1])
    for pattern, about in _ASKS:
        if pattern.search(text):
            return Wanted(about=about)
    for own in _ASKS_OWN:
        if match := own.search(text):
            about_it, label = _labelled(match[1])
            label = f"{label}'s name" if match[2] in ("called", "named") else label
            return None if _NO_LABEL.match(label) else Wanted(about=(about_it,), label=label)
    return None


def english_asks_all(question: str) -> bool:
    """Whether everything known about the asker is asked for."""
    return _ASKS_ALL.search(question) is not None
