"""Parts of OpenAI's APIs: which types a message may have, and our pictures, sounds and files in their form."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from tenuto.errors import Invalid
from tenuto.model import Content
from tenuto.model.attachment import AS_SENT, ATTACHMENT, AUDIO, IMAGE, MEDIA_PARTS, REMOVED
from tenuto.model.values import Json, JsonObject
from tenuto.sessions.attachments import NOTED
from tenuto.sessions.media_parts import AUDIO_FORMATS, FILE_ID, OWN_FIELDS, URL, reference_of

_RESPONSES_MEDIA: Final = ("input_image", "input_file", "input_audio")
_SPOKEN: Final = ("text", "output_text", "refusal")
# Of each role, and of outputs of functions.
_RESPONSES: Final[Mapping[str, tuple[str, ...]]] = {
    "assistant": ("output_text", "refusal", "text", "input_text"),
    "output": ("input_text", *_RESPONSES_MEDIA, "text", "output_text"),
}
_INPUT: Final = ("input_text", *_RESPONSES_MEDIA, *_SPOKEN)
_CHAT_MEDIA: Final = ("image_url", "input_audio", "file")
_CHAT: Final[Mapping[str, tuple[str, ...]]] = {
    "user": ("text", *_CHAT_MEDIA),
    "tool": ("text", *_CHAT_MEDIA),
    "assistant": ("text", "refusal"),
    "system": ("text",),
    "developer": ("text",),
}
_NOT_SHOWN: Final = frozenset({*OWN_FIELDS, *NOTED, AS_SENT})
_TEXT_FIELDS: Final = {"refusal": "refusal", **dict.fromkeys(("text", "input_text", "output_text"), "text")}


class _Part(NamedTuple):
    """A part of a request, where it stands, and the types that may stand there."""

    part: Json
    place: str
    types: Sequence[str]


def check_items(items: Sequence[JsonObject], place: str, places: Sequence[int] | None = None) -> None:
    """Refuse parts of an unknown type in items of the Responses API: they would reach no model. `places` are those that
    they have in the request, if not in order.

    Raises:
        Invalid: a part is of a type that does not stand there, or its text is none.
    """
    for number, item in zip(places or range(len(items)), items, strict=True):
        at, kind, role = f"{place}[{number}]", item.get("type"), item.get("role")
        if kind == "function_call_output":
            _check_parts(_parts(item.get("output"), f"{at}.output", _RESPONSES["output"]))
        elif kind in (None, "message") and isinstance(role, str):
            _check_parts(_parts(item.get("content"), f"{at}.content", _RESPONSES.get(role, _INPUT)))


def check_messages(messages: Sequence[JsonObject], places: Sequence[int] | None = None) -> None:
    """The same for messages of chat completions; `places` are those that they have in the request, if not in order."""
    for number, message in zip(places or range(len(messages)), messages, strict=True):
        types = _CHAT.get(str(message.get("role")), ())
        _check_parts(_parts(message.get("content"), f"messages[{number}].content", types))


def _parts(content: Json, place: str, types: Sequence[str]) -> Iterator[_Part]:
    for number, part in enumerate(content if isinstance(content, list) else ()):
        yield _Part(part, f"{place}[{number}]", types)


def _check_parts(parts: Iterator[_Part]) -> None:
    for part, place, types in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(part, dict) or kind not in types:
            raise Invalid(f"{place}.type: expected one of {', '.join(types)}")
        field = _TEXT_FIELDS.get(str(kind))
        if field is not None and not isinstance(part.get(field), str):
            raise Invalid(f"{place}.{field}: expected str")


ShowMedia: TypeAlias = Callable[[JsonObject], JsonObject]
"""Makes a picture, a sound or a file of ours a part of the Responses API."""


def show_media(session_id: str = "", contents: Mapping[str, Content] | None = None) -> ShowMedia:
    """Shows these contents within the part, and all others of the session by a reference that requests may repeat."""
    known = contents or {}

    def show(part: JsonObject) -> JsonObject:
        return responses_part(part, known.get(part.get(ATTACHMENT, "")), session_id)

    return show


def responses_part(part: JsonObject, content: Content | None, session_id: str = "") -> JsonObject:
    """A part of ours in the form of the Responses API, with its content or a reference to it."""
    others = {name: value for name, value in part.items() if name not in _NOT_SHOWN}
    if part.get(REMOVED) is True:
        others[REMOVED] = True
    if "detail" in part:
        others["detail"] = part["detail"]
    source = _source_of(part, content, session_id)
    if part["type"] == IMAGE:
        return {"type": "input_image", **_renamed(source, "image_url"), **others}
    if part["type"] == AUDIO and "url" not in source:
        data = b64encode(content.data).decode() if content is not None else ""
        formats = {media_type: name for name, media_type in AUDIO_FORMATS.items()}
        sound = {"data": data, "format": formats.get(part.get("media_type", ""), "wav")}
        file = {FILE_ID: source[FILE_ID]} if FILE_ID in source else {}
        return {"type": "input_audio", "input_audio": sound, **file, **others}
    name = {"filename": part["name"]} if part.get("name") else {}
    return {"type": "input_file", **_renamed(source, "file_data" if "data" in source else "file_url"), **name, **others}


def _source_of(part: JsonObject, content: Content | None, session_id: str) -> dict[str, str]:
    """Where the content is: within a URL under `data`, behind a link under `url`, or under the id of a file."""
    if content is not None:
        return {"data": f"data:{content.media_type};base64,{b64encode(content.data).decode()}"}
    if ATTACHMENT in part:
        return {FILE_ID: reference_of(part[ATTACHMENT], session_id)}
    return {name: part[name] for name in (URL, FILE_ID) if name in part}


def _renamed(source: Mapping[str, str], name: str) -> JsonObject:
    return {FILE_ID if each == FILE_ID else name: value for each, value in source.items()}


def shown_item(item: JsonObject, show: ShowMedia) -> JsonObject:
    """An item or message with its pictures, sounds and files in the form of the Responses API."""
    shown = {name: _shown(item[name], show) for name in ("content", "output") if isinstance(item.get(name), list)}
    return {**item, **shown} if shown else item


def _shown(parts: list[Json], show: ShowMedia) -> list[Json]:
    return [show(part) if isinstance(part, dict) and part.get("type") in MEDIA_PARTS else part for part in parts]
