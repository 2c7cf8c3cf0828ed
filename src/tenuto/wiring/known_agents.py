"""The agents that a process knows: those of the legal assistant, with the model of the chat, and those of a folder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from tenuto.assistants.legal import NAME, TASK_TYPE, LegalAgents, Library, Prompt, StepContext
from tenuto.chat import Chat
from tenuto.chat.typed_answer import TypedRequest
from tenuto.context import agent_system, counter_for, language_of
from tenuto.context.layout import STYLE_KEY
from tenuto.model.values import Value
from tenuto.settings import Settings
from tenuto.tasks.agents import AgentFunction, Agents, load_agents
from tenuto.wiring.agents import agent_caller, assistant_finder

_Answer = TypeVar("_Answer", bound=Value)


def known_agents(settings: Settings, open_chat: Callable[[], Awaitable[Chat]]) -> Agents:
    """The agents of the shipped assistants and of the settings' folder; a program may register others.

    Raises:
        InvalidSetting: a file of the folder cannot be loaded.
    """
    return Agents(
        from_files=load_agents(Path(settings.agents)) if settings.agents is not None else {},
        built_in=_legal_agents(open_chat, settings.policies().tasks.owner_of(TASK_TYPE)),
        call=agent_caller(open_chat),
        is_assistant=assistant_finder(open_chat),
    )


def _legal_agents(open_chat: Callable[[], Awaitable[Chat]], decision_agent: str) -> dict[str, AgentFunction]:
    """The agents of the legal assistant by name. The chat is opened when the first of them works."""

    async def think(context: StepContext, prompt: Prompt, kind: type[_Answer], /) -> _Answer | None:
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
        asked = TypedRequest(
            system=f"{system}\n{prompt.task}", talk=prompt.talk, session_id=context.session_id, language=prompt.language
        )
        return await chat.ask_typed(NAME, context.scope, asked, kind)

    agents = LegalAgents(library=Library.shipped(), think=think, language_of=language_of)
    return agents.functions(decision_agent)
