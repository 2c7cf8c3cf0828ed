"""Pictures, sounds and files of web pages: as their protocols write them, and as parts of our messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, unquote

from tenuto.errors import Invalid
from tenuto.model import Draft, Scope, text_part
from tenuto.model.attachment import ATTACHMENT, AUDIO, FILE, IMAGE, REMOVED
from tenuto.model.values import JsonObject
from tenuto.server.attachments import referenced_contents
from tenuto.server.auth import ServerContext
from tenuto.server.json_io import read_contents
from tenuto.sessions.media_parts import reference_of

# Where a page reads an attachment that the server has, and how it sends it again.
_ADDRESS: Final = re.compile(r"(?:https?://[^/]+)?(?:/api)?/v1/sessions/([^/]+)/attachments/([0-9a-f]{32})")
AG_UI_MEDIA: Final = {"image": IMAGE, "audio": AUDIO, "video": FILE, "document": FILE}


async def with_media(
    context: ServerContext, scope: Scope, drafts: tuple[Draft, ...], place_of: Callable[[int, int], str]
) -> tuple[Draft, ...]:
    """The messages with their contents beside them.

    Raises:
        Invalid: content or a link cannot be taken; the error begins with the place that `place_of` tells.
        TooLarge: an attachment is above the size limit.
    """

    def place(message: int, part: int, inner: int | None) -> str:
        return place_of(message, part) + (f".output[{inner}]" if inner is not None else "")

    return await read_contents(context, scope, drafts, place, await referenced_contents(context, scope, drafts))


def part_of_ui(part: JsonObject, place: str) -> JsonObject:
    """A `file` of the AI SDK as a part of ours.

    Raises:
        Invalid: it has no media type or no URL.
    """
    media_type, url = part.get("mediaType"), part.get("url")
    if not isinstance(media_type, str) or not isinstance(url, str):
        raise Invalid(f"{place}: expected a file with mediaType and url")
    name = {"name": part["filename"]} if part.get("filename") else {}
    return {"type": _type_of(media_type), **_source_of(url, media_type), **name}


def ui_part(part: JsonObject, session_id: str) -> JsonObject:
    """A picture, a sound or a file as the AI SDK shows it; a stored one by the address of its content."""
    if part.get(REMOVED) is True:
        return _removed(part)
    url = _address_of(part, session_id)
    name = {"filename": part["name"]} if part.get("name") else {}
    return {"type": "file", "mediaType": part.get("media_type", f"{part['type']}/*"), "url": url, **name}


def part_of_ag_ui(part: JsonObject, place: str) -> JsonObject:
    """A picture, a sound or a document of AG-UI as a part of ours.

    Raises:
        Invalid: its source has no value.
    """
    source = part.get("source")
    kind, value = (source.get("type"), source.get("value")) if isinstance(source, dict) else (None, None)
    if not isinstance(source, dict) or kind not in ("data", "url", "file") or not isinstance(value, str):
        raise Invalid(f"{place}: expected a source of type data, url or file, and its value")
    if kind == "file":
        provider = {"provider": source["provider"]} if source.get("provider") else {}
        return {"type": AG_UI_MEDIA[part["type"]], "file_id": value, **provider}
    media_type = source.get("mimeType")
    shown = _source_of(value, media_type) if kind == "url" else {"data": value, "media_type": media_type}
    return {"type": AG_UI_MEDIA[part["type"]], **shown}


def ag_ui_part(part: JsonObject, session_id: str) -> JsonObject:
    """A picture, a sound or a file as AG-UI shows it; a stored one by the address of its content."""
    if part.get(REMOVED) is True:
        return _removed(part)
    if "file_id" in part:
        source = {"type": "file", "value": part["file_id"], "provider": part.get("provider")}
    else:
        source = {"type": "url", "value": _address_of(part, session_id), "mimeType": part.get("media_type")}
    known = {name: value for name, value in source.items() if value is not None}
    return {"type": "document" if part["type"] == FILE else part["type"], "source": known}


def _removed(part: JsonObject) -> JsonObject:
    """What stands in the place of an attachment that was removed."""
    return text_part(f"[{part['type']} removed]")


def _address_of(part: JsonObject, session_id: str) -> str:
    """Where a page reads the content: of a stored one from this server, else behind its link."""
    if ATTACHMENT in part:
        return f"/v1/sessions/{quote(session_id, safe='')}/attachments/{part[ATTACHMENT]}"
    return str(part.get("url", ""))


def _source_of(url: str, media_type: object) -> JsonObject:
    found = _ADDRESS.fullmatch(url)
    if found is not None:
        return {"file_id": reference_of(found[2], unquote(found[1]))}
    return {"url": url, "media_type": media_type}


def _type_of(media_type: str) -> str:
    kind = media_type.partition("/")[0].lower()
    return kind if kind in (IMAGE, AUDIO) and media_type != "image/svg+xml" else FILE
