"""Whole records as stores hold them, for copies from one store to another: the same over all backends.

Texts that were sealed stay sealed. Idempotency keys, fingerprints and producers are digests (`stores.codec.digest_id`),
bodies of messages and traces are the stored bytes. Instants that no session shows are microseconds since 1970.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from tenuto.model.scope import Scope, session_key, site_key
from tenuto.model.session import Session
from tenuto.model.values import Json, Value

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_DIGEST_BYTES: Final = 16


class StoredLease(Value, frozen=True, kw_only=True):
    """The turn that holds a session, and the idempotency key that it came with."""

    turn_id: str
    until: int
    key: bytes | None = None


class StoredHead(Value, frozen=True, kw_only=True):
    """All of a session but its lists. Every change of a list is a new version, so equal heads have equal lists."""

    session: Session
    lease: StoredLease | None = None
    closed: str | None = None

    @property
    def key(self) -> bytes:
        """The key of the session."""
        return session_key(self.session.scope, self.session.id)


class StoredWrite(Value, frozen=True, kw_only=True):
    """A write that came with an idempotency key: the ranges of its messages, and whether it is complete."""

    key: bytes
    fingerprint: bytes
    turn_id: str
    number: int
    words: tuple[int, int]
    reply: tuple[int, int]
    finished: bool


class StoredMessage(NamedTuple):
    """A message: its JSON with `seq` and `turn` in front."""

    seq: int
    turn: int
    body: bytes


class StoredTrace(NamedTuple):
    """The trace of a turn as JSON."""

    number: int
    body: bytes


class StoredSession(Value, frozen=True, kw_only=True):
    """A session with all that is stored under it: writes in the order they came, messages, traces and producers in
    order of their numbers and digests."""

    head: StoredHead
    writes: tuple[StoredWrite, ...] = ()
    producers: tuple[tuple[bytes, int], ...] = ()
    messages: tuple[StoredMessage, ...] = ()
    traces: tuple[StoredTrace, ...] = ()

    @property
    def space(self) -> bytes:
        """The key of the session's site."""
        return site_key(self.head.session.scope)


class StatePlace(NamedTuple):
    """Where a value is: its site, its owner, the drawer of its namespace, and its key there."""

    space: bytes
    owner: bytes
    drawer: bytes
    key: str


class StoredState(Value, frozen=True, kw_only=True):
    """A value of the state as JSON; `scope` and `namespace` are known of those of users and chats alone."""

    place: StatePlace
    value: bytes
    version: int
    scope: Scope | None = None
    namespace: str | None = None

    @property
    def space(self) -> bytes:
        """The key of the value's site."""
        return self.place.space


def record_digest(record: StoredSession | StoredHead | StoredState) -> bytes:
    """The digest of everything in a record."""
    return blake2b(_encoder.encode(_fields(record)), digest_size=_DIGEST_BYTES).digest()


def _fields(value: Json) -> Json:
    """The values of all fields: an encoder would leave out some that equal their default, and not others."""
    if isinstance(value, msgspec.Struct):
        return [_fields(getattr(value, name)) for name in value.__struct_fields__]
    if type(value) is tuple and value and isinstance(value[0], msgspec.Struct):
        return [_fields(item) for item in value]
    return value
