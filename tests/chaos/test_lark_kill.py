"""SIGKILL of a server with a bot while events pour in: each is answered once, in the order of its chat."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx
import pytest

from tests.journeys.server_process import ServerProcess, running_server
from tests.lark_platform import Chat, Event, LarkPlatform, start_lark_platform
from tests.shared_stores import SHARED, SharedStore

pytestmark = pytest.mark.requirement("T14")


CHATS, EACH = 8, 5


def settings(platform: LarkPlatform) -> dict[str, str]:
    app = platform.app
    return {
        "TENUTO_LARK_APP_ID": app.app_id,
        "TENUTO_LARK_APP_SECRET": app.app_secret,
        "TENUTO_LARK_ENCRYPT_KEY": app.encrypt_key or "",
        "TENUTO_LARK_VERIFICATION_TOKEN": app.verification_token,
        "TENUTO_LARK_DOMAIN": platform.url,
    }


async def deliver_until_acknowledged(platform: LarkPlatform, event: Event, servers: list[ServerProcess]) -> None:
    """As the platform does, each time again until a server answers 200."""
    while True:
        try:
            delivered = await platform.deliver(event, f"{servers[-1].http.base_url}/lark/events")
        except httpx.TransportError:
            delivered = None
        if delivered is not None and delivered.status == httpx.codes.OK:
            return
        await asyncio.sleep(0.2)


async def deliver_thrice(platform: LarkPlatform, events: list[Event], servers: list[ServerProcess]) -> None:
    """The events of a chat in order, each three times."""
    for event in events:
        for _ in range(3):
            await deliver_until_acknowledged(platform, event, servers)


ON = [one for one in SHARED if one.name in ("sqlite", "redis")]


@pytest.mark.parametrize("shared", ON, ids=lambda shared: shared.name)
async def test_a_killed_server_answers_each_event_once_and_in_order(
    shared: SharedStore, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store = ("--store", await asyncio.to_thread(shared.url, request.getfixturevalue, tmp_path))
    async with start_lark_platform() as platform:
        chats: list[Chat] = [platform.p2p(f"ou_{number}") for number in range(CHATS)]
        events = [[platform.say(chat, chat.members[0], f"note {number}") for number in range(EACH)] for chat in chats]
        environ = {**settings(platform), "TENUTO_JOURNAL": str(tmp_path / "journal")}
        with running_server(tmp_path / "a", *store, **environ) as first:
            servers = [first]
            await asyncio.to_thread(lambda: first.http)
            pouring = [asyncio.create_task(deliver_thrice(platform, each, servers)) for each in events]
            await platform.until_requested("reply", CHATS * EACH // 3)
            await asyncio.to_thread(first.end, signal.SIGKILL)
            with running_server(tmp_path / "a", *store, **environ) as second:
                await asyncio.to_thread(lambda: second.http)
                servers.append(second)
                await asyncio.gather(*pouring)
                for each in events:
                    await platform.reply_to(each[-1])

        for each in events:
            assert [len(platform.replies(event)) for event in each] == [1] * EACH
            sent = [platform.replies(event)[0] for event in each]
            assert sent == [one for one in sent[0].chat.messages if one.by_bot]
