"""The users and chats that hold state, and the names of their state, for upkeep of all tenants.

Each site has a list of digests, derived data like the index of sites. An owner is added before the first value of a
drawer, so that a crash leaves an entry too many; and again after an owner's first value, since a reader may have found
nothing and removed the entry meanwhile. Only a crash or a lost reply right after such a removal leaves one too few,
until the owner begins another drawer. The scope of a digest is in the notes of the owner's drawers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final

import msgspec

from tenuto.model import Scope, StateLocation
from tenuto.model.scope import KEY_BYTES, owner_key, owner_scope, site_key, site_scope
from tenuto.stores.paging import read_location, stretch
from tenuto.stores.redis._keys import listing_digests
from tenuto.stores.redis._runner import ScriptRunner
from tenuto.stores.redis._scripts import script

_TOGETHER: Final = 100
_notes: Final = msgspec.json.Decoder(tuple[Scope, str])


def note(scope: Scope, namespace: str) -> bytes:
    """The note of a drawer: its owner and name; of the tenant's own, which is not listed, the digests of both keys."""
    if scope.owner:
        return msgspec.json.encode((owner_scope(scope), namespace))
    return site_key(scope) + owner_key(scope)


class StateOwners:
    """The lists of owners."""

    def __init__(self, asking: ScriptRunner) -> None:
        self._asking = asking
        self._keys = asking.keys

    async def add_all(self, scopes: Iterable[Scope]) -> None:
        """Add many owners, and their sites."""
        await asyncio.gather(*(self._add_to_indexes(*digests) for digests in {listing_digests(one) for one in scopes}))

    async def add(self, scope: Scope) -> None:
        """Add an owner with state, and its site."""
        await self._add_to_indexes(*listing_digests(scope))

    async def leave(self, space: str, owner: str) -> None:
        """Remove an owner without state, and add it again if it has written meanwhile."""
        listed, values = self._keys.state_owners(space), self._keys.owner_state_keys(owner)[0]
        await self._asking.call("ZREM", listed, owner, key=listed)
        if await self._asking.call("EXISTS", values, key=values):
            await self._add_to_indexes(space, owner)

    async def count(self, space: str) -> int:
        """The number of owners of a site."""
        listed = self._keys.state_owners(space)
        count: int = await self._asking.call("ZCARD", listed, key=listed)
        return count

    async def whose(self, space: str) -> Scope | None:
        """The scope of a site from its owners' notes; `None` if none of them holds state."""
        async for owner in self._iter_owners(space, ""):
            if found := await self._owner_locations(owner, b"", 1):
                return site_scope(found[0].scope)
            await self.leave(space, owner)
        return None

    async def names(self, scope: Scope, after: StateLocation | None, limit: int) -> tuple[StateLocation, ...]:
        """The locations of values within the scope, by owner, drawer and key."""
        first, drawer, key, last = stretch(scope, after)
        found: list[StateLocation] = []
        space = listing_digests(scope)[0]
        async for owner in self._iter_owners(space, first.hex()):
            if len(found) >= limit or owner > last.hex():
                break
            behind = drawer + key.encode() if owner == first.hex() else b""
            of_owner = await self._owner_locations(owner, behind, limit - len(found))
            if not of_owner and not behind:
                await self.leave(space, owner)
            found += of_owner
        return tuple(found)

    async def _add_to_indexes(self, space: str, owner: str) -> None:
        """The owner first: a concurrent removal of the site checks for owners afterwards."""
        listed = self._keys.state_owners(space)
        await self._asking.call("ZADD", listed, 0, owner, key=listed)
        await self._asking.call("ZADD", self._keys.spaces, 0, space, key=self._keys.spaces)

    async def _iter_owners(self, space: str, start: str) -> AsyncIterator[str]:
        """The owners of a site, from `start` on."""
        listed, bound = self._keys.state_owners(space), f"[{start}" if start else "-"
        while True:
            page = await self._asking.call("ZRANGE", listed, bound, "+", "BYLEX", "LIMIT", 0, _TOGETHER, key=listed)
            for owner in page:
                yield owner.decode()
            if len(page) < _TOGETHER:
                return
            bound = f"({page[-1].decode()}"

    async def _owner_locations(self, owner: str, behind: bytes, limit: int) -> list[StateLocation]:
        """Locations of one owner; drawers without a readable note are skipped."""
        keys = self._keys.owner_state_keys(owner)[1:]
        found: list[StateLocation] = []
        while (wanted := limit - len(found)) > 0:
            flat = await self._asking.run_script(script("state_names"), keys, (behind, wanted))
            named = [_parse_location(flat[at], flat[at + 1]) for at in range(0, len(flat), 2) if flat[at]]
            found += [name for name in named if name is not None]
            if len(flat) < 2 * wanted:
                break
            behind = flat[-1]
        return found


def _parse_location(noted: bytes, name: bytes) -> StateLocation | None:
    return read_location(name[:KEY_BYTES], lambda: (*_notes.decode(noted), name[KEY_BYTES:].decode()))
