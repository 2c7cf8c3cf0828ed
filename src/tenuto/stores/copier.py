"""Copies every record of one store into another, as it is stored.

Each record is compared with the one in the target and written if it differs, so a copy that was interrupted is resumed
by running it again, and a second run copies what has changed since. A marker in the target's own state says from where
it is being filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec

from tenuto.errors import Invalid
from tenuto.model.records import StoredHead, StoredState
from tenuto.model.scope import JOURNALS, SYSTEM, state_key
from tenuto.model.task import TaskStatus
from tenuto.model.values import JsonObject, Value
from tenuto.ports import Backend, Clock, utc_now

COPIES: Final = "copies"
"""The namespace of the target's own state that says from where it is being filled."""

# What belongs to a store rather than to its data: markers of copies, and which processes have a journal for it.
_OF_THE_STORE: Final = frozenset({state_key(SYSTEM, COPIES), state_key(SYSTEM, JOURNALS)})
_TASKS: Final = "tasks"
_UNFINISHED: Final = frozenset({TaskStatus.PENDING.value, TaskStatus.RUNNING.value})
# What one write carries: enough to be quick, little enough for one short transaction.
_SESSIONS_AT_ONCE: Final = 100
_MESSAGES_AT_ONCE: Final = 4000


class CopyPolicy(Value, frozen=True, kw_only=True):
    """How a target is filled.

    `merge` adds to a target that holds other data, `overwrite` replaces records that are newer there, `delete` removes
    what the source does not have.
    """

    merge: bool = False
    overwrite: bool = False
    delete: bool = False
    dry_run: bool = False


class CopyReport(msgspec.Struct, kw_only=True):
    """What a copy has done. `newer` names the records that were left because they are newer in the target."""

    sessions: int = 0
    messages: int = 0
    state: int = 0
    unchanged: int = 0
    deleted: int = 0
    unreadable: int = 0
    unfinished_tasks: int = 0
    writers: int = 0
    newer: list[str] = []


def live_heads(heads: Iterable[StoredHead], now: datetime) -> dict[bytes, StoredHead]:
    """Heads by key, without those that have expired: they exist for no caller, and are not copied."""
    return {head.key: head for head in heads if not head.session.expired(now)}


def own_records(records: Iterable[StoredState]) -> list[StoredState]:
    """State without that of the store itself."""
    return [record for record in records if record.place.drawer not in _OF_THE_STORE]


def batches(heads: Iterable[StoredHead]) -> Iterator[list[bytes]]:
    """Keys of sessions to read or write together."""
    keys: list[bytes] = []
    messages = 0
    for head in heads:
        keys.append(head.key)
        messages += head.session.messages
        if len(keys) == _SESSIONS_AT_ONCE or messages >= _MESSAGES_AT_ONCE:
            yield keys
            keys, messages = [], 0
    if keys:
        yield keys


def describe_session(head: StoredHead) -> str:
    """A session by its site and id."""
    return f"session {head.session.id} of {describe_site(head.session.scope.tenant, head.session.scope.site)}"


def describe_state(record: StoredState) -> str:
    """A value by its place; of the tenant's own, whose names are digests, by its drawer."""
    if record.scope is None:
        return f"state {record.place.key} in {record.place.drawer.hex()}"
    site = describe_site(record.scope.tenant, record.scope.site)
    return f"state {record.place.key} in {record.namespace} of {':'.join(record.scope.owner)} of {site}"


def describe_site(tenant: str, site: str) -> str:
    """A tenant's site."""
    return f"{tenant}/{site}" if site else tenant


class Copier:
    """Copies `source` into `target`; `name` identifies the source."""

    def __init__(
        self,
        source: Backend,
        target: Backend,
        *,
        name: str,
        policy: CopyPolicy,
        clock: Clock = utc_now,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._source = source
        self._target = target
        self._name = name
        self._policy = policy
        self._clock = clock
        self._on_progress = on_progress
        self._report = CopyReport()

    async def copy(self) -> CopyReport:
        """Fill the target.

        Raises:
            Invalid: the target holds other data, and the policy does not allow to add to it.
        """
        await self._begin()
        async for heads in self._source.bulk.iter_heads():
            await self._copy_sessions(heads)
        async for records in self._source.bulk.iter_state():
            await self._copy_state(records)
        self._report.unreadable += self._source.bulk.unreadable
        if self._policy.delete:
            await self._delete_surplus()
        self._report.writers = len(await self._source.state.state_keys(SYSTEM, JOURNALS))
        return self._report

    async def _begin(self) -> None:
        """Put the marker into the target, if it may be filled."""
        marker = await self._target.state.read_state(SYSTEM, COPIES, self._name)
        merged = self._policy.merge or (marker is not None and bool(marker.value.get("merged")))
        if marker is None and not self._policy.merge and not await self._is_empty():
            raise Invalid("the target holds other data: use an empty store, or --merge to add to it")
        if self._policy.delete and merged:
            raise Invalid("--delete would remove the other data of a target that was filled with --merge")
        if not self._policy.dry_run and (marker is None or merged != marker.value.get("merged")):
            value: JsonObject = {"began_at": self._clock().isoformat(), "merged": merged}
            await self._target.state.write_state(SYSTEM, COPIES, self._name, value)

    async def _is_empty(self) -> bool:
        async for heads in self._target.bulk.iter_heads():
            if heads:
                return False
        async for records in self._target.bulk.iter_state():
            if own_records(records):
                return False
        return True

    async def _copy_sessions(self, heads: Sequence[StoredHead]) -> None:
        live = live_heads(heads, self._clock())
        there = await self._target.bulk.read_heads(list(live))
        wanted = []
        for key, head in live.items():
            other = there.get(key)
            if other == head:
                self._report.unchanged += 1
            elif other is not None and not self._policy.overwrite and _is_newer_head(other, head):
                self._report.newer.append(describe_session(head))
            else:
                wanted.append(head)
        for keys in batches(wanted):
            await self._write_sessions(keys)

    async def _write_sessions(self, keys: Sequence[bytes]) -> None:
        records = await self._source.bulk.read_sessions(keys)
        if len(records) < len(keys):  # The rest was deleted meanwhile, or cannot be decoded.
            missing = [key for key in keys if key not in records]
            self._report.unreadable += len(await self._source.bulk.read_heads(missing))
        if records and not self._policy.dry_run:
            await self._target.bulk.write_sessions(list(records.values()))
        self._report.sessions += len(records)
        self._report.messages += sum(len(record.messages) for record in records.values())
        self._on_progress(self._report.messages)

    async def _copy_state(self, found: Sequence[StoredState]) -> None:
        records = own_records(found)
        self._report.unfinished_tasks += sum(map(_is_unfinished_task, records))
        there = await self._target.bulk.read_state(records)
        wanted = []
        for record in records:
            other = there.get(record.place)
            if other == record:
                self._report.unchanged += 1
            elif other is not None and not self._policy.overwrite and other.version > record.version:
                self._report.newer.append(describe_state(record))
            else:
                wanted.append(record)
        if wanted and not self._policy.dry_run:
            await self._target.bulk.write_state(wanted)
        self._report.state += len(wanted)

    async def _delete_surplus(self) -> None:
        """Remove what the source does not have; nothing if some of it cannot be read there."""
        if self._report.unreadable:
            raise Invalid("--delete removes nothing while records of the source cannot be read")
        async for heads in self._target.bulk.iter_heads():
            here = await self._source.bulk.read_heads([head.key for head in heads])
            surplus = [head for head in heads if head.key not in here]
            self._report.deleted += len(surplus)
            if surplus and not self._policy.dry_run:
                await self._target.bulk.delete_sessions(surplus)
        async for records in self._target.bulk.iter_state():
            values = await self._source.bulk.read_state(records)
            gone = [record for record in own_records(records) if record.place not in values]
            self._report.deleted += len(gone)
            if gone and not self._policy.dry_run:
                await self._target.bulk.delete_state(gone)


def _is_newer_head(there: StoredHead, here: StoredHead) -> bool:
    """Whether the target's session has gone on by itself: a server has begun to use it."""
    if there.session.incarnation == here.session.incarnation:
        return there.session.version > here.session.version
    return there.session.updated_at > here.session.updated_at


def _is_unfinished_task(record: StoredState) -> bool:
    """Whether a value is a task that has not ended; sealed ones cannot be told."""
    if record.namespace == _TASKS:
        with suppress(msgspec.DecodeError):
            value = msgspec.json.decode(record.value)
            return isinstance(value, dict) and value.get("status") in _UNFINISHED
    return False
