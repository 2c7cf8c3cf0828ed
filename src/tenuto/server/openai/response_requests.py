"""What clients of responses and chat completions send, the turn that they ask for, and the conversation before it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from tenuto.chat import Chat, ChatRequest
from tenuto.errors import Invalid, SessionBusy, SessionExists, SessionNotFound, VersionConflict
from tenuto.model import Draft, Message, Page, Role, Scope
from tenuto.model.generation import ToolSpec
from tenuto.model.parameters import PARAMETERS, AnswerSchema, ModelParameters
from tenuto.model.policy import OnMissing, SessionPolicy
from tenuto.model.values import Json, JsonObject
from tenuto.server.auth import ServerContext
from tenuto.server.json_io import OpenBody, fingerprint
from tenuto.server.openai.conversations import check_metadata, drafts_of_items, new_conversation_id
from tenuto.server.openai.errors import ResponseNotFound
from tenuto.server.openai.items import ECHO, ItemLog
from tenuto.server.openai.provider_items import provider_tools_of, repeated_tool
from tenuto.server.openai.response_objects import DEFAULTS, Echo, find_turn, place_of_response
from tenuto.sessions import Sessions
from tenuto.sessions.ids import derived_id

_Tokens: TypeAlias = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Result = TypeVar("_Result")
_REASONING: Final = ("effort", "summary", "generate_summary")
_LOGPROBS: Final = "message.output_text.logprobs"
# How an answer travels is no part of what is asked.
_NOT_SAID: Final = ("stream", "background")
_NO_PARAMETERS: Final[JsonObject] = {"type": "object", "properties": {}}


class ResponseBody(OpenBody, frozen=True, kw_only=True):
    """A request for a response. Fields that are not here are passed on to the model's provider, or refused."""

    input: str | list[JsonObject] | None = None
    model: str | None = None
    instructions: str | None = None
    conversation: str | JsonObject | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    background: bool | None = None
    tools: list[JsonObject] | None = None
    tool_choice: str | JsonObject | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: _Tokens | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    text: JsonObject | None = None
    reasoning: JsonObject | None = None
    truncation: Literal["auto", "disabled"] | None = None
    context_management: list[Any] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    user: str | None = None
    include: list[str] | None = None
    stream_options: JsonObject | None = None
    require_attachments: bool | None = None

    def parameters(self, extra: JsonObject) -> ModelParameters:
        """What the request says of how the model is to answer.

        Raises:
            Invalid: a value is out of its range.
        """
        reasoning, text = self.reasoning or {}, self.text or {}
        if self.max_tool_calls is not None:
            extra = {"max_tool_calls": self.max_tool_calls, **extra}
        more = {f"reasoning.{name}": value for name, value in reasoning.items() if name not in _REASONING and value}
        return ModelParameters(
            **{name: getattr(self, name) for name in _SAME},
            reasoning_effort=reasoning.get("effort"),
            reasoning_summary=reasoning.get("summary") or reasoning.get("generate_summary"),
            verbosity=text.get("verbosity"),
            logprobs=True if _LOGPROBS in (self.include or ()) else None,
            extra={**extra, **more},
        )

    @property
    def conversation_id(self) -> str | None:
        """The conversation that the request names.

        Raises:
            Invalid: it names none, or a response to follow as well.
        """
        named = self.conversation
        if isinstance(named, dict):
            named = named.get("id")
            if not isinstance(named, str):
                raise Invalid("conversation: expected an id, or an object with an id")
        if named is not None and self.previous_response_id is not None:
            raise Invalid("previous_response_id: a request follows a response or a conversation, not both")
        return named

    @property
    def compress_above(self) -> int | None:
        """From how many tokens on the conversation is to be compressed."""
        for one in self.context_management or ():
            if isinstance(one, dict) and one.get("type") == "compaction":
                threshold = one.get("compact_threshold")
                return threshold if type(threshold) is int and threshold > 0 else None
        return None

    def said(self) -> JsonObject:
        """What the response repeats of the request, as far as it is not the default."""
        said: JsonObject = {}
        for name, usual in DEFAULTS.items():
            value = getattr(self, name)
            if value is not None and value != usual:
                said[name] = {**usual, **value} if isinstance(usual, dict) else value
        if self.tools:
            said["tools"] = [repeated_tool(tool) for tool in self.tools]
        if self.conversation_id is not None:
            said["conversation"] = {"id": self.conversation_id}
        if said.get("service_tier") == "auto":
            del said["service_tier"]
        return said


# Parameters that the model port has under the same name.
_SAME: Final = tuple(name for name in ResponseBody.__struct_fields__ if name in PARAMETERS)


class ToolChoice(msgspec.Struct, frozen=True):
    """The caller's tools that a turn offers, and which of them it must call."""

    tools: tuple[ToolSpec, ...] = ()
    choice: str = "auto"


def tools_of(tools: list[JsonObject] | None, choice: str | JsonObject | None) -> ToolChoice:
    """The functions among the tools, and the choice between them; `provider_tools_of` gives the others.

    Raises:
        Invalid: a function has no name, or the choice is of none of them.
    """
    specs = [_spec(tool) for tool in tools or () if tool.get("type") == "function"]
    wanted = "auto"
    match choice:
        case str():
            wanted = choice
        case {"type": "allowed_tools", "mode": str(mode), "tools": list(allowed)}:
            specs, wanted = _allowed(specs, allowed), mode
        case {"type": "allowed_tools", "allowed_tools": {"mode": str(mode), "tools": list(allowed)}}:
            specs, wanted = _allowed(specs, allowed), mode
        case {"type": "function", "name": str(name)} | {"type": "function", "function": {"name": str(name)}}:
            wanted = name
            if name not in {spec.name for spec in specs}:
                raise Invalid("tool_choice: names none of the tools")
    return ToolChoice(tuple(specs), wanted)


def _allowed(specs: list[ToolSpec], allowed: list[Json]) -> list[ToolSpec]:
    """The functions among those that are named, in either form."""
    named = [one.get("function", one) for one in allowed if isinstance(one, dict)]
    names = [function.get("name") for function in named if isinstance(function, dict)]
    return [spec for spec in specs if spec.name in names]


def _spec(tool: JsonObject) -> ToolSpec:
    """A function as Responses describe it, or as chat completions do, one level deeper."""
    function = tool.get("function", tool)
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise Invalid("tools: a function has no name")
    about, parameters = function.get("description") or "", function.get("parameters") or _NO_PARAMETERS
    if not isinstance(about, str) or not isinstance(parameters, dict):
        raise Invalid("tools: a function's description is not a text, or its parameters are not a schema")
    strict = function.get("strict")
    return ToolSpec(
        name=name, description=about, parameters=parameters, strict=strict if isinstance(strict, bool) else None
    )


def schema_of(text: JsonObject | None) -> AnswerSchema | None:
    """The form that the request demands of the answer; `None` for plain text.

    Raises:
        Invalid: its schema is no object.
    """
    form = text.get("format") if isinstance(text, dict) else None
    if not isinstance(form, dict) or form.get("type") not in ("json_schema", "json_object"):
        return None
    schema, name, about, strict = form.get("schema"), form.get("name"), form.get("description"), form.get("strict")
    if form["type"] == "json_schema" and not isinstance(schema, dict):
        raise Invalid("text: the format's schema is not an object")
    return AnswerSchema(
        name=name if isinstance(name, str) and name else "answer",
        description=about if isinstance(about, str) else "",
        schema=schema,
        strict=strict if isinstance(strict, bool) else None,
    )


class Asked(NamedTuple):
    """A request for a response: the turn it asks for, and what its response repeats."""

    scope: Scope
    body: ResponseBody
    turn: ChatRequest
    created_at: int
    said: JsonObject

    def echo(self, trace: str) -> Echo:
        """What the response of that turn repeats."""
        return Echo.of(trace, self.created_at, self.body.model or str(self.turn.assistant), self.said)


async def read_request(
    context: ServerContext, scope: Scope, body: ResponseBody, extra: JsonObject, idempotency_key: str | None
) -> Asked:
    """What a client asks for; `extra` are fields of the provider's own.

    Raises:
        Invalid: the request contradicts itself, or brings nothing to answer.
    """
    check_metadata(body.metadata)
    if body.store is False and body.background:
        raise Invalid("background: a response that is not stored cannot be made in the background")
    said, created_at = body.said(), now_in_seconds(context)
    follows = body.previous_response_id
    session_id = body.conversation_id if follows is None else place_of_response(follows)[1]
    drafts: tuple[Draft, ...] = ()
    if isinstance(body.input, list):
        drafts = await drafts_of_items(context, scope, body.input, "input", session_id)
        drafts = await _without_known_outputs(context.sessions, scope, body, drafts)
    if not drafts and not isinstance(body.input, str):
        raise Invalid("input: expected a text or items")
    assistant, model = context.chat.answerer_of(scope.tenant, body.model)
    tools = tools_of(body.tools, body.tool_choice)
    turn = ChatRequest(
        text=body.input if isinstance(body.input, str) else "",
        messages=drafts,
        assistant=assistant,
        model=model,
        idempotency_key=idempotency_key,
        fingerprint=fingerprint([getattr(body, name) for name in body.__struct_fields__ if name not in _NOT_SAID]),
        instructions=body.instructions or None,
        tools=tools.tools,
        tool_choice=tools.choice,
        provider_tools=provider_tools_of(body.tools, body.tool_choice, body.include),
        schema=schema_of(body.text),
        parameters=body.parameters(extra),
        reply_tokens=body.max_output_tokens,
        reply_metadata={ECHO: {"created_at": created_at, "model": body.model or assistant, **said}},
        policy=existing(policy_of(context.chat, assistant)),
        compress_above=body.compress_above,
        require_attachments=bool(body.require_attachments),
    )
    return Asked(scope, body, turn, created_at, said)


async def _without_known_outputs(
    sessions: Sessions, scope: Scope, body: ResponseBody, drafts: tuple[Draft, ...]
) -> tuple[Draft, ...]:
    """The input without outputs that the conversation has: the AI SDK repeats those of its earlier steps.

    Only beside other items: an output alone is a retry after a turn that failed, or unknown.
    """
    if body.conversation_id is None or not any(draft.role is Role.TOOL for draft in drafts):
        return drafts
    with suppress(SessionNotFound):
        return await ItemLog(sessions, scope, body.conversation_id).without_known_outputs(drafts) or drafts
    return drafts


def policy_of(chat: Chat, assistant: str) -> SessionPolicy:
    """The assistant's own policy for sessions."""
    return chat.assistants.find(assistant).policies.sessions


async def history_of(sessions: Sessions, scope: Scope, body: ResponseBody, limit: int) -> tuple[Message, ...]:
    """The newest messages before a request that is not stored.

    Raises:
        SessionNotFound: there is no such conversation for this caller.
        ResponseNotFound: there is no such response to follow.
    """
    session_id, before = body.conversation_id, None
    if body.previous_response_id is not None:
        turn = await find_turn(sessions, scope, body.previous_response_id)
        if turn.reply is None:
            raise ResponseNotFound
        session_id, before = turn.session.id, turn.reply.seq + 1
    if session_id is None:
        return ()
    return (await sessions.messages(scope, session_id, Page(limit=limit, before=before))).messages


def now_in_seconds(context: ServerContext) -> int:
    """The time, as the API counts it."""
    return int(context.clock().timestamp())


async def follow_response(
    sessions: Sessions,
    scope: Scope,
    response_id: str,
    asked: ChatRequest,
    attempt: Callable[[ChatRequest], Awaitable[_Result]],
) -> _Result:
    """Take the turn after a response: in its session if it is the last there, else in a fork that ends with it.

    Of two requests that follow the same response at once, one goes on and the other forks. A conversation that the
    response named is changed by requests that name it, so there the next turn is always in a fork.

    Raises:
        SessionBusy: with a key; the turn that runs may be the one that this request asked for before.
        ResponseNotFound: there is no such response, or none that was answered.
    """
    turn = await find_turn(sessions, scope, response_id)
    if turn.reply is None:
        raise ResponseNotFound
    policy, key = asked.policy or sessions.policy, asked.idempotency_key
    if "conversation" not in turn.echo and (key is not None or turn.last):
        # A retry by its key may find its turn in either session, so it waits for one that runs.
        waiting = policy if key is not None else replace(policy, busy_wait=timedelta(0))
        try:
            return await attempt(
                replace(asked, session_id=turn.session.id, follows=turn.number, policy=existing(waiting))
            )
        except SessionBusy:
            if key is not None:
                raise
        except VersionConflict:
            pass
    named = new_conversation_id() if key is None else derived_id("conv_", response_id, key)
    try:
        fork_id = (await sessions.fork(scope, turn.session.id, at=turn.reply.seq, new_id=named)).id
    except SessionExists:
        fork_id = named
    return await attempt(replace(asked, session_id=fork_id, policy=existing(policy)))


def existing(policy: SessionPolicy) -> SessionPolicy:
    """The policy under which a session must exist: one that is named in vain is never made."""
    return policy if policy.on_missing is OnMissing.ERROR else replace(policy, on_missing=OnMissing.ERROR)
