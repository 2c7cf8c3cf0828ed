"""The contents of messages: texts and rich texts as plain text, and what we send as the platform wants it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from tenuto.errors import Invalid
from tenuto.model.attachment import AUDIO, FILE, IMAGE, MAX_NAME_CHARACTERS
from tenuto.model.channel import ChatFile, MessageKind

# The platform refuses requests above 150 KB, and those with a card above 30 KB; JSON escapes are counted twice.
_TEXT_BYTES: Final = 120_000
_CARD_BYTES: Final = 24_000
_CUT: Final = " […]"
_KINDS: Final = {
    "image": MessageKind.IMAGE,
    "file": MessageKind.FILE,
    "folder": MessageKind.FILE,
    "audio": MessageKind.AUDIO,
    "media": MessageKind.VIDEO,
}
# Those whose content is downloaded, with the field of its key.
_FILES: Final = {"image": (IMAGE, "image_key"), "file": (FILE, "file_key"), "audio": (AUDIO, "file_key")}
_ELEMENT_KINDS: Final = {"img": MessageKind.IMAGE, "media": MessageKind.VIDEO}
_MENTION: Final = re.compile(r"@_user_\d+")
_MENTION_ALL: Final = re.compile(r"@_all(?!\w)")
# In a text and in a card this tag mentions a person, or everyone.
_AT_TAG: Final = re.compile(r"<(?=/?\s*at\b)", re.IGNORECASE)
# What JSON of clients raises that is not as promised; too many brackets are a RecursionError.
UNREADABLE: Final = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


class Element(msgspec.Struct, frozen=True):
    """A piece of a line of rich text; fields that its tag does not have are empty."""

    tag: str = ""
    text: str | None = None
    href: str | None = None
    user_id: str | None = None
    user_name: str | None = None
    emoji_type: str | None = None
    image_key: str | None = None


class _Post(msgspec.Struct, frozen=True):
    title: str | None = None
    content: list[list[Element]] = []


class _Text(msgspec.Struct, frozen=True):
    text: str = ""


class ChatContent(NamedTuple):
    """What a message says and shows."""

    kind: MessageKind
    text: str = ""
    files: tuple[ChatFile, ...] = ()


_TEXT_DECODER: Final = msgspec.json.Decoder(_Text)


def read_content(message_type: str, content: str, names: Mapping[str, str]) -> ChatContent:
    """The content of a message; `names` are what stands for the keys of its mentions.

    Raises:
        msgspec.MsgspecError, RecursionError: it is not what its type promises.
    """
    if message_type == "text":
        return ChatContent(MessageKind.TEXT, _clean(_name_mentions(_TEXT_DECODER.decode(content).text, names)))
    if message_type == "post":
        return _read_post(content, names)
    kind = _KINDS.get(message_type, MessageKind.OTHER)
    return ChatContent(kind, files=_read_file(message_type, content) if message_type in _FILES else ())


def _read_file(message_type: str, content: str) -> tuple[ChatFile, ...]:
    raw: dict[str, Any] = msgspec.json.decode(content, type=dict[str, Any])
    part_type, field = _FILES[message_type]
    name = raw.get("file_name")
    return tuple(_files(part_type, [raw.get(field)], _clean_name(name) if isinstance(name, str) else ""))


def _files(part_type: str, keys: Iterable[object], name: str = "") -> Iterator[ChatFile]:
    """The files behind keys that are some."""
    for key in keys:
        if isinstance(key, str):
            with suppress(Invalid):
                yield ChatFile(type=part_type, key=key, name=name)


def _clean_name(name: str) -> str:
    return "".join(filter(str.isprintable, _clean(name)))[:MAX_NAME_CHARACTERS]


def _read_post(content: str, names: Mapping[str, str]) -> ChatContent:
    """Rich text comes plain, or below a locale of which the first is taken."""
    raw: dict[str, Any] = msgspec.json.decode(content, type=dict[str, Any])
    documents = [raw] if "content" in raw else [part for part in raw.values() if isinstance(part, dict)]
    post = msgspec.convert(documents[0], _Post) if documents else _Post()
    lines = ["".join(_render(element, names) for element in line) for line in post.content]
    text = _clean("\n".join(line for line in (post.title or "", *lines) if line.strip()))
    keys = dict.fromkeys(element.image_key for line in post.content for element in line if element.tag == "img")
    files = tuple(_files(IMAGE, keys))
    if text:
        return ChatContent(MessageKind.TEXT, text, files)
    default = MessageKind.OTHER if post.content else MessageKind.TEXT
    return ChatContent(next(_other_kinds(post.content), default), files=files)


def _other_kinds(lines: Iterable[Iterable[Element]]) -> Iterator[MessageKind]:
    return (_ELEMENT_KINDS[element.tag] for line in lines for element in line if element.tag in _ELEMENT_KINDS)


def _render(element: Element, names: Mapping[str, str]) -> str:
    match element.tag:
        case "a":
            text, link = element.text or "", element.href or ""
            return f"{text} ({link})" if text and link and text != link else text or link
        case "at":
            return _name_mention(element, names)
        case "emotion":
            return f":{element.emoji_type}:" if element.emoji_type else ""
        case _:
            return _name_mentions(element.text or "", names)


def _name_mention(element: Element, names: Mapping[str, str]) -> str:
    """An at-mark names a key of the mentions, or `all`; the name in the mark is for messages without mentions."""
    if element.user_id in ("all", "@_all"):
        return "@all"
    name = names.get(element.user_id or "")
    return name if name is not None else f"@{element.user_name}" if element.user_name else ""


def _name_mentions(text: str, names: Mapping[str, str]) -> str:
    replaced_text = _MENTION.sub(lambda found: names.get(found[0], found[0]), text)
    return _MENTION_ALL.sub("@all", replaced_text)


def _clean(text: str) -> str:
    """Without characters that no store takes."""
    return _UNSTORABLE.sub("\ufffd", text).strip()


def text_content(text: str) -> str:
    """The content of a text message. No word of the answer mentions a person: a model could be talked into it."""
    return _encode({"text": _cut(_disarm(text), _TEXT_BYTES)})


def card_content(text: str) -> str:
    """The content of a card that shows Markdown and can be updated for everyone who sees it."""
    element = {"tag": "markdown", "content": _cut(_disarm(text), _CARD_BYTES)}
    return _encode({"schema": "2.0", "config": {"update_multi": True}, "body": {"elements": [element]}})


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _disarm(text: str) -> str:
    return _AT_TAG.sub("<\u200b", _UNSTORABLE.sub("\ufffd", text))


def _cut(text: str, limit: int) -> str:
    """A text that takes at most `limit` bytes within the JSON of a content within the JSON of a request."""
    size = 0
    if 7 * len(text) <= limit:
        return text
    for place, character in enumerate(text):
        size += _encoded_size(character)
        if size > limit:
            return text[:place] + _CUT
    return text


def _encoded_size(character: str) -> int:
    if character in '"\\':
        return 4
    if character in "\n\r\t":
        return 3
    return 7 if character < " " else len(character.encode(errors="replace"))
