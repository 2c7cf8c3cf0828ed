"""Every file of `examples/` runs as it stands, without a key: issue 19, item 8."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    """It keeps nothing where it was started: the next run, and other examples there, begin with an empty store."""
    (folder := tmp_path / "started").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TENUTO_", "OPENAI_"))}
    done = subprocess.run(
        [sys.executable, str(example)],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    assert not list(folder.iterdir())
