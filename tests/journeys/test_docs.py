"""Every Python snippet in the README and the docs runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
SNIPPETS = [
    pytest.param(match[1], id=f"{page.name}:{number}")
    for page in [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]
    for number, match in enumerate(re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_runs(snippet: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", snippet], cwd=tmp_path, capture_output=True, text=True, timeout=50
    )

    assert done.returncode == 0, done.stderr


def test_the_readme_shows_its_two_commands_first() -> None:
    """The first two fenced blocks are the two commands, and no other make command stands in a block."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", (TOP / "README.md").read_text(), re.DOTALL | re.MULTILINE)

    assert [block.strip() for block in blocks[:2]] == ["make serve", "make test"]
    assert not any(line.startswith("make ") for block in blocks[2:] for line in block.splitlines())


def test_every_page_the_docs_link_to_exists() -> None:
    pages = [TOP / "README.md", TOP / "CONTRIBUTING.md", *(TOP / "docs").glob("*.md")]
    broken = [
        f"{page.name} -> {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]

    assert broken == []
