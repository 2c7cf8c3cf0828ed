"""A message before (`Draft`) and after (`Message`) it is appended to a session's log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from sys import getsizeof

import msgspec

from tenuto.errors import Invalid
from tenuto.model.attachment import MEDIA_PARTS, Content, shown_in
from tenuto.model.values import Json, JsonObject, Value, check_id, check_instant, check_json, check_text, check_type


class Role(StrEnum):
    """The role of a message. `ITEM` is an entry of another kind (a reasoning step, a compaction)."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"
    ITEM = "item"


# Looked up once: for every message of a log, finding an enumeration's member takes longer than the rest.
_ITEM = Role.ITEM
# Types of text parts: ours, and those of the Responses API.
_WORDS = frozenset({"text", "input_text", "output_text"})
# Measured memory of a message without its parts, of an object and of a number.
_VALUES_BYTES = 512
_OBJECT_BYTES = 200
_NUMBER_BYTES = 32


class Draft(Value, frozen=True, kw_only=True):
    """A message to append.

    `parts` are JSON objects with a `type`: `text`, `tool_call` and `tool_result` are ours; others are stored unchanged,
    as is `extra`, the sender's own fields. `parent` is the message that this one follows, if not the one before it.

    `contents` are the bytes of attachments that the parts name by id, where the session may not have them yet. They are
    stored beside the messages: a stored message has none.
    """

    id: str
    role: Role
    sent_at: datetime
    parts: tuple[JsonObject, ...] = ()
    speaker: str | None = None
    persona: str | None = None
    parent: str | None = None
    tokens: int = 0
    metadata: JsonObject = {}
    extra: JsonObject = {}
    contents: tuple[Content, ...] = ()

    @property
    def text(self) -> str:
        """The text alone, without tool calls, tool results and foreign parts."""
        if len(self.parts) == 1:
            [part] = self.parts
            text = part.get("text", "") if part.get("type") in _WORDS else ""
            return text if isinstance(text, str) else ""
        return "".join(
            [part["text"] for part in self.parts if part.get("type") in _WORDS and isinstance(part.get("text"), str)]
        )


class Message(Draft, frozen=True, kw_only=True):
    """A stored message. `seq` orders it inside its session; the clock does not.

    Sequence numbers grow by one from 1 and are never reused, not even after a truncation or a reset. `turn` is the
    number of its turn.
    """

    seq: int
    turn: int


# The key of a display name, in a user's profile and in the extra fields of a message (as OpenAI's messages have it).
NAME = "name"
# The key of an answer's metadata that holds the tool state, by assistant.
STATE = "state"
# The key of an answer's metadata that says that a user stopped it.
STOPPED = "stopped"
# The key of an answer's metadata that says why it ended, where the model was not simply done.
FINISH = "finish"
# The key of the metadata of an input message that is no user's: a tool's output, an instruction.
INPUT = "input"
# The key of the metadata of a message that an app wrote as its user: a summary of the talk.
BY_APP = "by_app"
# The key of a tool's output, with the value true, that tells why the tool failed.
IS_ERROR = "is_error"
# The type of a part that holds a summary.
SUMMARY = "summary"
# Types of parts that other APIs have for calls and their outputs: Responses items, and `tool_calls` of chat messages.
FUNCTION_CALL = "function_call"
FUNCTION_CALL_OUTPUT = "function_call_output"
CHAT_CALL = "function"
# Types of parts that models may get in another form.
_REREAD = frozenset(
    {"input_text", "output_text", "refusal", "tool_result", FUNCTION_CALL, FUNCTION_CALL_OUTPUT, CHAT_CALL}
)
TOOL_PARTS = frozenset({"tool_call", "tool_result", FUNCTION_CALL, FUNCTION_CALL_OUTPUT, CHAT_CALL})


def is_said_by_user(message: Draft) -> bool:
    """Whether these are words of a user, and not what their app wrote for them."""
    return message.role is Role.USER and BY_APP not in message.metadata


def is_summary(message: Draft) -> bool:
    """Whether this entry of the log is a summary."""
    return message.role is _ITEM and any(part["type"] == SUMMARY for part in message.parts)


def offline_only_turns(messages: Sequence[Message]) -> frozenset[int]:
    """The turns in which the offline model only quoted or spoke of itself, without tools."""
    served = {message.turn for message in messages if message.role is Role.TOOL or message.metadata.get("data")}
    offline = (one for one in messages if one.role is Role.ASSISTANT and one.metadata.get("offline"))
    return frozenset(one.turn for one in offline) - served


def text_part(text: str) -> JsonObject:
    """A text part."""
    return {"type": "text", "text": text}


def tool_call(call_id: str, name: str, arguments: Json) -> JsonObject:
    """The part of a tool call."""
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def tool_result(call_id: str, output: Json) -> JsonObject:
    """The part of a tool's output."""
    return {"type": "tool_result", "call_id": call_id, "output": output}


def is_input(message: Draft) -> bool:
    """Whether this message is answered by the turn that brings it."""
    return message.role is Role.USER or INPUT in message.metadata


def readable_part(part: JsonObject) -> JsonObject:
    """A text, a call or an output of another API as ours; the part itself if it is ours, or none of these."""
    if part["type"] not in _REREAD:
        return part
    match part:
        case {"type": "input_text" | "output_text", "text": str(text)}:
            return text_part(text)
        case {"type": "refusal", "refusal": str(text)}:
            return text_part(text)
        case {"type": "function_call", "call_id": str(call_id), "name": str(name)}:
            return tool_call(call_id, name, part.get("arguments") or {})
        case {"type": "function", "id": str(call_id), "function": {"name": str(name), **called}}:
            return tool_call(call_id, name, called.get("arguments") or {})
        case {"type": "function_call_output", "call_id": str(call_id)}:
            return tool_result(call_id, _output_of(part.get("output")))
        case {"type": "tool_result", "output": [{"type": _}, *_] as output}:
            text = _output_of(output)
            return part if text is output else {**part, "output": text}
        case _:
            return part


def _output_of(output: Json) -> Json:
    """An output that is a list of texts, as one text."""
    if not isinstance(output, list) or not output:
        return output
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") in _WORDS else None for part in output]
    return "".join(text for text in texts if text) if all(isinstance(text, str) for text in texts) else output


def readable_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages with parts that models can be given; nearly always the same ones."""
    if not [part for message in messages for part in message.parts if part["type"] in _REREAD]:
        return tuple(messages)
    return tuple([_readable(message) for message in messages])


def _readable(message: Message) -> Message:
    parts = tuple([readable_part(part) for part in message.parts])
    unchanged = all(one is other for one, other in zip(parts, message.parts, strict=True))
    return message if unchanged else msgspec.structs.replace(message, parts=parts)


def check_drafts(drafts: Sequence[Draft]) -> None:
    """Refuse messages that some store could not return unchanged, also from callers without type checks."""
    for draft in drafts:
        check_type(draft, Draft, "a message")
        check_id(draft.id, "a message id")
        for ref in (draft.speaker, draft.persona, draft.parent):
            if ref is not None:
                check_id(ref, "an id within a message")
        if type(draft.role) is not Role:
            raise Invalid(f"a message's role must be a Role, one of {', '.join(Role)}")
        if type(draft.tokens) is not int or draft.tokens < 0:
            raise Invalid("a message's token count is negative or no whole number")
        if type(draft.parts) is not tuple:
            raise Invalid(f"a message's parts must be a tuple, not {type(draft.parts).__name__}")
        if type(draft.metadata) is not dict or type(draft.extra) is not dict:
            raise Invalid("a message's metadata and extra fields must be objects (dict)")
        check_instant(draft.sent_at, "a message's sent_at")
        for part in draft.parts:
            check_part(part)
        if draft.contents:
            _check_contents(draft.parts, draft.contents)
        if draft.metadata:
            check_json(draft.metadata, "a message's metadata")
        if draft.extra:
            check_json(draft.extra, "a message's extra fields")


def check_shown_parts(parts: Sequence[JsonObject], contents: Sequence[Content]) -> None:
    """Refuse parts that show nothing, and contents that none of them shows."""
    check_type(parts, tuple, "parts")
    for part in parts:
        if check_part(part)["type"] not in MEDIA_PARTS:
            raise Invalid(f"parts: expected {', '.join(sorted(MEDIA_PARTS))}, since the text stands beside them")
    _check_contents(parts, contents)


def _check_contents(parts: Sequence[JsonObject], contents: Sequence[Content]) -> None:
    if type(contents) is not tuple:
        raise Invalid(f"a message's contents must be a tuple, not {type(contents).__name__}")
    shown = shown_in(parts)
    for content in contents:
        check_type(content, Content, "a message's content")
        if content.id not in shown:
            raise Invalid("a message's contents are shown by none of its parts")


def check_part(part: Json) -> JsonObject:
    """Return a message part that every store returns unchanged: an object with a type, and storable text."""
    if not isinstance(part, dict) or type(part.get("type")) is not str:
        raise Invalid("a message part is not an object with a 'type'")
    if part["type"] == "text":
        text = part.get("text")
        if type(text) is not str:
            raise Invalid("a text part has no 'text'")
        if len(part) == 2:  # Nearly every part: text and nothing else.
            check_text(text, "a message part")
            return part
    check_json(part, "a message part")
    return part


def memory_bytes(message: Draft) -> int:
    """The approximate memory of a message in bytes.

    Not by encoding it: its texts would then keep their UTF-8 form.
    """
    weight = _VALUES_BYTES
    for part in message.parts:
        text = part.get("text")
        plain = len(part) == 2 and type(text) is str  # Nearly every part of every message.
        weight += _OBJECT_BYTES + getsizeof(text) if plain else _json_memory_bytes(part)
    if message.metadata or message.extra:
        weight += _json_memory_bytes(message.metadata) + _json_memory_bytes(message.extra)
    return weight


def _json_memory_bytes(value: Json) -> int:
    """The memory of JSON: exact for texts, approximate for containers."""
    kind = type(value)
    if kind is str:
        return getsizeof(value)
    if kind is dict:
        return (
            _OBJECT_BYTES + sum([getsizeof(name) + _json_memory_bytes(item) for name, item in value.items()])
            if value
            else 0
        )
    if kind is list or kind is tuple:
        return sum(map(_json_memory_bytes, value))
    return _NUMBER_BYTES


def content_bytes(draft: Draft) -> int:
    """The size of a message's parts in bytes, as the size limit counts it: texts in UTF-8, other parts as JSON."""
    size = 0
    for part in draft.parts:
        if part["type"] != "text":
            size += len(msgspec.json.encode(part))
            continue
        text = part["text"]
        size += len(text) if text.isascii() else len(text.encode())
        if len(part) > 2:
            size += len(msgspec.json.encode({**part, "text": ""}))
    return size


def metadata_bytes(draft: Draft) -> int:
    """The size of a message's metadata and extra fields in bytes, as the size limit counts it: as JSON."""
    if not draft.metadata and not draft.extra:
        return 0
    return len(msgspec.json.encode((draft.metadata, draft.extra)))
