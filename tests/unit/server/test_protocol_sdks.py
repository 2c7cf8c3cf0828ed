"""The SDKs of MCP and A2A: loaded when they are needed, and missed with a sentence that says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tenuto.extras import install_line
from tests.journeys.http_service import ANN, code, http_service

pytestmark = pytest.mark.requirement("A2")


_START = """
import asyncio, sys
from tenuto.server import create_app
from tenuto.settings import Settings

async def start():
    app = create_app(Settings(store="memory://"))
    async with app.router.lifespan_context(app):
        print(*{"a2a", "mcp", "pydantic"} & {name.split(".")[0] for name in sys.modules})

asyncio.run(start())
"""


def test_a_server_starts_without_loading_them(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _START], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )

    assert done.stdout == "\n"


@pytest.mark.parametrize(("path", "package"), [("/mcp", "mcp"), ("/a2a/general", "a2a")])
async def test_a_server_without_one_says_what_to_install(
    path: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None stands for a module that cannot be found.
    monkeypatch.setitem(sys.modules, f"tenuto.server.{package}.service", None)
    async with http_service() as service:
        response = await service.http.post(path, json={}, headers=ANN)

    assert code(response) == (503, "extra_missing")
    assert install_line(package) in response.json()["detail"]
    assert "Retry-After" not in response.headers
