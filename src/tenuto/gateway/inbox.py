"""The messages that wait for their turn, in the store: each is accepted once, and leaves when it is answered.

A chat has one queue, a value that is changed by compare-and-set. A message is recognised by its id and its event's id:
in the queue, or among the marks of those that have left it, which are set before they leave. A process that reads the
queue, then the marks, and then replaces the queue it has read, accepts no message twice.

A worker holds a queue for some seconds at a time, and no longer than its process lives. Where clocks differ, two may
hold it: both would take the same turn, by its idempotency key, and send the same reply, which the platform recognises.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from tenuto.errors import QueueFull, StateCorrupt, VersionConflict
from tenuto.holder import is_holder_gone
from tenuto.model import Scope, StateEntry
from tenuto.model.channel import ChannelPolicy, IncomingMessage
from tenuto.model.scope import SYSTEM
from tenuto.model.values import Value
from tenuto.ports import Clock, StateStore
from tenuto.sessions import derived_id

HELD_FOR: Final = timedelta(seconds=15)
"""How long a worker holds a queue that it does not hold again."""
_PAGE: Final = 100
# Queues and marks are state of their tenants; which queues are busy, and whose, is known to the installation.
_QUEUES: Final = "channel-queues"
_SEEN: Final = "channel-seen"
_BUSY: Final = "channel-busy"
_TENANTS: Final = "channel-tenants"


class Waiting(Value, frozen=True, kw_only=True):
    """A message in a queue.

    Its turn began in the `epoch` of the queue, `None` if it has not begun; its progress is `shown` under that id.
    """

    message: IncomingMessage
    received_at: datetime
    epoch: int | None = None
    shown: str | None = None


class Queue(Value, frozen=True, kw_only=True):
    """What waits in a chat, oldest first. Each reset begins a new epoch, in which older turns are lost."""

    waiting: tuple[Waiting, ...] = ()
    epoch: int = 0
    worker: str = ""
    held_until: datetime | None = None

    def find(self, message_id: str) -> Waiting | None:
        """The message of that id."""
        return next((one for one in self.waiting if one.message.id == message_id), None)


class QueuePlace(Value, frozen=True, kw_only=True):
    """A queue, of a tenant."""

    tenant: str
    key: str


class Inbox:
    """The queues of one app."""

    def __init__(self, *, state: StateStore, app: str, policy: ChannelPolicy, clock: Clock) -> None:
        self._app = app
        self._known_tenants: set[str] = set()
        self._state = state
        self._policy = policy
        self._clock = clock

    async def put(self, place: QueuePlace, waiting: Waiting) -> bool:
        """Accept a message; false if it was accepted before.

        Raises:
            QueueFull: as many as may wait already.
        """
        message = waiting.message
        while True:
            queue, version = await self._read(place)
            if any(one.message.id == message.id or one.message.event_id == message.event_id for one in queue.waiting):
                # The process that accepted it may have died before it could say so.
                await self._mark_busy(place)
                return False
            if await self._was_seen(place.tenant, message):
                return False
            if len(queue.waiting) >= self._policy.max_waiting:
                raise QueueFull(self._policy.max_waiting)
            if await self._replace(place, replace(queue, waiting=(*queue.waiting, waiting)), version):
                await self._mark_busy(place)
                return True

    async def change(self, place: QueuePlace, change: Callable[[Queue], Queue]) -> Queue:
        """Replace a queue by what `change` makes of it; called again if another process was faster."""
        while True:
            queue, version = await self._read(place)
            changed = change(queue)
            if changed == queue or await self._replace(place, changed, version):
                return changed

    async def hold(self, place: QueuePlace, worker: str) -> Queue | None:
        """Hold a queue, or go on holding it; `None` if another worker does, or if nothing waits: then it is let go."""

        def take(queue: Queue) -> Queue:
            if self._is_held(queue, worker):
                return queue
            if not queue.waiting:
                return replace(queue, worker="", held_until=None)
            return replace(queue, worker=worker, held_until=self._clock() + HELD_FOR)

        queue = await self.change(place, take)
        if queue.worker == worker:
            return queue
        if not queue.waiting:
            await self._unmark_busy(place)
        return None

    def _is_held(self, queue: Queue, worker: str) -> bool:
        """Whether another worker holds it, that may be alive."""
        until = queue.held_until
        if queue.worker in ("", worker) or until is None or until <= self._clock():
            return False
        return not is_holder_gone(queue.worker)

    async def release(self, place: QueuePlace, worker: str) -> None:
        """Let another worker hold a queue at once, as when this process ends."""
        await self.change(
            place, lambda queue: replace(queue, worker="", held_until=None) if queue.worker == worker else queue
        )

    async def remove(self, place: QueuePlace, message: IncomingMessage) -> None:
        """Take a message that is done out of its queue, and recognise it from now on."""
        now = self._clock().timestamp()
        for key in self._mark_keys(message):
            await self._state.write_state(Scope(tenant=place.tenant), _SEEN, key, now)
        await self.change(
            place,
            lambda queue: replace(queue, waiting=tuple([one for one in queue.waiting if one.message.id != message.id])),
        )

    async def busy(self) -> Sequence[QueuePlace]:
        """The queues in which something may wait, of all tenants."""
        return [place async for app, place in _busy_queues(self._state) if app == self._app]

    async def forget_old_marks(self) -> int:
        """Remove marks of messages that no platform delivers again; returns their number."""
        oldest, removed = (self._clock() - self._policy.remember_events).timestamp(), 0
        async for tenant in _list(self._state, SYSTEM, _TENANTS):
            scope = Scope(tenant=tenant.value)
            async for mark in _list(self._state, scope, _SEEN):
                if mark.value < oldest:
                    removed += await self._state.delete_state(scope, _SEEN, mark.key)
        return removed

    async def remove_sender(self, place: QueuePlace, sender: str) -> int:
        """Remove what a sender wrote that still waits; returns the number of messages."""
        queue, _ = await self._read(place)
        own = [one.message for one in queue.waiting if one.message.sender == sender]
        for message in own:
            await self.remove(place, message)
        return len(own)

    async def _was_seen(self, tenant: str, message: IncomingMessage) -> bool:
        scope = Scope(tenant=tenant)
        for key in self._mark_keys(message):
            if await self._state.read_state(scope, _SEEN, key) is not None:
                return True
        return False

    def _mark_keys(self, message: IncomingMessage) -> tuple[str, str]:
        """Platforms may number messages and events alike, so a mark names what it is of."""
        ids = (("message", message.id), ("event", message.event_id))
        first, second = (derived_id("", self._app, kind, one) for kind, one in ids)
        return first, second

    async def _mark_busy(self, place: QueuePlace) -> None:
        if place.tenant not in self._known_tenants:
            await self._state.write_state(SYSTEM, _TENANTS, derived_id("", place.tenant), place.tenant)
            self._known_tenants.add(place.tenant)
        value = {"app": self._app, "tenant": place.tenant, "key": place.key}
        await self._state.write_state(SYSTEM, _BUSY, derived_id("", place.tenant, place.key), value)

    async def _unmark_busy(self, place: QueuePlace) -> None:
        await self._state.delete_state(SYSTEM, _BUSY, derived_id("", place.tenant, place.key))
        # Another process may have put a message in just before.
        if (await self._read(place))[0].waiting:
            await self._mark_busy(place)

    async def _read(self, place: QueuePlace) -> tuple[Queue, int]:
        entry = await self._state.read_state(Scope(tenant=place.tenant), _QUEUES, place.key)
        if entry is None:
            return Queue(), 0
        try:
            return msgspec.convert(entry.value, Queue), entry.version
        except msgspec.ValidationError as unfit:
            raise StateCorrupt("queue of a chat", "cannot be decoded") from unfit

    async def _replace(self, place: QueuePlace, queue: Queue, version: int) -> bool:
        """Store a queue if it is still as it was read; each failure is another process' success."""
        scope, value = Scope(tenant=place.tenant), msgspec.to_builtins(queue)
        try:
            await self._state.write_state(scope, _QUEUES, place.key, value, version)
        except VersionConflict:
            await asyncio.sleep(random.uniform(0, 0.01))
            return False
        return True


async def erase_waiting(state: StateStore, scope: Scope, clock: Clock) -> int:
    """Remove the messages of a user that wait in any queue of the tenant; returns their number."""
    removed = 0
    async for app, place in _busy_queues(state):
        if place.tenant == scope.tenant and scope.user is not None:
            inbox = Inbox(state=state, app=app, policy=ChannelPolicy(), clock=clock)
            removed += await inbox.remove_sender(place, scope.user)
    return removed


async def _busy_queues(state: StateStore) -> AsyncIterator[tuple[str, QueuePlace]]:
    async for entry in _list(state, SYSTEM, _BUSY):
        yield entry.value["app"], QueuePlace(tenant=entry.value["tenant"], key=entry.value["key"])


async def _list(state: StateStore, scope: Scope, namespace: str) -> AsyncIterator[StateEntry]:
    after = ""
    while page := await state.list_state(scope, namespace, after, _PAGE):
        for entry in page:
            yield entry
        after = page[-1].key
