"""Memory that the processes of a folder share: whether the store is away, votes, and noted revisions.

It is a file mapped by all of them, and lasts as long as any of them lives. Each number has one writer or is written
inside a transaction of the database. A noted revision is one entry with a checksum: of two that are written at once one
stands, or neither, and then the session counts as not current.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import Final

from tenuto.errors import Unavailable

MOST_MEMBERS: Final = 64
_MAGIC: Final = b"tenuto\x00\x01"
# Places of 8 bytes.
_DOWN, _EPOCH, _JOINS, _OUTAGES = 1, 2, 3, 4
_MEMBERS: Final = 8
_VOTE, _CHANGES, _OFFERED, _MEMBER_SIZE = 0, 1, 2, 4
_TABLE: Final = 4096
_ENTRY: Final = struct.Struct("=16sQI")
_ENTRY_BYTES: Final = 32
_ENTRIES: Final = 7
_BUCKET_BYTES: Final = (_ENTRIES + 1) * _ENTRY_BYTES
_KEY: Final = 16
_LOSSY: Final = b"\x01"


class SharedMemory:
    """The mapped file. A bucket of entries that is full forgets one of them, and knows that it did."""

    def __init__(self, path: Path, *, buckets: int = 8192) -> None:
        self._size = _TABLE + buckets * _BUCKET_BYTES
        self._buckets = buckets
        self._path = path
        self._map: mmap.mmap | None = None

    def reset(self) -> None:
        """Write an empty file in full, since a mapped page that finds no room on the disk ends the process.

        Raises:
            OSError: there is no room.
        """
        self._path.touch(mode=0o600)
        self._path.write_bytes(_MAGIC + bytes(self._size - len(_MAGIC)))

    def map(self) -> None:
        """Map the file.

        Raises:
            Unavailable: another release wrote it.
        """
        with self._path.open("r+b") as file:
            if file.read(len(_MAGIC)) != _MAGIC or os.fstat(file.fileno()).st_size != self._size:
                raise Unavailable("journal", "is in use by processes of another release")
            self._map = mmap.mmap(file.fileno(), self._size)
        self._numbers = memoryview(self._map).cast("Q")

    def close(self) -> None:
        """Unmap it."""
        if self._map is not None:
            self._numbers.release()
            self._map.close()
            self._map = None

    # Numbers

    @property
    def is_down(self) -> bool:
        """Whether the store is taken for away."""
        return bool(self._numbers[_DOWN])

    def go_down(self) -> None:
        """The store is away from now on."""
        self._numbers[_OUTAGES] += 1
        self._numbers[_DOWN] = 1

    def go_up(self) -> None:
        """The store is back; all votes are forgotten."""
        self._numbers[_DOWN] = 0
        for member in range(MOST_MEMBERS):
            self._numbers[self._place(member, _VOTE)] = 0

    @property
    def epoch(self) -> int:
        """How often votes were asked for."""
        return self._numbers[_EPOCH]

    @property
    def joins(self) -> int:
        """How often a process has joined."""
        return self._numbers[_JOINS]

    def join(self, member: int) -> None:
        """A process begins as this member."""
        self._numbers[_JOINS] += 1
        self._numbers[self._place(member, _VOTE)] = 0
        self.mark_offered(member)

    def mark_offered(self, member: int) -> None:
        """A member has left what it knows in this outage."""
        self._numbers[self._place(member, _OFFERED)] = self._numbers[_OUTAGES]

    def has_offered(self, member: int) -> bool:
        """Whether a member has left what it knows in this outage."""
        return self._numbers[self._place(member, _OFFERED)] == self._numbers[_OUTAGES]

    def ask(self) -> int:
        """Begin a new vote."""
        self._numbers[_EPOCH] += 1
        return self.epoch

    def vote(self, member: int, is_away: bool) -> None:
        """Write a member's vote of this epoch."""
        self._numbers[self._place(member, _VOTE)] = self.epoch << 2 | (1 if is_away else 2)

    def vote_of(self, member: int) -> bool | None:
        """A member's vote of this epoch."""
        epoch, vote = divmod(self._numbers[self._place(member, _VOTE)], 4)
        return vote == 1 if epoch == self.epoch and vote else None

    def count_change(self, member: int) -> None:
        """A member has changed the database."""
        self._numbers[self._place(member, _CHANGES)] += 1

    def changes(self) -> int:
        """A number that is another one after any change of the database."""
        return sum(self._numbers[_MEMBERS + _CHANGES : _MEMBERS + MOST_MEMBERS * _MEMBER_SIZE : _MEMBER_SIZE])

    def _place(self, member: int, what: int) -> int:
        return _MEMBERS + member * _MEMBER_SIZE + what

    # Revisions

    def note(self, key: bytes, revision: int, incarnation: str) -> None:
        """Note the revision of a session, unless a later one of the same incarnation is noted."""
        start, place, known = self._find(key)
        tag = zlib.crc32(incarnation.encode())
        if known is not None and known[1] == tag:
            if known[0] >= revision:
                return
        elif place is None:
            place = start + _ENTRY_BYTES * (1 + key[_KEY - 1] % _ENTRIES)
            self._memory[start : start + 1] = _LOSSY
        assert place is not None
        entry = _ENTRY.pack(key[:_KEY], revision, tag)
        self._memory[place : place + _ENTRY_BYTES] = entry + zlib.crc32(entry).to_bytes(4, "big")

    def is_current(self, key: bytes, revision: int, incarnation: str) -> bool:
        """Whether no later revision was noted; false if that may have been forgotten."""
        start, place, known = self._find(key)
        if known is not None:
            return known == (revision, zlib.crc32(incarnation.encode()))
        return place is not None and not self._is_lossy(start)

    def is_noted(self, key: bytes) -> bool:
        """Whether a revision may have been noted."""
        start, _, known = self._find(key)
        return known is not None or self._is_lossy(start)

    def _is_lossy(self, start: int) -> bool:
        return self._memory[start : start + 1] == _LOSSY

    @property
    def _memory(self) -> mmap.mmap:
        assert self._map is not None
        return self._map

    def _find(self, key: bytes) -> tuple[int, int | None, tuple[int, int] | None]:
        """The bucket of a key, the entry that is its own or free, and what is noted there.

        An entry whose checksum is wrong may be of any key: it counts for none, and no other one of its bucket is
        certain.
        """
        start = _TABLE + int.from_bytes(key[:4], "big") % self._buckets * _BUCKET_BYTES
        bucket = self._memory[start : start + _BUCKET_BYTES]
        free: int | None = None
        for place in range(_ENTRY_BYTES, _BUCKET_BYTES, _ENTRY_BYTES):
            entry = bucket[place : place + _ENTRY.size]
            if bucket[place : place + _KEY] == key[:_KEY]:
                check = bucket[place + _ENTRY.size : place + _ENTRY_BYTES]
                if zlib.crc32(entry).to_bytes(4, "big") != check:
                    return start, start + place, (-1, 0)
                _, revision, tag = _ENTRY.unpack(entry)
                return start, start + place, (revision, tag)
            if free is None and not any(entry):
                free = start + place
        return start, free, None
