"""Runs a session's scripts with the arguments they share, and translates refusals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tenuto.errors import (
    IdempotencyKeyReused,
    SequenceGap,
    SessionExists,
    SessionExpired,
    SessionForeign,
    SessionNotFound,
    Unavailable,
)
from tenuto.model import Producer, Scope
from tenuto.model.scope import SYSTEM
from tenuto.ports import Clock
from tenuto.stores.codec import Undecodable, to_micros
from tenuto.stores.redis._client import Link
from tenuto.stores.redis._failures import WHAT, failure
from tenuto.stores.redis._keys import RedisKeys, listing_digests
from tenuto.stores.redis._records import Facts, decode_identity, encode_identity
from tenuto.stores.redis._resp import CallFailed, Part, Reply, pack
from tenuto.stores.redis._script_io import Ask, integers
from tenuto.stores.redis._scripts import Script, script
from tenuto.stores.redis._url import DeploymentMode

OLDER = "holds data from before the first release: begin with an empty database, or another ?prefix="
OTHER_FORMATS = (b"newer", b"older")
"""Replies about a session that another release wrote."""
NOTHING = Ask()
_DECOY = encode_identity(Facts(scope=SYSTEM, session_id="-", incarnation="-"))


class ScriptRunner:
    """Runs scripts and calls for every part of the store."""

    def __init__(self, link: Link, keys: RedisKeys, clock: Clock) -> None:
        self.link = link
        self.keys = keys
        self._clock = clock
        self._beginning = lru_cache(maxsize=16384)(self._call_prefix)
        self.sharded = link.address.shape is DeploymentMode.CLUSTER
        """In a cluster listings are in other slots, which a session's script cannot reach."""

    def now(self) -> int:
        """The clock in microseconds."""
        return to_micros(self._clock())

    async def session(
        self, name: str, key: bytes, scope: Scope, ask: Ask = NOTHING, *, safe: bool = True, now: int | None = None
    ) -> Reply:
        """Run a session's script for `scope`. Raises `Undecodable` when the stored record is no session."""
        numbers, parts = ask
        row = integers(len(numbers) + 1).pack(self.now() if now is None else now, *numbers)
        what, head, beginning, count = self._beginning(name, scope, key)
        rest = pack((row, *parts))
        packed = b"*%d\r\n%b%b" % (count + len(parts), beginning, rest[rest.index(b"\n") + 1 :])
        try:
            return await self.link.eval_packed(what, head, packed, safe=safe)
        except CallFailed as exc:
            raise failure(exc) from exc

    def _call_prefix(self, name: str, scope: Scope, key: bytes) -> tuple[Script, bytes, bytes, int]:
        """The packed arguments that a script's calls for one session share, more than half of a call.

        These are digest, keys, and what every script takes: owner, listing, expiry index, session key.
        """
        space, owner = listing_digests(scope)
        shelf = b"" if self.sharded else self.keys.shelf(space)
        what, keys = script(name), self.keys.session(key)
        parts: tuple[Part, ...] = ("EVALSHA", what.sha, len(keys), *keys, owner, shelf, self.keys.expiry(key), key)
        packed = pack(parts)
        return what, keys[0], packed[packed.index(b"\n") + 1 :], len(parts) + 1

    async def run_script(
        self, what: Script, keys: Sequence[bytes], args: Sequence[Part], *, safe: bool = True
    ) -> Reply:
        """Run a script and return its reply; raises errors of the port."""
        try:
            return await self.link.eval_script(what, keys, args, safe=safe)
        except CallFailed as exc:
            raise failure(exc) from exc

    async def call(self, *parts: Part, key: bytes | None = None) -> Reply:
        """Make one plain call that is safe to repeat."""
        try:
            return await self.link.call(*parts, key=key)
        except CallFailed as exc:
            raise failure(exc) from exc


def refusal(reply: Reply, session_id: str, producer: Producer | None = None) -> Exception:
    """The error for a reply other than success."""
    match reply[0]:
        case b"absent" | b"expired" | b"foreign":
            # All three take the same steps, so that timing does not reveal which it is. An absent session comes with a
            # decoy of the same length.
            owner = ":".join(decode_identity(_DECOY if reply[0] == b"absent" else reply[1]).scope.owner)
            outcomes = (SessionNotFound(session_id), SessionExpired(session_id), SessionForeign(session_id, owner))
            return outcomes[(b"absent", b"expired", b"foreign").index(reply[0])]
        case b"gap" if producer is not None:
            return SequenceGap(producer.id, reply[1])
        case b"reused":
            return IdempotencyKeyReused()
        case b"exists":
            return SessionExists(session_id)
        case b"newer":
            return Unavailable(WHAT, "holds a session in a newer format than this release reads")
        case b"older":
            return Unavailable(WHAT, OLDER)
        case _:
            return Undecodable("a session's head")
