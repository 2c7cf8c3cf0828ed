"""The calls of A2A on our tasks and turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import blake2b
from typing import Any, Final, NamedTuple, NoReturn

import msgspec
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.types import a2a_pb2 as proto
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import (
    ExtendedAgentCardNotConfiguredError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    UnsupportedOperationError,
)
from a2a.utils.task import (
    ListTasksCursor,
    apply_history_length,
    decode_list_tasks_cursor,
    encode_list_tasks_cursor,
    validate_history_length,
    validate_page_size,
)
from msgspec.structs import replace

from tenuto.app import Tenuto
from tenuto.errors import Invalid, TooLarge
from tenuto.model import Content, Scope
from tenuto.model.plan import TaskProgress
from tenuto.model.task import NewTask, Task, TaskQuery
from tenuto.model.values import JsonObject
from tenuto.ports import TaskEngine
from tenuto.server.a2a.errors import translating
from tenuto.server.a2a.records import TASK_TYPE, LoadedTask, TaskRecords, TurnRecord
from tenuto.server.a2a.routes import CALLER, REQUEST, server_address
from tenuto.server.a2a.runs import AnswerStream, Event, Run, Runs
from tenuto.server.a2a.shapes import (
    ENDED,
    MEDIA_FIELDS,
    PAUSED,
    artifact_update,
    make_artifact,
    media_of,
    persona_of,
    requires_attachments,
    state_of,
    status_update,
    text_of,
    to_task,
    value_of,
    waiting_step,
)
from tenuto.server.auth import AuthContext
from tenuto.server.streams import until_lapsed
from tenuto.sessions.ids import session_id_for_name
from tenuto.sessions.media_parts import read_media
from tenuto.task_errors import EngineUnavailable, TaskFinished

ASSISTANT: Final = "assistant"
"""What the context of a call has the assistant of its path under."""
# Seconds until a run that told no end is looked for again.
_PAUSE = 1.0
# Characters of the first message that are the task's goal; the session has the rest.
_GOAL: Final = 8000


class _Accepted(NamedTuple):
    """A message that was accepted: its task, and the run that answers it, unless that is an engine's or has ended."""

    scope: Scope
    loaded: LoadedTask
    run: Run | None


class _Input(NamedTuple):
    """What a message says and shows, and the contents of its attachments."""

    text: str
    parts: tuple[JsonObject, ...]
    contents: tuple[Content, ...]
    require_attachments: bool


class A2aHandler(RequestHandler):
    """The calls of the protocol on our tasks: those of A2A, and plans, whose human steps an answer completes."""

    def __init__(self, tenuto: Tenuto, records: TaskRecords, runs: Runs) -> None:
        self._tenuto = tenuto
        self._tasks = tenuto.tasks
        self._records = records
        self._runs = runs

    # Messages

    @validate_request_params
    async def on_message_send(
        self, params: proto.SendMessageRequest, context: ServerCallContext
    ) -> proto.Task | proto.Message:
        with translating():
            scope, loaded, run = await self._accept(params, context)
            if not params.configuration.return_immediately:
                async for _ in self._follow(scope, loaded, run):
                    pass
            loaded = await self._records.load(scope, loaded.task.id)
            return apply_history_length(_shown(loaded, context, _reply_of(run)), params.configuration)

    @validate_request_params
    async def on_message_send_stream(
        self, params: proto.SendMessageRequest, context: ServerCallContext
    ) -> AsyncIterator[Event]:
        with translating():
            scope, loaded, run = await self._accept(params, context)
            yield apply_history_length(_shown(loaded, context), params.configuration)
            async for event in until_lapsed(context.state[REQUEST], self._follow(scope, loaded, run)):
                yield event

    async def _accept(self, params: proto.SendMessageRequest, context: ServerCallContext) -> _Accepted:
        validate_history_length(params.configuration)
        if params.configuration.HasField("task_push_notification_config"):
            raise PushNotificationNotSupportedError
        scope, message = _scope_of(context), params.message
        if message.task_id:
            return await self._continue(scope, message)
        loaded = await self._open(scope, context.state[ASSISTANT], message)
        return _Accepted(scope, loaded, self._runs.start(scope, loaded) if loaded.is_under_way else None)

    async def _open(self, scope: Scope, assistant: str, message: proto.Message) -> LoadedTask:
        """The task of a message; a message that is sent again has the same one."""
        said, context = await self._read(scope, message), message.context_id
        persona = persona_of(message)
        # Without attachments as in former versions: a message is known across an update.
        shown = [said.parts, said.require_attachments] if said.parts else []
        asked = msgspec.json.encode([assistant, persona, message.message_id, context, said.text, *shown])
        key = f"a2a-{blake2b(asked, digest_size=16).hexdigest()}"
        session_id = await self._tenuto.sessions.find_named(scope, context) if context else None
        session, _ = await self._tenuto.sessions.create(
            scope, session_id=session_id, idempotency_key=None if context else key
        )
        new = NewTask(type=TASK_TYPE, goal=said.text[:_GOAL], session_id=session.id)
        task = await self._tasks.open(scope, new, idempotency_key=key)
        loaded = await self._records.load(scope, task.id)
        if loaded.record is not None or loaded.task.is_finished:
            return replace(loaded, contents=said.contents)
        record = TurnRecord(
            assistant=assistant,
            persona=persona,
            text=said.text,
            parts=said.parts,
            require_attachments=said.require_attachments,
            after=session.last_seq,
        )
        await self._records.write(scope, task.id, record, if_version=0)
        progress = TaskProgress(task=await self._tasks.begin(scope, task.id))
        return LoadedTask(progress=progress, record=record, version=1, contents=said.contents)

    async def _read(self, scope: Scope, message: proto.Message) -> _Input:
        """A message for a turn.

        Raises:
            Invalid: a file is not of the type that it is said to be, or its link is none; or the message is empty.
            TooLarge: the text or a file is above its size limit.
        """
        text, media, policy = text_of(message), media_of(message), self._tenuto.sessions.policy
        if len(text.encode()) > policy.max_message_bytes:
            raise TooLarge("message", policy.max_message_bytes)
        if not (text or media):
            raise InvalidParamsError(message="the message is empty")
        if not media:
            return _Input(text, (), (), False)

        def read() -> list[tuple[JsonObject, Content | None]]:
            return [read_media(scope, part, policy, place, aliases=MEDIA_FIELDS) for place, part in media.items()]

        pairs = await asyncio.to_thread(read)
        contents = {content.id: content for _, content in pairs if content is not None}
        parts = tuple([part for part, _ in pairs])
        return _Input(text, parts, tuple(contents.values()), requires_attachments(message))

    async def _continue(self, scope: Scope, message: proto.Message) -> _Accepted:
        """Answer a task that waits for its user."""
        loaded = await self._records.load(scope, message.task_id)
        task, record, step = loaded.task, loaded.record, waiting_step(loaded.progress)
        named = message.context_id
        if named and task.session_id not in (named, session_id_for_name(scope, named)):
            raise InvalidParamsError(message="the context is not that of the task")
        if step is not None:
            progress = await (await self._engine()).answer(scope, task.id, step.id, value_of(message))
            return _Accepted(scope, LoadedTask(progress=progress), None)
        if record is None or not record.waits or task.is_finished:
            state = proto.TaskState.Name(state_of(loaded))
            raise UnsupportedOperationError(message=f"the task takes no message: its state is {state}")
        said = await self._read(scope, message)
        record = replace(
            record,
            text=said.text,
            parts=said.parts,
            require_attachments=said.require_attachments,
            number=record.number + 1,
            waits=False,
        )
        await self._records.write(scope, task.id, record, if_version=loaded.version)
        loaded = replace(loaded, record=record, version=loaded.version + 1, contents=said.contents)
        return _Accepted(scope, loaded, self._runs.start(scope, loaded))

    async def _follow(
        self, scope: Scope, loaded: LoadedTask, run: Run | None, answer: AnswerStream | None = None, after: int = 0
    ) -> AsyncIterator[Event]:
        """What happens to a task from now on, until it ends or waits: told by its run, or seen in the store."""
        state = state_of(loaded)
        while run is not None:
            async for event in run.events(answer or AnswerStream(loaded.task), after):
                yield event
                if isinstance(event, proto.TaskStatusUpdateEvent) and event.status.state in ENDED | PAUSED:
                    return
            # Its end is not stored, or another process has the turn, and may be killed.
            await asyncio.sleep(_PAUSE)
            answer, after, (_, run) = None, 0, await self._find(scope, loaded.task.id)
        if state in ENDED | PAUSED:
            return
        async for _ in self._changes(scope, loaded.task.id):
            shown = to_task(await self._records.load(scope, loaded.task.id))
            if shown.status.state != state:
                state = shown.status.state
                for artifact in shown.artifacts:
                    yield artifact_update(shown.id, shown.context_id, artifact, append=False, last=True)
                yield status_update(shown)
            if state in ENDED | PAUSED:
                return

    async def _changes(self, scope: Scope, task_id: str) -> AsyncIterator[None]:
        """Once now, and whenever something has happened to a task."""
        seen = (await self._tasks.events(scope, task_id))[-1].id
        yield
        async for _ in self._tasks.watch(scope, task_id, after=seen):
            yield

    # Tasks

    @validate_request_params
    async def on_get_task(self, params: proto.GetTaskRequest, context: ServerCallContext) -> proto.Task | None:
        validate_history_length(params)
        with translating():
            loaded, _ = await self._find(_scope_of(context), params.id)
            return apply_history_length(_shown(loaded, context), params)

    @validate_request_params
    async def on_subscribe_to_task(
        self, params: proto.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncIterator[Event]:
        with translating():
            scope = _scope_of(context)
            loaded, run = await self._find(scope, params.id)
            if loaded.task.is_finished:
                raise UnsupportedOperationError(message="the task has ended")
            shown, answer = _shown(loaded, context), AnswerStream(loaded.task)
            after = await run.catch_up(answer) if run is not None else 0
            if answer.text:
                shown.artifacts.append(make_artifact(answer.text))
            yield shown
            if shown.status.state in PAUSED:
                return
            async for event in until_lapsed(context.state[REQUEST], self._follow(scope, loaded, run, answer, after)):
                yield event

    async def _find(self, scope: Scope, task_id: str) -> tuple[LoadedTask, Run | None]:
        """A task and its run. A turn that a process has left is run again."""
        loaded = await self._records.load(scope, task_id)
        run = self._runs.find(scope, task_id)
        if run is None and loaded.is_under_way:
            run = self._runs.start(scope, loaded, again=True)
        return loaded, run

    @validate_request_params
    async def on_cancel_task(self, params: proto.CancelTaskRequest, context: ServerCallContext) -> proto.Task | None:
        with translating():
            scope = _scope_of(context)
            loaded = await self._records.load(scope, params.id)
            try:
                if loaded.task.is_finished:
                    raise TaskFinished(params.id)
                if loaded.progress.plan is not None:
                    await (await self._engine()).cancel(scope, params.id)
                else:
                    await self._runs.cancel(scope, loaded)
            except TaskFinished:
                raise TaskNotCancelableError from None
            loaded = await self._records.load(scope, params.id)
            if state_of(loaded) != proto.TaskState.TASK_STATE_CANCELED:
                raise TaskNotCancelableError
            return _shown(loaded, context)

    @validate_request_params
    async def on_list_tasks(
        self, params: proto.ListTasksRequest, context: ServerCallContext
    ) -> proto.ListTasksResponse:
        validate_history_length(params)
        if params.HasField("page_size"):
            validate_page_size(params.page_size)
        with translating():
            scope = _scope_of(context)
            tasks = await self._matching(scope, params)
            size, behind = params.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE, _cursor(params.page_token)
            rest = tasks if behind is None else [task for task in tasks if _place(task) < behind]
            page = [_shown(await self._records.load(scope, task.id), context) for task in rest[:size]]
            for shown in page:
                if not params.include_artifacts:
                    shown.ClearField("artifacts")
            last = rest[size - 1] if len(rest) > size else None
            return proto.ListTasksResponse(
                tasks=[apply_history_length(shown, params) for shown in page],
                next_page_token="" if last is None else encode_list_tasks_cursor(ListTasksCursor(*_place(last))),
                page_size=size,
                total_size=len(tasks),
            )

    async def _matching(self, scope: Scope, params: proto.ListTasksRequest) -> list[Task]:
        """The tasks that a listing is about, the last changed first, without those that a turn ran by itself."""
        since = params.status_timestamp_after.ToNanoseconds() if params.HasField("status_timestamp_after") else 0
        found, inner = [], set[str]()
        context = await self._tenuto.sessions.find_named(scope, params.context_id) if params.context_id else None
        query: TaskQuery | None = TaskQuery(session_id=context, limit=1000)
        while query is not None:
            page = await self._tasks.list(scope, query)
            for task in page.tasks:
                loaded = await self._records.glance(scope, task)
                inner.update(loaded.record.inner if loaded.record is not None else ())
                if _place(task)[0] > since and params.status in (0, state_of(loaded)):
                    found.append(task)
            query = replace(query, cursor=page.cursor) if page.cursor is not None else None
        return sorted((task for task in found if task.id not in inner), key=_place, reverse=True)

    async def _engine(self) -> TaskEngine:
        try:
            return await self._tenuto.engine()
        except Invalid as error:
            raise EngineUnavailable(str(error)) from error

    # What these agents do not have

    async def on_create_task_push_notification_config(self, params: Any, context: ServerCallContext) -> NoReturn:
        raise PushNotificationNotSupportedError

    async def on_get_task_push_notification_config(self, params: Any, context: ServerCallContext) -> NoReturn:
        raise PushNotificationNotSupportedError

    async def on_list_task_push_notification_configs(self, params: Any, context: ServerCallContext) -> NoReturn:
        raise PushNotificationNotSupportedError

    async def on_delete_task_push_notification_config(self, params: Any, context: ServerCallContext) -> NoReturn:
        raise PushNotificationNotSupportedError

    async def on_get_extended_agent_card(self, params: Any, context: ServerCallContext) -> NoReturn:
        raise ExtendedAgentCardNotConfiguredError


def _scope_of(context: ServerCallContext) -> Scope:
    """Whom a call acts for; a tenant that the call itself names must agree with its credential."""
    caller: AuthContext = context.state[CALLER]
    return caller.scope(context.tenant or None)


def _shown(loaded: LoadedTask, context: ServerCallContext, reply: str | None = None) -> proto.Task:
    """A task as a caller of this address sees it."""
    return to_task(loaded, reply, server_address(context.state[REQUEST]))


def _reply_of(run: Run | None) -> str | None:
    return run.reply.text if run is not None and run.reply is not None else None


def _place(task: Task) -> tuple[int, str]:
    """The place of a task in a listing."""
    return int(task.updated_at.timestamp() * 1_000_000) * 1000, task.id


def _cursor(token: str) -> tuple[int, str] | None:
    if not token:
        return None
    cursor = decode_list_tasks_cursor(token)
    if cursor is None:
        raise InvalidParamsError(message="no listing returned this page token")
    return cursor.timestamp_ns or 0, cursor.task_id
