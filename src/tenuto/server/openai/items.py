"""Stored messages as items of the Responses API, from any client and any assistant.

A message is mostly one item. Of a reply that calls tools, the text and each call are items of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import count
from typing import Final

import msgspec
from msgspec.structs import asdict, replace

from tenuto.errors import Invalid
from tenuto.model import Draft, Message, Role, text_part
from tenuto.model.attachment import MEDIA_PARTS
from tenuto.model.generation import arguments_text
from tenuto.model.message import FINISH, is_summary
from tenuto.model.parameters import FinishReason
from tenuto.model.provider_items import ITEM_TYPES, is_provider_item, item_of_part
from tenuto.model.reasoning import REASONING, is_reasoning
from tenuto.model.turn import turn_offsets
from tenuto.model.values import Json, JsonObject
from tenuto.server.openai.provider_items import provider_part_of_item
from tenuto.server.openai.reasoning_items import part_of_item, reasoning_item
from tenuto.sessions import fresh_id
from tenuto.sessions.ids import derived_id
from tenuto.sessions.items import draft_from_item, item_from_message
from tenuto.sessions.openai_parts import ShowMedia, show_media

ECHO: Final = "openai"
"""The key of a reply's metadata for what its request said."""
MESSAGE: Final = "message"
CALL: Final = "function_call"
CALL_OUTPUT: Final = "function_call_output"
COMPACTION: Final = "compaction"
_COMPACTED: Final = "tenuto summary: "
_PREFIXES: Final = {MESSAGE: "msg_", CALL: "fc_", CALL_OUTPUT: "fco_", REASONING: "rs_"}
# Items that a client brought, and gets back as they came.
_AS_SENT: Final = frozenset({COMPACTION, REASONING, *ITEM_TYPES})
# Types of items that a model gets, in a form or another.
SHOWN_ITEMS: Final = _AS_SENT | {MESSAGE, "item_reference", CALL, CALL_OUTPUT}
# Parts that are items of their own: ours, and those of chat completions.
_APART: Final = frozenset({"tool_call", "tool_result", "function", CALL, CALL_OUTPUT})
# Shows pictures where nothing but the ids of items is looked at.
_REFER: Final = show_media()
INCOMPLETE: Final = {FinishReason.LENGTH: "max_output_tokens", FinishReason.CONTENT_FILTER: "content_filter"}
"""Why an answer is not complete, in the API's words."""
_STATUS: Final = frozenset({MESSAGE, CALL, CALL_OUTPUT})


def drafts_from_items(items: Sequence[JsonObject], now: datetime) -> tuple[Draft, ...]:
    """The items of a request as messages to append.

    Raises:
        Invalid: the type of an item is no text.
    """
    for place, item in enumerate(items):
        if not isinstance(item.get("type"), str | None):
            raise Invalid(f"type: expected str for item {place}")
    return tuple([_draft(item, now) for item in items])


def _draft(item: JsonObject, now: datetime) -> Draft:
    draft = draft_from_item(item, new_id=fresh_id, now=now)
    made = part_of_item(item) or provider_part_of_item(item)
    if made is not None:
        return replace(draft, role=Role.ASSISTANT, parts=(made,), extra=item)
    summary = _open_compaction(item) if item.get("type") == COMPACTION else None
    if summary is None:
        return draft
    # A model gets its text, and the item is kept beside it. Clients can write such an item themselves, so it must not
    # have the authority of a system message; nor are memories to be made of it, as of a user's.
    return replace(draft, role=Role.ASSISTANT, parts=(text_part(summary),), extra=item)


def messages_of(drafts: Sequence[Draft]) -> tuple[Message, ...]:
    """Messages of a request as if they were stored, for a turn that is not."""
    return tuple(
        Message(**asdict(draft), seq=place + 1, turn=turn + 1)
        for place, (draft, turn) in enumerate(zip(drafts, turn_offsets(drafts), strict=True))
    )


def compaction_item(summary: str) -> JsonObject:
    """An item that stands in for the conversation that it summarises, as plain text: privacy policies apply to it."""
    return {"id": f"cmp_{fresh_id()}", "type": COMPACTION, "encrypted_content": _COMPACTED + summary}


def _open_compaction(item: JsonObject) -> str | None:
    content = item.get("encrypted_content")
    if not isinstance(content, str) or not content.startswith(_COMPACTED):
        return None
    return content.removeprefix(_COMPACTED)


def items_of(messages: Sequence[Message], session_id: str = "") -> list[JsonObject]:
    """The messages of a session as items, in their order, without our own summaries; references to their contents."""
    show = show_media(session_id)
    return [item for message in messages if not is_summary(message) for item in items_of_message(message, show)]


def items_of_message(message: Draft, show: ShowMedia = _REFER) -> list[JsonObject]:
    """One message as items, each with its id; `show` makes their pictures, sounds and files."""
    if message.contents:
        show = show_media(contents={content.id: content for content in message.contents})
    if message.extra.get("type") in _AS_SENT:
        return [_complete(message.extra, message, show)]
    if message.role is Role.ITEM or not any(map(_is_item, message.parts)):
        return [_complete(item_from_message(message), message, show)]
    return [item for item, _ in _items_and_parts(message, show)]


def _items_and_parts(message: Draft, show: ShowMedia = _REFER) -> list[tuple[JsonObject, tuple[int, ...]]]:
    """The items of a message that is several, each with the places of its parts.

    The content is one item, where it begins among the thoughts and what a provider did, or at the beginning; calls and
    outputs come last.
    """
    parts = message.parts
    apart = [place for place, part in enumerate(parts) if part["type"] in _APART]
    beside = [place for place, part in enumerate(parts) if is_reasoning(part) or is_provider_item(part)]
    content = tuple([place for place in range(len(parts)) if place not in apart and place not in beside])
    items: list[tuple[JsonObject, tuple[int, ...]]] = []
    name = str(message.metadata.get("trace") or message.id)
    made = items_beside(name, [parts[place] for place in beside])
    items += [(item, (place,)) for item, place in zip(made, beside, strict=True)]
    if content:
        item = {"role": message.role.value, "content": [parts[place] for place in content], **message.extra}
        before = sum(place < content[0] for place in beside)
        items.insert(before, (_complete(item, message, show), content))
    called = [_item_of_part(parts[place]) for place in apart]
    # By its call, an item keeps its id when one before it is removed.
    calls = Counter(str(item.get("call_id")) for item in called)
    names = [str(item.get("call_id")) for item in called]
    names = [name if calls[name] == 1 else f"{name}.{place}" for place, name in enumerate(names)]
    items += [
        (_complete(item, message, show, name), (place,)) for item, name, place in zip(called, names, apart, strict=True)
    ]
    return items


def items_beside(name: str, parts: Sequence[JsonObject]) -> list[JsonObject]:
    """Thoughts, and what a provider did, as items of the answer of this name."""
    numbers = count()
    return [reasoning_item(name, next(numbers), part) if is_reasoning(part) else item_of_part(part) for part in parts]


def _is_item(part: JsonObject) -> bool:
    """Whether a part is an item of its own."""
    return part["type"] in _APART or is_reasoning(part) or is_provider_item(part)


def text_item(trace: str, text: str, status: str = "completed") -> JsonObject:
    """The text of a reply as an item; the trace id names the reply, also before it is stored."""
    content = [output_text(text)] if text or status == "completed" else []
    return {"id": text_item_id(trace), "type": MESSAGE, "status": status, "role": "assistant", "content": content}


def text_item_id(trace: str) -> str:
    """The item id of a reply's text."""
    return derived_id("msg_", trace)


def call_item(trace: str, call_id: str, name: str, arguments: str, status: str = "completed") -> JsonObject:
    """A call of a tool that the caller runs, as an item."""
    ident = derived_id("fc_", trace, call_id)
    return {"id": ident, "type": CALL, "status": status, "call_id": call_id, "name": name, "arguments": arguments}


def output_text(text: str) -> JsonObject:
    """Text of the assistant as a part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def refusal_part(text: str) -> JsonObject:
    """What the assistant said as it declined, as a part of a message."""
    return {"type": "refusal", "refusal": text}


def degraded_view(names: Sequence[str]) -> JsonObject:
    """A field of our own in answers of the API: what they had to do without; nothing where that is nothing."""
    return {"degraded": list(names)} if names else {}


def as_text(value: Json) -> str:
    """A value as tools send it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _item_of_part(part: JsonObject) -> JsonObject:
    match part["type"]:
        case "tool_call":
            given = part.get("arguments", "")
            said = arguments_text(given) if isinstance(given, dict) else as_text(given)
            return {"type": CALL, "call_id": part.get("id"), "name": part.get("name"), "arguments": said}
        case "tool_result":
            output = part.get("output", "")
            output = output if _shows_media(output) else as_text(output)
            return {"type": CALL_OUTPUT, "call_id": part.get("call_id"), "output": output}
        case "function":
            called = part.get("function") or {}
            said = as_text(called.get("arguments", ""))
            return {"type": CALL, "call_id": part.get("id"), "name": called.get("name"), "arguments": said}
    return part


def _shows_media(output: Json) -> bool:
    return isinstance(output, list) and any(
        isinstance(part, dict) and part.get("type") in MEDIA_PARTS for part in output
    )


def _complete(item: JsonObject, message: Draft, show: ShowMedia, name: str = "") -> JsonObject:
    """The item with everything that strict clients expect of it, and everything that its sender wrote."""
    given = item.get("type")
    # Entries of other doors may have anything there.
    kind = given if isinstance(given, str) and given else MESSAGE
    complete: JsonObject = {"id": _id_of(item, kind, message, name), "type": kind}
    if kind in _STATUS:
        cut = message.metadata.get(FINISH) in INCOMPLETE and (kind == MESSAGE or _is_last_call(item, message))
        complete["status"] = "incomplete" if cut else "completed"
    complete |= {name: value for name, value in item.items() if value is not None or name not in complete}
    if kind == MESSAGE:
        complete["content"] = list(_content(item.get("content"), str(item.get("role")), show))
        if message.metadata.get(FINISH) == FinishReason.REFUSAL:
            complete["content"] = [refusal_part(message.text)]
    elif kind == CALL_OUTPUT:
        complete["output"] = _output(complete.get("output"), show)
    return complete


def _is_last_call(item: JsonObject, message: Draft) -> bool:
    """Whether an answer ended with this call: where the answer was cut, its arguments were."""
    calls = [part.get("id") for part in message.parts if part["type"] == "tool_call"]
    return bool(calls) and item.get("type") == CALL and item.get("call_id") == calls[-1]


def _output(output: Json, show: ShowMedia) -> Json:
    """The output of a function as the API has it: a text, or parts."""
    return list(_content(output, "tool", show)) if _shows_media(output) else output


def _id_of(item: JsonObject, kind: str, message: Draft, name: str) -> str:
    """The sender's id; for a reply the one that its stream named; else the message's, with the item's name in it."""
    if isinstance(item.get("id"), str) and item["id"]:
        given: str = item["id"]
        return given
    trace = message.metadata.get("trace")
    if isinstance(trace, str) and kind in (MESSAGE, CALL):
        return text_item_id(trace) if kind == MESSAGE else derived_id("fc_", trace, str(item.get("call_id")))
    prefix = _PREFIXES.get(kind, "item_")
    return derived_id(prefix, message.id, name) if name else prefix + message.id


def _content(content: Json, role: str, show: ShowMedia) -> Iterator[Json]:
    """A message's content as the parts of its role."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and part.get("type") in MEDIA_PARTS:
            shown = show(part)
            # Clients' types have it, whether or not it was sent.
            yield {"detail": "auto", **shown} if shown["type"] == "input_image" else shown
        elif not isinstance(part, dict) or part.get("type") not in ("text", "output_text"):
            yield part
        elif role == "assistant":
            yield {**output_text(""), **part, "type": "output_text"}
        else:
            yield {**part, "type": "input_text" if part["type"] == "text" else part["type"]}


def without_item(message: Message, item_id: str) -> tuple[JsonObject, ...] | None:
    """The parts of a message without one of its items; `None` if that is all of it."""
    items = items_of_message(message)
    if len(items) == 1:
        return None
    removed = next(places for item, places in _items_and_parts(message) if item["id"] == item_id)
    return tuple([part for place, part in enumerate(message.parts) if place not in removed])
