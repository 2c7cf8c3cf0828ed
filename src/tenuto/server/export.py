"""Routes for export and import."""

from __future__ import annotations

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tenuto.privacy.record_redaction import redact_export_pages, redact_export_session
from tenuto.server.auth import asking, service, sessions
from tenuto.server.json_io import correct_token_counts, parse_query, path_parameter, read_body, session_response
from tenuto.server.openapi import Router, describe
from tenuto.server.requests import ExportQuery
from tenuto.sessions import fresh_id
from tenuto.sessions.transfer import (
    ENDINGS,
    FORMAT,
    FORMAT_VERSION,
    MEDIA_TYPES,
    ExportFormat,
    iter_export,
    parse_export,
)
from tenuto.sessions.views import SessionView

routes = Router("export and import", prefix="/v1")

_EXPORT = describe(
    None,
    query=ExportQuery,
    content={
        MEDIA_TYPES[written]: {"schema": {"type": "object" if written is ExportFormat.JSON else "string"}}
        for written in ExportFormat
    },
)
_IMPORT = describe(SessionView, 201, problems=(413,))
_IMPORT.content["requestBody"] = {
    "required": True,
    "description": "An export in any of its formats; the format is detected.",
    "content": {
        "text/markdown": {"schema": {"type": "string"}},
        "application/x-ndjson": {"schema": {"type": "string"}},
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["format", "version", "session"],
                "properties": {
                    "format": {"const": FORMAT},
                    "version": {"const": FORMAT_VERSION},
                    "session": {"type": "object"},
                    "messages": {"type": "array", "items": {"$ref": "#/components/schemas/NewMessage"}},
                },
            },
            "example": {
                "format": FORMAT,
                "version": FORMAT_VERSION,
                "session": {"title": "Holiday plans"},
                "messages": [{"role": "user", "text": "Hello!"}],
            },
        },
    },
}


@routes.get("/sessions/{session_id}/export", _EXPORT)
async def export_session(request: Request) -> Response:
    """The whole session, as JSON, JSON Lines or Markdown, written while it is read; private data as the policy for
    exports says, which is redacted unless it was changed."""
    scope = await asking(request)
    written = parse_query(request, ExportQuery).format
    screen = service(request).tenuto.redactor
    session = await sessions(request).get(scope, path_parameter(request))
    pages = redact_export_pages(screen, session, sessions(request).iter_pages(scope, session))
    session = await redact_export_session(screen, session)
    return StreamingResponse(
        iter_export(session, pages, written),
        media_type=MEDIA_TYPES[written],
        headers={"Content-Disposition": f'attachment; filename="session.{ENDINGS[written]}"'},
    )


@routes.post("/sessions/import", _IMPORT)
async def import_session(request: Request) -> Response:
    """Make a new session out of an export: all of it in one step, or nothing."""
    scope = await asking(request)
    raw = await read_body(request, service(request).settings.max_body_bytes)
    saved = parse_export(raw, now=service(request).clock(), new_id=fresh_id)
    saved = replace(saved, messages=await correct_token_counts(request, saved.messages))
    return session_response(await sessions(request).restore(scope, saved), 201)
