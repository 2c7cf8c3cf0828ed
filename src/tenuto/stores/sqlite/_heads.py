"""A session's head: its row, the `Session` made from it, the writer's cache; finding, creating and writing heads."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import MAXYEAR, UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from tenuto.errors import Invalid, SessionExpired, SessionForeign, SessionNotFound, StoreFull
from tenuto.model import Changes, ForkPoint, Message, NewSession, Retention, Scope, Session, Status
from tenuto.model.scope import owner_key, site_key
from tenuto.model.session import drop_nulls, merge_patch
from tenuto.model.values import JsonObject
from tenuto.stores.codec import Undecodable, decode_retention, encode_object, from_micros, to_micros
from tenuto.stores.sqlite._errors import CorruptRow, is_bad_text
from tenuto.stores.sqlite._schema import MAX_ROW

Execute = Callable[..., sqlite3.Cursor]

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
_objects: Final = msgspec.json.Decoder(JsonObject)


_MICROSECOND: Final = timedelta(microseconds=1)
_LAST_MOMENT: Final = to_micros(datetime(MAXYEAR, 12, 31, tzinfo=UTC))

_WITHIN_REACH: Final = """
    SELECT * FROM head WHERE key = ? AND (expires_at IS NULL OR expires_at > ?) AND (? IS NULL OR owner = ?)
"""

_SAVE_FREE: Final = """
    UPDATE session SET
        version = ?, updated_at = ?, expires_at = ?, turns = ?, messages = ?, last_seq = ?, window_start = ?,
        tokens = ?, cost_nanos = ?, keyed = ?, recent_keyed = ?, closed = ?,
        lease = NULL, lease_until = NULL, lease_key = NULL
    WHERE id = ?
"""
_SAVE_LEASED: Final = _SAVE_FREE.replace("= NULL", "= ?")


quick: Final = bytearray
"""Wraps a blob parameter of a statement that every turn runs: for `bytes` the driver spends a microsecond on looking
for an adapter, for `bytearray` none."""


class Ask(NamedTuple):
    """The lookup of one session at `now` (microseconds). `owner` is `None` for the tenant itself."""

    key: bytes
    owner: bytes | None
    session_id: str
    now: int


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
    """The columns in their order. A step changes them, and `save` writes them.

    Not columns: `tail`, the newest messages of the context if cached, with their body sizes; `whole`, whether no
    others precede them; `recent`, which is `recent_keyed` decoded; `older`, a superset of the keys in table `keyed`,
    if the writer has them all.
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
        # Tracebacks may show the repr, and the head holds user data.
        return f"Head(id={self.id})"

    def corrupt_error(self, reason: str) -> CorruptRow:
        """The error for a damaged record."""
        return CorruptRow(self.session_id, self.id, reason)


# SQLite itself allows any type in a column.
_NEVER_NULL: Final = (int, *[bytes] * 3, *[int] * 10, str, str, bytes, *[str] * 4, *[bytes] * 3)
_OR_NULL: Final = (int, int, str, int, bytes, bytes, str, int, int, int, str, int)
_good_shapes: Final[set[tuple[type, ...]]] = set()


def read_head(row: tuple[Any, ...], session_id: str) -> Head:
    """A row as a head.

    Raises:
        CorruptRow: a column has the wrong type.
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
    """The session of a head.

    Raises:
        CorruptRow: the head cannot be decoded.
    """
    try:
        return Session(
            id=head.session_id,
            scope=_decode_scope(head.scope),
            incarnation=head.incarnation,
            created_at=from_micros(head.created_at),
            updated_at=from_micros(head.updated_at),
            expires_at=None if head.expires_at is None else from_micros(head.expires_at),
            retention=decode_retention(head.idle, head.touch, head.max_messages, head.max_turns),
            version=head.version,
            title=head.title,
            status=_STATUSES[head.status],
            context=_objects.decode(head.context),
            attributes=_objects.decode(head.attributes),
            metadata=_objects.decode(head.metadata),
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
    except (Undecodable, msgspec.DecodeError, KeyError, ValueError, Invalid):
        raise head.corrupt_error("the head cannot be decoded") from None


def scope_of(head: Head) -> Scope:
    """The scope in which the session was created."""
    try:
        return _decode_scope(head.scope)
    except (msgspec.DecodeError, UnicodeDecodeError, Invalid):
        raise head.corrupt_error("the scope cannot be decoded") from None


# Scopes repeat from session to session, and each construction validates all fields.
@lru_cache(maxsize=4096)
def _decode_scope(raw: bytes) -> Scope:
    return _scopes.decode(raw)


def decode_head_object(head: Head, raw: bytes) -> JsonObject:
    """Context, attributes or metadata."""
    try:
        return _objects.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
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


@dataclass(slots=True)
class Transaction:
    """An open transaction as a step sees it: SQL, the cached heads, and the keys of the sessions it changed."""

    execute: Execute
    executemany: Execute
    hot: HeadCache
    changed: list[bytes] = field(default_factory=list)


def _fetch_head(execute: Execute, query: str, values: tuple[object, ...], ask: Ask) -> Head | None:
    try:
        row = execute(query, values).fetchone()
    except sqlite3.OperationalError as exc:
        if not is_bad_text(exc):
            raise
        row = execute("SELECT id FROM session WHERE key = ?", (ask.key,)).fetchone()
        # The driver's message quotes the bytes it could not read: do not chain it.
        raise CorruptRow(ask.session_id, row[0], "a text of the head is not UTF-8") from None
    return None if row is None else read_head(row, ask.session_id)


def reach(execute: Execute, ask: Ask) -> Head:
    """Find the session, for reading.

    SQL checks owner and expiry, so that a foreign or expired session takes as long as a missing one.

    Raises:
        SessionNotFound: it does not exist within the scope.
    """
    head = _fetch_head(execute, _WITHIN_REACH, (ask.key, ask.now, ask.owner, ask.owner), ask)
    if head is None:
        raise SessionNotFound(ask.session_id)
    return head


def take_head(txn: Transaction, ask: Ask) -> Head | None:
    """Take the session under this key out of the cache or the file, whatever its owner and age."""
    return txn.hot.take(ask.key) or _fetch_head(txn.execute, "SELECT * FROM head WHERE key = ?", (ask.key,), ask)


def require_head_for_write(txn: Transaction, ask: Ask) -> Head:
    """Like `reach`, for a step that will write."""
    head = take_head(txn, ask)
    if head is None:
        raise SessionNotFound(ask.session_id)
    if head.expires_at is not None and head.expires_at <= ask.now:
        raise SessionExpired(ask.session_id)
    if ask.owner is not None and head.owner != ask.owner:
        raise SessionForeign(ask.session_id, ":".join(scope_of(head).owner))
    return head


def plant(txn: Transaction, ask: Ask, scope: Scope, new: NewSession, token: str) -> Head:
    """Write a new session's rows, version 0."""
    head = Head(
        id=0,
        key=ask.key,
        space=site_key(scope),
        owner=owner_key(scope),
        created_at=ask.now,
        updated_at=ask.now,
        version=0,
        turns=0,
        messages=0,
        last_seq=0,
        window_start=1,
        tokens=0,
        cost_nanos=0,
        keyed=0,
        incarnation=token,
        session_id=ask.session_id,
        scope=msgspec.json.encode(scope),
        touch=new.retention.touch.value,
        title=new.title,
        folded_title=new.title.casefold(),
        status=Status.ACTIVE.value,
        context=encode_object(drop_nulls(new.context)),
        attributes=encode_object(drop_nulls(new.attributes)),
        metadata=encode_object(drop_nulls(new.metadata)),
        expires_at=None,
        sweep_at=None,
        lease=None,
        lease_until=None,
        lease_key=None,
        recent_keyed=None,
        closed=None,
        idle=None,
        max_messages=None,
        max_turns=None,
        forked_id=None,
        forked_seq=None,
        tail=[],
        whole=True,
    )
    keep(head, new.retention)
    insert(txn, head)
    return head


def insert(txn: Transaction, head: Head) -> None:
    """Insert the rows of a new head and set its id."""
    head.expires_at = head.sweep_at = deadline(head, head.updated_at)
    row = txn.execute(
        """
        INSERT INTO session (
            key, space, owner, incarnation, created_at, updated_at, expires_at, sweep_at, version, turns, messages,
            last_seq, window_start, tokens, cost_nanos, keyed
        ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            head.key, head.space, head.owner, head.incarnation, head.created_at, head.updated_at, head.expires_at,
            head.sweep_at, head.version, head.turns, head.messages, head.last_seq, head.window_start, head.tokens,
            head.cost_nanos, head.keyed,
        ),
    ).lastrowid  # fmt: skip
    assert row is not None
    if row > MAX_ROW:
        raise StoreFull
    head.id = row
    txn.execute(
        "INSERT INTO profile VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            row, head.session_id, head.scope, head.idle, head.touch, head.max_messages, head.max_turns, head.title,
            head.folded_title, head.status, head.context, head.attributes, head.metadata, head.forked_id,
            head.forked_seq,
        ),
    )  # fmt: skip
    txn.changed.append(head.key)


def save(txn: Transaction, head: Head, now: int) -> None:
    """Write the head as a new version; its time never goes backwards."""
    head.version += 1
    head.updated_at = max(now, head.updated_at)
    head.expires_at = deadline(head, head.updated_at)
    counted = (
        head.version, head.updated_at, head.expires_at, head.turns, head.messages, head.last_seq, head.window_start,
        head.tokens, head.cost_nanos, head.keyed, head.recent_keyed and quick(head.recent_keyed), head.closed,
    )  # fmt: skip
    if head.lease is None:
        txn.execute(_SAVE_FREE, (*counted, head.id))
    else:
        txn.execute(
            _SAVE_LEASED, (*counted, head.lease, head.lease_until, head.lease_key and quick(head.lease_key), head.id)
        )
    if head.expires_at is not None and (head.sweep_at is None or head.expires_at < head.sweep_at):
        head.sweep_at = head.expires_at
        txn.execute("UPDATE session SET sweep_at = ? WHERE id = ?", (head.sweep_at, head.id))
    txn.changed.append(head.key)
    txn.hot.put(head)


def save_profile(txn: Transaction, head: Head) -> None:
    """Update the row of columns that seldom change."""
    txn.execute(
        """
        UPDATE profile SET
            idle = ?, touch = ?, max_messages = ?, max_turns = ?, title = ?, folded_title = ?, status = ?,
            context = ?, attributes = ?, metadata = ?
        WHERE session = ?
        """,
        (
            head.idle, head.touch, head.max_messages, head.max_turns, head.title, head.folded_title, head.status,
            head.context, head.attributes, head.metadata, head.id,
        ),
    )  # fmt: skip


def uproot(txn: Transaction, head_id: int, key: bytes) -> None:
    """Delete the rows of a session, except messages and traces, which `_log` deletes."""
    txn.execute("DELETE FROM session WHERE id = ?", (head_id,))
    txn.execute("DELETE FROM profile WHERE session = ?", (head_id,))
    txn.execute("DELETE FROM keyed WHERE session = ?", (head_id,))
    txn.execute("DELETE FROM mark WHERE session = ?", (head_id,))
    txn.changed.append(key)
    txn.hot.take(key)


def keep(head: Head, retention: Retention) -> bool:
    """Set the retention; returns whether it changed."""
    before = (head.idle, head.touch, head.max_messages, head.max_turns)
    head.idle = idle_micros(retention)
    head.touch, head.max_messages, head.max_turns = retention.touch.value, retention.max_messages, retention.max_turns
    return before != (head.idle, head.touch, head.max_messages, head.max_turns)


def idle_micros(retention: Retention) -> int | None:
    """How long a session is kept, in microseconds; `None` for ever."""
    return None if retention.idle is None else retention.idle // _MICROSECOND


def deadline(head: Head, now: int) -> int | None:
    """When a session touched now expires."""
    if head.idle is None:
        return None
    return check_instant((head.created_at if head.touch == "never" else now) + head.idle)


def check_instant(micros: int) -> int:
    """Refuse an instant that `datetime` cannot express."""
    if micros > _LAST_MOMENT:
        raise Invalid(f"a deadline lies beyond the year {MAXYEAR}")
    return micros


def apply(head: Head, changes: Changes) -> None:
    """Patch the head."""
    if changes.title is not UNSET:
        head.title, head.folded_title = changes.title, changes.title.casefold()
    if changes.status is not UNSET:
        head.status = changes.status.value
    if changes.window_start is not UNSET:
        head.window_start, head.tail = changes.window_start, None
    head.context = _merge_object(head, head.context, changes.context)
    head.attributes = _merge_object(head, head.attributes, changes.attributes)
    head.metadata = _merge_object(head, head.metadata, changes.metadata)


def _merge_object(head: Head, raw: bytes, patch: JsonObject) -> bytes:
    return encode_object(merge_patch(decode_head_object(head, raw), patch)) if patch else raw
