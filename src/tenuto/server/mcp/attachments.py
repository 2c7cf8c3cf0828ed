"""Pictures, sounds and files as content blocks of MCP, and as parts of our messages."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from mcp_types import AudioContent, BlobResourceContents, ContentBlock, EmbeddedResource, ImageContent

from tenuto.errors import Invalid
from tenuto.model import Content, Scope
from tenuto.model.attachment import AUDIO, FILE, IMAGE, check_attachment_name
from tenuto.model.media_types import is_picture
from tenuto.model.policy import SessionPolicy
from tenuto.model.values import JsonObject
from tenuto.server.mcp.views import AttachmentBrief
from tenuto.sessions.media_parts import read_media

_RESOURCE: Final = "resource"
_LINK: Final = "resource_link"
_TYPES: Final = (IMAGE, AUDIO, _RESOURCE, _LINK)
_ALIASES: Final = {"mimeType": "media_type", "blob": "data", "uri": "url"}


class AttachmentAnswer(NamedTuple):
    """What is known of an attachment, and the block that holds its bytes."""

    view: AttachmentBrief
    block: ContentBlock


def read_blocks(
    scope: Scope, blocks: Sequence[JsonObject], policy: SessionPolicy
) -> tuple[tuple[JsonObject, ...], tuple[Content, ...]]:
    """The parts of a message that show these blocks, and their contents.

    Raises:
        Invalid: a block is of another type, or its content or link cannot be taken; the error names the field.
        TooLarge: its content is above the size limit.
    """
    pairs = [_read_block(scope, block, policy, f"attachments[{number}]") for number, block in enumerate(blocks)]
    contents = {content.id: content for _, content in pairs if content is not None}
    return tuple([part for part, _ in pairs]), tuple(contents.values())


def _read_block(
    scope: Scope, block: JsonObject, policy: SessionPolicy, place: str
) -> tuple[JsonObject, Content | None]:
    kind, inner = block.get("type"), block
    if kind not in _TYPES:
        raise Invalid(f"{place}.type: expected one of {', '.join(_TYPES)}")
    if kind == _RESOURCE:
        inner, place = block.get(_RESOURCE), f"{place}.{_RESOURCE}"  # type: ignore[assignment]  # checked in the next line
    if not isinstance(inner, dict):
        raise Invalid(f"{place}: expected an object")
    part = _fields_of(str(kind), inner, place)
    return read_media(scope, part, policy, place, aliases=_ALIASES)


def _fields_of(kind: str, block: JsonObject, place: str) -> JsonObject:
    """The fields of a block that a part of ours has."""
    names = {IMAGE: ("data",), AUDIO: ("data",), _LINK: ("uri", "name")}.get(kind, ("blob",))
    part = {name: block[name] for name in (*names, "mimeType") if block.get(name) is not None}
    if kind == _RESOURCE:
        part |= _embedded(block, place)
    if kind in (IMAGE, AUDIO):
        part["type"] = kind
    elif kind == _LINK and not is_picture(str(part.get("mimeType"))):
        part["type"] = FILE
    return part


def _embedded(resource: JsonObject, place: str) -> JsonObject:
    """The name of an embedded resource, and its text as content of a file."""
    text, uri = resource.get("text"), resource.get("uri")
    if text is not None and (not isinstance(text, str) or "blob" in resource):
        raise Invalid(f"{place}: expected either text or blob, and a string")
    name = _name_of(uri) if isinstance(uri, str) else ""
    fields: JsonObject = {"name": name} if name else {}
    if text is not None:
        data = b64encode(text.encode(errors="replace")).decode()
        fields |= {"data": data, "media_type": resource.get("mimeType") or "text/plain"}
    return fields


def _name_of(uri: str) -> str:
    """The last word of an address, where a file can be called so."""
    try:
        name = unquote(urlsplit(uri).path).rpartition("/")[2]
        return check_attachment_name(name)
    except (ValueError, Invalid):
        return ""


def answer_of(session_id: str, content: Content) -> AttachmentAnswer:
    """An attachment as a tool answers it: a picture or a sound as such, another file as an embedded resource."""
    data, kind = b64encode(content.data).decode(), content.media_type.partition("/")[0]
    view = AttachmentBrief(
        id=content.id, media_type=content.media_type, size=len(content.data), name=content.name or None
    )
    if is_picture(content.media_type):
        return AttachmentAnswer(view, ImageContent(type="image", data=data, mime_type=content.media_type))
    if kind == AUDIO:
        return AttachmentAnswer(view, AudioContent(type="audio", data=data, mime_type=content.media_type))
    uri = f"session://{quote(session_id, safe='')}/attachments/{content.id}"
    blob = BlobResourceContents(uri=uri, mime_type=content.media_type, blob=data)
    return AttachmentAnswer(view, EmbeddedResource(type="resource", resource=blob))
