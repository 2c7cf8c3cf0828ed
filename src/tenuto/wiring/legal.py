"""The wiring of the legal assistant's agents: their texts, and the model of the chat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenuto.assistants.legal import NAME, LegalAgents, Library, Prompt, StepContext
from tenuto.chat import Chat
from tenuto.chat.typed_answer import TypedRequest
from tenuto.context import agent_system, counter_for, language_of
from tenuto.context.layout import STYLE_KEY
from tenuto.model.values import Value
from tenuto.tasks.agents import AgentFunction

_Answer = TypeVar("_Answer", bound=Value)


def legal_agents(chat: Callable[[], Awaitable[Chat]], decision_agent: str) -> dict[str, AgentFunction]:
    """The agents of the legal assistant by name. The chat is opened when the first of them works."""

    async def think(context: StepContext, prompt: Prompt, kind: type[_Answer], /) -> _Answer | None:
        talking = await chat()
        counter = counter_for(talking.model_of(talking.assistants.find(NAME)).name)
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
        return await talking.ask_typed(NAME, context.scope, asked, kind)

    agents = LegalAgents(library=Library.shipped(), think=think, language_of=language_of)
    return agents.functions(decision_agent)
