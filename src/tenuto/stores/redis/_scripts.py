"""Lua scripts as values: source, digest, and the call that loads them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from tenuto.stores.redis._wire import pack

_NEEDS = "-- needs:"


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
    """The script of this name, behind the parts that its first line says it needs."""
    own = _source(name)
    first = own.partition("\n")[0]
    parts = first.removeprefix(_NEEDS).split() if first.startswith(_NEEDS) else []
    return Script("\n".join([*(_source(f"_{part}") for part in parts), own]))


@cache
def _source(name: str) -> str:
    return files("tenuto.stores.redis").joinpath("scripts", f"{name}.lua").read_text(encoding="utf-8")
