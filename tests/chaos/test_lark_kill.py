"""A bot's server is killed while the platform delivers: each message is answered once, in the order of its chat.

In the suite the run is short. `CHAOS_CHATS=50 CHAOS_EVENTS=1000` makes it as long as that, and `-o log_cli=true
--log-cli-level=INFO` shows its figures.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

import httpx

from tests.journeys.test_http_process import Running, running
from tests.lark_platform import Chat, Event, LarkPlatform, start_lark_platform

CHATS = int(os.environ.get("CHAOS_CHATS", "5"))
EVENTS = int(os.environ.get("CHAOS_EVENTS", "30"))
DELIVERIES = 3
log = logging.getLogger(__name__)


@dataclass
class Feed:
    """The platform's deliveries to whichever server is up."""

    platform: LarkPlatform
    up: asyncio.Event = field(default_factory=asyncio.Event)
    half: asyncio.Event = field(default_factory=asyncio.Event)
    address: str = ""
    acknowledged: int = 0
    seconds: list[float] = field(default_factory=list)

    async def fill(self, chat: Chat, number: int) -> list[Event]:
        """Messages of a chat, the next one once the one before is acknowledged; each is delivered three times."""
        (user,), events = chat.members, []
        for place in range(number):
            event = self.platform.say(chat, user, f"Note {place}: the budget is {place}00 euros.")
            events.append(event)
            for _ in range(DELIVERIES):
                await self._deliver(event)
            self.acknowledged += 1
            if self.acknowledged >= EVENTS // 2:
                self.half.set()
        return events

    async def _deliver(self, event: Event) -> None:
        """Deliver until it is acknowledged, as the platform's schedule does."""
        while True:
            await self.up.wait()
            try:
                delivered = await self.platform.deliver(event, self.address)
            except httpx.TransportError:
                await asyncio.sleep(0.05)
                continue
            if delivered.status == httpx.codes.OK:
                self.seconds.append(delivered.seconds)
                return


@asynccontextmanager
async def server(feed: Feed, store: Path) -> AsyncIterator[Running]:
    """A server process with the platform's app; meanwhile events are delivered to it."""
    app = feed.platform.app
    environ = {
        "TENUTO_LARK_APP_ID": app.app_id,
        "TENUTO_LARK_APP_SECRET": app.app_secret,
        "TENUTO_LARK_ENCRYPT_KEY": app.encrypt_key or "",
        "TENUTO_LARK_VERIFICATION_TOKEN": app.verification_token,
        "TENUTO_LARK_DOMAIN": feed.platform.url,
    }
    process = running(store, **environ)
    started = await asyncio.to_thread(process.__enter__)
    feed.address = str(started.http.base_url.join("/lark/events"))
    feed.up.set()
    try:
        yield started
    finally:
        feed.up.clear()
        await asyncio.to_thread(process.__exit__, None, None, None)


async def test_a_killed_server_answers_each_message_once_and_in_order(tmp_path: Path) -> None:
    """T14, D23, D26: triple delivery, SIGKILL in the middle, another process on the same store."""
    store = tmp_path / "sessions.db"
    async with start_lark_platform() as platform, asyncio.TaskGroup() as group:
        feed = Feed(platform)
        chats = [platform.p2p(f"ou_{number}") for number in range(CHATS)]
        filling = [group.create_task(feed.fill(chat, EVENTS // CHATS)) for chat in chats]
        async with server(feed, store) as first:
            await feed.half.wait()
            await asyncio.to_thread(first.end, signal.SIGKILL)
        async with server(feed, store):
            said = await asyncio.gather(*filling)
            for events in said:
                await platform.reply_to(events[-1])

    for chat, events in zip(chats, said, strict=True):
        answered = [message.parent for message in chat.messages if message.by_bot]
        assert answered == [event.message for event in events]
    log.info("%s deliveries, p99 %.0f ms", len(feed.seconds), 1000 * quantiles(feed.seconds, n=100)[-1])
