"""Every key this store uses, built here and nowhere else.

Keys hold digests, never ids, so that no id can collide with other data. All keys of a session share a hash tag, hence a
slot, and exist as long as it does; listings (shelves) and the expiry index are in the slots of their own tags.

    <prefix>:h:{session}  hash    the head, with idempotency keys and producers' marks; what caches listen to
    <prefix>:g:{session}  hash    there for no longer than a script runs, to tell caches that it takes something away
    <prefix>:b:{session}  hash    as long, to tell them that changes of several writers may be told as one
    <prefix>:c:{session}  zset    messages of a long session while it is copied here; it expires
    <prefix>:m:{session}  zset    the messages, by sequence number
    <prefix>:v:{session}  hash    context, attributes and metadata, one field per name
    <prefix>:t:{session}  zset    traces, by their turn's number
    <prefix>:w:{shelf}    zset    a site's or an owner's sessions, by last change
    <prefix>:l            zset    the sites that have sessions, in order of their digests
    <prefix>:x:<n>        zset    whose retention may be over, by when
    <prefix>:s:{owner}    hash    values of an owner's state, by drawer and name
    <prefix>:n:{owner}    zset    their names, in order
    <prefix>:d:{owner}    hash    whose a drawer is and what it is called, by its digest; of the tenant's own, digests
    <prefix>:o:{shelf}    zset    the users and chats of a site that keep state, in order of their digests
    <prefix>:q:{session}: ...     a session set aside because it could not be read
    <prefix>:q            zset    sessions set aside, by when
    <prefix>:a:{owner}    zset    which of them are an owner's, by when

The tenant's own state, which is never erased as a whole, is spread: each drawer has its own keys.
"""

from __future__ import annotations

from functools import lru_cache

from tenuto.errors import InvalidSetting
from tenuto.model import Scope
from tenuto.model.scope import owner_key, site_key, state_key

EXPIRY_PARTS = 16
"""The expiry index is split into this many keys, so that a cluster shares the work."""

_SESSION = (b":h:", b":m:", b":v:", b":t:")


class RedisKeys:
    """Keys under one prefix, which sets installations on one server apart."""

    def __init__(self, prefix: str) -> None:
        if not prefix or not prefix.isascii() or not prefix.isprintable() or set(prefix) & set("{} *?[]"):
            raise InvalidSetting("prefix", "a key prefix is plain ASCII without braces, blanks and wildcards")
        start = prefix.encode()
        self._start = start
        self._families = tuple(start + kind + b"{" for kind in _SESSION)
        self.heads = self._families[0]
        self.values = start + b":s:{"
        self.gone = start + b":g:{"
        self.mixed = start + b":b:{"
        self.shelves = start + b":w:{"
        self.spaces = start + b":l"
        self.set_aside = start + b":q"
        self._expiry = tuple(b"%b:x:%d" % (start, part) for part in range(EXPIRY_PARTS))

    def session(self, key: bytes) -> tuple[bytes, ...]:
        """All keys of a session: head, messages, variables, traces."""
        tail = key.hex().encode() + b"}"
        return tuple(family + tail for family in self._families)

    def parse_session_key(self, stored: bytes) -> bytes:
        """The session key in the name of a head, or of a removal marker."""
        return bytes.fromhex(stored[len(self.heads) : -1].decode())

    def stage(self, key: bytes) -> bytes:
        """The messages of a session that is being copied here."""
        return b"%b:c:{%b}" % (self._start, key.hex().encode())

    def quarantine(self, key: bytes, micros: int) -> tuple[bytes, ...]:
        """The keys of a quarantined session, and of the note about it."""
        place = b"%b:q:{%b}:%d" % (self._start, key.hex().encode(), micros)
        return (*(place + kind[:2] for kind in _SESSION), place)

    def shelf(self, shelf: str) -> bytes:
        """A shelf by its digest in hexadecimal."""
        return self.shelves + shelf.encode() + b"}"

    def expiry(self, key: bytes) -> bytes:
        """The part of the expiry index that holds a session."""
        return self._expiry[key[0] % EXPIRY_PARTS]

    @property
    def expiries(self) -> tuple[bytes, ...]:
        """All parts of the expiry index."""
        return self._expiry

    def owner_quarantine(self, owner: str) -> bytes:
        """The quarantined sessions of an owner."""
        return b"%b:a:{%b}" % (self._start, owner.encode())

    def state(self, scope: Scope, namespace: str) -> tuple[bytes, bytes, bytes]:
        """The keys of values, names and drawers of a scope's state; an owner has one set."""
        return self.owner_state_keys((owner_key(scope) if scope.owner else state_key(scope, namespace)).hex())

    def owner_state_keys(self, owner: str) -> tuple[bytes, bytes, bytes]:
        """Values, names and drawers of all state an owner has."""
        tag = b"{%b}" % owner.encode()
        return self._start + b":s:" + tag, self._start + b":n:" + tag, self._start + b":d:" + tag

    def parse_state_owner(self, stored: bytes) -> str:
        """The owner, or the tenant's own drawer, in the key of its values."""
        return stored[len(self.values) : -1].decode()

    def state_owners(self, space: str) -> bytes:
        """The users and chats of a site that keep state, by the site's digest in hexadecimal."""
        return b"%b:o:{%b}" % (self._start, space.encode())


@lru_cache(maxsize=4096)
def listing_digests(scope: Scope) -> tuple[str, str]:
    """The listings of the site and of the owner; the tenant itself has only the first."""
    return site_key(scope).hex(), owner_key(scope).hex() if scope.owner else ""
