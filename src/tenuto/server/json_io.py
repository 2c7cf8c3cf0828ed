"""Between bytes and values: bodies decoded strictly, path parts decoded once, responses encoded once."""

from __future__ import annotations

import asyncio
import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import EnumType
from functools import partial
from hashlib import blake2b
from typing import Any, ClassVar, Final, NamedTuple, NoReturn, TypeVar, get_args, get_type_hints
from urllib.parse import parse_qsl, unquote_to_bytes
from uuid import uuid4

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from tenuto.context import TokenCounter
from tenuto.errors import Invalid, InvalidJson, InvalidText, TooLarge
from tenuto.model import Content, Draft, Role, Scope
from tenuto.model.message import content_bytes
from tenuto.model.values import Json, JsonObject, check_id
from tenuto.server.auth import SCOPE_PARAMETERS, ServerContext, bound_agent, service
from tenuto.sessions import fresh_id
from tenuto.sessions.limits import check_messages
from tenuto.sessions.media_parts import brings_media, content_size, with_contents
from tenuto.sessions.views import draft_from_json

_Body = TypeVar("_Body")
JSON: Final = "application/json"
# Messages of msgspec about types, lengths and places contain no value of the input; its other messages may.
_HARMLESS: Final = re.compile(
    r"(Expected `[^`]*`.*|Object missing required field `[^`]*`.*|(Number|Integer value) out of range.*)", re.DOTALL
)
# How JSON in UTF-16 and UTF-32 begins, with a mark of its byte order or with a zero beside its first character.
_WIDE: Final = re.compile(rb"\xff\xfe|\xfe\xff|.{0,3}\x00", re.DOTALL)
# Longer messages are counted in a thread, so that other requests need not wait; these take about a millisecond.
_COUNTED_AT_ONCE: Final = 16 * 1024
# Contents with more characters are decoded in a thread.
_READ_AT_ONCE: Final = 256 * 1024
# Longer texts of a body are digested in pieces of so many characters.
_DIGESTED_AT_ONCE: Final = 64 * 1024
_counter: Final = TokenCounter()
# Hints added to the refusal of a field whose shape is hard to guess.
_SHAPES: Final = {"producer": '; a producer is {"id": "laptop", "seq": 1}, and its next batch has the seq 2'}
_decoders: Final[dict[type[Any], msgspec.json.Decoder[Any]]] = {}
# The ETag of what was read has a digest behind the version.
_VERSION: Final = re.compile(r'(?:W/)?"([0-9]{1,16})(?:-[0-9a-f]{16})?"')
_FIELD_NAME: Final = re.compile(r"unknown field `([A-Za-z_][A-Za-z_.-]{0,39})`")
_PARAMETER: Final = re.compile(r"[A-Za-z_][\w.-]{0,39}", re.ASCII)
_AT: Final = re.compile(r" - at `(\$[^`]*)`$")


class RequestBody(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A request's body: unknown fields are refused. `EXAMPLE` is the one in the OpenAPI document."""

    EXAMPLE: ClassVar[JsonObject] = {}


class OpenBody(msgspec.Struct, kw_only=True, frozen=True):
    """A request's body that may have fields of a provider's own: `unknown_fields` of the request has them."""


def unknown_fields(request: Request) -> JsonObject:
    """The fields of an `OpenBody` that are not its own."""
    fields: JsonObject = getattr(request.state, "unknown_fields", {})
    return fields


class QueryParameters(msgspec.Struct, kw_only=True, frozen=True):
    """What a request says in its query; other names are refused."""


_Query = TypeVar("_Query", bound=QueryParameters)


async def body_of(request: Request, kind: type[_Body]) -> _Body:
    """The body as a value of `kind`; an empty body is an empty object.

    Raises:
        InvalidJson: it is not JSON, or nested too deep.
        InvalidText: a text in it is half of a surrogate pair.
        Invalid: a field does not fit; the error names it.
        TooLarge: it is above the limit.
    """
    raw = await read_body(request, service(request).settings.max_body_bytes)
    body = decode_json(raw or b"{}", kind)
    if isinstance(body, OpenBody):
        given = msgspec.json.decode(raw or b"{}", type=dict[str, msgspec.Raw])
        names = given.keys() - set(body.__struct_fields__)
        unknown = {name: msgspec.json.decode(given[name]) for name in given if name in names}
        # Null says nothing, whatever the field.
        request.state.unknown_fields = {name: value for name, value in unknown.items() if value is not None}
    return body


async def read_body(request: Request, limit: int) -> bytes:
    """The request's body, counted while it comes in, since its Content-Length is only a hint.

    Raises:
        TooLarge: it is bigger than `limit`.
    """
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said[:20]) > limit:
        raise TooLarge("request", limit)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise TooLarge("request", limit)
        pieces.append(piece)
    return b"".join(pieces)


def decode_json(raw: bytes, kind: type[_Body]) -> _Body:
    """JSON as a value of `kind`, under the rules of `body_of`."""
    raw = raw.removeprefix(BOM_UTF8)  # Some editors write it before every text.
    if kind not in _decoders:
        _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        value: _Body = _decoders[kind].decode(raw)
    except msgspec.ValidationError as error:
        _raise_invalid(error, kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _json_error(raw) from None
    except RecursionError:
        raise InvalidJson("the body is nested too deep") from None
    return value


def convert_json(body: JsonObject, kind: type[_Body]) -> _Body:
    """A JSON object that was read already, as a value of `kind`."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        _raise_invalid(error, kind)


def _raise_invalid(error: msgspec.ValidationError, kind: type[Any], whole: str = "the body") -> NoReturn:
    text = str(error)
    place = _AT.search(text)
    where = place[1].removeprefix("$").removeprefix(".") if place else ""
    if _HARMLESS.fullmatch(text):
        reason = _AT.sub("", text).replace("`", "").replace("Expected", "expected").replace("Object", "it is")
        reason = reason.replace("Number", "a number is").replace("Integer value", "an integer is")
    elif "unknown field" in text:
        # A name is repeated only where it looks like one; anything else may be what a user wrote.
        unknown = _FIELD_NAME.search(text)
        reason = f"the field {unknown[1]} is unknown" if unknown else "a field is unknown"
        if not where:
            reason += f"; expected one of {', '.join(kind.__struct_fields__)}"
    else:
        choices = " or ".join(_allowed_values(get_type_hints(kind).get(where.partition("[")[0])))
        reason = "the value does not fit" + (f"; it may be {choices}" if choices else "")
    raise Invalid(f"{where or whole}: {reason}{_SHAPES.get(where.split('.')[0], '')}") from None


def _allowed_values(hint: Any) -> Iterator[str]:
    """The allowed values of a field with a fixed choice."""
    if isinstance(hint, EnumType):
        yield from map(str, hint)
    for part in get_args(hint):
        yield from [part] if isinstance(part, str) else _allowed_values(part)


def _json_error(raw: bytes) -> Invalid:
    """Why the body is not JSON. Only a half surrogate passes elsewhere as JSON and cannot be stored as text."""
    if _WIDE.match(raw):
        return InvalidJson("the body is in UTF-16 or UTF-32; JSON is sent in UTF-8")
    try:
        json.loads(raw.decode(), parse_constant=int)  # int refuses NaN and Infinity, which JSON does not have.
    except UnicodeDecodeError:
        return InvalidJson("the body is not UTF-8")
    except (ValueError, RecursionError):
        return InvalidJson("the body is not JSON")
    return InvalidText("a text in the body holds half of a surrogate pair")


def parse_query(request: Request, kind: type[_Query]) -> _Query:
    """The query as a value of `kind`.

    Raises:
        Invalid: a parameter does not fit or is unknown; the error names it.
    """
    query: bytes = request.scope["query_string"]
    given = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)) if query else {}
    refuse_unknown_parameters(given, kind.__struct_fields__)
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        _raise_invalid(error, kind, "the query")


def refuse_unknown_parameters(given: Mapping[str, str], known: Sequence[str]) -> None:
    """Check the names of a query's parameters.

    Raises:
        Invalid: one is neither known nor names a tenant or site.
    """
    unknown = given.keys() - known - SCOPE_PARAMETERS.keys()
    if unknown:
        # A name is repeated only where it looks like one; anything else may be what a user wrote.
        names = ", ".join(sorted(filter(_PARAMETER.fullmatch, unknown)))
        reason = f"unknown parameters: {names}" if names else "a parameter is unknown"
        raise Invalid(f"the query: {reason}; expected {', '.join(known) or 'none'}")


def path_parameter(request: Request, name: str = "session_id") -> str:
    """A part of the path, decoded. Paths are matched as they were sent, so a slash inside an id is no separator."""
    raw: str = request.path_params[name]
    return _decode_id(unquote_to_bytes(raw.encode("latin-1")) if "%" in raw else raw.encode("latin-1"), f"the {name}")


def idempotency_key(request: Request) -> str | None:
    """The client's key for this write, if any."""
    value = request.headers.get("idempotency-key")
    return None if value is None else _decode_id(value.encode("latin-1"), "the Idempotency-Key")


def if_match(request: Request) -> int | None:
    """The version named by If-Match: `"3"`; `*` is any."""
    value = request.headers.get("if-match")
    if value is None or value.strip() == "*":
        return None
    version = _VERSION.fullmatch(value.strip())
    if version is None:
        raise Invalid('If-Match is not a version such as "3"')
    return int(version[1])


class Precondition(NamedTuple):
    """What If-Match and If-None-Match say of the entry that a write is for: its version, that there is one, or none."""

    version: int | None = None
    present: bool = False
    absent: bool = False


def precondition(request: Request) -> Precondition:
    """The precondition of a write.

    Raises:
        Invalid: the headers contradict each other, or one cannot be read.
    """
    absent, present = request.headers.get("if-none-match"), request.headers.get("if-match")
    if absent is None:
        return Precondition(if_match(request), present is not None and present.strip() == "*")
    if absent.strip() != "*" or present is not None:
        raise Invalid("If-None-Match may be * where a key is written, and without If-Match")
    return Precondition(absent=True)


def agent_header(request: Request) -> str | None:
    """The agent of an admitted request: that of its credential, or the one named in the Tenuto-Agent header."""
    value = request.headers.get("tenuto-agent")
    return bound_agent(request) if value is None else _decode_id(value.encode("latin-1"), "the Tenuto-Agent header")


def _decode_id(raw: bytes, what: str) -> str:
    """An id from bytes: UTF-8, not empty, of limited length."""
    try:
        return check_id(raw.decode(), what)
    except UnicodeDecodeError:
        raise InvalidText(f"{what} is not UTF-8") from None


def fingerprint(body: Any) -> str:
    """A digest of the body for its idempotency key, independent of spaces and the order of fields."""
    return blake2b(msgspec.json.encode(body, order="sorted"), digest_size=16).hexdigest()


async def key_fingerprint(key: str | None, body: Any) -> str | None:
    """The digest of the body of a request with this key; `None` without one.

    Contents of megabytes are digested in a thread and in pieces: to encode them in one would hold every other request.
    """
    if key is None:
        return None
    plain = msgspec.to_builtins(body)
    long_texts: list[str] = []
    name = uuid4().hex
    short = _without_long_texts(plain, long_texts, name)
    return await asyncio.to_thread(_digest_in_pieces, short, long_texts, name) if long_texts else fingerprint(plain)


def _without_long_texts(value: Json, long_texts: list[str], name: str) -> Json:
    """The value with numbered names in the places of its long texts, which are put into the list."""
    if isinstance(value, str):
        if len(value) <= _DIGESTED_AT_ONCE:
            return value
        long_texts.append(value)
        return f"{name}-{len(long_texts) - 1}"
    if isinstance(value, dict):
        return {key: _without_long_texts(inner, long_texts, name) for key, inner in value.items()}
    return [_without_long_texts(inner, long_texts, name) for inner in value] if isinstance(value, list) else value


def _digest_in_pieces(short: Json, long_texts: Sequence[str], name: str) -> str:
    """The digest of the body that these are the pieces of, as `fingerprint` makes it."""
    digest = blake2b(digest_size=16)
    pieces = re.split(rb'"%b-(\d+)"' % name.encode(), msgspec.json.encode(short, order="sorted"))
    digest.update(pieces[0])
    for number, following in zip(pieces[1::2], pieces[2::2], strict=True):
        text = long_texts[int(number)]
        digest.update(b'"')
        for begin in range(0, len(text), _DIGESTED_AT_ONCE):
            digest.update(msgspec.json.encode(text[begin : begin + _DIGESTED_AT_ONCE])[1:-1])
        digest.update(b'"')
        digest.update(following)
    return digest.hexdigest()


def without_ids_and_times(body: Json) -> Json:
    """A body with messages, without their ids and times: a caller that makes them anew retries."""
    if isinstance(body, list):
        return [_without_id_and_time(item) for item in body]
    assert isinstance(body, dict)
    messages = body.get("messages")
    known = {"messages": [_without_id_and_time(item) for item in messages]} if isinstance(messages, list) else {}
    return {**_without_id_and_time(body), **known}


def _without_id_and_time(message: Json) -> Json:
    if not isinstance(message, dict):
        return message
    return {name: value for name, value in message.items() if name not in ("id", "sent_at")}


async def drafts_of(
    context: ServerContext, scope: Scope, messages: list[JsonObject], places: Sequence[str] = ()
) -> tuple[Draft, ...]:
    """The messages of a body as drafts: user messages with a speaker, by default the caller; corrected token counts;
    contents beside the parts that brought them. `places` are where the messages stand, by default in `messages`."""
    now = context.clock()
    drafts = (draft_from_json(message, new_id=fresh_id(), now=now) for message in messages)
    spoken = tuple(
        replace(draft, speaker=draft.speaker or scope.user) if draft.role is Role.USER else draft for draft in drafts
    )

    def place_of(message: int, part: int, inner: int | None) -> str:
        field = "content" if messages[message].get("parts") is None else "parts"
        at = places[message] if places else f"messages[{message}]."
        return f"{at}{field}[{part}]" + (f".output[{inner}]" if inner is not None else "")

    return await correct_token_counts(context, await read_contents(context, scope, spoken, place_of))


async def read_contents(
    context: ServerContext,
    scope: Scope,
    drafts: tuple[Draft, ...],
    place_of: Callable[[int, int, int | None], str],
    stored: Mapping[str, Content] | None = None,
) -> tuple[Draft, ...]:
    """Messages with their contents beside them; `place_of` tells where in the body one of their parts stands, and
    `stored` has the contents of references.

    Raises:
        Invalid: a part's content or link cannot be taken.
        TooLarge: an attachment is above the size limit.
    """
    if not any(brings_media(draft.parts) for draft in drafts):
        return drafts
    policy = context.sessions.policy

    def read() -> tuple[Draft, ...]:
        return tuple(
            [
                with_contents(scope, draft, policy, partial(place_of, number), stored)
                for number, draft in enumerate(drafts)
            ]
        )

    if sum([content_size(draft.parts) for draft in drafts]) < _READ_AT_ONCE:
        return read()
    return await asyncio.to_thread(read)


async def correct_token_counts(context: ServerContext, drafts: tuple[Draft, ...]) -> tuple[Draft, ...]:
    """Messages with token counts, no lower than our own: a client must not decide what fits into a prompt.

    Raises:
        TooLarge: a message is above the size limit.
    """
    check_messages(drafts, context.sessions.policy)
    if sum([content_bytes(draft) for draft in drafts]) < _COUNTED_AT_ONCE:
        return _counter.correct_counts(drafts)
    return await asyncio.to_thread(_counter.correct_counts, drafts)
