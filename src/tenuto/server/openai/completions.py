"""The route of chat completions: stateless as clients expect it, or a turn in the session that a header names.

Clients send the whole conversation each time. With a session, what is new in it is stored there; without one, nothing
is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Final
from uuid import uuid4

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from tenuto.chat import ChatEvent, ChatRequest, LiveTurn, Reply, ReplyFinished, SentTurn, ToolStarted
from tenuto.errors import Invalid, UnsupportedParameter
from tenuto.model import Draft, Message, Role
from tenuto.model.generation import TextDelta, ToolCall
from tenuto.model.parameters import PARAMETERS, FinishReason, ModelParameters
from tenuto.model.turn import history_length
from tenuto.model.values import JsonObject
from tenuto.server.apps.naming import UNMARKED, AppNaming, AppRequest
from tenuto.server.auth import ServerContext
from tenuto.server.handlers import Answer
from tenuto.server.json_io import OpenBody, key_fingerprint, unknown_fields
from tenuto.server.openai.conversations import drafts_of_items
from tenuto.server.openai.errors import OpenAIRouter, failure_response
from tenuto.server.openai.items import degraded_view, messages_of
from tenuto.server.openai.provider_items import check_functions
from tenuto.server.openai.response_requests import check_stream_options, schema_of, tools_of
from tenuto.server.openai.responses import last_reply
from tenuto.server.sent_history import begin_sent_turn, events_while_here, headers_of, reply_while_here
from tenuto.server.streams import (
    ServerSentEvent,
    begun_events,
    cancel_on_disconnect,
    event_stream,
    told_error,
    until_lapsed,
)
from tenuto.sessions.openai_parts import check_messages

routes = OpenAIRouter()

_EXAMPLE: Final[JsonObject] = {"model": "general", "messages": [{"role": "user", "content": "Hello!"}]}
_CHUNK: Final = "chat.completion.chunk"
_ROLES: Final = ("system", "developer", "user", "assistant", "tool")


class _CompletionBody(OpenBody, frozen=True, kw_only=True):
    """A request for a chat completion. Fields that are not here are passed on to the model's provider, or refused."""

    messages: list[JsonObject]
    model: str | None = None
    stream: bool | None = None
    stream_options: JsonObject | None = None
    tools: list[JsonObject] | None = None
    tool_choice: str | JsonObject | None = None
    response_format: JsonObject | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    prediction: JsonObject | None = None
    modalities: list[str] | None = None
    functions: list[JsonObject] | None = None
    function_call: str | JsonObject | None = None
    require_attachments: bool | None = None

    @property
    def form(self) -> JsonObject | None:
        """The form that the answer must have, as requests for responses say it."""
        form = self.response_format
        if form is None:
            return None
        schema = form.get("json_schema")
        return {**(schema if isinstance(schema, dict) else {}), "type": form.get("type")}

    def parameters(self, extra: JsonObject) -> ModelParameters:
        """What the request says of how the model is to answer.

        Raises:
            Invalid: a value is out of its range, or asks for what no answer has.
        """
        if self.modalities not in (None, ["text"]):
            raise UnsupportedParameter("modalities", "answers are text")
        for name in ("functions", "function_call"):
            if getattr(self, name) is not None:
                raise UnsupportedParameter(name, "is out of date; describe them as tools")
        return ModelParameters(
            **{name: getattr(self, name) for name in _SAME},
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop) if self.stop else None,
            provider_metadata=self.metadata,
            provider_store=self.store,
            extra=extra,
        )


# Parameters that the model port has under the same name.
_SAME: Final = tuple(name for name in _CompletionBody.__struct_fields__ if name in PARAMETERS and name != "stop")


class _Completion:
    """One completion, whole or in chunks."""

    def __init__(self, body: _CompletionBody, model: str, created: int) -> None:
        self._usage = bool((body.stream_options or {}).get("include_usage"))
        tier = "default" if body.service_tier in (None, "auto") else body.service_tier
        self._head = {"id": f"chatcmpl-{uuid4().hex}", "created": created, "model": model, "service_tier": tier}

    def whole(self, reply: Reply) -> JsonObject:
        text, calls = reply.text or None, reply.calls
        message: JsonObject = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
        if reply.finish is FinishReason.REFUSAL:
            message |= {"content": None, "refusal": text}
        if calls:
            message["tool_calls"] = [_call_view(call) for call in calls]
        choice = {"index": 0, "message": message, "logprobs": _logprobs(reply), "finish_reason": _reason(reply)}
        whole = {**self._head, "object": "chat.completion", "choices": [choice], "usage": _usage(reply)}
        return {**whole, **degraded_view(reply.degraded)}

    async def chunks(self, events: AsyncIterator[ChatEvent]) -> AsyncIterator[JsonObject]:
        """The chunks of a completion, each told as soon as it is known."""
        # The role is told once, and what was said before a tool of the assistant's own is none of the answer.
        head: JsonObject = {"role": "assistant"}
        said = ""
        try:
            async for event in events:
                if isinstance(event, TextDelta) and event.text:
                    yield self._chunk({**head, "refusal" if event.refusal else "content": event.text})
                    head, said = {}, said + event.text
                elif isinstance(event, ToolStarted):
                    said = ""
                elif isinstance(event, ReplyFinished):
                    for chunk in self._end(event.reply, head, said):
                        yield chunk
        except Exception as error:
            body: JsonObject = msgspec.json.decode(bytes(failure_response(told_error(error)).body))
            yield body

    def _end(self, reply: Reply, head: JsonObject, said: str) -> list[JsonObject]:
        text, calls = reply.text, reply.calls
        rest = text.removeprefix(said) if text.startswith(said) else ""
        field = "refusal" if reply.finish is FinishReason.REFUSAL and not said else "content"
        deltas: list[JsonObject] = [{**head, field: rest or None}] if rest or head else []
        if calls:
            deltas.append({"tool_calls": [{"index": at, **_call_view(call)} for at, call in enumerate(calls)]})
        last = {**self._chunk({}, _reason(reply), _logprobs(reply)), **degraded_view(reply.degraded)}
        chunks = [*(self._chunk(delta) for delta in deltas), last]
        if self._usage:
            chunks.append({**self._head, "object": _CHUNK, "choices": [], "usage": _usage(reply)})
        return chunks

    def _chunk(self, delta: JsonObject, reason: str | None = None, logprobs: JsonObject | None = None) -> JsonObject:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return {**self._head, "object": _CHUNK, "choices": [choice], **({"usage": None} if self._usage else {})}


@routes.post("/chat/completions", body=_EXAMPLE, streams=True)
async def create_completion(
    request: Request, naming: AppNaming, context: ServerContext, idempotency_key: str | None, body: _CompletionBody
) -> Answer[JsonObject] | Response:
    """Complete a conversation.

    With the header `Tenuto-Session`, or an id of an app that the settings name, as a turn of that session; else nothing
    is stored.
    """
    app = naming.read(body)
    if body.n not in (None, 1):
        raise Invalid("n: must be 1, as each request gets one completion")
    check_stream_options(body)
    template = _template_of(context, app, body, unknown_fields(request))
    completion = _Completion(body, body.model or str(template.assistant), int(context.clock().timestamp()))
    headers = app.headers
    if app.is_stored:
        if idempotency_key is not None:
            said = [getattr(body, name) for name in body.__struct_fields__ if name != "stream"]
            digest = await key_fingerprint(idempotency_key, said)
            template = replace(template, idempotency_key=idempotency_key, fingerprint=digest)
        sent = await _begin_in_session(request, context, app, template, body)
        headers = await headers_of(sent, app)
        if sent.live is not None:
            return await _in_session(request, sent.live, completion, headers, stream=bool(body.stream))
        template = replace(template, app_task=UNMARKED)
    _check_messages(body.messages)
    check_messages(body.messages)
    turn, history = await _turn_of(context, app, body, template)
    events = context.chat.stream(app.scope, turn, history)
    if body.stream:
        live_events = until_lapsed(request, await begun_events(request, events))
        response = await event_stream(request, _with_end(completion.chunks(live_events)), _encode)
        response.headers.update(headers)
        return response
    return Answer(completion.whole(await cancel_on_disconnect(request, last_reply(events))), headers=headers)


def _check_messages(messages: Sequence[JsonObject], places: Sequence[int] | None = None) -> None:
    """Refuse what no prompt would show: the answer would be one to another conversation than was sent.

    With the `places` of some messages in the request, the call of an output may stand in the session.
    """
    calls: set[str] = set()
    waiting: dict[str, str] = {}
    calls_elsewhere = places is not None
    for place, message in zip(places or range(len(messages)), messages, strict=True):
        role, at = message.get("role"), f"messages[{place}]"
        if role not in _ROLES:
            raise Invalid(f"{at}.role: expected one of {', '.join(_ROLES)}")
        if role == "user" and not isinstance(message.get("content"), str | list):
            raise Invalid(f"{at}.content: expected a text or parts")
        if role == "tool" and not isinstance(message.get("tool_call_id"), str):
            raise Invalid(f"{at}.tool_call_id: expected str")
        if role == "tool" and not calls_elsewhere and message["tool_call_id"] not in calls:
            raise Invalid(f"{at}.tool_call_id: no message before it calls a tool with this id")
        if role == "tool":
            waiting.pop(message["tool_call_id"], None)
        elif waiting and not calls_elsewhere:
            break
        made = _calls_in(message, at)
        calls.update(made)
        waiting |= dict.fromkeys(made, at)
    if waiting and not calls_elsewhere:
        # In a session, the output may come with a later request.
        raise Invalid(f"{next(iter(waiting.values()))}.tool_calls: a call has no output behind it")


def _calls_in(message: JsonObject, at: str) -> list[str]:
    """The ids of the calls in a message.

    Raises:
        Invalid: a call has none, or it is one that no model gets.
    """
    for name in ("function_call", "audio"):
        if message.get(name) is not None:
            raise UnsupportedParameter(f"{at}.{name}", "would reach no model")
    made = message.get("tool_calls")
    ids: list[str] = []
    for call in made if isinstance(made, list) else ():
        if not isinstance(call, dict) or not isinstance(call.get("id"), str):
            raise Invalid(f"{at}.tool_calls: expected calls with an id")
        if call.get("type") != "function":
            raise UnsupportedParameter(f"{at}.tool_calls", "only calls of functions reach a model")
        ids.append(call["id"])
    return ids


async def _begin_in_session(
    request: Request, context: ServerContext, app: AppRequest, template: ChatRequest, body: _CompletionBody
) -> SentTurn:
    """Begin the turn that the messages ask for, by what is new in them."""

    async def read(items: list[JsonObject], places: list[int]) -> tuple[Draft, ...]:
        _check_messages(items, places)
        check_messages(items, places)
        return await drafts_of_items(context, app.scope, items, "messages", places=places)

    return await begin_sent_turn(request, context, app, template, body.messages, read, streams=bool(body.stream))


async def _in_session(
    request: Request, live: LiveTurn, completion: _Completion, headers: Mapping[str, str], *, stream: bool
) -> Answer[JsonObject] | Response:
    if not stream:
        return Answer(completion.whole(await reply_while_here(request, live)), headers=headers)
    chunks = completion.chunks(events_while_here(request, live))
    response = await event_stream(request, _with_end(chunks), _encode)
    response.headers.update(headers)
    return response


def _template_of(context: ServerContext, app: AppRequest, body: _CompletionBody, extra: JsonObject) -> ChatRequest:
    """The turn that a request asks for, without its messages."""
    given = app.kept_tools(body.tools)
    check_functions(given)
    tools = tools_of(given, body.tool_choice)
    answerer = context.chat.answerer_of(app.scope.tenant, body.model)
    return ChatRequest(
        # Until the messages are read: a request without any is none but a regeneration.
        session_id="",
        regenerate=True,
        assistant=answerer.assistant,
        model=answerer.model,
        tools=tools.tools,
        tool_choice=tools.choice,
        schema=schema_of(body.form, "response_format", ".json_schema"),
        parameters=body.parameters(extra),
        reply_tokens=body.max_completion_tokens or body.max_tokens,
        require_attachments=bool(body.require_attachments),
        **app.marks,
    )


async def _turn_of(
    context: ServerContext, app: AppRequest, body: _CompletionBody, template: ChatRequest
) -> tuple[ChatRequest, tuple[Message, ...]]:
    """The turn without a session that the messages ask for, and what they say of the conversation before it."""
    drafts = await drafts_of_items(context, app.scope, body.messages, "messages")
    if not drafts:
        raise Invalid("messages: expected a message to answer")
    # System messages alone are what is to be answered.
    first = next((place for place, draft in enumerate(drafts) if draft.role is not Role.SYSTEM), 0)
    last = max(first, history_length(drafts))
    turn = replace(
        template,
        session_id=None,
        regenerate=False,
        messages=drafts[last:],
        instructions="\n\n".join(draft.text for draft in drafts[:first]) or None,
    )
    return turn, messages_of(drafts[first:last])


def _reason(reply: Reply) -> str:
    if reply.finish in (FinishReason.LENGTH, FinishReason.CONTENT_FILTER):
        return reply.finish
    return "tool_calls" if reply.calls else "stop"


def _logprobs(reply: Reply) -> JsonObject | None:
    return {"content": list(reply.logprobs), "refusal": None} if reply.logprobs is not None else None


def _call_view(call: ToolCall) -> JsonObject:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_text}}


def _usage(reply: Reply) -> JsonObject:
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": reply.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


async def _with_end(chunks: AsyncIterator[JsonObject]) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        yield msgspec.json.encode(chunk)
    yield b"[DONE]"


def _encode(line: bytes) -> ServerSentEvent:
    return ServerSentEvent("", line)
