"""The files of the console, as they lie in the package and as a browser gets them: joined, hashed, compressed."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from tenuto.server.console_bundle import join_modules, join_styles

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "map": "application/json",
    "svg": "image/svg+xml",
}
_STYLE_LINK: Final = r'[ ]*<link rel="stylesheet" href="console/([^"]+)" />\n'
_STYLE_LINKS: Final = re.compile(f"(?:{_STYLE_LINK})+")
_FIRST_STYLE: Final = "app.css"


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
    """The console's files by name: what is not in here cannot be asked for.

    The files that the page loads are in a folder named by the hash of them all. Beside it are the modules they are made
    from, for source maps and tests.
    """
    found = dict(_walk_files(files("tenuto.server") / "console"))
    joined = _join(found)
    content = "".join(f"{name} {sha256(body).hexdigest()}\n" for name, body in sorted(joined.items()))
    folder = sha256(content.encode()).hexdigest()[:12]
    found["index.html"] = _address(found["index.html"].decode(), folder).encode()
    hashed = {f"{folder}/{name}": _console_file(name, body, is_hashed=True) for name, body in joined.items()}
    return {name: _console_file(name, body) for name, body in found.items()} | hashed


def _console_file(name: str, body: bytes, *, is_hashed: bool = False) -> ConsoleFile:
    return ConsoleFile(body, _TYPES.get(name.rpartition(".")[2], "text/plain; charset=utf-8"), is_hashed)


def _join(found: dict[str, bytes]) -> dict[str, bytes]:
    """What the page loads, by name: modules and styles joined, the rest as it is."""
    sources = {name: body.decode() for name, body in found.items()}
    linked = re.findall(_STYLE_LINK, sources["index.html"])
    joined = join_modules({name: source for name, source in sources.items() if name.endswith(".js")})
    joined |= {name: join_styles([sources[name]]) for name in sources if name.endswith(".css") and name not in linked}
    joined[_FIRST_STYLE] = join_styles(sources[name] for name in linked)
    return {name: source.encode() for name, source in joined.items()} | {
        name: body for name, body in found.items() if name.startswith("vendor/") or name.endswith(".svg")
    }


def _address(page: str, folder: str) -> str:
    """The page, with the joined files at their addresses."""
    page = _STYLE_LINKS.sub(f'    <link rel="stylesheet" href="console/{_FIRST_STYLE}" />\n', page)
    return page.replace('="console/', f'="console/{folder}/')


def _walk_files(folder: Traversable, at: str = "") -> Iterator[tuple[str, bytes]]:
    for place in folder.iterdir():
        if place.is_dir():
            yield from _walk_files(place, f"{at}{place.name}/")
        else:
            yield f"{at}{place.name}", place.read_bytes()
