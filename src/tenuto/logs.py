"""What log lines may say: the ids of their turn, bound once, and an exception without its text."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Final

_LONGEST: Final = 80
_FRAMES: Final = 12
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


def describe_exception(error: BaseException | None) -> str:
    """The kinds of an exception and its causes, each with the places it went through, innermost first.

    Without their messages, which may quote user text.
    """
    parts: list[str] = []
    while error is not None and len(parts) < 5:
        frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
        places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
        parts.append(f"{type(error).__name__} at {places or 'unknown'}")
        error = error.__cause__
    return "; from ".join(parts)
