"""The documentation as a site: it builds strictly, needs no other host, and its reference is that of the program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

import tenuto
from tenuto.server import create_app
from tenuto.server.openapi import document
from tenuto.settings import Settings

TOP = Path(__file__).parents[2]
# What a browser fetches by itself. Links that people follow may lead anywhere.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*\s(?:src|data|srcset)=["']?(?:https?:)?//[^>]*>"""
    r"""|<link\b(?![^>]*\brel=["']?(?:canonical|prev|next)\b)[^>]*\shref=["']?(?:https?:)?//[^>]*>"""
    r"""|<script\b[^>]*>[^<]*\bimport\(\s*["']https?:|@import\s+["']?(?:url\()?(?:https?:)?//|url\(["']?(?:https?:)?//"""
)
IMAGE = re.compile(r"""<(?:img|source)\b[^>]*\s(?:src|srcset)=["']?([^"'\s>:]+)["'\s>]""")


def test_the_site_builds_strictly_and_is_whole(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """One test, since workers that share several would build it several times."""
    _build(tmp_path)
    for look in (
        _loads_nothing_from_another_host,
        _every_picture_is_a_file_of_it,
        _its_reference_is_the_programs,
        _its_colours_are_the_consoles,
    ):
        with subtests.test(look.__name__.strip("_")):
            look(tmp_path)


def _build(folder: Path) -> None:
    """Strictly: a link or an anchor that leads nowhere is an error. With `--quiet` no warning is counted."""
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=TOP, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr


def _loads_nothing_from_another_host(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    # The theme loads the renderer of such diagrams from elsewhere.
    loaded = {page.name: FETCHED.findall(page.read_text()) for page in pages}
    diagrams = [page.name for page in pages if 'class="mermaid"' in page.read_text()]

    assert len(pages) > 50
    assert {name: found for name, found in loaded.items() if found} == {}
    assert diagrams == []


def _every_picture_is_a_file_of_it(site: Path) -> None:
    shown = [(page, image) for page in site.rglob("*.html") for image in IMAGE.findall(page.read_text())]

    assert any(page == site / "index.html" for page, _ in shown)
    # The page for addresses that lead nowhere is shown at any of them, so its own begin at the top.
    files = [(page, image, site / image[1:] if image.startswith("/") else page.parent / image) for page, image in shown]
    assert [(page.name, image) for page, image, file in files if not file.is_file()] == []


def _its_reference_is_the_programs(site: Path) -> None:
    library = (site / "reference" / "library.html").read_text()
    routes = unescape((site / "reference" / "routes.html").read_text())
    api = document(create_app(Settings(store="memory://")))["paths"]
    described = [f"{method.upper()} {path}" for path, methods in api.items() for method in methods]

    assert [name for name in tenuto.__all__ if f'id="tenuto.{name}"' not in library] == []
    assert [route for route in described if f"<code>{route}</code>" not in routes] == []


def _its_colours_are_the_consoles(site: Path) -> None:
    colours, own = ((site / "stylesheets" / name).read_text() for name in ("colours.css", "site.css"))
    given = set(re.findall(r"^  (--[\w-]+):", colours, re.MULTILINE))
    used = {name for name in re.findall(r"var\((--[\w-]+)\)", own) if not name.startswith("--md-")}

    assert len(used) > 10
    assert used - given == set()
    for page in (site / "index.html", site / "start" / "tutorial.html"):
        assert "stylesheets/colours.css" in page.read_text()
