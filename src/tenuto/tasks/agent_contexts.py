"""What an agent sees of a task: for a step that runs here, and in one piece for agents in other processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tenuto.errors import SessionNotFound
from tenuto.model import Message, Page, Scope
from tenuto.model.agent_run import AgentSnapshot
from tenuto.model.session import PROFILE
from tenuto.model.task import Task
from tenuto.model.values import JsonObject, check_id
from tenuto.ports import SessionStore
from tenuto.tasks.agents import PromptWriter
from tenuto.tasks.runs import messages_of
from tenuto.tasks.service import Tasks

ProfileReader: TypeAlias = Callable[[Scope], Awaitable[JsonObject]]


class AgentContexts:
    """Reads what agents see. Nothing private of one agent is shown to another."""

    def __init__(
        self,
        *,
        tasks: Tasks,
        sessions: SessionStore,
        profile_of: ProfileReader,
        write_prompt: PromptWriter,
        history_messages: int,
    ) -> None:
        self._tasks = tasks
        self._sessions = sessions
        self._profile_of = profile_of
        self._history_messages = history_messages
        self.write_prompt = write_prompt

    async def conversation(self, scope: Scope, task: Task) -> tuple[tuple[Message, ...], JsonObject]:
        """The newest messages of a task's session, and the profile of its user: the stored one, else the session's."""
        # Members of a chat share its session, so a profile there is of the member that began it.
        alone = scope.chat is None
        profile = await self._profile_of(scope) if alone else {}
        if task.session_id is None:
            return (), profile
        newest = Page(limit=self._history_messages, touch=False)
        try:
            page = await self._sessions.messages(scope, task.session_id, newest)
        except SessionNotFound:
            return (), profile
        session_profile = page.session.context.get(PROFILE) if alone and not profile else None
        return page.messages, session_profile if isinstance(session_profile, dict) else profile

    async def snapshot(self, scope: Scope, task_id: str, agent: str, *, role: str | None = None) -> AgentSnapshot:
        """All that an agent sees of a task; the prompt is written for its role, by default its name.

        Raises:
            TaskNotFound: absent, foreign, expired and deleted alike.
        """
        check_id(agent, "the agent's name")
        task = await self._tasks.get(scope, task_id)
        (history, profile), board, notes, runs = await asyncio.gather(
            self.conversation(scope, task),
            self._tasks.board(scope, task_id).view(),
            self._tasks.notes(scope, task_id, agent).list(),
            self._tasks.runs(scope, task_id, agent=agent),
        )
        values = {entry.key: entry.value for entry in board.entries if entry.writer != agent}
        return AgentSnapshot(
            task_id=task.id,
            agent=agent,
            goal=task.goal,
            session_id=task.session_id,
            history=history,
            profile=profile,
            board=board,
            notes=notes,
            messages=messages_of(runs, agent),
            prompt=self.write_prompt(role or agent, task.goal, values, profile),
        )
