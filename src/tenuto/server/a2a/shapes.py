"""Our tasks and messages in the words of the protocol, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from a2a.types.a2a_pb2 import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value as ProtoValue

from tenuto.model import Message as OurMessage
from tenuto.model import Role as OurRole
from tenuto.model.plan import Step, StepStatus, TaskProgress
from tenuto.model.task import TaskStatus as OurStatus
from tenuto.model.values import Json
from tenuto.server.a2a.records import LoadedTask

CANCELLED = "task_cancelled"
ENDED = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)
PAUSED = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED})
_REPLY = "reply"


def waiting_step(progress: TaskProgress) -> Step | None:
    """The first step of a plan that waits for a person."""
    if progress.plan is None or progress.task.is_finished:
        return None
    waiting = next((run.step for run in progress.steps if run.status is StepStatus.WAITING), None)
    return None if waiting is None else progress.plan.step(waiting)


def state_of(loaded: LoadedTask) -> TaskState:
    """How far a task is."""
    task, record = loaded.task, loaded.record
    if task.status is OurStatus.COMPLETED:
        return TaskState.TASK_STATE_COMPLETED
    if task.status is OurStatus.FAILED:
        cancelled = task.error is not None and task.error.code == CANCELLED
        return TaskState.TASK_STATE_CANCELED if cancelled else TaskState.TASK_STATE_FAILED
    if waiting_step(loaded.progress) is not None or (record is not None and record.waits):
        return TaskState.TASK_STATE_INPUT_REQUIRED
    has_begun = record is not None or task.status is OurStatus.RUNNING
    return TaskState.TASK_STATE_WORKING if has_begun else TaskState.TASK_STATE_SUBMITTED


def to_task(loaded: LoadedTask, reply: str | None = None) -> Task:
    """A task; `reply` is the answer as its caller may see it, instead of the stored one."""
    task, record = loaded.task, loaded.record
    context, said = task.session_id or "", loaded.messages
    history = [_to_message(message, task.id, context) for message in said]
    if record is None and task.goal:
        history.append(_message(f"{task.id}.goal", Role.ROLE_USER, task.goal, task.id, context))
    elif record is not None and record.text:
        history.append(_message(f"{task.id}.{record.number}", Role.ROLE_USER, record.text, task.id, context))
    shown = Task(id=task.id, context_id=context, history=history, status=_status(loaded, reply))
    if task.status is OurStatus.COMPLETED or _was_stopped(loaded):
        shown.artifacts.extend(_artifacts(loaded, reply))
    return shown


def _was_stopped(loaded: LoadedTask) -> bool:
    """Whether a task was cancelled amid an answer; not before it, and not while it waited for the next message."""
    record = loaded.record
    cancelled = state_of(loaded) == TaskState.TASK_STATE_CANCELED
    return cancelled and record is not None and not record.text and not record.waits


def _status(loaded: LoadedTask, reply: str | None) -> TaskStatus:
    task, state = loaded.task, state_of(loaded)
    text = ""
    if task.status is OurStatus.FAILED and task.error is not None:
        text = task.error.message or task.error.code
    elif state == TaskState.TASK_STATE_INPUT_REQUIRED:
        step = waiting_step(loaded.progress)
        text = step.human_input or "" if step is not None else reply or _answer(loaded).text
    return make_status(state, task.updated_at, text, task.id, task.session_id or "")


def make_status(state: TaskState, at: datetime, text: str, task_id: str, context: str) -> TaskStatus:
    """A status, with what the agent says in it."""
    status = TaskStatus(state=state)
    status.timestamp.FromDatetime(at)
    if text:
        status.message.CopyFrom(_message(f"{task_id}.status", Role.ROLE_AGENT, text, task_id, context))
    return status


def _artifacts(loaded: LoadedTask, reply: str | None) -> Iterable[Artifact]:
    if loaded.record is not None:
        answer = _answer(loaded)
        yield make_artifact(reply if reply is not None else answer.text, answer.data, answer.degraded)
    elif loaded.task.result is not None:
        yield make_artifact("", loaded.task.result)


class _Answer(NamedTuple):
    """An answer, the data that came with it, and what it had to do without."""

    text: str
    data: Json = None
    degraded: Sequence[str] = ()


def _answer(loaded: LoadedTask) -> _Answer:
    """The last answer of a task's turns."""
    final = next((message for message in reversed(loaded.messages) if message.role is OurRole.ASSISTANT), None)
    if final is None:
        return _Answer(loaded.record.reply if loaded.record is not None else "")
    return _Answer(final.text, final.metadata.get("data"), final.metadata.get("degraded", ()))


def make_artifact(text: str, data: Json = None, degraded: Sequence[str] = ()) -> Artifact:
    """The answer of a task: its text, and data for programs; its metadata say what it had to do without."""
    parts = [Part(text=text)] if text else []
    if data:
        parts.append(Part(text=data) if isinstance(data, str) else Part(data=ParseDict(data, ProtoValue())))
    metadata = {"degraded": list(degraded)} if degraded else None
    return Artifact(artifact_id=_REPLY, name=_REPLY, parts=parts, metadata=metadata)


def artifact_update(task_id: str, context: str, artifact: Artifact, *, append: bool, last: bool) -> Any:
    """A piece of the answer, or with `append=False` all of it."""
    return TaskArtifactUpdateEvent(
        task_id=task_id, context_id=context, artifact=artifact, append=append, last_chunk=last
    )


def status_update(task: Task) -> TaskStatusUpdateEvent:
    """The status of a task as news."""
    return TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status)


def _to_message(message: OurMessage, task_id: str, context: str) -> Message:
    role = Role.ROLE_USER if message.role is OurRole.USER else Role.ROLE_AGENT
    return _message(message.id, role, message.text, task_id, context)


def _message(message_id: str, role: Role, text: str, task_id: str, context: str) -> Message:
    return Message(message_id=message_id, role=role, parts=[Part(text=text)], task_id=task_id, context_id=context)


def text_of(message: Message) -> str:
    """What a message says: its texts, and its data as JSON.

    Raises:
        ContentTypeNotSupportedError: it holds a file.
        InvalidParamsError: it says nothing.
    """
    texts: list[str] = []
    for part in message.parts:
        kind = part.WhichOneof("content")
        if kind == "text":
            texts.append(part.text)
        elif kind == "data":
            texts.append(json.dumps(_plain(part.data), ensure_ascii=False))
        else:
            raise ContentTypeNotSupportedError(message="this agent reads text and JSON data, no files")
    text = "\n".join(texts)
    if not text.strip():
        raise InvalidParamsError(message="the message is empty")
    return text


def persona_of(message: Message) -> str | None:
    """The character that a message asks for in its metadata."""
    named = MessageToDict(message.metadata).get("persona")
    return named if isinstance(named, str) else None


def value_of(message: Message) -> Json:
    """An answer to a step of a plan: the data of a message that is nothing else, or its text."""
    parts = message.parts
    return _plain(parts[0].data) if len(parts) == 1 and parts[0].HasField("data") else text_of(message)


def _plain(data: ProtoValue) -> Any:
    """JSON of the protocol, whose numbers are all floating-point; whole ones become integers again."""
    return _whole(MessageToDict(data))


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
