"""The legal assistant: each turn is a task, which the engine runs and goes on with after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Final

import msgspec

from tenuto.assistants.assistant import Assistant, in_language
from tenuto.assistants.legal import wording
from tenuto.assistants.legal.agents import ASKED, FIELD, NAME, Decision
from tenuto.assistants.legal.library import Library
from tenuto.assistants.legal.plan import TASK_TYPE, TIMEOUT, legal_plan
from tenuto.errors import EngineUnavailable, InvalidSetting, TaskFailed
from tenuto.model.generation import ToolContext, ToolOutput
from tenuto.model.plan import StepStatus, TaskProgress
from tenuto.model.policy import Preset, preset
from tenuto.model.prompt import Language
from tenuto.model.task import NewTask, TaskStatus
from tenuto.model.values import JsonObject
from tenuto.ports import TaskEngine

# Characters of the question that are the task's goal; the conversation has the rest.
_GOAL: Final = 8000
# As a turn says it whose first model did not answer.
FALLBACK: Final = "fallback_model"
_FIRST_LOOK: Final = 0.02
_LOOK_EVERY: Final = 0.2


def legal_assistant(
    engine: Callable[[], Awaitable[TaskEngine]], *, decision_agent: str, policies: Preset | None = None
) -> Assistant:
    """`legal`, under the `multi_agent` preset by default. The engine is opened with the first turn."""
    return Assistant(
        name=NAME,
        titles={Language.ENGLISH: "Legal help desk", Language.CHINESE: "法律咨询"},
        description={
            Language.ENGLISH: "A router and experts of labour and contract law. Sample texts, no legal advice.",
            Language.CHINESE: "路由与劳动法、合同法专家协作答复。示例文本，不构成法律意见。",
        },
        policies=policies or preset("multi_agent"),
        respond=_Consultation(engine, decision_agent).answer,
    )


class _Consultation:
    """One question as a task: submitted once for each turn, however often the turn is tried."""

    def __init__(self, engine: Callable[[], Awaitable[TaskEngine]], decision_agent: str) -> None:
        self._engine = engine
        self._plan = legal_plan(decision_agent)

    @cached_property
    def _library(self) -> Library:
        return Library.shipped()

    async def answer(self, turn: ToolContext) -> ToolOutput:
        """The decision of the task.

        Raises:
            TaskFailed: a required agent failed. The same turn, tried again, goes on at the failed step.
            EngineUnavailable: the installation lacks something for tasks, such as the extra or the agents' folder.
        """
        try:
            engine = await self._engine()
        except InvalidSetting as unfit:
            raise EngineUnavailable(str(unfit)) from unfit
        session_id = turn.session.id if turn.session is not None else None
        goal = turn.question[:_GOAL]
        new = NewTask(type=TASK_TYPE, goal=goal, session_id=session_id, language=turn.language)
        task = await engine.submit(turn.scope, new, self._plan, idempotency_key=turn.turn_key)
        if task.status is TaskStatus.FAILED:
            await engine.resume(turn.scope, task.id)
        return self._to_output(await _wait_for_end(engine, turn, task.id))

    def _to_output(self, progress: TaskProgress) -> ToolOutput:
        task = progress.task
        if task.status is TaskStatus.FAILED:
            error = task.error
            raise TaskFailed(task.id, *((error.step, error.code) if error is not None else ()))
        decision = msgspec.convert(progress.steps[-1].output, Decision)
        language = decision.language
        data: JsonObject = {
            "task_id": task.id,
            "sources": [
                {"id": text.id, "title": in_language(text.title, language)}
                for text in self._library.with_ids(decision.sources)
            ],
            "experts": [run.agent for run in progress.steps[1:-1] if run.status is StepStatus.COMPLETED],
            "failed": [run.agent for run in progress.steps if run.status is StepStatus.FAILED],
            "asked": decision.asked,
        }
        return ToolOutput(
            output=data,
            data=data,
            state={ASKED: decision.asked, FIELD: decision.field},
            final_answer=f"{decision.text}\n\n{wording.FOOTER[language]}",
            degraded=(FALLBACK,) if decision.quoted else (),
            intent=decision.field,
        )


async def _wait_for_end(engine: TaskEngine, turn: ToolContext, task_id: str) -> TaskProgress:
    pause = _FIRST_LOOK
    try:
        # No worker may be there that begins the task, so its own limit of time is not enough.
        async with asyncio.timeout(2 * TIMEOUT.total_seconds()):
            while not (progress := await engine.status(turn.scope, task_id)).task.is_finished:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LOOK_EVERY)
    except TimeoutError:
        raise TaskFailed(task_id) from None
    return progress
