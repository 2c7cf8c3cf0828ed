"""Messages split into sentences, English and Chinese, each with its speaker; tool outputs condensed to one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from tenuto.model.graphemes import boundary_after, boundary_before
from tenuto.model.message import Message, Role, offline_only_turns
from tenuto.model.patterns import lazy_pattern
from tenuto.model.values import Json, JsonObject
from tenuto.recall.lexical import split_sentences

# The most characters that are read of all messages together; each message has its share, from both its ends.
_READ: Final = 200_000
_LEAST_SHARE: Final = 400
_HEAD_SHARE: Final = 0.7
_LONGEST: Final = 220
_LONGEST_CHINESE: Final = 90
_LISTED: Final = 4
_VALUE: Final = 60

_CODE: Final = lazy_pattern(r"```.*?(?:```|\Z)", re.DOTALL)
_MARKUP: Final = lazy_pattern(r"^\s*(?:#{1,6}|[-*•>|]|\d{1,2}[.)、])\s*|\*\*|__|`|\|")
_CLAUSE: Final = lazy_pattern(r"[,，、;；:：—–]\s*")
_HAN: Final = lazy_pattern(r"[\u3400-\u9fff]")


class Sentence(msgspec.Struct, frozen=True):
    """One sentence on one line. `message` and `place` order it; `chatter` marks the offline model's own words."""

    text: str
    role: Role
    message: int
    place: int
    chatter: bool = False


def message_sentences(messages: Sequence[Message], redact: Callable[[str], str] = str) -> list[Sentence]:
    """The messages, sentence by sentence. A message is redacted as a whole, before anything is taken from it."""
    share = max(_LEAST_SHARE, _READ // max(1, len(messages)))
    calls: dict[str, str] = {}
    chatter = offline_only_turns(messages)
    sentences: list[Sentence] = []
    for number, message in enumerate(messages):
        if message.role is Role.ITEM:
            continue
        idle = message.role is Role.ASSISTANT and message.turn in chatter
        texts = plain_sentences(_both_ends(redact(message.text), share)) if message.text.strip() else []
        lines = [(text, message.role) for text in texts]
        lines += [(redact(line), Role.TOOL) for line in _tool_lines(message, calls)]
        sentences += [Sentence(text, role, number, place, idle) for place, (text, role) in enumerate(lines)]
    return sentences


def plain_sentences(text: str) -> list[str]:
    """The sentences of a text without code and markup, each on one line and none too long."""
    lines = _CODE.sub("\n", text).splitlines()
    plain = "\n".join(" ".join(_MARKUP.sub(" ", line).split()) for line in lines)
    return [shorten(sentence) for sentence in split_sentences(plain)]


def shorten(sentence: str, limit: int | None = None) -> str:
    """The sentence, or its first clauses and an ellipsis."""
    if limit is None:
        start = sentence[:_LONGEST]
        limit = _LONGEST_CHINESE if len(_HAN.findall(start)) * 3 > len(start) else _LONGEST
    if len(sentence) <= limit:
        return sentence
    ends = [match.start() for match in _CLAUSE.finditer(sentence, limit // 2, limit)]
    end = ends[-1] if ends else sentence.rfind(" ", limit // 2, limit)
    return sentence[: boundary_before(sentence, end if end > 0 else limit - 1)].rstrip() + "…"


def condense(value: Json) -> str:
    """A tool's arguments or output in a few words: single values by name, lists by their length and first entries."""
    if value is None or value in ("", [], {}):
        return ""
    match value:
        case str():
            return shorten(next(iter(plain_sentences(value[: _LONGEST * 4])), ""), _LONGEST // 2)
        case dict():
            return ", ".join(_fields(value))
        case list() | tuple():
            names = [name for name in map(_name, value[:_LISTED]) if name]
            return f"{len(value)}: " + ", ".join(names) if names else str(len(value))
        case _:
            return str(value)


def _both_ends(text: str, share: int) -> str:
    if len(text) <= share:
        return text
    head = boundary_before(text, int(share * _HEAD_SHARE))
    tail = boundary_after(text, len(text) - (share - int(share * _HEAD_SHARE)))
    return f"{text[:head]}\n{text[tail:]}"


def _tool_lines(message: Message, calls: dict[str, str]) -> Iterator[str]:
    """Tool results in a few words, each behind its call; `calls` carries the calls from message to message."""
    for part in message.parts:
        if part["type"] == "tool_call":
            calls[str(part.get("id"))] = f"{part.get('name', '')}({condense(part.get('arguments'))})"
        elif part["type"] == "tool_result":
            output = condense(part.get("output"))
            call = calls.get(str(part.get("call_id")), "")
            if output or call:
                yield shorten(" ".join(f"{call} → {output}".split()))


def _fields(value: JsonObject) -> Iterator[str]:
    for name, item in list(value.items())[: _LISTED * 2]:
        if isinstance(item, list | tuple):
            yield f"{name} {condense(item)}"
        elif isinstance(item, dict):
            yield f"{name} ({_name(item)})"
        elif item is not None and item != "":
            yield f"{name}={shorten(' '.join(str(item).split()), _VALUE)}"


def _name(item: Json) -> str:
    """What stands for an entry of a list: its name or title, or itself if it is a single value."""
    if isinstance(item, dict):
        keys = ("name", "title", "label", "subject", "text", "id")
        item = next((item[key] for key in keys if isinstance(item.get(key), str | int)), "")
    return shorten(" ".join(str(item).split()), _VALUE) if isinstance(item, str | int | float) else ""
