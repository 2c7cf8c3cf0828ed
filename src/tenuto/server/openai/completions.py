"""The route of chat completions: stateless as clients expect it, or a turn in the session that a header names.

Clients send the whole conversation each time. With a session, only what follows its last answer is new; without one,
nothing is stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Final
from uuid import uuid4

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from tenuto.chat import ChatEvent, ChatRequest, LiveTurn, Reply, ReplyFinished, ToolStarted
from tenuto.errors import Invalid, UnsupportedParameter
from tenuto.model import Message
from tenuto.model.generation import TextDelta, ToolCall
from tenuto.model.parameters import PARAMETERS, FinishReason, ModelParameters
from tenuto.model.values import JsonObject
from tenuto.server.apps.naming import SESSION, AppNaming, AppRequest
from tenuto.server.auth import ServerContext
from tenuto.server.handlers import Answer
from tenuto.server.json_io import OpenBody, fingerprint, unknown_fields
from tenuto.server.openai.conversations import drafts_of_items
from tenuto.server.openai.errors import OpenAIRouter, failure_response
from tenuto.server.openai.items import degraded_view, messages_of
from tenuto.server.openai.provider_items import check_functions
from tenuto.server.openai.response_requests import (
    check_stream_options,
    in_named_session,
    schema_of,
    split_history,
    tools_of,
)
from tenuto.server.openai.responses import first_event, last_reply
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
    scope, session = app.scope, app.stored_session
    if body.n not in (None, 1):
        raise Invalid("n: must be 1, as each request gets one completion")
    check_stream_options(body)
    _check_messages(body.messages, calls_elsewhere=session is not None)
    check_messages(body.messages)
    turn, history = await _turn_of(context, app, body)
    turn = replace(turn, parameters=body.parameters(unknown_fields(request)), **app.marks)
    completion = _Completion(body, body.model or str(turn.assistant), int(context.clock().timestamp()))
    if session is not None:
        turn = replace(await in_named_session(turn, context, scope, session), idempotency_key=idempotency_key)
        live = context.live.start(scope, turn)
        return await _in_session(request, live, completion, app.headers, stream=bool(body.stream))
    events = context.chat.stream(scope, turn, history)
    if body.stream:
        live_events = until_lapsed(request, await begun_events(request, events))
        response = await event_stream(request, _with_end(completion.chunks(live_events)), _encode)
        response.headers.update(app.headers)
        return response
    return Answer(completion.whole(await cancel_on_disconnect(request, last_reply(events))), headers=app.headers)


def _check_messages(messages: list[JsonObject], *, calls_elsewhere: bool) -> None:
    """Refuse what no prompt would show: the answer would be one to another conversation than was sent.

    With `calls_elsewhere`, the call of an output may stand in the session.
    """
    calls: set[str] = set()
    waiting: dict[str, str] = {}
    for place, message in enumerate(messages):
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


async def _in_session(
    request: Request, live: LiveTurn, completion: _Completion, headers: Mapping[str, str], *, stream: bool
) -> Answer[JsonObject] | Response:
    await cancel_on_disconnect(request, first_event(live))
    session_id = live.started.session_id if live.started is not None else (await live.reply()).session_id
    if not stream:
        reply = await cancel_on_disconnect(request, live.reply())
        return Answer(completion.whole(reply), headers={SESSION: session_id, **headers})
    events = (event async for _, event in until_lapsed(request, live.events()))
    response = await event_stream(request, _with_end(completion.chunks(events)), _encode)
    response.headers.update({SESSION: session_id, **headers})
    return response


async def _turn_of(
    context: ServerContext, app: AppRequest, body: _CompletionBody
) -> tuple[ChatRequest, tuple[Message, ...]]:
    """The turn that the messages ask for, and what they say of the conversation before it."""
    drafts = await drafts_of_items(context, app.scope, body.messages, "messages")
    if not drafts:
        raise Invalid("messages: expected a message to answer")
    sent = split_history(drafts, app)
    given = app.kept_tools(body.tools)
    check_functions(given)
    tools = tools_of(given, body.tool_choice)
    answerer = context.chat.answerer_of(app.scope.tenant, body.model)
    turn = ChatRequest(
        messages=sent.new,
        assistant=answerer.assistant,
        model=answerer.model,
        fingerprint=fingerprint([getattr(body, name) for name in body.__struct_fields__ if name != "stream"]),
        instructions=sent.instructions or None,
        tools=tools.tools,
        tool_choice=tools.choice,
        schema=schema_of(body.form, "response_format", ".json_schema"),
        reply_tokens=body.max_completion_tokens or body.max_tokens,
        require_attachments=bool(body.require_attachments),
    )
    return turn, messages_of(sent.history)


def _reason(reply: Reply) -> str:
    if reply.calls:
        return "tool_calls"
    return reply.finish if reply.finish in (FinishReason.LENGTH, FinishReason.CONTENT_FILTER) else "stop"


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
