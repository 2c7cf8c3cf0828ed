"""Copies every record of one store into another, as it is stored.

Each record is compared with the one in the target and written if it differs, so a copy that was interrupted is resumed
by running it again, and a second run copies what has changed since. A marker in the target's own state says from where
it is being filled, and a baseline which records were written: those that were changed there since are left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from tenuto.errors import Invalid
from tenuto.model.privacy import KEYS_ENTRY, KEYS_NAMESPACE, TENANTS_NAMESPACE
from tenuto.model.records import StatePlace, StoredHead, StoredState
from tenuto.model.scope import JOURNALS, SYSTEM, Scope, owner_key, site_key, state_key
from tenuto.ports import Backend, Clock, utc_now
from tenuto.stores.baseline import Baseline, is_current, record_id
from tenuto.stores.copy_reports import (
    COPIES,
    MESSAGES_AT_ONCE,
    SESSIONS_AT_ONCE,
    TASKS,
    UNFINISHED,
    CopyMarker,
    CopyPolicy,
    CopyReport,
    describe_site,
)

R = TypeVar("R", StoredHead, StoredState)
# What belongs to a store rather than to its data: markers of copies, and which processes have a journal for it.
_OF_THE_STORE: Final = frozenset({state_key(SYSTEM, COPIES), state_key(SYSTEM, JOURNALS)})


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
        if len(keys) == SESSIONS_AT_ONCE or messages >= MESSAGES_AT_ONCE:
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
        self._seen = 0
        self._marker = CopyMarker()
        self._baseline = Baseline(target, name=name, run=1)

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
        most = self._seen if self._policy.delete else max(self._seen, self._marker.records)
        await self._write_marker(replace(self._marker, done=True, records=most))
        return self._report

    async def _begin(self) -> None:
        """Put the marker into the target, if it may be filled."""
        entry = await self._target.state.read_state(SYSTEM, COPIES, self._name)
        former = CopyMarker(run=0, done=True) if entry is None else msgspec.convert(entry.value, CopyMarker)
        merged = self._policy.merge or former.merged
        if entry is None and not self._policy.merge and not await self._is_empty():
            raise Invalid("the target holds other data: use an empty store, or --merge to add to it")
        if self._policy.delete and merged:
            raise Invalid("--delete would remove the other data of a target that was filled with --merge")
        self._marker = replace(former, merged=merged, run=former.run + former.done, done=False)
        self._baseline = Baseline(self._target, name=self._name, run=self._marker.run)
        await self._check_data_keys()
        await self._write_marker(self._marker)

    async def _write_marker(self, marker: CopyMarker) -> None:
        if not self._policy.dry_run:
            await self._target.state.write_state(SYSTEM, COPIES, self._name, msgspec.to_builtins(marker))

    async def _check_data_keys(self) -> None:
        """Refuse tenants that have other data keys in the target: either side's text would become unreadable."""
        after = ""
        while page := await self._source.state.state_keys(SYSTEM, TENANTS_NAMESPACE, after):
            after = page[-1]
            tenants = {_data_keys_place(tenant): tenant for tenant in page}
            asked = [StoredState(place=place, value=b"", version=0) for place in tenants]
            here, there = await self._source.bulk.read_state(asked), await self._target.bulk.read_state(asked)
            known = await self._baseline.find(there.values())
            for place, other in there.items():
                same = place not in here or _data_key_names(here[place]) == _data_key_names(other)
                if not same and not self._baseline.is_unchanged(known.get(record_id(other)), other):
                    raise Invalid(f"tenant {tenants[place]} has other data keys in the target: use an empty store")

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
        wanted = await self._select([(head, there.get(key)) for key, head in live.items()], describe_session)
        for keys in batches(wanted):
            await self._write_sessions(keys, there)

    async def _select(self, pairs: Sequence[tuple[R, R | None]], describe: Callable[[R], str]) -> list[R]:
        """The records to write; those that were changed in the target are left and named."""
        self._seen += len(pairs)
        known = await self._baseline.find(other or here for here, other in pairs)
        wanted, equal = [], []
        for here, other in pairs:
            entry = known.get(record_id(other or here))
            if other == here:
                self._report.unchanged += 1
                if not is_current(entry, here):
                    equal.append((here, other))
            elif self._policy.overwrite or self._baseline.is_unchanged(entry, other):
                wanted.append(here)
            else:
                self._report.left.append(describe(here))
        if not self._policy.dry_run:
            await self._baseline.note(equal)
        return wanted

    async def _write_sessions(self, keys: Sequence[bytes], there: Mapping[bytes, StoredHead]) -> None:
        records = await self._source.bulk.read_sessions(keys)
        if len(records) < len(keys):  # The rest was deleted meanwhile, or cannot be decoded.
            missing = [key for key in keys if key not in records]
            self._report.unreadable += len(await self._source.bulk.read_heads(missing))
        if records and not self._policy.dry_run:
            await self._baseline.note((record.head, there.get(key)) for key, record in records.items())
            await self._target.bulk.write_sessions(list(records.values()))
        self._report.sessions += len(records)
        self._report.messages += sum(len(record.messages) for record in records.values())
        self._on_progress(self._report.messages)

    async def _copy_state(self, found: Sequence[StoredState]) -> None:
        records = own_records(found)
        self._report.unfinished_tasks += sum(map(_is_unfinished_task, records))
        there = await self._target.bulk.read_state(records)
        wanted = await self._select([(record, there.get(record.place)) for record in records], describe_state)
        if wanted and not self._policy.dry_run:
            await self._baseline.note((record, there.get(record.place)) for record in wanted)
            await self._target.bulk.write_state(wanted)
        self._report.state += len(wanted)

    async def _delete_surplus(self) -> None:
        """Remove what the source does not have; nothing if some of it cannot be read there."""
        if self._report.unreadable:
            raise Invalid("--delete removes nothing while records of the source cannot be read")
        if not self._policy.shrunk and (not self._seen or 2 * self._seen < self._marker.records):
            raise Invalid(
                f"--delete removes nothing: the source has {self._seen} records and had {self._marker.records}; "
                "check that it is the right one; --yes removes them anyway"
            )
        async for heads in self._target.bulk.iter_heads():
            here = await self._source.bulk.read_heads([head.key for head in heads])
            surplus = [head for head in heads if head.key not in here]
            await self._delete(surplus, describe_session, self._target.bulk.delete_sessions)
        async for records in self._target.bulk.iter_state():
            values = await self._source.bulk.read_state(records)
            gone = [record for record in own_records(records) if record.place not in values]
            await self._delete(gone, describe_state, self._target.bulk.delete_state)

    async def _delete(
        self, surplus: Sequence[R], describe: Callable[[R], str], delete: Callable[[Sequence[R]], Awaitable[None]]
    ) -> None:
        """Remove records, except those that came into being or were changed in the target."""
        known = await self._baseline.find(surplus)
        ours = []
        for record in surplus:
            if self._policy.overwrite or self._baseline.is_unchanged(known.get(record_id(record)), record):
                ours.append(record)
            else:
                self._report.left.append(describe(record))
        self._report.deleted += len(ours)
        if ours and not self._policy.dry_run:
            await delete(ours)
            await self._baseline.forget(ours)


def _data_keys_place(tenant: str) -> StatePlace:
    scope = Scope(tenant=tenant)
    return StatePlace(site_key(scope), owner_key(scope), state_key(scope, KEYS_NAMESPACE), KEYS_ENTRY)


def _data_key_names(record: StoredState) -> frozenset[str]:
    """The names of a tenant's data keys, which stay when master keys are rotated."""
    return frozenset(msgspec.json.decode(record.value).get("data", ()))


def _is_unfinished_task(record: StoredState) -> bool:
    """Whether a value is a task that has not ended; sealed ones cannot be told."""
    if record.namespace == TASKS:
        with suppress(msgspec.DecodeError):
            value = msgspec.json.decode(record.value)
            return isinstance(value, dict) and value.get("status") in UNFINISHED
    return False
