"""The package as it is in a wheel, and not as it is in this tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

_TREE = Path(__file__).parents[1]


def build_package(folder: Path) -> Path:
    """Build a wheel and unpack it into the folder, which programs then have on their path."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=_TREE, check=True, capture_output=True)
    with ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder)
    return folder
