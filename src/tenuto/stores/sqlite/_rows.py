"""A session's head: the row of the view `head`, the `Session` made from it, the writer's cache of heads."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

import msgspec

from tenuto.errors import Invalid
from tenuto.model import ForkPoint, Message, Retention, Scope, Session, Status, Touch
from tenuto.model.values import JsonObject
from tenuto.stores.codec import Undecodable, decode_object, from_micros
from tenuto.stores.sqlite._errors import CorruptRow

_EMPTY: Final = b"{}"
_MAX_HEADS: Final = 16 * 1024
_MAX_BYTES: Final = 128 * 1024 * 1024
_MAX_HEAD_BYTES: Final = 32 * 1024
_MAX_TAIL_BYTES: Final = 128 * 1024
# Measured memory of a head, a message and an idempotency key, without the texts in them.
_HEAD_BYTES: Final = 2048
_MESSAGE_BYTES: Final = 640
_KEY_BYTES: Final = 128
_STATUSES: Final = {status.value: status for status in Status}
_scopes: Final = msgspec.json.Decoder(Scope)


class KeyedRow(msgspec.Struct, array_like=True, gc=False):
    """A write that came with an idempotency key: what it stored, and whether it is complete."""

    key: bytes
    n: int
    fingerprint: bytes
    number: int
    words_first: int
    words_last: int
    turn_id: str
    reply_first: int
    reply_last: int
    finished: int


class Head(msgspec.Struct, eq=False, gc=False):
    """The columns in their order. A step changes what it likes here, and `save` writes it.

    `tail` is no column: the newest messages that are context, where the writer knows them, with the size of each one's
    body; `whole` when no others stand before them. `recent` is `recent_keyed`, decoded; `older` has at least the keys
    that stand in their table, where the writer knows them all.
    """

    id: int
    key: bytes
    space: bytes
    owner: bytes
    created_at: int
    updated_at: int
    version: int
    turns: int
    messages: int
    last_seq: int
    window_start: int
    tokens: int
    cost_nanos: int
    keyed: int
    incarnation: str
    session_id: str
    scope: bytes
    touch: str
    title: str
    folded_title: str
    status: str
    context: bytes
    attributes: bytes
    metadata: bytes
    expires_at: int | None
    sweep_at: int | None
    lease: str | None
    lease_until: int | None
    lease_key: bytes | None
    recent_keyed: bytes | None
    closed: str | None
    idle: int | None
    max_messages: int | None
    max_turns: int | None
    forked_id: str | None
    forked_seq: int | None
    tail: list[Message] | None = None
    tail_sizes: list[int] = []
    whole: bool = False
    recent: list[KeyedRow] | None = None
    older: set[bytes] | None = None

    def __repr__(self) -> str:
        # What people wrote is in here, and a traceback shows what it likes.
        return f"Head(id={self.id})"

    def corrupt_error(self, reason: str) -> CorruptRow:
        """The error for a record that cannot be what was written."""
        return CorruptRow(self.session_id, self.id, reason)


# SQLite itself would let anything stand in a column.
_NEVER_NULL: Final = (int, *[bytes] * 3, *[int] * 10, str, str, bytes, *[str] * 4, *[bytes] * 3)
_OR_NULL: Final = (int, int, str, int, bytes, bytes, str, int, int, int, str, int)
_good_shapes: Final[set[tuple[type, ...]]] = set()


def read_head(row: tuple[Any, ...], session_id: str) -> Head:
    """A row as a head.

    Raises:
        Damaged: a column holds what was never written there.
    """
    shape = tuple(map(type, row))
    if shape not in _good_shapes:
        _check_shape(shape, row[0], session_id)
        _good_shapes.add(shape)
    return Head(*row)


def _check_shape(shape: tuple[type, ...], row: int, session_id: str) -> None:
    required, nullable = shape[: len(_NEVER_NULL)], shape[len(_NEVER_NULL) :]
    if required != _NEVER_NULL or any(
        kind not in (wanted, type(None)) for kind, wanted in zip(nullable, _OR_NULL, strict=True)
    ):
        raise CorruptRow(session_id, row, "a column of the head has the wrong type")


def session_of(head: Head) -> Session:
    """The value a head stands for.

    Raises:
        Damaged: it stands for none.
    """
    try:
        return Session(
            id=head.session_id,
            scope=scope_of(head),
            incarnation=head.incarnation,
            created_at=from_micros(head.created_at),
            updated_at=from_micros(head.updated_at),
            expires_at=None if head.expires_at is None else from_micros(head.expires_at),
            keeping=_retention(head.idle, head.touch, head.max_messages, head.max_turns),
            version=head.version,
            title=head.title,
            status=_STATUSES[head.status],
            context=decode_head_object(head, head.context),
            attributes=decode_head_object(head, head.attributes),
            metadata=decode_head_object(head, head.metadata),
            turns=head.turns,
            messages=head.messages,
            last_seq=head.last_seq,
            window_start=head.window_start,
            tokens=head.tokens,
            cost_nanos=head.cost_nanos,
            forked_from=None
            if head.forked_id is None or head.forked_seq is None
            else ForkPoint(session_id=head.forked_id, seq=head.forked_seq),
        )
    except (Undecodable, KeyError, ValueError, Invalid):
        raise head.corrupt_error("the head cannot be decoded") from None


def scope_of(head: Head) -> Scope:
    """In whose scope the session was made."""
    try:
        return _decode_scope(head.scope)
    except (msgspec.DecodeError, UnicodeDecodeError, Invalid):
        raise head.corrupt_error("the scope cannot be decoded") from None


# Scopes and ways of keeping repeat from session to session, and making one checks all its fields.


@lru_cache(maxsize=4096)
def _decode_scope(raw: bytes) -> Scope:
    return _scopes.decode(raw)


@lru_cache(maxsize=1024)
def _retention(idle: int | None, touch: str, max_messages: int | None, max_turns: int | None) -> Retention:
    return Retention(
        idle=None if idle is None else timedelta(microseconds=idle),
        touch=Touch(touch),
        max_messages=max_messages,
        max_turns=max_turns,
    )


def decode_head_object(head: Head, raw: bytes) -> JsonObject:
    """Context, attributes or metadata."""
    if raw == _EMPTY:
        return {}
    try:
        return decode_object(raw)
    except Undecodable:
        raise head.corrupt_error("an object of the head cannot be decoded") from None


class HeadCache:
    """The heads last written, bounded in number, in size each and in total size.

    They are valid until another connection commits, which `validate` checks at the start of each transaction. A step
    takes a head out and puts it back after writing it, so a step that fails leaves no stale head behind.
    """

    def __init__(self) -> None:
        self._heads: OrderedDict[bytes, tuple[Head, int]] = OrderedDict()
        self._size = 0
        self._version: int | None = None

    def validate(self, db: sqlite3.Connection) -> None:
        """Clear the cache if another connection has committed since the last transaction."""
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self.clear()
            self._version = version

    def take(self, key: bytes) -> Head | None:
        """Remove the head from the cache and return it."""
        known = self._heads.pop(key, None)
        if known is None:
            return None
        self._size -= known[1]
        return known[0]

    def put(self, head: Head) -> None:
        """Add a head that was just written."""
        size = len(head.context) + len(head.attributes) + len(head.metadata) + len(head.scope)
        size += len(head.session_id) + len(head.title) + len(head.folded_title)
        if size > _MAX_HEAD_BYTES:
            return
        size += _HEAD_BYTES + _KEY_BYTES * len(head.older or ())
        if head.tail is not None:
            tail = sum(head.tail_sizes) + _MESSAGE_BYTES * len(head.tail)
            if tail > _MAX_TAIL_BYTES:
                head.tail, tail = None, 0
            size += tail
        self._heads[head.key] = head, size
        self._size += size
        while len(self._heads) > _MAX_HEADS or self._size > _MAX_BYTES:
            self._size -= self._heads.popitem(last=False)[1][1]

    def clear(self) -> None:
        self._heads.clear()
        self._size = 0
