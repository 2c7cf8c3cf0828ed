"""`RemoteTasks`: tasks on a server, their boards and notes, and the plans that its workers run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tenuto.client.http import ApiCall, HttpClient, path
from tenuto.client.wire import refuse_unsent, value_from
from tenuto.model import Scope
from tenuto.model.task import (
    BoardChange,
    BoardEntry,
    BoardLock,
    BoardView,
    NewTask,
    Note,
    Task,
    TaskEvent,
    TaskPage,
    TaskQuery,
)
from tenuto.model.values import Json, JsonObject
from tenuto.sessions import fresh_id
from tenuto.task_errors import EntryNotFound

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class _TaskRoutes:
    """Requests about one task of a scope."""

    def __init__(self, http: HttpClient, scope: Scope, task_id: str) -> None:
        self._http = http
        self._scope = scope
        self._task_id = task_id

    def call(self, method: str, *further: str, about: Mapping[str, str] = _NOTHING, **options: Any) -> ApiCall:
        """A request."""
        return ApiCall(
            method, path("tasks", self._task_id, *further), about={"task_id": self._task_id, **about}, **options
        )

    async def json(self, call: ApiCall) -> JsonObject:
        """The answer."""
        return await self._http.json(self._scope, call)


class RemoteTasks:
    """The tasks of a server. With `submit` a plan is run by its workers, as `Tenuto.engine` does in a process."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    async def open(self, scope: Scope, new: NewTask, *, idempotency_key: str | None = None) -> Task:
        """Open a task, `pending` until an agent begins it."""
        return await self.submit(scope, new, None, idempotency_key=idempotency_key)

    async def submit(
        self, scope: Scope, new: NewTask, plan: JsonObject | None, *, idempotency_key: str | None = None
    ) -> Task:
        """Open a task and begin its plan, which is written as in a plan file; it goes on without the caller."""
        refuse_unsent(new, NewTask(type=new.type), "language")
        body = {"type": new.type, "goal": new.goal, "session_id": new.session_id, "plan": plan}
        headers = {"Idempotency-Key": idempotency_key or fresh_id()}
        about = {} if new.session_id is None else {"session_id": new.session_id}
        call = ApiCall("POST", path("tasks"), body, headers=headers, about=about, repeatable=True)
        return _task_from(await self._http.json(scope, call))

    async def get(self, scope: Scope, task_id: str) -> Task:
        """One task, without its board."""
        routes = self._task(scope, task_id)
        return _task_from(await routes.json(routes.call("GET", repeatable=True)))

    async def list(self, scope: Scope, query: TaskQuery | None = None) -> TaskPage:
        """The caller's tasks, oldest first."""
        parameters = msgspec.structs.asdict(query or TaskQuery())
        body = await self._http.json(scope, ApiCall("GET", path("tasks"), query=parameters, repeatable=True))
        return TaskPage(tasks=tuple(map(_task_from, body["tasks"])), cursor=body["cursor"])

    async def begin(self, scope: Scope, task_id: str, *, if_version: int | None = None) -> Task:
        """Begin a task."""
        return await self._change(scope, task_id, {"status": "running", "if_version": if_version})

    async def finish(
        self, scope: Scope, task_id: str, *, failed: bool = False, result: Json = None, if_version: int | None = None
    ) -> Task:
        """Finish a task; again in the same way has no effect."""
        status = "failed" if failed else "completed"
        return await self._change(scope, task_id, {"status": status, "result": result, "if_version": if_version})

    async def delete(self, scope: Scope, task_id: str, *, if_version: int | None = None) -> None:
        """Remove a task with its board and all notes."""
        routes = self._task(scope, task_id)
        headers = {} if if_version is None else {"If-Match": f'"{if_version}"'}
        await routes.json(routes.call("DELETE", headers=headers, repeatable=True, gone=True))

    async def cancel(self, scope: Scope, task_id: str) -> Task:
        """End a task as failed; its agents are cancelled. Again has no effect."""
        return await self._steer(scope, task_id, "cancel")

    async def resume(self, scope: Scope, task_id: str, *, from_step: str | None = None) -> Task:
        """Run an ended task again, from its failed steps or from a step on."""
        return await self._steer(scope, task_id, "resume", body={"from_step": from_step})

    async def answer(self, scope: Scope, task_id: str, step_id: str, value: Json) -> Task:
        """Answer a step that waits for a person; the same answer again has no effect."""
        return await self._steer(scope, task_id, "input", step_id, body={"value": value}, repeatable=True)

    async def events(self, scope: Scope, task_id: str) -> tuple[TaskEvent, ...]:
        """What happened to a task, in order of time."""
        routes = self._task(scope, task_id)
        body = await routes.json(routes.call("GET", "timeline", repeatable=True))
        return tuple(value_from(event, TaskEvent) for event in body["events"])

    async def watch(self, scope: Scope, task_id: str, *, after: str | None = None) -> AsyncIterator[TaskEvent]:
        """The same as it happens, each event once, until the task ends.

        Raises:
            Unavailable: the connection was lost; `after` the last event's id continues.
        """
        headers = {} if after is None else {"Last-Event-ID": after}
        call = self._task(scope, task_id).call("GET", "events", headers=headers, repeatable=True)
        async with aclosing(self._http.events(scope, call)) as events:
            async for event in events:
                yield value_from(msgspec.json.decode(event.data), TaskEvent)

    def board(self, scope: Scope, task_id: str) -> RemoteBoard:
        """The board of a task."""
        return RemoteBoard(self._task(scope, task_id))

    def notes(self, scope: Scope, task_id: str, agent: str) -> RemoteNotes:
        """The notes of one agent on a task."""
        return RemoteNotes(self._task(scope, task_id), agent)

    def _task(self, scope: Scope, task_id: str) -> _TaskRoutes:
        return _TaskRoutes(self._http, scope, task_id)

    async def _change(self, scope: Scope, task_id: str, body: JsonObject) -> Task:
        routes = self._task(scope, task_id)
        return _task_from(await routes.json(routes.call("PATCH", body=body, repeatable=body["if_version"] is None)))

    async def _steer(self, scope: Scope, task_id: str, *further: str, **options: Any) -> Task:
        routes = self._task(scope, task_id)
        return _task_from(await routes.json(routes.call("POST", *further, **options)))


class RemoteBoard:
    """What stands on a task's board; its writers name themselves."""

    def __init__(self, routes: _TaskRoutes) -> None:
        self._routes = routes

    async def read_entry(self, key: str) -> BoardEntry | None:
        """The entry of a key, `None` if nothing does."""
        try:
            return value_from(await self._entry("GET", key, repeatable=True), BoardEntry)
        except EntryNotFound:
            return None

    async def view(self) -> BoardView:
        """The whole board. Tokens of locks are for their holders alone and are 0 here."""
        body = await self._routes.json(self._routes.call("GET", "board", repeatable=True))
        locks = tuple(value_from(lock, BoardLock, token=0) for lock in body["locks"])
        return BoardView(entries=tuple(value_from(one, BoardEntry) for one in body["entries"]), locks=locks)

    async def history(self, key: str) -> tuple[BoardChange, ...]:
        """Who wrote or deleted a key, without the values."""
        body = await self._entry("GET", key, "history", repeatable=True)
        return tuple(value_from(change, BoardChange) for change in body["changes"])

    async def write(
        self, key: str, value: Json, *, agent: str, if_version: int | None = None, token: int | None = None
    ) -> BoardEntry:
        """Set the value of a key. `if_version=0` requires that it has none."""
        body = {"value": value, "agent": agent, "if_version": if_version, "token": token}
        return value_from(await self._entry("PUT", key, body=body, repeatable=if_version is None), BoardEntry)

    async def append(
        self, key: str, item: Json, *, agent: str, token: int | None = None, idempotency_key: str | None = None
    ) -> BoardEntry:
        """Add an item to the end of a key's list."""
        return await self._add(key, "append", {"item": item, "agent": agent, "token": token}, idempotency_key)

    async def increment(
        self, key: str, by: float = 1, *, agent: str, token: int | None = None, idempotency_key: str | None = None
    ) -> BoardEntry:
        """Add to the number of a key."""
        return await self._add(key, "increment", {"by": by, "agent": agent, "token": token}, idempotency_key)

    async def delete(self, key: str, *, agent: str, if_version: int | None = None, token: int | None = None) -> None:
        """Delete the value of a key."""
        headers = {"Tenuto-Agent": agent} | ({} if if_version is None else {"If-Match": f'"{if_version}"'})
        await self._entry("DELETE", key, headers=headers, query={"token": token}, repeatable=if_version is None)

    async def lock(
        self, key: str, *, agent: str, lease: timedelta | None = None, token: int | None = None
    ) -> BoardLock:
        """Lock a key until the lease ends, or renew the lock of this token."""
        seconds = None if lease is None else lease.total_seconds()
        body = {"agent": agent, "seconds": seconds, "token": token}
        call = self._routes.call("POST", "locks", key, body=body, about={"key": key}, repeatable=True)
        return value_from(await self._routes.json(call), BoardLock)

    async def unlock(self, key: str, *, agent: str, token: int) -> None:
        """Release a lock."""
        headers, about = {"Tenuto-Agent": agent}, {"key": key}
        await self._routes.json(
            self._routes.call("DELETE", "locks", key, headers=headers, query={"token": token}, about=about)
        )

    async def _add(self, key: str, action: str, body: JsonObject, idempotency_key: str | None) -> BoardEntry:
        headers = {"Idempotency-Key": idempotency_key or fresh_id()}
        return value_from(
            await self._entry("POST", key, action, body=body, headers=headers, repeatable=True), BoardEntry
        )

    async def _entry(self, method: str, key: str, *further: str, **options: Any) -> JsonObject:
        return await self._routes.json(self._routes.call(method, "board", key, *further, about={"key": key}, **options))


class RemoteNotes:
    """What one agent keeps to itself on a task."""

    def __init__(self, routes: _TaskRoutes, agent: str) -> None:
        self._routes = routes
        self._agent = agent

    async def read_entry(self, key: str) -> Note | None:
        """One note, `None` if there is none."""
        try:
            return value_from(await self._note("GET", key), Note)
        except EntryNotFound:
            return None

    async def list(self) -> tuple[Note, ...]:
        """All notes of this agent, in order of their keys."""
        return tuple(value_from(note, Note) for note in (await self._note("GET"))["notes"])

    async def write(self, key: str, value: Json, *, if_version: int | None = None) -> Note:
        """Set a note and renew its expiry."""
        body = {"value": value, "if_version": if_version}
        return value_from(await self._note("PUT", key, body=body, repeatable=if_version is None), Note)

    async def delete(self, key: str, *, if_version: int | None = None) -> None:
        """Delete a note."""
        headers = {} if if_version is None else {"If-Match": f'"{if_version}"'}
        await self._note("DELETE", key, headers=headers, repeatable=if_version is None)

    async def _note(self, method: str, *further: str, **options: Any) -> JsonObject:
        headers = {"Tenuto-Agent": self._agent, **options.pop("headers", {})}
        about = {"key": further[0]} if further else {}
        options.setdefault("repeatable", True)
        call = self._routes.call(
            method, "agents", self._agent, "notes", *further, headers=headers, about=about, **options
        )
        return await self._routes.json(call)


def _task_from(body: JsonObject) -> Task:
    # Required of a task, and null where there is none.
    nullable = {name: body[name] for name in ("session_id", "result", "completed_at")}
    return value_from(body, Task, **nullable)
