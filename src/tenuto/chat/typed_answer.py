"""One typed answer of an assistant's model, for an agent that works on a step of a task.

The type is offered to the model as a tool whose arguments are the answer. A model that answers in prose is asked once
more. The answer passes the privacy policy as any
other, and its cost is the tenant's.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import timedelta
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from tenuto.assistants import Assistant
from tenuto.chat.deps import ChatDeps
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
from tenuto.model.prompt import Language, PromptMessage
from tenuto.model.values import Json, Value
from tenuto.ports import ChatModel, time_limit

_TOOL: Final = "answer"
_MESSAGE_TOKENS: Final = 2000
# The first answer and one repair.
_TRIES: Final = 2
_WANTED: Final = f"Call the tool `{_TOOL}` with your answer as its arguments. Write nothing else."
_Answer = TypeVar("_Answer", bound=Value)


class TypedRequest(Value, frozen=True, kw_only=True):
    """A question to a model: the system prompt, and the conversation that ends with the user's question."""

    system: str
    talk: tuple[Message, ...]
    session_id: str | None
    language: Language


async def ask_typed(
    deps: ChatDeps, assistant: Assistant, scope: Scope, typed: TypedRequest, kind: type[_Answer]
) -> _Answer | None:
    """The model's answer as a value; `None` where only the offline model answers.

    Raises:
        NoTypedAnswer: its answers are not of that type, or the models before the offline one failed.
        ModelFailed: the model failed.
        BudgetExhausted: the tenant has spent what it may.
    """
    model = deps.models(assistant.model)
    if model.name == OFFLINE:
        return None
    request = await _model_request(deps, assistant, scope, typed, kind)
    for _ in range(_TRIES):
        await deps.spending.check_tenant(scope)
        answers, text, done = await _collect(model, request, deps.limits.model_timeout)
        usage = UsageCounts(
            input_tokens=done.input_tokens, output_tokens=done.output_tokens, cost_nanos=done.cost_nanos
        )
        await deps.spending.add(scope, usage, assistant.name)
        if done.offline and not done.used_fallback:
            return None
        if done.offline:
            break
        for answer in answers:
            try:
                return msgspec.convert(answer, kind, strict=False)
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
) -> ModelRequest:
    measure = counter_for(deps.models(assistant.model).name).count
    session = await deps.sessions.get(scope, typed.session_id) if typed.session_id is not None else None
    talk = [(message.role, truncate_text(message.text, _MESSAGE_TOKENS, measure)) for message in typed.talk]
    return ModelRequest(
        messages=tuple(
            PromptMessage(role=role, parts=(text_part(text),)) for role, text in [(Role.SYSTEM, typed.system), *talk]
        ),
        tools=(_specification(kind),),
        reply_tokens=assistant.prompt.max_reply_tokens,
        tool_context=ToolContext(scope=scope, session=session, question="", language=typed.language, now=deps.clock()),
    )


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
