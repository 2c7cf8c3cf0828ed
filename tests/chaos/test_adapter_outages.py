"""Every adapter and every protocol under the same kills and outages as the store: issue 19."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from tenuto.errors import Unavailable
from tests.chaos.surfaces import ROUTES, Surface, open_surfaces
from tests.integrations.conversations import ADAPTERS
from tests.journeys.http_service import http_service
from tests.servers import PostgresServer, RedisServer
from tests.shared_stores import until_it_answers
from tests.timeouts import LONG
from tests.warm_start import open_program

WRITER: Final = """
import asyncio, sys
from tests.chaos.surfaces import open_surfaces
from tests.journeys.http_service import http_service

async def write(name, surface, number):
    await surface.add(str(number))
    print(name, number, flush=True)

async def main():
    async with http_service(store=sys.argv[1]) as service:
        surfaces = await open_surfaces(service)
        for number in range(1000):
            await asyncio.gather(*(write(*one, number) for one in surfaces.items()))

asyncio.run(main())
"""
ROUNDS: Final = 3
JOURNALED: Final = ROUTES.keys() - {"items", "mcp", "a2a"}


def write_until_killed(url: str) -> dict[str, int]:
    """The last number that each surface had acknowledged when the process got SIGKILL."""
    process = open_program("-c", WRITER, url, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    heard: dict[str, int] = {}
    try:
        # In the middle of a round: some have been told, the others are writing.
        for _ in range(ROUNDS * (len(ADAPTERS) + len(ROUTES)) + 3):
            name, number = process.stdout.readline().split()
            heard[name] = int(number)
    finally:
        os.kill(process.pid, signal.SIGKILL)
    # What was printed before the kill was acknowledged, too.
    for name, number in re.findall(r"^(\S+) (\d+)\n", process.stdout.read(), re.MULTILINE):
        heard[name] = int(number)
    process.stdout.close()
    process.wait(30)
    return heard


@pytest.mark.requirement("A1")
async def test_what_was_acknowledged_outlives_a_killed_process(tmp_path: Path) -> None:
    """All write at once when the process, server included, gets SIGKILL; each goes on where it was.

    A request that is sent again under its key is stored and answered once.
    """
    url = f"sqlite:///{tmp_path / 'chat.db'}"
    heard = await asyncio.to_thread(write_until_killed, url)

    async with http_service(store=url) as service:
        for name, surface in (await open_surfaces(service)).items():
            last = heard[name]
            if name in ROUTES:
                await surface.add(str(last))
                await surface.add(str(last + 1))
            said = await surface.texts()
            # The one in flight may be there.
            assert said in ([str(n) for n in range(last + 1)], [str(n) for n in range(last + 2)]), name
            await surface.add("back")
            assert await surface.texts() == [*said, "back"], name


@pytest.mark.requirement("T7")
@pytest.mark.usefixtures("tried_again_at_once", "trustful")
async def test_an_unavailable_store_refuses_and_returns_with_all_it_took(
    server: RedisServer | PostgresServer, tmp_path: Path
) -> None:
    """Acknowledged is stored, once and in order; all else is the documented error and is not there.

    With a journal the turns of a server are acknowledged; what an adapter could not store its caller knows.
    """
    journals = isinstance(server, RedisServer)
    url = server.url if isinstance(server, RedisServer) else server.app_url
    policy: dict[str, Any] = {"journal": str(tmp_path)} if journals else {"on_store_down": "raise"}
    async with http_service(store=url, breaker_reset=timedelta(milliseconds=20), **policy) as service:
        surfaces = await open_surfaces(service)
        for surface in surfaces.values():
            await surface.add("before")
        server.kill()
        taken = {name for name, surface in surfaces.items() if await takes(surface, "during")}
        server.start()

        assert taken == (JOURNALED if journals else set())
        await until_it_answers(service.tenuto.store)
        async with asyncio.timeout(LONG):
            for name, surface in surfaces.items():
                while not await takes(surface, "after"):
                    await until_it_answers(service.tenuto.store)
                assert await surface.texts() == ["before", *["during"] * (name in taken), "after"], name


async def takes(surface: Surface, text: str) -> bool:
    """Whether a surface acknowledges a text."""
    try:
        await surface.add(text)
    except Unavailable:
        return False
    return True
