"""What time makes of a session: it becomes inactive and archived, and its conversation stale.

The store has an idle session as active, so what is listed or found by status is sorted out here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from msgspec.structs import replace

from tenuto.model import OpenTurn, Scope, SearchPage, SearchQuery, Session, SessionHit, SessionPage, SessionQuery
from tenuto.model.policy import SessionPolicy
from tenuto.model.session import Status
from tenuto.ports import SessionStore

# Pages of the store that one listing by status reads at most.
_LISTED_PAGES: Final = 20
# Of so many sessions a search without a hit reads the titles.
_TITLES_READ: Final = 200

_Aged: TypeAlias = Callable[[Session], Session]


def with_current_status(session: Session, policy: SessionPolicy, now: datetime) -> Session:
    """The session as inactive if it was not changed for long, and as archived if it was inactive for long; what is
    archived by hand stays so (E25)."""
    idle = now - session.updated_at
    if session.status is Status.ACTIVE and policy.inactive_after and idle >= policy.inactive_after:
        session, idle = replace(session, status=Status.INACTIVE), idle - policy.inactive_after
    if session.status is Status.INACTIVE and policy.archive_after and idle >= policy.archive_after:
        return replace(session, status=Status.ARCHIVED)
    return session


def mark_stale(turn: OpenTurn, stale_after: timedelta | None) -> OpenTurn:
    """The turn, with the conversation before its messages marked as stale if the session was idle that long (D9).

    Both times are the store's: clients choose the `sent_at` of their messages.
    """
    last, user_messages = turn.last_active_at, turn.user_messages
    if stale_after is None or last is None or not user_messages or turn.session.updated_at - last < stale_after:
        return turn
    return replace(turn, stale_before=user_messages[0].seq)


async def list_sessions(
    store: SessionStore, scope: Scope, query: SessionQuery, aged: _Aged, policy: SessionPolicy
) -> SessionPage:
    """A page of sessions, each `aged`, that may have fewer than its limit and still a cursor."""
    rules = {Status.INACTIVE: policy.inactive_after, Status.ARCHIVED: policy.archive_after}
    by_rule = query.status is not None and bool(rules.get(query.status))
    store_query = replace(query, status=None) if by_rule else query
    for _ in range(_LISTED_PAGES):
        page = await store.list(scope, store_query)
        sessions = [one for one in map(aged, page.sessions) if query.status in (None, one.status)]
        if sessions or page.cursor is None:
            return replace(page, sessions=tuple(sessions))
        store_query = replace(store_query, cursor=page.cursor)
    return SessionPage(sessions=(), cursor=store_query.cursor)


async def search_sessions(
    store: SessionStore, scope: Scope, query: SearchQuery, aged: _Aged, policy: SessionPolicy
) -> SearchPage:
    """The sessions that have the words, each `aged`; if none has, the newest whose titles contain the text."""
    page = await _search_words(store, scope, query, aged)
    if page.found or page.cursor is not None or query.cursor is not None:
        return page
    newest = await list_sessions(store, scope, SessionQuery(limit=_TITLES_READ, status=query.status), aged, policy)
    titled = [one for one in newest.sessions if query.text.casefold() in one.title.casefold()][: query.limit]
    return replace(page, found=tuple([SessionHit(session=session) for session in titled]))


async def _search_words(store: SessionStore, scope: Scope, query: SearchQuery, aged: _Aged) -> SearchPage:
    store_query, page = replace(query, status=None), SearchPage(found=())
    for _ in range(_LISTED_PAGES):
        page = await store.search(scope, store_query)
        hits = [replace(hit, session=aged(hit.session)) for hit in page.found]
        page = replace(page, found=tuple([hit for hit in hits if query.status in (None, hit.session.status)]))
        if page.found or page.cursor is None:
            break
        store_query = replace(store_query, cursor=page.cursor)
    return page
