"""One question, one answer: what titles, summaries and notes ask a model for."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from tenuto.errors import FailureReason, ModelFailed, ModelTimeout
from tenuto.model.generation import AUTO, ModelDone, ModelRequest, TextDelta, ToolCallRequested, answer_tool
from tenuto.model.message import Role, text_part
from tenuto.model.parameters import AnswerSchema, FinishReason
from tenuto.model.prompt import PromptMessage
from tenuto.ports import ChatModel, facts_of, time_limit


async def complete(
    model: ChatModel, system: str, text: str, max_tokens: int, timeout: timedelta, schema: AnswerSchema | None = None
) -> tuple[str, ModelDone]:
    """The model's answer to a text under a system prompt, whole, and what it cost.

    With a `schema` the answer is demanded in that form, by the provider's own means or else as the arguments of a tool.
    It is not checked here, and a model may still write something else.

    Raises:
        ModelTimeout: it took longer than `timeout`.
        ModelFailed: it gave no answer or an empty one, or the offline model replaced it.
    """
    messages = tuple(
        PromptMessage(role=role, parts=(text_part(content),))
        for role, content in ((Role.SYSTEM, system), (Role.USER, text))
        if content
    )
    tool = None if schema is None or facts_of(model).schemas else answer_tool(schema, ())
    request = ModelRequest(
        messages=messages,
        reply_tokens=max_tokens,
        background=True,
        schema=schema if tool is None else None,
        tools=(tool,) if tool is not None else (),
        tool_choice=tool.name if tool is not None else AUTO,
        answer_tool=tool.name if tool is not None else None,
    )
    said: list[str] = []
    called: list[str] = []
    ended: ModelDone | None = None
    try:
        async with asyncio.timeout(time_limit(model, timeout)):
            async for event in model.stream_answer(request, ()):
                if isinstance(event, TextDelta):
                    said.append(event.text)
                elif isinstance(event, ToolCallRequested):
                    called.append(event.call.arguments_text)
                elif isinstance(event, ModelDone):
                    ended = event
    except TimeoutError:
        raise ModelTimeout(model.name) from None
    answer = called[0] if called and tool is not None else "".join(said).strip()
    if ended is not None and ended.finish is FinishReason.CONTENT_FILTER:
        raise ModelFailed(model.name, "declined to answer (content filter)", FailureReason.CONTENT_FILTER)
    if ended is None or not answer or ended.finish is FinishReason.REFUSAL:
        raise ModelFailed(model.name, "gave an empty answer")
    if ended.offline:
        # At the end of a chain it would describe itself; the caller has a better fallback.
        raise ModelFailed(model.name, "was replaced by the offline model, which writes no texts")
    return answer, ended
