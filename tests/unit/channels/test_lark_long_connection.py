"""Events through the long connection of the platform's SDK."""

from __future__ import annotations

import asyncio
import json
import logging
import threading

import pytest
from msgspec.structs import replace

from tenuto.channels.lark import LarkApp
from tenuto.channels.lark.long_connection import LongConnection
from tests.lark_platform import start_lark_platform
from tests.timeouts import LONG


@pytest.mark.requirement("T14")
async def test_events_are_acknowledged_once_they_are_taken(caplog: pytest.LogCaptureFixture) -> None:
    """What fails is delivered again, a lost connection comes back; no secret and no word of a person is logged."""
    caplog.set_level(logging.DEBUG)
    server, taken = asyncio.get_running_loop(), list[str]()

    async def receive(payload: bytes) -> None:
        assert asyncio.get_running_loop() is server
        taken.append(json.loads(payload)["header"]["event_id"])
        if len(taken) == 1:
            raise OSError("the store refuses my secret words")

    async with start_lark_platform() as platform:
        app = LarkApp(
            app_id=platform.app.app_id, app_secret=platform.app.app_secret, domain=platform.url, long_connection=True
        )
        event = platform.say(platform.p2p("ou_ann"), "ou_ann", "my secret words")
        connection = LongConnection(app, receive)
        connection.start()
        codes = [await platform.push(event, 2 * LONG), await platform.push(event)]
        await platform.connections.drop()
        await platform.until_requested("endpoint", 2)
        codes.append(await platform.push(event))
        await connection.stop()

        refused = LongConnection(replace(app, app_secret="another secret"), receive)
        refused.start()
        await platform.until_requested("endpoint", 3)
        await refused.stop()

        assert (codes, taken) == ([500, 200, 200], [event.id] * 3)
        assert not platform.connections.open
        assert not any(thread.name == "lark-connection" for thread in threading.enumerate())
    assert "secret words" not in caplog.text
    assert "another secret" not in caplog.text
