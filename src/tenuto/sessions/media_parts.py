"""Pictures, sounds and files as clients send them, as parts of our messages beside their content.

Content comes as base64 or as a `data:` URL, in the form of our own parts or of OpenAI's APIs. A link is stored as it
is, and nothing is fetched; one that leads anywhere but to a web server is refused.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes, urlsplit

from msgspec.structs import replace

from tenuto.errors import Invalid, TooLarge
from tenuto.model import Content, Draft, Scope
from tenuto.model.attachment import (
    ATTACHMENT,
    AUDIO,
    FILE,
    IMAGE,
    MEDIA_PARTS,
    REMOVED,
    SHOWING_PARTS,
    attachment_part,
    check_attachment_id,
    check_attachment_name,
    check_media_type,
    map_media,
)
from tenuto.model.media_types import SVG, UNKNOWN, check_content_type, essence, is_picture, media_type_of
from tenuto.model.policy import SessionPolicy
from tenuto.model.values import Json, JsonObject, check_text

DATA: Final = "data"
URL: Final = "url"
FILE_ID: Final = "file_id"
OPENAI: Final = "openai"
"""The provider of files that clients of OpenAI's API name."""
REFERENCE: Final = "att_"
"""What a reference to an attachment begins with where OpenAI's API has the id of a file."""
_SOURCES: Final = (DATA, URL, FILE_ID, ATTACHMENT)
CONTENT_FIELDS: Final = frozenset({DATA, "base64", "file_data"})
"""Fields of parts that are base64."""
# What LangChain calls our fields.
_ALIASES: Final = {"base64": DATA, "mime_type": "media_type"}
_TEXTS: Final = (*_SOURCES, "media_type", "name", "detail", "provider", "format")
# Fields of ours that a part of another API cannot bring under their names.
OWN_FIELDS: Final = frozenset({*_TEXTS, "type", "size", REMOVED})
_MOST_URL: Final = 8 * 1024
AUDIO_FORMATS: Final = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_DATA_URL: Final = re.compile(r"data:([^,;]{0,127}(?:;[\w-]+=[^,;]{0,127})*)(;base64)?,", re.IGNORECASE)
_REFERENCE: Final = re.compile(rf"{REFERENCE}([0-9a-f]{{32}})(?:_(.+))?", re.DOTALL)


Place: TypeAlias = Callable[[int, int | None], str]
"""Where a part stands in a request by its number, and by that of a part within its output."""


class _Form(NamedTuple):
    """How an API writes a part: the type it is with us, the field that has the others, and their names with us."""

    type: str
    inner: str | None
    names: Mapping[str, str]


_FILE_NAMES: Final = {"file_data": DATA, "file_url": URL, "file_id": FILE_ID, "filename": "name"}
_FORMS: Final = {
    "image_url": _Form(IMAGE, "image_url", {"url": URL, "detail": "detail"}),
    "input_image": _Form(IMAGE, None, {"image_url": URL, "file_id": FILE_ID}),
    "input_audio": _Form(AUDIO, "input_audio", {"data": DATA, "format": "format"}),
    "input_file": _Form(FILE, None, _FILE_NAMES),
}
_CHAT_FILE: Final = _Form(FILE, "file", {name: ours for name, ours in _FILE_NAMES.items() if name != "file_url"})


class _Source(NamedTuple):
    """What a part says of its content, under our names, where each of these stands, and its other fields."""

    type: str | None
    values: dict[str, str]
    places: dict[str, str]
    others: JsonObject


def brings_media(parts: Sequence[JsonObject]) -> bool:
    """Whether some part is to be read by `with_contents`."""
    return any(part["type"] in SHOWING_PARTS or part["type"] in _FORMS for part in parts)


def reference_of(attachment_id: str, session_id: str) -> str:
    """What stands for an attachment where OpenAI's API has the id of a file; `referenced` reads it."""
    return f"{REFERENCE}{attachment_id}_{session_id}"


def referenced(parts: Sequence[JsonObject]) -> dict[str, tuple[str, str]]:
    """The references to attachments of a session among the parts, each with the ids of attachment and session."""
    named = [part.get(FILE_ID) for part in _iter_media(parts)]
    matches = [_REFERENCE.fullmatch(name) for name in named if isinstance(name, str)]
    return {match[0]: (match[1], match[2]) for match in matches if match is not None and match[2]}


def content_size(parts: Sequence[JsonObject]) -> int:
    """About how many characters of content the parts bring: much of it is better read in a thread."""
    return sum([len(value) for part in _iter_media(parts) for value in _iter_texts(part)])


def with_contents(
    scope: Scope, draft: Draft, policy: SessionPolicy, place: Place, stored: Mapping[str, Content] | None = None
) -> Draft:
    """The message with its contents beside it, and parts that name them; `stored` has the contents of references.

    Raises:
        Invalid: content is empty, no base64, or not of the type it is said to be; or a link is none.
        TooLarge: an attachment is above its size limit.
    """
    contents = {content.id: content for content in draft.contents}

    def read(part: Json, at: str) -> Json:
        if not isinstance(part, dict) or not (part.get("type") in MEDIA_PARTS or _form_of(part)):
            return part
        shown, content = read_media(scope, part, policy, at, stored)
        if content is not None:
            contents.setdefault(content.id, content)
        return shown

    parts: list[JsonObject] = []
    for number, part in enumerate(draft.parts):
        if part["type"] in SHOWING_PARTS and isinstance(output := part.get("output"), list):
            parts.append({**part, "output": [read(one, place(number, k)) for k, one in enumerate(output)]})
        else:
            parts.append(read(part, place(number, None)))
    return replace(draft, parts=tuple(parts), contents=tuple(contents.values()))


def read_media(
    scope: Scope,
    part: JsonObject,
    policy: SessionPolicy,
    place: str,
    stored: Mapping[str, Content] | None = None,
    *,
    aliases: Mapping[str, str] = _ALIASES,
) -> tuple[JsonObject, Content | None]:
    """A part as it is stored, and the content that it brings; one without a type gets that of its content. `aliases`
    are what its sender calls our fields.

    Raises:
        Invalid, TooLarge: as in `with_contents`.
    """
    form = _form_of(part)
    if part.get(REMOVED) is True:
        return part if form is None else {"type": form.type, REMOVED: True}, None
    source = _own_source(part, place, aliases) if form is None else _foreign_source(part, form, place)
    kind = _only_source(source, place)
    value, at = source.values[kind], source.places[kind]
    if kind == DATA or (kind == URL and value[:5].lower() == "data:"):
        content = _content(scope, source, value, policy.max_attachment_bytes, at)
    elif kind == FILE_ID and _REFERENCE.fullmatch(value) is not None:
        content = _stored_content(scope, stored or {}, value, at)
    else:
        content = None
    if content is not None:
        part_type = source.type or shown_type(content.media_type)
        _check_part_type(part_type, content.media_type, place)
        return {**source.others, **_named(source, "detail"), **attachment_part(content, part_type)}, content
    if kind == ATTACHMENT:
        with _at(at):
            check_attachment_id(value)
    elif kind == URL:
        _check_link(value, at)
    said = _named(source, "media_type", "name", "detail")
    provider = {"provider": source.values.get("provider", OPENAI)} if kind == FILE_ID else {}
    part_type = source.type or shown_type(str(said.get("media_type", UNKNOWN)))
    return {**source.others, "type": part_type, **said, kind: value, **provider}, None


def with_data(
    parts: Sequence[JsonObject], contents: Mapping[str, Content], *, named: bool = False
) -> tuple[JsonObject, ...]:
    """The parts with these contents within, as `with_contents` reads them, or beside their ids if they are `named`."""
    gone = () if named else (ATTACHMENT, "size")

    def bring(part: JsonObject) -> JsonObject:
        content = contents.get(part.get(ATTACHMENT, ""))
        if content is None:
            return part
        kept = {name: value for name, value in part.items() if name not in gone}
        return {**kept, "media_type": content.media_type, DATA: b64encode(content.data).decode()}

    return map_media(parts, bring)


def shown_type(media_type: str) -> str:
    """The type of a part that shows content of this media type to a model, where its sender says none."""
    if is_picture(media_type):
        return IMAGE
    return AUDIO if media_type.startswith("audio/") else FILE


def _form_of(part: JsonObject) -> _Form | None:
    if part.get("type") == FILE and "file" in part and not any(name in part for name in _SOURCES):
        return _CHAT_FILE
    return _FORMS.get(part.get("type", ""))


def _own_source(part: JsonObject, place: str, aliases: Mapping[str, str]) -> _Source:
    named = {ours: name for name, ours in aliases.items() if name in part and ours not in part}
    names = {name: name for name in _TEXTS} | named
    values = {ours: part[name] for ours, name in names.items() if part.get(name) is not None}
    places = {ours: f"{place}.{names[ours]}" for ours in values}
    others = {name: value for name, value in part.items() if name not in OWN_FIELDS and name not in aliases}
    if ATTACHMENT in values and type(part.get("size")) is int:
        others["size"] = part["size"]
    return _checked(_Source(part.get("type"), values, places, others))


def _foreign_source(part: JsonObject, form: _Form, place: str) -> _Source:
    inner = part if form.inner is None else part.get(form.inner)
    beside = {} if form.inner is None else {name: part[name] for name in part if name not in ("type", form.inner)}
    # References stand beside the fields of a sound, which are empty then.
    reference = beside.pop(FILE_ID, None)
    at = place if form.inner is None else f"{place}.{form.inner}"
    if not isinstance(inner, dict):
        raise Invalid(f"{at}: expected an object")
    names = {**form.names, "detail": "detail"}
    given = {name: value for name, value in inner.items() if name in names and value is not None}
    others = {name: inner[name] for name in inner if name not in names and name != "type"} | beside
    if taken := sorted(OWN_FIELDS & others.keys()):
        raise Invalid(f"{place}.{taken[0]}: the field is unknown")
    values = {names[name]: value for name, value in given.items()}
    places = {names[name]: f"{at}.{name}" for name in given}
    if reference is not None:
        values.pop(DATA, None)
        values[FILE_ID], places[FILE_ID] = reference, f"{place}.{FILE_ID}"
    return _checked(_Source(form.type, values, places, others))


def _checked(source: _Source) -> _Source:
    for name, value in source.values.items():
        if not isinstance(value, str):
            raise Invalid(f"{source.places[name]}: expected str")
        if name in ("name", "detail", "provider"):
            check_text(value, source.places[name])
    return source


def _only_source(source: _Source, place: str) -> str:
    given = [name for name in _SOURCES if name in source.values]
    if len(given) != 1:
        raise Invalid(f"{place}: expected one of {', '.join(_SOURCES)}, or its form in OpenAI's API")
    return given[0]


def _named(source: _Source, *names: str) -> JsonObject:
    """Fields of the part as they are stored."""
    named: JsonObject = {name: source.values[name] for name in names if source.values.get(name)}
    if "media_type" in named:
        with _at(source.places["media_type"]):
            named["media_type"] = check_media_type(named["media_type"].lower())
    if "name" in named:
        with _at(source.places["name"]):
            check_attachment_name(named["name"])
    return named


def _content(scope: Scope, source: _Source, text: str, limit: int, place: str) -> Content:
    said = source.values.get("media_type") or _media_type_of_format(source)
    if "media_type" in source.values:
        _named(source, "media_type")
    data, beside = _decode(text, limit, place)
    if said and beside and essence(said) != essence(beside):
        raise Invalid(f"{place}: names another media type than {source.places.get('media_type', 'its format')}")
    name = source.values.get("name", "")
    with _at(source.places.get("name", place)):
        check_attachment_name(name)
    with _at(place):
        media_type = check_content_type(data, said or beside or media_type_of(data, name))
        return Content.of(scope, data, media_type, name)


def _stored_content(scope: Scope, stored: Mapping[str, Content], reference: str, place: str) -> Content:
    """The content of a reference, as this scope would store it."""
    content = stored.get(reference)
    if content is None:
        raise Invalid(f"{place}: the session has no such attachment")
    return Content.of(scope, content.data, content.media_type, content.name)


def _media_type_of_format(source: _Source) -> str | None:
    """The media type that a sound's `format` means."""
    said = source.values.get("format")
    if said is None:
        return None
    if said not in AUDIO_FORMATS:
        raise Invalid(f"{source.places['format']}: expected {' or '.join(AUDIO_FORMATS)}")
    return AUDIO_FORMATS[said]


def _decode(text: str, limit: int, place: str) -> tuple[bytes, str]:
    """The bytes of base64 or of a data URL, and the media type that the URL names."""
    head = _DATA_URL.match(text)
    if head is None and text[:5].lower() == "data:":
        raise Invalid(f"{place}: is no data URL such as data:image/png;base64,...")
    encoded = text if head is None else text[head.end() :]
    is_base64 = head is None or head[2] is not None
    # Percent signs make three characters of a byte.
    least = len(encoded) // 4 * 3 - 2 if is_base64 else len(encoded) // 3
    if least > limit:
        raise TooLarge("attachment", limit, place)
    try:
        data = binascii.a2b_base64(encoded, strict_mode=True) if is_base64 else unquote_to_bytes(encoded)
    except ValueError:
        raise Invalid(f"{place}: is not base64") from None
    if not data:
        raise Invalid(f"{place}: is empty")
    if len(data) > limit:
        raise TooLarge("attachment", limit, place)
    named = head[1].strip() if head is not None else ""
    return data, named if essence(named) != UNKNOWN else ""


def _check_part_type(part_type: str, media_type: str, place: str) -> None:
    """Refuse content of another kind than its part: no model would take it."""
    if part_type == IMAGE and media_type == SVG:
        raise Invalid(f"{place}: an SVG is no picture to a model; send it as a file")
    if part_type != FILE and part_type != shown_type(media_type):
        raise Invalid(f"{place}: content of type {media_type} is no {part_type}")


def _check_link(url: str, place: str) -> None:
    try:
        parts, _ = urlsplit(url), urlsplit(url).port
    except ValueError:
        parts = None
    sound = parts is not None and parts.scheme in ("http", "https") and parts.hostname
    if not sound or len(url) > _MOST_URL or not url.isprintable() or any(map(str.isspace, url)):
        raise Invalid(f"{place}: expected a link that begins with https:// or http://, or a data URL")


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Says where in the request something is wrong."""
    try:
        yield
    except Invalid as error:
        raise Invalid(f"{place}: {error}") from None


def _iter_media(parts: Sequence[Json]) -> Iterator[JsonObject]:
    for part in parts:
        if not isinstance(part, dict):
            continue
        if isinstance(output := part.get("output"), list) and part.get("type") in SHOWING_PARTS:
            yield from _iter_media(output)
        elif part.get("type") in MEDIA_PARTS or part.get("type") in _FORMS:
            yield part


def _iter_texts(part: JsonObject) -> Iterator[str]:
    for value in part.values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from [one for one in value.values() if isinstance(one, str)]
