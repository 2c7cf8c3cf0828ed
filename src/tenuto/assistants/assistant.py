"""An assistant: its texts, personas, policies, tools and model; and the registry of assistants by name."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from tenuto.errors import AssistantMissing, AssistantNotFound, ExtraMissing, InvalidSetting
from tenuto.model.generation import Persona, StepChanged, ToolContext, ToolOutput, ToolResult
from tenuto.model.parameters import NO_PARAMETERS, ModelParameters
from tenuto.model.policy import Preset, preset
from tenuto.model.prompt import Language, PromptPolicy
from tenuto.ports import OfflineTool, Tool

LocalizedText: TypeAlias = Mapping[Language, str]
Postprocess: TypeAlias = Callable[[str, tuple[ToolResult, ...], ToolContext], str]
Respond: TypeAlias = Callable[[ToolContext], AsyncGenerator[StepChanged | ToolOutput, None]]

PLAIN: Final = "plain"
"""The name of the assistant that passes on what it gets."""


def _empty_mapping() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Why an assistant takes no turns.

    Where a package is not installed, `install` is the command that brings it. Where its file cannot be loaded, `cause`
    names the file, the line and what is wrong, and `advice` what to do; these are for operators.
    """

    install: str = ""
    cause: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant:
    """An assistant.

    `run_first` names tools that run before the model if their `plan` applies: evidence is retrieved independently of
    the model. `respond` works on the question in place of the model, as long as it takes: it yields its steps as they
    begin and end, and at last its output; what it raises ends the turn.
    `postprocess` may change the final text, for example add citations. `relevance` is the threshold of
    similarity for the history to enter the prompt; 0 admits any. An `isolated` persona sees only its own turns. Without
    `remembers` each question is answered by itself and nothing is stored; without `recalls` nothing is remembered
    beyond the session. Texts missing in one language are taken from the other. Facts of one that `looks_up` come from
    its tools: a language model's answer without a successful call is marked `lookup` in `degraded`. `file` is the file
    it was loaded from. Its model gets `parameters` where a request says nothing else, and `fixed_parameters` name those
    that no request may change. One with something `missing` is listed and takes no turns.
    """

    name: str
    titles: LocalizedText = field(default_factory=_empty_mapping)
    description: LocalizedText = field(default_factory=_empty_mapping)
    system: LocalizedText = field(default_factory=_empty_mapping)
    policies: Preset = field(default_factory=lambda: preset("platform"))
    prompt: PromptPolicy = field(default_factory=PromptPolicy)
    model: str | None = None
    parameters: ModelParameters = NO_PARAMETERS
    fixed_parameters: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    run_first: tuple[str, ...] = ()
    personas: Mapping[str, Persona] = field(default_factory=_empty_mapping)
    isolated: bool = False
    relevance: float = 0.0
    remembers: bool = True
    recalls: bool = True
    looks_up: bool = False
    respond: Respond | None = None
    postprocess: Postprocess | None = None
    file: str | None = None
    missing: Missing | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.relevance <= 1:
            raise InvalidSetting(f"assistant {self.name}", f"relevance is from 0 to 1, not {self.relevance:g}")
        known = {tool.spec.name: tool for tool in self.tools}
        if len(known) < len(self.tools):
            names = [tool.spec.name for tool in self.tools]
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidSetting(f"assistant {self.name}", f"has two tools called {twice!r}")
        for name in self.run_first:
            if not isinstance(known.get(name), OfflineTool):
                raise InvalidSetting(f"assistant {self.name}", f"runs {name!r} first, which is not a tool that can")

    def check_installed(self) -> None:
        """Refuse a turn that could not be answered, before anything of it is stored.

        Raises:
            ExtraMissing: a package is not installed.
            AssistantMissing: its file cannot be loaded.
        """
        if self.missing is not None and self.missing.cause:
            raise AssistantMissing(self.name, f"{self.missing.cause}; {self.missing.advice}")
        if self.missing is not None:
            raise ExtraMissing(f"assistant {self.name}", install=self.missing.install)

    def persona(self, persona_id: str | None) -> Persona | None:
        """The persona of that id; without an id the only one, if there is one.

        Raises:
            AssistantNotFound: there is none of that id.
        """
        if persona_id is None:
            return next(iter(self.personas.values())) if len(self.personas) == 1 else None
        try:
            return self.personas[persona_id]
        except KeyError:
            raise AssistantNotFound("character", ", ".join(self.personas) or "none") from None

    def system_prompt(self, persona: Persona | None, language: Language) -> str:
        """The system prompt: the assistant's text, then the persona's."""
        parts = [in_language(self.system, language), in_language(persona.system, language) if persona else ""]
        return "\n\n".join(part for part in parts if part)


def in_language(texts: LocalizedText, language: Language) -> str:
    """The text in that language, or in another one."""
    return texts.get(language) or next(iter(texts.values()), "")


class AssistantRegistry:
    """The assistants of an installation."""

    def __init__(self, assistants: Iterable[Assistant], default: str) -> None:
        self._known: dict[str, Assistant] = {}
        for assistant in assistants:
            if assistant.name in self._known:
                both = _causes([assistant, self._known[assistant.name]])
                why = f" ({both})" if both else ""
                raise InvalidSetting("assistants", f"two are called {assistant.name!r}{why}")
            self._known[assistant.name] = assistant
        if default not in self._known:
            broken = _causes(self)
            files = f"; files that cannot be loaded: {broken}" if broken else ""
            raise InvalidSetting("assistant", f"there is no {default!r}; available: {', '.join(self._known)}{files}")
        self.default = default
        self.names = frozenset(self._known)

    def __iter__(self) -> Iterator[Assistant]:
        return iter(self._known.values())

    def find(self, name: str | None) -> Assistant:
        """The assistant of that name, or the default one.

        Raises:
            AssistantNotFound: there is none of that name.
        """
        try:
            return self._known[self.default if name is None else name]
        except KeyError:
            raise AssistantNotFound("assistant", ", ".join(self._known)) from None


def _causes(assistants: Iterable[Assistant]) -> str:
    """Why the files among them cannot be loaded."""
    return "; ".join([each.missing.cause for each in assistants if each.missing is not None and each.missing.cause])


def general_assistant(policies: Preset | None = None, prompt: PromptPolicy | None = None) -> Assistant:
    """`general`, under the `platform` preset by default."""
    return Assistant(
        name="general",
        titles={Language.ENGLISH: "General", Language.CHINESE: "通用助手"},
        description={
            Language.ENGLISH: "Talks about anything, and keeps to what was said before.",
            Language.CHINESE: "什么都可以聊，并记得之前说过的话。",
        },
        system={
            Language.ENGLISH: (
                "You are a helpful assistant. Answer in the language of the question, to the point. "
                "Earlier parts of the conversation may be given as a summary: rely on it, but do not mention it. "
                "Say so when you do not know."
            ),
            Language.CHINESE: (
                "你是一位乐于助人的助手。用提问所用的语言回答，简明扼要。"
                "较早的对话可能以摘要形式给出：可以依据它，但不要提及它。不知道时请如实说明。"
            ),
        },
        policies=policies or preset("platform"),
        prompt=prompt or PromptPolicy(),
    )


def plain_assistant(policies: Preset | None = None, prompt: PromptPolicy | None = None) -> Assistant:
    """`plain`, which passes the conversation on: no system prompt of its own, and nothing recalled."""
    return Assistant(
        name=PLAIN,
        titles={Language.ENGLISH: "Plain model", Language.CHINESE: "纯模型"},
        description={
            Language.ENGLISH: "The model itself: no system prompt and no memories are added.",
            Language.CHINESE: "模型本身：不添加系统提示词，也不添加记忆。",
        },
        policies=policies or preset("platform"),
        prompt=prompt or PromptPolicy(),
        recalls=False,
    )
