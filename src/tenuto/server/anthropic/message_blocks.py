"""Content blocks of Anthropic's messages as parts of ours, and back.

A message of a user may bring outputs of tools beside what the user says: each output is a message of its own with us.
Thoughts travel with all that their provider demands back, in the place of a signature.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tenuto.chat import Reply
from tenuto.errors import Invalid, UnsupportedParameter
from tenuto.model import Draft, Role, text_part, tool_call, tool_result
from tenuto.model.attachment import FILE, FILE_ID, IMAGE, MEDIA_PARTS, PDF, PROVIDER, URL
from tenuto.model.message import IS_ERROR
from tenuto.model.reasoning import REASONING, is_reasoning, shown_text
from tenuto.model.values import Json, JsonObject
from tenuto.server.openai.reasoning_items import is_sealed, seal, unseal
from tenuto.sessions import fresh_id
from tenuto.sessions.media_parts import DATA

ANTHROPIC: Final = "anthropic"
THINKING: Final = "thinking"
REDACTED: Final = "redacted_thinking"
TOOL_USE: Final = "tool_use"
TOOL_RESULT: Final = "tool_result"
_SHOWN: Final = ("text", "image", "document")
_TYPES: Final = {
    "user": (*_SHOWN, TOOL_RESULT),
    "assistant": ("text", THINKING, REDACTED, TOOL_USE),
    "system": ("text",),
}
_ROLES: Final = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_MOST_NAME: Final = 255
_MARK: Final = "cache_control"


@dataclass(slots=True)
class SentMessage:
    """A message with its parts, and where in the request each part stands, and each within an output."""

    role: Role
    parts: list[JsonObject] = field(default_factory=list)
    places: dict[tuple[int, int | None], str] = field(default_factory=dict)

    def add(self, part: JsonObject, place: str) -> None:
        """Add a part."""
        self.places[len(self.parts), None] = place
        self.parts.append(part)

    def draft(self, now: datetime, speaker: str | None) -> Draft:
        """The message to append."""
        spoken = speaker if self.role is Role.USER else None
        return Draft(id=fresh_id(), role=self.role, sent_at=now, parts=tuple(self.parts), speaker=spoken)


def plain_messages(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """The messages in one form: clients write a text as such or as a block, and mark another block for the cache each
    time."""
    return [
        {**message, "content": _plain_content(content)}
        if isinstance(content := message.get("content"), list)
        else message
        for message in messages
    ]


def _plain_content(content: list[Json]) -> Json:
    if len(content) == 1 and isinstance(content[0], dict) and content[0].get("type") == "text":
        return content[0].get("text")
    return [_without_mark(block) if isinstance(block, dict) and _MARK in block else block for block in content]


def _without_mark(block: JsonObject) -> JsonObject:
    return {name: value for name, value in block.items() if name != _MARK}


def read_messages(messages: Sequence[JsonObject], places: Sequence[int] | None = None) -> list[SentMessage]:
    """The messages of a request, or some of them, which have these places in it.

    Raises:
        Invalid: a role or a block is none that a model gets, or says too little.
    """
    read: list[SentMessage] = []
    for number, message in zip(places or range(len(messages)), messages, strict=True):
        role, at = message.get("role"), f"messages[{number}]"
        if not isinstance(role, str) or role not in _ROLES:
            raise Invalid(f"{at}.role: expected one of {', '.join(_ROLES)}")
        content = message.get("content")
        if isinstance(content, str):
            said = SentMessage(_ROLES[role])
            said.add(text_part(content), f"{at}.content")
            read.append(said)
        elif isinstance(content, list):
            read += _read_blocks(content, role, f"{at}.content")
        else:
            raise Invalid(f"{at}.content: expected a text or blocks")
    return read


def _read_blocks(blocks: Sequence[Json], role: str, at: str) -> Iterator[SentMessage]:
    said = SentMessage(_ROLES[role])
    for number, block in enumerate(blocks):
        place = f"{at}[{number}]"
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(block, dict) or kind not in _TYPES[role]:
            raise Invalid(f"{place}.type: expected one of {', '.join(_TYPES[role])}")
        if kind == TOOL_RESULT:
            if said.parts:
                yield said
                said = SentMessage(_ROLES[role])
            yield _read_result(block, place)
            continue
        for part in _read_block(block, place):
            said.add(part, f"{place}.source" if part["type"] in MEDIA_PARTS else place)
    if said.parts:
        yield said


def _read_block(block: JsonObject, place: str) -> Iterator[JsonObject]:
    match block["type"]:
        case "text":
            if text := _text(block, "text", place):
                yield text_part(text)
        case "image":
            yield _picture(_source(block, place), f"{place}.source")
        case "document":
            yield from _document(block, place)
        case "thinking":
            yield _thought(_text(block, "thinking", place), _text(block, "signature", place, default=""))
        case "redacted_thinking":
            yield _hidden_thought(_text(block, "data", place))
        case "tool_use":
            arguments = block.get("input")
            if not isinstance(arguments, dict):
                raise Invalid(f"{place}.input: expected an object")
            yield tool_call(_name(block, "id", place), _name(block, "name", place), arguments)


def _read_result(block: JsonObject, place: str) -> SentMessage:
    """The output of a tool: a text, or blocks that it shows."""
    said = SentMessage(Role.TOOL)
    output: Json = block.get("content", "")
    if isinstance(output, list):
        parts: list[JsonObject] = []
        for number, one in enumerate(output):
            at = f"{place}.content[{number}]"
            if not isinstance(one, dict) or one.get("type") not in _SHOWN:
                raise Invalid(f"{at}.type: expected one of {', '.join(_SHOWN)}")
            for part in _read_block(one, at):
                said.places[0, len(parts)] = f"{at}.source" if part["type"] in MEDIA_PARTS else at
                parts.append(part)
        output = parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
    elif not isinstance(output, str):
        raise Invalid(f"{place}.content: expected a text or blocks")
    made = tool_result(_name(block, "tool_use_id", place), output)
    said.add({**made, IS_ERROR: True} if block.get(IS_ERROR) is True else made, place)
    return said


def _source(block: JsonObject, place: str) -> JsonObject:
    source = block.get("source")
    if not isinstance(source, dict):
        raise Invalid(f"{place}.source: expected an object")
    return source


def _picture(source: JsonObject, place: str) -> JsonObject:
    return {"type": IMAGE, **_content(source, place, ("base64", "url", "file"))}


def _document(block: JsonObject, place: str) -> Iterator[JsonObject]:
    """A document, behind what is said about it."""
    if (cited := block.get("citations")) and isinstance(cited, dict) and cited.get("enabled"):
        raise UnsupportedParameter(f"{place}.citations", "answers cite no documents")
    source, at = _source(block, place), f"{place}.source"
    if about := _text(block, "context", place, default=""):
        yield text_part(about)
    title = "".join(filter(str.isprintable, _text(block, "title", place, default="")))[:_MOST_NAME]
    name = {"name": title} if title else {}
    match source.get("type"):
        case "text":
            data = b64encode(_text(source, "data", at).encode()).decode()
            yield {"type": FILE, "media_type": "text/plain", DATA: data, **name}
        case "content":
            content = source.get("content")
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for number, one in enumerate(blocks if isinstance(blocks, list) else ()):
                if not isinstance(one, dict) or one.get("type") not in ("text", "image"):
                    raise Invalid(f"{at}.content[{number}].type: expected one of text, image")
                yield from _read_block(one, f"{at}.content[{number}]")
        case _:
            made = _content(source, at, ("base64", "url", "file", "text", "content"))
            yield {"type": FILE, **({"media_type": PDF} if URL in made else {}), **made, **name}


def _content(source: JsonObject, place: str, types: Sequence[str]) -> JsonObject:
    match source.get("type"):
        case "base64":
            return {"media_type": _name(source, "media_type", place), DATA: _text(source, "data", place)}
        case "url":
            return {URL: _text(source, "url", place)}
        case "file":
            return {FILE_ID: _name(source, "file_id", place), PROVIDER: ANTHROPIC}
    raise Invalid(f"{place}.type: expected one of {', '.join(types)}")


def _text(block: JsonObject, name: str, place: str, default: str | None = None) -> str:
    value = block.get(name)
    value = default if value is None else value
    if not isinstance(value, str):
        raise Invalid(f"{place}.{name}: expected str")
    return value


def _name(block: JsonObject, name: str, place: str) -> str:
    value = _text(block, name, place)
    if not value:
        raise Invalid(f"{place}.{name}: is empty")
    return value


def _thought(text: str, signature: str) -> JsonObject:
    """A thought that comes back: one of ours, Anthropic's own, or one that no provider can verify."""
    part = unseal(signature, text) if is_sealed(signature) else None
    if part is not None and is_reasoning(part):
        return part
    unsigned: JsonObject = {"type": REASONING, "text": text, "provider": "", "model": ""}
    if is_sealed(signature) or not signature:
        return unsigned
    return {**unsigned, "signature": signature, "provider": ANTHROPIC}


def _hidden_thought(data: str) -> JsonObject:
    part = unseal(data, "") if is_sealed(data) else None
    if part is not None and is_reasoning(part):
        return part
    made: JsonObject = {"type": REASONING, "text": "", "id": REDACTED, "provider": ANTHROPIC, "model": ""}
    return {**made, "encrypted": data}


def check_pairs(messages: Sequence[SentMessage], *, calls_elsewhere: bool) -> None:
    """Refuse outputs of calls that are not there, and calls without an output: providers do so.

    With `calls_elsewhere`, a call may stand in the session, and its output may come with a later request.
    """
    calls: set[str] = set()
    waiting: dict[str, str] = {}
    for message in messages:
        if message.role is not Role.TOOL and waiting and not calls_elsewhere:
            break
        for number, part in enumerate(message.parts):
            place = message.places[number, None]
            if part["type"] == "tool_call":
                calls.add(part["id"])
                waiting[part["id"]] = place
            elif part["type"] == "tool_result":
                if part["call_id"] not in calls and not calls_elsewhere:
                    raise Invalid(f"{place}.tool_use_id: no message before it calls a tool with this id")
                waiting.pop(part["call_id"], None)
    if waiting and not calls_elsewhere:
        raise Invalid(f"{next(iter(waiting.values()))}: a call has no tool_result in the next message")


PlaceOf = Callable[[int, int, int | None], str]


def places_in(messages: Sequence[SentMessage]) -> PlaceOf:
    """Where in the request a part of a message stands."""

    def place_of(message: int, part: int, inner: int | None) -> str:
        return messages[message].places[part, inner]

    return place_of


def blocks_of(reply: Reply) -> list[JsonObject]:
    """The content of an answer, in the order in which the model gave it."""
    parts = reply.parts or ((text_part(reply.text),) if reply.text else ())
    blocks = [block for part in parts if (block := block_of(part)) is not None]
    known = {block["id"] for block in blocks if block["type"] == TOOL_USE}
    blocks += [tool_use(call.id, call.name, call.arguments) for call in reply.calls if call.id not in known]
    return blocks


def block_of(part: JsonObject) -> JsonObject | None:
    """A part of an answer as a block; `None` if it says nothing, or the API has none for it."""
    if is_reasoning(part):
        return thinking_block(part)
    if part["type"] == "text":
        return {"type": "text", "text": part["text"], "citations": None} if part["text"] else None
    if part["type"] == "tool_call":
        return tool_use(part["id"], part["name"], part["arguments"])
    return None


def tool_use(call_id: str, name: str, arguments: Json) -> JsonObject:
    """A call of a tool that the client runs."""
    return {"type": TOOL_USE, "id": call_id, "name": name, "input": arguments}


def thinking_block(part: JsonObject) -> JsonObject:
    """A thought, with all that its provider demands back in its signature."""
    if part.get("id") == REDACTED:
        return {"type": REDACTED, "data": seal(part)}
    return {"type": THINKING, "thinking": shown_text(part), "signature": seal(part)}
