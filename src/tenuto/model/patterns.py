"""Regular expressions that are compiled by their first use.

A process that never meets a phone number does not wait for the rules of phone numbers: compiling all rules takes as
long as all other imports of a first turn.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, Final, cast

_USED: Final = ("search", "match", "fullmatch", "finditer", "findall", "split", "sub", "flags")


class _CompiledPattern:
    __slots__ = ("_flags", "pattern", *_USED)


class _LazyPattern(_CompiledPattern):
    __slots__ = ()

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Compile, and keep the methods of the compiled pattern: from now on they cost what they cost there."""
        if name not in _USED:
            raise AttributeError(name)
        compiled = re.compile(self.pattern, self._flags)
        for each in _USED:
            setattr(self, each, getattr(compiled, each))
        # A class with `__getattr__` looks every attribute up the slow way.
        self.__class__ = _CompiledPattern  # type: ignore[assignment]
        return getattr(compiled, name)


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What `re.compile` gives, without its cost until it is used."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))
