"""Routes for sessions and their attributes."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import Unavailable
from tenuto.model import Changes, SessionQuery, Truncation
from tenuto.model.values import Json, JsonObject, View
from tenuto.server.auth import asking, authenticate_request, service, sessions
from tenuto.server.json_io import (
    answer,
    body_of,
    fingerprint,
    idempotency_key,
    if_match,
    parse_query,
    path_parameter,
    session_response,
    versioned_response,
)
from tenuto.server.openapi import Router, describe
from tenuto.server.requests import (
    AttributeValue,
    ChangeSession,
    CreateSession,
    ForkSession,
    SessionListQuery,
    TruncateSession,
    resolve_version,
)
from tenuto.sessions.views import SessionDetail, SessionList, SessionView, StatsView

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


@routes.get("/scope", describe(ScopeView))
async def get_scope(request: Request) -> Response:
    """Get the scope of the request. It tells for whom a request with this credential and these headers acts."""
    return answer(ScopeView.of(await asking(request)))


@routes.post("/sessions", describe(SessionView, 201, 200, body=CreateSession, headers=("Idempotency-Key",)))
async def create_session(request: Request) -> Response:
    """Create a session.

    If the caller has a session of that `id`, it is returned with 200. If the id belongs to another user, the new
    session gets another id.
    """
    admission = await authenticate_request(request)
    body = await body_of(request, CreateSession)
    session, new = await sessions(request).create(
        admission.scope(body.tenant_id, body.site_id),
        body.new(),
        session_id=body.id,
        idempotency_key=idempotency_key(request),
        fingerprint=fingerprint(body),
    )
    return session_response(session, 201 if new else 200)


@routes.get("/sessions", describe(SessionList, query=SessionListQuery))
async def list_sessions(request: Request) -> Response:
    """List the caller's sessions. The one that changed last comes first."""
    scope = await asking(request)
    asked = parse_query(request, SessionListQuery)
    query = SessionQuery(limit=asked.limit, cursor=asked.cursor, title=asked.q, status=asked.status)
    return answer(SessionList.of(await sessions(request).list(scope, query)))


@routes.get("/sessions/{session_id}", describe(SessionDetail))
async def get_session(request: Request) -> Response:
    """Get a session and its unfinished tasks."""
    scope = await asking(request)
    session = await sessions(request).get(scope, path_parameter(request))
    try:
        active = await service(request).tenuto.tasks.active(scope, session.id)
    except Unavailable:  # In an outage a session may be known here; tasks are in the store alone.
        active = None
    return versioned_response(SessionDetail.with_tasks(session, active))


@routes.patch("/sessions/{session_id}", describe(SessionView, body=ChangeSession, headers=("If-Match",)))
async def change_session(request: Request) -> Response:
    """Change a session's title, status, context, attributes or metadata.

    With If-Match or `if_version`, only if the session has that version.
    """
    scope = await asking(request)
    body = await body_of(request, ChangeSession)
    changes = body.value(resolve_version(if_match(request), body.if_version))
    return session_response(await sessions(request).patch(scope, path_parameter(request), changes))


@routes.delete("/sessions/{session_id}", describe(None, 204))
async def delete_session(request: Request) -> Response:
    """Delete a session and everything in it."""
    scope = await asking(request)
    await sessions(request).delete(scope, path_parameter(request))
    return Response(status_code=204)


@routes.post("/sessions/{session_id}/reset", describe(SessionView))
async def reset_session(request: Request) -> Response:
    """Clear a session. Deletes its messages, context and metadata; a running turn is lost."""
    scope = await asking(request)
    return session_response(await sessions(request).reset(scope, path_parameter(request)))


@routes.post("/sessions/{session_id}/fork", describe(SessionView, 201, body=ForkSession, problems=(409,)))
async def fork_session(request: Request) -> Response:
    """Fork a session at a message. The new session has the messages up to and including it."""
    scope = await asking(request)
    body = await body_of(request, ForkSession)
    fork = await sessions(request).fork(scope, path_parameter(request), at=body.at, new_id=body.id, title=body.title)
    return session_response(fork, 201)


@routes.post("/sessions/{session_id}/truncate", describe(SessionView, body=TruncateSession, headers=("If-Match",)))
async def truncate_session(request: Request) -> Response:
    """Delete the messages after a sequence number.

    A running turn is lost. With If-Match or `if_version`, only if the session has that version, so that no message
    is deleted that the caller has not read.
    """
    scope = await asking(request)
    body = await body_of(request, TruncateSession)
    version = resolve_version(if_match(request), body.if_version)
    truncating = Truncation(after=body.after, if_version=version, keep_seqs=body.keep_seqs)
    return session_response(await sessions(request).truncate(scope, path_parameter(request), truncating))


@routes.get("/sessions/{session_id}/attributes", describe(AttributesView))
async def get_attributes(request: Request) -> Response:
    """Get all attributes of a session."""
    scope = await asking(request)
    return answer(AttributesView.of(await sessions(request).get(scope, path_parameter(request))))


@routes.get("/sessions/{session_id}/attributes/{name}", describe(AttributeView))
async def get_attribute(request: Request) -> Response:
    """Get one attribute of a session. Its value is null if there is none of this name."""
    scope = await asking(request)
    name = path_parameter(request, "name")
    session = await sessions(request).get(scope, path_parameter(request))
    return answer(AttributeView(name=name, value=session.attributes.get(name)))


@routes.put("/sessions/{session_id}/attributes/{name}", describe(AttributeView, body=AttributeValue))
async def set_attribute(request: Request) -> Response:
    """Set one attribute of a session. Other attributes may change at the same time."""
    scope = await asking(request)
    name = path_parameter(request, "name")
    body = await body_of(request, AttributeValue)
    changes = Changes(attributes={name: body.value})
    session = await sessions(request).patch(scope, path_parameter(request), changes)
    return answer(AttributeView(name=name, value=session.attributes.get(name)))


@routes.delete("/sessions/{session_id}/attributes/{name}", describe(None, 204))
async def remove_attribute(request: Request) -> Response:
    """Delete one attribute of a session. Idempotent."""
    scope = await asking(request)
    name = path_parameter(request, "name")
    await sessions(request).patch(scope, path_parameter(request), Changes(attributes={name: None}))
    return Response(status_code=204)


@routes.get("/stats", describe(StatsView))
async def get_stats(request: Request) -> Response:
    """Count the caller's sessions, messages, tokens and costs."""
    scope = await asking(request)
    return answer(StatsView.of(await sessions(request).stats(scope)))
