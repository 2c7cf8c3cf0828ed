"""Encoding of values as the bytes and numbers that stores hold.

A message's body is JSON without `seq` and `turn`, which the store assigns and splices in.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

from tenuto.errors import Invalid, InvalidCursor
from tenuto.model import Draft, Message, Retention, Touch
from tenuto.model.scope import KEY_BYTES
from tenuto.model.turn import Trace
from tenuto.model.values import JsonObject, deep_copy

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_encoder: Final = msgspec.json.Encoder()
_object: Final = msgspec.json.Decoder(JsonObject)
encode_object: Final[Callable[[JsonObject], bytes]] = _encoder.encode
encode_trace: Final[Callable[[Trace], bytes]] = _encoder.encode


class Undecodable(Exception):
    """Stored bytes are not what a store wrote; the record around them is corrupt."""


def digest_id(text: str) -> bytes:
    """The stored form of an idempotency key, a fingerprint or a producer: short, the same in every backend."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=KEY_BYTES).digest()


def encode_draft(draft: Draft) -> bytes:
    """A message's body; of a stored message that is appended again, without the place it had."""
    if type(draft) is not Draft:
        draft = Draft(**{name: getattr(draft, name) for name in Draft.__struct_fields__})
    return _encoder.encode(draft)


def id_prefix(name: str) -> bytes:
    """How the body of a message or trace of this id begins, after its brace; identifies it."""
    return b'"id":%b,' % _encoder.encode(name)


def number_drafts(drafts: Iterable[Draft], first: int, turns: Iterable[int]) -> tuple[Message, ...]:
    """Drafts as messages of the log, numbered from `first`, each with its turn.

    Values are copied: messages may stay in memory, and callers may change their drafts.
    """
    return tuple([
        Message(
            id=draft.id,
            role=draft.role,
            sent_at=draft.sent_at,
            parts=tuple([deep_copy(part) for part in draft.parts]),
            speaker=draft.speaker,
            persona=draft.persona,
            parent=draft.parent,
            tokens=draft.tokens,
            metadata=deep_copy(draft.metadata) if draft.metadata else {},
            extra=deep_copy(draft.extra) if draft.extra else {},
            seq=seq,
            turn=turn,
        )
        for seq, (draft, turn) in enumerate(zip(drafts, turns, strict=True), first)
    ])  # fmt: skip


def decode_object(raw: bytes) -> JsonObject:
    """The object back.

    Raises:
        Undecodable: it is no JSON object.
    """
    try:
        return _object.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise Undecodable("an object") from exc


def decode_trace(raw: bytes) -> Trace:
    """The trace back.

    Raises:
        Undecodable: it is damaged.
    """
    try:
        return msgspec.json.decode(raw, type=Trace)
    except (ValueError, TypeError, RecursionError, Invalid) as exc:
        raise Undecodable("a trace") from exc


def to_micros(instant: datetime) -> int:
    """Whole microseconds since 1970, exactly."""
    return (instant - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The instant back.

    Raises:
        Undecodable: there is no such instant.
    """
    try:
        return _EPOCH + micros * _MICROSECOND
    except (OverflowError, TypeError) as exc:
        raise Undecodable("an instant") from exc


def encode_cursor(updated_micros: int, key: bytes) -> str:
    """Where a listing goes on: behind this session."""
    return base64.urlsafe_b64encode(updated_micros.to_bytes(8, "big", signed=True) + key).decode()


def decode_cursor(cursor: str) -> tuple[int, bytes]:
    """The place a cursor stands for.

    Raises:
        InvalidCursor: no listing made it.
    """
    try:
        raw = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as exc:
        raise InvalidCursor from exc
    if len(raw) != 24:
        raise InvalidCursor
    return int.from_bytes(raw[:8], "big", signed=True), raw[8:]


@lru_cache(maxsize=1024)
def decode_retention(idle: int | None, touch: str, max_messages: int | None, max_turns: int | None) -> Retention:
    """The retention of a row. Few differ, and each construction validates all fields, so they are shared."""
    return Retention(
        idle=None if idle is None else timedelta(microseconds=idle),
        touch=Touch(touch),
        max_messages=max_messages,
        max_turns=max_turns,
    )
