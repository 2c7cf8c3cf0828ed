"""Calls of tools that a model writes as text, as small models do: a JSON object with the name of an offered tool.

Text streams on; only what may still become such a call is held back, so that no user reads it. An object that names no
offered tool is text like any other. One that does is a call, and what follows it was made up. Between text it may be an
example that the user asked for: as one that is no JSON, it becomes a call that the tool refuses; the model is told, and
may try again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
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
# Bounded, as all of it is held back and is read again with each piece.
_AROUND: Final = r"(?:`{1,8}+\w{0,40}+\s{0,40}+|<\|?[\w/]{0,40}+\|?>?\s{0,40}+|\[\w{0,40}+\]?\s{0,40}+)"
_START: Final = re.compile(rf"{_AROUND}{{0,6}}+\{{|{_AROUND}{{1,6}}+\Z", re.ASCII)
# Most pieces of a stream have none of these.
_BEGINS: Final = re.compile(r"[`<\[{]")
_HEAD: Final = re.compile(r'\{\s*+(?:"([^"]*+)(")?+\s*+(?::\s*+(?:"([^"]*+)(")?+)?+)?+)?+')
# What may stand behind the object of a call that ends an answer, a brace too many included.
_END: Final = re.compile(r"[\s`;,\]}]*+(?:</?\|?[\w/]{0,40}+\|?>\s*+|\[/?\w{0,40}+\]\s*+)*+", re.ASCII)
_DECODER: Final = json.JSONDecoder(strict=False)
# How much is kept of a call that cannot be read: enough for the model to see what it wrote.
_UNREADABLE: Final = 2_000


class WrittenCalls:
    """Splits a model's text into what the user reads, and `calls`, which are known once it has ended."""

    def __init__(self, names: Collection[str]) -> None:
        self.calls: list[ToolCall] = []
        self._names = names
        self._held = ""
        self._closes = False
        self._has_text = False
        self._is_refused = False

    def feed(self, text: str) -> str:
        """The text that is certainly no call."""
        if not self._names:
            return text
        if not (self._held or self.calls or _BEGINS.search(text)):
            self._has_text |= not text.isspace()
            return text
        self._held += text
        self._closes = "}" in text
        return "".join(map(self._release, self._read()))

    def flush(self) -> str:
        """The rest, at the end of the answer."""
        held, self._held = self._held, ""
        start = held.find("{")
        name = _tool_named_at(held, start, self._names) if start >= 0 else None
        if name is not None:
            self.calls.append(_refused(name, held[start:]))
            return ""
        rest = self._release(held)
        if self._is_refused:
            self.calls = [_refused(call.name, call.arguments_text) for call in self.calls]
        return rest

    def _release(self, text: str) -> str:
        """The part of a piece of text that the user reads."""
        if not self.calls:
            self._has_text |= bool(text) and not text.isspace()
            return text
        self._is_refused |= self._has_text and _END.fullmatch(text) is None
        return ""

    def _read(self) -> Iterator[str]:
        done = 0
        while (start := _START.search(self._held, done)) is not None:
            yield self._held[done : start.start()]
            done = start.start()
            if self._held[start.end() - 1] != "{":
                break
            known = len(self.calls)
            end = self._judge(start.end() - 1)
            if end is None:
                break
            if len(self.calls) == known:
                yield self._held[done:end]
            done = end
        else:
            yield self._held[done:]
            done = len(self._held)
        self._held = self._held[done:]

    def _judge(self, brace: int) -> int | None:
        """Where the object that begins here has been dealt with; `None` as long as it may become a call."""
        if not _may_be_call(self._held, brace, self._names):
            return brace + 1
        if not self._closes:
            return None
        try:
            written, end = _DECODER.raw_decode(self._held, brace)
        except json.JSONDecodeError as error:
            # Code is no JSON, however it goes on; what names a tool is held, to be refused.
            is_text = _is_broken(error) and _tool_named_at(self._held, brace, self._names) is None
            return brace + 1 if is_text else None
        except RecursionError:
            return brace + 1
        self.calls += _calls_of(written, self._names)
        return end


def read_written_calls(text: str, names: Collection[str]) -> list[ToolCall]:
    """The calls in a whole text."""
    written = WrittenCalls(names)
    written.feed(text)
    written.flush()
    return written.calls


def _refused(name: str, written: str) -> ToolCall:
    return ToolCall(id=fresh_id(), name=name, arguments={UNREADABLE: make_storable(written)[:_UNREADABLE]})


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
