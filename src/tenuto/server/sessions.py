"""Routes for sessions and their attributes."""

from __future__ import annotations

from urllib.parse import quote

from tenuto.errors import Unavailable
from tenuto.model import Changes, Scope, SearchQuery, Session, SessionQuery, Truncation
from tenuto.model.session import LARGEST_SEARCH
from tenuto.model.values import Json, JsonObject, View
from tenuto.server.auth import AuthContext
from tenuto.server.handlers import Answer
from tenuto.server.json_io import fingerprint
from tenuto.server.openapi import Router
from tenuto.server.requests import (
    AttributeValue,
    ChangeSession,
    CreateSession,
    ForkSession,
    SessionListQuery,
    TruncateSession,
    resolve_version,
)
from tenuto.sessions import Sessions
from tenuto.sessions.views import SessionDetail, SessionList, SessionView, StatsView
from tenuto.tasks import Tasks

routes = Router("sessions", prefix="/v1")


class AttributesView(View, frozen=True, kw_only=True):
    """All attributes of a session."""

    attributes: JsonObject


class AttributeView(View, frozen=True, kw_only=True):
    """One attribute; null when there is none of this name."""

    name: str
    value: Json


class ScopeView(View, frozen=True, kw_only=True):
    """The scope that a request acts in: that of its credential, with what its headers name."""

    tenant: str
    site: str
    user: str | None
    channel: str | None
    chat: str | None
    thread: str | None


def created_session(session: Session) -> Answer[SessionView]:
    """The answer that has a new session, with its address."""
    # Clients resolve "." and ".." as relative paths, so these are encoded too.
    address = session.id.replace(".", "%2E") if session.id in (".", "..") else quote(session.id, safe="")
    return Answer(SessionView.of(session), 201, {"Location": f"/v1/sessions/{address}"})


@routes.get("/scope")
async def get_scope(scope: Scope) -> ScopeView:
    """Get the scope of the request. It tells for whom a request with this credential and these headers acts."""
    return ScopeView.of(scope)


@routes.post("/sessions", 201, 200)
async def create_session(
    admission: AuthContext, sessions: Sessions, idempotency_key: str | None, body: CreateSession
) -> Answer[SessionView]:
    """Create a session.

    If the caller has a session of that `id`, it is returned with 200. If the id belongs to another user, the new
    session gets another id.
    """
    session, new = await sessions.create(
        admission.scope(body.tenant_id, body.site_id),
        body.new(),
        session_id=body.id,
        idempotency_key=idempotency_key,
        fingerprint=fingerprint(body),
    )
    return created_session(session) if new else Answer(SessionView.of(session))


@routes.get("/sessions")
async def list_sessions(scope: Scope, sessions: Sessions, asked: SessionListQuery) -> SessionList:
    """List the caller's sessions, or search them. The one that changed last comes first.

    With `q`, those that have all words of it, in their titles or in what was said in them; `matches` has the best
    messages of each. If no session has the words, those of the newest 200 are listed whose titles contain the text.
    Where this search is switched off, the answer is 400 `search_off`; `title` finds parts of titles in any case.
    """
    if asked.q:
        limit = min(asked.limit, LARGEST_SEARCH)
        searched = SearchQuery(text=asked.q, limit=limit, cursor=asked.cursor, status=asked.status)
        return SessionList.of_search(await sessions.search(scope, searched))
    query = SessionQuery(limit=asked.limit, cursor=asked.cursor, title=asked.title, status=asked.status)
    return SessionList.of(await sessions.list(scope, query))


@routes.get("/sessions/{session_id}")
async def get_session(scope: Scope, sessions: Sessions, tasks: Tasks, session_id: str) -> SessionDetail:
    """Get a session and its unfinished tasks."""
    session = await sessions.get(scope, session_id)
    try:
        active = await tasks.active(scope, session.id)
    except Unavailable:  # In an outage a session may be known here; tasks are in the store alone.
        active = None
    return SessionDetail.with_tasks(session, active)


@routes.patch("/sessions/{session_id}")
async def change_session(
    scope: Scope, sessions: Sessions, session_id: str, if_match: int | None, body: ChangeSession
) -> SessionView:
    """Change a session's title, status, context, attributes or metadata.

    With If-Match or `if_version`, only if the session has that version.
    """
    changes = body.value(resolve_version(if_match, body.if_version))
    return SessionView.of(await sessions.patch(scope, session_id, changes))


@routes.delete("/sessions/{session_id}")
async def delete_session(scope: Scope, sessions: Sessions, session_id: str) -> None:
    """Delete a session and everything in it."""
    await sessions.delete(scope, session_id)


@routes.post("/sessions/{session_id}/reset")
async def reset_session(scope: Scope, sessions: Sessions, session_id: str) -> SessionView:
    """Clear a session. Deletes its messages, context and metadata; a running turn is lost."""
    return SessionView.of(await sessions.reset(scope, session_id))


@routes.post("/sessions/{session_id}/fork", 201, problems=(409,))
async def fork_session(scope: Scope, sessions: Sessions, session_id: str, body: ForkSession) -> Answer[SessionView]:
    """Fork a session at a message. The new session has the messages up to and including it."""
    fork = await sessions.fork(scope, session_id, at=body.at, new_id=body.id, title=body.title)
    return created_session(fork)


@routes.post("/sessions/{session_id}/truncate")
async def truncate_session(
    scope: Scope, sessions: Sessions, session_id: str, if_match: int | None, body: TruncateSession
) -> SessionView:
    """Delete the messages after a sequence number.

    A running turn is lost. With If-Match or `if_version`, only if the session has that version, so that no message
    is deleted that the caller has not read.
    """
    version = resolve_version(if_match, body.if_version)
    truncating = Truncation(after=body.after, if_version=version, keep_seqs=body.keep_seqs)
    return SessionView.of(await sessions.truncate(scope, session_id, truncating))


@routes.get("/sessions/{session_id}/attributes")
async def get_attributes(scope: Scope, sessions: Sessions, session_id: str) -> AttributesView:
    """Get all attributes of a session."""
    return AttributesView.of(await sessions.get(scope, session_id))


@routes.get("/sessions/{session_id}/attributes/{name}")
async def get_attribute(scope: Scope, sessions: Sessions, name: str, session_id: str) -> AttributeView:
    """Get one attribute of a session. Its value is null if there is none of this name."""
    session = await sessions.get(scope, session_id)
    return AttributeView(name=name, value=session.attributes.get(name))


@routes.put("/sessions/{session_id}/attributes/{name}")
async def set_attribute(
    scope: Scope, sessions: Sessions, name: str, session_id: str, body: AttributeValue
) -> AttributeView:
    """Set one attribute of a session. Other attributes may change at the same time."""
    changes = Changes(attributes={name: body.value})
    session = await sessions.patch(scope, session_id, changes)
    return AttributeView(name=name, value=session.attributes.get(name))


@routes.delete("/sessions/{session_id}/attributes/{name}")
async def remove_attribute(scope: Scope, sessions: Sessions, name: str, session_id: str) -> None:
    """Delete one attribute of a session. Idempotent."""
    await sessions.patch(scope, session_id, Changes(attributes={name: None}))


@routes.get("/stats")
async def get_stats(scope: Scope, sessions: Sessions) -> StatsView:
    """Count the caller's sessions, messages, tokens and costs."""
    return StatsView.of(await sessions.stats(scope))
