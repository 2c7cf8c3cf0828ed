"""The chats of the platform: people, messages, and how both look in events and in the message list."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tenuto.ports import Clock
from tests.lark_platform.callbacks import LarkCredentials, Payload

T = TypeVar("T")
BOT = "ou_bot"
BOT_NAME = "Tenuto"
MESSAGE_EVENT = "im.message.receive_v1"
_CONTENTS: dict[str, Payload] = {
    "image": {"image_key": "img_v3_0001"},
    "file": {"file_key": "file_v3_0001", "file_name": "plan.pdf"},
    "audio": {"file_key": "file_v3_0002", "duration": 2000},
    "media": {"file_key": "file_v3_0003", "image_key": "img_v3_0002", "file_name": "film.mp4", "duration": 5000},
    "sticker": {"file_key": "file_v3_0004"},
}


@dataclass(kw_only=True)
class Chat:
    """A chat of the bot and one person, or a group; `messages` in the order of their creation."""

    id: str
    group: bool
    members: tuple[str, ...]
    messages: list[Message] = field(default_factory=list)
    bot_inside: bool = True


@dataclass(kw_only=True)
class Message:
    """A message of a person or of the bot. `created` and `updated` are milliseconds; `content` is JSON."""

    id: str
    chat: Chat
    sender: str
    kind: str
    content: str
    created: int
    mentions: tuple[str, ...] = ()
    parent: Message | None = None
    thread: str | None = None
    updated: int | None = None
    recalled: bool = False

    @property
    def by_bot(self) -> bool:
        """Whether the bot sent it."""
        return self.sender == BOT

    @property
    def text(self) -> str:
        """What a person reads: the words of a text, a post or a card."""
        return "\n".join(_words(json.loads(self.content)))

    @property
    def root(self) -> Message:
        """The message at the beginning of its replies."""
        return self if self.parent is None else self.parent.root


@dataclass(frozen=True)
class Event:
    """An event of the app: its payload as the platform delivers it each time, and the message that it is about."""

    payload: Payload
    message: Message | None = None

    @property
    def id(self) -> str:
        """The id that stays the same in every delivery."""
        return str(self.payload["header"]["event_id"])


@dataclass(kw_only=True)
class World:
    """What the platform knows, and how often it was asked what."""

    app: LarkCredentials
    clock: Clock
    chats: dict[str, Chat] = field(default_factory=dict)
    messages: dict[str, Message] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def now(self) -> int:
        """Milliseconds, as the platform counts time."""
        return int(self.clock().timestamp() * 1000)

    def add_chat(self, *members: str, group: bool) -> Chat:
        """A new chat of the bot with these people."""
        chat = Chat(id=_new_id("oc"), group=group, members=members)
        self.chats[chat.id] = chat
        return chat

    def add_message(self, chat: Chat, sender: str, kind: str, content: str, **fields: Any) -> Message:
        """A new message in a chat."""
        new = Message(
            id=_new_id("om"), chat=chat, sender=sender, kind=kind, content=content, created=self.now(), **fields
        )
        chat.messages.append(new)
        self.messages[new.id] = new
        self.announce()
        return new

    def count(self, kind: str) -> None:
        """Note a request of the bot."""
        self.requests[kind] += 1
        self.announce()

    def announce(self) -> None:
        """Wake the tasks that wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, find: Callable[[], T | None], seconds: float) -> T:
        """What `find` returns, once it is something."""
        async with asyncio.timeout(seconds):
            while (found := find()) is None:
                await self._changed.wait()
        return found

    def make_event(self, kind: str, event: Payload, message: Message | None = None) -> Event:
        """An event of the second schema."""
        header = {
            "event_id": secrets.token_hex(16),
            "event_type": kind,
            "create_time": str(self.now()),
            "token": self.app.verification_token,
            "app_id": self.app.app_id,
            "tenant_key": self.app.tenant_key,
        }
        return Event({"schema": "2.0", "header": header, "event": event}, message)

    def message_event(self, message: Message) -> Event:
        """The event that tells the bot of a message."""
        tenant = self.app.tenant_key
        sender = {"sender_id": _user_id(message.sender), "sender_type": "user", "tenant_key": tenant}
        mentions = [
            {"key": key, "id": _user_id(who), "name": name_of(who), "tenant_key": tenant}
            for key, who in mention_keys(message)
        ]
        told = {
            **_common(message),
            "chat_type": "group" if message.chat.group else "p2p",
            "message_type": message.kind,
            "content": message.content,
            **({"mentions": mentions} if mentions else {}),
        }
        return self.make_event(MESSAGE_EVENT, {"sender": sender, "message": told}, message)

    def listed(self, message: Message) -> Payload:
        """A message as lists and answers show it."""
        tenant = self.app.tenant_key
        sender = {"id": message.sender, "id_type": "open_id", "sender_type": "user", "tenant_key": tenant}
        if message.by_bot:
            sender |= {"id": self.app.app_id, "id_type": "app_id", "sender_type": "app"}
        mentions = [
            {"key": key, "id": who, "id_type": "open_id", "name": name_of(who), "tenant_key": tenant}
            for key, who in mention_keys(message)
        ]
        return {
            **_common(message),
            "msg_type": message.kind,
            "deleted": message.recalled,
            "updated": message.updated is not None,
            "sender": sender,
            "body": {"content": "This message was recalled" if message.recalled else message.content},
            **({"mentions": mentions} if mentions else {}),
        }


def content_of(kind: str, text: str, mentions: Sequence[str], pictures: Sequence[str] = ()) -> str:
    """The content of a person's message, with the marks of its mentions before its words; a post has pictures below."""
    keys = [f"@_user_{place}" for place in range(1, len(mentions) + 1)]
    if kind == "text":
        content: Payload = {"text": " ".join([*keys, text])}
    elif kind == "post":
        marks = [
            {"tag": "at", "user_id": key, "user_name": name_of(who)} for key, who in zip(keys, mentions, strict=True)
        ]
        lines = [[{"tag": "text", "text": line, "style": []}] for line in text.splitlines() or [""]]
        content = {"title": "", "content": [[*marks, *lines[0]], *lines[1:]]}
        content["content"] += [[{"tag": "img", "image_key": key}] for key in pictures]
    else:
        content = _CONTENTS[kind]
    return json.dumps(content, ensure_ascii=False)


def mention_keys(message: Message) -> list[tuple[str, str]]:
    """The marks in a message's content, and the people behind them."""
    return [(f"@_user_{place}", who) for place, who in enumerate(message.mentions, 1)]


def name_of(user: str) -> str:
    """The name that people see."""
    return BOT_NAME if user == BOT else user.removeprefix("ou_").capitalize()


def _common(message: Message) -> Payload:
    """What events and lists say of a message alike; absent fields are left out, as the platform does."""
    parent, thread = message.parent, message.thread
    return {
        "message_id": message.id,
        "chat_id": message.chat.id,
        "create_time": str(message.created),
        "update_time": str(message.updated or message.created),
        **({"root_id": message.root.id, "parent_id": parent.id} if parent is not None else {}),
        **({"thread_id": thread} if thread is not None else {}),
    }


def _user_id(user: str) -> Payload:
    name = user.removeprefix("ou_")
    return {"open_id": user, "union_id": f"on_{name}", "user_id": name}


def _new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


def _words(node: Any) -> list[str]:
    if isinstance(node, list):
        return [word for one in node for word in _words(one)]
    if not isinstance(node, dict):
        return []
    found = []
    for key, value in node.items():
        if key in ("text", "content") and isinstance(value, str):
            found.append(value)
        elif key != "header":
            found += _words(value)
    return found
