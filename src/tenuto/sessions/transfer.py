"""Export of sessions as JSON, JSON Lines or Markdown, and import of all three.

Every format is complete. In Markdown the exact message is in a comment above its readable text; an import reads only
the comments.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from tenuto.errors import AttachmentNotFound, Invalid, InvalidJson, SessionExists, SessionForeign, SessionNotFound
from tenuto.model import AppendBatch, Content, Draft, IdempotencyKey, Message, NewSession, Scope, Session, Status, Usage
from tenuto.model.attachment import ATTACHMENT, map_media, shown_in, with_attachment_ids, without_attachments
from tenuto.model.policy import SessionPolicy
from tenuto.model.session import cost_nanos
from tenuto.model.values import Json, JsonObject, Value
from tenuto.ports import SessionStore
from tenuto.sessions.ids import fingerprint, session_id_for_name
from tenuto.sessions.media_parts import DATA, brings_media, with_contents, with_data
from tenuto.sessions.views import MessageView, SessionView, draft_from_json

FORMAT: Final = "tenuto.session"
FORMAT_VERSION: Final = 1
_OPEN, _CLOSE = "<!-- tenuto ", " -->"
_STEERING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class ExportFormat(StrEnum):
    """How an export is written."""

    JSON = "json"
    JSONL = "jsonl"
    MARKDOWN = "markdown"


class ExportedSession(Value, frozen=True, kw_only=True):
    """The content of an export; `user`, or a chat, is the owner of the session."""

    new: NewSession
    messages: tuple[Draft, ...]
    usage: Usage = Usage()
    status: Status = Status.ACTIVE
    user: str | None = None
    channel: str | None = None
    chat: str | None = None
    thread: str | None = None


MEDIA_TYPES: Final = {
    ExportFormat.JSON: "application/json",
    ExportFormat.JSONL: "application/x-ndjson",
    ExportFormat.MARKDOWN: "text/markdown; charset=utf-8",
}
# File name extensions.
ENDINGS: Final = {ExportFormat.JSON: "json", ExportFormat.JSONL: "jsonl", ExportFormat.MARKDOWN: "md"}


ReadAttachment: TypeAlias = Callable[[str], Awaitable[Content]]
"""Reads an attachment of the session that is exported."""


async def iter_export(
    session: Session,
    pages: AsyncIterator[tuple[Message, ...]],
    export_format: ExportFormat,
    read_attachment: ReadAttachment,
) -> AsyncIterator[bytes]:
    """The session page by page, so that a long one is never in memory as a whole.

    An attachment is in the first message that shows it; one that is gone by then leaves its mark.
    """
    attachments = _ExportedAttachments(read_attachment)
    opening, message, closing = _WRITERS[export_format]
    head = msgspec.json.encode({"format": FORMAT, "version": FORMAT_VERSION, "session": SessionView.of(session)})
    yield opening(head, session)
    first = True
    async for page in pages:
        for item in page:
            whole = await attachments.bring(item)
            yield message(msgspec.json.encode(MessageView.complete(whole)), item, first)
            first = False
    yield closing


class _ExportedAttachments:
    """Brings the contents of a session into its messages, each once."""

    def __init__(self, read: ReadAttachment) -> None:
        self._read = read
        self._brought: set[str] = set()
        self._gone: set[str] = set()

    async def bring(self, message: Message) -> Message:
        """The message with the contents that no message before it showed."""
        shown = shown_in(message.parts)
        if not shown:
            return message
        contents: dict[str, Content] = {}
        for attachment_id in shown.keys() - self._brought - self._gone:
            try:
                contents[attachment_id] = await self._read(attachment_id)
            except AttachmentNotFound:
                self._gone.add(attachment_id)
        self._brought |= contents.keys()
        return replace(message, parts=with_data(without_attachments(message.parts, self._gone), contents, named=True))


def _markdown_opening(head: bytes, session: Session) -> bytes:
    title = _markdown_text(session.title or f"Session {session.id}")
    since, until = map(msgspec.to_builtins, (session.created_at, session.updated_at))
    return f"{_comment(head)}\n# {title}\n\n{session.messages} messages, {since} to {until}\n".encode()


def _markdown_message(raw: bytes, message: Message, _: bool) -> bytes:
    speaker = _markdown_text(f" {message.speaker}") if message.speaker else ""
    words = _markdown_text(message.text or "*(no text)*")
    sent_at = msgspec.to_builtins(message.sent_at)
    return f"\n{_comment(raw)}\n## {message.role}{speaker} · {sent_at}\n\n{words}\n".encode()


def _markdown_text(text: str) -> str:
    """Readable text that cannot imitate our comments or control a terminal."""
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text.replace("<!--", "&lt;!--"))


def _comment(raw: bytes) -> str:
    # "--" may not stand in a comment, and a text may not end it. Both are found in strings only, where JSON reads the
    # escaped form back; a single "-" may also be the sign of a number and stays.
    text = _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", raw.decode())
    return _OPEN + text.replace("--", "-\\u002d").replace(">", "\\u003e") + _CLOSE


# Each takes JSON and the value that it was made of; a message's writer also takes whether it is the first.
_Opening: TypeAlias = Callable[[bytes, Session], bytes]
_Writer: TypeAlias = Callable[[bytes, Message, bool], bytes]
_WRITERS: Final[dict[ExportFormat, tuple[_Opening, _Writer, bytes]]] = {
    ExportFormat.JSON: (
        lambda head, _: head[:-1] + b',"messages":[',
        lambda raw, _, first: (b"\n" if first else b",\n") + raw,
        b"\n]}\n",
    ),
    ExportFormat.JSONL: (lambda head, _: head + b"\n", lambda raw, _, __: raw + b"\n", b""),
    ExportFormat.MARKDOWN: (_markdown_opening, _markdown_message, b""),
}


async def import_as(store: SessionStore, scope: Scope, session_id: str, batch: AppendBatch) -> Session:
    """Store a session under this id; if it belongs to another owner, under one derived from it.

    Raises:
        SessionExists: the caller has a session of that id already.
    """
    ids = (session_id, session_id_for_name(scope, session_id))
    for each in ids:
        with contextlib.suppress(SessionNotFound):
            await store.get(scope, each)
            raise SessionExists(each)
    for each in ids:
        # Of two imports at the same time, one stores the messages.
        key = IdempotencyKey(key=f"import {each}", fingerprint=fingerprint(batch.messages))
        try:
            result = await store.append(scope, each, replace(batch, idempotency_key=key))
        except SessionForeign:
            continue
        if not result.created:
            raise SessionExists(each)
        return result.session
    raise SessionExists(session_id)


def parse_export(raw: bytes, *, now: datetime, new_id: Callable[[], str]) -> ExportedSession:
    """Read an export; its format is detected.

    Raises:
        Invalid: it is no export, or of an unknown version.
    """
    head, *messages = _parse_records(raw.removeprefix(b"\xef\xbb\xbf").lstrip())
    session = _check_head(head)["session"]
    drafts = tuple(draft_from_json(message, new_id=new_id(), now=now) for message in messages)
    return ExportedSession(
        new=_new_session(session),
        messages=drafts,
        usage=_usage(session),
        status=_status(session),
        **{
            name: value for name in ("user", "channel", "chat", "thread") if isinstance(value := session.get(name), str)
        },
    )


def with_exported_contents(scope: Scope, saved: ExportedSession, policy: SessionPolicy) -> ExportedSession:
    """What was saved with the contents of its attachments beside the messages, named as in this scope.

    Raises:
        Invalid: content is not what it is said to be.
        TooLarge: an attachment is above the size limit.
    """
    ids: dict[str, str] = {}
    messages = [
        _with_exported_contents(scope, draft, policy, number, ids) if brings_media(draft.parts) else draft
        for number, draft in enumerate(saved.messages)
    ]
    return replace(saved, messages=tuple(messages))


def _with_exported_contents(
    scope: Scope, draft: Draft, policy: SessionPolicy, number: int, ids: dict[str, str]
) -> Draft:
    def place(part: int, inner: int | None) -> str:
        return f"messages[{number}].parts[{part}]" + (f".output[{inner}]" if inner is not None else "")

    def without_id(part: JsonObject) -> JsonObject:
        return {name: value for name, value in part.items() if name != ATTACHMENT} if DATA in part else part

    read = with_contents(scope, replace(draft, parts=map_media(draft.parts, without_id)), policy, place)
    for old, new in zip(_flat(draft.parts), _flat(read.parts), strict=True):
        if isinstance(old, dict) and DATA in old and isinstance(old.get(ATTACHMENT), str):
            ids[old[ATTACHMENT]] = new[ATTACHMENT]
    return replace(read, parts=with_attachment_ids(read.parts, ids))


def _flat(parts: Iterable[JsonObject]) -> Iterator[Json]:
    """The parts, and in the place of a tool's output its own parts."""
    for part in parts:
        output = part.get("output")
        yield from output if isinstance(output, list) else [part]


def _parse_records(raw: bytes) -> list[Json]:
    """The head and the messages, whatever the format."""
    if raw.startswith(b"<"):
        return list(_parse_comments(raw))
    if not raw.startswith(b"{"):
        raise InvalidJson("this is neither a JSON, a JSON Lines nor a Markdown export")
    lines = [line for line in raw.splitlines() if line.strip()]
    try:
        whole = _decode_json(raw)
    except InvalidJson:
        if len(lines) == 1:
            raise
        return [_decode_json(line) for line in lines]
    return [whole, *_message_list(whole)] if "messages" in whole else [whole]


def _parse_comments(raw: bytes) -> Iterator[Json]:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise InvalidJson("the export is not UTF-8") from None
    found = False
    for line in text.split("\n"):
        if line.startswith(_OPEN) and line.endswith(_CLOSE):
            found = True
            yield _decode_json(line[len(_OPEN) : -len(_CLOSE)].encode())
    if not found:
        raise InvalidJson("the Markdown holds no session: its comments are missing")


def _decode_json(line: bytes) -> Json:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidJson("the export, or a line of it, is not valid JSON") from None


def _message_list(whole: JsonObject) -> Iterable[Json]:
    messages = whole["messages"]
    if not isinstance(messages, list):
        raise InvalidJson("the export's messages are not a list")
    return messages


def _check_head(head: Json) -> JsonObject:
    if not isinstance(head, dict) or head.get("format") != FORMAT or not isinstance(head.get("session"), dict):
        raise InvalidJson("this is not an export of a session")
    if head.get("version") != FORMAT_VERSION:
        raise Invalid(f"the export is of another version than {FORMAT_VERSION}, the one this release reads")
    return head


def _new_session(session: JsonObject) -> NewSession:
    wanted = {name: session[name] for name in ("title", "context", "attributes", "metadata") if name in session}
    try:
        return msgspec.convert(wanted, NewSession)
    except msgspec.ValidationError as exc:
        raise Invalid(f"the export's session is invalid: {exc}") from None


def _usage(session: JsonObject) -> Usage:
    tokens = session.get("tokens", 0)
    if type(tokens) is not int:
        raise Invalid("the export's tokens are not a whole number")
    try:
        cost = cost_nanos(Decimal(str(session.get("cost_usd", "0"))))
    except (ArithmeticError, ValueError):
        raise Invalid("the export's cost is not a number") from None
    return Usage(tokens=tokens, cost_nanos=cost)


def _status(session: JsonObject) -> Status:
    try:
        return Status(session.get("status", Status.ACTIVE))
    except ValueError:
        raise Invalid("the export's status is unknown") from None
