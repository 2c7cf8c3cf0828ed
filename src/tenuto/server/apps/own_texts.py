"""Texts that an app writes into the messages of its users: they are instructions of the turn, and no talk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from tenuto.context import TokenCounter
from tenuto.model import Draft, Role

_TEXTS: Final = ("text", "input_text")
_counter: Final = TokenCounter()


class Talk(NamedTuple):
    """Messages without the texts of the app, and those texts, each once and in their order."""

    messages: tuple[Draft, ...]
    instructions: tuple[str, ...]


def without_own_texts(messages: Sequence[Draft], marks: Sequence[tuple[str, str]]) -> Talk:
    """Take an app's own texts out of the messages of its user.

    They stand at the beginning or at the end of a text: what a user quotes within a sentence stays. A message of which
    nothing is left is left out.
    """
    if not marks:
        return Talk(tuple(messages), ())
    talk: list[Draft] = []
    own: dict[str, None] = {}
    for message in messages:
        if message.role is not Role.USER:
            talk.append(message)
            continue
        parts = []
        for part in message.parts:
            if part.get("type") not in _TEXTS or not isinstance(part.get("text"), str):
                parts.append(part)
                continue
            rest, blocks = _peel(part["text"], marks)
            own |= dict.fromkeys(blocks)
            if not blocks:
                parts.append(part)
            elif rest:
                parts.append({**part, "text": rest})
        if parts == list(message.parts):
            talk.append(message)
        elif parts:
            talk.append(replace(message, parts=tuple(parts), tokens=_counter.count_parts(parts)))
    return Talk(tuple(talk), tuple(own))


def _peel(text: str, marks: Sequence[tuple[str, str]]) -> tuple[str, list[str]]:
    """A text without the blocks at its two ends, and those blocks in their order."""
    first: list[str] = []
    last: list[str] = []
    rest, before = text.strip(), None
    while rest != before:
        before = rest
        for begin, end in marks:
            if rest.startswith(begin) and (at := rest.find(end)) > 0:
                first.append(rest[: at + len(end)])
                rest = rest[at + len(end) :].strip()
            elif rest.endswith(end) and (at := rest.rfind(begin)) > 0:
                last.insert(0, rest[at:])
                rest = rest[:at].strip()
    return (rest, first + last) if first or last else (text, [])
