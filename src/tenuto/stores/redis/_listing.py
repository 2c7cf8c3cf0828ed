"""Listings of sessions (shelves) by site and owner, in order of their last change.

They are derived data. One server updates them with the session; in a cluster they follow right after it. So readers
look at the sessions themselves and repair stale entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

from tenuto.errors import Unavailable
from tenuto.model import Scope, Session, SessionPage, SessionQuery, SessionStats
from tenuto.stores.codec import Undecodable, decode_cursor, encode_cursor, from_micros, to_micros
from tenuto.stores.paging import matches_query
from tenuto.stores.redis._keys import listing_digests
from tenuto.stores.redis._records import (
    SessionTotals,
    decode_identity,
    encode_identity,
    needs_expiry_index,
    session_identity,
)
from tenuto.stores.redis._resp import Part, Reply
from tenuto.stores.redis._runner import ScriptRunner
from tenuto.stores.redis._script_io import parse_session
from tenuto.stores.redis._scripts import script

log = logging.getLogger(__name__)

Place = tuple[int, bytes]
"""An entry: the last change in microseconds, and the session key."""

_CHUNK = 100
_FIELDS_AT_ONCE = 500


class SessionListing:
    """The shelves of sites and owners, and the expiry index."""

    def __init__(self, asking: ScriptRunner) -> None:
        self._asking = asking
        self._keys = asking.keys

    async def update_after_write(self, key: bytes, session: Session, numbers: bytes) -> None:
        """Update the listings after a write in a cluster, and the expiry index if needed.

        The write is done, so a failure is only logged: the next write or the repair makes up for it.
        """
        if self._asking.sharded:
            try:
                # Only a new session can be the first of its site.
                await self.repair(key, session, expiry=needs_expiry_index(numbers), space=session.version == 1)
            except Unavailable:
                log.warning("an index could not be reached; the next sweep repairs it")

    async def repair(self, key: bytes, session: Session, *, expiry: bool, space: bool) -> None:
        """Add a session to its listings, and its site to the index.

        Scores only grow, so a late call undoes nothing.
        """
        updated = to_micros(session.updated_at)
        shelves = [self._keys.shelf(shelf) for shelf in listing_digests(session.scope) if shelf]
        steps = [self._call("ZADD", shelf, "GT", updated, key) for shelf in shelves]
        if space:
            steps.append(self._call("ZADD", self._keys.spaces, 0, listing_digests(session.scope)[0]))
        if expiry and session.expires_at is not None:
            facts = encode_identity(session_identity(session))
            steps.append(self._call("ZADD", self._keys.expiry(key), "LT", to_micros(session.expires_at), facts))
        await asyncio.gather(*steps)

    async def clear(self, key: bytes, facts: bytes) -> None:
        """Remove a deleted session from every listing."""
        shelves = [self._keys.shelf(shelf) for shelf in listing_digests(decode_identity(facts).scope) if shelf]
        steps = [self._call("ZREM", shelf, key) for shelf in shelves]
        await asyncio.gather(*steps, self.remove_expiry(key, facts))

    async def remove_expiry(self, key: bytes, facts: bytes) -> None:
        """Remove a deleted session from the expiry index, which names its owner."""
        await self._call("ZREM", self._keys.expiry(key), facts)

    async def page(self, scope: Scope, query: SessionQuery, now: int) -> SessionPage:
        """A page of the scope's sessions, latest change first."""
        behind = None if query.cursor is None else decode_cursor(query.cursor)
        chosen: list[tuple[Place, Session]] = []
        title = None if query.title is None else query.title.casefold()
        # One more tells whether there is another page; the entry of the cursor is read again.
        size = query.limit + (1 if behind is None else 2)
        chunk = _FIELDS_AT_ONCE if title is not None else _CHUNK if query.status is not None else size
        async for place, session in self._iter_sessions(scope, behind, now, chunk, title):
            if matches_query(session, query):
                chosen.append((place, session))
                if len(chosen) > query.limit:
                    break
        page = chosen[: query.limit]
        return SessionPage(
            sessions=tuple(session for _, session in page),
            cursor=encode_cursor(*page[-1][0]) if len(chosen) > len(page) else None,
        )

    async def stats(self, scope: Scope, now: int) -> SessionStats:
        """Sums over everything the scope reaches."""
        space, owner = listing_digests(scope)
        totals = SessionTotals()
        async for places in self.walk(self._keys.shelf(owner or space), None, _FIELDS_AT_ONCE):
            for numbers in await self._fields("s", places):
                totals.add(numbers, owner.encode(), now)
        return totals.stats()

    async def oldest(self, scope: Scope, keep: int, spared: bytes | None) -> list[Place]:
        """The oldest entries of a site beyond `keep`; a spared one is replaced by the next."""
        shelf = self._keys.shelf(listing_digests(scope)[0])
        beyond = await self._call("ZCARD", shelf) - keep
        if beyond <= 0:
            return []
        places = _parse_entries(await self._call("ZRANGE", shelf, 0, beyond, "WITHSCORES"))
        return [place for place in places if place[1] != spared][:beyond]

    async def first(self, scope: Scope, skip: int, count: int) -> list[Place]:
        """The oldest entries of an owner, after the first `skip`."""
        shelf = self._keys.shelf(listing_digests(scope)[1])
        return _parse_entries(await self._call("ZRANGE", shelf, skip, skip + count - 1, "WITHSCORES"))

    async def leave(self, scope: Scope, place: Place) -> None:
        """Remove an entry from an owner's listing alone: the session has another owner by now."""
        await self._asking.run_script(
            script("unshelve"), [self._keys.shelf(listing_digests(scope)[1])], [place[1], place[0]]
        )

    async def remove_stale(self, scope: Scope, place: Place) -> None:
        """Remove the entry of a missing session, unless a new one has the same key."""
        for shelf in listing_digests(scope):
            if shelf:
                await self._asking.run_script(script("unshelve"), [self._keys.shelf(shelf)], [place[1], place[0]])

    async def _iter_sessions(
        self, scope: Scope, behind: Place | None, now: int, chunk: int, title: str | None = None
    ) -> AsyncIterator[tuple[Place, Session]]:
        """The scope's sessions in order, after an entry; with a `title`, those that may have it in theirs."""
        space, owner = listing_digests(scope)
        instant = from_micros(now)
        async for found in self.walk(self._keys.shelf(owner or space), behind, chunk):
            places = found if title is None else await self._with_title(title, found)
            for place, session in zip(places, await self.heads(scope, places), strict=True):
                if session is not None and not session.expired(instant) and scope.reaches(session.scope):
                    yield place, session

    async def _with_title(self, title: str, places: Sequence[Place]) -> list[Place]:
        """The entries whose titles contain `title`, and those without one: they are missing, and removed when read."""
        titles = await self._fields("t", places)
        return [
            place
            for place, raw in zip(places, titles, strict=True)
            if raw is None or title in raw.decode(errors="replace").casefold()
        ]

    async def _fields(self, name: str, places: Sequence[Place]) -> list[bytes | None]:
        """One field of many heads."""
        heads = [self._keys.session(key)[0] for _, key in places]
        if self._asking.sharded:  # A script reaches the keys of one slot only.
            return list(await asyncio.gather(*(self._call("HGET", head, name) for head in heads)))
        found: list[bytes | None] = await self._asking.run_script(script("fields"), heads, [name])
        return found

    async def walk(self, shelf: bytes, behind: Place | None, chunk: int) -> AsyncIterator[list[Place]]:
        """The entries of a listing, latest change first, after an entry."""
        # Many sessions may share one instant, so "below this score" is not enough to go on from.
        top: Part = "+inf" if behind is None else behind[0]
        skip = 0
        while True:
            found = _parse_entries(
                await self._call("ZRANGE", shelf, top, "-inf", "BYSCORE", "REV", "LIMIT", skip, chunk, "WITHSCORES")
            )
            fresh = [place for place in found if behind is None or place < behind]
            if fresh:
                yield fresh
            if len(found) < chunk:
                return
            last = found[-1][0]
            skip = sum(place[0] == last for place in found) + (skip if last == top else 0)
            top = last

    async def heads(self, scope: Scope, places: Sequence[Place]) -> list[Session | None]:
        """The sessions of these entries; `None` for one that cannot be read."""
        return list(await asyncio.gather(*(self._read_listed(scope, place) for place in places)))

    async def _read_listed(self, scope: Scope, place: Place) -> Session | None:
        try:
            reply = await self._asking.session("peek", place[1], scope)
            if reply[0] == b"ok":
                return parse_session(reply)
        except Undecodable:
            return None  # The next call that reads the session quarantines it.
        if reply[0] == b"absent":
            await self.remove_stale(scope, place)
        return None

    async def _call(self, command: str, key: bytes, *parts: Part) -> Reply:
        return await self._asking.call(command, key, *parts, key=key)


def _parse_entries(flat: Sequence[bytes]) -> list[Place]:
    return [(int(float(flat[at + 1])), flat[at]) for at in range(0, len(flat), 2)]
