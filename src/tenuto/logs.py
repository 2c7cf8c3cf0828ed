"""Which turn a log line belongs to: ids bound once, and read by whoever writes the line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

_LONGEST: Final = 80
_about: ContextVar[Mapping[str, str]] = ContextVar("about", default=MappingProxyType({}))


def about() -> Mapping[str, str]:
    """The ids that are bound here and now."""
    return _about.get()


@contextmanager
def bound(**ids: str | None) -> Iterator[None]:
    """Bind ids to every log line written inside, this task's children included; afterwards they are gone (E18)."""
    named = {name: value[:_LONGEST] for name, value in ids.items() if value}
    token = _about.set({**_about.get(), **named})
    try:
        yield
    finally:
        _about.reset(token)
