"""The characters of a site: their names, and the words they begin, hesitate and decline with."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from tenuto.errors import InvalidSetting
from tenuto.model.generation import Persona
from tenuto.model.prompt import Language
from tenuto.model.values import Value


class Character(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One character: `opening`, `careful` and `refusal` introduce answers of the three policy modes."""

    name: dict[Language, str]
    system: dict[Language, str]
    opening: dict[Language, str] = {}
    careful: dict[Language, str] = {}
    refusal: dict[Language, str] = {}

    def persona(self, name: str) -> Persona:
        """The character as a persona of the assistant."""
        return Persona(id=name, names=self.name, system=self.system)


PLAIN = Character(
    name={Language.ENGLISH: "Guide", Language.CHINESE: "讲解员"},
    system={},
    careful={
        Language.ENGLISH: "There is little on record about this. What I can tell you:",
        Language.CHINESE: "这方面的记载不多，我只能告诉您：",
    },
    refusal={
        Language.ENGLISH: "I am sorry, our records hold nothing on this, and I should not guess.",
        Language.CHINESE: "抱歉，我们的资料里没有这方面的记载，我不便随意回答。",
    },
)


def load_characters(path: Path) -> dict[str, Character]:
    """The characters of a file, by their ids.

    Raises:
        InvalidSetting: the file cannot be read; the field is named.
    """
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), dict[str, Character])
    except (OSError, UnicodeDecodeError):
        raise InvalidSetting("npc_corpus", f"{path.name} cannot be read") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InvalidSetting("npc_corpus", f"{path.name}: {error}") from None
