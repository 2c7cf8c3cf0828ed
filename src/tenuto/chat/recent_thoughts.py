"""What models thought before they called tools of a request that is stored nowhere.

Providers demand these thoughts back with the outputs of the calls, and the messages of chat completions have no place
for them. So they are held for the next request of the same caller, in this process alone and for a limited time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from tenuto.chat.request import Reply
from tenuto.lru_cache import LruCache
from tenuto.model import Draft, Message, Role, Scope
from tenuto.model.message import readable_part
from tenuto.model.reasoning import is_reasoning, may_return
from tenuto.model.values import Json, JsonObject
from tenuto.ports import Clock

_MOST: Final = 10_000
_MOST_BYTES: Final = 16 * 1024 * 1024
_KEPT: Final = timedelta(hours=1)
_Said = TypeVar("_Said", Draft, Message)
_Key: TypeAlias = tuple[str, ...]


class _Answer(NamedTuple):
    parts: tuple[JsonObject, ...]
    size: int
    until: datetime


class RecentThoughts:
    """The answers with thoughts and calls that were used in the last hour, each by its caller and its first call."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: LruCache[_Key, _Answer] = LruCache(
            _MOST, most_weight=_MOST_BYTES, weigh=lambda answer: answer.size
        )

    def keep(self, scope: Scope, reply: Reply) -> None:
        """Hold an answer whose calls the caller runs, if its provider may demand the thoughts in it."""
        now = self._clock()
        while (oldest := next(iter(self._answers), None)) is not None:
            if (answer := self._answers.peek(oldest)) is not None and answer.until > now:
                break
            self._answers.drop_oldest()
        if reply.calls and any(map(may_return, reply.parts)):
            size = len(msgspec.json.encode(reply.parts))
            self._answers.put(_key(scope, reply.calls[0].id), _Answer(reply.parts, size, now + _KEPT))

    def give_back(self, scope: Scope, messages: Sequence[_Said]) -> tuple[_Said, ...]:
        """The messages, those of answers as these were given; a caller that brings thoughts itself has all of them."""
        if not self._answers or any(is_reasoning(part) for message in messages for part in message.parts):
            return tuple(messages)
        return tuple([self._as_given(scope, message) for message in messages])

    def clear(self) -> None:
        """Drop everything."""
        self._answers.clear()

    def _as_given(self, scope: Scope, message: _Said) -> _Said:
        if message.role is not Role.ASSISTANT:
            return message
        parts = tuple(map(readable_part, message.parts))
        first = next((part["id"] for part in parts if part["type"] == "tool_call"), None)
        key = _key(scope, first) if first is not None else ()
        answer = self._answers.peek(key)
        now = self._clock()
        if answer is None or answer.until <= now or _said(answer.parts) != _said(parts):
            return message
        self._answers.put(key, answer._replace(until=now + _KEPT))
        return replace(message, parts=answer.parts)


def _key(scope: Scope, call_id: str) -> _Key:
    return (scope.tenant, scope.site, *scope.owner, call_id)


def _said(parts: Sequence[JsonObject]) -> tuple[str, list[tuple[Json, Json, Json]]]:
    """What a message says and calls, which a client repeats; some trim the text."""
    text = "".join([part["text"] for part in parts if part["type"] == "text"])
    calls = [(part["id"], part["name"], _read(part["arguments"])) for part in parts if part["type"] == "tool_call"]
    return text.strip(), calls


def _read(arguments: Json) -> Json:
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(arguments) if isinstance(arguments, str) else arguments
    return arguments
