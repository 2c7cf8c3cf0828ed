"""Runs of agents: usage and tool calls of each step, and what only its agent may read.

How far a run is stands in the record of its step; here is what the step does not know, in two records. The private one
is among the notes of the task, so it is removed with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID, uuid5

import msgspec
from msgspec.structs import replace

from tenuto.model.agent_run import AgentKind, AgentRun, RunMessage, RunToolCall
from tenuto.model.plan import StepRun, TaskProgress
from tenuto.model.policy import TaskPolicy
from tenuto.model.values import Json, check_int, check_json, check_text, make_storable
from tenuto.ports import Clock
from tenuto.task_errors import TaskFinished
from tenuto.tasks._record_store import VersionedRecord
from tenuto.tasks._records import NoteRecord, RunRecord, micros, unwrap_value, wrap_value
from tenuto.tasks._workspace import TaskWorkspace

# No agent's notes begin so: theirs begin with a digest.
_PRIVATE: Final = "run:"
_IDS: Final = UUID("5a6f0a3c-6f0e-4d0c-9a43-6c1f3f1e5b52")
_MOST_CALLS: Final = 100
_MOST_COUNTED: Final = 2**53
_NEW: Final = RunRecord()


class _Private(msgspec.Struct):
    """What only the agent may read, as it is stored."""

    calls: list[RunToolCall] = []
    messages: list[RunMessage] = []


class RunRecorder:
    """Collects what an agent reports of its work on a step; it is stored when the call of the agent ends."""

    def __init__(self) -> None:
        self.kind = AgentKind.FUNCTION
        self.requests = self.input_tokens = self.output_tokens = self.cost_nanos = 0
        self.tool_calls: list[RunToolCall] = []
        self.messages: list[RunMessage] = []

    def add_usage(
        self, *, input_tokens: int = 0, output_tokens: int = 0, cost_nanos: int = 0, requests: int = 1
    ) -> None:
        """Count requests to a model; the cost is in billionths of a dollar.

        Raises:
            Invalid: a number is negative.
        """
        for count in (input_tokens, output_tokens, cost_nanos, requests):
            check_int(count, 0, _MOST_COUNTED, "usage")
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        self.cost_nanos += cost_nanos
        self.requests += requests

    def add_tool_call(self, name: str, *, ok: bool = True, seconds: float = 0.0, arguments: Json = None) -> None:
        """Report a call of a tool; its arguments are for this agent alone."""
        check_json(arguments, "the arguments")
        check_text(name, "the tool's name")
        self.tool_calls.append(RunToolCall(name=name, ok=ok, seconds=round(seconds, 3), arguments=arguments))

    def add_message(self, role: str, text: str) -> None:
        """Report a message between this agent and its model; it is for this agent alone."""
        self.messages.append(RunMessage(role=check_text(role, "the role"), text=make_storable(text)))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was reported."""
        counters = self.requests or self.input_tokens or self.output_tokens or self.cost_nanos
        return self.kind is AgentKind.FUNCTION and not (counters or self.tool_calls or self.messages)


class AgentRuns:
    """The runs of the agents of one task."""

    def __init__(self, *, workspace: TaskWorkspace, policy: TaskPolicy, clock: Clock) -> None:
        self._workspace = workspace
        self._policy = policy
        self._clock = clock

    async def list(self, progress: TaskProgress, agent: str | None = None) -> tuple[AgentRun, ...]:
        """The runs that have begun, in the order of the plan, with the private parts of this agent's own."""
        started_runs = [run for run in progress.steps if run.agent is not None and run.attempts]
        records = {row.key: row.record async for row in self._workspace.runs.every()} if started_runs else {}
        return tuple([await self._to_run(progress, run, records.get(run.step, _NEW), agent) for run in started_runs])

    async def add(self, step: str, recorder: RunRecorder) -> None:
        """Add what an agent reported to the record of its step.

        Raises:
            TaskNotFound: there is no such task.
            TaskFinished: it has ended.
        """
        await self._workspace.open()
        await self._workspace.runs.update(step, lambda row: _add(_NEW if row is None else row.record, recorder))
        if recorder.tool_calls or recorder.messages:
            expires = self._clock() + self._policy.agent_retention
            await self._workspace.schedule_sweep(expires)
            await self._workspace.notes.update(
                _PRIVATE + step, lambda row: self._add_private(row, recorder, micros(expires))
            )
        try:
            await self._workspace.recheck_open()
        except TaskFinished:
            await self._workspace.notes.clear()
            raise

    def _add_private(self, row: VersionedRecord[NoteRecord] | None, recorder: RunRecorder, expires: int) -> NoteRecord:
        before, private = NoteRecord() if row is None else row.record, self._read_private(row)
        both = _Private([*private.calls, *recorder.tool_calls][-_MOST_CALLS:], [*private.messages, *recorder.messages])
        self._fit(both)
        value = wrap_value("run", msgspec.to_builtins(both))
        return replace(
            before, value=value, written_at=micros(self._clock()), expires_at=expires, version=before.version + 1
        )

    def _fit(self, both: _Private) -> None:
        """Drop the oldest messages, then the oldest arguments, above the size limit of a value."""
        while (both.messages or both.calls) and len(msgspec.json.encode(both)) > self._policy.max_board_value_bytes:
            oldest = both.messages or both.calls
            del oldest[: max(len(oldest) // 4, 1)]

    def _read_private(self, row: VersionedRecord[NoteRecord] | None) -> _Private:
        if row is None or not row.record.value or row.record.expires_at <= micros(self._clock()):
            return _Private()
        try:
            return msgspec.convert(unwrap_value(row.record.value), _Private)
        except msgspec.ValidationError:
            return _Private()  # The privacy policy has replaced a whole value.

    async def _to_run(self, progress: TaskProgress, run: StepRun, record: RunRecord, agent: str | None) -> AgentRun:
        assert run.agent is not None
        own, calls = _Private(), [_to_call(call) for call in record.calls]
        if run.agent == agent and not progress.task.is_finished:
            own = self._read_private(await self._workspace.notes.read_record(_PRIVATE + run.step))
            calls[max(len(calls) - len(own.calls), 0) :] = own.calls
        return AgentRun(
            id=str(uuid5(_IDS, f"{progress.task.id}:{run.step}")),
            task_id=progress.task.id,
            step=run.step,
            agent=run.agent,
            kind=record.kind,
            status=run.status,
            attempts=run.attempts,
            error=run.error,
            output=run.output if run.agent == agent else None,
            requests=record.requests,
            input_tokens=record.input_tokens,
            output_tokens=record.output_tokens,
            cost_nanos=record.cost_nanos,
            tool_calls=tuple(calls),
            messages=tuple(own.messages),
            started_at=run.started_at,
            ended_at=run.ended_at,
        )


def messages_of(runs: Sequence[AgentRun], agent: str) -> tuple[RunMessage, ...]:
    """The messages of an agent's runs, in the order of the plan."""
    return tuple(message for run in runs if run.agent == agent for message in run.messages)


def _add(record: RunRecord, recorder: RunRecorder) -> RunRecord:
    calls = [(call.name, call.ok, round(call.seconds * 1000)) for call in recorder.tool_calls]
    return RunRecord(
        kind=recorder.kind,
        requests=record.requests + recorder.requests,
        input_tokens=record.input_tokens + recorder.input_tokens,
        output_tokens=record.output_tokens + recorder.output_tokens,
        cost=RunRecord.split_cost(record.cost_nanos + recorder.cost_nanos),
        calls=(*record.calls, *calls)[-_MOST_CALLS:],
    )


def _to_call(fields: tuple[str, bool, int]) -> RunToolCall:
    name, ok, milliseconds = fields
    return RunToolCall(name=name, ok=ok, seconds=milliseconds / 1000)
