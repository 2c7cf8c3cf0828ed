"""Every session of a tenant's site, and all that is kept of its users: each once, while others go on using them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from tenuto.model import Scope, Session, SessionQuery, StateLocation
from tenuto.model.privacy import is_user_memory
from tenuto.ports import SessionStore, StateStore

_PAGE: Final = 100


async def iter_sessions(sessions: SessionStore, scope: Scope) -> AsyncIterator[Session]:
    """The sessions that the scope reaches.

    A listing goes from the latest change to the oldest, and a session that is used meanwhile jumps over the one who
    reads it; so the listing is read again until it brings nothing new.
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


async def iter_memories(state: StateStore, scope: Scope) -> AsyncIterator[StateLocation]:
    """Where something is kept of the users and chats that the scope reaches; the house's own books are passed over."""
    last: StateLocation | None = None
    while page := await state.state_names(scope, last, _PAGE):
        for last in page:
            if is_user_memory(last.scope, last.namespace):
                yield last
