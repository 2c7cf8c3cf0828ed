"""Attachments: pictures, sounds and files that messages show, stored once a session beside its messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Final, Self

from tenuto.errors import Invalid
from tenuto.model.scope import KEY_BYTES, Scope, site_key
from tenuto.model.values import Json, JsonObject, Value, check_text

# Types of the parts that show an attachment, a URL or a provider's file.
IMAGE: Final = "image"
AUDIO: Final = "audio"
FILE: Final = "file"
MEDIA_PARTS: Final = frozenset({IMAGE, AUDIO, FILE})
# Types of the parts whose output may be a list of such parts.
_OUTPUTS: Final = frozenset({"tool_result", "function_call_output"})
SHOWING_PARTS: Final = MEDIA_PARTS | _OUTPUTS
"""Types of the parts that can show an attachment."""
ATTACHMENT: Final = "attachment"
"""The key of a part for the id of its attachment."""
AS_SENT: Final = "as_sent"
"""The key of a part for the form in which a framework sent it, without its content."""
REMOVED: Final = "removed"
"""The key of a part, with the value true, whose attachment was removed."""
URL: Final = "url"
"""The key of a part for its link."""
FILE_ID: Final = "file_id"
"""The key of a part for the id of a file at a provider."""
PROVIDER: Final = "provider"
"""The key of a part for the name of that provider."""
PDF: Final = "application/pdf"
MAX_NAME_CHARACTERS: Final = 255
_ID: Final = re.compile(r"[0-9a-f]{32}")
_TOKEN: Final = r"[a-z0-9!#$&^_.+-]{1,127}"  # noqa: S105
_MEDIA_TYPE: Final = re.compile(rf"{_TOKEN}/{_TOKEN}(; ?{_TOKEN}=[A-Za-z0-9!#$&^_.+-]{{1,127}})?")


class Content(Value, frozen=True, kw_only=True):
    """The bytes of an attachment; `id` is their `content_digest`. Make one with `Content.of`."""

    id: str
    media_type: str
    data: bytes
    name: str = ""

    def __post_init__(self) -> None:
        check_attachment_id(self.id)
        check_media_type(self.media_type)
        check_attachment_name(self.name)
        if type(self.data) is not bytes or not self.data:
            raise Invalid("an attachment's data must be bytes, and not empty")

    @classmethod
    def of(cls, scope: Scope, data: bytes, media_type: str, name: str = "") -> Self:
        """The content with its id in the scope's site.

        Raises:
            Invalid: there are no bytes, or media type or name cannot be stored.
        """
        if type(data) is not bytes or not data:
            raise Invalid("an attachment's data must be bytes, and not empty")
        return cls(id=content_digest(scope, data), media_type=media_type.lower(), data=data, name=name)


class Attachment(Value, frozen=True, kw_only=True):
    """A stored attachment without its bytes. `size` is their number, `seqs` are the messages that show it, in order."""

    id: str
    media_type: str
    size: int
    name: str = ""
    seqs: tuple[int, ...] = ()


class MediaInputs(Value, frozen=True, kw_only=True):
    """What a model takes besides text.

    `content` are media types of content, such as `image/png` or `text/*`. `links` and `files` are the types of parts
    that it takes as links, and by the id of a file at its `provider`.
    """

    content: frozenset[str] = frozenset()
    links: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    provider: str = ""

    def takes(self, part: JsonObject) -> bool:
        """Whether a picture, a sound or a file can be sent to it."""
        if part.get(REMOVED):
            return False
        if FILE_ID in part:
            return part["type"] in self.files and part.get(PROVIDER) == self.provider
        media_type = media_type_of(part)
        if URL in part:
            # A provider reads other documents from a link only where it is told their type, and few types at that.
            return part["type"] in self.links and (part["type"] == IMAGE or media_type in ("", PDF))
        if not isinstance(part.get(ATTACHMENT), str):
            return False
        return media_type in self.content or f"{media_type.partition('/')[0]}/*" in self.content


NO_MEDIA: Final = MediaInputs()


def media_type_of(part: JsonObject) -> str:
    """The media type of a part, without its parameters; empty if it has none."""
    given = part.get("media_type")
    return given.partition(";")[0].strip().lower() if isinstance(given, str) else ""


def content_digest(scope: Scope, data: bytes) -> str:
    """The id of content: a digest keyed by the tenant's site, so that equal bytes of two tenants have different ids."""
    return blake2b(data, digest_size=KEY_BYTES, key=site_key(scope), person=b"tenuto content").hexdigest()


def attachment_part(content: Content, part_type: str | None = None) -> JsonObject:
    """The message part that shows content, by default of the type that its media type says."""
    part: JsonObject = {
        "type": part_type or part_type_of(content.media_type),
        "media_type": content.media_type,
        ATTACHMENT: content.id,
        "size": len(content.data),
    }
    return {**part, "name": content.name} if content.name else part


def part_type_of(media_type: str) -> str:
    """The type of the part that shows content of this media type."""
    kind = media_type.partition("/")[0]
    return kind if kind in (IMAGE, AUDIO) else FILE


def iter_media_parts(parts: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """The pictures, sounds and files of a message, also those in outputs of tools."""
    for part in parts:
        if part["type"] in MEDIA_PARTS:
            yield part
        elif part["type"] in _OUTPUTS and isinstance(output := part.get("output"), list):
            yield from [one for one in output if _is_media(one)]


def shown_in(parts: Iterable[JsonObject]) -> dict[str, JsonObject]:
    """The ids of the attachments that a message shows, each with the first part that shows it."""
    shown: dict[str, JsonObject] = {}
    for part in iter_media_parts(parts):
        if shows_attachment(part):
            shown.setdefault(part[ATTACHMENT], part)
    return shown


def shows_attachment(value: JsonObject) -> bool:
    """Whether an object is a part that shows an attachment."""
    return isinstance(value.get(ATTACHMENT), str) and value.get("type") in MEDIA_PARTS


def without_attachments(parts: Iterable[JsonObject], ids: Iterable[str]) -> tuple[JsonObject, ...]:
    """The parts with marks in place of these attachments: type, media type and size stay, and the name goes."""
    gone = frozenset(ids)

    def mark(part: JsonObject) -> JsonObject:
        if part.get(ATTACHMENT) not in gone:
            return part
        kept = {name: value for name, value in part.items() if name not in (ATTACHMENT, "name", AS_SENT)}
        return {**kept, REMOVED: True}

    return map_media(parts, mark)


def with_attachment_ids(parts: Iterable[JsonObject], ids: Mapping[str, str]) -> tuple[JsonObject, ...]:
    """The parts with other ids of their attachments, as in a session of another site."""

    def rename(part: JsonObject) -> JsonObject:
        new = ids.get(part.get(ATTACHMENT, ""))
        return part if new is None else {**part, ATTACHMENT: new}

    return map_media(parts, rename)


def map_media(parts: Iterable[JsonObject], change: Callable[[JsonObject], JsonObject]) -> tuple[JsonObject, ...]:
    """The parts with their pictures, sounds and files changed, also those in outputs of tools."""
    return tuple([_map_part(part, change) for part in parts])


def _map_part(part: JsonObject, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    if part["type"] in _OUTPUTS and isinstance(output := part.get("output"), list):
        return {**part, "output": [change(one) if _is_media(one) else one for one in output]}
    return change(part) if _is_media(part) else part


def _is_media(part: Json) -> bool:
    return isinstance(part, dict) and part.get("type") in MEDIA_PARTS


def check_attachment_id(value: str) -> str:
    """Return an attachment's id."""
    if type(value) is not str or _ID.fullmatch(value) is None:
        raise Invalid("an attachment's id must be 32 hexadecimal digits")
    return value


def check_media_type(value: str) -> str:
    """Return a media type such as `image/png`, in lower case."""
    if type(value) is not str or _MEDIA_TYPE.fullmatch(value) is None:
        raise Invalid("an attachment's media_type must be a media type such as image/png")
    return value


def check_attachment_name(value: str) -> str:
    """Return the name of an attachment: one line, at most 255 characters, or empty."""
    check_text(value, "an attachment's name")
    if len(value) > MAX_NAME_CHARACTERS or not value.isprintable():
        raise Invalid(f"an attachment's name is longer than {MAX_NAME_CHARACTERS} characters or not one printable line")
    return value
