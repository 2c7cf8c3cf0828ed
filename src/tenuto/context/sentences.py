"""Talk taken apart into sentences, English and Chinese, each with who said it; tools' outputs in a few words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from tenuto.model.graphemes import boundary_after, boundary_before
from tenuto.model.message import Message, Role, chatter_in
from tenuto.model.stops import ends_sentence
from tenuto.model.values import Json, JsonObject

# However long the talk is, so much of it is looked at; a message has its share, from its beginning and its end.
_LOOK_AT: Final = 200_000
_LEAST_SHARE: Final = 400
_HEAD_SHARE: Final = 0.7
_LONGEST: Final = 220
_LONGEST_CHINESE: Final = 90
_LISTED: Final = 4
_VALUE: Final = 60

_COUNTS: Final = re.compile(r"^\d{1,2}\.$")
_END: Final = re.compile(r"[。！？；…]+[”’」』）)\"']*|(?<![.!?])[.!?]++[\"')\]]*+(?=\s|$)|;(?=\s)")
_CODE: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_MARKS: Final = re.compile(r"^\s*(?:#{1,6}|[-*•>|]|\d{1,2}[.)、])\s*|\*\*|__|`|\|")
_CLAUSE: Final = re.compile(r"[,，、;；:：—–]\s*")
_HAN: Final = re.compile(r"[\u3400-\u9fff]")


class Sentence(msgspec.Struct, frozen=True):
    """One sentence on one line. `message` and `place` order it; `opens` and `closes` its message's first and last.

    `chatter` is what the offline model said of itself, or only quoted.
    """

    text: str
    role: Role
    message: int
    place: int
    opens: bool = False
    closes: bool = False
    chatter: bool = False


def sentences_of(messages: Sequence[Message], redact: Callable[[str], str] = str) -> list[Sentence]:
    """The talk, sentence by sentence. What is redacted is the whole message, before anything is taken out of it."""
    share = max(_LEAST_SHARE, _LOOK_AT // max(1, len(messages)))
    called: dict[str, str] = {}
    chatter = chatter_in(messages)
    found: list[Sentence] = []
    for number, message in enumerate(messages):
        if message.role is Role.ITEM:
            continue
        idle = message.role is Role.ASSISTANT and message.turn in chatter
        parts = split(_within(redact(message.text), share)) if message.text.strip() else []
        tools = [redact(told) for told in _tools(message, called)]
        said = [(text, message.role) for text in parts] + [(told, Role.TOOL) for told in tools]
        found += [
            Sentence(text, role, number, place, place == 0, place == len(said) - 1, idle)
            for place, (text, role) in enumerate(said)
        ]
    return found


def split(text: str) -> list[str]:
    """The sentences of a text, each on one line and none too long; lines and list items are sentences too."""
    plain = _CODE.sub(" […] ", text)
    return [
        shortened(sentence)
        for line in plain.splitlines()
        for sentence in _sentences(" ".join(_MARKS.sub(" ", line).split()))
    ]


def shortened(sentence: str, longest: int | None = None) -> str:
    """The sentence, or its first clauses and an ellipsis."""
    most = longest or _longest(sentence[:_LONGEST])
    if len(sentence) <= most:
        return sentence
    ends = [match.start() for match in _CLAUSE.finditer(sentence, most // 2, most)]
    end = ends[-1] if ends else _word_end(sentence, most)
    return sentence[: boundary_before(sentence, end)].rstrip() + "…"


def _longest(start: str) -> int:
    return _LONGEST_CHINESE if len(_HAN.findall(start)) * 3 > len(start) else _LONGEST


def _word_end(sentence: str, most: int) -> int:
    blank = sentence.rfind(" ", most // 2, most)
    return blank if blank > 0 else most - 1


def _sentences(line: str) -> Iterator[str]:
    start = 0
    for match in _END.finditer(line):
        if match[0] == "." and (_COUNTS.match(line[start : match.end()]) or not ends_sentence(line, match.start())):
            continue
        yield from _worded(line[start : match.end()])
        start = match.end()
    yield from _worded(line[start:])


def _worded(sentence: str) -> Iterator[str]:
    sentence = sentence.strip()
    if any(character.isalnum() for character in sentence):
        yield sentence


def _within(text: str, share: int) -> str:
    if len(text) <= share:
        return text
    head = boundary_before(text, int(share * _HEAD_SHARE))
    tail = boundary_after(text, len(text) - (share - int(share * _HEAD_SHARE)))
    return f"{text[:head]}\n{text[tail:]}"


def _tools(message: Message, called: dict[str, str]) -> Iterator[str]:
    """What tools answered, in a few words; calls lend their names to their results."""
    for part in message.parts:
        match part["type"]:
            case "tool_call":
                name = str(part.get("name", ""))
                called[str(part.get("id"))] = f"{name}({condensed(part.get('arguments'))})"
            case "tool_result":
                told = condensed(part.get("output"))
                call = called.get(str(part.get("call_id")), "")
                if told or call:
                    yield shortened(" ".join(f"{call} → {told}".split()))
            case _:
                continue


def condensed(value: Json) -> str:
    """A tool's arguments or output in a few words: single values by name, lists by their length and first entries."""
    if value is None or value in ("", [], {}):
        return ""
    match value:
        case str():
            first = next(iter(split(value[: _LONGEST * 4])), "")
            return shortened(first, _LONGEST // 2)
        case dict():
            return ", ".join(_fields(value))
        case list() | tuple():
            named = [name for name in map(_named, value[:_LISTED]) if name]
            return f"{len(value)}: " + ", ".join(named) if named else str(len(value))
        case _:
            return str(value)


def _fields(value: JsonObject) -> list[str]:
    told: list[str] = []
    for name, item in list(value.items())[: _LISTED * 2]:
        if isinstance(item, list | tuple):
            told.append(f"{name} {condensed(item)}")
        elif isinstance(item, dict):
            told.append(f"{name} ({_named(item)})")
        elif item is not None and item != "":
            told.append(f"{name}={shortened(' '.join(str(item).split()), _VALUE)}")
    return told


def _named(item: Json) -> str:
    """What stands for an entry of a list: its name or title, or itself if it is a single value."""
    if isinstance(item, dict):
        wanted = ("name", "title", "label", "subject", "text", "id")
        item = next((item[key] for key in wanted if isinstance(item.get(key), str | int)), "")
    return shortened(" ".join(str(item).split()), _VALUE) if isinstance(item, str | int | float) else ""
