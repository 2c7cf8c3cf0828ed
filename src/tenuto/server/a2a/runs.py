"""Turns that answer A2A messages: each is a live turn of this process, and any number of clients follow it.

A process that is killed leaves its turns behind. The next one that is asked for such a task runs the turn again, under
the same idempotency key: an answer that was stored is found, and one that was not is made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

from a2a.types.a2a_pb2 import Message, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from msgspec.structs import replace

from tenuto.chat import ChatRequest, LiveTurn, LiveTurns, Reply, ReplyFinished
from tenuto.chat.request import ChatEvent, ToolStarted
from tenuto.errors import SessionBusy, TenutoError, TurnStopped, Unavailable
from tenuto.logs import describe_exception
from tenuto.model import Scope
from tenuto.model.generation import TextDelta
from tenuto.model.plan import TaskProgress
from tenuto.model.scope import owner_key
from tenuto.model.task import TaskError
from tenuto.server.a2a.records import LoadedTask, TaskRecords, TurnRecord
from tenuto.server.a2a.shapes import CANCELLED, artifact_update, make_artifact, status_update, to_task
from tenuto.task_errors import TaskFinished, TaskNotFound
from tenuto.tasks import Tasks

_log = logging.getLogger(__name__)
Event = Message | Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
_CANCELLED: Final = TaskError(code=CANCELLED, message="the task was cancelled")
_INTERNAL: Final = TaskError(code="internal", message="something went wrong here")
# Seconds between two attempts to begin a turn.
_PAUSE: Final = 0.25
# In the data of a reply: the agent that asks, and the task that the turn ran.
_ASKED, _TASK_ID = "asked", "task_id"


class Run:
    """A turn under way. `text` is what its events have told of the answer, `reply` the whole of it at the end."""

    def __init__(self, task_id: str, context: str) -> None:
        self.text = ""
        self.reply: str | None = None
        self.has_ended = False
        self.work: asyncio.Task[None] | None = None
        self._turn: LiveTurn | None = None
        self._stopped = False
        self._address = (task_id, context)
        # The last piece is held until it is known whether another follows.
        self._held = ""
        self._events: list[Event] = []
        self._news = asyncio.Event()

    @property
    def position(self) -> int:
        """How many events there were."""
        return len(self._events)

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """The events from a position on, as they happen."""
        while True:
            while after < len(self._events):
                after += 1
                yield self._events[after - 1]
            if self.has_ended:
                return
            await self._news.wait()

    def follow(self, turn: LiveTurn) -> AsyncIterator[tuple[int, ChatEvent]]:
        """The events of the turn that makes the answer.

        Raises:
            TurnStopped: the run was stopped before it.
        """
        if self._stopped:
            raise TurnStopped
        self._turn = turn
        return turn.events()

    async def stop(self) -> None:
        """End the turn; what was said so far is its answer."""
        self._stopped = True
        if self._turn is not None:
            await self._turn.stop()
        if self.work is not None:
            await asyncio.wait([self.work])

    def emit(self, event: Event) -> None:
        """Tell all that follow."""
        self._events.append(event)
        self._wake()

    def end(self, event: Event | None = None) -> None:
        """Tell the last event; no other follows."""
        if event is not None and not self.has_ended:
            self._events.append(event)
        self.has_ended = True
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def say(self, text: str) -> None:
        """A piece of the answer."""
        if self._held:
            self._tell(self._held)
        self._held = text

    def start_over(self) -> None:
        """The answer begins anew, after a tool."""
        self.text = self._held = ""

    def conclude(self, reply: Reply) -> None:
        """Tell the rest of the answer; or all of it, where what was told differs from it."""
        self.reply = reply.text
        if self.text + self._held == reply.text:
            self._tell(self._held, reply.data, last=True)
        else:
            self.start_over()
            self._tell(reply.text, reply.data, last=True)

    def _tell(self, text: str, data: Any = None, *, last: bool = False) -> None:
        piece = make_artifact(text, data)
        self.emit(artifact_update(*self._address, piece, append=bool(self.text), last=last))
        self.text += text


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
        return None if run is None or run.has_ended else run

    def start(self, scope: Scope, loaded: LoadedTask, *, again: bool = False) -> Run:
        """Run the turn of a task, unless it is under way here. With `again` it may be so in another process, which is
        left to it.

        Raises:
            Unavailable: the server stops.
        """
        if self._closed:
            raise Unavailable("server", "stops")
        task, key = loaded.task, (owner_key(scope), loaded.task.id)
        run = self.find(scope, task.id)
        if run is None:
            run = self._runs[key] = Run(task.id, task.session_id or "")
            run.work = work = asyncio.create_task(self._work(run, scope, loaded, again), name="tenuto a2a turn")
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
        else:
            kept = loaded.record.to_json() if loaded.record is not None else None
            await self._tasks.finish(scope, loaded.task.id, failed=True, result=kept, error=_CANCELLED)

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
            except SessionBusy:
                return
            except TurnStopped:
                await self._fail(run, scope, loaded, _CANCELLED)
            except TenutoError as error:
                await self._fail(run, scope, loaded, TaskError(code=error.code, message=str(error)))
            else:
                await self._store(run, scope, replace(loaded, record=_after(record, reply)), reply)
        except (TaskFinished, TaskNotFound):
            _log.info("task %s ended before its turn", task.id)
        except Unavailable as away:
            _log.warning("the end of task %s is not stored; it is run again when it is asked for: %s", task.id, away)
        except Exception as failed:
            _log.error("the turn of task %s failed: %s", task.id, describe_exception(failed))
            await self._fail(run, scope, loaded, _INTERNAL)
        finally:
            run.end()

    async def _take_turn(self, run: Run, scope: Scope, loaded: LoadedTask, record: TurnRecord, again: bool) -> Reply:
        key = f"a2a-{loaded.task.id}-{record.number}"
        request = ChatRequest(
            text=await self._records.whole_text(scope, loaded.task.id, record),
            session_id=loaded.task.session_id,
            assistant=record.assistant,
            persona=record.persona,
            idempotency_key=key,
            fingerprint=key,
        )
        while True:
            try:
                async for _, event in run.follow(self._live.start(scope, request)):
                    if isinstance(event, TextDelta):
                        run.say(event.text)
                    elif isinstance(event, ToolStarted):
                        run.start_over()
                    elif isinstance(event, ReplyFinished):
                        return event.reply
            except SessionBusy:
                if again:
                    raise
                # Another turn of the context goes first, however long it takes.
                await asyncio.sleep(_PAUSE)

    async def _store(self, run: Run, scope: Scope, loaded: LoadedTask, reply: Reply) -> None:
        """Note the end of the turn, then tell it."""
        task, record = loaded.task, loaded.record
        assert record is not None
        if reply.stopped:
            await self._fail(run, scope, loaded, _CANCELLED, reply)
            return
        if record.waits:
            await self._records.write(scope, task.id, record, if_version=loaded.version)
            run.reply = reply.text
        else:
            task = await self._tasks.finish(scope, task.id, result=record.to_json())
            run.conclude(reply)
        run.end(status_update(to_task(replace(loaded, progress=TaskProgress(task=task)), reply.text)))

    async def _fail(
        self, run: Run, scope: Scope, loaded: LoadedTask, error: TaskError, partial: Reply | None = None
    ) -> None:
        kept = loaded.record.to_json() if loaded.record is not None else None
        task = await self._tasks.finish(scope, loaded.task.id, failed=True, result=kept, error=error)
        if partial is not None:
            run.conclude(partial)
        run.end(status_update(to_task(replace(loaded, progress=TaskProgress(task=task)))))


def _after(record: TurnRecord, reply: Reply) -> TurnRecord:
    """The record once a turn has ended."""
    stored, inner = reply.turn > 0 and "store" not in reply.degraded, reply.data.get(_TASK_ID)
    return replace(
        record,
        text="",
        rest=(),
        turns=(*record.turns, reply.turn) if stored else record.turns,
        waits=bool(reply.data.get(_ASKED)),
        inner=(*record.inner, inner) if isinstance(inner, str) else record.inner,
        reply="" if stored else reply.text,
    )
