"""Every session of a tenant's site, each once, while others go on using them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from tenuto.model import Scope, Session, SessionQuery
from tenuto.ports import SessionStore

_PAGE: Final = 100


async def every_session(store: SessionStore, scope: Scope) -> AsyncIterator[Session]:
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
            page = await store.list(scope, SessionQuery(limit=_PAGE, cursor=cursor))
            for session in page.sessions:
                if (session.id, session.incarnation) not in seen:
                    seen.add((session.id, session.incarnation))
                    found = True
                    yield session
            cursor = page.cursor
            if cursor is None:
                break
