"""A server whose bot answers on a chat platform, as its users meet it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tenuto.llm import ScriptedModel
from tests.journeys.http_service import HttpService, http_service, playing
from tests.lark_platform import Chat, Event, LarkPlatform
from tests.servers.loopback import serving

ALICE, BOB = "ou_alice", "ou_bob"


@dataclass(frozen=True)
class Bot:
    """A server that answers the platform's callbacks."""

    platform: LarkPlatform
    address: str
    service: HttpService

    async def hear(self, *events: Event) -> None:
        """Take events in this order, acknowledging each."""
        for event in events:
            delivered = await self.platform.deliver(event, self.address)
            assert delivered.status == 200, delivered.body

    async def answer(self, chat: Chat, user: str, text: str, **how: Any) -> str:
        """The reply to a person's message."""
        event = self.platform.say(chat, user, text, **how)
        await self.hear(event)
        return (await self.platform.reply_to(event)).text


@asynccontextmanager
async def bot(platform: LarkPlatform, model: ScriptedModel, **given: Any) -> AsyncIterator[Bot]:
    """A server with the platform's app, whose assistant plays the model's scripts."""
    app = platform.app
    settings: dict[str, Any] = {
        "lark_app_id": app.app_id,
        "lark_app_secret": app.app_secret,
        "lark_encrypt_key": app.encrypt_key,
        "lark_verification_token": app.verification_token,
        "lark_domain": platform.url,
        "lark_assistant": "helper",
    }
    async with http_service(**playing(model), **settings, **given) as service, serving(service.app) as url:
        yield Bot(platform, f"{url}/lark/events", service)
