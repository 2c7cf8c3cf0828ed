"""Which turn a log line belongs to: ids bound once, and read by the log formatters."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

_LONGEST: Final = 80
_about: ContextVar[Mapping[str, str]] = ContextVar("about", default=MappingProxyType({}))


def about() -> Mapping[str, str]:
    """The ids that are bound in this context."""
    return _about.get()


def bind_log_context(**ids: str | None) -> _BoundContext:
    """Bind ids to every log line written inside, this task's children included; afterwards they are gone (E18)."""
    return _BoundContext({name: value[:_LONGEST] for name, value in ids.items() if value})


class _BoundContext:
    __slots__ = ("_named", "_token")

    def __init__(self, named: dict[str, str]) -> None:
        self._named = named

    def __enter__(self) -> _BoundContext:
        self._token = _about.set({**_about.get(), **self._named})
        return self

    def also(self, **ids: str) -> None:
        """Bind what has become known meanwhile, until the end of the same block."""
        _about.set({**_about.get(), **{name: value[:_LONGEST] for name, value in ids.items()}})

    def __exit__(self, *_: object) -> None:
        _about.reset(self._token)
