"""Turns that answer A2A messages: each is a live turn, and any number of clients follow it.

Whichever process is asked for a task takes its turn under the same idempotency key: it follows one that runs in another
process, finds an answer that was stored, and makes one that was not, since a killed process leaves its turns behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

from a2a.types.a2a_pb2 import Message, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from a2a.types.a2a_pb2 import Task as ProtoTask
from msgspec.structs import replace

from tenuto.background import run_in_background
from tenuto.chat import ChatRequest, LiveTurn, LiveTurns, Reply
from tenuto.chat.request import ChatEvent, ToolStarted
from tenuto.errors import SessionBusy, TenutoError, TurnInterrupted, TurnStopped, Unavailable, VersionConflict
from tenuto.logs import describe_exception
from tenuto.model import Scope
from tenuto.model.generation import TextDelta
from tenuto.model.plan import TaskProgress
from tenuto.model.scope import owner_key
from tenuto.model.task import Task, TaskError
from tenuto.server.a2a.records import LoadedTask, TaskRecords, TurnRecord
from tenuto.server.a2a.shapes import CANCELLED, artifact_update, make_artifact, status_update, to_task
from tenuto.task_errors import TaskFinished, TaskNotFound
from tenuto.tasks import Tasks

_log = logging.getLogger(__name__)
Event = Message | ProtoTask | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
_CANCELLED: Final = TaskError(code=CANCELLED, message="the task was cancelled")
_INTERNAL: Final = TaskError(code="internal", message="something went wrong here")
# Seconds between two attempts to begin a turn.
_PAUSE: Final = 0.25
# In the data of a reply: the agent that asks, and the task that the turn ran.
_ASKED, _TASK_ID = "asked", "task_id"


class AnswerStream:
    """The answer of a turn as pieces of an artifact: the same events give the same pieces."""

    def __init__(self, task: Task) -> None:
        self.text = ""
        self._address = (task.id, task.session_id or "")
        # The last piece is held until it is known whether another follows.
        self._held = ""

    def feed(self, event: ChatEvent) -> Iterator[TaskArtifactUpdateEvent]:
        """The pieces that an event of the turn completes."""
        if isinstance(event, TextDelta):
            if self._held:
                yield self._piece(self._held)
            self._held = event.text
        elif isinstance(event, ToolStarted):  # The answer begins anew.
            self.text = self._held = ""

    def conclude(self, reply: Reply) -> TaskArtifactUpdateEvent:
        """The rest of the answer; or all of it, where the pieces differ from it."""
        rest = self._held
        if self.text + rest != reply.text:
            self.text, rest = "", reply.text
        return self._piece(rest, reply.data, reply.degraded, last=True)

    def _piece(
        self, text: str, data: Any = None, degraded: Sequence[str] = (), *, last: bool = False
    ) -> TaskArtifactUpdateEvent:
        artifact = make_artifact(text, data, degraded)
        piece: TaskArtifactUpdateEvent = artifact_update(*self._address, artifact, append=bool(self.text), last=last)
        self.text += text
        return piece


class Run:
    """A turn under way, and at its end what is stored of it: those who follow read the events of the turn itself."""

    def __init__(self) -> None:
        self.work: asyncio.Task[None]
        self.turn: LiveTurn | None = None
        self.stopped = False
        # The turn, once it has its first event.
        self.turn_started: asyncio.Future[LiveTurn] = asyncio.get_running_loop().create_future()
        # At the end: the answer, whether it is one of the task, and the status.
        self.reply: Reply | None = None
        self.concludes = False
        self.end: TaskStatusUpdateEvent | None = None

    async def events(self, answer: AnswerStream, after: int = 0) -> AsyncIterator[Event]:
        """What is told of the task behind an event of the turn, as it happens; `answer` has been fed up to there."""
        await asyncio.wait((self.turn_started, self.work), return_when=asyncio.FIRST_COMPLETED)
        if self.turn_started.done():
            with contextlib.suppress(Exception):  # How it failed is in the status.
                async for _, event in self.turn_started.result().events(after):
                    for piece in answer.feed(event):
                        yield piece
        await asyncio.wait((self.work,))
        if self.concludes and self.reply is not None:
            yield answer.conclude(self.reply)
        if self.end is not None:
            yield self.end

    async def catch_up(self, answer: AnswerStream) -> int:
        """Feed the events so far; returns their number."""
        if not self.turn_started.done():
            return 0
        turn = self.turn_started.result()
        count, events = turn.event_count, turn.events()
        for _ in range(count):
            list(answer.feed((await anext(events))[1]))
        return count

    async def stop(self) -> None:
        """End the turn; what was said so far is its answer."""
        self.stopped = True
        if self.turn is not None:
            await self.turn.stop()
        await asyncio.wait((self.work,))


class Runs:
    """The runs of this process."""

    def __init__(self, *, live: LiveTurns, tasks: Tasks, records: TaskRecords) -> None:
        self._live = live
        self._tasks = tasks
        self._records = records
        self._runs: dict[tuple[bytes, str], Run] = {}
        self._working: set[asyncio.Task[None]] = set()
        self._closed = False

    def find(self, scope: Scope, task_id: str) -> Run | None:
        """The run of a task, if it is under way here."""
        run = self._runs.get((owner_key(scope), task_id))
        return None if run is None or run.work.done() else run

    def start(self, scope: Scope, loaded: LoadedTask, *, again: bool = False) -> Run:
        """Run the turn of a task, unless it is under way here; one that another process runs is followed. With `again`
        it is left alone while another turn of its context runs.

        Raises:
            Unavailable: the server stops.
        """
        if self._closed:
            raise Unavailable("server", "stops")
        task, key = loaded.task, (owner_key(scope), loaded.task.id)
        run = self.find(scope, task.id)
        if run is None:
            run = self._runs[key] = Run()
            run.work = work = run_in_background(self._work(run, scope, loaded, again), "a2a turn")
            self._working.add(work)
            work.add_done_callback(lambda _: self._drop(key, work))
        return run

    def _drop(self, key: tuple[bytes, str], work: asyncio.Task[None]) -> None:
        self._working.discard(work)
        if key in self._runs and self._runs[key].work is work:
            del self._runs[key]

    async def cancel(self, scope: Scope, loaded: LoadedTask) -> None:
        """End a task and its run; a run that ends by itself meanwhile has answered it.

        Raises:
            TaskFinished: it has ended before.
        """
        run = self.find(scope, loaded.task.id)
        if run is not None:
            await run.stop()
            return
        turn = await self._turn_elsewhere(scope, loaded)
        if turn is not None:
            await turn.stop()
        kept = loaded.record.to_json() if loaded.record is not None else None
        try:
            await self._tasks.finish(scope, loaded.task.id, failed=True, result=kept, error=_CANCELLED)
        except TaskFinished:
            if turn is None:
                raise

    async def _turn_elsewhere(self, scope: Scope, loaded: LoadedTask) -> LiveTurn | None:
        """The turn of a task, if another process runs it."""
        if not loaded.is_under_way or loaded.record is None:
            return None
        turn = await self._live.find(scope, loaded.task.session_id or "")
        return turn if turn is not None and turn.key == _key_of(loaded.task, loaded.record) else None

    async def close(self) -> None:
        """Stop all runs; their tasks stay as they are."""
        self._closed = True
        for work in self._working:
            work.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    async def _work(self, run: Run, scope: Scope, loaded: LoadedTask, again: bool) -> None:
        task, record = loaded.task, loaded.record
        assert record is not None
        try:
            try:
                reply = await self._take_turn(run, scope, loaded, record, again)
            except (SessionBusy, TurnInterrupted):
                # Whoever is asked for the task next takes the turn again.
                return
            except TurnStopped:
                await self._fail(run, scope, loaded, _CANCELLED)
            except TenutoError as error:
                await self._fail(run, scope, loaded, TaskError(code=error.code, message=str(error)))
            else:
                await self._store(run, scope, replace(loaded, record=_after(record, reply)), reply)
        except (TaskFinished, TaskNotFound, VersionConflict):
            # It was cancelled; or another process, which took the turn, has stored its end.
            _log.info("task %s ended before its turn", task.id)
        except Unavailable as error:
            _log.warning("the end of task %s is not stored; it is run again when it is asked for: %s", task.id, error)
        except Exception as error:
            _log.error("the turn of task %s failed: %s", task.id, describe_exception(error))
            await self._fail(run, scope, loaded, _INTERNAL)

    async def _take_turn(self, run: Run, scope: Scope, loaded: LoadedTask, record: TurnRecord, again: bool) -> Reply:
        key = _key_of(loaded.task, record)
        parts = record.parts
        if parts and not loaded.contents:
            parts = await self._records.stored_parts(scope, loaded.task.session_id or "", record, key)
        request = ChatRequest(
            text=await self._records.whole_text(scope, loaded.task.id, record),
            parts=parts,
            contents=loaded.contents,
            require_attachments=record.require_attachments,
            session_id=loaded.task.session_id,
            assistant=record.assistant,
            persona=record.persona,
            idempotency_key=key,
            fingerprint=key,
        )
        while not run.stopped:
            turn = run.turn = self._live.start(scope, request)
            try:
                await anext(turn.events())
            except SessionBusy:
                if again:
                    raise
                # Another turn of the context goes first, however long it takes.
                await asyncio.sleep(_PAUSE)
            else:
                run.turn_started.set_result(turn)
                return await turn.reply()
        raise TurnStopped

    async def _store(self, run: Run, scope: Scope, loaded: LoadedTask, reply: Reply) -> None:
        """Store the end of the turn, and note what those who follow are told of it."""
        task, record = loaded.task, loaded.record
        assert record is not None
        if reply.stopped:
            await self._fail(run, scope, loaded, _CANCELLED, reply)
            return
        if record.waits:
            await self._records.write(scope, task.id, record, if_version=loaded.version)
        else:
            task = await self._tasks.finish(scope, task.id, result=record.to_json())
            run.concludes = True
        run.reply = reply
        run.end = status_update(to_task(replace(loaded, progress=TaskProgress(task=task)), reply.text))

    async def _fail(
        self, run: Run, scope: Scope, loaded: LoadedTask, error: TaskError, partial: Reply | None = None
    ) -> None:
        kept = loaded.record.to_json() if loaded.record is not None else None
        task = await self._tasks.finish(scope, loaded.task.id, failed=True, result=kept, error=error)
        run.reply, run.concludes = partial, partial is not None
        run.end = status_update(to_task(replace(loaded, progress=TaskProgress(task=task))))


def _key_of(task: Task, record: TurnRecord) -> str:
    """The key under which the turn of a task is taken."""
    return f"a2a-{task.id}-{record.number}"


def _after(record: TurnRecord, reply: Reply) -> TurnRecord:
    """The record once a turn has ended."""
    stored, inner = reply.turn > 0 and "store" not in reply.degraded, reply.data.get(_TASK_ID)
    return replace(
        record,
        text="",
        rest=(),
        parts=(),
        turns=(*record.turns, reply.turn) if stored else record.turns,
        waits=bool(reply.data.get(_ASKED)),
        inner=(*record.inner, inner) if isinstance(inner, str) else record.inner,
        reply="" if stored else reply.text,
    )
