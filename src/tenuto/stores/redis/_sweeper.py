"""Removes expired and surplus sessions, quarantines unreadable ones, and repairs listings."""

from __future__ import annotations

import asyncio
import logging
import re

from tenuto.errors import SessionCorrupt, Unavailable
from tenuto.model import RemovedSession, Scope
from tenuto.model.scope import SYSTEM, session_key
from tenuto.stores.codec import Undecodable
from tenuto.stores.redis._failures import failure
from tenuto.stores.redis._keys import listing_digests
from tenuto.stores.redis._listing import Place, SessionListing
from tenuto.stores.redis._records import NONE, NUMBERS_SIZE, decode_identity, read_messages
from tenuto.stores.redis._resp import CallFailed, Reply
from tenuto.stores.redis._runner import OTHER_FORMATS, ScriptRunner
from tenuto.stores.redis._script_io import Ask, parse_session
from tenuto.stores.redis._scripts import script
from tenuto.stores.redis._sites import SiteIndex
from tenuto.stores.redis._url import Endpoint

log = logging.getLogger(__name__)

_TOGETHER = 200
_REPAIRED_AT_ONCE = 500
_ROUNDS = 10
_OWNER = re.compile("[0-9a-f]{32}")


class Sweeper:
    """The upkeep of sessions."""

    def __init__(self, asking: ScriptRunner, shelves: SessionListing, spaces: SiteIndex) -> None:
        self._asking = asking
        self._keys = asking.keys
        self._shelves = shelves
        self._spaces = spaces
        self._cursors: dict[Endpoint, bytes] = {}

    async def sweep(self, limit: int) -> tuple[RemovedSession, ...]:
        """Remove up to `limit` expired sessions, then repair some of the listings."""
        gone: list[RemovedSession] = []
        for part in self._keys.expiries:
            while len(gone) < limit:
                due = await self._expired_batch(part, min(_TOGETHER, limit - len(gone)))
                removed = await asyncio.gather(*(self._expire_session(part, who) for who in due))
                gone += [one for one in removed if one is not None]
                if len(due) < _TOGETHER:
                    break
        await self._repair_listings()
        return tuple(gone)

    async def evict(self, scope: Scope, keep: int, spared: bytes | None) -> tuple[RemovedSession, ...]:
        """Remove the site's least recently changed sessions beyond `keep`, but not the spared one."""
        gone: list[RemovedSession] = []
        for _ in range(_ROUNDS):
            # Sessions that changed or vanished meanwhile change the count.
            places = await self._shelves.oldest(scope, keep, spared)
            if not places:
                break
            for place in places:
                one = await self._evict_session(scope, place)
                if one is not None:
                    gone.append(one)
        return tuple(gone)

    async def quarantine(self, key: bytes, reason: str) -> None:
        """Move an unreadable session to quarantine with the reason; one that is readable by now stays."""
        stamp, facts = await self._asking.run_script(script("stamp"), self._keys.session(key)[:1], ())
        if await self._is_readable(key):
            return
        now = self._asking.now()
        owner = _recover_owner(key, stamp, facts)
        if owner:
            # The owner first: a copy without an owner would survive the owner's erasure.
            theirs = self._keys.owner_quarantine(owner)
            await self._asking.call("ZADD", theirs, now, b"%b:%d" % (key.hex().encode(), now), key=theirs)
        keys = (*self._keys.session(key), *self._keys.quarantine(key, now))
        if await self._asking.run_script(script("set_aside"), keys, (now, reason, stamp)):
            await self._asking.call("ZADD", self._keys.set_aside, now, key.hex(), key=self._keys.set_aside)
            log.warning("session record %s could not be read and was set aside: %s", key.hex(), reason)

    async def corrupt(self, key: bytes, session_id: str, damage: Undecodable) -> SessionCorrupt:
        """Quarantine the record, so that its id is free again, and return the error to raise."""
        await self.quarantine(key, str(damage))
        return SessionCorrupt(session_id)

    async def _is_readable(self, key: bytes) -> bool:
        """Whether the whole session can be read; for scripts a scope without an owner reaches all sessions."""
        try:
            reply = await self._asking.session("snapshot", key, SYSTEM, Ask((NONE,)))
            if reply[0] == b"ok":
                parse_session(reply)
                read_messages(reply[5])
                await self._asking.session("traces", key, SYSTEM, Ask((0, 1, 1)))
        except Undecodable:
            return False
        return bool(reply[0] != b"corrupt")

    async def _expired_batch(self, part: bytes, count: int) -> list[bytes]:
        now = self._asking.now()
        found: list[bytes] = await self._asking.call(
            "ZRANGE", part, "-inf", now, "BYSCORE", "LIMIT", 0, count, key=part
        )
        return found

    async def _expire_session(self, part: bytes, facts: bytes) -> RemovedSession | None:
        try:
            identity = decode_identity(facts)
            key = session_key(identity.scope, identity.session_id)
            reply = await self._asking.session("expire", key, identity.scope, Ask(parts=(facts,)))
        except Undecodable:
            # The entry is damaged, or reading the session quarantines it.
            await self._asking.call("ZREM", part, facts, key=part)
            return None
        if reply[0] == b"kept" and reply[1] >= 0:
            # The session was touched since: move the entry to its deadline.
            await self._asking.call("ZADD", part, "XX", reply[1], facts, key=part)
        elif reply[0] == b"gone":
            await self._shelves.clear(key, facts)
            return RemovedSession(scope=identity.scope, session_id=identity.session_id)
        elif reply[0] not in OTHER_FORMATS:
            await self._asking.call("ZREM", part, facts, key=part)
        return None

    async def _evict_session(self, scope: Scope, place: Place) -> RemovedSession | None:
        at, key = place
        try:
            reply = await self._asking.session("evict", key, scope, Ask((at,)))
        except Undecodable:
            reply = [b"corrupt"]
        match reply[0]:
            case b"gone":
                await self._shelves.clear(key, reply[2])
                identity = decode_identity(reply[2])
                return RemovedSession(scope=identity.scope, session_id=identity.session_id)
            case b"moved":
                shelf = self._keys.shelf(listing_digests(scope)[0])
                await self._asking.call("ZADD", shelf, "XX", reply[1], key, key=shelf)
            case b"absent":
                await self._shelves.remove_stale(scope, place)
            case b"newer" | b"older":
                return None  # Left to the release that wrote it.
            case _:
                await self.quarantine(key, "its head could not be read")
                await self._shelves.remove_stale(scope, place)
        return None

    async def _repair_listings(self) -> None:
        """Repair the listings of some sessions of each server, each time of the next ones."""
        try:
            for endpoint in await self._asking.link.primaries():
                await self._repair_node(endpoint)
            await self._spaces.tidy()
        except CallFailed as exc:
            raise failure(exc) from exc
        except Unavailable:
            log.warning("the repair of indexes was interrupted; the next sweep continues it")

    async def _repair_node(self, endpoint: Endpoint) -> None:
        cursor = self._cursors.get(endpoint, b"0")
        pattern = self._keys.heads + b"*"
        cursor, heads = await self._asking.link.call_node(
            endpoint, "SCAN", cursor, "MATCH", pattern, "COUNT", _REPAIRED_AT_ONCE
        )
        self._cursors[endpoint] = cursor
        await asyncio.gather(*(self._repair_session(self._keys.parse_session_key(head)) for head in heads))

    async def _repair_session(self, key: bytes) -> None:
        try:
            # `peek` reads any session; its scope argument is not used.
            reply: Reply = await self._asking.session("peek", key, SYSTEM)
            if reply[0] == b"ok":
                await self._shelves.repair(key, parse_session(reply), expiry=True, space=True)
        except Undecodable:
            return


def _recover_owner(key: bytes, stamp: bytes, facts: bytes) -> str:
    """The owner of a damaged session from its identity or its numbers; '' if unknown."""
    try:
        identity = decode_identity(facts)
        if session_key(identity.scope, identity.session_id) == key:
            return listing_digests(identity.scope)[1]
    except Undecodable:
        pass
    owner = stamp[NUMBERS_SIZE:].decode(errors="replace")
    return owner if _OWNER.fullmatch(owner) else ""
