"""What clients of Anthropic's messages send, and the turn that they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from msgspec import Meta
from msgspec.structs import replace

from tenuto.chat import ChatRequest
from tenuto.chat.service import Answerer
from tenuto.errors import Invalid, UnsupportedParameter
from tenuto.model import Draft, Message, Role, Scope
from tenuto.model.parameters import AnswerSchema, Effort, ModelFacts, ModelParameters
from tenuto.model.turn import history_length
from tenuto.model.values import Json, JsonObject
from tenuto.ports import facts_of, refused_parameters
from tenuto.server.anthropic.message_blocks import ANTHROPIC, check_pairs, places_in, read_messages
from tenuto.server.apps.naming import AppRequest
from tenuto.server.auth import ServerContext
from tenuto.server.json_io import OpenBody, correct_token_counts, read_contents
from tenuto.server.openai.items import messages_of
from tenuto.server.openai.response_requests import ToolChoice, schema_of, tools_of

_System: TypeAlias = str | list[JsonObject] | None
_OWN_TOOL: Final = "custom"
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}
# What a budget of tokens to think is as an effort: the first that covers it.
_BUDGETS: Final = ((4096, Effort.LOW), (16_384, Effort.MEDIUM))
_TIERS: Final = {"auto": "auto", "standard_only": "default"}
# Efforts that other providers do not have.
_MORE_THAN_HIGH: Final = (Effort.XHIGH, Effort.MAX)
# What clients ask for, and what an answer can do without, by the parameter that it becomes.
_OPTIONAL: Final = {"reasoning_effort": "thinking", "user": "metadata"}
_PARAMETERS: Final = "parameters"
"""What `degraded` calls it that something which was asked for has no effect."""


class CountBody(OpenBody, frozen=True, kw_only=True):
    """A request to count tokens; what does not change their number is not read."""

    messages: list[JsonObject]
    model: str
    system: _System = None
    tools: list[JsonObject] | None = None
    tool_choice: JsonObject | None = None


class MessageBody(CountBody, frozen=True, kw_only=True):
    """A request for a message. Fields that are not here are refused by name.

    A parameter of the model has an effect where `_wanted` reads it.
    """

    max_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    thinking: JsonObject | None = None
    output_config: JsonObject | None = None
    output_format: JsonObject | None = None
    metadata: JsonObject | None = None
    service_tier: str | None = None
    cache_control: JsonObject | None = None
    context_management: JsonObject | None = None
    diagnostics: JsonObject | None = None
    require_attachments: bool | None = None

    @property
    def schema(self) -> AnswerSchema | None:
        """The form that the answer must have.

        Raises:
            Invalid: it is no JSON schema.
        """
        form = (self.output_config or {}).get("format")
        if form is None and self.output_format is not None:
            return schema_of(self.output_format, "output_format")
        return schema_of(form, "output_config.format")


class Template(NamedTuple):
    """The turn that a request asks for, without its messages, and what of the request has no effect."""

    turn: ChatRequest
    degraded: tuple[str, ...]


async def template_of(context: ServerContext, app: AppRequest, body: MessageBody, extra: JsonObject) -> Template:
    """The turn that a request asks for, without its messages; `extra` are fields that are not known.

    Raises:
        Invalid: the request contradicts itself.
        UnsupportedParameter: a field or a tool is none that is passed on.
    """
    for name in extra:
        raise UnsupportedParameter(name, "is not passed on")
    tools = tools_of_body(app.kept_tools(body.tools), body.tool_choice)
    answerer = context.chat.answerer_of(app.scope.tenant, body.model)
    parameters, ignored = await _parameters_of(context, app.scope, answerer, body)
    turn = ChatRequest(
        # Until the messages are read: a request without any is none but a regeneration.
        session_id="",
        regenerate=True,
        assistant=answerer.assistant,
        model=answerer.model,
        instructions=system_text(body.system) or None,
        tools=tools.tools,
        tool_choice=tools.choice,
        schema=body.schema,
        parameters=parameters,
        reply_tokens=body.max_tokens,
        require_attachments=bool(body.require_attachments),
        **app.marks,
    )
    return Template(turn, (_PARAMETERS,) if ignored else ())


def fingerprinted_fields(body: MessageBody) -> list[Any]:
    """The fields that a retry under the same key repeats: all but how the answer travels."""
    return [getattr(body, name) for name in body.__struct_fields__ if name != "stream"]


async def read_drafts(
    context: ServerContext, scope: Scope, messages: Sequence[JsonObject], places: Sequence[int] | None = None
) -> tuple[Draft, ...]:
    """Messages of a request as ours, with contents and token counts. Those with `places` are some of them, and the call
    of an output may stand in the session.

    Raises:
        Invalid: a block is none that a model gets, a call lacks its output, or content cannot be taken.
    """
    read = read_messages(messages, places)
    check_pairs(read, calls_elsewhere=places is not None)
    now = context.clock()
    drafts = tuple([message.draft(now, scope.user) for message in read])
    return await correct_token_counts(context, await read_contents(context, scope, drafts, places_in(read)))


async def unstored_turn(
    context: ServerContext, scope: Scope, body: MessageBody, template: ChatRequest
) -> tuple[ChatRequest, tuple[Message, ...]]:
    """The turn without a session that the messages ask for, and what they say of the conversation before it."""
    drafts = await read_drafts(context, scope, body.messages)
    if not drafts:
        raise Invalid("messages: expected a message to answer")
    # System messages alone are what is to be answered.
    first = next((place for place, draft in enumerate(drafts) if draft.role is not Role.SYSTEM), 0)
    last = max(first, history_length(drafts))
    texts = [template.instructions, *[draft.text for draft in drafts[:first]]]
    turn = replace(
        template,
        session_id=None,
        regenerate=False,
        messages=drafts[last:],
        instructions="\n\n".join(filter(None, texts)) or None,
    )
    return turn, messages_of(drafts[first:last])


def system_text(system: _System) -> str:
    """The system prompt of a request.

    Raises:
        Invalid: a block of it is no text.
    """
    if not isinstance(system, list):
        return system or ""
    for number, block in enumerate(system):
        if block.get("type") != "text" or not isinstance(block.get("text"), str):
            raise Invalid(f"system[{number}].type: expected text")
    return "\n\n".join([block["text"] for block in system])


def tools_of_body(tools: list[JsonObject] | None, choice: JsonObject | None) -> ToolChoice:
    """The client's tools, and the choice between them.

    Raises:
        UnsupportedParameter: a tool is one that Anthropic runs or defines.
        Invalid: a tool or the choice is not described as it must be.
    """
    functions: list[JsonObject] = []
    for number, tool in enumerate(tools or ()):
        at, kind = f"tools[{number}]", tool.get("type")
        if kind not in (None, _OWN_TOOL):
            raise UnsupportedParameter(f"{at}.type", f"expected {_OWN_TOOL}: {_named(kind)} is not available here")
        if not isinstance(tool.get("input_schema"), dict):
            raise Invalid(f"{at}.input_schema: expected a schema")
        described: JsonObject = {name: tool[name] for name in ("name", "description", "strict") if name in tool}
        functions.append({**described, "type": "function", "parameters": tool["input_schema"]})
    return tools_of(functions, _choice_of(choice))


def _named(kind: Json) -> str:
    """The type of a tool, where it looks like one; anything else may be what a user wrote."""
    is_name = isinstance(kind, str) and kind.isascii() and kind.replace("_", "").isalnum() and len(kind) < 64
    return str(kind) if is_name else "this type"


def _choice_of(choice: JsonObject | None) -> str | JsonObject | None:
    match choice:
        case None:
            return None
        case {"type": "tool", "name": str(name)}:
            return {"type": "function", "name": name}
        case {"type": "auto" | "any" | "none" as kind}:
            return _CHOICES[kind]
    raise Invalid("tool_choice.type: expected auto, any, none, or tool with a name")


async def _parameters_of(
    context: ServerContext, scope: Scope, answerer: Answerer, body: MessageBody
) -> tuple[ModelParameters, list[str]]:
    """How the model is to answer, and what of it has no effect, since who answers cannot do it."""
    model = await context.chat.model_answering(scope.tenant, answerer)
    facts, assistant = facts_of(model), context.chat.assistants.find(answerer.assistant)
    wanted = _wanted(body)
    ignored = ["context_management"] if _asks_to_clear(body) else []
    if facts.provider != ANTHROPIC:
        # It tells Anthropic's users apart; others have rules of their own for such a text.
        wanted.pop("user", None)
        if wanted.get("temperature") == 1:
            # Clients send what is usual at Anthropic; models of others may refuse a temperature as such.
            del wanted["temperature"]
    effort = _effort_of(body, facts)
    if effort is not None:
        wanted["reasoning_effort"] = effort
    elif _asks_to_think(body):
        ignored.append("thinking")
    refused = {*refused_parameters(model, ModelParameters(**wanted)), *assistant.fixed_parameters}
    dropped = _OPTIONAL.keys() & wanted.keys() & refused
    ignored += [_OPTIONAL[name] for name in dropped if wanted.pop(name) != getattr(assistant.parameters, name)]
    return ModelParameters(**wanted), ignored


def _wanted(body: MessageBody) -> JsonObject:
    """What the request says of how to answer, without how to think."""
    if body.service_tier is not None and body.service_tier not in _TIERS:
        raise Invalid(f"service_tier: expected one of {', '.join(_TIERS)}")
    user = (body.metadata or {}).get("user_id")
    if not isinstance(user, str | None):
        raise Invalid("metadata.user_id: expected str")
    disabled = (body.tool_choice or {}).get("disable_parallel_tool_use")
    wanted = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "stop": tuple(body.stop_sequences) if body.stop_sequences else None,
        "user": user,
        "service_tier": _TIERS.get(body.service_tier or ""),
        "parallel_tool_calls": False if disabled is True else None,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _asks_to_clear(body: MessageBody) -> bool:
    """Whether parts of the conversation are to be left out of the prompt: nothing is where all is to be kept."""
    edits = (body.context_management or {}).get("edits")
    return any(
        edit.get("keep") != "all" if isinstance(edit, dict) else edit
        for edit in (edits if isinstance(edits, list) else ())
    )


def _asks_to_think(body: MessageBody) -> bool:
    return (body.thinking or {}).get("type") in ("enabled", "adaptive")


def _effort_of(body: MessageBody, facts: ModelFacts) -> str | None:
    """How much the model is to think; `None` where the request does not say, or the model does not think."""
    thinking, effort = body.thinking or {"type": None}, (body.output_config or {}).get("effort")
    if effort is not None and effort not in tuple(Effort):
        raise Invalid(f"output_config.effort: expected one of {', '.join(Effort)}")
    budget = thinking.get("budget_tokens")
    match thinking.get("type"):
        case None:
            return None
        case "disabled":
            return Effort.NONE if facts.provider == ANTHROPIC and facts.thinks else None
        case "adaptive":
            effort = effort or Effort.HIGH
        case "enabled" if type(budget) is int and budget > 0:
            effort = effort or next((each for most, each in _BUDGETS if budget < most), Effort.HIGH)
        case "enabled":
            raise Invalid("thinking.budget_tokens: expected a number of tokens")
        case _:
            raise Invalid("thinking.type: expected one of enabled, adaptive, disabled")
    if not facts.thinks:
        return None
    return Effort.HIGH if facts.provider != ANTHROPIC and effort in _MORE_THAN_HIGH else effort
