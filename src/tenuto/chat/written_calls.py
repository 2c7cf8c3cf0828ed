"""Calls of tools that a model writes as text, as small models do: a JSON object with the name of an offered tool.

Only an answer that is nothing else is a call. An object within other text is shown: a user may ask for an example.
What may still become a call is held back, and all else streams on. An object that names an offered tool and is no JSON
becomes a call that the tool refuses: the model is told, and may try again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any, Final

from tenuto.errors import Invalid
from tenuto.model.generation import UNREADABLE, ToolCall
from tenuto.model.values import JsonObject, check_json, make_storable
from tenuto.sessions import fresh_id

_NAMES: Final = ("name", "tool", "tool_name", "function", "function_name", "action")
_ARGUMENTS: Final = ("arguments", "parameters", "input", "args", "tool_input", "action_input", "params", "kwargs")
# What may stand first in the object of a call.
_KEYS: Final = (*_NAMES, *_ARGUMENTS, "type", "id", "tool_call", "tool_calls")
# What may stand around an object: a fence, a list, or a mark of the model's own such as <tool_call> or [TOOL_CALLS].
# Bounded, as all of it is held back.
_MARK: Final = r"`{1,8}+\w{0,40}+|<\|?[\w/]{0,40}+\|?>?|\[/?\w{0,40}+\]?"
_BEFORE: Final = re.compile(rf"\s{{0,40}}+(?:(?:{_MARK})\s{{0,40}}+){{0,6}}+", re.ASCII)
# Behind an object also the end of a list, and a brace too many.
_BEHIND: Final = re.compile(rf"\s{{0,40}}+(?:(?:{_MARK}|[\]}},;])\s{{0,40}}+){{0,12}}+", re.ASCII)
_HEAD: Final = re.compile(r'\{\s*+(?:"([^"]*+)(")?+\s*+(?::\s*+(?:"([^"]*+)(")?+)?+)?+)?+')
_DECODER: Final = json.JSONDecoder(strict=False)
# How much is kept of a call that cannot be read: enough for the model to see what it wrote.
_UNREADABLE: Final = 2_000


class WrittenCalls:
    """Splits a model's text into what the user reads, and `calls`, which are known once it has ended."""

    def __init__(self, names: Collection[str]) -> None:
        self.calls: list[ToolCall] = []
        self._names = names
        self._held = ""
        self._read = 0
        self._is_text = not names

    def feed(self, text: str) -> str:
        """The text that is certainly no call."""
        if self._is_text:
            return text
        self._held += text
        while is_call := self._read_object("}" in text):
            pass
        return "" if is_call is None else self._release()

    def flush(self) -> str:
        """The rest, at the end of the answer."""
        if (start := self._find_object()) is not None:
            name = _tool_named_at(self._held, start, self._names)
            if name is None or not _ends_as_call(self._held, start):
                return self._release()
            written = make_storable(self._held[start:])[:_UNREADABLE]
            self.calls.append(ToolCall(id=fresh_id(), name=name, arguments={UNREADABLE: written}))
        return "" if self.calls else self._release()

    def _release(self) -> str:
        held, self._held, self._is_text = self._held, "", True
        self.calls.clear()
        return held

    def _find_object(self) -> int | None:
        """Where the next object begins; `None` as long as there is none."""
        around = (_BEHIND if self.calls else _BEFORE).match(self._held, self._read)
        assert around is not None
        return around.end() if around.end() < len(self._held) else None

    def _read_object(self, closes: bool) -> bool | None:
        """Read what comes next; whether it is a call, and `None` as long as it may become one."""
        start = self._find_object()
        if start is None:
            return None
        if self._held[start] != "{" or not _may_be_call(self._held, start, self._names):
            return False
        if not closes:
            return None
        try:
            written, self._read = _DECODER.raw_decode(self._held, start)
        except json.JSONDecodeError as error:
            # Code is no JSON, however it goes on; what names a tool is held, to be refused.
            is_text = _is_broken(error) and _tool_named_at(self._held, start, self._names) is None
            return False if is_text else None
        except RecursionError:
            return False
        calls = _calls_of(written, self._names)
        self.calls += calls
        return bool(calls)


def read_written_calls(text: str, names: Collection[str]) -> list[ToolCall]:
    """The calls in a whole text."""
    written = WrittenCalls(names)
    written.feed(text)
    written.flush()
    return written.calls


def _may_be_call(text: str, brace: int, names: Collection[str]) -> bool:
    head = _HEAD.match(text, brace)
    assert head is not None
    key, closed, value, ended = head.groups()
    if key is None:
        return head.end() == len(text)
    if not closed:
        return any(known.startswith(key) for known in _KEYS)
    if key not in _KEYS:
        return False
    if key not in _NAMES or value is None:
        return True
    return value in names if ended else any(name.startswith(value) for name in names)


def _tool_named_at(text: str, brace: int, names: Collection[str]) -> str | None:
    """The offered tool that an object names first."""
    head = _HEAD.match(text, brace)
    named = head is not None and head[1] in _NAMES and head[4] and head[3] in names
    return head[3] if head is not None and named else None


def _ends_as_call(text: str, brace: int) -> bool:
    """Whether an object that is no JSON is the rest of the text: cut off, or closed with nothing behind it."""
    try:
        _DECODER.raw_decode(text, brace)
    except json.JSONDecodeError as error:
        behind = _BEHIND.match(text, text.rfind("}") + 1)
        return not _is_broken(error) or (behind is not None and behind.end() == len(text))
    except RecursionError:
        pass
    return False


def _is_broken(error: json.JSONDecodeError) -> bool:
    """Whether a text is no JSON, and not just one that goes on: that one errs where it ends."""
    return not error.msg.startswith(("Unterminated string", "Invalid \\u")) and "}" in error.doc[error.pos :]


def _calls_of(written: Any, names: Collection[str]) -> list[ToolCall]:
    """The calls that a JSON value describes, in the shapes that models learn."""
    if isinstance(written, list):
        return [call for one in written for call in _calls_of(one, names)]
    if not isinstance(written, dict):
        return []
    for key in ("tool_calls", "tool_call", "function"):
        if isinstance(inner := written.get(key), list | dict):
            return _calls_of(inner, names)
    name: str = next((written[key] for key in _NAMES if isinstance(written.get(key), str)), "")
    filled = next((key for key in _ARGUMENTS if key in written), None)
    if name not in names or (filled is None and len(written) > 1):
        return []
    arguments = _read_arguments({} if filled is None else written[filled])
    return [ToolCall(id=fresh_id(), name=name, arguments=arguments)]


def _read_arguments(written: Any) -> JsonObject:
    try:
        arguments: Any = json.loads(written, strict=False) if isinstance(written, str) else written
        check_json(arguments, "a tool's arguments")
    except (ValueError, Invalid):
        arguments = None
    return arguments if isinstance(arguments, dict) else {UNREADABLE: make_storable(str(written))[:_UNREADABLE]}
