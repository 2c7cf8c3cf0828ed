"""Who speaks: the characters of a site, how they are called and how they begin, hesitate, decline and part."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tenuto.errors import InvalidSetting
from tenuto.model.prompt import Language
from tenuto.model.talk import Persona
from tenuto.model.values import Value


class Character(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One character; `introduces` is the piece of evidence about itself, `introduction` its own words for who it is."""

    name: dict[Language, str]
    system: dict[Language, str]
    introduction: dict[Language, str] = {}
    opening: dict[Language, str] = {}
    careful: dict[Language, str] = {}
    refusal: dict[Language, str] = {}
    farewell: dict[Language, str] = {}
    introduces: str | None = None

    def persona(self, name: str) -> Persona:
        """As an assistant knows it."""
        return Persona(id=name, names=self.name, system=self.system)


PLAIN = Character(
    name={Language.ENGLISH: "Guide", Language.CHINESE: "讲解员"},
    system={},
    introduction={
        Language.ENGLISH: "I am a guide of this site.",
        Language.CHINESE: "我是这里的讲解员。",
    },
    careful={
        Language.ENGLISH: "There is little on record about this. What I can tell you:",
        Language.CHINESE: "这方面的记载不多，我只能告诉您：",
    },
    refusal={
        Language.ENGLISH: "I am sorry, our records hold nothing on this, and I should not guess.",
        Language.CHINESE: "抱歉，我们的资料里没有这方面的记载，我不便随意回答。",
    },
)


def load_characters(path: Path) -> Mapping[str, Character]:
    """The characters of a file, by their ids.

    Raises:
        InvalidSetting: the file cannot be read; the field is named.
    """
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(told, dict[str, Character])
    except (OSError, UnicodeDecodeError):
        raise InvalidSetting("npc_corpus", f"{path.name} cannot be read") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as unfit:
        raise InvalidSetting("npc_corpus", f"{path.name}: {unfit}") from None
