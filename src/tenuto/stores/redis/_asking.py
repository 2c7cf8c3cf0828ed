"""Running a session's scripts: the arguments all of them share, and what refusals mean."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.errors import (
    KeyReused,
    SequenceGap,
    SessionExists,
    SessionExpired,
    SessionForeign,
    SessionNotFound,
    StoreFull,
    StoreReadOnly,
    Unavailable,
)
from tenuto.model import Producer, Scope
from tenuto.ports import Clock
from tenuto.stores.codec import Undecodable, to_micros
from tenuto.stores.redis._faults import LinkDown, Refused
from tenuto.stores.redis._keys import Keys, shelves_of
from tenuto.stores.redis._link import Link
from tenuto.stores.redis._records import read_who
from tenuto.stores.redis._scripts import Script, script
from tenuto.stores.redis._url import Shape
from tenuto.stores.redis._wire import Part, Reply

WHAT = "session store"


class Asking:
    """What every part of the store asks the servers with."""

    def __init__(self, link: Link, keys: Keys, clock: Clock) -> None:
        self.link = link
        self.keys = keys
        self._clock = clock
        self.sharded = link.address.shape is Shape.CLUSTER
        # In a cluster shelves lie in other slots, where a session's script cannot reach them.
        self._shelves = b"" if self.sharded else keys.shelves

    def now(self) -> int:
        """The clock in microseconds."""
        return to_micros(self._clock())

    async def session(
        self, name: str, key: bytes, scope: Scope, args: Sequence[Part], *, safe: bool = True, now: int | None = None
    ) -> Reply:
        """Run a session's script for `scope`. Raises `Undecodable` when the stored record is no session."""
        space, owner = shelves_of(scope)
        keys = self.keys
        shared = (self.now() if now is None else now, owner, self._shelves, space, keys.expiry(key), key)
        return await self.run(script(name), keys.session(key), (*shared, *args), safe=safe)

    async def run(self, what: Script, keys: Sequence[bytes], args: Sequence[Part], *, safe: bool = True) -> Reply:
        """Run a script and return its answer; what the servers refuse becomes our own error."""
        try:
            return await self.link.run(what, keys, args, safe=safe)
        except LinkDown as exc:
            raise failure(exc) from exc

    async def call(self, *parts: Part, key: bytes | None = None) -> Reply:
        """Make one plain call that is safe to repeat."""
        try:
            return await self.link.call(*parts, key=key)
        except LinkDown as exc:
            raise failure(exc) from exc


def failure(exc: LinkDown) -> Exception:
    """What a failed call means to callers of the port."""
    match exc.code if isinstance(exc, Refused) else "":
        case "WRONGTYPE":
            return Undecodable("a key of another type")
        case "OOM":
            return StoreFull()
        case "READONLY":
            return StoreReadOnly()
        case _:
            return Unavailable(WHAT)


def refusal(reply: Reply, session_id: str, producer: Producer | None = None) -> Exception:
    """What an answer other than success means."""
    match reply[0]:
        case b"gap" if producer is not None:
            return SequenceGap(producer.id, reply[1])
        case b"reused":
            return KeyReused()
        case b"exists":
            return SessionExists(session_id)
        case b"absent":
            return SessionNotFound(session_id)
        case b"expired":
            return SessionExpired(session_id)
        case b"foreign":
            return SessionForeign(session_id, ":".join(read_who(reply[1]).scope.owner))
        case b"newer":
            return Unavailable(WHAT, "holds a session in a newer format than this release reads")
        case _:
            return Undecodable("a session's head")
