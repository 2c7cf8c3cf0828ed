"""Regular expressions that are compiled when first used: a program's start shall not wait for those it never asks."""

from __future__ import annotations

import re
from typing import Any, Final, cast

_ASKED: Final = ("search", "match", "fullmatch", "finditer", "findall", "sub", "split", "pattern")


def expression(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """What `re.compile` gives, later."""
    return cast("re.Pattern[str]", _Later(pattern, flags))


class _Later:
    """Stands for a compiled expression; what was asked of it once, it answers by itself from then on."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._written = pattern, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._written)
        for method in _ASKED:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)
