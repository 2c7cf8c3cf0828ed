"""What users say of themselves: the words for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tenuto.model.expression import expression


class About(StrEnum):
    """What a fact is about. `OWN` is anything the user calls theirs, by its `label`; `NOTE` is to be remembered."""

    NAME = "name"
    AGE = "age"
    BORN = "born"
    HOME = "home"
    ORIGIN = "origin"
    JOB = "job"
    WORKPLACE = "workplace"
    BEING = "being"
    LIKES = "likes"
    DISLIKES = "dislikes"
    ALLERGY = "allergy"
    SPEAKS = "speaks"
    OWN = "own"
    NOTE = "note"

    @property
    def many(self) -> bool:
        """Whether several can be true at once; of the others the newest is."""
        return self in (About.BEING, About.LIKES, About.DISLIKES, About.ALLERGY, About.SPEAKS, About.NOTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One statement; `label` is what the user calls theirs, and `verb` how it was put: are, was, 叫, 在.

    What is `denied` is not so: "my name is not Ann". `later` are words that changed it without naming it: "it's
    cancelled".
    """

    about: About
    value: str
    label: str = ""
    verb: str = ""
    denied: bool = False
    later: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A question for a fact: any of `about`, the first that is known; `label` names what the user calls theirs."""

    about: tuple[About, ...]
    label: str = ""


# What stands around a value where it is said, and is said again where it is told.
_AROUND: Final = {
    About.AGE: expression(r"周?岁$"),
    About.HOME: expression(r"^(?:in|at|to|near) |^住?在"),
    About.ORIGIN: expression(r"^(?:in|from) |^来自|(?<=..)人$"),
    About.JOB: expression(r"^as "),
    About.WORKPLACE: expression(r"^在|(?:工作|上班)$"),
}
_AT: Final = expression(r"(?:at|on|in|by|from) ")


def fitted(before: Fact, value: str) -> Fact:
    """The same with another value, as short as it was put: "4pm" for "at 3pm" is "at 4pm"."""
    if around := _AROUND.get(before.about):
        value = around.sub("", value)
    places = _AT.findall(before.value)
    if before.about is About.OWN and len(places) == 1 and before.value.startswith(places[0]) and not _AT.match(value):
        value = places[0] + value
    return replace(before, value=value, denied=False, later="")
