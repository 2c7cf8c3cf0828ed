"""Which assistants there are, by name, and which one answers when none is named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tenuto.assistants.assistant import Assistant
from tenuto.errors import AssistantNotFound, InvalidSetting


class AssistantRegistry:
    """The assistants of an installation."""

    def __init__(self, assistants: Iterable[Assistant], default: str) -> None:
        self._known: dict[str, Assistant] = {}
        for assistant in assistants:
            if assistant.name in self._known:
                raise InvalidSetting("assistants", f"two are called {assistant.name!r}")
            self._known[assistant.name] = assistant
        if default not in self._known:
            raise InvalidSetting("assistant", f"there is no {default!r}; there are {', '.join(self._known)}")
        self.default = default

    def __iter__(self) -> Iterator[Assistant]:
        return iter(self._known.values())

    @property
    def names(self) -> frozenset[str]:
        """What they are called."""
        return frozenset(self._known)

    def find(self, name: str | None) -> Assistant:
        """The assistant of that name, or the default one.

        Raises:
            AssistantNotFound: there is none of that name.
        """
        try:
            return self._known[self.default if name is None else name]
        except KeyError:
            raise AssistantNotFound("assistant", ", ".join(self._known)) from None
