"""Which turn a log line belongs to: ids bound once, and read by the log formatters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

_LONGEST: Final = 80
_about: ContextVar[Mapping[str, str]] = ContextVar("about", default=MappingProxyType({}))


def about() -> Mapping[str, str]:
    """The ids that are bound in this context."""
    return _about.get()


@contextmanager
def bind_log_context(**ids: str | None) -> Iterator[None]:
    """Bind ids to every log line written inside, this task's children included; afterwards they are gone (E18)."""
    token = _about.set({**_about.get(), **{name: value[:_LONGEST] for name, value in ids.items() if value}})
    try:
        yield
    finally:
        _about.reset(token)
