"""Lua scripts as values: source, digest, and the call that loads them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from tenuto.stores.redis._resp import pack

_INCLUDES = re.compile(r"^ *-- include: (\w+)$", re.MULTILINE)
_CONSTANTS = re.compile(r"^-- const:(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script that servers know by the digest of its source."""

    source: str
    sha: str = field(init=False)
    load: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # a frozen value fills in what follows from its source
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)
        object.__setattr__(self, "load", pack(("SCRIPT", "LOAD", self.source)))


@cache
def script(name: str) -> Script:
    """The script of this name, with includes and constants written in.

    Lua 5.1 has no constants, and a local for each would cost more than the work itself.
    """
    source = _read_source(name)
    named = "\n".join(_CONSTANTS.findall(source))
    values = dict(pair.split("=", 1) for pair in named.split())
    code = "\n".join(line for line in source.split("\n") if not line.lstrip().startswith("--"))
    return Script(re.sub(r"\b[A-Z][A-Z_]+\b", lambda word: values.get(word[0], word[0]), code))


@cache
def _read_source(name: str) -> str:
    own = files("tenuto.stores.redis").joinpath("scripts", f"{name}.lua").read_text(encoding="utf-8")
    return _INCLUDES.sub(lambda line: _read_source(f"_{line[1]}"), own)
