"""How people tell and ask about themselves in English."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Final

from tenuto.llm.offline.claims import Claim, EnglishClaims
from tenuto.llm.offline.facts import About, Fact, Wanted
from tenuto.model.expression import expression
from tenuto.model.stops import ends_sentence

_VALUE: Final = 120
_OTHERS: Final = "i|i'm|i've|i'd|my|we|our|you|your|it|it's|its|he|she|they|the|that|this|there"
_ASKERS: Final = "what|where|who|when|how|why|can|could|would|please|do|does|did|is|are|was|will"
# Where a value ends: with its clause, or where the sentence turns to something else. A run of blanks is tried once, at
# its beginning.
_END: Final = expression(
    r"[;!?\n(]|\.(?:\s|$)|(?<!\s)\s++[-\u2013\u2014]+\s"
    rf"|(?:,|(?<![\s,]))\s++(?:and|but|so|because|since|though|although|while|then)\s+(?:{_OTHERS}|{_ASKERS}|also)\b"
    rf"|,\s*(?:{_OTHERS}|{_ASKERS}|but|so|and you|don't|do not|which|too|though|not|nice|pleased|hello|hi|thanks?"
    r"|by the way|btw)\b"
    r"|(?:,|(?<![\s,]))\s++and (?:his|her|their) (?:[\w'-]{1,30} ){1,3}(?:is|are|was|were)\b"
    r"|(?<!\s)\s++(?:by the way|btw|because|but)\b",
    re.IGNORECASE,
)
# Tried once for each run of blanks and commas, at its beginning.
_TAIL: Final = expression(
    r"(?<![\s,.:])[\s,.:]*+"
    r"(?:\b(?:now|too|instead|please|currently|these days|today|as well|though|okay|recently|yesterday"
    r"|any ?more|any longer|at all"
    r"|last (?:year|month|week)|(?:\d{1,3}|an?|two|three) (?:year|month|week|day)s? ago)\b)?[\s,.:]*+$",
    re.IGNORECASE,
)
# Its last stop belongs to it: "9 a.m."
_DOTTED: Final = expression(r"\b[A-Za-z]\.[A-Za-z]$")
_NO_VALUE: Final = expression(
    r"(?:not|what|who|where|when|how|why|if|whether|unknown|that|a secret|the same|no longer|just|being|going)\b",
    re.IGNORECASE,
)
_SELF: Final = expression(r"\b(?:i|my|me|this is)\b", re.IGNORECASE)

_NOT: Final = expression(r"\b(?:not|no longer|never|cannot)\b|n't\b", re.IGNORECASE)
_NAME: Final = expression(
    r"(?<!love )(?<!hate )\b(?:my (?:full |first |real |own |new )?name(?: is|'s| was)(?:n't| not)?"
    r"|i(?: am|'m)(?: not)? called|(?:don't |do not )?call me"
    r"|(?:everyone|everybody) calls me(?= (?-i:[A-Z]))|i (?:don't |do not )?go by"
    r"|i(?:'ve| have)? changed my name to)(?: actually| really| now)?:?\s+",
    re.IGNORECASE,
)
_I_AM: Final = expression(
    r"(?:^|[,.!:]\s*|\b(?:[Hh]i|[Hh]ello|[Hh]ey|and) )(?:[Ii]'m|[Ii] am|[Tt]his is)(?: not)? (?=[A-Z])"
)
# What stands in a denied thing's place: "my name isn't Bob, it's Carl".
_INSTEAD: Final = expression(
    rf"\W{{0,3}}(?:but|it's|it is|rather)\s+(?:actually |really |in fact )?(?!(?:{_OTHERS}|{_ASKERS})\b)", re.IGNORECASE
)
# Written like names after "I'm", and none.
_NATIONS_AND_MOODS: Final = """
american arab argentinian asian australian austrian belgian brazilian british bulgarian canadian catholic chilean
chinese christian croatian cuban czech danish dutch egyptian english european finnish french german greek hindu
hungarian indian indonesian iranian irish israeli italian japanese jewish korean malaysian mexican moroccan muslim
nigerian norwegian pakistani polish portuguese romanian russian scottish serbian spanish swedish swiss syrian
taiwanese thai turkish ukrainian vegan vegetarian vietnamese welsh monday tuesday wednesday thursday friday saturday
sunday ok okay sorry sure fine not so very here back home now i great nice cool good bad long short common rare unusual
beautiful pretty hard difficult easy wrong right important later tomorrow today tonight again soon when if at on in
before after anytime maybe too also only still really always never the a an my your names by from to with for
"""
_NO_NAMES: Final = frozenset(_NATIONS_AND_MOODS.split())
_PARTICLES: Final = frozenset({"van", "von", "de", "da", "di", "la", "le", "der", "den", "bin", "al"})

_WHEN: Final = (
    r"(?:in|on) (?:the )?(?:\d|january|february|march|april|may\b|june|july|august|september|october|november|december)"
)
_BORN: Final = expression(rf" (?={_WHEN})", re.IGNORECASE)
_PLAIN: Final[tuple[tuple[About, re.Pattern[str]], ...]] = tuple(
    (about, expression(pattern, re.IGNORECASE))
    for about, pattern in (
        (
            About.HOME,
            r"\bi(?:'ve|'m| have| am| do not| don't| no longer)?(?: not)?(?: now| currently| just| recently)?"
            r" (?:live|living|moved|reside)(?: now)? (?:in|to|near) ",
        ),
        (
            About.ORIGIN,
            r"\bi(?: am|'m| come| came| don't come| do not come)(?: not)?(?: originally)? from "
            rf"|\bi was(?:n't| not)? born (?!{_WHEN})in ",
        ),
        (About.BORN, rf"\bi was(?:n't| not)? born (?={_WHEN})"),
        (
            About.AGE,
            r"\bi(?: am|'m)(?: not)?(?: now| already| just)?"
            r" (?=\d{1,3}(?: years?(?: old)?| yo)?\s*(?:[,.;!]|and\b|but\b|any|now\b|today\b|$))",
        ),
        (About.JOB, r"\bi(?:'m| am| do not| don't| no longer)?(?: not)? work(?:ing)? as (?=\w)"),
        (About.WORKPLACE, r"\bi(?:'m| am| do not| don't| no longer)?(?: not)? work(?:ing)? (?=(?:at|for|in) )"),
        (
            About.DISLIKES,
            r"\bi (?:really |also )?(?:hate|dislike|can't stand"
            r"|(?:don't|do not|no longer) (?:really )?(?:like|love|enjoy|eat|drink)) ",
        ),
        (
            About.LIKES,
            r"\bi (?:really |also |do |mostly )?(?:like|love|enjoy|prefer|adore):? "
            r"(?!to (?:know|see|ask|hear)\b|you\b|it\b|that\b|this\b|my name\b)",
        ),
        (About.ALLERGY, r"\bi(?: am|'m)(?: not)?(?: also| very)? allergic to "),
        (
            About.SPEAKS,
            r"\bi (?:can |also |cannot |can't |do not |don't )*speak (?!to\b|with\b|about\b|of\b|for\b|up\b)",
        ),
        (
            About.BEING,
            r"\bi(?: am|'m)(?: not| no longer)?(?: also)? (?=an? (?!bit\b|little\b|lot\b|few\b|fan\b|big fan\b)"
            r"|(?:vegan|vegetarian|left-handed|married|single|retired)\b)",
        ),
    )
)
_INTENDED: Final = (
    r"(?:want|wanted|hope|plan|need|used|going|have|had|wish|try|decided|intend|like|love|learning|learned) to"
    r"|would|will|could|should|might|may|must|can|never"
)
# A clause that leaves the speaker out: "I live in Berlin and work as a nurse". What others do is theirs.
_LEFT_OUT: Final = expression(
    rf"((?:^|[\s,.!])i(?:'m|'ve)? (?:(?!\b(?:{_OTHERS}|who|which|whose|and|but|{_INTENDED})\b)[^.;!?\n]){{1,80}}?"
    r"(?:,? and|,? but|,)) (?=(?:also |now |really |don't |do not )*"
    r"(?:work|live|like|love|hate|enjoy|prefer|speak|come|am|was born|moved)\b)",
    re.IGNORECASE,
)
# Where somebody comes from, told beside who they are: "I'm Ann, a nurse from Berlin".
_FROM: Final = expression(r",? (?:and )?(?:an? (?:[\w-]{1,30} ){1,3})?from (?=[A-Z])")
_BUT_NOT: Final = expression(r",? but not ", re.IGNORECASE)
# In "my sister's name is Zoe" the apostrophe tells whose name it is; in "my dog's called Rex" it is a verb, which is
# known by what follows alone.
_OWN: Final = expression(
    r"\bmy ((?:[\w'-]{1,30} ){0,4}?[\w'-]{1,30}?)"
    r"(?: (is|are|was|were)(?:n't| not)?"
    r"|'s(?: not)?(?! (?:[\w'-]{1,30} ){0,4}(?:is|are|was|were)(?:n't)?\b)"
    r"(?= (?:called|named|an?|the|in|at|on|from|not|now|still|\d{1,3}\b))) (?=\S)",
    re.IGNORECASE,
)
_PREPOSITIONS: Final = (
    "of", "to", "for", "with", "at", "in", "from", "by", "about", "near", "behind", "under", "over", "on", "after",
    "before", "between", "beside", "like", "than", "as",
)  # fmt: skip
_OF: Final = expression(r"\bthe ((?:[\w'-]{1,30} ){0,2}[\w'-]{1,30}) of $", re.IGNORECASE)
_GOVERNED: Final = expression(rf"\b(?:{'|'.join(_PREPOSITIONS)}) $", re.IGNORECASE)
# Words that begin something of its own: "my brother told me the car is red" speaks of no such thing of mine.
_BEGINNING_WORDS: Final = """
a an the my your his her its our their this that these those me him us them i you he she we they it
"""
_BEGINNINGS: Final = frozenset(_BEGINNING_WORDS.split())
_LINKS: Final = frozenset([*_PREPOSITIONS, "and", "or", "&"])
# Whom or what one has, named in the same breath: "I have a dog called Rex".
_HAVE: Final = expression(
    r"\bi(?:'ve| have)?(?: got| have)? (?:an?|one) ((?:[\w-]{1,30} ){0,3}?[\w-]{1,30}),? "
    r"(?:(?:who|that|which) is |(?:whose |his |her |its )name is )?(?:called |named |(?<=name is ))(?=\S)",
    re.IGNORECASE,
)
_NO_LABEL: Final = expression(
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
_NOTE: Final = expression(
    r"(?:(?:ok(?:ay)?|so|and|hey|well)[, ]+)?(?:please )?(?:(?:can|could|would) you )?(?:please )?"
    r"(?:remember|keep in mind|note|make a note|don't forget|do not forget)(?: this| the following)?"
    r"(?: that\b|\s*[:,-])?\s+(?=\S)",
    re.IGNORECASE,
)
_NO_NOTE: Final = expression(r"(?:me|my [\w' ]{1,60}|what\b.*|when\b.*|who\b.*|how\b.*)[?.!]*$", re.IGNORECASE)


def english_facts(sentence: str, claim: Claim = Claim.STATED) -> list[Fact]:
    """What a sentence tells about the speaker, in its order; or what it only hedges."""
    text = sentence.replace("\u2019", "'")
    if (note := _NOTE.match(text)) is None:
        return _facts(text, claim)
    rest = text[note.end() :].strip()
    if rest.endswith("?"):
        return []
    found = _facts(rest, claim)
    if found or claim is not Claim.STATED or _NO_NOTE.match(rest):
        return found
    return [Fact(about=About.NOTE, value=rest.rstrip(".!")[:_VALUE])]


def _facts(text: str, claim: Claim) -> list[Fact]:
    if not _SELF.search(text):
        return []
    text = _LEFT_OUT.sub(r"\1 I ", _LEFT_OUT.sub(r"\1 I ", text))
    found = [
        (at, fact)
        for at, fact in (*_names(text), *_plain(text), *_own(text), *_having(text))
        if fact.value and not _NO_VALUE.match(fact.value)
    ]
    claims = EnglishClaims(text) if found else None
    return [fact for at, fact in sorted(found, key=lambda one: one[0]) if claims and claims.at(at) is claim]


def _names(text: str) -> Iterator[tuple[int, Fact]]:
    for match in _NAME.finditer(text):
        name = _name(text[match.end() :])
        if (name if name[:1].isupper() else name.split(" ")[0]).lower() not in _NO_NAMES:
            yield from _stated(text, match, Fact(about=About.NAME, value=name), _name)
    for match in _I_AM.finditer(text):
        name = _name(text[match.end() :])
        if "'s" in name:  # "I'm Bob's friend"
            yield from _stated(
                text, match, Fact(about=About.BEING, value=english_value(text[match.end() :])), english_value
            )
        elif name.split(" ")[0].lower() not in _NO_NAMES:
            yield from _stated(text, match, Fact(about=About.NAME, value=name), _name)
            yield from _from(text, match.end() + len(name))


def _from(text: str, at: int) -> Iterator[tuple[int, Fact]]:
    if match := _FROM.match(text, at):
        yield at, Fact(about=About.ORIGIN, value=english_value(text[match.end() :]))


def _plain(text: str) -> Iterator[tuple[int, Fact]]:
    for about, pattern in _PLAIN:
        for match in pattern.finditer(text):
            value = english_value(text[match.end() :])
            if about is About.BEING:
                value, _, _ = value.partition(" from ")
                yield from _from(text, match.end() + len(value))
            if about is About.ORIGIN and (born := _BORN.search(value)):
                yield match.start(), Fact(about=About.BORN, value=value[born.end() :])
                value = value[: born.start()]
            yield from _stated(text, match, Fact(about=about, value=value), english_value)


def _own(text: str) -> Iterator[tuple[int, Fact]]:
    for match in _OWN.finditer(text):
        about, label = _labelled(_of_whom(text[: match.start()], match[1]))
        if label.lower() == "name" or _NO_LABEL.match(label) or not _is_label(label):
            continue
        value = english_value(text[match.end() :])
        if value.lower().startswith(("called ", "named ")):
            label, value = f"{label}'s name", value.split(" ", 1)[1]
        verb = (match[2] or "is").lower()
        yield from _stated(text, match, Fact(about=about, value=value, label=label, verb=verb), english_value)


def _of_whom(before: str, label: str) -> str:
    """What is spoken of: "the birthday of my wife" is the wife's birthday; "the key to my house" is nothing of mine."""
    if of := _OF.search(before[-80:]):
        return f"{label}'s {of[1]}"
    return "" if _GOVERNED.search(before[-12:]) else label


def _is_label(label: str) -> bool:
    words = label.lower().split()
    return bool(words) and all(one in _LINKS for one, word in pairwise(words) if word in _BEGINNINGS)


def _having(text: str) -> Iterator[tuple[int, Fact]]:
    for match in _HAVE.finditer(text):
        label = f"{_labelled(match[1])[1]}'s name"
        yield match.start(), Fact(about=About.OWN, value=_name(text[match.end() :]), label=label, verb="is")


def _stated(text: str, match: re.Match[str], fact: Fact, read: Callable[[str], str]) -> Iterator[tuple[int, Fact]]:
    """The fact, or that it is not so; and what is so instead, where that is told in the same breath."""
    at, rest = match.start(), text[match.end() :]
    if fact.about is About.DISLIKES or not _NOT.search(match[0]):
        yield at, fact
        if fact.about is About.LIKES and (but := _BUT_NOT.match(rest, len(fact.value))):
            yield at + 1, replace(fact, about=About.DISLIKES, value=english_value(rest[but.end() :]))
        return
    yield at, replace(fact, denied=True)
    if instead := _INSTEAD.match(rest, rest.find(fact.value) + len(fact.value)):
        yield at + 1, replace(fact, value=read(rest[instead.end() :]))


def english_value(rest: str) -> str:
    """What a text begins with, up to where it turns to something else."""
    rest = rest[: 2 * _VALUE]
    ends = (end.start() for end in _END.finditer(rest) if rest[end.start()] != "." or ends_sentence(rest, end.start()))
    value = _TAIL.sub("", rest[: next(ends, len(rest))])[:_VALUE].strip()
    return f"{value}." if _DOTTED.search(value) and rest.startswith(f"{value}.") else value


def _name(rest: str) -> str:
    """A name at the start of a text: its first word, and the following ones that are written like names as well."""
    words = english_value(rest).split(",")[0].split()
    if not words or not words[0][0].isalpha():
        return ""
    if not words[0][0].isupper():
        return " ".join(words if len(words) <= 2 else words[:1])[:60]
    named = [word[0].isupper() or word.lower() in _PARTICLES for word in words[:4]]
    return " ".join(words[: named.index(False) if False in named else 4])[:60].rstrip(".")


def _labelled(label: str) -> tuple[About, str]:
    """What is called theirs, as it is written: "dog Rex"; but one spelling, since it is compared."""
    label = _AGED.sub("", " ".join(label.split()))
    label = _COLOR.sub("colour", _FAVORITE.sub("favourite", label))
    return _KNOWN_LABELS.get(label.lower(), About.OWN), label


_AGED: Final = expression(r"^(?:own|new|current|real|actual) ", re.IGNORECASE)
_COLOR: Final = expression(r"\bcolou?r\b", re.IGNORECASE)
_FAVORITE: Final = expression(r"\bfavou?rite\b", re.IGNORECASE)


_ASKS: Final[tuple[tuple[re.Pattern[str], tuple[About, ...]], ...]] = tuple(
    (expression(pattern, re.IGNORECASE), about)
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
        (r"\bhow old (?:am i|i am)\b", (About.AGE, About.BORN)),
        (r"\bwhen (?:was i|i was) born\b|\bwhat year was i born\b", (About.BORN,)),
        (r"\b(?:what|which|how many) languages? (?:do|can) i speak\b|\blanguages? i speak\b", (About.SPEAKS,)),
        (
            r"\bwhat do i do(?: for (?:a living|work))?\s*[?.!]*$"
            r"|\bwhat(?:'s| is) my (?:job|profession|occupation|work)(?: again| now| please)?\s*[?.!]*$",
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
        (
            r"\bwhat am i allergic\b|\b(?:what|do i have(?: any)?|know|remember|what (?:are|is) my) allerg",
            (About.ALLERGY,),
        ),
    )
)
_LABEL: Final = r"my ((?:[\w'-]{1,30} ){0,5}?[\w'-]{1,30}?)"
_ASKS_OWN: Final = tuple(
    expression(pattern + r"(?: again| please| now)?\s*[?.!]*$", re.IGNORECASE)
    for pattern in (
        r"\b(?:what|when|who|where|which|whose|how (?:much|many|old|long|far|tall|big))(?:'s|'re| is| are| was| were) "
        rf"{_LABEL}(?: (called|named|on|about))?",
        r"\b(?:remember|know|recall|tell me|remind me of|remind me|repeat|say|forgotten) "
        rf"(?:what |when |who |where )?{_LABEL}(?: (is|are|was|were|called))?",
        rf"^\W*and {_LABEL}(?: (called|named))?(?=\W*\?)",
    )
)
_ASKS_OF: Final = expression(
    r"\b(?:what|when|who|where|which)(?:'s|'re| is| are| was| were) the ((?:[\w'-]{1,30} ){0,2}[\w'-]{1,30}) of "
    rf"{_LABEL}\s*[?.!]*$",
    re.IGNORECASE,
)
_VERB: Final = expression(r"\b(?:is|are|was|were)\b", re.IGNORECASE)
_ASKS_FAVOURITE: Final = expression(
    r"\b(?:what|which) ([\w-]{1,30}) do i (?:like|love|prefer)(?: most| best| the most| the best)?\s*[?.!]*$",
    re.IGNORECASE,
)
_ASKS_ALL: Final = expression(
    r"\b(?:what|everything|anything)\b.{0,20}\b(?:know|remember|learned|learnt)\b.{0,10}\babout me\b"
    r"|\bwhat (?:have|did) i (?:told|tell) you about (?:me|myself)\b|\btell me about (?:me|myself)\b"
    r"|\bwhat do you remember\s*[?]*$|\bdo you (?:still )?(?:remember|know) me\b",
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
    if of := _ASKS_OF.search(text):
        return Wanted(about=(About.OWN,), label=_labelled(f"{of[2]}'s {of[1]}")[1])
    for own in _ASKS_OWN:
        if match := own.search(text):
            about_it, label = _labelled(match[1])
            label = f"{label}'s name" if match[2] in ("called", "named") else label
            is_one = not _NO_LABEL.match(label) and _is_label(label) and not _VERB.search(label)
            return Wanted(about=(about_it,), label=label) if is_one else None
    return None


def english_asks_all(question: str) -> bool:
    """Whether everything known about the asker is asked for."""
    return _ASKS_ALL.search(question) is not None
