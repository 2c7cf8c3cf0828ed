"""Webhooks: the events of tasks for one address of the operator, signed as Standard Webhooks describe.

An event is sent until the address accepts it, so it may arrive twice, each time with the same `webhook-id`; those of a
task arrive in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from datetime import datetime
from hashlib import blake2b
from typing import Final

import httpx
import msgspec

from tenuto.errors import Unavailable
from tenuto.logs import bind_log_context
from tenuto.model import Scope
from tenuto.model.signature import signed_headers
from tenuto.model.task import Task, TaskEvent, TaskEventType
from tenuto.pauses import Backoff
from tenuto.ports import Clock
from tenuto.task_errors import TaskNotFound
from tenuto.tasks.service import Tasks
from tenuto.tasks.timeline import POLL

_log = logging.getLogger(__name__)
_WHAT: Final = "task webhook"
_TIMEOUT_SECONDS: Final = 10.0
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 300.0
# An event that was refused for this long is given up, so that those after it arrive.
_GIVE_UP_SECONDS: Final = 24 * 3600.0
# The time between two looks at a task that waits, for a person perhaps.
_LONGEST_LOOK: Final = 5.0
_TRY_AGAIN: Final = (408, 425, 429)


class Webhook:
    """One address, and the key that signs what is sent to it."""

    def __init__(self, url: str, key: bytes, *, clock: Clock) -> None:
        self._url = url
        self._key = key
        self._clock = clock
        # Neither through a proxy, nor after a redirect: events go to the configured address only.
        self._client = httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False, follow_redirects=False)

    async def send(self, scope: Scope, task: Task, event: TaskEvent) -> bool:
        """Send an event; returns whether it was accepted, or refused for good.

        Raises:
            Unavailable: it may be accepted later.
        """
        body = msgspec.json.encode(_payload(scope, task, event))
        try:
            answer = await self._client.post(self._url, content=body, headers=self._headers(task, event, body))
        except (httpx.HTTPError, httpx.InvalidURL, OSError):
            raise Unavailable(_WHAT) from None
        if answer.is_server_error or answer.status_code in _TRY_AGAIN:
            raise Unavailable(_WHAT, f"answered with the status {answer.status_code}")
        if not answer.is_success:
            _log.warning("the task webhook refused %s with the status %s", event.type, answer.status_code)
        return answer.is_success

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _headers(self, task: Task, event: TaskEvent, body: bytes) -> dict[str, str]:
        name = "evt_" + blake2b(f"{task.id} {event.id}".encode(), digest_size=16).hexdigest()
        return signed_headers(self._key, name, self._clock(), body)


class EventDelivery:
    """Sends the events of runs of tasks, each at least once."""

    def __init__(self, *, tasks: Tasks, webhook: Webhook) -> None:
        self._tasks = tasks
        self._webhook = webhook

    async def send_new(self, scope: Scope, task_id: str, run: int, event_ids: Collection[str]) -> list[str]:
        """Wait for events of a run that were not sent, send them, and return their ids; none when all are sent."""
        backoff = Backoff(POLL, _LONGEST_LOOK)
        with bind_log_context(task=task_id):
            while True:
                try:
                    task = await self._tasks.get(scope, task_id)
                    events = _of_run(task, await self._tasks.events(scope, task_id), run)
                except TaskNotFound:
                    return []
                except Unavailable:
                    await asyncio.sleep(_FIRST_PAUSE)
                    continue
                new = [event for event in events if event.id not in event_ids]
                if not new and (task.is_finished or task.runs > run):
                    return []
                for event in new:
                    await self._send(scope, task, event)
                if new:
                    return [event.id for event in new]
                await backoff.wait()

    async def _send(self, scope: Scope, task: Task, event: TaskEvent) -> None:
        waited_seconds, backoff = 0.0, Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while waited_seconds < _GIVE_UP_SECONDS:
            try:
                await self._webhook.send(scope, task, event)
            except Unavailable as error:
                pause = backoff.next_pause()
                _log.info("%s; %s is sent again in %.0f s", error, event.type, pause)
            else:
                return
            await asyncio.sleep(pause)
            waited_seconds += pause
        _log.warning("the task webhook did not accept %s for a day", event.type)


def _of_run(task: Task, events: tuple[TaskEvent, ...], run: int) -> list[TaskEvent]:
    """The events of a run: of the first one all, of a later one those since it began."""
    if run == 1 or task.runs != run:
        return [*events] if run == 1 else []
    first_start = next((event.id for event in events if event.type is TaskEventType.TASK_STARTED), "")
    return [event for event in events if event.id >= first_start]


def _payload(scope: Scope, task: Task, event: TaskEvent) -> dict[str, object]:
    fields = {name: value for name, value in msgspec.structs.asdict(event).items() if value is not None}
    del fields["type"], fields["at"]
    owner = {"tenant_id": scope.tenant, "site_id": scope.site or None, "user_id": scope.user}
    about = {"task_id": task.id, "task_type": task.type, "session_id": task.session_id}
    owner_fields = {name: value for name, value in {**about, **owner}.items() if value is not None}
    return {"type": event.type, "timestamp": _instant(event.at), "data": {**owner_fields, "event": fields}}


def _instant(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
