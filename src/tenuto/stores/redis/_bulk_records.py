"""A session's keys as one record, and back: what `dump.lua` tells and `restore.lua` takes."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from typing import Final

from tenuto.model.records import StoredHead, StoredLease, StoredMessage, StoredSession, StoredTrace, StoredWrite
from tenuto.model.scope import KEY_BYTES
from tenuto.model.turn import KEYS_REMEMBERED
from tenuto.stores.codec import Undecodable, digest_id
from tenuto.stores.redis._keys import listing_digests
from tenuto.stores.redis._records import (
    NONE,
    NUMBERS_SIZE,
    encode_identity,
    lease_numbers,
    read_session,
    session_identity,
    write_numbers,
    write_variables,
)
from tenuto.stores.redis._resp import Part, Reply
from tenuto.stores.redis._script_io import Ask

Fields = Mapping[bytes, bytes]
HEAD_FIELDS: Final = (b"s", b"f", b"t", b"l", b"c")
"""What `dump.lua` tells of a head, in its order."""

_write: Final = struct.Struct(">7q")
_place: Final = struct.Struct(">h")
_PLACE: Final = re.compile(rb'\{"seq":(\d+),"turn":(\d+),')


def pair_up(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """Names and values of a flat reply."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def to_head(fields: Fields, variables: Reply) -> StoredHead:
    """The head of a session. Raises `Undecodable`."""
    numbers = fields.get(b"s", b"")
    if len(numbers) < NUMBERS_SIZE:
        raise Undecodable("a session's head")
    session = read_session(numbers, fields.get(b"f"), fields.get(b"t"), variables)
    until, _ = lease_numbers(numbers)
    closed = fields.get(b"c")
    return StoredHead(
        session=session,
        lease=_to_lease(fields.get(b"l", b""), until) if until != NONE else None,
        closed=closed.decode() if closed else None,
    )


def to_session(reply: Reply) -> StoredSession:
    """The session of a whole dump. Raises `Undecodable`."""
    fields = pair_up(reply[0])
    return StoredSession(
        head=to_head(fields, reply[1]),
        writes=tuple(_to_writes(fields)),
        producers=tuple(sorted((name[1:], int(seq)) for name, seq in fields.items() if name[:1] == b"p")),
        messages=tuple(map(_to_message, reply[2])),
        traces=tuple(starmap(_to_trace, zip(reply[3][::2], reply[3][1::2], strict=True))),
    )


def restore_args(record: StoredSession, staged: int) -> Ask:
    """The arguments of `restore.lua`, with the messages from `staged` on."""
    lines = record.messages[staged:]
    session, lease = record.head.session, record.head.lease
    fields = list(_head_fields(record))
    sets, _ = write_variables(session.context, session.attributes, session.metadata)
    numbers = write_numbers(
        session,
        listing_digests(session.scope)[1],
        lease_until=NONE if lease is None else lease.until,
        keys_seen=len(record.writes),
        has_variables=bool(sets),
    )
    traces = [part for number, body in record.traces for part in (number, b"%d:%b" % (number, body))]
    return Ask(
        (staged, len(fields) // 2, len(sets) // 2, len(lines), len(traces) // 2),
        (
            numbers,
            encode_identity(session_identity(session)),
            session.title,
            session.incarnation,
            *fields,
            *sets,
            *log_parts(lines),
            *traces,
        ),
    )


def log_parts(lines: Sequence[StoredMessage]) -> list[Part]:
    """Messages as arguments of ZADD."""
    return [part for seq, _, body in lines for part in (seq, body)]


def _to_lease(raw: bytes, until: int) -> StoredLease:
    turn, _, rest = raw.partition(b"\0")
    key = rest[:KEY_BYTES] if len(rest) >= KEY_BYTES else None
    return StoredLease(turn_id=turn.decode(), until=until, key=key)


def _to_writes(fields: Fields) -> Iterator[StoredWrite]:
    """The writes that are still remembered, in the order they came."""
    seen = lease_numbers(fields[b"s"])[1]
    try:
        rows = [(_write.unpack_from(raw), name[1:], raw) for name, raw in fields.items() if name[:1] == b"k"]
    except struct.error as exc:
        raise Undecodable("a keyed write") from exc
    for numbers, key, raw in sorted(rows, key=lambda row: row[0][6]):
        finished, number, first, last, reply_first, reply_last, came = numbers
        if came < seen - KEYS_REMEMBERED:
            continue
        turn, _, fingerprint = raw[_write.size :].partition(b"\0")
        yield StoredWrite(
            key=key,
            fingerprint=_fingerprint(fingerprint.decode()),
            turn_id=turn.decode(),
            number=number,
            words=(first, last),
            reply=(reply_first, reply_last),
            finished=bool(finished),
        )


def _fingerprint(stored: str) -> bytes:
    try:
        return bytes.fromhex(stored)
    except ValueError:
        return digest_id(stored)


def _to_message(member: bytes) -> StoredMessage:
    place = _PLACE.match(member)
    if place is None:
        raise Undecodable("a message")
    return StoredMessage(int(place[1]), int(place[2]), member)


def _to_trace(member: bytes, number: bytes) -> StoredTrace:
    return StoredTrace(int(float(number)), member[member.find(b":") + 1 :])


def _head_fields(record: StoredSession) -> Iterator[Part]:
    """Lease, last closed turn, keyed writes with their places in the ring, producers."""
    rows = {write.key: _write_row(write, came) for came, write in enumerate(record.writes)}
    if (lease := record.head.lease) is not None:
        key = lease.key or b""
        yield b"l"
        # The lease carries what its key remembers, as `begin_turn.lua` writes it.
        yield lease.turn_id.encode() + b"\0" + key + rows.get(key, b"")
    if record.head.closed is not None:
        yield from (b"c", record.head.closed)
    for came, (key, row) in enumerate(rows.items()):
        yield from (b"k" + key, row, b"r" + _place.pack(came), key)
    for name, seq in record.producers:
        yield from (b"p" + name, seq)


def _write_row(write: StoredWrite, came: int) -> bytes:
    row = _write.pack(write.finished, write.number, *write.words, *write.reply, came)
    return row + write.turn_id.encode() + b"\0" + write.fingerprint.hex().encode()
