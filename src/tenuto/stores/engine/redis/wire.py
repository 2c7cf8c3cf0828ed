"""Records as the scripts take and return them.

An entry is a member of a sorted set: its number in eight bytes, so that equal bodies differ, and the body.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET

from tenuto.model import Scope, Status
from tenuto.model.stored import (
    Action,
    Entry,
    EntryPage,
    FoundRecord,
    IndexColumns,
    Kind,
    LogCopy,
    Part,
    RecordChange,
    StoredRecord,
    Totals,
)
from tenuto.stores.engine.redis.keys import RecordKeys
from tenuto.stores.redis._resp import Part as Word
from tenuto.stores.redis._resp import Reply

_NUMBERS: Final = struct.Struct(">5Q")
_NUMBER: Final = struct.Struct(">Q")
_LAST: Final = 2**53
"""Scores are floating-point numbers: beyond this they are not exact."""
ABSENT: Final = b""
"""The revision to compare with where no record is expected."""
_ACTIONS: Final = {Action.WRITE: "w", Action.REMOVE: "r", Action.SET_ASIDE: "a"}
ALL_FIELDS: Final = ("n", "h", "p", "d", "i")


class _Columns(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The index columns as they are stored; new ones are appended."""

    space: bytes
    owner: bytes
    kind: Kind
    scope: Scope | None
    listed_at: int
    status: Status
    title: str
    drawer: bytes
    namespace: str
    name: str
    words: tuple[bytes, ...] = ()


_encoder: Final = msgspec.msgpack.Encoder()
_columns_decoder: Final = msgspec.msgpack.Decoder(_Columns)


def encode_columns(index: IndexColumns) -> bytes:
    # Names may hold lone surrogates, which msgpack's strings cannot.
    fields = [getattr(index, name) for name in _Columns.__struct_fields__]
    return _encoder.encode(_Columns(*fields))


def decode_columns(stored: bytes) -> IndexColumns:
    columns = _columns_decoder.decode(stored)
    return IndexColumns(**{name: getattr(columns, name) for name in _Columns.__struct_fields__})


def encode_revision(revision: int) -> bytes:
    """A revision as the first bytes of a record's numbers; nothing for 0."""
    return _NUMBER.pack(revision) if revision else ABSENT


def compared_words(change: RecordChange, *, indexed: bool) -> tuple[Word, ...]:
    """What a commit compares, what it returns if that differs, and what kind of change it is.

    A deadline that became an earlier one must be `indexed` first.
    """
    known, deadline = change.known, change.deadline
    return (
        encode_revision(change.if_revision),
        f"{change.tail} {known.message} {known.page}",
        b"" if indexed or deadline is UNSET or deadline is None else deadline,
        _ACTIONS[change.action] if change.index is None else "i",
    )


def source_words(copies: LogCopy) -> tuple[Word, ...]:
    """The words of a copy's source among those of the changes."""
    return encode_revision(copies.revision), "0 0 -1", b"", "s"


def change_words(change: RecordChange, keys: RecordKeys) -> list[Word]:
    """What a change does."""
    if change.action is Action.REMOVE:
        return ["."]
    if change.action is Action.SET_ASIDE:
        return [keys.aside(change.key, change.if_revision), "."]
    totals = change.totals
    numbers = _NUMBERS.pack(change.revision, totals.sessions, totals.messages, totals.tokens, totals.cost_nanos)
    words: list[Word] = [4, "n", numbers, "h", change.head]
    if change.profile is not None:
        words += ("p", change.profile)
    if change.deadline is not UNSET:
        words += ("d", b"" if change.deadline is None else change.deadline)
    if change.index is not None:
        words += ("i", encode_columns(change.index))
    words[0] = len(words) - 1
    if change.replaces:
        words.append("*")
    for drop in change.drops:
        last = "+inf" if drop.last > _LAST else drop.last
        words += ("-", drop.part, drop.first, last, *drop.keep, b"")
    if change.copies is not None:
        words.append(f"<{change.copies.through}")
    for entry in change.puts:
        words += (f"{entry.part}{entry.number}", _NUMBER.pack(entry.number) + entry.body)
    words.append(".")
    return words


def decode_record(key: bytes, row: Reply) -> StoredRecord | None:
    """A record as `_standing.lua` returns it."""
    if not row:
        return None
    numbers, head, profile, deadline, pages, producers, *newest = row
    return StoredRecord(
        key=key,
        revision=_NUMBER.unpack_from(numbers)[0],
        head=head,
        profile=profile or b"",
        deadline=int(deadline) if deadline else None,
        entries=(*_entries(Part.KEYS, pages), *_entries(Part.PRODUCERS, producers)),
        messages=tuple(_entries(Part.MESSAGES, newest[0][::-1])) if newest else (),
    )


def decode_page(part: Part, reply: Reply, limit: int) -> EntryPage:
    if not reply:
        return EntryPage(revision=0)
    numbers, members = reply
    entries = tuple(_entries(part, members if limit >= 0 else members[::-1]))
    return EntryPage(revision=_NUMBER.unpack_from(numbers)[0], entries=entries)


def _entries(part: Part, members: Sequence[bytes]) -> list[Entry]:
    return [Entry(part=part, number=_NUMBER.unpack_from(member)[0], body=member[8:]) for member in members]


def decode_totals(numbers: bytes) -> Totals:
    _, sessions, messages, tokens, cost_nanos = _NUMBERS.unpack(numbers)
    return Totals(sessions=sessions, messages=messages, tokens=tokens, cost_nanos=cost_nanos)


def decode_found(key: bytes, row: Any, listed_at: int | None = None) -> FoundRecord:
    """A record from `ALL_FIELDS`; listed where the index has it, which is never before where its columns say."""
    numbers, head, profile, deadline, columns = row
    index = decode_columns(columns)
    if listed_at is not None and listed_at != index.listed_at:
        index = msgspec.structs.replace(index, listed_at=listed_at)
    record = StoredRecord(
        key=key,
        revision=_NUMBER.unpack_from(numbers)[0],
        head=head,
        profile=profile or b"",
        deadline=int(deadline) if deadline else None,
    )
    return FoundRecord(record=record, index=index, totals=decode_totals(numbers))
