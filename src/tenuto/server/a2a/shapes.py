"""Our tasks and messages in the words of the protocol, and back."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote

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
from tenuto.model.attachment import ATTACHMENT, FILE_ID, MEDIA_PARTS, PROVIDER, REMOVED, URL
from tenuto.model.plan import Step, StepStatus, TaskProgress
from tenuto.model.task import TaskStatus as OurStatus
from tenuto.model.values import Json, JsonObject
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
MEDIA_FIELDS: Final = {"raw": "data", "mediaType": "media_type", "filename": "name"}
"""What the protocol calls fields of our pictures, sounds and files."""


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


def to_task(loaded: LoadedTask, reply: str | None = None, server: str = "") -> Task:
    """A task; `reply` is the answer as its caller may see it, instead of the stored one. Attachments are links below
    the address of the `server`."""
    task, record = loaded.task, loaded.record
    context, said = task.session_id or "", loaded.messages
    history = [_to_message(message, task.id, context, server) for message in said]
    if record is None and task.goal:
        history.append(_message(f"{task.id}.goal", Role.ROLE_USER, task.goal, task.id, context))
    elif record is not None and (record.text or record.parts):
        # Attachments have their links once they are stored.
        parts = [_media_part(part, "") for part in record.parts if ATTACHMENT not in part]
        message_id = f"{task.id}.{record.number}"
        history.append(_message(message_id, Role.ROLE_USER, record.text, task.id, context, parts))
    shown = Task(id=task.id, context_id=context, history=history, status=_status(loaded, reply))
    if task.status is OurStatus.COMPLETED or _was_stopped(loaded):
        shown.artifacts.extend(_artifacts(loaded, reply))
    return shown


def _was_stopped(loaded: LoadedTask) -> bool:
    """Whether a task was cancelled amid an answer; not before it, and not while it waited for the next message."""
    record = loaded.record
    cancelled = state_of(loaded) == TaskState.TASK_STATE_CANCELED
    return cancelled and record is not None and not (record.text or record.parts or record.waits)


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


def _to_message(message: OurMessage, task_id: str, context: str, server: str) -> Message:
    role = Role.ROLE_USER if message.role is OurRole.USER else Role.ROLE_AGENT
    session = f"{server}/v1/sessions/{quote(context, safe='')}"
    media = [_media_part(part, session) for part in message.parts if part["type"] in MEDIA_PARTS]
    return _message(message.id, role, message.text, task_id, context, media)


def _message(message_id: str, role: Role, text: str, task_id: str, context: str, media: Sequence[Part] = ()) -> Message:
    parts = [*([Part(text=text)] if text or not media else []), *media]
    return Message(message_id=message_id, role=role, parts=parts, task_id=task_id, context_id=context)


def _media_part(part: JsonObject, session: str) -> Part:
    """A picture, a sound or a file as a link: to a stored one, or the one that was sent."""
    if part.get(REMOVED) is True:
        return Part(text=f"[{part['type']} removed]")
    if FILE_ID in part:
        return Part(text=f"[{part['type']} {part[FILE_ID]} of {part.get(PROVIDER, 'a provider')}]")
    url = part[URL] if URL in part else f"{session}/attachments/{part[ATTACHMENT]}"
    return Part(url=url, media_type=part.get("media_type", ""), filename=part.get("name", ""))


def text_of(message: Message) -> str:
    """What a message says: its texts, and its data as JSON; empty if it says nothing."""
    texts: list[str] = []
    for part in message.parts:
        kind = part.WhichOneof("content")
        if kind == "text":
            texts.append(part.text)
        elif kind == "data":
            texts.append(json.dumps(_plain(part.data), ensure_ascii=False))
    text = "\n".join(texts)
    return text if text.strip() else ""


def media_of(message: Message) -> dict[str, JsonObject]:
    """The pictures, sounds and files of a message in the fields of the protocol, each with its place.

    Raises:
        InvalidParamsError: a part has neither text nor data nor a file.
    """
    media: dict[str, JsonObject] = {}
    for number, part in enumerate(message.parts):
        kind, place = part.WhichOneof("content"), f"message.parts[{number}]"
        if kind is None:
            raise InvalidParamsError(message=f"{place}: expected one of text, data, raw, url")
        if kind in ("raw", "url"):
            source = {"raw": b64encode(part.raw).decode()} if kind == "raw" else {"url": part.url}
            named = {"mediaType": part.media_type, "filename": part.filename}
            media[place] = source | {name: value for name, value in named.items() if value}
    return media


def persona_of(message: Message) -> str | None:
    """The character that a message asks for in its metadata."""
    named = MessageToDict(message.metadata).get("persona")
    return named if isinstance(named, str) else None


def requires_attachments(message: Message) -> bool:
    """Whether a message asks in its metadata to be refused where the model does not take what it shows.

    Raises:
        InvalidParamsError: it is no boolean.
    """
    asked = MessageToDict(message.metadata).get("require_attachments", False)
    if not isinstance(asked, bool):
        raise InvalidParamsError(message="message.metadata.require_attachments: expected bool")
    return asked


def value_of(message: Message) -> Json:
    """An answer to a step of a plan: the data of a message that is nothing else, or its text.

    Raises:
        ContentTypeNotSupportedError: it shows a file, and steps take none.
        InvalidParamsError: it says nothing.
    """
    parts = message.parts
    if len(parts) == 1 and parts[0].HasField("data"):
        return _plain(parts[0].data)
    if media_of(message):
        raise ContentTypeNotSupportedError(message="a step of a plan takes text and JSON data, no files")
    text = text_of(message)
    if not text:
        raise InvalidParamsError(message="the message is empty")
    return text


def _plain(data: ProtoValue) -> Any:
    """JSON of the protocol, whose numbers are all floating-point; whole ones become integers again."""
    return _whole(MessageToDict(data))


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
