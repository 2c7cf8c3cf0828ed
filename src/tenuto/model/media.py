"""Pictures, sounds and files in words: what stands in the place of those that a model does not get."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, TypeVar

from msgspec.structs import replace

from tenuto.model.attachment import (
    AUDIO,
    FILE,
    IMAGE,
    REMOVED,
    SHOWING_PARTS,
    URL,
    iter_media_parts,
    map_media,
    media_type_of,
)
from tenuto.model.message import Draft, Message, text_part
from tenuto.model.prompt import Language, PromptMessage
from tenuto.model.values import JsonObject

_Draft = TypeVar("_Draft", bound=Draft)
LEFT_OUT: Final = "left_out"
"""The key of a text part that stands in the place of a picture, a sound or a file: the type of that part."""
_HARMLESS: Final = str.maketrans({"[": "(", "]": ")", "\n": " ", "\r": " "})
_URL_CHARACTERS: Final = 200
_KILO: Final = 1024
_MOST_NAMED: Final = 8
_NOUNS: Final = {
    Language.ENGLISH: {IMAGE: "picture", AUDIO: "sound", FILE: "file"},
    Language.CHINESE: {IMAGE: "图片", AUDIO: "音频", FILE: "文件"},
}
_NOT_SHOWN: Final = {Language.ENGLISH: "not shown", Language.CHINESE: "未显示"}


def describe_media(part: JsonObject, language: Language) -> str:
    """What a picture, a sound or a file is, in words: its kind, its name, its media type and its size."""
    name, size, url = part.get("name"), part.get("size"), part.get(URL)
    facts = [
        name if isinstance(name, str) else "",
        media_type_of(part),
        _size_text(size) if type(size) is int else "",
        url[:_URL_CHARACTERS] if isinstance(url, str) else "",
    ]
    text = f"{_NOUNS[language][part['type']]}: {', '.join(filter(None, facts))}".removesuffix(": ")
    return text.translate(_HARMLESS)


def _size_text(size: int) -> str:
    if size < _KILO:
        return f"{size} B"
    return f"{round(size / _KILO)} kB" if size < _KILO * _KILO else f"{size / _KILO / _KILO:.1f} MB"


def placeholder(part: JsonObject, language: Language) -> JsonObject:
    """The text part that stands in the place of a picture, a sound or a file that the model does not get."""
    text = f"[{describe_media(part, language)}; {_NOT_SHOWN[language]}]"
    return {**text_part(text), LEFT_OUT: part["type"]}


def count_left_out(parts: Iterable[JsonObject]) -> int:
    """How many placeholders there are, also in outputs of tools."""
    count = 0
    for part in parts:
        if LEFT_OUT in part:
            count += 1
        elif part["type"] == "tool_result" and isinstance(output := part.get("output"), list):
            count += sum([isinstance(one, dict) and LEFT_OUT in one for one in output])
    return count


def with_media_named(messages: Sequence[Message], language: Language) -> tuple[Message, ...]:
    """The messages with words for pictures, sounds and files in their places, for texts about a conversation."""

    def name(part: JsonObject) -> JsonObject:
        return text_part(f"\n[{describe_media(part, language)}]")

    if not shows_media(messages):
        return tuple(messages)
    return tuple([replace(message, parts=map_media(message.parts, name), tokens=0) for message in messages])


def with_placeholders(messages: Sequence[Message], language: Language) -> tuple[Message, ...]:
    """The messages with placeholders for pictures, sounds and files, for models that get texts alone."""
    if not shows_media(messages):
        return tuple(messages)
    parts = [map_media(message.parts, lambda part: placeholder(part, language)) for message in messages]
    return tuple([replace(message, parts=shown, tokens=0) for message, shown in zip(messages, parts, strict=True)])


def without_media(messages: tuple[_Draft, ...]) -> tuple[_Draft, ...]:
    """The messages with marks in the places of pictures, sounds and files, and without their bytes."""
    if not shows_media(messages):
        return messages
    return tuple([_without_media(message) for message in messages])


def _without_media(message: _Draft) -> _Draft:
    def mark(part: JsonObject) -> JsonObject:
        return {name: part[name] for name in ("type", "media_type", "size") if name in part} | {REMOVED: True}

    parts = map_media(message.parts, mark)
    return message if parts == message.parts else replace(message, parts=parts, contents=())


def shown_media(messages: Iterable[Message], language: Language) -> list[str]:
    """What these messages show, in words, each once, the newest last."""
    shown = [describe_media(part, language) for message in messages for part in iter_media_parts(message.parts)]
    return list(dict.fromkeys(reversed(shown)))[:_MOST_NAMED][::-1]


def iter_parts(messages: Iterable[PromptMessage]) -> Iterator[JsonObject]:
    """The parts of all messages of a prompt."""
    return chain.from_iterable([message.parts for message in messages])


def shows_media(messages: Iterable[Draft] | Iterable[PromptMessage]) -> bool:
    """Whether a message shows a picture, a sound or a file."""
    # Written out: every message of every prompt passes here, and nearly all are text.
    for message in messages:
        for part in message.parts:
            if part["type"] in SHOWING_PARTS and any(True for _ in iter_media_parts((part,))):
                return True
    return False


def keep_media(
    messages: Sequence[PromptMessage], keep: Callable[[JsonObject], bool], language: Language
) -> tuple[tuple[PromptMessage, ...], int]:
    """A prompt with placeholders for the pictures, sounds and files that are not kept, and how many these are."""
    if not shows_media(messages):
        return tuple(messages), 0
    left_out = 0

    def change(part: JsonObject) -> JsonObject:
        nonlocal left_out
        if keep(part):
            return part
        left_out += 1
        return placeholder(part, language)

    kept = [
        replace(message, parts=map_media(message.parts, change)) if shows_media((message,)) else message
        for message in messages
    ]
    return tuple(kept), left_out
