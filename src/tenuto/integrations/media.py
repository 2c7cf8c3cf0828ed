"""Pictures, sounds and files of frameworks: their content beside the message, and their parts back as they were."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote_from_bytes

from msgspec.structs import replace

from tenuto.model import Content, Draft, Message, Scope
from tenuto.model.attachment import AS_SENT, ATTACHMENT, MEDIA_PARTS
from tenuto.model.policy import SessionPolicy
from tenuto.model.values import Json
from tenuto.sessions.media_parts import CONTENT_FIELDS, brings_media, with_contents

# The limits of the installation are looked at where the message is stored.
_UNLIMITED: Final = SessionPolicy(max_attachment_bytes=2**40)


def with_media_beside(scope: Scope, draft: Draft) -> Draft:
    """The message with the contents of its parts beside it; each part keeps the form in which it was sent.

    Raises:
        Invalid: content is not of the type that its part says, or its link is none.
    """
    if not brings_media(draft.parts):
        return draft

    def place(part: int, inner: int | None) -> str:
        return f"part {part}" if inner is None else f"part {part}, output {inner}"

    read = with_contents(scope, draft, _UNLIMITED, place)
    return replace(read, parts=tuple(map(_note_form, draft.parts, read.parts)))


def _note_form(sent: Json, read: Json) -> Json:
    if isinstance(sent, dict) and isinstance(sent.get("output"), list):
        return {**read, "output": list(map(_note_form, sent["output"], read["output"]))}
    return read if read == sent else {**read, AS_SENT: _emptied(sent)}


def as_sent(message: Message, contents: Mapping[str, Content]) -> Message:
    """The message with its parts as they were sent; beside those of other programs stay their contents."""
    parts = tuple([_as_sent(part, contents) for part in message.parts])
    return replace(message, parts=parts, contents=tuple(contents.values()))


def _as_sent(part: Json, contents: Mapping[str, Content]) -> Json:
    if not isinstance(part, dict):
        return part
    if isinstance(part.get("output"), list):
        return {**part, "output": [_as_sent(one, contents) for one in part["output"]]}
    if part.get("type") not in MEDIA_PARTS or not isinstance(sent := part.get(AS_SENT), dict):
        return part
    content = contents.get(part.get(ATTACHMENT, ""))
    return _filled(sent, content.data) if content is not None else sent


def _emptied(value: Json, name: str = "") -> Json:
    """A part without its content: of a data URL, its head stays."""
    if isinstance(value, dict):
        return {each: _emptied(one, each) for each, one in value.items()}
    if isinstance(value, str) and value[:5].lower() == "data:":
        return value.partition(",")[0] + ","
    return "" if name in CONTENT_FIELDS and isinstance(value, str) else value


def _filled(value: Json, data: bytes, name: str = "") -> Json:
    if isinstance(value, dict):
        return {each: _filled(one, data, each) for each, one in value.items()}
    if isinstance(value, str) and value[:5].lower() == "data:":
        return value + (b64encode(data).decode() if value.lower().endswith(";base64,") else quote_from_bytes(data))
    return b64encode(data).decode() if name in CONTENT_FIELDS and value == "" else value
