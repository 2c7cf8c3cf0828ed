"""The commands that bring the extras of an installation, by how it was installed."""

from __future__ import annotations

from functools import cache
from typing import Any


def install_line(extra: str) -> str:
    """The command that brings an extra into the environment that tenuto runs in.

    From a clone it is one for its folder, as the name would be looked for in an index.
    """
    origin = _origin()
    if origin.get("dir_info") is None:
        return f"pip install 'tenuto[{extra}]'"
    return f"pip install {'-e ' if origin['dir_info'].get('editable') else ''}'.[{extra}]'"


def with_folder(text: str) -> str:
    """A text with its install lines as they work in any folder; for operators, since they name one of the machine."""
    folder = install_folder()
    return text if folder is None else text.replace("'.[", f"'{folder}[")


def install_folder() -> str | None:
    """The folder that `install_line` is to be run in, where tenuto was installed from one."""
    from urllib.parse import unquote, urlsplit

    origin = _origin()
    return unquote(urlsplit(origin["url"]).path) if "dir_info" in origin else None


@cache
def _origin() -> dict[str, Any]:
    """Where tenuto was installed from, as pip wrote it down (PEP 610); empty for an index."""
    # Few processes ever ask.
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        origin: dict[str, Any] = json.loads(distribution("tenuto").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return origin
