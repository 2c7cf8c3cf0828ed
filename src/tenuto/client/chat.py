"""`RemoteChat`: turns with the assistants of a server, whole or as events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from decimal import Decimal
from typing import Final

import msgspec

from tenuto.chat import ChatEvent, ChatRequest, Reply
from tenuto.chat.request import CallRequested, ReplyFinished, ToolFinished, ToolStarted, TurnStarted
from tenuto.client.http import ApiCall, ConnectionLost, HttpClient, ServerEvent, path
from tenuto.client.wire import refuse_unsent, value_from
from tenuto.model import Scope
from tenuto.model.generation import ReasoningDelta, StepChanged, TextDelta, ToolCall
from tenuto.model.prompt import Manifest, ManifestEntry
from tenuto.model.session import cost_nanos
from tenuto.model.values import JsonObject, check_type
from tenuto.sessions import fresh_id
from tenuto.sessions.media_parts import with_data

_REQUEST_FIELDS: Final = ("session_id", "assistant", "persona", "language", "edit", "after_seq", "require_attachments")
_SUPPORTED_FIELDS: Final = frozenset(
    {*_REQUEST_FIELDS, "text", "parts", "contents", "regenerate", "profile", "idempotency_key", "fingerprint"}
)


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
        """Answer, event by event; the last is `ReplyFinished`. A lost connection is made again, and the turn joined.

        If the turn has ended meanwhile, only `ReplyFinished` follows. A caller that leaves does not end the turn;
        `stop` does.

        Raises:
            TenutoError: as `Chat.take_turn` says.
        """
        call, last_number, failures = _call(request, stream=True), 0, 0
        while True:
            try:
                async with aclosing(self._http.events(scope, call)) as events:
                    async for event in events:
                        number = _number_of(event)
                        if number is None or number > last_number:
                            last_number = number or last_number
                            yield _event_from(event)
                return
            except ConnectionLost as error:
                await self._http.pause(failures, error)
                failures += 1

    async def stop(self, scope: Scope, session_id: str) -> Reply | None:
        """Stop the turn that runs in a session; returns the answer it has now, `None` if it has none or no turn ran."""
        call = ApiCall("POST", path("sessions", session_id, "stop"), about={"session_id": session_id}, repeatable=True)
        reply = (await self._http.json(scope, call))["reply"]
        return None if reply is None else _reply_from(reply)


def _call(request: ChatRequest, *, stream: bool = False) -> ApiCall:
    check_type(request, ChatRequest, "the request")
    unsent = (name for name in ChatRequest.__struct_fields__ if name not in _SUPPORTED_FIELDS)
    refuse_unsent(request, ChatRequest(text="-"), *unsent)
    fields = {name: getattr(request, name) for name in _REQUEST_FIELDS if getattr(request, name) is not None}
    body = {"message": request.text, "regenerate": request.regenerate, "profile": request.profile, **fields}
    if request.parts:
        body["attachments"] = with_data(request.parts, {content.id: content for content in request.contents})
    key = request.idempotency_key or fresh_id()
    about = {} if request.session_id is None else {"session_id": request.session_id}
    call = ApiCall("POST", path("chat"), {**body, "stream": stream}, headers={"Idempotency-Key": key}, about=about)
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


def _number_of(event: ServerEvent) -> int | None:
    """The number of an event in its turn; a stored reply has none."""
    return int(event.id.rpartition(".")[2]) if event.id is not None else None


def _event_from(event: ServerEvent) -> ChatEvent:
    body: JsonObject = msgspec.json.decode(event.data)
    match event.name:
        case "start":
            return value_from(body, TurnStarted, trace_id=body["trace_id"] or "")
        case "delta":
            return TextDelta(text=body["text"])
        case "reasoning":
            return ReasoningDelta(text=body["text"])
        case "step":
            return msgspec.convert(body, StepChanged)
        case "tool" if body["state"] == "started":
            return ToolStarted(name=body["name"])
        case "tool":
            return value_from(body, ToolFinished)
        case "call":
            return CallRequested(call=value_from(body, ToolCall))
    return ReplyFinished(reply=_reply_from(body))
