"""One typed answer of an assistant's model, for an agent that works on a step of a task.

The type is offered to the model as a tool whose arguments are the answer. A model that answers in prose is asked once
more. The answer passes the privacy policy as any other, and its cost is the tenant's. It says what the model did not
get of the conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from tenuto.assistants import Assistant
from tenuto.chat.deps import ChatDeps
from tenuto.chat.shown_media import ATTACHMENTS
from tenuto.chat.written_calls import read_written_calls
from tenuto.context import counter_for, truncate_text
from tenuto.context.tokens import Measure
from tenuto.errors import ModelFailed, ModelTimeout, NoTypedAnswer
from tenuto.llm import OFFLINE
from tenuto.model import Message, Role, Scope, text_part
from tenuto.model.analytics import UsageCounts
from tenuto.model.generation import (
    REQUIRED,
    ModelDone,
    ModelRequest,
    TextDelta,
    ToolCallRequested,
    ToolContext,
    ToolSpec,
)
from tenuto.model.media import shows_media, with_placeholders
from tenuto.model.privacy import Sink
from tenuto.model.prompt import Language, PromptMessage
from tenuto.model.values import Json, Value
from tenuto.ports import ChatModel, time_limit

_TOOL: Final = "answer"
CUT: Final = "cut"
"""What `degraded` calls a text of which the model got a part."""
# Of each message before the question.
_MESSAGE_TOKENS: Final = 2000
# A message takes some beside its text.
_FRAME_TOKENS: Final = 8
# The first answer and one repair.
_TRIES: Final = 2
_WANTED: Final = f"Call the tool `{_TOOL}` with your answer as its arguments. Write nothing else."
_Answer = TypeVar("_Answer", bound=Value)


class TypedAnswer(NamedTuple, Generic[_Answer]):
    """The answer; `None` where only the offline model answers. `degraded` names what the model did not get whole."""

    value: _Answer | None
    degraded: tuple[str, ...] = ()


class _Talk(NamedTuple):
    """The conversation as the model gets it, and what is missing."""

    messages: tuple[PromptMessage, ...]
    degraded: tuple[str, ...]


class TypedRequest(Value, frozen=True, kw_only=True):
    """A question to a model: the system prompt, and the conversation that ends with the user's question."""

    system: str
    talk: tuple[Message, ...]
    session_id: str | None
    language: Language


async def ask_typed(
    deps: ChatDeps, assistant: Assistant, scope: Scope, typed: TypedRequest, kind: type[_Answer]
) -> TypedAnswer[_Answer]:
    """The model's answer as a value.

    Raises:
        NoTypedAnswer: its answers are not of that type, or the models before the offline one failed.
        ModelFailed: the model failed.
        BudgetExhausted: the tenant has spent what it may.
    """
    model = deps.models(assistant.model)
    if model.name == OFFLINE:
        return TypedAnswer(None)
    request, degraded = await _model_request(deps, assistant, scope, typed, kind)
    for _ in range(_TRIES):
        await deps.spending.check_tenant(scope)
        answers, text, done = await _collect(model, request, deps.limits.model_timeout)
        usage = UsageCounts(
            input_tokens=done.input_tokens, output_tokens=done.output_tokens, cost_nanos=done.cost_nanos
        )
        await deps.spending.add(scope, usage, assistant.name)
        if done.offline and not done.used_fallback:
            return TypedAnswer(None)
        if done.offline:
            break
        for answer in answers:
            try:
                return TypedAnswer(msgspec.convert(answer, kind, strict=False), degraded)
            except msgspec.ValidationError:
                continue
        request = _repair(request, text, counter_for(model.name).count)
    raise NoTypedAnswer(model.name, "gave no answer of the form that was asked for")


def _repair(request: ModelRequest, text: str, measure: Measure) -> ModelRequest:
    """The request with the answer that does not fit, and what is wanted instead."""
    messages = [(Role.ASSISTANT, truncate_text(text, _MESSAGE_TOKENS, measure))] if text else []
    added = [PromptMessage(role=role, parts=(text_part(words),)) for role, words in [*messages, (Role.USER, _WANTED)]]
    return replace(request, messages=(*request.messages, *added), tool_choice=REQUIRED)


async def _model_request(
    deps: ChatDeps, assistant: Assistant, scope: Scope, typed: TypedRequest, kind: type[Value]
) -> tuple[ModelRequest, tuple[str, ...]]:
    session = await deps.sessions.get(scope, typed.session_id) if typed.session_id is not None else None
    specification = _specification(kind)
    beside = (typed.system, msgspec.json.encode(specification).decode())
    talk = await _fit_talk(deps, assistant, scope, typed, beside)
    request = ModelRequest(
        messages=(PromptMessage(role=Role.SYSTEM, parts=(text_part(typed.system),)), *talk.messages),
        tools=(specification,),
        reply_tokens=assistant.prompt.max_reply_tokens,
        tool_context=ToolContext(scope=scope, session=session, question="", language=typed.language, now=deps.clock()),
    )
    return request, talk.degraded


async def _fit_talk(
    deps: ChatDeps, assistant: Assistant, scope: Scope, typed: TypedRequest, beside: Sequence[str]
) -> _Talk:
    """The conversation within the model's prompt: the question has all the room that the messages before it leave.

    Pictures, sounds and files are placeholders.
    """
    model = deps.models(assistant.model)
    measure, policy = counter_for(model.name).count, deps.prompt_for(assistant.prompt, model)
    texts = [message.text for message in with_placeholders(typed.talk, typed.language)]
    sizes = [measure(text) for text in texts]
    earlier = sum([min(size, _MESSAGE_TOKENS) for size in sizes[:-1]])
    room = policy.budget_tokens - policy.reply_tokens - sum(map(measure, beside)) - earlier
    limits = [*[_MESSAGE_TOKENS for _ in sizes[:-1]], max(room - _FRAME_TOKENS * len(sizes), _MESSAGE_TOKENS)]
    shown: list[PromptMessage] = []
    for message, text, size, limit in zip(typed.talk, texts, sizes, limits, strict=False):
        if size > limit:
            clean, _ = await deps.redaction.before_cut(scope, text, (Sink.MODEL,))
            text = truncate_text(clean, limit, measure)
        shown.append(PromptMessage(role=message.role, parts=(text_part(text),)))
    is_cut = any(size > limit for size, limit in zip(sizes, limits, strict=False))
    missing = ((ATTACHMENTS, shows_media(typed.talk)), (CUT, is_cut))
    return _Talk(tuple(shown), tuple(name for name, is_missing in missing if is_missing))


def _specification(kind: type[Value]) -> ToolSpec:
    schema = msgspec.json.schema(kind)
    # One object, spelled out: models take no references at the top.
    fields = {**schema["$defs"].pop(kind.__name__)}
    described = " ".join(fields.pop("description", "").split())
    fields.pop("title", None)
    if schema["$defs"]:
        fields["$defs"] = schema["$defs"]
    return ToolSpec(
        name=_TOOL, description=f"Give your answer by calling this tool once. {described}", parameters=fields
    )


async def _collect(model: ChatModel, request: ModelRequest, timeout: timedelta) -> tuple[list[Json], str, ModelDone]:
    """What may be the answer: the arguments of calls, else a text that is JSON; and the text as it came."""
    answers: list[Json] = []
    text: list[str] = []
    done: ModelDone | None = None
    try:
        async with (
            asyncio.timeout(time_limit(model, timeout)),
            aclosing(model.stream_answer(request, ())) as events,  # type: ignore[type-var]
        ):
            async for event in events:
                match event:
                    case TextDelta():
                        text.append(event.text)
                    case ToolCallRequested():
                        answers.append(event.call.arguments)
                    case ModelDone():
                        done = event
    except TimeoutError:
        raise ModelTimeout(model.name) from None
    if done is None:
        raise ModelFailed(model.name, "broke off")
    return answers or _json_of("".join(text)), "".join(text), done


def _json_of(text: str) -> list[Json]:
    """Some models write the call instead of making it, or its arguments alone, or fence them as code."""
    written = text[text.find("{") : text.rfind("}") + 1]
    if calls := read_written_calls(written, (_TOOL,)):
        return [call.arguments for call in calls]
    try:
        return [msgspec.json.decode(written)]
    except msgspec.DecodeError:
        return []
