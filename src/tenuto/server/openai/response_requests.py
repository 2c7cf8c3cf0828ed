"""What clients of responses and chat completions send, the turn that they ask for, and the conversation before it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from tenuto.chat import Chat, ChatRequest
from tenuto.errors import AttachmentNotFound, Invalid, SessionBusy, SessionExists, SessionNotFound, VersionConflict
from tenuto.model import Content, Draft, Message, Page, Role, Scope
from tenuto.model.attachment import shown_in
from tenuto.model.generation import ToolSpec
from tenuto.model.parameters import PARAMETERS, AnswerSchema, ModelParameters
from tenuto.model.policy import OnMissing, SessionPolicy
from tenuto.model.values import Json, JsonObject
from tenuto.server.apps.naming import SESSION, AppRequest
from tenuto.server.auth import ServerContext
from tenuto.server.json_io import OpenBody, key_fingerprint
from tenuto.server.openai.conversations import check_metadata, drafts_of_items, new_conversation_id
from tenuto.server.openai.errors import ResponseNotFound
from tenuto.server.openai.item_log import ItemLog
from tenuto.server.openai.items import ECHO, SHOWN_ITEMS
from tenuto.server.openai.provider_items import FUNCTION, provider_tools_of, repeated_tool
from tenuto.server.openai.response_objects import DEFAULTS, Echo, find_turn, place_of_response
from tenuto.sessions import Sessions
from tenuto.sessions.ids import derived_id

_Tokens: TypeAlias = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Result = TypeVar("_Result")
_REASONING: Final = ("effort", "summary", "generate_summary")
_TEXT: Final = ("format", "verbosity")
_LOGPROBS: Final = "message.output_text.logprobs"
_INCLUDABLE: Final = (
    _LOGPROBS,
    "reasoning.encrypted_content",
    "message.input_image.image_url",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
# How an answer travels is no part of what is asked.
_NOT_SAID: Final = ("stream", "background")
_REFERENCE: Final = "item_reference"
_FORMS: Final = ("text", "json_object", "json_schema")
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
        more |= {f"text.{name}": value for name, value in text.items() if name not in _TEXT and value is not None}
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
    specs: list[ToolSpec] = []
    for place, tool in enumerate(tools or ()):
        kind = tool.get("type")
        if not isinstance(kind, str):
            raise Invalid(f"tools[{place}].type: expected str")
        if kind == FUNCTION:
            specs.append(_spec(tool, f"tools[{place}]"))
    names = {spec.name for spec in specs}
    # Those that the provider runs; the choice of one of them is passed on.
    kinds = {tool["type"] for tool in tools or ()} - {FUNCTION}
    wanted = "auto"
    match choice:
        case None:
            pass
        case "none" | "auto" | "required":
            wanted = choice
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": list(allowed)} | {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto" | "required" as mode, "tools": list(allowed)},
        }:
            specs, wanted = _allowed(specs, allowed, kinds), mode
        case {"type": "function", "name": str(name)} | {"type": "function", "function": {"name": str(name)}}:
            wanted = name
            if name not in names:
                raise Invalid("tool_choice: names none of the tools")
        case {"type": str(kind)} if kind in kinds:
            pass
        case _:
            raise Invalid("tool_choice: expected auto, none, required, a function or allowed tools")
    if wanted == "required" and not specs and not kinds:
        raise Invalid("tool_choice: required, and there are no tools")
    return ToolChoice(tuple(specs), wanted)


def _allowed(specs: list[ToolSpec], allowed: list[Json], kinds: set[str]) -> list[ToolSpec]:
    """The functions among those that are named, in either form, or by these kinds of other tools.

    Raises:
        Invalid: one is named that is none of the tools.
    """
    known = [spec.name for spec in specs]
    names: list[str] = []
    for one in allowed:
        if isinstance(one, dict) and one.get("type") in kinds:
            continue
        function = one.get("function", one) if isinstance(one, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or name not in known:
            raise Invalid("tool_choice: allows what is none of the tools")
        names.append(name)
    return [spec for spec in specs if spec.name in names]


def _spec(tool: JsonObject, place: str) -> ToolSpec:
    """A function as Responses describe it, or as chat completions do, one level deeper."""
    function, place = tool.get("function", tool), place + ".function" * ("function" in tool)
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise Invalid(f"{place}.name: expected the name of a function")
    about, parameters = function.get("description") or "", function.get("parameters") or _NO_PARAMETERS
    if not isinstance(about, str):
        raise Invalid(f"{place}.description: expected str")
    if not isinstance(parameters, dict):
        raise Invalid(f"{place}.parameters: expected a schema")
    strict = function.get("strict")
    return ToolSpec(
        name=name, description=about, parameters=parameters, strict=strict if isinstance(strict, bool) else None
    )


def schema_of(form: Json, field: str, inside: str = "") -> AnswerSchema | None:
    """The form that a field of the request demands of the answer; `None` for plain text. Its schema is `inside`.

    Raises:
        Invalid: it is of no known type, or its schema is no object.
    """
    if form is None:
        return None
    kind = form.get("type") if isinstance(form, dict) else None
    if not isinstance(form, dict) or kind not in _FORMS:
        raise Invalid(f"{field}.type: expected one of {', '.join(_FORMS)}")
    if kind == "text":
        return None
    schema, name, about, strict = form.get("schema"), form.get("name"), form.get("description"), form.get("strict")
    if kind == "json_schema" and not isinstance(schema, dict):
        raise Invalid(f"{field}{inside}.schema: expected a JSON schema")
    return AnswerSchema(
        name=name if isinstance(name, str) and name else "answer",
        description=about if isinstance(about, str) else "",
        schema=schema,
        strict=strict if isinstance(strict, bool) else None,
    )


class _Streamed(Protocol):
    """A request whose answer may be streamed."""

    @property
    def stream(self) -> bool | None: ...
    @property
    def stream_options(self) -> JsonObject | None: ...


def check_stream_options(body: _Streamed) -> None:
    """Refuse options of a stream where there is none, as OpenAI does.

    Raises:
        Invalid: they would have no effect.
    """
    if body.stream_options is not None and not body.stream:
        raise Invalid("stream_options: only with stream")


class Asked(NamedTuple):
    """A request for a response: the turn it asks for, and what its response repeats.

    With `items`, these are the conversation of a session that the request names, and the turn is without messages.
    """

    app: AppRequest
    body: ResponseBody
    turn: ChatRequest
    created_at: int
    said: JsonObject
    items: list[JsonObject] | None = None

    @property
    def scope(self) -> Scope:
        """Who asks."""
        return self.app.scope

    def echo(self, trace: str) -> Echo:
        """What the response of that turn repeats."""
        return Echo.of(trace, self.created_at, self.body.model or str(self.turn.assistant), self.said)


async def read_request(
    context: ServerContext, app: AppRequest, body: ResponseBody, extra: JsonObject, idempotency_key: str | None
) -> Asked:
    """What a client asks for; `extra` are fields of the provider's own.

    Raises:
        Invalid: the request contradicts itself, or brings nothing to answer.
    """
    check_metadata(body.metadata)
    check_stream_options(body)
    for place, included in enumerate(body.include or ()):
        if included not in _INCLUDABLE:
            raise Invalid(f"include[{place}]: expected one of {', '.join(_INCLUDABLE)}")
    if body.store is False and body.background:
        raise Invalid("background: a response that is not stored cannot be made in the background")
    answerer = context.chat.answerer_of(app.scope.tenant, body.model)
    if app.spare_tools and not await context.chat.runs_provider_tools(app.scope.tenant, answerer):
        app = app.without_spare_tools()
    # What the response repeats is what holds.
    body = replace(body, tools=app.kept_tools(body.tools), store=None if app.store_overridden else body.store)
    said, created_at, scope = body.said(), now_in_seconds(context), app.scope
    session_id = await _session_of(context.sessions, app, body)
    items = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input or []
    for place, item in enumerate(items):
        kind = item.get("type", "message")
        if not isinstance(kind, str) or kind not in SHOWN_ITEMS:
            raise Invalid(f"input[{place}].type: no model gets items of this type; a conversation keeps them")
    items = await _without_references(context.sessions, scope, items, session_id)
    if not items:
        raise Invalid("input: expected a text or items")
    sends_history = app.whole_history and app.is_stored
    drafts: tuple[Draft, ...] = ()
    if isinstance(body.input, list) and not sends_history:
        drafts = await drafts_of_items(context, scope, items, "input", session_id)
        drafts = await _without_known(context.sessions, scope, session_id, drafts)
    assistant, model = answerer
    tools = tools_of(body.tools, body.tool_choice)
    turn = ChatRequest(
        text=body.input if isinstance(body.input, str) and not sends_history else "",
        messages=drafts,
        session_id="" if sends_history else None,
        regenerate=sends_history,
        assistant=assistant,
        model=model,
        idempotency_key=idempotency_key,
        fingerprint=await key_fingerprint(
            idempotency_key, [getattr(body, name) for name in body.__struct_fields__ if name not in _NOT_SAID]
        ),
        instructions=body.instructions or None,
        tools=tools.tools,
        tool_choice=tools.choice,
        provider_tools=provider_tools_of(body.tools, body.tool_choice, body.include),
        schema=schema_of((body.text or {}).get("format"), "text.format"),
        parameters=body.parameters(extra),
        reply_tokens=body.max_output_tokens,
        reply_metadata={ECHO: {"created_at": created_at, "model": body.model or assistant, **said}},
        policy=existing(policy_of(context.chat, assistant)),
        compress_above=body.compress_above,
        require_attachments=bool(body.require_attachments),
        **app.marks,
    )
    return Asked(app, body, turn, created_at, said, items if sends_history else None)


async def _session_of(sessions: Sessions, app: AppRequest, body: ResponseBody) -> str | None:
    """The session that the request speaks of, where it names one.

    Raises:
        Invalid: its header names another session than its body.
    """
    previous, stated = body.previous_response_id, body.conversation_id
    in_body = stated if previous is None else place_of_response(previous)[1]
    if app.session is None or (in_body is not None and not app.explicit):
        return in_body
    named = await sessions.find_named(app.scope, app.session)
    if in_body is not None and in_body != named:
        field = "conversation" if previous is None else "previous_response_id"
        raise Invalid(f"{field}: is of another session than the header {SESSION} names")
    return named


async def _without_references(
    sessions: Sessions, scope: Scope, items: list[JsonObject], session_id: str | None
) -> list[JsonObject]:
    """The input without references to items that the conversation has.

    Raises:
        Invalid: one refers to an item that the model would not see.
    """
    if not any(item.get("type") == _REFERENCE for item in items):
        return items
    known: set[str] = set()
    if session_id is not None:
        with suppress(SessionNotFound):
            known = await ItemLog(sessions, scope, session_id).newest_ids()
    for place, item in enumerate(items):
        if item.get("type") == _REFERENCE and str(item.get("id")) not in known:
            raise Invalid(f"input[{place}].id: the conversation has no such item; send the item itself")
    return [item for item in items if item.get("type") != _REFERENCE]


async def _without_known(
    sessions: Sessions, scope: Scope, session_id: str | None, drafts: tuple[Draft, ...]
) -> tuple[Draft, ...]:
    """The input without calls and outputs that the conversation has: clients repeat those of their earlier steps.

    Outputs only beside other items: one alone is a retry after a turn that failed, or unknown.
    """
    if session_id is None or not any(draft.role is Role.TOOL for draft in drafts):
        return drafts
    with suppress(SessionNotFound):
        return await ItemLog(sessions, scope, session_id).without_known(drafts)
    return drafts


def policy_of(chat: Chat, assistant: str) -> SessionPolicy:
    """The assistant's own policy for sessions."""
    return chat.assistants.find(assistant).policies.sessions


class StoredHistory(NamedTuple):
    """The newest messages before a request, and their session; none if the request names no conversation."""

    session_id: str = ""
    messages: tuple[Message, ...] = ()


async def history_of(
    sessions: Sessions, scope: Scope, body: ResponseBody, limit: int, content_bytes: int = 0
) -> StoredHistory:
    """The newest messages before a request that is not stored, with up to so many bytes of what the newest show.

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
        return StoredHistory()
    messages = (await sessions.messages(scope, session_id, Page(limit=limit, before=before))).messages
    return StoredHistory(session_id, await _with_contents(sessions, scope, session_id, messages, content_bytes))


async def _with_contents(
    sessions: Sessions, scope: Scope, session_id: str, messages: tuple[Message, ...], left: int
) -> tuple[Message, ...]:
    """The messages with the contents that they show, the newest first, as long as there are bytes left for them."""
    loaded: list[Message] = []
    known: set[str] = set()
    for message in reversed(messages):
        contents: list[Content] = []
        for attachment_id, part in shown_in(message.parts).items() if left > 0 else ():
            if attachment_id in known or part.get("size", 0) > left:
                continue
            with suppress(AttachmentNotFound):  # It was removed meanwhile.
                contents.append(await sessions.attachment(scope, session_id, attachment_id))
                known.add(attachment_id)
                left -= len(contents[-1].data)
        loaded.append(replace(message, contents=tuple(contents)) if contents else message)
    return tuple(reversed(loaded))


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
                replace(asked, session_id=turn.session.id, after_turn=turn.number, policy=existing(waiting))
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
