"""The legal assistant: each turn is a task, which the engine runs and goes on with after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from functools import cached_property
from typing import Final, Literal

import msgspec

from tenuto.assistants.assistant import Assistant, Missing, in_language
from tenuto.assistants.legal import wording
from tenuto.assistants.legal.agents import ASKED, FIELD, NAME, Decision
from tenuto.assistants.legal.library import Library
from tenuto.assistants.legal.plan import PATIENT_TIMEOUT, TASK_TYPE, TIMEOUT, legal_plan
from tenuto.errors import InvalidSetting
from tenuto.model.generation import StepChanged, ToolContext, ToolOutput
from tenuto.model.plan import StepRun, StepStatus, TaskProgress
from tenuto.model.policy import Preset, preset
from tenuto.model.prompt import Language
from tenuto.model.task import NewTask, TaskStatus
from tenuto.model.values import JsonObject
from tenuto.ports import TaskEngine
from tenuto.task_errors import EngineUnavailable, TaskFailed

# Characters of the question that are the task's goal; the conversation has the rest.
_GOAL: Final = 8000
# As a turn says it whose first model did not answer.
FALLBACK: Final = "fallback_model"
_FIRST_LOOK: Final = 0.02
_LOOK_EVERY: Final = 0.2


def legal_assistant(
    engine: Callable[[], Awaitable[TaskEngine]],
    *,
    decision_agent: str,
    policies: Preset | None = None,
    missing: Missing | None = None,
    patient: bool = False,
) -> Assistant:
    """`legal`, under the `multi_agent` preset by default. The engine is opened with the first turn.

    With a `patient` one, agents may take the time of a slow model.
    """
    return Assistant(
        name=NAME,
        titles={Language.ENGLISH: "Legal help desk", Language.CHINESE: "法律咨询"},
        description={
            Language.ENGLISH: "A router and experts of labour and contract law. Sample texts, no legal advice.",
            Language.CHINESE: "路由与劳动法、合同法专家协作答复。示例文本，不构成法律意见。",
        },
        policies=policies or preset("multi_agent"),
        respond=_Consultation(engine, decision_agent, patient).answer,
        missing=missing,
    )


class _Consultation:
    """One question as a task: submitted once for each turn, however often the turn is tried."""

    def __init__(self, engine: Callable[[], Awaitable[TaskEngine]], decision_agent: str, patient: bool) -> None:
        self._engine = engine
        self._plan = legal_plan(decision_agent, patient=patient)
        self._timeout_seconds = 2 * (PATIENT_TIMEOUT if patient else TIMEOUT).total_seconds()

    @cached_property
    def _library(self) -> Library:
        return Library.shipped()

    async def answer(self, turn: ToolContext) -> AsyncGenerator[StepChanged | ToolOutput, None]:
        """The steps of the task as they begin and end, then its decision.

        Raises:
            TaskFailed: a required agent failed. The same turn, tried again, goes on at the failed step.
            EngineUnavailable: the installation lacks something for tasks, such as the extra or the agents' folder.
        """
        try:
            engine = await self._engine()
        except InvalidSetting as error:
            raise EngineUnavailable(str(error)) from error
        session_id = turn.session.id if turn.session is not None else None
        goal = turn.question[:_GOAL]
        new = NewTask(type=TASK_TYPE, goal=goal, session_id=session_id, language=turn.language)
        task = await engine.submit(turn.scope, new, self._plan, idempotency_key=turn.turn_key)
        if task.status is TaskStatus.FAILED:
            await engine.resume(turn.scope, task.id)
        async with aclosing(_follow(engine, turn, task.id, self._timeout_seconds)) as events:
            async for event in events:
                yield event if isinstance(event, StepChanged) else self._to_output(event)

    def _to_output(self, progress: TaskProgress) -> ToolOutput:
        task = progress.task
        if task.status is TaskStatus.FAILED:
            error = task.error
            if error is None:
                raise TaskFailed(task.id)
            why = error.code if error.reason is None else error.message
            raise TaskFailed(task.id, error.step, why, error.reason)
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
            degraded=(*((FALLBACK,) if decision.quoted else ()), *decision.degraded),
            intent=decision.field,
        )


async def _follow(
    engine: TaskEngine, turn: ToolContext, task_id: str, seconds: float
) -> AsyncGenerator[StepChanged | TaskProgress, None]:
    """The steps of a task as they begin and end, then the task that has ended."""
    # No worker may be there that begins the task, so its own limit of time is not enough.
    deadline = asyncio.get_running_loop().time() + seconds
    shown: dict[str, StepStatus] = {}
    pause = 0.0
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.sleep(pause)
                progress = await engine.status(turn.scope, task_id)
        except TimeoutError:
            raise TaskFailed(task_id) from None
        for run in progress.steps:
            for change in _changes(run, shown.get(run.step)):
                yield change
            shown[run.step] = run.status
        if progress.task.is_finished:
            yield progress
            return
        pause = min(max(2 * pause, _FIRST_LOOK), _LOOK_EVERY)


def _changes(run: StepRun, before: StepStatus | None) -> Iterator[StepChanged]:
    """What became of a step since it was `before`; a short one may have begun and ended."""
    titles = wording.STEPS[run.step]
    ended = run.status in (StepStatus.COMPLETED, StepStatus.FAILED)
    if run.status is before or not (ended or run.status is StepStatus.RUNNING):
        return
    if before is not StepStatus.RUNNING:
        yield StepChanged(id=run.step, state="started", titles=titles)
    if ended:
        taken = (run.ended_at - run.started_at).total_seconds() * 1000 if run.started_at and run.ended_at else None
        error = run.error.code if run.error is not None else None
        state: Literal["done", "failed"] = "done" if run.status is StepStatus.COMPLETED else "failed"
        yield StepChanged(id=run.step, state=state, titles=titles, milliseconds=taken, error=error)
