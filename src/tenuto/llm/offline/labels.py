"""What people call theirs, compared: whose it is, what it is, and which one of several."""

from __future__ import annotations

import re
from enum import IntEnum
from itertools import pairwise
from typing import Final

from tenuto.llm.offline.chinese import BARE_LABELS, KIN
from tenuto.llm.offline.finding import features
from tenuto.model.expression import expression


class Fit(IntEnum):
    """How well a label names what was asked for; a `PART` says more than was asked: "work phone" for "phone"."""

    NONE = 0
    PART = 1
    WHOLE = 2


_NAME: Final = frozenset(features("name"))
# 我的航班是CA1234 tells what 我的航班号 asks for.
_NUMBER_OF: Final = expression(r"(?<=..)号码?$| numbers?$")
_NAME_OF: Final = expression(r"(?:'s|(?<=s)')(?: names?)?$")
_OWNER: Final = expression(r"(?:'s|(?<=s)')\s+")
_HAN_OWNER: Final = expression(rf"^({KIN})(?:的(?=.)|(?={BARE_LABELS}$))")
_LINK: Final = expression(r" (?:for|of|in|on|at|to|with|from|about|near|by|who|which|that) ")
_SOMEBODYS: Final = expression(rf"(?:{KIN}|[他她它你您们人友])的?$|(?<![我家新旧])的$")
_MINE: Final = expression(
    rf"\bmy ((?:[\w-]+'s )*[\w-]+)|我(?:的|家的?)?((?:{KIN})的[\u3400-\u9fff]{{1,6}}?|(?<=的)[\u3400-\u9fff]{{1,6}}?)"
    r"(?=[是在什多几叫有会到要哪呢吗]|\W|$)",
    re.IGNORECASE,
)


def fit(label: str, asked: str, value: str) -> Fit:
    """Whether a label names what was asked for: the same owner's, the same thing, and nothing that was asked left out.

    Asked for a name, "my dog is brown" tells none.
    """
    if label == asked:
        return Fit.WHOLE
    if not _same_owner(label, asked):
        return Fit.NONE
    has, wants = features(_NUMBER_OF.sub("", label)), features(_NUMBER_OF.sub("", asked))
    if wants >= _NAME and not has >= _NAME and value[:1].islower():
        return Fit.NONE
    if has == wants and has:
        return Fit.WHOLE
    return Fit.PART if wants - _NAME <= has and not wants.isdisjoint(has) and _same_thing(label, asked) else Fit.NONE


def thing_asked(question: str) -> str:
    """What of theirs a question speaks of, if anything: "car" in "what colour is my car?"."""
    found = _MINE.search(question.replace("\u2019", "'"))
    return (found[1] or found[2]) if found else ""


def of_another(sentence: str, asked: str) -> bool:
    """Whether a sentence tells of somebody else's: "my wife's birthday" for "birthday", and the other way round."""
    owners = _owners(asked)
    if owners:
        return not all(features(owner) <= features(sentence) for owner in owners)
    thing = asked.split(" ")[0] if asked.isascii() else asked
    if not thing:
        return False
    if not thing.isascii():
        before = sentence.split(thing)[:-1]
        return bool(before) and all(_SOMEBODYS.search(words) for words in before)
    return _is_anothers(sentence.lower().replace("\u2019", "'"), thing.lower())


def _is_anothers(sentence: str, thing: str) -> bool:
    words = [word.strip('.,;:!?"()') for word in sentence.split()]
    before = [one for one, word in pairwise(["", *words]) if word.removesuffix("s") == thing.removesuffix("s")]
    behind = [other for word, other in pairwise([*words, ""]) if word == thing]
    owned = [one.endswith(("'s", "s'")) or one in ("his", "her", "their", "its", "your") for one in before]
    return bool(owned) and "mine" not in words and (all(owned) or all(word == "of" for word in behind))


def _owners(label: str) -> list[str]:
    """Whose it is: "wife" in "wife's birthday"; but "sister's name" tells who the sister is."""
    if owner := _HAN_OWNER.match(label):
        return [owner[1]]
    return _OWNER.split(_NAME_OF.sub("", label.lower()))[:-1]


def _same_owner(label: str, asked: str) -> bool:
    ours, theirs = _owners(label), _owners(asked)
    pairs = zip(ours, theirs, strict=False)
    return len(ours) == len(theirs) and all(not features(one).isdisjoint(features(other)) for one, other in pairs)


def _same_thing(label: str, asked: str) -> bool:
    """Whether both are the same kind of thing: a work phone is a phone, car keys are no car."""
    if not label.isascii():
        return _NUMBER_OF.sub("", label).endswith(_NUMBER_OF.sub("", asked)[-2:])
    words = _LINK.split(_NUMBER_OF.sub("", _NAME_OF.sub("", label)), maxsplit=1)[0].split()
    while len(words) > 1 and words[-1][0].isupper():
        words.pop()
    return features(words[-1]) <= features(asked)
