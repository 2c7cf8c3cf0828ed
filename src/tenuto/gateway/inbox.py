"""The messages that wait for their turn, in the store: each is accepted once, and leaves when it is answered.

A chat has one queue, a value that is changed by compare-and-set; the messages themselves stand beside it. A message is
recognised by its id and its event's id: in the queue, or among the marks of those that have left it, which are set
before they leave. A process that reads the queue, then the marks, and then replaces the queue it has read, accepts no
message twice.

A worker holds a queue for some seconds at a time, and no longer than its process lives. Where clocks differ, two may
hold it: both would take the same turn, by its idempotency key, and send the same reply, which the platform recognises.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from tenuto.compare_and_set import retry_on_conflict, update_state
from tenuto.errors import QueueFull, StateCorrupt
from tenuto.lru_cache import LruCache
from tenuto.model import Scope, StateEntry
from tenuto.model.channel import ChannelPolicy, IncomingMessage
from tenuto.model.scope import SYSTEM
from tenuto.model.values import Json, Value
from tenuto.ports import Clock, StateStore
from tenuto.process_identity import is_holder_gone
from tenuto.sessions import derived_id

HELD_FOR: Final = timedelta(seconds=15)
"""How long a worker holds a queue that it does not hold again."""
_PAGE: Final = 100
# Tenants that are known to be listed; one that is not is listed again.
_MOST_TENANTS: Final = 10_000
# Queues, messages and marks are state of their tenants; which queues are busy, and whose, is known to the installation.
_QUEUES: Final = "channel-queues"
_MESSAGES: Final = "channel-messages"
_SEEN: Final = "channel-seen"
_BUSY: Final = "channel-busy"
_TENANTS: Final = "channel-tenants"
_T = TypeVar("_T", bound=Value)
_log = logging.getLogger(__name__)


class Waiting(Value, frozen=True, kw_only=True):
    """A message's place in a queue, without its text.

    It was received in the `epoch` of the queue. One that `resets` goes first, and is accepted beyond the limit. A turn
    began at `begun_at`, in the epoch `begun_in`; its progress stands in the card `card_id`.
    """

    id: str
    event_id: str
    sender: str
    received_at: datetime
    epoch: int = 0
    resets: bool = False
    begun_at: datetime | None = None
    begun_in: int = 0
    card_id: str | None = None


class Queue(Value, frozen=True, kw_only=True):
    """What waits in a chat, oldest first. Each reset begins a new epoch, in which older turns are lost.

    What others wrote in a group before `context_since`, the time of the last reset there, is no context.
    """

    waiting: tuple[Waiting, ...] = ()
    epoch: int = 0
    context_since: datetime | None = None
    worker: str = ""
    held_until: datetime | None = None

    def next(self) -> Waiting | None:
        """What is worked on: a reset first, so that it ends a turn that runs, then the oldest message."""
        return next((one for one in self.waiting if one.resets), self.waiting[0] if self.waiting else None)

    def with_entry(self, message_id: str, **changes: Json) -> Queue:
        """The queue with a changed entry; as it was if there is none."""
        entries = [replace(one, **changes) if one.id == message_id else one for one in self.waiting]
        return replace(self, waiting=tuple(entries))


class QueuePlace(Value, frozen=True, kw_only=True):
    """A queue, of a tenant."""

    tenant: str
    key: str

    @property
    def scope(self) -> Scope:
        """The scope of the queue's state."""
        return Scope(tenant=self.tenant)


class Inbox:
    """The queues of one app."""

    def __init__(self, *, state: StateStore, app: str, policy: ChannelPolicy, clock: Clock) -> None:
        self._app = app
        self._known_tenants = LruCache[str, bool](_MOST_TENANTS)
        self._state = state
        self._policy = policy
        self._clock = clock

    async def put(self, place: QueuePlace, message: IncomingMessage, *, resets: bool = False) -> bool:
        """Accept a message; false if it was accepted before.

        Raises:
            QueueFull: as many as may wait already.
        """
        entry = Waiting(
            id=message.id, event_id=message.event_id, sender=message.sender, received_at=self._clock(), resets=resets
        )
        has_text = False

        async def attempt() -> bool:
            nonlocal has_text
            queue, version = await self._read(place)
            if any(one.id == entry.id or one.event_id == entry.event_id for one in queue.waiting):
                # The process that accepted it may have died before it could say so.
                await self._mark_busy(place)
                return False
            if await self._was_seen(place, entry):
                if has_text:
                    # Another process has accepted and answered it meanwhile.
                    await self._state.delete_state(place.scope, _MESSAGES, self._message_key(entry.id))
                return False
            if len(queue.waiting) >= self._policy.max_waiting and not resets:
                raise QueueFull(self._policy.max_waiting)
            if not has_text:
                value = msgspec.to_builtins(message)
                await self._state.write_state(place.scope, _MESSAGES, self._message_key(entry.id), value)
                has_text = True
            longer = replace(queue, waiting=(*queue.waiting, replace(entry, epoch=queue.epoch)))
            await self._state.write_state(place.scope, _QUEUES, place.key, msgspec.to_builtins(longer), version)
            await self._mark_busy(place)
            return True

        return await retry_on_conflict(attempt)

    async def read(self, place: QueuePlace, entry: Waiting) -> IncomingMessage | None:
        """The message of an entry; `None` if it is done, and only its place is left."""
        state = await self._state.read_state(place.scope, _MESSAGES, self._message_key(entry.id))
        return _decode(state.value, IncomingMessage) if state is not None else None

    async def change(self, place: QueuePlace, change: Callable[[Queue], Queue]) -> Queue:
        """Replace a queue by what `change` makes of it; called again if another process was faster."""
        update = await update_state(
            *(self._state, place.scope, _QUEUES, place.key, _decode_queue),
            lambda queue: after if (after := change(queue)) != queue else None,
        )
        return update.after

    async def hold(self, place: QueuePlace, worker: str) -> Queue | None:
        """Hold a queue, or go on holding it; `None` if another worker does, or if nothing waits: then it is let go."""

        def claim(queue: Queue) -> Queue:
            if self._is_held(queue, worker):
                return queue
            if not queue.waiting:
                return replace(queue, worker="", held_until=None)
            return replace(queue, worker=worker, held_until=self._clock() + HELD_FOR)

        queue = await self.change(place, claim)
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

    async def remove(self, place: QueuePlace, entry: Waiting) -> None:
        """Take a message that is done out of its queue, and recognise it from now on."""
        expires = (self._clock() + self._policy.remember_events).timestamp()
        for key in self._mark_keys(entry):
            await self._state.write_state(place.scope, _SEEN, key, expires)
        await self._state.delete_state(place.scope, _MESSAGES, self._message_key(entry.id))
        await self.change(
            place, lambda queue: replace(queue, waiting=tuple([one for one in queue.waiting if one.id != entry.id]))
        )

    async def remove_sender(self, place: QueuePlace, sender: str) -> int:
        """Remove what a sender wrote that still waits; returns the number of messages."""
        queue, _ = await self._read(place)
        own = [one for one in queue.waiting if one.sender == sender]
        for entry in own:
            await self.remove(place, entry)
        return len(own)

    async def busy(self) -> Sequence[QueuePlace]:
        """The queues in which something may wait, of all tenants."""
        return [place async for app, place in _busy_queues(self._state) if app == self._app]

    async def forget_old_marks(self) -> int:
        """Remove marks of messages that no platform delivers again; returns their number."""
        now, count = self._clock().timestamp(), 0
        async for tenant in _list(self._state, SYSTEM, _TENANTS):
            scope = Scope(tenant=tenant.value)
            async for mark in _list(self._state, scope, _SEEN):
                if mark.value < now:
                    count += await self._state.delete_state(scope, _SEEN, mark.key)
        return count

    async def _was_seen(self, place: QueuePlace, entry: Waiting) -> bool:
        for key in self._mark_keys(entry):
            if await self._state.read_state(place.scope, _SEEN, key) is not None:
                return True
        return False

    def _mark_keys(self, entry: Waiting) -> tuple[str, str]:
        """Platforms may number messages and events alike, so a mark names what it is of."""
        return derived_id("", self._app, "message", entry.id), derived_id("", self._app, "event", entry.event_id)

    def _message_key(self, message_id: str) -> str:
        return derived_id("", self._app, message_id)

    async def _mark_busy(self, place: QueuePlace) -> None:
        if not self._known_tenants.get(place.tenant):
            await self._state.write_state(SYSTEM, _TENANTS, derived_id("", place.tenant), place.tenant)
            self._known_tenants.put(place.tenant, True)
        value = {"app": self._app, "tenant": place.tenant, "key": place.key}
        await self._state.write_state(SYSTEM, _BUSY, derived_id("", place.tenant, place.key), value)

    async def _unmark_busy(self, place: QueuePlace) -> None:
        await self._state.delete_state(SYSTEM, _BUSY, derived_id("", place.tenant, place.key))
        # Another process may have put a message in just before.
        if (await self._read(place))[0].waiting:
            await self._mark_busy(place)

    async def _read(self, place: QueuePlace) -> tuple[Queue, int]:
        entry = await self._state.read_state(place.scope, _QUEUES, place.key)
        return _decode_queue(entry), 0 if entry is None else entry.version


async def erase_waiting(state: StateStore, scope: Scope, clock: Clock) -> int:
    """Remove the messages of a user that wait in any queue of the tenant; returns their number."""
    count = 0
    async for app, place in _busy_queues(state):
        if place.tenant == scope.tenant and scope.user is not None:
            inbox = Inbox(state=state, app=app, policy=ChannelPolicy(), clock=clock)
            count += await inbox.remove_sender(place, scope.user)
    return count


async def _busy_queues(state: StateStore) -> AsyncIterator[tuple[str, QueuePlace]]:
    async for entry in _list(state, SYSTEM, _BUSY):
        match entry.value:
            case {"app": str(app), "tenant": str(tenant), "key": str(key)}:
                yield app, QueuePlace(tenant=tenant, key=key)
            case _:
                _log.error("the place of a queue cannot be decoded")


async def _list(state: StateStore, scope: Scope, namespace: str) -> AsyncIterator[StateEntry]:
    after = ""
    while page := await state.list_state(scope, namespace, after, _PAGE):
        for entry in page:
            yield entry
        after = page[-1].key


def _decode_queue(entry: StateEntry | None) -> Queue:
    return Queue() if entry is None else _decode(entry.value, Queue)


def _decode(value: Json, kind: type[_T]) -> _T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise StateCorrupt("queue of a chat", "cannot be decoded") from error
