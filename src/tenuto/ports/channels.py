"""The port of a chat platform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tenuto.model.channel import ChatFile, ChatLine, Delivery, Incoming, IncomingMessage


class Channel(Protocol):
    """An app on a chat platform: it reads what the platform delivers, and sends replies."""

    @property
    def name(self) -> str:
        """The platform, as in `Scope.channel`."""
        ...

    @property
    def app(self) -> str:
        """The app's id on its platform."""
        ...

    def verify(self, delivery: Delivery) -> None:
        """Return if the platform sent this delivery to this app, not long ago.

        Raises:
            DeliveryRefused: it did not, or nothing proves it.
        """
        ...

    async def parse(self, delivery: Delivery) -> Incoming:
        """The message of a verified delivery, and the body that acknowledges it.

        Raises:
            DeliveryRefused: it cannot be read.
            ChannelUnavailable: the platform must be asked first, and does not answer.
        """
        ...

    async def chat_context(self, message: IncomingMessage, limit: int) -> Sequence[ChatLine]:
        """The newest messages before this one that other people wrote in its group, oldest first.

        Raises:
            ChannelUnavailable: the platform does not answer.
        """
        ...

    async def reply(self, message: IncomingMessage, text: str, card_id: str | None = None) -> None:
        """Answer a message, once: the same reply again has no effect. It replaces the progress in `card_id`.

        Raises:
            ReplyRefused: the message can no longer be answered.
            ChannelUnavailable: a retry may succeed.
        """
        ...

    async def has_reply(self, message: IncomingMessage) -> bool:
        """Whether the platform shows a reply of this app to a message, for when it may not recognise one any more.

        Raises:
            ChannelUnavailable: the platform does not answer.
        """
        ...

    async def show_progress(self, message: IncomingMessage, text: str, card_id: str | None) -> str | None:
        """Show the answer as far as it is, in place of what `card_id` shows; returns the id for the next part.

        `None` if the platform or the settings do without.

        Raises:
            ReplyRefused: the message can no longer be answered.
            ChannelUnavailable: a retry may succeed.
        """
        ...


@runtime_checkable
class FileChannel(Protocol):
    """A channel whose platform gives the content of what its messages show."""

    async def download(self, message: IncomingMessage, file: ChatFile, limit: int) -> bytes:
        """The content of a file of a message.

        Raises:
            TooLarge: it has more bytes than the limit.
            Invalid: the platform does not give it.
            ChannelUnavailable: a retry may succeed.
        """
        ...
