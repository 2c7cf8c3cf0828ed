"""Routes for export and import."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tenuto.app import Tenuto
from tenuto.model import Scope
from tenuto.model.values import JsonObject
from tenuto.privacy.record_redaction import redact_export_pages, redact_export_session
from tenuto.server.auth import ServerContext
from tenuto.server.handlers import Answer
from tenuto.server.json_io import correct_token_counts, read_body
from tenuto.server.openapi import Router, describe
from tenuto.server.requests import ExportQuery
from tenuto.server.sessions import created_session
from tenuto.sessions import Sessions, fresh_id
from tenuto.sessions.transfer import (
    ENDINGS,
    FORMAT,
    FORMAT_VERSION,
    MEDIA_TYPES,
    ExportFormat,
    iter_export,
    parse_export,
    with_exported_contents,
)
from tenuto.sessions.views import SessionView

routes = Router("export and import", prefix="/v1")

_FREE: Final[JsonObject] = {"type": "object", "additionalProperties": True}
_JSON_EXPORT: Final[JsonObject] = {
    "type": "object",
    "required": ["format", "version", "session"],
    "properties": {
        "format": {"type": "string", "const": FORMAT, "description": "Always the same."},
        "version": {"type": "integer", "const": FORMAT_VERSION, "description": "The version of the format."},
        "session": {**_FREE, "description": "The session without its messages."},
        "messages": {
            "type": "array",
            "items": {"$ref": "#/components/schemas/NewMessage"},
            "description": "Oldest first.",
        },
    },
}
_EXPORTS: Final = {
    MEDIA_TYPES[written]: {"schema": _FREE if written is ExportFormat.JSON else {"type": "string"}}
    for written in ExportFormat
}
_IMPORT = describe(SessionView, 201, problems=(413,))
_IMPORT.content["requestBody"] = {
    "required": True,
    "description": "An export in any of its formats; the format is detected.",
    "content": {
        "text/markdown": {"schema": {"type": "string"}},
        "application/x-ndjson": {"schema": {"type": "string"}},
        "application/json": {
            "schema": _JSON_EXPORT,
            "example": {
                "format": FORMAT,
                "version": FORMAT_VERSION,
                "session": {"title": "Holiday plans"},
                "messages": [{"role": "user", "text": "Hello!"}],
            },
        },
    },
}


@routes.get("/sessions/{session_id}/export", content=_EXPORTS)
async def export_session(
    scope: Scope, tenuto: Tenuto, sessions: Sessions, session_id: str, query: ExportQuery
) -> Response:
    """Export a session as JSON, JSON Lines or Markdown.

    Private data is redacted unless the policy for exports says otherwise.
    """
    redactor = tenuto.redactor
    session = await sessions.get(scope, session_id)
    pages = redact_export_pages(redactor, session, sessions.iter_pages(scope, session))
    session = await redact_export_session(redactor, session)
    return StreamingResponse(
        iter_export(session, pages, query.format, partial(sessions.attachment, scope, session_id)),
        media_type=MEDIA_TYPES[query.format],
        headers={"Content-Disposition": f'attachment; filename="session.{ENDINGS[query.format]}"'},
    )


@routes.post("/sessions/import", operation=_IMPORT)
async def import_session(request: Request, scope: Scope, context: ServerContext) -> Answer[SessionView]:
    """Create a session from an export. Everything is imported in one step, or nothing."""
    raw = await read_body(request, context.settings.max_body_bytes)
    saved = parse_export(raw, now=context.clock(), new_id=fresh_id)
    saved = await asyncio.to_thread(with_exported_contents, scope, saved, context.sessions.policy)
    saved = replace(saved, messages=await correct_token_counts(context, saved.messages))
    return created_session(await context.sessions.restore(scope, saved))
