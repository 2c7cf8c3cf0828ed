"""The number of sessions that an assistant's own policy keeps on a site (B13).

Stores do not know which assistant a session belongs to, and the sessions of other assistants must stay. So the site is
listed, newest change first, and the oldest of the assistant are noted as the next to go. A turn only notes that it
created a session: upkeep lists and removes, in bounded portions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from tenuto.errors import SessionBusy, SessionElsewhere, SessionNotFound
from tenuto.lru_cache import LruCache
from tenuto.model import BeginTurn, RemovedSession, Scope, Session, SessionQuery
from tenuto.model.policy import SessionPolicy
from tenuto.model.session import ASSISTANT
from tenuto.ports import Clock, SessionStore, release_lease
from tenuto.sessions.ids import fresh_id
from tenuto.sessions.lease import release_on_error

# Other processes create sessions, too: after this time the site is listed again.
_TRUSTED_FOR: Final = timedelta(seconds=10)
_PORTION: Final = 100
_PAGE: Final = 1000
_MOST_PAGES: Final = 20
_MOST_SITES: Final = 100
# Of a removal: a turn that begins meanwhile waits for it.
_LEASE: Final = timedelta(seconds=9)

_Place: TypeAlias = tuple[str, str, str]


@dataclass(slots=True, kw_only=True)
class _Count:
    """The sessions of an assistant on a site: those of the last listing, and those `created` here since it began.

    `newest` are the ids of its first page, which may hold sessions that are noted as created later. `oldest` are the
    longest unchanged, oldest first: scope, id and version.
    """

    policy: SessionPolicy
    latest: str
    due: bool = True
    listed_at: datetime | None = None
    listed: int = 0
    newest: frozenset[str] = frozenset()
    created: set[str] = field(default_factory=set)
    oldest: deque[tuple[Scope, str, int]] = field(default_factory=deque)

    @property
    def excess(self) -> int:
        """How many sessions are beyond the number that the policy keeps."""
        return self.listed + len(self.created - self.newest) - (self.policy.max_sessions or 0)


class AssistantCap:
    """Removes the longest unchanged sessions of an assistant beyond its number."""

    def __init__(self, *, store: SessionStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._counts = LruCache[_Place, _Count](_MOST_SITES)
        self._removing = asyncio.Lock()
        self.due = False
        """Whether `remove_excess` has something to look at."""

    def note(self, session: Session, policy: SessionPolicy) -> None:
        """Note that this session was created under the policy of its assistant."""
        assistant = session.metadata.get(ASSISTANT)
        if not isinstance(assistant, str):
            return
        place = (session.scope.tenant, session.scope.site, assistant)
        count = self._counts.get(place) or _Count(policy=policy, latest=session.id)
        count.policy, count.latest, count.due = policy, session.id, True
        self.due = True
        if len(count.created) >= _PAGE:
            count.listed_at = None
            count.created.clear()
        count.created.add(session.id)
        self._counts.put(place, count)

    async def remove_excess(self) -> AsyncGenerator[RemovedSession]:
        """Remove a portion of what is beyond the number of one assistant on one site, and tell each that is gone.

        Raises:
            Unavailable: the store is away; it stays due.
        """
        async with self._removing:
            place, count = next(((place, count) for place, count in self._counts.items() if count.due), (None, None))
            if place is None or count is None:
                self.due = False
                return
            self._counts.put(place, count)
            count.due, more = False, True
            try:
                age = self._clock() - count.listed_at if count.listed_at is not None else _TRUSTED_FOR
                if not timedelta(0) <= age < _TRUSTED_FOR or (count.excess > 0 and not count.oldest):
                    await self._list(place, count)
                before = count.listed
                while count.excess > 0 and count.oldest and before - count.listed < _PORTION:
                    # A store in memory never waits: turns come in between.
                    await asyncio.sleep(0)
                    scope, session_id, version = count.oldest.popleft()
                    if session_id != count.latest and await self._remove(count, scope, session_id, version):
                        yield RemovedSession(scope=scope, session_id=session_id)
                # Where all are in use, the next new session makes it due again.
                more = count.excess > 0 and count.listed < before
            finally:
                count.due = count.due or more
                self.due = any(each.due for _, each in self._counts.items())

    async def _remove(self, count: _Count, scope: Scope, session_id: str, version: int) -> bool:
        """Remove the session if it is as it was listed and no turn runs; its lease keeps turns from beginning."""
        store = self._store
        lease = BeginTurn(session_id=session_id, turn_id=fresh_id(), lease=_LEASE, window=0)
        try:
            if (await store.get(scope, session_id)).version != version:
                return False
            turn = await store.begin_turn(scope, lease)
            if turn.session.version != version + 1:
                await release_lease(store.finish_turn, turn)
                return False
            await release_on_error(store.finish_turn, turn, store.delete(scope, session_id))
        except (SessionBusy, SessionElsewhere):
            return False
        except SessionNotFound:
            count.listed -= 1
            return False
        count.listed -= 1
        return True

    async def _list(self, place: _Place, count: _Count) -> None:
        """List the assistant's sessions. Those that did not change for their retention are about to go by themselves,
        but for those that were read since, which are few and keep until then."""
        tenant, site, assistant = place
        now, idle = self._clock(), count.policy.retention.idle
        count.listed_at, count.listed = None, 0
        count.created.clear()
        oldest: deque[tuple[Scope, str, int]] = deque(maxlen=_PAGE)
        cursor: str | None = None
        for number in range(_MOST_PAGES):
            page = await self._store.list(Scope(tenant=tenant, site=site), SessionQuery(limit=_PAGE, cursor=cursor))
            found = [session for session in page.sessions if session.metadata.get(ASSISTANT) == assistant]
            if number == 0:
                count.newest = frozenset(session.id for session in found)
            count.listed += len(found)
            oldest.extend((session.scope, session.id, session.version) for session in found)
            cursor = page.cursor
            if cursor is None or (idle is not None and page.sessions and page.sessions[-1].updated_at < now - idle):
                break
        oldest.reverse()
        count.listed_at, count.oldest = now, oldest
