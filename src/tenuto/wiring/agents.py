"""The agents that a process knows, and how those that are no functions are called.

They are the shipped ones of the legal assistant, with the model of the chat, and those of a folder.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tenuto.assistants.legal import NAME, TASK_TYPE, AgentPrompt, LegalAgents, Library, StepContext, note_degraded
from tenuto.chat import Chat, ChatEvent, ChatRequest, ToolFinished
from tenuto.chat.request import EventSink
from tenuto.chat.typed_answer import TypedRequest
from tenuto.context import agent_question, agent_system, counter_for, language_of
from tenuto.context.layout import STYLE_KEY
from tenuto.errors import AssistantNotFound
from tenuto.lazy_imports import lazy_module
from tenuto.model.agent_run import AgentKind
from tenuto.model.media import with_placeholders
from tenuto.model.values import Json, Value
from tenuto.settings import Settings
from tenuto.task_errors import AgentNotFound
from tenuto.tasks.agents import (
    ASSISTANT,
    AgentCaller,
    AgentContext,
    AgentFunction,
    Agents,
    AssistantFinder,
    load_agents,
)
from tenuto.tasks.runs import RunRecorder

if TYPE_CHECKING:
    from tenuto.llm import pydantic_ai_agent
else:
    # Loaded by the program that made an agent of Pydantic AI.
    pydantic_ai_agent = lazy_module("tenuto.llm.pydantic_ai_agent")

_Answer = TypeVar("_Answer", bound=Value)
_OpenChat: TypeAlias = Callable[[], Awaitable[Chat]]


def load_known_agents(settings: Settings, open_chat: _OpenChat) -> Agents:
    """The agents of the shipped assistants and of the settings' folder; a program may register others.

    Raises:
        InvalidSetting: a file of the folder cannot be loaded.
    """
    return Agents(
        from_files=load_agents(Path(settings.agents)) if settings.agents is not None else {},
        built_in=_legal_agents(open_chat, settings.policies().tasks.owner_of(TASK_TYPE)),
        call=agent_caller(open_chat),
        is_assistant=_assistant_finder(open_chat),
    )


def _legal_agents(open_chat: _OpenChat, decision_agent: str) -> dict[str, AgentFunction]:
    """The agents of the legal assistant by name. The chat is opened when the first of them works."""

    async def think(context: StepContext, prompt: AgentPrompt, kind: type[_Answer], /) -> _Answer | None:
        chat = await open_chat()
        counter = counter_for(chat.model_of(chat.assistants.find(NAME)).name)
        style = context.profile.get(STYLE_KEY)
        system = agent_system(
            prompt.role,
            context.goal,
            await context.board.values(),
            counter,
            style=style if isinstance(style, str) else None,
            language=prompt.language,
        )
        request = TypedRequest(
            system=f"{system}\n{prompt.task}", talk=prompt.talk, session_id=context.session_id, language=prompt.language
        )
        typed = await chat.ask_typed(NAME, context.scope, request, kind)
        if typed.degraded:
            await note_degraded(context, typed.degraded)
        return typed.value

    agents = LegalAgents(library=Library.shipped(), think=think, language_of=language_of)
    return agents.functions(decision_agent)


def agent_caller(open_chat: _OpenChat) -> AgentCaller:
    """Calls agents of Pydantic AI, and assistants by their names."""

    async def call(agent: Any, ctx: AgentContext) -> Json:
        if isinstance(agent, str):
            return await _ask_assistant(await open_chat(), agent, ctx)
        return await _run_pydantic_agent(agent, ctx)

    return call


def _assistant_finder(open_chat: _OpenChat) -> AssistantFinder:
    """Looks assistants up in the chat, which is opened when the first plan names one."""

    async def is_assistant(name: str) -> bool:
        try:
            (await open_chat()).assistants.find(name)
        except AssistantNotFound:
            return False
        return True

    return is_assistant


async def _run_pydantic_agent(agent: Any, ctx: AgentContext) -> Json:
    ctx.run.kind = AgentKind.PYDANTIC_AI
    run, instructions = pydantic_ai_agent.PydanticAgentRun(agent), await ctx.prompt(ctx.agent)
    try:
        # Which pictures the agent's model takes is not known here: it gets words in their places.
        history = with_placeholders(ctx.history, language_of(ctx.goal))
        return await run.run(ctx.goal, instructions=instructions, history=history, deps=ctx)
    finally:
        requests, read, written = run.usage
        ctx.run.add_usage(input_tokens=read, output_tokens=written, requests=requests, cost_nanos=run.cost_nanos)
        for call, ok, seconds in run.tool_calls():
            ctx.run.add_tool_call(call.name, ok=ok, seconds=seconds, arguments=call.arguments)
        for role, text in run.messages():
            ctx.run.add_message(role, text)


async def _ask_assistant(chat: Chat, name: str, ctx: AgentContext) -> str:
    """The answer of an assistant to the goal, after the conversation; nothing of it is stored in a session."""
    ctx.run.kind = AgentKind.ASSISTANT
    question = agent_question(ctx.goal, await ctx.board.others())
    request = ChatRequest(text=question, assistant=name, profile=ctx.profile)
    ctx.run.add_message("user", question)
    try:
        reply = await chat.answer_once(ctx.scope, request, ctx.history, _ToolSink(ctx.run))
    except AssistantNotFound:
        raise AgentNotFound(f"{ASSISTANT}{name}", ctx.step) from None
    ctx.run.add_usage(input_tokens=reply.input_tokens, output_tokens=reply.output_tokens, cost_nanos=reply.cost_nanos)
    ctx.run.add_message("assistant", reply.text)
    return reply.text


class _ToolSink(EventSink):
    """Reports the tools that an assistant runs."""

    def __init__(self, run: RunRecorder) -> None:
        self._run = run

    async def emit_event(self, event: ChatEvent) -> None:
        """Add the call of a tool that ended."""
        if isinstance(event, ToolFinished):
            self._run.add_tool_call(event.name, ok=event.error is None, seconds=event.milliseconds / 1000)
