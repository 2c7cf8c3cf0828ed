"""What log lines may say: the ids of their turn, bound once, and an exception without its text; and what records that
the privacy policy guards say of one."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from itertools import groupby, islice
from pathlib import Path
from types import MappingProxyType
from typing import Final

_LONGEST: Final = 80
_FRAMES: Final = 12
_OWN_CODE: Final = Path(__file__).parent
_about: ContextVar[Mapping[str, str]] = ContextVar("about", default=MappingProxyType({}))


def about() -> Mapping[str, str]:
    """The ids that are bound in this context."""
    return _about.get()


class _LogContext:
    """The ids that are bound while it is open. Every turn opens two, and a generator takes twice as long."""

    __slots__ = ("_alone", "_ids", "_token")

    def __init__(self, ids: Mapping[str, str | None], *, alone: bool = False) -> None:
        self._ids = ids
        self._alone = alone

    def __enter__(self) -> None:
        bound = {name: value[:_LONGEST] for name, value in self._ids.items() if value}
        self._token = _about.set(bound if self._alone else {**_about.get(), **bound})

    def __exit__(self, *_: object) -> None:
        _about.reset(self._token)


def bind_log_context(**ids: str | None) -> AbstractContextManager[None]:
    """Bind ids to every log line written inside, this task's children included; afterwards they are gone (E18)."""
    return _LogContext(ids)


def bind_log_context_alone(**ids: str | None) -> AbstractContextManager[None]:
    """As `bind_log_context`, without the ids around it: for work that a turn starts and that is not its own."""
    return _LogContext(ids, alone=True)


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


class OutageLog:
    """Warns of the first of several equal failures in a row: a loop that tries again would fill the log with them."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._failure: type[BaseException] | None = None

    def note_failure(self, error: BaseException) -> None:
        """It failed; of a failure of the same kind nothing is said again."""
        if self._failure is not type(error):
            self._failure = type(error)
            self._log.warning("%s failed, and is tried again: %s", self._what, describe_exception(error))

    def note_success(self) -> None:
        """It works, perhaps again."""
        if self._failure is not None:
            self._failure = None
            self._log.warning("%s works again", self._what)


def explain_exception(error: BaseException | None) -> str:
    """An exception and its causes as their author reads them: type, message, and the places in their own code,
    innermost first, where runs of our own frames are folded.

    The message may quote user text: this is for records behind the privacy policy, never for the log. It is whole,
    since half of a private value would not be found: what keeps it cuts it behind the policy.
    """
    parts: list[str] = []
    while error is not None and len(parts) < 5:
        said = f"{type(error).__name__}: {_message(error)}".removesuffix(": ")
        places = " < ".join(_folded_places(error))
        parts.append(f"{said} ({places})" if places else said)
        error = error.__cause__
    return "; from ".join(parts)


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        # Exceptions of others may fail at their own message.
        return ""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def _folded_places(error: BaseException) -> Iterator[str]:
    frames = reversed(traceback.extract_tb(error.__traceback__))
    ours = groupby(frames, lambda frame: Path(frame.filename).is_relative_to(_OWN_CODE))
    for is_ours, group in islice(ours, _FRAMES):
        run = [f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in group]
        if is_ours:
            yield "tenuto" if len(run) == 1 else f"{len(run)} frames of tenuto"
        else:
            yield from run[:_FRAMES]
