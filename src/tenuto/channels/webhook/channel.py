"""The `Channel` of a platform that sends and takes signed JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Annotated, Final

import httpx
import msgspec

from tenuto.channels.webhook.app import CHANNEL, WebhookApp
from tenuto.errors import ChannelUnavailable, DeliveryRefused, Invalid, ReplyRefused
from tenuto.model.channel import ChatLine, Delivery, Incoming, IncomingMessage, MessageKind
from tenuto.model.scope import check_tenant_id
from tenuto.model.signature import check_signature, read_signing_key, signed_headers
from tenuto.ports import Clock, utc_now

_TIMEOUT: Final = httpx.Timeout(10.0, connect=5.0)
# The message is unknown, gone or malformed there. Any other refusal, as of the signature, ends when it is corrected.
_FOR_GOOD: Final = frozenset({400, 404, 410, 413, 422})
_LONGEST_WAIT: Final = timedelta(minutes=5)


class _Body(msgspec.Struct, frozen=True):
    id: str
    chat: str
    sender: str
    text: str = ""
    group: bool = False
    thread: str | None = None
    sender_name: str = ""
    addressed: bool = True
    sent_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    tenant: str | None = None
    # Not the enumeration: an unknown value would be quoted by the error.
    kind: str = MessageKind.TEXT


class WebhookChannel:
    """One platform. Close it when done."""

    name = CHANNEL

    def __init__(self, app: WebhookApp, *, clock: Clock = utc_now) -> None:
        self.app = app.name
        self._app = app
        self._key = read_signing_key(app.secret, "secret")
        self._clock = clock
        # Neither through a proxy, nor after a redirect: replies go to the configured address only.
        self._client = httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False, follow_redirects=False)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def verify(self, delivery: Delivery) -> None:
        """Return if a delivery was signed with the app's secret, not long ago.

        Raises:
            DeliveryRefused: it was not, or nothing proves it.
        """
        check_signature(self._key, delivery.headers, delivery.body, self._clock())

    async def parse(self, delivery: Delivery) -> Incoming:
        """The message of a verified delivery.

        Raises:
            DeliveryRefused: it cannot be read, or names a tenant that it may not.
        """
        try:
            body = msgspec.json.decode(delivery.body, type=_Body)
            message = IncomingMessage(
                id=body.id,
                event_id=delivery.headers["webhook-id"],
                tenant=self._tenant_of(body),
                chat=body.chat,
                sender=body.sender,
                sent_at=body.sent_at or self._clock(),
                text=body.text,
                group=body.group,
                thread=body.thread,
                sender_name=body.sender_name,
                kind=MessageKind(body.kind) if body.kind in tuple(MessageKind) else MessageKind.OTHER,
                addressed=body.addressed or not body.group,
            )
        except UnicodeDecodeError:
            raise DeliveryRefused("the message is not text in UTF-8") from None
        except (msgspec.DecodeError, RecursionError, Invalid) as error:
            # None quotes what it could not read.
            raise DeliveryRefused(f"the message cannot be read: {error}") from None
        return Incoming(message=message)

    def _tenant_of(self, body: _Body) -> str:
        if body.tenant is None or body.tenant == self._app.tenant:
            return self._app.tenant
        if not self._app.tenant_from_body:
            raise Invalid("the configuration does not let it name another tenant")
        return check_tenant_id(body.tenant)

    async def chat_context(self, message: IncomingMessage, limit: int) -> Sequence[ChatLine]:
        """None: the platform cannot be asked for the messages of a group."""
        return ()

    async def reply(self, message: IncomingMessage, text: str, card_id: str | None = None) -> None:
        """Post a reply; a repeated one has the same `webhook-id`, by which the receiver recognises it.

        Raises:
            ReplyRefused: the receiver does not want it.
            ChannelUnavailable: a retry may succeed.
        """
        body = msgspec.json.encode(
            {
                "type": "message.reply",
                "in_reply_to": message.id,
                "tenant": message.tenant,
                "chat": message.chat,
                "thread": message.thread,
                "sender": message.sender,
                "text": text,
            }
        )
        parts = msgspec.json.encode((message.tenant, self.app, message.chat, message.id))
        reply_id = f"msg_{sha256(parts).hexdigest()[:32]}"
        headers = signed_headers(self._key, reply_id, self._clock(), body)
        try:
            answer = await self._client.post(self._app.reply_url, content=body, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            # Without the cause, which may quote the request.
            raise ChannelUnavailable(CHANNEL, f"does not answer ({type(error).__name__})") from None
        if answer.status_code in _FOR_GOOD:
            raise ReplyRefused(f"status {answer.status_code}")
        if not answer.is_success:
            raise ChannelUnavailable(CHANNEL, f"answers with status {answer.status_code}", _retry_after(answer))

    async def has_reply(self, message: IncomingMessage) -> bool:
        """A receiver recognises a repeated reply by its id at any time."""
        return False

    async def show_progress(self, message: IncomingMessage, text: str, card_id: str | None) -> str | None:
        """Nothing: the receiver gets whole replies only."""
        return None


def _retry_after(answer: httpx.Response) -> timedelta | None:
    seconds = answer.headers.get("retry-after", "")
    return min(timedelta(seconds=int(seconds[:9])), _LONGEST_WAIT) if re.fullmatch(r"[0-9]+", seconds) else None
