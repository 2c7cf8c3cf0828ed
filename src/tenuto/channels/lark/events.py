"""What the platform delivers: callbacks are verified, and the event of a message becomes an `IncomingMessage`.

Reading does not verify. A long connection is authenticated when it opens, so its events are read right away.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from tenuto.channels.lark.app import LarkApp
from tenuto.channels.lark.content import UNREADABLE, read_content
from tenuto.channels.lark.crypto import check_signature, decrypt, is_signed, same_text
from tenuto.errors import DeliveryRefused, Invalid
from tenuto.model.channel import Delivery, IncomingMessage

RECEIVED: Final = "im.message.receive_v1"
CHALLENGE: Final = "url_verification"


class _Ids(msgspec.Struct, frozen=True):
    open_id: str | None = None
    user_id: str | None = None
    union_id: str | None = None


class Mention(msgspec.Struct, frozen=True):
    """A mark `@_user_1` in the text, and whom it mentions."""

    key: str = ""
    id: _Ids = _Ids()
    name: str = ""


class _Header(msgspec.Struct, frozen=True):
    event_id: str = ""
    event_type: str = ""
    token: str | None = None
    app_id: str = ""
    tenant_key: str = ""


class _Sender(msgspec.Struct, frozen=True):
    sender_id: _Ids = _Ids()
    sender_type: str = ""
    tenant_key: str = ""


class _Message(msgspec.Struct, frozen=True):
    message_id: str
    chat_id: str
    chat_type: str
    message_type: str
    content: str = ""
    create_time: str | int = 0
    root_id: str | None = None
    thread_id: str | None = None
    mentions: list[Mention] | None = None


class MessageEvent(msgspec.Struct, frozen=True):
    """The event of a message that was sent to a chat."""

    sender: _Sender
    message: _Message


class Envelope(msgspec.Struct, frozen=True):
    """What every delivery has around its event. Those of version 1 have no header."""

    header: _Header | None = None
    type: str = ""
    token: str | None = None
    challenge: str = ""
    event: msgspec.Raw = msgspec.Raw(b"{}")

    @property
    def kind(self) -> str:
        """The type of the event, or of the request."""
        return self.header.event_type if self.header is not None else self.type


class _Sealed(msgspec.Struct, frozen=True):
    encrypt: str | None = None


_SEALED: Final = msgspec.json.Decoder(_Sealed)
_ENVELOPE: Final = msgspec.json.Decoder(Envelope)
_EVENT: Final = msgspec.json.Decoder(MessageEvent)


def verify(app: LarkApp, delivery: Delivery, now: datetime) -> None:
    """Check that the platform sent a callback to this app: by its signature, or by the token without one.

    With an encrypt key, only a challenge may come without a signature; it must be encrypted, and carry the token where
    one is set. Every other body without a signature gets the same refusal, so that none tells how far it was read: the
    encryption has no check of its own, and a difference would let a client decrypt what it has not sent.

    Raises:
        DeliveryRefused: nothing proves it, or it cannot be read.
    """
    if not app.encrypt_key and not app.verification_token:
        raise DeliveryRefused("this app takes no callbacks", forged=True)
    if app.encrypt_key and not is_signed(delivery.headers):
        if not _is_sealed_challenge(app, delivery):
            raise DeliveryRefused("it has no signature and is no challenge with this app's key and token", forged=True)
        return
    if app.encrypt_key:
        check_signature(app.encrypt_key, delivery.headers, delivery.body, now)
    envelope = open_envelope(app, delivery)
    token = _token_of(envelope)
    if not (app.encrypt_key and token is None) and not _is_token(app, token):
        raise DeliveryRefused("the verification token is wrong or missing", forged=True)
    if envelope.header is not None and envelope.header.app_id not in ("", app.app_id):
        raise DeliveryRefused("it is for another app", forged=True)


def _is_sealed_challenge(app: LarkApp, delivery: Delivery) -> bool:
    try:
        envelope = open_envelope(app, delivery)
        is_encrypted = bool(_SEALED.decode(delivery.body).encrypt)
    except DeliveryRefused:
        return False
    return is_encrypted and envelope.header is None and envelope.type == CHALLENGE and _is_token(app, envelope.token)


def _token_of(envelope: Envelope) -> str | None:
    return envelope.header.token if envelope.header is not None else envelope.token


def _is_token(app: LarkApp, token: str | None) -> bool:
    return not app.verification_token or same_text(token or "", app.verification_token)


def open_envelope(app: LarkApp, delivery: Delivery) -> Envelope:
    """The delivery as it was before its encryption.

    Raises:
        DeliveryRefused: it cannot be decrypted or read.
    """
    try:
        body, ciphertext = delivery.body, _SEALED.decode(delivery.body).encrypt
        if ciphertext and not app.encrypt_key:
            raise DeliveryRefused("the event is encrypted, and no encrypt key is set")
        if ciphertext and app.encrypt_key:
            body = decrypt(app.encrypt_key, ciphertext)
        return _ENVELOPE.decode(body)
    except UNREADABLE:
        # Without the cause, which may quote the event.
        raise DeliveryRefused("the event cannot be read") from None


def open_event(envelope: Envelope) -> MessageEvent:
    """The event inside.

    Raises:
        DeliveryRefused: it cannot be read.
    """
    try:
        return _EVENT.decode(envelope.event)
    except UNREADABLE:
        raise DeliveryRefused("the message cannot be read") from None


def read_message(header: _Header, event: MessageEvent, bot: str | None) -> IncomingMessage:
    """The message of an event; `bot` is the bot's open_id, whose mentions are cut.

    The tenant is the app's, not the sender's: a chat of two companies is one chat.

    Raises:
        DeliveryRefused: it lacks what every message has.
    """
    message, sender = event.message, event.sender
    mentions = message.mentions or []
    names = {mention.key: "" if _is_bot(mention, bot) else f"@{mention.name or mention.key}" for mention in mentions}
    group = message.chat_type != "p2p"
    try:
        content = read_content(message.message_type, message.content, names)
        return IncomingMessage(
            id=message.message_id,
            event_id=header.event_id or message.message_id,
            tenant=header.tenant_key or sender.tenant_key,
            chat=message.chat_id,
            sender=sender.sender_id.open_id or sender.sender_id.union_id or sender.sender_id.user_id or "",
            sent_at=read_time(message.create_time),
            text=content.text,
            group=group,
            # A question in a group is the root of what is replied to it.
            thread=message.thread_id or message.root_id or (message.message_id if group else None),
            kind=content.kind,
            files=content.files,
            addressed=not group or any(_is_bot(mention, bot) for mention in mentions),
        )
    except (*UNREADABLE, Invalid):
        raise DeliveryRefused("the message cannot be read") from None


def _is_bot(mention: Mention, bot: str | None) -> bool:
    return bot is not None and mention.id.open_id == bot


def read_time(milliseconds: str | int) -> datetime:
    """A time of the platform, which counts milliseconds."""
    return datetime.fromtimestamp(int(milliseconds) / 1000, UTC)
