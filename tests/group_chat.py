"""A chat platform in the test's own process: its messages are handed over, and its replies can be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import msgspec

from tenuto.errors import TenutoError
from tenuto.model.channel import ChatLine, Delivery, Incoming, IncomingMessage

_START = datetime(2026, 1, 15, 9, 0, tzinfo=UTC)
_numbers = count(1)


def message(text: str, **fields: Any) -> IncomingMessage:
    """A message of Ann in a chat of two."""
    number = next(_numbers)
    given: dict[str, Any] = {
        "id": f"om_{number}",
        "event_id": f"ev_{number}",
        "tenant": "acme",
        "chat": "oc_ann",
        "sender": "ou_ann",
        "sent_at": _START + timedelta(seconds=number),
        "text": text,
    }
    return IncomingMessage(**{**given, **fields})


class RoomChannel:
    """A channel whose platform keeps replies in lists, and refuses as often as it is told to."""

    name = "room"
    app = "app-1"

    def __init__(self) -> None:
        self.replies: list[tuple[str, str]] = []
        self.shown: list[str] = []
        self.answered: set[str] = set()
        self.failures: list[TenutoError] = []
        self.lines: Sequence[ChatLine] = ()
        self._came = asyncio.Condition()

    def verify(self, delivery: Delivery) -> None:
        """Nothing comes from outside the test's process."""

    async def parse(self, delivery: Delivery) -> Incoming:
        return Incoming(message=msgspec.json.decode(delivery.body, type=IncomingMessage))

    async def chat_context(self, message: IncomingMessage, limit: int) -> Sequence[ChatLine]:
        return self.lines[-limit:]

    async def reply(self, message: IncomingMessage, text: str, card_id: str | None = None) -> None:
        if self.failures:
            raise self.failures.pop(0)
        async with self._came:
            # The platform recognises a reply that it has.
            if message.id not in dict(self.replies):
                self.replies.append((message.id, text))
            self._came.notify_all()

    async def has_reply(self, message: IncomingMessage) -> bool:
        return message.id in self.answered

    async def show_progress(self, message: IncomingMessage, text: str, card_id: str | None) -> str | None:
        self.shown.append(text)
        return card_id or f"card-{message.id}"

    async def wait_for(self, *messages: IncomingMessage) -> list[str]:
        """The replies to these messages, when all have come."""
        wanted = [one.id for one in messages]
        async with asyncio.timeout(30), self._came:
            await self._came.wait_for(lambda: set(wanted) <= set(dict(self.replies)))
        return [dict(self.replies)[one] for one in wanted]
