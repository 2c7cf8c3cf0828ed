"""Iteration over the sessions and memories of a tenant's site, each once, while they are in use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from tenuto.model import Scope, Session, SessionQuery, StateLocation
from tenuto.model.privacy import state_sink
from tenuto.ports import SessionStore, StateStore

_PAGE: Final = 100


async def iter_sessions(sessions: SessionStore, scope: Scope) -> AsyncIterator[Session]:
    """The sessions in the scope.

    A listing is ordered by last change, newest first, so a session that is used meanwhile can jump past the cursor; the
    listing is read again until it brings nothing new.
    """
    seen: set[tuple[str, str]] = set()
    found = True
    while found:
        found = False
        cursor: str | None = None
        while True:
            page = await sessions.list(scope, SessionQuery(limit=_PAGE, cursor=cursor))
            for session in page.sessions:
                if (session.id, session.incarnation) not in seen:
                    seen.add((session.id, session.incarnation))
                    found = True
                    yield session
            cursor = page.cursor
            if cursor is None:
                break


async def iter_user_state(state: StateStore, scope: Scope) -> AsyncIterator[StateLocation]:
    """Where state of users and chats in the scope is stored; internal state is skipped."""
    last: StateLocation | None = None
    while page := await state.list_state_locations(scope, last, _PAGE):
        for last in page:
            if state_sink(last.scope, last.namespace) is not None:
                yield last
