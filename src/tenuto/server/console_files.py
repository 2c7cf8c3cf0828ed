"""The files of the console, as they lie in the package and as a browser gets them: hashed and compressed."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "map": "application/json",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True)
class ConsoleFile:
    """One file of the console."""

    body: bytes
    kind: str
    is_hashed: bool

    @cached_property
    def tag(self) -> str:
        """Its ETag."""
        return f'"{sha256(self.body).hexdigest()[:32]}"'

    @cached_property
    def gzipped(self) -> bytes:
        """The body compressed, once for the life of the process."""
        return gzip.compress(self.body, mtime=0)


@cache
def load_files() -> dict[str, ConsoleFile]:
    """The console's files by name: modules and styles as written in a checkout, bundled in a wheel."""
    return read_files(files("tenuto.server") / "console")


def read_files(folder: Traversable) -> dict[str, ConsoleFile]:
    """The files in a folder by name: what is not in here cannot be asked for.

    The page asks for them in a folder named by the hash of them all; each is also there without that folder.
    """
    found = dict(_walk_files(folder))
    content = "".join(f"{name} {sha256(body).hexdigest()}\n" for name, body in sorted(found.items()))
    hashed = sha256(content.encode()).hexdigest()[:12]
    found["index.html"] = found["index.html"].replace(b'="console/', f'="console/{hashed}/'.encode())
    named = {name: _console_file(name, body) for name, body in found.items()}
    return named | {f"{hashed}/{name}": replace(file, is_hashed=True) for name, file in named.items()}


def _console_file(name: str, body: bytes) -> ConsoleFile:
    return ConsoleFile(body, _TYPES.get(name.rpartition(".")[2], "text/plain; charset=utf-8"), is_hashed=False)


def _walk_files(folder: Traversable, at: str = "") -> Iterator[tuple[str, bytes]]:
    for place in folder.iterdir():
        if place.is_dir():
            yield from _walk_files(place, f"{at}{place.name}/")
        else:
            yield f"{at}{place.name}", place.read_bytes()
