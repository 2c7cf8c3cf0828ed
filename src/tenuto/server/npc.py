"""Routes for talks with characters, in the shape their clients know (C7, C8)."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import Response

from tenuto.model import Message, Page
from tenuto.server.answers import NpcCleared, NpcSession
from tenuto.server.auth import asking
from tenuto.server.openapi import room, tells
from tenuto.server.service import service, sessions
from tenuto.server.wire import answer, path_part
from tenuto.sessions.shape import instant

routes = room("npc", prefix="/v1/npc")


@routes.get("/sessions/{session_id}", **tells((200, NpcSession)))
async def get_npc_session(request: Request) -> Response:
    """A talk in short: how many messages, when the first and the last, and the most recent ones."""
    scope = await asking(request)
    session_id = path_part(request)
    context = service(request).settings.npc_policies().context
    page = await sessions(request).messages(scope, session_id, Page(limit=context.window_messages or 10))
    recent = _newest_within(page.messages, context.window_characters)
    first = page.messages[:1]
    if page.more_before:
        first = (await sessions(request).messages(scope, session_id, Page(limit=1, after=0))).messages
    return answer(
        {
            "session_id": session_id,
            "message_count": page.session.messages,
            "recent_messages": [
                {"role": message.role, "content": message.text, "timestamp": instant(message.sent_at)}
                for message in recent
            ],
            "first_message_at": instant(first[0].sent_at) if first else None,
            "last_message_at": instant(page.messages[-1].sent_at) if page.messages else None,
        }
    )


@routes.delete("/sessions/{session_id}", **tells((200, NpcCleared)))
async def clear_npc_session(request: Request) -> Response:
    """Forget a talk."""
    scope = await asking(request)
    session_id = path_part(request)
    await sessions(request).delete(scope, session_id)
    return answer({"success": True, "session_id": session_id})


def _newest_within(messages: tuple[Message, ...], characters: int | None) -> tuple[Message, ...]:
    """The newest messages whose words fit, oldest first; the very newest always."""
    left = characters
    for place in range(len(messages) - 1, -1, -1):
        if left is None:
            break
        left -= len(messages[place].text)
        if left < 0:
            return messages[min(place + 1, len(messages) - 1) :]
    return messages
