"""Find traces: one by its name, those of a session, and the latest of all sessions."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec.structs import replace

from tenuto.errors import Invalid, SessionNotFound, TraceNotFound
from tenuto.model import Scope, SessionQuery
from tenuto.model.turn import TRACES_KEPT, Trace, TraceOutcome, place_of
from tenuto.model.values import Value, check_id
from tenuto.ports import TraceStore
from tenuto.sessions.service import Sessions

_BY_TIME: Final = attrgetter("began_at")
# Sessions looked through when traces are asked for without naming one, and traces read for it.
_SESSIONS: Final = 200
_TRACES: Final = 1000


class TraceFilter(Value, frozen=True, kw_only=True):
    """Which traces to find: of this user, assistant and model, with this outcome, begun from `since` to before `until`.

    Without naming a session, a user's are looked for in that user's own sessions.
    """

    user: str | None = None
    assistant: str | None = None
    model: str | None = None
    outcome: TraceOutcome | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        if self.user is not None:
            check_id(self.user, "the user id")
        if None not in (self.since, self.until) and self.since >= self.until:  # type: ignore[operator]
            raise Invalid("since must be before until")

    def matches(self, trace: Trace) -> bool:
        """Whether this is one of them."""
        return (
            self.user in (None, trace.speaker)
            and self.assistant in (None, trace.assistant)
            and self.model in (None, trace.model)
            and self.outcome in (None, trace.outcome)
            and (self.since is None or trace.began_at >= self.since)
            and (self.until is None or trace.began_at < self.until)
        )


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
    page = await sessions.list(_narrowed(scope, wanted), SessionQuery(limit=_SESSIONS))
    truncated, read = False, 0
    for session in page.sessions:
        # From here on everything is older than what is wanted.
        if wanted.since is not None and session.updated_at < wanted.since:
            break
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
    else:
        truncated = truncated or page.cursor is not None
    return FoundTraces(tuple(sorted(found, key=_BY_TIME, reverse=True)[:limit]), truncated or len(found) > limit)


def _narrowed(scope: Scope, wanted: TraceFilter) -> Scope:
    """The scope whose sessions can hold such traces: a listing of one user's sessions passes over no others.

    Raises:
        Invalid: the scope is that of another user.
    """
    if wanted.user is None or wanted.user == scope.user:
        return scope
    if scope.user is not None:
        raise Invalid("user: the request is one user's, and sees the traces of that user alone")
    return scope if scope.owner else replace(scope, user=wanted.user)
