"""Routes for a session's messages."""

from __future__ import annotations

from typing import Self

from msgspec.structs import replace

from tenuto.model import AppendResult, Page, Scope, Usage
from tenuto.model.message import is_summary
from tenuto.model.turn import order_by_place
from tenuto.model.values import JsonObject, View
from tenuto.server.auth import ServerContext
from tenuto.server.handlers import Answer
from tenuto.server.json_io import convert_json, drafts_of, key_fingerprint, without_ids_and_times
from tenuto.server.openapi import Router, describe
from tenuto.server.requests import AppendMessages, MessageListQuery
from tenuto.sessions import AppendRequest, Sessions
from tenuto.sessions.views import MessageList, MessageView, SessionView

routes = Router("messages", prefix="/v1")


class AppendResultView(View, frozen=True, kw_only=True):
    """The outcome of a write; a `duplicate` stored nothing.

    `kept` of the messages are stored. Those before them were `dropped`: they exceed the most that a session keeps.
    """

    session: SessionView
    messages: list[MessageView]
    duplicate: bool
    kept: int
    dropped: int

    @classmethod
    def of(cls, done: AppendResult) -> Self:
        """The view of a write."""
        messages = list(map(MessageView.of, done.messages))
        kept = min(len(messages), done.session.messages)
        return cls(
            session=SessionView.of(done.session),
            messages=messages,
            duplicate=done.duplicate,
            kept=kept,
            dropped=len(messages) - kept,
        )


_APPEND = describe(AppendResultView, 201, 200, body=AppendMessages, headers=("Idempotency-Key",))
_content = _APPEND.content["requestBody"]["content"]["application/json"]
_content["schema"] = {"anyOf": [_content["schema"], {"$ref": "#/components/schemas/NewMessage"}]}


@routes.get("/sessions/{session_id}/messages")
async def get_messages(scope: Scope, sessions: Sessions, session_id: str, query: MessageListQuery) -> MessageList:
    """List messages of a session, oldest first.

    Returns the newest ones, or those next before or after a sequence number.
    """
    page = Page(limit=query.limit, before=query.before, after=query.after)
    found = await sessions.messages(scope, session_id, page)
    if not query.summaries:
        found = replace(found, messages=tuple(message for message in found.messages if not is_summary(message)))
    if query.in_place:
        found = replace(found, messages=tuple(order_by_place(found.messages)))
    return MessageList.of(found, head=query.head)


@routes.post("/sessions/{session_id}/messages", operation=_APPEND)
async def append_messages(
    scope: Scope, context: ServerContext, session_id: str, idempotency_key: str | None, body: JsonObject
) -> Answer[AppendResultView]:
    """Append one message or several outside a turn.

    With an Idempotency-Key or a producer's number they are stored at most once; a repetition is answered with 200.
    """
    batch = convert_json(_as_batch(body), AppendMessages)
    messages = await drafts_of(context, scope, batch.messages, () if "messages" in body else ("",))
    # The tokens that a client names are what it spent, whatever we count for the prompt.
    spent = Usage(tokens=sum(message.get("tokens", 0) for message in batch.messages))
    done = await context.sessions.append(
        scope,
        session_id,
        AppendRequest(
            messages=messages,
            usage=batch.usage.value() if batch.usage is not None else spent,
            idempotency_key=idempotency_key,
            fingerprint=await key_fingerprint(idempotency_key, without_ids_and_times(body)),
            producer=batch.producer.value() if batch.producer is not None else None,
        ),
    )
    return Answer(AppendResultView.of(done), 200 if done.duplicate else 201)


def _as_batch(body: JsonObject) -> JsonObject:
    """A message alone, beside what else a request may say, as a request of several."""
    if "messages" in body:
        return body
    beside: JsonObject = {name: body[name] for name in ("usage", "producer") if name in body}
    return {"messages": [{name: value for name, value in body.items() if name not in beside}], **beside}
