"""The wiring of agents: what they see, and how those that are no functions are called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from tenuto.context import agent_prompt, agent_question
from tenuto.errors import AssistantNotFound
from tenuto.model.agent_run import AgentKind
from tenuto.model.policy import RunPolicy
from tenuto.model.values import Json
from tenuto.ports import Store
from tenuto.sessions.profiles import Profiles
from tenuto.task_errors import AgentNotFound
from tenuto.tasks import Tasks
from tenuto.tasks.agent_contexts import AgentContexts
from tenuto.tasks.agents import ASSISTANT, AgentCaller, AgentContext, AssistantFinder
from tenuto.tasks.runs import RunRecorder

if TYPE_CHECKING:
    from tenuto.chat import Chat
    from tenuto.chat.request import EventSink

OpenChat: TypeAlias = Callable[[], Awaitable["Chat"]]


def agent_contexts(tasks: Tasks, store: Store) -> AgentContexts:
    """What agents see of tasks."""
    return AgentContexts(
        tasks=tasks,
        sessions=store.sessions,
        profile_of=Profiles(store.state).read,
        write_prompt=agent_prompt,
        history_messages=RunPolicy().history_messages,
    )


def agent_caller(open_chat: OpenChat) -> AgentCaller:
    """Calls agents of Pydantic AI, and assistants by their names."""

    async def call(agent: Any, ctx: AgentContext) -> Json:
        if isinstance(agent, str):
            return await _ask_assistant(await open_chat(), agent, ctx)
        return await _run_pydantic_agent(agent, ctx)

    return call


def assistant_finder(open_chat: OpenChat) -> AssistantFinder:
    """Looks assistants up in the chat, which is opened when the first plan names one."""

    async def is_assistant(name: str) -> bool:
        try:
            (await open_chat()).assistants.find(name)
        except AssistantNotFound:
            return False
        return True

    return is_assistant


async def _run_pydantic_agent(agent: Any, ctx: AgentContext) -> Json:
    # Loaded by the program that made the agent.
    from tenuto.llm.pydantic_ai_agent import PydanticAgentRun

    ctx.run.kind = AgentKind.PYDANTIC_AI
    run, instructions = PydanticAgentRun(agent), await ctx.prompt(ctx.agent)
    try:
        return await run.run(ctx.goal, instructions=instructions, history=ctx.history, deps=ctx)
    finally:
        requests, read, written = run.usage
        ctx.run.add_usage(input_tokens=read, output_tokens=written, requests=requests, cost_nanos=run.cost_nanos)
        for call, ok, seconds in run.tool_calls():
            ctx.run.add_tool_call(call.name, ok=ok, seconds=seconds, arguments=call.arguments)
        for role, text in run.messages():
            ctx.run.add_message(role, text)


async def _ask_assistant(chat: Chat, name: str, ctx: AgentContext) -> str:
    """The answer of an assistant to the goal, after the conversation; nothing of it is stored in a session."""
    from tenuto.chat import ChatRequest

    ctx.run.kind = AgentKind.ASSISTANT
    question = agent_question(ctx.goal, await ctx.board.others())
    request = ChatRequest(text=question, assistant=name, profile=ctx.profile)
    ctx.run.add_message("user", question)
    try:
        reply = await chat.answer_once(ctx.scope, request, ctx.history, _tool_sink(ctx.run))
    except AssistantNotFound:
        raise AgentNotFound(f"{ASSISTANT}{name}", ctx.step) from None
    ctx.run.add_usage(input_tokens=reply.input_tokens, output_tokens=reply.output_tokens, cost_nanos=reply.cost_nanos)
    ctx.run.add_message("assistant", reply.text)
    return reply.text


def _tool_sink(run: RunRecorder) -> EventSink:
    """Reports the tools that an assistant runs."""
    from tenuto.chat.request import ChatEvent, EventSink, ToolFinished

    class ToolSink(EventSink):
        async def emit_event(self, event: ChatEvent) -> None:
            if isinstance(event, ToolFinished):
                run.add_tool_call(event.name, ok=event.error is None, seconds=event.milliseconds / 1000)

    return ToolSink()
