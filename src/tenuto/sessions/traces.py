"""Find traces: one by its name, those of a session, and the latest of all sessions."""

from __future__ import annotations

from operator import attrgetter
from typing import Final, NamedTuple

from tenuto.errors import SessionNotFound, TraceNotFound
from tenuto.model import Scope, SessionQuery
from tenuto.model.turn import TRACES_KEPT, Trace, place_of
from tenuto.ports import TraceStore
from tenuto.sessions.service import Sessions

_BY_TIME: Final = attrgetter("began_at")
# Sessions looked through when traces are asked for without naming one, and traces read for it.
_SESSIONS: Final = 200
_TRACES: Final = 1000


class TraceFilter(NamedTuple):
    """Which traces to find: those of an assistant, those that failed. A turn that a user stopped has not failed."""

    assistant: str | None = None
    errors: bool = False

    def matches(self, trace: Trace) -> bool:
        """Whether this is one of them."""
        failed = trace.error is not None and not trace.stopped
        return self.assistant in (None, trace.assistant) and (failed or not self.errors)


class FoundTraces(NamedTuple):
    """Traces, newest first; `truncated` says that there may be older ones."""

    traces: tuple[Trace, ...]
    truncated: bool


_ALL: Final = TraceFilter()


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


async def session_traces(
    store: TraceStore, scope: Scope, session_id: str, limit: int, before: int | None = None, wanted: TraceFilter = _ALL
) -> FoundTraces:
    """The newest traces of a session, of turns before that number."""
    most = limit if wanted == _ALL else TRACES_KEPT
    read = await store.traces(scope, session_id, most, before)
    found = tuple(filter(wanted.matches, read))
    return FoundTraces(found[:limit], len(found) > limit or len(read) == most < TRACES_KEPT)


async def latest_traces(
    store: TraceStore, sessions: Sessions, scope: Scope, limit: int, wanted: TraceFilter = _ALL
) -> FoundTraces:
    """The newest traces of the sessions that changed last; how many are looked through is bounded."""
    found: list[Trace] = []
    page = await sessions.list(scope, SessionQuery(limit=_SESSIONS))
    truncated, read = page.cursor is not None, 0
    for session in page.sessions:
        # Once there are enough, everything from here on is older than what there is.
        enough = len(found) >= limit and sorted(found, key=_BY_TIME)[-limit].began_at >= session.updated_at
        if enough or read >= _TRACES:
            truncated = True
            break
        try:
            theirs = await session_traces(store, scope, session.id, limit, wanted=wanted)
        except SessionNotFound:
            # Gone since it was listed.
            continue
        read += min(session.turns, TRACES_KEPT)
        found += theirs.traces
        truncated = truncated or theirs.truncated
    return FoundTraces(tuple(sorted(found, key=_BY_TIME, reverse=True)[:limit]), truncated or len(found) > limit)
