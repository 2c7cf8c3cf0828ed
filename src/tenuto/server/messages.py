"""Routes for a session's messages."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import Response

from tenuto.model import Appended, Page, Usage
from tenuto.model.values import JsonObject
from tenuto.server.auth import asking
from tenuto.server.json_io import (
    answer,
    body_of,
    converted,
    drafts_of,
    fingerprint,
    idempotency_key,
    path_part,
    query_of,
)
from tenuto.server.openapi import describe, router
from tenuto.server.requests import AppendMessages, Paging
from tenuto.server.responses import AppendedView, MessageList
from tenuto.server.service import sessions
from tenuto.sessions import AppendRequest
from tenuto.sessions.views import message_json, session_json

routes = router("messages", prefix="/v1")

_told = describe(
    (201, AppendedView),
    (200, AppendedView),
    body=AppendMessages,
    required=True,
    headers=("Idempotency-Key",),
    example={
        "messages": [{"role": "user", "text": "Hello!"}, {"role": "assistant", "text": "Hello Ann.", "tokens": 4}],
        "usage": {"tokens": 12, "cost_usd": "0.000036"},
    },
    problems=(409,),
)
_content = _told["openapi_extra"]["requestBody"]["content"]["application/json"]
_content["schema"] = {"anyOf": [_content["schema"], {"$ref": "#/components/schemas/NewMessage"}]}


@routes.get("/sessions/{session_id}/messages", **describe((200, MessageList), query=Paging))
async def get_messages(request: Request) -> Response:
    """A page of messages, oldest first: the newest, or those next before or after a sequence number."""
    scope = await asking(request)
    asked = query_of(request, Paging)
    page = Page(limit=asked.limit, before=asked.before, after=asked.after)
    found = await sessions(request).messages(scope, path_part(request), page)
    return answer(
        {
            "messages": [message_json(message) for message in found.messages],
            "more_before": found.more_before,
            "more_after": found.more_after,
        }
    )


@routes.post("/sessions/{session_id}/messages", **_told)
async def append_messages(request: Request) -> Response:
    """Append messages, or one, outside a turn; by a key or a producer's number at most once (then 200)."""
    scope = await asking(request)
    body = await body_of(request, dict)
    batch = converted(_several(body), AppendMessages)
    messages = await drafts_of(request, batch.messages)
    done = await sessions(request).append(
        scope,
        path_part(request),
        AppendRequest(
            messages=messages,
            usage=batch.usage.value() if batch.usage is not None else _named(batch.messages),
            key=idempotency_key(request),
            fingerprint=fingerprint(body),
            producer=batch.producer.value() if batch.producer is not None else None,
        ),
    )
    return answer(appended_json(done), 200 if done.duplicate else 201)


def _named(messages: list[JsonObject]) -> Usage:
    """What a client says that its messages took: that is what it spent, whatever we count for the prompt."""
    return Usage(tokens=sum(message.get("tokens", 0) for message in messages))


def _several(body: JsonObject) -> JsonObject:
    """A message alone, beside what else a request may say, as a request of several."""
    if "messages" in body:
        return body
    beside: JsonObject = {name: body[name] for name in ("usage", "producer") if name in body}
    return {"messages": [{name: value for name, value in body.items() if name not in beside}], **beside}


def appended_json(done: Appended) -> JsonObject:
    """What became of a write."""
    return {
        "session": session_json(done.session),
        "messages": [message_json(message) for message in done.messages],
        "duplicate": done.duplicate,
    }
