"""Listings: which sessions stand on a shelf, and in which order.

Shelves are derived data. One server keeps them in the same step as the session; in a cluster they follow right
after it. Whoever reads a shelf therefore looks at the sessions themselves, and tidies up what is not true.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

from tenuto.errors import Unavailable
from tenuto.model import Scope, Session, SessionPage, SessionQuery, SessionStats
from tenuto.stores.codec import Undecodable, decode_cursor, encode_cursor, from_micros, to_micros
from tenuto.stores.redis._keys import listing_digests
from tenuto.stores.redis._records import decode_identity, encode_identity, needs_expiry_index, session_identity
from tenuto.stores.redis._resp import Part, Reply
from tenuto.stores.redis._runner import ScriptRunner
from tenuto.stores.redis._script_io import parse_session
from tenuto.stores.redis._scripts import script

log = logging.getLogger(__name__)

Place = tuple[int, bytes]
"""Where a session stands: its last change in microseconds, and its key."""

_CHUNK = 100


class SessionListing:
    """The shelves of sites and owners, and the expiry index."""

    def __init__(self, asking: ScriptRunner) -> None:
        self._asking = asking
        self._keys = asking.keys

    async def update_after_write(self, key: bytes, session: Session, numbers: bytes) -> None:
        """After a write in a cluster: let the shelves follow, and the expiry index where it is due.

        The write has happened, so a failure is no error: the next write or the repair makes up for it.
        """
        if self._asking.sharded:
            try:
                # Only a new session can be its space's first.
                await self.repair(key, session, expiry=needs_expiry_index(numbers), space=session.version == 1)
            except Unavailable:
                log.warning("a shelf could not be reached; its repair is left to the next sweep")

    async def repair(self, key: bytes, session: Session, *, expiry: bool, space: bool) -> None:
        """Put a session where its head says it belongs, and its space into the list of them.

        Places only grow: a late step undoes nothing.
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
        """Take a removed session off every shelf."""
        shelves = [self._keys.shelf(shelf) for shelf in listing_digests(decode_identity(facts).scope) if shelf]
        steps = [self._call("ZREM", shelf, key) for shelf in shelves]
        await asyncio.gather(*steps, self.remove_expiry(key, facts))

    async def remove_expiry(self, key: bytes, facts: bytes) -> None:
        """Take a removed session out of the expiry index, which names its owner."""
        await self._call("ZREM", self._keys.expiry(key), facts)

    async def page(self, scope: Scope, query: SessionQuery, now: int) -> SessionPage:
        """A page of the scope's sessions, latest change first."""
        behind = None if query.cursor is None else decode_cursor(query.cursor)
        chosen: list[tuple[Place, Session]] = []
        chunk = _CHUNK if query.title is not None or query.status is not None else query.limit + 1
        async for place, session in self._iter_sessions(scope, behind, now, chunk):
            if _matches_query(session, query):
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
        sessions = messages = tokens = cost = 0
        async for _, session in self._iter_sessions(scope, None, now, _CHUNK):
            sessions += 1
            messages += session.messages
            tokens += session.tokens
            cost += session.cost_nanos
        return SessionStats(sessions=sessions, messages=messages, tokens=tokens, cost_nanos=cost)

    async def oldest(self, scope: Scope, keep: int, spared: bytes | None) -> list[Place]:
        """The places beyond `keep` at the end of a site's shelf; in the place of a spared one stands the next."""
        shelf = self._keys.shelf(listing_digests(scope)[0])
        beyond = await self._call("ZCARD", shelf) - keep
        if beyond <= 0:
            return []
        places = _parse_entries(await self._call("ZRANGE", shelf, 0, beyond, "WITHSCORES"))
        return [place for place in places if place[1] != spared][:beyond]

    async def first(self, scope: Scope, skip: int, count: int) -> list[Place]:
        """Places at the end of an owner's shelf, the least recently changed first, after so many that are known."""
        shelf = self._keys.shelf(listing_digests(scope)[1])
        return _parse_entries(await self._call("ZRANGE", shelf, skip, skip + count - 1, "WITHSCORES"))

    async def leave(self, scope: Scope, place: Place) -> None:
        """Take a place off an owner's shelf alone: the session there is another's by now."""
        await self._asking.run_script(
            script("unshelve"), [self._keys.shelf(listing_digests(scope)[1])], [place[1], place[0]]
        )

    async def remove_stale(self, scope: Scope, place: Place) -> None:
        """Take down a place whose session is gone, unless a new one of the same key has taken it."""
        for shelf in listing_digests(scope):
            if shelf:
                await self._asking.run_script(script("unshelve"), [self._keys.shelf(shelf)], [place[1], place[0]])

    async def _iter_sessions(
        self, scope: Scope, behind: Place | None, now: int, chunk: int
    ) -> AsyncIterator[tuple[Place, Session]]:
        """The scope's sessions in order of their places, from behind one on."""
        space, owner = listing_digests(scope)
        instant = from_micros(now)
        async for places in self.walk(self._keys.shelf(owner or space), behind, chunk):
            for place, session in zip(places, await self.heads(scope, places), strict=True):
                if session is not None and not session.expired(instant) and scope.reaches(session.scope):
                    yield place, session

    async def walk(self, shelf: bytes, behind: Place | None, chunk: int) -> AsyncIterator[list[Place]]:
        """The places on a shelf, latest change first, from behind one on."""
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
        """The sessions at these places, asked for together; `None` where there is none to read."""
        return list(await asyncio.gather(*(self._read_listed(scope, place) for place in places)))

    async def _read_listed(self, scope: Scope, place: Place) -> Session | None:
        try:
            reply = await self._asking.session("peek", place[1], scope)
            if reply[0] == b"ok":
                return parse_session(reply)
        except Undecodable:
            # whoever opens the session sets it aside
            return None
        if reply[0] == b"absent":
            await self.remove_stale(scope, place)
        return None

    async def _call(self, command: str, key: bytes, *parts: Part) -> Reply:
        return await self._asking.call(command, key, *parts, key=key)


def _parse_entries(flat: Sequence[bytes]) -> list[Place]:
    return [(int(float(flat[at + 1])), flat[at]) for at in range(0, len(flat), 2)]


def _matches_query(session: Session, query: SessionQuery) -> bool:
    if query.status is not None and session.status is not query.status:
        return False
    return query.title is None or query.title.casefold() in session.title.casefold()
