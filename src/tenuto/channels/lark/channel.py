"""The `Channel` of an app on Lark or Feishu."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, Generic, TypeVar

import msgspec

from tenuto.channels.lark import events
from tenuto.channels.lark.app import LarkApp
from tenuto.channels.lark.client import CHANNEL, LarkClient, LarkRefusal, Listed, Sent
from tenuto.channels.lark.content import UNREADABLE, card_content, read_content, text_content
from tenuto.errors import ChannelUnavailable, Invalid, ReplyRefused
from tenuto.model.attachment import IMAGE
from tenuto.model.channel import ChatFile, ChatLine, Delivery, Incoming, IncomingMessage, MessageKind
from tenuto.ports import Clock, utc_now

_log = logging.getLogger(__name__)
_CARD: Final = "interactive"
_LIST_LIFE: Final = timedelta(seconds=15)
# The pages of a chat, with 50 messages each, among which a reply is looked for.
_REPLY_PAGES: Final = 4
# A card may be updated five times a second; people do not read faster than once.
_PACE: Final = timedelta(seconds=1)
# The platform waits three seconds for an acknowledgement.
_IDENTITY_SECONDS: Final = 2.0
# Threads, other than chains of replies, can be listed and replied into.
_THREAD: Final = "omt_"
_CHAT: Final = "chat"

_V = TypeVar("_V")


class LarkChannel:
    """One app. Close it when done.

    Events of a long connection need no `verify`: `parse` takes their payload as the body of a delivery.
    """

    def __init__(self, app: LarkApp, *, clock: Clock = utc_now) -> None:
        self._app = app
        self._clock = clock
        self.client = LarkClient(app, clock=clock)
        self._bot: str | None = None
        self._identifying = asyncio.Lock()
        self._names: _Recent[str] = _Recent(10_000)
        self._lists: _Recent[tuple[datetime, Sequence[Listed]]] = _Recent(100)
        self._cards: _Recent[str] = _Recent(1000)
        self._next_update: _Recent[datetime] = _Recent(1000)

    @property
    def name(self) -> str:
        """The platform."""
        return CHANNEL

    @property
    def app(self) -> str:
        """The app's id."""
        return self._app.app_id

    async def close(self) -> None:
        """Close the connections to the platform."""
        await self.client.close()

    def verify(self, delivery: Delivery) -> None:
        """Return if the platform sent this callback to this app, not long ago.

        Raises:
            DeliveryRefused: nothing proves it, or it cannot be read.
        """
        events.verify(self._app, delivery, self._clock())

    async def parse(self, delivery: Delivery) -> Incoming:
        """The message of a callback, or of a payload of the long connection.

        Raises:
            DeliveryRefused: it cannot be read.
            ChannelUnavailable: it mentions people, and the platform does not tell whether one of them is the bot.
        """
        envelope = events.open_envelope(self._app, delivery)
        if envelope.header is None and envelope.type == events.CHALLENGE:
            return Incoming(ignored=events.CHALLENGE, answer={"challenge": envelope.challenge})
        header = envelope.header
        if header is None or header.event_type != events.RECEIVED:
            return Incoming(ignored=f"event type {envelope.kind[:80]!a}")
        if header.app_id not in ("", self.app):
            return Incoming(ignored="it is for another app")
        event = events.open_event(envelope)
        if event.sender.sender_type not in ("", "user"):
            return Incoming(ignored="its sender is an app")
        bot = await self._bot_open_id() if event.message.mentions else self._bot
        self._learn_names(event)
        message = events.read_message(header, event, bot)
        named = msgspec.structs.replace(message, sender_name=self._names.get(message.sender) or "")
        return Incoming(message=named)

    def _learn_names(self, event: events.MessageEvent) -> None:
        """Events name those who are mentioned, but not who wrote."""
        for mention in event.message.mentions or ():
            if mention.id.open_id and mention.name:
                self._names.put(mention.id.open_id, mention.name)

    async def _bot_open_id(self) -> str:
        if self._bot is None:
            try:
                async with asyncio.timeout(_IDENTITY_SECONDS):
                    self._bot = await self._identify()
            except TimeoutError:
                raise ChannelUnavailable(CHANNEL, "does not tell the bot's id in time") from None
            except LarkRefusal as error:
                raise ChannelUnavailable(CHANNEL, f"does not tell the bot's id (code {error.code})") from None
        return self._bot

    async def _identify(self) -> str:
        async with self._identifying:
            return self._bot if self._bot is not None else (await self.client.bot()).open_id

    async def chat_context(self, message: IncomingMessage, limit: int) -> Sequence[ChatLine]:
        """Texts of other people before this message, in its thread if it has one, oldest first.

        Messages that mention the bot are left out: they are part of the session.

        Raises:
            ChannelUnavailable: the platform does not answer, or does not let the app read.
        """
        if not message.group or limit < 1:
            return []
        try:
            messages = await self._list_around(message)
            bot = await self._bot_open_id()
        except LarkRefusal as error:
            raise ChannelUnavailable(CHANNEL, f"does not list messages (code {error.code})") from None
        lines = [line for one in messages if (line := self._chat_line(one, message, bot)) is not None]
        return lines[:limit][::-1]

    async def _list_around(self, message: IncomingMessage) -> Sequence[Listed]:
        """A list that was read lately serves again if it has the message, and so all before it."""
        container, place = _container(message)
        now = self._clock()
        self._lists.drop_oldest(lambda cached: now - cached[0] >= _LIST_LIFE)
        cached = self._lists.get(place)
        if cached is not None and any(one.message_id == message.id for one in cached[1]):
            return cached[1]
        messages = (await self.client.list_messages(container, place)).items or []
        self._lists.put(place, (now, messages))
        return messages

    def _chat_line(self, one: Listed, message: IncomingMessage, bot: str) -> ChatLine | None:
        mentions = one.mentions or []
        if one.deleted or one.message_id == message.id or one.sender.id in ("", self.app, bot):
            return None
        if any(mention.id == bot for mention in mentions):
            return None
        names = {mention.key: f"@{mention.name or mention.key}" for mention in mentions}
        try:
            sent_at = events.read_time(one.create_time)
            content = read_content(one.msg_type, one.body.content, names)
        except UNREADABLE:
            return None
        if content.kind is not MessageKind.TEXT or not content.text or sent_at > message.sent_at:
            return None
        name = one.sender.sender_name or self._names.get(one.sender.id) or ""
        return ChatLine(sender=one.sender.id, text=content.text, sent_at=sent_at, sender_name=name)

    async def download(self, message: IncomingMessage, file: ChatFile, limit: int) -> bytes:
        """The content of a file of a message.

        Raises:
            TooLarge: it has more bytes than the limit.
            Invalid: the platform does not let the app have it.
            ChannelUnavailable: a retry may succeed.
        """
        try:
            return await self.client.download(message.id, file.key, picture=file.type == IMAGE, limit=limit)
        except LarkRefusal as error:
            _log.warning("lark does not give a file: code %d", error.code)
            raise Invalid("the platform does not give the file") from None

    async def reply(self, message: IncomingMessage, text: str, card_id: str | None = None) -> None:
        """Answer a message as text, or in the card that was shown.

        The platform knows a reply by its uuid for an hour; a card that a process showed before it ended is found so.

        Raises:
            ReplyRefused: the message can no longer be answered.
            ChannelUnavailable: a retry may succeed.
        """
        with _translate_refusals():
            if card_id is None:
                sent = await self._send(message, "text", text_content(text))
                card_id = sent.message_id if sent.msg_type == _CARD else None
            if card_id is not None:
                await self.client.update_card(card_id, card_content(text))
                self._next_update.drop(card_id)

    async def has_reply(self, message: IncomingMessage) -> bool:
        """Whether the platform shows a reply of this app to a message.

        A card does not count, since it may show only a part of the answer; a reply that follows goes into it. If the
        platform does not let the app list messages, the answer is no: it would not change, and a reply is owed.

        Raises:
            ChannelUnavailable: the platform does not answer.
        """
        try:
            reply = await self._find_reply(message)
        except LarkRefusal as error:
            _log.warning("lark does not list replies: code %d", error.code)
            return False
        if reply is not None and reply.msg_type == _CARD:
            self._cards.put(message.id, reply.message_id)
            return False
        return reply is not None

    async def _find_reply(self, message: IncomingMessage) -> Listed | None:
        """The reply among those after the message, or the newest of its thread, which has no lists from a time on."""
        container, place = _container(message)
        since, token = message.sent_at if container == _CHAT else None, ""
        for _ in range(_REPLY_PAGES):
            page = await self.client.list_messages(container, place, since=since, page_token=token)
            reply = next((one for one in page.items or () if self._is_reply(one, message)), None)
            if reply is not None or not page.has_more:
                return reply
            token = page.page_token
        return None

    def _is_reply(self, one: Listed, message: IncomingMessage) -> bool:
        """The root is no proof: a reply to a later message of the thread has the same."""
        return one.sender.id == self.app and (one.parent_id or one.root_id) == message.id

    async def show_progress(self, message: IncomingMessage, text: str, card_id: str | None) -> str | None:
        """Show the answer as far as it is in a card, or nothing while the platform asks to slow down.

        Raises:
            ReplyRefused: the message can no longer be answered.
            ChannelUnavailable: a retry may succeed.
        """
        if not self._app.cards:
            return None
        now, place = self._clock(), card_id or message.id
        if now < (self._next_update.get(place) or now):
            return card_id
        with _translate_refusals():
            try:
                if card_id is not None:
                    await self.client.update_card(card_id, card_content(text))
                else:
                    sent = await self._send(message, _CARD, card_content(text))
                    # A text: a process before this one has answered already.
                    card_id = sent.message_id if sent.msg_type in (_CARD, "") else None
            except ChannelUnavailable as error:
                if error.retry_after is None:
                    raise
                self._next_update.put(place, now + error.retry_after)
                return card_id
        self._next_update.put(card_id or place, now + _PACE)
        return card_id

    async def _send(self, message: IncomingMessage, kind: str, content: str) -> Sent:
        if (card := self._cards.get(message.id)) is not None:
            return Sent(message_id=card, msg_type=_CARD)
        uuid = sha256(f"{self.app}\n{message.id}".encode()).hexdigest()[:40]
        in_thread = _container(message)[0] != _CHAT
        return await self.client.reply(message.id, kind=kind, content=content, uuid=uuid, in_thread=in_thread)


def _container(message: IncomingMessage) -> tuple[str, str]:
    """Where the platform lists a message: its thread or its chat."""
    if message.thread is not None and message.thread.startswith(_THREAD):
        return "thread", message.thread
    return _CHAT, message.chat


@contextmanager
def _translate_refusals() -> Iterator[None]:
    try:
        yield
    except LarkRefusal as error:
        raise ReplyRefused(str(error.code)) from None


class _Recent(Generic[_V]):
    """A dictionary of bounded size: beyond the limit, what was stored longest ago goes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[str, _V] = {}

    def get(self, key: str) -> _V | None:
        """The value of a key, if it is held."""
        return self._held.get(key)

    def put(self, key: str, value: _V) -> None:
        """Hold a value."""
        self._held.pop(key, None)
        self._held[key] = value
        if len(self._held) > self._limit:
            del self._held[next(iter(self._held))]

    def drop_oldest(self, is_old: Callable[[_V], bool]) -> None:
        """Drop what was stored longest ago, up to the first value that is not old."""
        while self._held and is_old(next(iter(self._held.values()))):
            del self._held[next(iter(self._held))]

    def drop(self, key: str) -> None:
        """Hold it no longer."""
        self._held.pop(key, None)
