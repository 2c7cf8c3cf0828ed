"""Records as the scripts take and return them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET

from tenuto.model.scope import KEY_BYTES
from tenuto.model.stored import (
    OWNER_BYTES,
    Action,
    Entry,
    EntryPage,
    FoundRecord,
    IndexColumns,
    LogCopy,
    Part,
    RecordChange,
    StoredRecord,
    Totals,
    WordChange,
)
from tenuto.stores.columns import decode_index
from tenuto.stores.redis._keys import RecordKeys
from tenuto.stores.redis._resp import Part as Word
from tenuto.stores.redis._resp import Reply

_NUMBERS: Final = struct.Struct(">7Q")
_NUMBER: Final = struct.Struct(">Q")
_NIL: Final = b"\xc0"
ABSENT: Final = b""
"""The revision to compare with where no record is expected."""
_ACTIONS: Final = {Action.WRITE: "w", Action.REMOVE: "r", Action.SET_ASIDE: "a"}
_REPLACED: Final = WordChange(forgets=True)
ALL_FIELDS: Final = ("n", "h", "p", "d", "i")


class _Columns(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The index columns as they are stored; new ones are appended."""

    space: bytes
    owner: bytes
    kind: Any
    scope: Any
    listed_at: int
    status: Any
    title: str
    drawer: bytes
    namespace: str
    name: str


class _Stored(_Columns, array_like=True, frozen=True, gc=False):
    """The columns as they are found: what may be damaged, or of a newer release, is decoded apart."""

    scope: msgspec.Raw


_encoder: Final = msgspec.msgpack.Encoder()
_columns_decoder: Final = msgspec.msgpack.Decoder(_Stored)
_LOST: Final = IndexColumns(space=bytes(KEY_BYTES), owner=bytes(KEY_BYTES), kind=None, status=None, is_damaged=True)
"""The columns of a record of which none can be decoded."""


def encode_columns(index: IndexColumns) -> bytes:
    # Names may hold lone surrogates, which msgpack's strings cannot.
    fields = [getattr(index, name) for name in _Columns.__struct_fields__]
    return _encoder.encode(_Columns(*fields))


def decode_columns(stored: bytes) -> IndexColumns:
    """Index columns; what cannot be decoded is `None`."""
    try:
        columns = _columns_decoder.decode(stored)
    except (msgspec.MsgspecError, ValueError):
        return _LOST
    scope = bytes(columns.scope)
    return decode_index(
        columns.space,
        columns.kind,
        None if scope == _NIL else scope,
        columns.status,
        owner=columns.owner,
        listed_at=columns.listed_at,
        title=columns.title,
        drawer=columns.drawer,
        namespace=columns.namespace,
        name=columns.name,
    )


def is_lost(index: IndexColumns) -> bool:
    """Whether nothing but its place in an index tells whose a record is."""
    return index is _LOST or index.space == _LOST.space


def encode_revision(revision: int) -> bytes:
    """A revision as the first bytes of a record's numbers; nothing for 0."""
    return _NUMBER.pack(revision) if revision else ABSENT


def compared_words(change: RecordChange, *, indexed: bool, insists: bool) -> tuple[Word, ...]:
    """What a commit compares, what it returns if that differs, and what kind of change it is.

    A deadline that became an earlier one must be `indexed` first. One that `insists` gets the next turn if refused.
    """
    known, deadline = change.known, change.deadline
    return (
        encode_revision(change.if_revision),
        f"{change.tail} {known.message} {known.page}{' !' if insists else ''}",
        b"" if indexed or deadline is UNSET or deadline is None else deadline,
        _action(change),
    )


def _action(change: RecordChange) -> str:
    if change.index is None:
        return _ACTIONS[change.action]
    return "f" if forgets_words(change) else "i"


def forgets_words(change: RecordChange) -> bool:
    """Whether the words that the record was found by are all removed."""
    return change.replaces or (change.words is not None and change.words.forgets)


def source_words(copies: LogCopy) -> tuple[Word, ...]:
    """The words of a copy's source among those of the changes."""
    return encode_revision(copies.revision), "0 0 -1", b"", "s"


def change_words(
    change: RecordChange, keys: RecordKeys, places: Sequence[tuple[Word, ...]] = (), *, sharded: bool = False
) -> list[Word]:
    """What a change does; `places` are added to indexes on the same server, if it is not `sharded`."""
    if change.action is Action.REMOVE:
        return ["."]
    if change.action is Action.SET_ASIDE:
        return [keys.aside(change.key, change.if_revision), "."]
    numbers = _NUMBERS.pack(change.revision, *change.totals.numbers)
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
        words += ("-", drop.part, drop.first, drop.last, *drop.keep, b"")
    if change.index is not None and (change.words is not None or change.replaces):
        found_by = change.words or _REPLACED
        name = b"" if sharded else keys.words(change.index.space)
        suffix = word_place(b"", change.index.owner, change.key)
        words += ("W", name, suffix, int(forgets_words(change)), b"".join(found_by.removed), b"".join(found_by.added))
    for place in places:
        words += ("+", len(place), *place)
    if change.copies is not None:
        words += ("<", change.copies.first, change.copies.through, *change.copies.attachments, b"")
    for entry in change.puts:
        words += (entry.part, entry.number, entry.body)
    words.append(".")
    return words


def word_place(word: bytes, owner: bytes, key: bytes) -> bytes:
    """The member for a session in the index of words: the sessions of an owner with a word lie together."""
    return word + owner[:OWNER_BYTES] + key


def decode_record(key: bytes, row: Reply) -> StoredRecord | None:
    """A record as `standing` of the scripts returns it."""
    if not row:
        return None
    numbers, head, profile, deadline, pages, producers, newest = row
    return StoredRecord(
        key=key,
        revision=_NUMBER.unpack_from(numbers)[0],
        head=head,
        profile=profile or b"",
        deadline=int(deadline) if deadline else None,
        entries=tuple(_entries(Part.KEYS, pages) + _entries(Part.PRODUCERS, producers)),
        messages=tuple(_entries(Part.MESSAGES, newest)[::-1]),
    )


def decode_page(part: Part, reply: Reply, limit: int) -> EntryPage:
    """A page; with a negative limit it comes in descending order."""
    if not reply:
        return EntryPage(revision=0)
    numbers, row = reply
    entries = _entries(part, row)
    return EntryPage(revision=_NUMBER.unpack_from(numbers)[0], entries=tuple(entries if limit >= 0 else entries[::-1]))


def _entries(part: Part, row: Sequence[Any]) -> list[Entry]:
    """Entries of a row of numbers and bodies."""
    return [Entry(part=part, number=row[at], body=row[at + 1]) for at in range(0, len(row), 2)]


def decode_totals(numbers: bytes) -> Totals:
    return Totals.of(_NUMBERS.unpack(numbers)[1:])


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
