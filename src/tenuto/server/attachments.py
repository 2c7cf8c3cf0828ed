"""Routes for attachments: what a session has, one with its bytes, and its removal; and those that a message brings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import AttachmentNotFound, SessionNotFound, TooLarge
from tenuto.model import Content, Draft, Scope
from tenuto.model.values import JsonObject
from tenuto.server.auth import ServerContext
from tenuto.server.openapi import Router
from tenuto.server.requests import AttachmentBody
from tenuto.sessions import Sessions
from tenuto.sessions.media_parts import read_media, referenced
from tenuto.sessions.views import AttachmentList, SessionView

routes = Router("messages", prefix="/v1")

_BYTES: Final = {"*/*": {"schema": {"type": "string", "format": "binary", "description": "The bytes."}}}
# What a user sent is never a page of this server: it is saved, and runs nothing where it is opened all the same. As
# with every answer, browsers do not guess its type.
_HARMLESS: Final = {"Content-Security-Policy": "sandbox; default-src 'none'", "Cache-Control": "private, no-cache"}


class _Bytes(Response):
    """A body that is sent as it is, also where it is JSON."""


@routes.get("/sessions/{session_id}/attachments")
async def list_attachments(scope: Scope, sessions: Sessions, session_id: str) -> AttachmentList:
    """List the attachments of a session, without their bytes."""
    return AttachmentList.of(await sessions.attachments(scope, session_id))


@routes.get("/sessions/{session_id}/attachments/{attachment_id}", content=_BYTES)
async def get_attachment(
    request: Request, scope: Scope, sessions: Sessions, session_id: str, attachment_id: str
) -> Response:
    """Get the bytes of an attachment, as a file to save."""
    content = await sessions.attachment(scope, session_id, attachment_id)
    headers = {**_HARMLESS, "ETag": f'"{content.id}"'}
    if f'"{content.id}"' in request.headers.get("if-none-match", ""):
        return _Bytes(status_code=304, headers=headers)
    disposition = f"attachment; filename*=UTF-8''{quote(content.name or content.id, safe='')}"
    # A text without a charset is read as that of the browser's own language.
    media_type = content.media_type
    response = _Bytes(content.data, headers={**headers, "Content-Disposition": disposition})
    response.headers["Content-Type"] = media_type
    return response


@routes.delete("/sessions/{session_id}/attachments/{attachment_id}")
async def delete_attachment(scope: Scope, sessions: Sessions, session_id: str, attachment_id: str) -> SessionView:
    """Delete an attachment. The messages that showed it stay, with a mark in its place."""
    return SessionView.of(await sessions.remove_attachment(scope, session_id, attachment_id))


async def read_attachments(
    context: ServerContext, scope: Scope, attachments: Sequence[AttachmentBody]
) -> tuple[tuple[JsonObject, ...], tuple[Content, ...]]:
    """The parts of a message that show its attachments, and the contents that they bring.

    Raises:
        Invalid: content or link cannot be taken; the error names the field.
        TooLarge: an attachment is above the size limit.
    """
    if not attachments:
        return (), ()
    policy = context.sessions.policy

    def read() -> list[tuple[JsonObject, Content | None]]:
        return [
            read_media(scope, each.part(), policy, f"attachments[{place}]") for place, each in enumerate(attachments)
        ]

    shown = await asyncio.to_thread(read)
    contents = {content.id: content for _, content in shown if content is not None}
    return tuple([part for part, _ in shown]), tuple(contents.values())


async def referenced_contents(context: ServerContext, scope: Scope, drafts: Sequence[Draft]) -> dict[str, Content]:
    """The contents of attachments that items were listed with, from whichever of the caller's sessions.

    Raises:
        TooLarge: together they have more bytes than a request may bring.
    """
    contents: dict[str, Content] = {}
    limit = left = context.settings.max_body_bytes
    for reference, (attachment_id, session_id) in {
        name: ids for draft in drafts for name, ids in referenced(draft.parts).items()
    }.items():
        with suppress(SessionNotFound, AttachmentNotFound):
            contents[reference] = content = await context.sessions.attachment(scope, session_id, attachment_id)
            left -= len(content.data)
        if left < 0:
            raise TooLarge("content of the attachments that are referred to", limit)
    return contents
