"""What passes between a chat platform and the gateway: deliveries, messages, replies; and an app's policy."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from tenuto.errors import Invalid, InvalidSetting
from tenuto.model.attachment import MEDIA_PARTS, check_attachment_name
from tenuto.model.prompt import Language
from tenuto.model.values import JsonObject, Value, check_id, check_text


class Delivery(Value, frozen=True, kw_only=True):
    """A request of a platform as it came: the body byte for byte, and its headers by lower-case names."""

    body: bytes
    headers: Mapping[str, str] = MappingProxyType({})


class MessageKind(StrEnum):
    """What a message of a chat consists of. Texts and files that can be downloaded are read; the others are
    acknowledged in words.

    An `oversized` one was a text that is longer than a message may be, a `withheld` one a text that the privacy policy
    does not let in.
    """

    TEXT = "text"
    IMAGE = "image"
    FILE = "file"
    AUDIO = "audio"
    VIDEO = "video"
    OTHER = "other"
    OVERSIZED = "oversized"
    WITHHELD = "withheld"


class ChatFile(Value, frozen=True, kw_only=True):
    """A picture, a sound or a file that a message shows, by the key under which its platform has the content."""

    type: str
    key: str
    name: str = ""

    def __post_init__(self) -> None:
        if self.type not in MEDIA_PARTS:
            raise Invalid(f"a file's type must be one of {', '.join(sorted(MEDIA_PARTS))}")
        check_id(self.key, "a file's key")
        check_attachment_name(self.name)


class IncomingMessage(Value, frozen=True, kw_only=True):
    """A message that a person sent to a chat, with the ids of its platform.

    `sender` is the person who sent this message (D18). `thread` is the topic that it belongs to inside a group, where
    a message may begin its own, and `addressed` whether it is meant for the bot: always in a chat of two, in a group if
    it mentions the bot, which the text then leaves out. `files` are what it shows beside the text, or without one.
    """

    id: str
    event_id: str
    tenant: str
    chat: str
    sender: str
    sent_at: datetime
    text: str = ""
    group: bool = False
    thread: str | None = None
    sender_name: str = ""
    kind: MessageKind = MessageKind.TEXT
    addressed: bool = True
    files: tuple[ChatFile, ...] = ()

    def __post_init__(self) -> None:
        for what in ("id", "event_id", "tenant", "chat", "sender"):
            check_id(getattr(self, what), f"the message's {what}")
        if self.thread is not None:
            check_id(self.thread, "the message's thread")
        check_text(self.text, "the message")
        check_text(self.sender_name, "the sender's name")


class Incoming(Value, frozen=True, kw_only=True):
    """What a delivery holds. Without a `message` there is nothing to answer, and `ignored` says why, for the log.

    `answer` is the body that the platform expects at once.
    """

    message: IncomingMessage | None = None
    ignored: str = ""
    answer: JsonObject = {}


class ChatLine(Value, frozen=True, kw_only=True):
    """A message that other people wrote in a group, as the platform's list shows it (D8)."""

    sender: str
    text: str
    sent_at: datetime
    sender_name: str = ""


class SessionMode(StrEnum):
    """Whether the messages of a chat share a session or each gets its own, without memory (D7)."""

    STABLE = "stable"
    FRESH = "fresh"


class GroupScope(StrEnum):
    """Who shares a session in a group: the whole chat, those in a thread, or each member alone (D16)."""

    CHAT = "chat"
    THREAD = "thread"
    MEMBER = "member"


class ResetBy(StrEnum):
    """Who may reset the session of a group (D26)."""

    ANYONE = "anyone"
    LISTED = "listed"


class ChannelPolicy(Value, frozen=True, kw_only=True):
    """How an app's messages become turns.

    `chat_context` is the number of other people's messages in a group that a prompt may contain; 0 turns it off. With
    `mentioned_only` a group is answered only if it mentions the bot. `resetters` are the senders that may reset a group
    if that is not everyone's. At most `max_waiting` messages of a chat wait for their turn; the platform is asked to
    deliver others again later. A delivery is recognised for `remember_events`. The gateway itself speaks the `language`
    where a chat has shown none yet.
    """

    assistant: str | None = None
    prefix: str = "chat"
    session_mode: SessionMode = SessionMode.STABLE
    group_scope: GroupScope = GroupScope.CHAT
    chat_context: int = 25
    mentioned_only: bool = True
    reset_by: ResetBy = ResetBy.ANYONE
    resetters: tuple[str, ...] = ()
    max_waiting: int = 100
    remember_events: timedelta = timedelta(hours=24)
    language: Language = Language.CHINESE

    def __post_init__(self) -> None:
        check_id(self.prefix, "the prefix of session ids")
        if not 0 <= self.chat_context <= 50:
            raise InvalidSetting("chat_context", "must lie between 0 and 50")
        if not 1 <= self.max_waiting <= 1000:
            raise InvalidSetting("max_waiting", "must lie between 1 and 1000")
        if self.remember_events < timedelta(hours=8):
            raise InvalidSetting("remember_events", "must be at least 8h: platforms deliver again for up to 7 hours")
