"""What the README and the docs show is true: every Python snippet runs as it stands, help is the program's own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from runpy import run_path
from subprocess import PIPE
from typing import Any

import pytest

import tenuto
from tenuto.server.openapi import document
from tests.journeys.door import served
from tests.warm_start import open_program

TOP = Path(__file__).parents[2]
SNIPPETS = [
    pytest.param(match[1], id=f"{page.name}:{number}")
    for page in [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
    for number, match in enumerate(re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_runs(snippet: str, tmp_path: Path) -> None:
    code, _, err = _run("-W", "error", "-c", snippet, cwd=tmp_path)

    assert code == 0, err


def _run(*args: str, **given: Any) -> tuple[int, str, str]:
    """What `python ARGS` ends with, and what it printed."""
    with open_program(*args, stdout=PIPE, stderr=PIPE, text=True, **given) as process:
        out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def test_the_commands_listed_are_the_programs_own() -> None:
    """After a change of the command line: python docs/generate_cli.py."""
    page = (TOP / "docs" / "reference" / "cli.md").read_text()

    assert run_path(str(TOP / "docs" / "generate_cli.py"))["render_page"](page) == page


def test_the_assistant_that_the_docs_write_answers(tmp_path: Path) -> None:
    page = (TOP / "docs" / "how-to" / "assistants.md").read_text()
    folder = tmp_path / "assistants"
    folder.mkdir()
    for name in ("toml", "py"):
        block = re.search(rf"^```{name}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        assert block is not None
        (folder / f"weather.{name}").write_text(block[1])
    asked, answer = re.findall(r'^TENUTO_ASSISTANTS=assistants tenuto chat .* "(.*)"\n# (.*)$', page, re.MULTILINE)[0]

    env = {**os.environ, "TENUTO_ASSISTANTS": "assistants"}
    done = _run("-m", "tenuto", "chat", "--assistant", "weather", asked, cwd=tmp_path, env=env)

    assert done == (0, f"{answer}\n", "")


async def test_the_readmes_dialogue_goes_as_it_is_told() -> None:
    readme = (TOP / "README.md").read_text()
    dialogue = re.findall(r"^> \*\*(.+)\*\*\n> (.+)$", readme, re.MULTILINE)
    assert len(dialogue) >= 4

    async with tenuto.open("memory://") as app:
        session = None
        for said, answer in dialogue:
            reply = await app.ask(app.scope(user="ann"), said, session_id=session)
            session = reply.session_id
            assert reply.text == answer


def test_the_readme_shows_its_two_commands_first() -> None:
    """The first two fenced blocks are the two commands, and no other make command stands in a block."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", (TOP / "README.md").read_text(), re.DOTALL | re.MULTILINE)

    assert [block.strip() for block in blocks[:2]] == ["make serve", "make test"]
    assert not any(line.startswith("make ") for block in blocks[2:] for line in block.splitlines())


def test_every_page_the_docs_link_to_exists() -> None:
    pages = [TOP / "README.md", TOP / "CONTRIBUTING.md", *(TOP / "docs").rglob("*.md")]
    broken = [
        f"{page.name} -> {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]

    assert broken == []


def test_every_picture_is_small_and_shown() -> None:
    pages = [TOP / "README.md", *(TOP / "docs").rglob("*.md")]
    pattern = re.compile(r"""(?:src|srcset)="([^"]+\.webp)\"""")
    shown = {(page.parent / name).resolve() for page in pages for name in pattern.findall(page.read_text())}
    pictures = set((TOP / "docs" / "images").iterdir())

    assert shown == pictures
    assert [picture.name for picture in pictures if picture.stat().st_size > 60_000] == []


async def test_the_http_page_has_a_row_for_every_route() -> None:
    page = (TOP / "docs" / "reference" / "http.md").read_text()
    listed = {re.sub(r"\{\w+\}", "{}", path) for path in re.findall(r"(/[^\s`]*)`", page)}
    async with served() as door:
        routes = {re.sub(r"\{\w+\}", "{}", path) for path in document(door.app)["paths"]}

    assert routes - listed == set()


def test_every_module_that_the_docs_name_exists() -> None:
    for page in [TOP / "CONTRIBUTING.md", *sorted((TOP / "docs" / "ideas").glob("*.md"))]:
        for name in re.findall(r"`((?:\w+/)*\w+\.py)`", page.read_text()):
            found = any(
                next(TOP.glob(f"{root}/{name}"), None) for root in ("src/tenuto/**", "tests/**", "bench/**", ".")
            )
            assert found, f"{page.name} names {name}"


def test_both_pages_draw_the_same_rooms() -> None:
    """The drawing stands where a contributor begins, and where the rooms are explained."""
    pages = [TOP / "CONTRIBUTING.md", TOP / "docs" / "ideas" / "architecture.md"]
    first, second = (re.findall(r"```\n(cli .*?)```", page.read_text(), re.DOTALL) for page in pages)

    assert first == second
    assert len(first) == 1


def test_every_test_that_the_requirements_name_exists() -> None:
    page = (TOP / "docs" / "reference" / "requirements.md").read_text()
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", page)

    missing = [f"{file}::{test}" for file, test in named if f"def {test}(" not in (TOP / "tests" / file).read_text()]

    assert len(named) > 100
    assert missing == []
