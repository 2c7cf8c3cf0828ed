"""Stores that several processes can open at once, by URL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SharedStore:
    """How to name a fresh, empty store to another process."""

    name: str
    url: Callable[[Callable[[str], Any], Path], str]


SHARED = [
    SharedStore("sqlite", lambda server, folder: f"sqlite:///{folder / 'shared.db'}"),
]
