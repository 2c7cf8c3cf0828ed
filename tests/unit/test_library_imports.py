"""A program that only keeps sessions starts fast: the library loads what that takes, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# What other doors, backends and stories need. Each costs a new process tens to hundreds of milliseconds.
HEAVY = """
aiohttp anyio asyncpg cachetools click cryptography httpx importlib.metadata jwt mcp numpy openai opentelemetry
phonenumbers prometheus_client pydantic redis regex rich rs_bpe starlette stdnum tiktoken typer uvicorn yaml
"""
# Our own rooms that keeping sessions does without, whatever they import.
OTHER_ROOMS = """
tenuto.access tenuto.assistants tenuto.chat tenuto.cli tenuto.context tenuto.llm tenuto.privacy.rules.detector
tenuto.privacy.detection.finder tenuto.privacy.compliance.service tenuto.privacy.crypto.tenant_ciphers
tenuto.recall tenuto.server tenuto.stores.memory tenuto.stores.postgres tenuto.stores.redis tenuto.wiring.chat
"""

IMPORT = "import tenuto"
OPEN = """
import asyncio, tenuto

async def main():
    async with tenuto.open("sqlite:///tenuto.db") as app:
        ann = app.scope(user="ann")
        await app.finish(await app.begin(ann, "Hello!"), "Hello Ann.")

asyncio.run(main())
"""
PROBE = "\nimport sys\nprint(*sys.modules)"


def loaded(folder: Path, program: str) -> set[str]:
    """The names among those above that a process has loaded at the end of the program."""
    done = subprocess.run(
        [sys.executable, "-c", program + PROBE], cwd=folder, capture_output=True, text=True, timeout=120, check=True
    )
    return set((HEAVY + OTHER_ROOMS).split()) & set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("program", [IMPORT, OPEN], ids=["import", "one turn on SQLite"])
def test_keeping_sessions_loads_nothing_heavy(tmp_path: Path, program: str) -> None:
    assert loaded(tmp_path, program) == set()


def test_importing_tenuto_loads_no_driver_before_a_store_is_opened(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT + PROBE], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )

    assert "sqlite3" not in done.stdout.split()
