"""Labelled sets that are not ours: they lie outside the tree, and their tests run where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_NAMED: Final = "PII_DATA"
_BESIDE: Final = Path(__file__).parents[2] / "shared" / "data" / "pii"
_FILES: Final = ("presidio_research_synth_v2.json", "dev_sample.jsonl")


def open_data() -> Path:
    """The folder that a variable names, or the one beside the project."""
    return Path(os.environ.get(_NAMED) or _BESIDE)


def missing_data_notice() -> str | None:
    """What to say when the data is not there; `None` when it is."""
    if all((open_data() / name).is_file() for name in _FILES):
        return None
    return f"open privacy data is absent, its tests are left out; {_NAMED} names a folder with {' and '.join(_FILES)}"
