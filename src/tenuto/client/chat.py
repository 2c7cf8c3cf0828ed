"""`RemoteChat`: turns with the assistants of a server, whole or as events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Final

import msgspec

from tenuto.chat import ChatEvent, ChatRequest, Reply
from tenuto.chat.request import ReplyFinished, ToolFinished, ToolStarted, TurnStarted
from tenuto.client.http import Call, HttpClient, ServerEvent, path
from tenuto.client.wire import refuse_unsent, value_from
from tenuto.model import Scope
from tenuto.model.generation import TextDelta
from tenuto.model.prompt import Manifest, ManifestEntry
from tenuto.model.session import cost_nanos
from tenuto.model.values import JsonObject, check_type
from tenuto.sessions import fresh_id

_SENT: Final = ("session_id", "assistant", "persona", "language", "edit")
_CARRIED: Final = frozenset({*_SENT, "text", "regenerate", "profile", "idempotency_key", "fingerprint"})


class RemoteChat:
    """The chat of a server; requests, replies and events are those of `Chat`."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    async def take_turn(self, scope: Scope, request: ChatRequest) -> Reply:
        """Answer, whole. After a lost connection the same key gets the same answer.

        Raises:
            TenutoError: as `Chat.take_turn` says.
        """
        return _reply_from(await self._http.json(scope, _call(request)))

    async def stream(self, scope: Scope, request: ChatRequest) -> AsyncIterator[ChatEvent]:
        """Answer, event by event; the last is `ReplyFinished`.

        Raises:
            TenutoError: as `Chat.take_turn` says.
            Unavailable: the connection was lost; the same idempotency key continues or repeats the answer.
        """
        async for event in self._http.events(scope, _call(request, stream=True)):
            yield _event_from(event)


def _call(request: ChatRequest, *, stream: bool = False) -> Call:
    check_type(request, ChatRequest, "the request")
    unsent = (name for name in ChatRequest.__struct_fields__ if name not in _CARRIED)
    refuse_unsent(request, ChatRequest(text="-"), *unsent)
    named = {name: getattr(request, name) for name in _SENT if getattr(request, name) is not None}
    body = {"message": request.text, "regenerate": request.regenerate, "profile": request.profile, **named}
    key = request.idempotency_key or fresh_id()
    about = {} if request.session_id is None else {"session_id": request.session_id}
    call = Call("POST", path("chat"), {**body, "stream": stream}, headers={"Idempotency-Key": key}, about=about)
    return call._replace(repeatable=True, answers=True)


def _reply_from(body: JsonObject) -> Reply:
    usage, context = body["usage"], body["context"]
    return value_from(
        {name: item for name, item in body.items() if name not in ("answer", "usage", "context")},
        Reply,
        text=body["answer"],
        trace_id=body["trace_id"] or "",
        input_tokens=usage["input_tokens"],
        output_tokens=usage["output_tokens"],
        cost_nanos=cost_nanos(Decimal(usage["cost_usd"])),
        manifest=None if context is None else _manifest_from(context),
    )


def _manifest_from(body: JsonObject) -> Manifest:
    """The account of a prompt; the margin is not told."""
    entries = tuple(ManifestEntry(**entry) for entry in body["entries"])
    return Manifest(**{**body, "entries": entries, "margin": 1.0})


def _event_from(event: ServerEvent) -> ChatEvent:
    body: JsonObject = msgspec.json.decode(event.data)
    match event.name:
        case "start":
            return value_from(body, TurnStarted, trace_id=body["trace_id"] or "")
        case "delta":
            return TextDelta(text=body["text"])
        case "tool" if body["state"] == "started":
            return ToolStarted(name=body["name"])
        case "tool":
            return value_from(body, ToolFinished)
    return ReplyFinished(reply=_reply_from(body))
