"""The number of sessions that an assistant's own policy keeps on a site (B13).

Stores do not know which assistant a session belongs to, and the sessions of other assistants must stay. So the site is
listed, newest change first, and the oldest of the assistant are noted as the next to go. The note serves the sessions
that are created after it, so that one listing serves about a hundred of them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from tenuto.errors import SessionNotFound
from tenuto.model import RemovedSession, Scope, Session, SessionQuery
from tenuto.model.policy import SessionPolicy
from tenuto.model.session import ASSISTANT
from tenuto.ports import Clock, SessionStore

# Other processes create sessions, too: after this time the site is listed again.
_TRUSTED_FOR: Final = timedelta(seconds=10)
_SPARE: Final = 100
_PAGE: Final = 1000
_MOST_PAGES: Final = 20
_MOST_SITES: Final = 100

_Place: TypeAlias = tuple[str, str, str]


@dataclass(slots=True)
class _Listing:
    """The ids of the assistant's sessions on a site, and the longest unchanged of them, oldest first."""

    listed_at: datetime
    ids: set[str]
    oldest: deque[Session]


class AssistantCap:
    """Removes the longest unchanged sessions of an assistant beyond its number."""

    def __init__(self, *, store: SessionStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._listings: OrderedDict[_Place, _Listing] = OrderedDict()
        self._locks: WeakValueDictionary[_Place, asyncio.Lock] = WeakValueDictionary()

    async def make_room(self, session: Session, policy: SessionPolicy) -> tuple[RemovedSession, ...]:
        """Keep to `policy.max_sessions` after this session was created; returns what was removed.

        Raises:
            Unavailable: the store is away; what was noted is listed again next time.
        """
        keep, assistant = policy.max_sessions, session.metadata.get(ASSISTANT)
        if keep is None or not isinstance(assistant, str):
            return ()
        site = Scope(tenant=session.scope.tenant, site=session.scope.site)
        place = (site.tenant, site.site, assistant)
        removed: list[RemovedSession] = []
        # One at a time: a hundred first questions list the site once.
        async with self._locks.setdefault(place, asyncio.Lock()):
            listing = self._listings.pop(place, None)
            if listing is None or not timedelta(0) <= self._clock() - listing.listed_at < _TRUSTED_FOR:
                listing = await self._list(site, assistant, policy, keep)
            listing.ids.add(session.id)
            if len(listing.ids) > keep and not listing.oldest:
                listing = await self._list(site, assistant, policy, keep)
            while len(listing.ids) > keep and listing.oldest:
                oldest = listing.oldest.popleft()
                if oldest.id == session.id or await self._is_used(site, oldest):
                    continue
                listing.ids.discard(oldest.id)
                if await self._delete(site, oldest):
                    removed.append(RemovedSession(scope=oldest.scope, session_id=oldest.id))
            self._listings[place] = listing
            if len(self._listings) > _MOST_SITES:
                self._listings.popitem(last=False)
        return tuple(removed)

    async def _is_used(self, site: Scope, listed: Session) -> bool:
        """Whether the session changed since it was listed."""
        try:
            return (await self._store.get(site, listed.id)).version != listed.version
        except SessionNotFound:
            return False

    async def _delete(self, site: Scope, listed: Session) -> bool:
        try:
            await self._store.delete(site, listed.id)
        except SessionNotFound:
            return False
        return True

    async def _list(self, site: Scope, assistant: str, policy: SessionPolicy, keep: int) -> _Listing:
        """List the assistant's sessions. Those that did not change for their retention are about to go by themselves,
        but for those that were read since, which are few and keep until then."""
        now, idle = self._clock(), policy.retention.idle
        found: list[Session] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._store.list(site, SessionQuery(limit=_PAGE, cursor=cursor))
            found += [session for session in page.sessions if session.metadata.get(ASSISTANT) == assistant]
            cursor = page.cursor
            if cursor is None or (idle is not None and page.sessions and page.sessions[-1].updated_at < now - idle):
                break
        last = max(0, len(found) - keep) + _SPARE
        return _Listing(listed_at=now, ids={session.id for session in found}, oldest=deque(reversed(found[-last:])))
