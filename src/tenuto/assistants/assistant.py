"""What an assistant is: a persona with its words, policies, tools and model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from tenuto.errors import AssistantNotFound, InvalidSetting
from tenuto.model.generation import Persona, ToolContext, ToolResult
from tenuto.model.policy import Preset, preset
from tenuto.model.prompt import Language, PromptPolicy
from tenuto.ports import OfflineTool, Tool

Words: TypeAlias = Mapping[Language, str]
Mend: TypeAlias = Callable[[str, tuple[ToolResult, ...], ToolContext], str]


def _empty_mapping() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant:
    """One kind of conversation partner.

    `first` names tools that run before the model is asked, whenever they see themselves wanted: evidence is retrieved
    whatever the model thinks of it. `mend` has the last word on the answer's text, such as citations that the model
    left out. `relevance` is how alike talk and question must be for the talk to enter the prompt; 0 lets any in.
    An `isolated` persona sees only its own turns. One that does not `remember` answers each question by itself and
    stores nothing. Words missing in one language are taken from the other. `file` is where it was read from, if it was.
    """

    name: str
    titles: Words = field(default_factory=_empty_mapping)
    about: Words = field(default_factory=_empty_mapping)
    system: Words = field(default_factory=_empty_mapping)
    policies: Preset = field(default_factory=lambda: preset("platform"))
    prompt: PromptPolicy = field(default_factory=PromptPolicy)
    model: str | None = None
    tools: tuple[Tool, ...] = ()
    first: tuple[str, ...] = ()
    personas: Mapping[str, Persona] = field(default_factory=_empty_mapping)
    isolated: bool = False
    relevance: float = 0.0
    remembers: bool = True
    mend: Mend | None = None
    file: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.relevance <= 1:
            raise InvalidSetting(f"assistant {self.name}", f"relevance is from 0 to 1, not {self.relevance:g}")
        known = {tool.spec.name: tool for tool in self.tools}
        if len(known) < len(self.tools):
            names = [tool.spec.name for tool in self.tools]
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidSetting(f"assistant {self.name}", f"has two tools called {twice!r}")
        for name in self.first:
            if not isinstance(known.get(name), OfflineTool):
                raise InvalidSetting(f"assistant {self.name}", f"runs {name!r} first, which is no tool that can")

    def persona(self, asked: str | None) -> Persona | None:
        """The character of that id; the only one there is, where none is asked for.

        Raises:
            AssistantNotFound: there is none of that id.
        """
        if asked is None:
            return next(iter(self.personas.values())) if len(self.personas) == 1 else None
        try:
            return self.personas[asked]
        except KeyError:
            raise AssistantNotFound("character", ", ".join(self.personas) or "none") from None

    def system_prompt(self, persona: Persona | None, language: Language) -> str:
        """The system prompt: the assistant's words, then the persona's."""
        parts = [in_language(self.system, language), in_language(persona.system, language) if persona else ""]
        return "\n\n".join(part for part in parts if part)


def in_language(words: Words, language: Language) -> str:
    """The words in that language, or in the one there is."""
    return words.get(language) or next(iter(words.values()), "")
