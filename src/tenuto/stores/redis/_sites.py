"""The index of sites: a list of digests, for upkeep of all tenants.

It is derived data like the listings: a site is added before any state of its users, and with each new session; the
sweep's repair adds what a crash left out. Its scope is read from a session or a drawer. A site without either is
removed when the index is read.
"""

from __future__ import annotations

import asyncio

from tenuto.model import Scope
from tenuto.model.scope import SYSTEM, site_scope
from tenuto.stores.codec import Undecodable
from tenuto.stores.redis._keys import listing_digests
from tenuto.stores.redis._listing import Place, SessionListing
from tenuto.stores.redis._records import decode_identity
from tenuto.stores.redis._resp import Reply
from tenuto.stores.redis._runner import ScriptRunner
from tenuto.stores.redis._scripts import script
from tenuto.stores.redis._state_owners import StateOwners

_TOGETHER = 100
_TIDIED_AT_ONCE = 500
_LOOKED_AT = 10


class SiteIndex:
    """The index of sites (spaces)."""

    def __init__(self, asking: ScriptRunner, shelves: SessionListing, owners: StateOwners) -> None:
        self._asking = asking
        self._keys = asking.keys
        self._shelves = shelves
        self._owners = owners
        self._tidied = b""

    async def page(self, after: Scope | None, limit: int) -> tuple[Scope, ...]:
        """Sites that hold sessions or state of users, in order of their digests."""
        behind = b"" if after is None else listing_digests(after)[0].encode()
        found: list[Scope] = []
        while len(found) < limit:
            size = min(_TOGETHER, limit - len(found))
            listed = await self._read_page(behind, size)
            scopes = await asyncio.gather(*map(self._find_site, listed))
            found += [scope for scope in scopes if scope is not None]
            if len(listed) < size:
                break
            behind = listed[-1]
        return tuple(found)

    async def tidy(self) -> None:
        """Remove empty sites from a part of the index, each time from the next part."""
        listed = await self._read_page(self._tidied, _TIDIED_AT_ONCE)
        self._tidied = listed[-1] if len(listed) == _TIDIED_AT_ONCE else b""
        counts = await asyncio.gather(*map(self._count_records, listed))
        await asyncio.gather(*(self._leave(space) for space, count in zip(listed, counts, strict=True) if not count))

    async def _read_page(self, behind: bytes, size: int) -> list[bytes]:
        start = b"(" + behind if behind else b"-"
        listed: list[bytes] = await self._call("ZRANGE", start, "+", "BYLEX", "LIMIT", 0, size)
        return listed

    async def _find_site(self, space: bytes) -> Scope | None:
        """The scope of a site; `None` if it holds nothing readable."""
        ghosts: list[Place] = []
        scope = await self._site_from_sessions(space, ghosts)
        for at, key in ghosts:
            await self._asking.run_script(script("unshelve"), [self._listing_key(space)], [key, at])
        if scope is None:
            scope = await self._owners.whose(space.decode())
        if scope is None and not await self._count_records(space):
            await self._leave(space)
        return scope

    async def _site_from_sessions(self, space: bytes, ghosts: list[Place]) -> Scope | None:
        """The scope of the first readable session. The `ghosts` before it are removed later: the walk counts places."""
        async for places in self._shelves.walk(self._listing_key(space), None, _LOOKED_AT):
            for at, key in places:
                try:
                    reply = await self._asking.session("peek", key, SYSTEM)
                    if reply[0] == b"ok":
                        return site_scope(decode_identity(reply[2]).scope)
                except Undecodable:
                    continue  # The next call that reads the session quarantines it.
                if reply[0] == b"absent":
                    ghosts.append((at, key))
        return None

    async def _leave(self, space: bytes) -> None:
        """Remove an empty site, and add it again if it got a session meanwhile.

        In a cluster a new session updates index and listing concurrently. If all of this happens between the two, the
        site is missing until its next session or the repair.
        """
        await self._call("ZREM", space)
        if await self._count_records(space):
            await self._call("ZADD", 0, space)

    async def _count_records(self, space: bytes) -> int:
        shelf = self._listing_key(space)
        sessions: int = await self._asking.call("ZCARD", shelf, key=shelf)
        return sessions + await self._owners.count(space.decode())

    def _listing_key(self, space: bytes) -> bytes:
        return self._keys.shelf(space.decode())

    async def _call(self, command: str, *parts: bytes | str | int) -> Reply:
        return await self._asking.call(command, self._keys.spaces, *parts, key=self._keys.spaces)
