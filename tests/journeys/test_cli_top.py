"""`tenuto top` at a real terminal: a server is watched, asked once, refuses, and is gone."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from tenuto.access import KeyRole
from tests.journeys.http_service import ANN, http_service
from tests.journeys.terminal import CTRL_C, Screen, Shell
from tests.servers.loopback import serving

PROBLEM = {"type": "about:blank", "title": "Down", "status": 503, "code": "unavailable", "detail": "\x1b]0;owned\x07"}


@pytest.mark.requirement("T18")
async def test_an_operator_watches_a_server(tmp_path: Path) -> None:
    """For what the server says of an error, too."""
    shell, broken = Shell(tmp_path), list[bool]()

    async def read(*args: str, secret: str = "") -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(shell.run_process, "top", "--url", base, *args, words=secret.encode())

    async with http_service() as service:

        async def failing(scope: Scope, receive: Receive, send: Send) -> None:
            app = JSONResponse(PROBLEM, 503) if broken and scope["type"] == "http" else service.app
            await app(scope, receive, send)

        async with serving(failing) as base:
            with Screen(tmp_path, "top", "--url", base, "--every", "0.1", env=shell.env) as screen:
                for text in (f"at {base}, up ", ": all is well", "0 answered"):
                    await asyncio.to_thread(screen.see, text)
                await service.http.post("/v1/chat", headers=ANN, json={"message": "Hello"})
                await asyncio.to_thread(screen.see, "1 answered, 0 failed")
                broken.append(True)
                await asyncio.to_thread(screen.see, r"\x1b]0;owned\x07")
                broken.clear()
                screen.press(CTRL_C)
                assert await asyncio.to_thread(screen.end) == 0
                assert ("Traceback" in screen.seen, "\x07" in screen.seen) == (False, False)
            piped = await read()
            _, member = await service.keys.create(tenant="acme")
            _, operator = await service.keys.create(tenant="acme", role=KeyRole.OPERATOR)
            service.ticks.now += 60
            refused, listed = (
                await read("--key", "-", secret=member),
                await read("--json", "--key", "-", secret=operator),
            )
        gone = await read("--once")

    assert (piped.returncode, piped.stdout.count("all is well"), piped.stderr) == (0, 1, "")
    assert json.loads(listed.stdout)["turns"]["answered"] == 1
    assert (
        refused.stderr
        == "forbidden: the status of the server is for metrics_token, or a credential with the role operator\n"
    )
    assert (refused.returncode, gone.returncode, gone.stdout) == (1, 1, "")
    assert gone.stderr.startswith(f"unavailable: the server at {base} does not answer; start one with `tenuto serve`")
