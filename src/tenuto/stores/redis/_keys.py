"""Every key of the records in Redis, built here.

Keys hold digests, never ids. A record is one hash, so that it moves between the servers of a cluster as a whole. Its
hash tag is the first four bytes of its key: values of the state that are changed together begin alike, and share a
slot. The indexes lie in slots of their own.

    <prefix>:r:{tag}rest      hash    a record, see below; what feeds listen to
    <prefix>:aside:{tag}rest:rev hash a record that was set aside because it could not be decoded
    <prefix>:asides           zset    which those are, by owner
    <prefix>:site:{space}     zset    a site's sessions, by `listed_at`
    <prefix>:owner:{owner}    zset    an owner's sessions, by `listed_at`
    <prefix>:drawer:{drawer}  zset    the values of a drawer, by name
    <prefix>:drawers:{space}  zset    a site's drawers, by owner
    <prefix>:sites            zset    the sites, in order
    <prefix>:due:<n>          zset    records with a deadline, by that or by an earlier one
    <prefix>:all:<n>          zset    all records, by key
    <prefix>:repaired         string  in a cluster, the processes of the servers since which no place was lost
    <prefix>:repairing        string  the client that puts places back now
    <prefix>:l, :n:{...}      zset    sites, and names of API keys, in data from before the first release

Fields of a record: n revision and sums, h head, p profile, d deadline, i columns; m5, t1, k0 ... entries by part and
number, and r the first and last number of each part. While the places of a removed record in the indexes are being
removed, it is a hash with the field gone alone.
"""

from __future__ import annotations

from typing import Final

from tenuto.errors import InvalidSetting
from tenuto.model.scope import KEY_BYTES, SYSTEM, state_key
from tenuto.model.stored import KEY_GROUP

PARTS: Final = 16
"""An index of all records is split into this many keys by the first bits of a record's key: a cluster shares them."""
_END: Final = b"\0\1"


class RecordKeys:
    """Keys under one prefix, which sets installations on one server apart."""

    def __init__(self, prefix: str) -> None:
        if not prefix or not prefix.isascii() or not prefix.isprintable() or set(prefix) & set("{} *?[]\\"):
            raise InvalidSetting("prefix", "a key prefix is plain ASCII without braces, blanks, \\ and wildcards")
        start = prefix.encode()
        self._start = start
        self.records = start + b":r:{"
        self.asides = start + b":asides"
        self.aside_records = start + b":aside:{"
        self.pattern = start + b":*"
        self.repaired = start + b":repaired"
        self.repairing = start + b":repairing"
        self.sites = start + b":sites"
        api_keys = state_key(SYSTEM, "api-keys").hex().encode()
        self.unreleased = (start + b":l", b"%b:n:{%b}" % (start, api_keys))
        self.due = tuple(b"%b:due:%d" % (start, part) for part in range(PARTS))
        self.all = tuple(b"%b:all:%d" % (start, part) for part in range(PARTS))

    def record(self, key: bytes) -> bytes:
        """A record's hash."""
        digits = key.hex().encode()
        return b"%b%b}%b" % (self.records, digits[: 2 * KEY_GROUP], digits[2 * KEY_GROUP :])

    def parse_record(self, stored: bytes) -> bytes:
        """The record's key in the name of its hash."""
        return bytes.fromhex(stored[len(self.records) :].replace(b"}", b"", 1).decode())

    def aside(self, key: bytes, revision: int) -> bytes:
        """The name of a record that was set aside at a revision."""
        return b"%b%b:%x" % (self.aside_records, self.record(key)[len(self.records) :], revision)

    def site(self, space: bytes) -> bytes:
        return b"%b:site:{%b}" % (self._start, space.hex().encode())

    def owner(self, owner: bytes) -> bytes:
        return b"%b:owner:{%b}" % (self._start, owner.hex().encode())

    def words(self, space: bytes) -> bytes:
        return b"%b:words:{%b}" % (self._start, space.hex().encode())

    def drawer(self, drawer: bytes) -> bytes:
        return b"%b:drawer:{%b}" % (self._start, drawer.hex().encode())

    def drawers(self, space: bytes) -> bytes:
        return b"%b:drawers:{%b}" % (self._start, space.hex().encode())


def part_of(key: bytes) -> int:
    """The part of an index of all records that a key is in; parts are in the order of keys."""
    return key[0] * PARTS // 256


def value_place(name: str, key: bytes) -> bytes:
    """The member for a value in its drawer: names are ordered by code points, and lead to the record's key."""
    return _encode_name(name) + _END + key


def behind_name(name: str) -> bytes:
    """The end of all members with this name."""
    return _encode_name(name) + _END + b"\xff" * (KEY_BYTES + 1)


def _encode_name(name: str) -> bytes:
    # No name is the beginning of another one's bytes.
    return name.encode(errors="surrogatepass").replace(b"\0", b"\0\xff")
