"""Digests, instants and cursors as stores hold them."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final

from tenuto.errors import InvalidCursor
from tenuto.model.scope import KEY_BYTES

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Undecodable(Exception):
    """Stored bytes are not what a store wrote; the record around them is corrupt."""


def digest_id(text: str) -> bytes:
    """The stored form of an idempotency key, a fingerprint or a producer: short, the same in every backend."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=KEY_BYTES).digest()


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


def encode_cursor(updated_micros: int, key: bytes, rest: bytes = b"") -> str:
    """Where a listing goes on: behind this session; the `rest` is its own."""
    return base64.urlsafe_b64encode(updated_micros.to_bytes(8, "big", signed=True) + key + rest).decode()


def decode_cursor(cursor: str) -> tuple[int, bytes, bytes]:
    """The place a cursor stands for, and the rest.

    Raises:
        InvalidCursor: no listing made it.
    """
    try:
        raw = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as exc:
        raise InvalidCursor from exc
    place = 8 + KEY_BYTES
    if len(raw) < place:
        raise InvalidCursor
    return int.from_bytes(raw[:8], "big", signed=True), raw[8:place], raw[place:]
