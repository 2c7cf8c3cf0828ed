"""Other processes on the same store that may hold journaled turns, so that sessions keep their order after an outage.

Each process renews an entry in the store that lists the sessions whose turns wait in its journal. A process that has
noticed an outage waits, once the store is back, until every other one has renewed its entry: sessions on a list are
left alone until their turns are replayed, all others go on. Renewals are recognised by the entry's version, so no
clocks are compared. A process that does not renew in time, or whose end is known on this machine, holds nothing up;
nor does a session whose turns it could not replay for that time, as without their key.

Two processes may have journaled turns of one session, if the report of a change was lost with the store. They replay
these in turns, by the times of their begin: clocks order only what nothing else does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from secrets import token_hex
from typing import Final, NamedTuple

from tenuto.errors import CircuitOpen, SessionBusy, SessionElsewhere, SessionNotFound, StoreUnavailable, Unavailable
from tenuto.holder import is_holder_gone, with_holder
from tenuto.model import BeginTurn, Scope
from tenuto.model.scope import JOURNALS, SYSTEM
from tenuto.model.store_reports import Invalidation
from tenuto.ports import SessionStore, StateStore
from tenuto.stores.journaled.outbox import Outbox

_LEASE: Final = 10.0
"""Seconds without a renewal after which a process counts as dead."""
_RENEW_EVERY: Final = 1.0
_RENEW_SOON: Final = 0.2
"""The pause between renewals for as long as a lease after an outage."""
_RENEW_NOW: Final = 0.03
"""The same while another process lists a session that is listed here, too."""
_MAX_PEERS: Final = 1000
_MAX_LISTED: Final = 2000
_ALL: Final = "*"
_LAST: Final = 2**53
"""The time of turns whose begin is not known: they hold no replay up."""
_SOON: Final = timedelta(seconds=0.2)


class _Peer(NamedTuple):
    """Another process: its entry's version, when that was first seen, and the next turns of the sessions it lists."""

    version: int
    seen_at: float
    sessions: dict[str, int]


class JournalPeers:
    """The entry of this process and those of others; `settled` unless a turn may have to wait for another process.

    Without `run` or `renew` it stays settled.
    """

    def __init__(
        self,
        *,
        sessions: SessionStore,
        state: StateStore,
        outbox: Outbox,
        probe: Callable[[], Awaitable[None]],
        ticks: Callable[[], float],
        wake: asyncio.Event,
        sharded: bool,
    ) -> None:
        self.settled = True
        self._sessions = sessions
        self._state = state
        self._outbox = outbox
        self._probe = probe
        self._ticks = ticks
        self._wake = wake
        self._sharded = sharded
        self.name = with_holder(token_hex(16))
        self._registers = False
        self._journaling: Counter[bytes] = Counter()
        self._peers: dict[str, _Peer] = {}
        # Since when the replay of sessions fails, though the store answers.
        self._stuck: dict[bytes, float] = {}
        # The versions at the first answer after an outage, and when that was: they must have grown since.
        self._first_seen: dict[str, int] | None = {}
        self._back_at = self._outage_at = float("-inf")
        self._outages = 0

    def observe_outage(self, away: StoreUnavailable | None = None) -> None:
        """A call was not answered, or the feed was interrupted. A rejected call says nothing new about the store."""
        if self._registers and not isinstance(away, CircuitOpen):
            self.settled = False
            self._first_seen = None
            self._outages += 1
            self._outage_at = self._ticks()

    def on_invalidate(self, news: Invalidation | None) -> None:
        """An interrupted feed is the sign of an outage in which this process may have called nothing."""
        if news is None:
            self.observe_outage()

    @contextmanager
    def replaying(self, key: bytes) -> Iterator[None]:
        """Stop listing a session whose replay fails for a lease though the store answers: its turns will be late."""
        try:
            yield
        except SessionElsewhere:
            raise  # It was not tried.
        except (SessionBusy, StoreUnavailable):
            self._stuck.pop(key, None)
            raise
        except Exception:
            self._stuck.setdefault(key, self._ticks())
            raise
        self._stuck.pop(key, None)

    @contextmanager
    def journaling(self, key: bytes) -> Iterator[None]:
        """List a session while its turn is on the way to the disk."""
        self._journaling[key] += 1
        try:
            yield
        finally:
            self._journaling[key] -= 1
            self._journaling += Counter()

    # Asked by turns

    async def admit(self, scope: Scope, request: BeginTurn, key: bytes) -> None:
        """Admit a turn, unless another process may hold earlier ones of its session.

        Raises:
            SessionElsewhere: one may.
            CircuitOpen: the store does not answer yet; nothing was sent. A sharded one may, and the turn is tried.
        """
        try:
            if not await self._is_back():
                raise StoreUnavailable
            if self._is_listed(key) or (self._awaited() and await self._exists(scope, request)):
                raise SessionElsewhere
        except SessionElsewhere:
            raise
        except StoreUnavailable as away:
            if not self._sharded:
                raise CircuitOpen(_SOON) from away
            # The server of the entries is down, perhaps not that of the session.

    # Asked by the replay

    async def admit_replay(self) -> bool:
        """Whether every other process has listed its turns since the store is back, so that they can be merged.

        Raises:
            StoreUnavailable: the store is not back.
        """
        if self.settled:
            return True
        try:
            return await self._is_back() and not self._awaited()
        except StoreUnavailable:
            if not self._sharded:
                raise
            return True

    def is_behind(self, key: bytes, begun_at: int) -> bool:
        """Whether another process has to replay a turn of the session before the one that began then."""
        name, here = _listed_name(key), (begun_at, self.name)
        return any((peer.sessions.get(name, _LAST), there) < here for there, peer in self._peers.items())

    @property
    def alone(self) -> bool:
        """Whether no other process is registered."""
        return not self._peers

    def may_hold(self, key: bytes) -> bool:
        """Whether a session that the store does not have may be in another process's journal.

        That may also be one that alone lost the store: it does not renew its entry.
        """
        if not self._registers:
            return False
        late = self._ticks() - 3 * _RENEW_EVERY
        return bool(
            self._first_seen is None
            or self._is_listed(key)
            or self._awaited()
            or any(peer.seen_at < late for name, peer in self._peers.items() if not is_holder_gone(name))
        )

    async def _exists(self, scope: Scope, request: BeginTurn) -> bool:
        if request.create is None:
            return True
        try:
            await self._sessions.get(scope, request.session_id)
        except SessionNotFound:
            return False
        return True

    def _is_listed(self, key: bytes) -> bool:
        name = _listed_name(key)
        return any(name in peer.sessions or _ALL in peer.sessions for peer in self._peers.values())

    def _awaited(self) -> list[str]:
        """The processes that have not renewed their entries since the store is back."""
        first = self._first_seen or {}
        # One renewal may have been sent before the outage; the next one was sent after its answer.
        return [
            name
            for name, peer in self._peers.items()
            if 0 <= peer.version - first.get(name, -2) < 2 and not is_holder_gone(name)
        ]

    # In the background

    async def run(self) -> None:
        """Renew the entry until cancelled."""
        while True:
            waits = not self.settled and self._outbox.sessions
            with suppress(Unavailable):
                await self.renew()
                if waits:
                    self._wake.set()
            await asyncio.sleep(self._pause())

    async def renew(self) -> None:
        """Write the entry of this process and read those of the others."""
        self._registers = True
        try:
            if not self.settled:
                # It may fail for one server of several.
                with suppress(StoreUnavailable):
                    await self._probe()
            await self._state.write_state(SYSTEM, JOURNALS, self.name, self._listed())
            await self._look()
        except StoreUnavailable as away:
            self.observe_outage(away)
            raise

    def _listed(self) -> dict[str, int]:
        """The sessions whose turns are in the journal or on the way to it, with the begin of the next one."""
        rows, given_up = self._outbox.next_rows, self._ticks() - _LEASE
        self._stuck = {key: since for key, since in self._stuck.items() if key in rows}
        waiting = {key: at for key, at in rows.items() if self._stuck.get(key, given_up + 1) > given_up}
        listed = dict.fromkeys(self._journaling, _LAST) | waiting
        if len(listed) > _MAX_LISTED:
            return {_ALL: _LAST}
        return {_listed_name(key): begun_at for key, begun_at in listed.items()}

    def _pause(self) -> float:
        """The time until the next renewal."""
        recent, listed = self._ticks() < self._outage_at + _LEASE, self._listed()
        if recent and any(not listed.keys().isdisjoint(peer.sessions) for peer in self._peers.values()):
            return _RENEW_NOW
        return _RENEW_SOON if recent or not self.settled else _RENEW_EVERY

    async def close(self) -> None:
        """Remove the entry."""
        if self._registers:
            self._registers = False
            with suppress(Unavailable):
                await self._state.delete_state(SYSTEM, JOURNALS, self.name)

    async def _is_back(self) -> bool:
        """Read the other entries, unless that was done since the last outage; False if the store failed meanwhile."""
        if self._first_seen is None:
            await self._look()
        return self._first_seen is not None

    async def _look(self) -> None:
        """Read the other entries; ignored if the store failed meanwhile."""
        outages = self._outages
        found = await self._state.list_state(SYSTEM, JOURNALS, limit=_MAX_PEERS)
        if outages != self._outages:
            return
        now, before = self._ticks(), self._peers
        self._peers = {}
        for entry in found:
            if entry.key == self.name:
                continue
            peer = before.get(entry.key)
            if peer is None or peer.version != entry.version:
                listed = entry.value if isinstance(entry.value, dict) else {}
                times = {name: when if isinstance(when, int) else _LAST for name, when in listed.items()}
                peer = _Peer(entry.version, now, times)
            self._peers[entry.key] = peer
        if self._first_seen is None:
            self._first_seen, self._back_at = {name: peer.version for name, peer in self._peers.items()}, now
        await self._remove_dead(now)
        self.settled = outages == self._outages and not (
            self._awaited() or any(peer.sessions for peer in self._peers.values())
        )

    async def _remove_dead(self, now: float) -> None:
        """Remove the entries of processes that are known to be gone or have not renewed them for a lease."""
        for name, peer in list(self._peers.items()):
            if now - max(peer.seen_at, self._back_at) >= _LEASE or is_holder_gone(name):
                del self._peers[name]
                await self._state.delete_state(SYSTEM, JOURNALS, name)


def _listed_name(key: bytes) -> str:
    """A session in an entry: enough of its key to be told apart."""
    return key[:8].hex()
