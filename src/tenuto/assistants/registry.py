"""The registry of assistants by name, with a default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tenuto.assistants.assistant import Assistant
from tenuto.errors import AssistantNotFound, InvalidSetting
from tenuto.model.policy import Preset, preset
from tenuto.model.prompt import Language, PromptPolicy


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
