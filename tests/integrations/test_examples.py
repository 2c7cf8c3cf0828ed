"""Every file of `examples/` runs as it stands, without a key: issue 19, item 8."""

from __future__ import annotations

import os
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.warm_start import open_program

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    """It keeps nothing where it was started: the next run, and other examples there, begin with an empty store."""
    (folder := tmp_path / "started").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TENUTO_", "OPENAI_"))}
    program = f"import runpy; runpy.run_path({str(example)!r}, run_name='__main__')"
    env = {**kept, "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
    with open_program("-c", program, cwd=folder, env=env, stdout=PIPE, stderr=PIPE, text=True) as running:
        _, said = running.communicate(timeout=300)

    assert running.returncode == 0, said[-4000:]
    assert not list(folder.iterdir())
