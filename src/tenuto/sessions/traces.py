"""Find traces: one by its name, and the latest of all sessions."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from tenuto.errors import SessionNotFound, TraceNotFound
from tenuto.model import Scope, SessionQuery
from tenuto.model.turn import Trace, place_of
from tenuto.ports import TraceStore
from tenuto.sessions.service import Sessions

_BY_TIME: Final = attrgetter("began_at")
# Sessions looked through when traces are asked for without naming one.
_LATEST: Final = 20


async def find_trace(store: TraceStore, scope: Scope, name: str) -> Trace:
    """The trace of that name.

    Raises:
        TraceNotFound: there is none for this caller.
    """
    session_id, number = place_of(name)
    try:
        trace = await store.trace(scope, session_id, number)
    except SessionNotFound:
        raise TraceNotFound from None
    if trace is None or trace.id != name:
        raise TraceNotFound
    return trace


async def latest_traces(store: TraceStore, sessions: Sessions, scope: Scope, limit: int) -> tuple[Trace, ...]:
    """The newest traces of the sessions that changed last."""
    found: list[Trace] = []
    for session in (await sessions.list(scope, SessionQuery(limit=_LATEST))).sessions:
        if len(found) >= limit and sorted(found, key=_BY_TIME)[-limit].began_at >= session.updated_at:
            # Everything from here on is older than what there is.
            break
        try:
            found += await store.traces(scope, session.id, limit)
        except SessionNotFound:
            # Gone since it was listed.
            continue
    return tuple(sorted(found, key=_BY_TIME, reverse=True)[:limit])
