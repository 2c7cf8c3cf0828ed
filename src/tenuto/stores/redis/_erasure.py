"""Erasure of a user: sessions, quarantined sessions and state."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from tenuto.model import EraseResult, RemovedSession, Scope, Session
from tenuto.stores.codec import Undecodable
from tenuto.stores.redis._keys import listing_digests
from tenuto.stores.redis._listing import Place, SessionListing
from tenuto.stores.redis._runner import OTHER_FORMATS, ScriptRunner, refusal
from tenuto.stores.redis._script_io import parse_session
from tenuto.stores.redis._scripts import script
from tenuto.stores.redis._state import RedisState
from tenuto.stores.redis._sweeper import Sweeper

_TOGETHER = 100


class _OwnedSession(NamedTuple):
    """A session of the user with its identity, in case the reply to its removal is lost."""

    place: Place
    session: Session
    facts: bytes


class _RemovedCounts(NamedTuple):
    """The counts of one removed session, or of a quarantined one, which has no id any more."""

    messages: int
    traces: int
    gone: RemovedSession | None = None


class UserEraser:
    """Erases a user. Entries of the owner's listing are checked against the sessions."""

    def __init__(self, asking: ScriptRunner, shelves: SessionListing, sweeping: Sweeper, state: RedisState) -> None:
        self._asking = asking
        self._keys = asking.keys
        self._shelves = shelves
        self._sweeping = sweeping
        self._state = state

    async def erase(self, person: Scope, limit: int) -> EraseResult:
        """Remove up to `limit` sessions, least recently changed first; when none is left, all else."""
        owner = listing_digests(person)[1]
        places = await self._owned_sessions(person, limit + 1)
        went: list[_RemovedCounts] = []
        for at in range(0, min(limit, len(places)), _TOGETHER):
            some = places[at : min(at + _TOGETHER, limit)]
            removed = await asyncio.gather(*(self._erase_session(person, one) for one in some))
            went += [one for one in removed if one is not None]
        more = len(places) > limit
        aside = [] if more else await self._erase_quarantined(owner)
        return EraseResult(
            removed_sessions=tuple(one.gone for one in went if one.gone is not None),
            messages=sum(one.messages for one in (*went, *aside)),
            traces=sum(one.traces for one in (*went, *aside)),
            states=0 if more else await self._state.erase_owner(person),
            quarantined=len(aside),
            more=more,
        )

    async def _owned_sessions(self, person: Scope, count: int) -> list[_OwnedSession]:
        """The user's sessions, the least recently changed first; stale entries are removed."""
        found: list[_OwnedSession] = []
        while len(found) < count:
            wanted = min(count - len(found), _TOGETHER)
            places = await self._shelves.first(person, len(found), wanted)
            stand = await asyncio.gather(*(self._read_owned(person, place) for place in places))
            found += [one for one in stand if one is not None]
            if len(places) < wanted:
                break
        return found

    async def _read_owned(self, person: Scope, place: Place) -> _OwnedSession | None:
        """The user's session of an entry. An unreadable one is quarantined, and erased from there."""
        try:
            reply = await self._asking.session("peek", place[1], person)
            if reply[0] == b"ok":
                session = parse_session(reply)
                if listing_digests(session.scope) == listing_digests(person):
                    return _OwnedSession(place, session, reply[2])
                await self._shelves.leave(person, place)
                return None
            if reply[0] in OTHER_FORMATS:
                raise refusal(reply, "")
        except Undecodable:
            reply = [b"corrupt"]
        if reply[0] != b"absent":
            await self._sweeping.quarantine(place[1], "its head could not be read")
        await self._shelves.remove_stale(person, place)
        return None

    async def _erase_session(self, person: Scope, one: _OwnedSession) -> _RemovedCounts | None:
        place, session, facts = one
        key = place[1]
        try:
            reply = await self._asking.session("erase", key, person)
        except Undecodable as damage:
            await self._sweeping.quarantine(key, str(damage))
            await self._shelves.remove_stale(person, place)
            return None
        if reply[0] == b"foreign":
            await self._shelves.leave(person, place)
            return None
        # Absent if the reply to a first attempt was lost, and its count of traces with it.
        messages, traces = reply[3:] if reply[0] == b"gone" else (session.messages, 0)
        await self._shelves.remove_stale(person, place)
        await self._shelves.remove_expiry(key, facts)
        return _RemovedCounts(messages, traces, RemovedSession(scope=session.scope, session_id=session.id))

    async def _erase_quarantined(self, owner: str) -> list[_RemovedCounts]:
        noted = self._keys.owner_quarantine(owner)
        went: list[_RemovedCounts] = []
        for copy in await self._asking.call("ZRANGE", noted, 0, -1, key=noted):
            digits, _, micros = copy.partition(b":")
            key, at = bytes.fromhex(digits.decode()), int(micros)
            kept, messages, traces, facts = await self._asking.run_script(
                script("erase_aside"), self._keys.quarantine(key, at), ()
            )
            if facts:
                part = self._keys.expiry(key)
                await self._asking.call("ZREM", part, facts, key=part)
            await self._asking.run_script(script("unshelve"), [self._keys.set_aside], [digits, at])
            await self._asking.call("ZREM", noted, copy, key=noted)
            if kept:
                went.append(_RemovedCounts(messages, traces))
        return went
