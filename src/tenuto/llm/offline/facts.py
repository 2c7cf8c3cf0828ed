"""What users say of themselves: the words for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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

    What is `denied` is not so: "my name is not Ann".
    """

    about: About
    value: str
    label: str = ""
    verb: str = ""
    denied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A question for a fact: any of `about`, the first that is known; `label` names what the user calls theirs."""

    about: tuple[About, ...]
    label: str = ""
