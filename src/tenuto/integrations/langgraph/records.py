"""What a thread's session holds: one entry of the log for each checkpoint, and one for the writes of each task.

An entry is opaque to the privacy policy: the serializer's bytes, as one opaque text.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from tenuto.errors import StateCorrupt
from tenuto.model import Draft, Message, Role
from tenuto.model.opaque import decode_opaque, encode_opaque
from tenuto.model.values import JsonObject
from tenuto.ports import Clock
from tenuto.sessions import fresh_id

ENTRY: Final = "langgraph"
"""The type of the part that holds a record."""

Blob: TypeAlias = tuple[str, bytes]
"""A value as the serializer wrote it: the name of the form, and the bytes."""


class Put(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="put"):
    """A checkpoint: whole (`full`), or as the difference to what its writer had read or put before.

    `lists` replace a list, `added` adds items to one whose first so many items the writer knew. Other `values` replace
    the channel's, and `dropped` channels are empty. One that took the place of a difference, since records before it
    were removed, is `rebased`: it is the newest, whatever its id.
    """

    ns: str
    id: str
    parent: str | None
    checkpoint: Blob
    metadata: Blob
    full: bool = False
    rebased: bool = False
    values: dict[str, Blob] = {}
    lists: dict[str, Blob] = {}
    added: dict[str, tuple[int, Blob]] = {}
    dropped: list[str] = []
    snapshot: Snapshot | None = None


class Write(msgspec.Struct, frozen=True, array_like=True):
    """One write of a task to a channel."""

    index: int
    channel: str
    value: Blob


class Writes(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="writes"):
    """What a task wrote after a checkpoint: input of the next one, or kept for a task that is run again."""

    ns: str
    id: str
    task_id: str
    path: str
    writes: list[Write]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The newest checkpoint of a namespace as of a sequence number, so that reading need not go further back.

    It counts in the incarnation of the session that it was taken from.
    """

    seq: int
    head: Put
    writes: list[Writes]
    incarnation: str = ""


Record: TypeAlias = Put | Writes
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Record)


def to_draft(record: Record, clock: Clock) -> Draft:
    """The entry of the log that holds a record."""
    return Draft(id=fresh_id(), role=Role.ITEM, sent_at=clock(), parts=(to_part(record),))


def to_part(record: Record) -> JsonObject:
    """The part of an entry that holds a record."""
    return {"type": ENTRY, "data": encode_opaque(_encoder.encode(record))}


def size_of(record: Record) -> int:
    """The bytes of a record."""
    return len(_encoder.encode(record))


def from_message(message: Message) -> Record | None:
    """The record of an entry; `None` for messages of other kinds.

    Raises:
        StateCorrupt: it cannot be decoded.
    """
    part = message.parts[0] if message.parts else {}
    if part.get("type") != ENTRY:
        return None
    try:
        record: Record = _decoder.decode(decode_opaque(part["data"]))
    except (KeyError, AttributeError, ValueError):
        raise StateCorrupt("checkpoint", "cannot be decoded") from None
    return record
