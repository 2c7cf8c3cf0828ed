"""Copies every record of one store into another, as it is stored.

Each record is compared with the one in the target and written if it differs, so a copy that was interrupted is resumed
by running it again, and a second run copies what has changed since. A marker in the target's own state says from where
it is being filled, and a baseline which records were written: those that were changed there since are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from random import Random
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from tenuto.errors import DecryptionFailed, Invalid, Unavailable
from tenuto.model import Scope, StateChange
from tenuto.model.privacy import KEYS_ENTRY, KEYS_NAMESPACE, TENANTS_NAMESPACE
from tenuto.model.scope import SYSTEM
from tenuto.model.stored import Action, FoundRecord, Kind, RecordChange, StoredRecord, WordChange
from tenuto.model.values import Json
from tenuto.ports import Clock, RecordStore, utc_now
from tenuto.stores.copy_reports import COPIES, TASKS, UNFINISHED, CopyMarker, CopyPolicy, CopyReport
from tenuto.stores.engine.changes import anew_mark
from tenuto.stores.engine.codec import PLAIN, PlainCodecs
from tenuto.stores.engine.listing import find_record
from tenuto.stores.engine.state import EngineState, record_key
from tenuto.stores.engine.whole_records import (
    WholeRecord,
    describe,
    in_batches,
    is_expired,
    is_readable,
    is_same,
    iter_pages,
    read_whole,
    record_digest,
)

_Pair = tuple[FoundRecord, StoredRecord | None]
_ATTEMPTS: Final = 20
_ENTRIES_AT_ONCE: Final = 100


class RecordCopier:
    """Copies `source` into `target`; `name` identifies the source."""

    def __init__(
        self,
        source: RecordStore,
        target: RecordStore,
        *,
        name: str,
        policy: CopyPolicy,
        chance: Random,
        clock: Clock = utc_now,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._source = source
        self._target = target
        self._source_state = EngineState(source, PlainCodecs(), chance)
        self._target_state = EngineState(target, PlainCodecs(), chance)
        self._name = name
        self._policy = policy
        self._chance = chance
        self._clock = clock
        self._on_progress = on_progress
        self._report = CopyReport()
        self._seen = 0
        self._marker = CopyMarker()
        self._baseline = _Baseline(self._target_state, name, 1)

    async def copy(self) -> CopyReport:
        """Fill the target.

        Raises:
            Invalid: the target holds other data, and the policy does not allow to add to it.
        """
        changed, feed = set[bytes | None](), self._source.feed
        async with AsyncExitStack() as stack:
            if feed is not None:
                await stack.enter_async_context(feed.watch(lambda key, _: changed.add(key)))
            await self._begin()
            self._report.quarantined = sorted(map(describe, await self._source.list_aside()))
            async for page in iter_pages(self._source):
                for batch in in_batches(self._readable(page)):
                    await self._copy(batch)
            if self._policy.delete:
                await self._delete_surplus()
            if feed is not None:
                feed.caught_up()
        self._report.changed = len(changed - {None})
        most = self._seen if self._policy.delete else max(self._seen, self._marker.records)
        await self._write_marker(replace(self._marker, done=True, records=most))
        return self._report

    async def _begin(self) -> None:
        """Put the marker into the target, if it may be filled."""
        entry = await self._target_state.read_state(SYSTEM, COPIES, self._name)
        former = CopyMarker(run=0, done=True) if entry is None else msgspec.convert(entry.value, CopyMarker)
        merged = self._policy.merge or former.merged
        if entry is None and not self._policy.merge and not await self._is_empty():
            raise Invalid("the target holds other data: use an empty store, or --merge to add to it")
        if self._policy.delete and merged:
            raise Invalid("--delete would remove the other data of a target that was filled with --merge")
        self._marker = replace(former, merged=merged, run=former.run + former.done, done=False)
        self._baseline = _Baseline(self._target_state, self._name, self._marker.run)
        await self._check_data_keys()
        await self._write_marker(self._marker)

    async def _is_empty(self) -> bool:
        async for page in iter_pages(self._target):
            if page:
                return False
        return True

    async def _write_marker(self, marker: CopyMarker) -> None:
        if not self._policy.dry_run:
            await self._target_state.write_state(SYSTEM, COPIES, self._name, msgspec.to_builtins(marker))

    async def _check_data_keys(self) -> None:
        """Refuse tenants that have other data keys in the target: either side's records would become unreadable."""
        after = ""
        while page := await self._source_state.state_keys(SYSTEM, TENANTS_NAMESPACE, after):
            after = page[-1]
            for tenant in page:
                scope = Scope(tenant=tenant)
                here = await self._source_state.read_state(scope, KEYS_NAMESPACE, KEYS_ENTRY)
                there = await self._target_state.read_state(scope, KEYS_NAMESPACE, KEYS_ENTRY)
                if there is None or (here is not None and _key_names(here.value) == _key_names(there.value)):
                    continue
                (record,) = await self._target.load_all([record_key(scope, KEYS_NAMESPACE, KEYS_ENTRY)])
                if record is not None and not await self._baseline.is_unchanged(record.key, record):
                    raise Invalid(f"tenant {tenant} has other data keys in the target: use an empty store")

    # Records

    def _readable(self, page: Sequence[FoundRecord]) -> list[FoundRecord]:
        """Those that are to be copied."""
        now = self._clock()
        live = [found for found in page if not is_expired(found, now)]
        readable = [found for found in live if is_readable(found)]
        self._report.unreadable += len(live) - len(readable)
        self._report.unfinished_tasks += sum(map(_is_unfinished_task, readable))
        self._seen += len(readable)
        return readable

    async def _copy(self, batch: Sequence[FoundRecord]) -> None:
        """Copy records, again those that are changed on either side meanwhile."""
        for _ in range(_ATTEMPTS):
            stored = await self._target.load_all([found.record.key for found in batch])
            changed = await self._write(await self._select(list(zip(batch, stored, strict=True))))
            if not changed:
                return
            found = [await find_record(self._source, one.record.key) for one in changed]
            batch = [one for one in found if one is not None]
        raise Unavailable("record", "is being changed by others all the time")

    async def _select(self, pairs: Sequence[_Pair]) -> list[_Pair]:
        """The records to write; those that were changed in the target are left and named."""
        entries = await self._baseline.find([found.record.key for found, _ in pairs])
        wanted, equal = [], []
        for found, there in pairs:
            entry = entries.get(found.record.key)
            if is_same(found.record, there):
                self._report.unchanged += 1
                if entry is None or entry.written != _hex(found.record):
                    equal.append((found.record, there))
            elif self._policy.overwrite or self._baseline.allows(entry, there):
                wanted.append((found, there))
            else:
                self._report.left.append(describe(found.index))
        if not self._policy.dry_run:
            await self._baseline.note(equal)
        return wanted

    async def _write(self, wanted: Sequence[_Pair]) -> list[FoundRecord]:
        """Write records; returns those that have changed on either side."""
        records = await read_whole(self._source, [found for found, _ in wanted])
        writable, changed = list[tuple[WholeRecord, StoredRecord | None]](), list[FoundRecord]()
        for (found, there), record in zip(wanted, records, strict=True):
            if isinstance(record, WholeRecord):
                writable.append((record, there))
            elif record is None:
                changed.append(found)
            else:
                self._report.unreadable += 1
        made = await self._commit(writable)
        for (record, _), done in zip(writable, made, strict=True):
            if done:
                self._count(record.found)
            else:
                changed.append(record.found)
        self._on_progress(self._report.messages)
        return changed

    async def _commit(self, records: Sequence[tuple[WholeRecord, StoredRecord | None]]) -> list[bool]:
        """Whether each was written; a record that is changed in the target at the same time is not."""
        if self._policy.dry_run:
            return [True] * len(records)
        await self._baseline.note([(record.found.record, there) for record, there in records])
        commits = [self._target.commit((self._to_change(record, there),)) for record, there in records]
        return [await commit is None for commit in commits]

    def _count(self, found: FoundRecord) -> None:
        if found.index.kind is Kind.SESSION:
            self._report.sessions += 1
            self._report.messages += found.totals.messages
        else:
            self._report.state += 1

    def _to_change(self, record: WholeRecord, there: StoredRecord | None) -> RecordChange:
        stored = record.found.record
        return RecordChange(
            key=stored.key,
            if_revision=0 if there is None else there.revision,
            revision=self._chance.getrandbits(48) + 1 if there is None else there.revision + 1,
            head=stored.head,
            profile=stored.profile,
            deadline=stored.deadline,
            index=record.found.index,
            words=_to_be_indexed(record.found),
            totals=record.found.totals,
            replaces=there is not None,
            puts=record.entries,
        )

    # What the source does not have

    async def _delete_surplus(self) -> None:
        """Remove what the source does not have; nothing if some of it cannot be read there."""
        if self._report.unreadable:
            raise Invalid("--delete removes nothing while records of the source cannot be read")
        if not self._policy.shrunk and (not self._seen or 2 * self._seen < self._marker.records):
            raise Invalid(
                f"--delete removes nothing: the source has {self._seen} records and had {self._marker.records}; "
                "look whether it is the right one, --yes removes them all the same"
            )
        async for page in iter_pages(self._target):
            here = await self._source.load_all([found.record.key for found in page])
            await self._delete([found for found, record in zip(page, here, strict=True) if record is None])

    async def _delete(self, surplus: Sequence[FoundRecord]) -> None:
        """Remove records, except those that came into being or were changed in the target."""
        entries = await self._baseline.find([found.record.key for found in surplus])
        ours = []
        for found in surplus:
            if self._policy.overwrite or self._baseline.allows(entries.get(found.record.key), found.record):
                ours.append(found)
            else:
                self._report.left.append(describe(found.index))
        if self._policy.dry_run:
            self._report.deleted += len(ours)
            return
        commits = [self._target.commit((_removal(found.record),)) for found in ours]
        for found, commit in zip(ours, commits, strict=True):
            if await commit is None:
                self._report.deleted += 1
            else:  # It was changed just now.
                self._report.left.append(describe(found.index))
        await self._baseline.forget([found.record.key for found in ours])


def _to_be_indexed(found: FoundRecord) -> WordChange | None:
    """The words of a session are indexed anew in the target, which may have other keys."""
    if found.index.kind is not Kind.SESSION:
        return None
    return WordChange(added=(anew_mark(found.index.space),))


def _removal(record: StoredRecord) -> RecordChange:
    return RecordChange(key=record.key, if_revision=record.revision, action=Action.REMOVE)


def _key_names(value: Json) -> frozenset[str]:
    """The names of a tenant's data keys, which stay when master keys are rotated."""
    return frozenset(value.get("data", ())) if isinstance(value, dict) else frozenset()


def _is_unfinished_task(found: FoundRecord) -> bool:
    """Whether a value is a task that has not ended; sealed ones cannot be told."""
    if found.index.kind is Kind.VALUE and found.index.namespace == TASKS:
        with suppress(DecryptionFailed, TypeError, ValueError):
            _, value = PLAIN.decode_value(found.record.head, ())
            return isinstance(value, dict) and value.get("status") in UNFINISHED
    return False


def _hex(record: StoredRecord | None) -> str:
    return "" if record is None else record_digest(record).hex()


class _Entry(NamedTuple):
    """The run that wrote a record, the digest of what was there before (empty if nothing), and of what it wrote."""

    run: int
    before: str
    written: str


class _Baseline:
    """What the runs of a copy have written, kept in the target: a record that differs from it was changed there since.

    `run` counts the runs; one that resumes another has its number. An entry is stored before its record. So after a
    kill the record is one of the two that the entry names, and after a whole run it is the second.
    """

    def __init__(self, state: EngineState, name: str, run: int) -> None:
        self._state = state
        self._name = name
        self._run = run

    async def find(self, keys: Sequence[bytes]) -> dict[bytes, _Entry]:
        """The entries of those records that were copied."""
        places = {self._place(key): key for key in keys}
        entries = await self._state.read_states(SYSTEM, COPIES, list(places))
        return {places[entry.key]: msgspec.convert(entry.value, _Entry) for entry in entries if entry is not None}

    def allows(self, entry: _Entry | None, there: StoredRecord | None) -> bool:
        """Whether what is in the target now is what the copy left there."""
        if entry is None:
            return there is None
        digest = _hex(there)
        return digest == entry.written or (entry.run == self._run and digest == entry.before)

    async def is_unchanged(self, key: bytes, there: StoredRecord) -> bool:
        """As `allows`, for one record."""
        return self.allows((await self.find([key])).get(key), there)

    async def note(self, pairs: Iterable[tuple[StoredRecord, StoredRecord | None]]) -> None:
        """Store the entries of records that are about to be written, each with the one that is there."""
        changes = [
            StateChange(key=self._place(here.key), value=[self._run, _hex(there), _hex(here)]) for here, there in pairs
        ]
        await self._change(changes)

    async def forget(self, keys: Sequence[bytes]) -> None:
        """Remove the entries of records that were deleted."""
        await self._change([StateChange(key=self._place(key), removes=True) for key in keys])

    async def _change(self, changes: Sequence[StateChange]) -> None:
        for first in range(0, len(changes), _ENTRIES_AT_ONCE):
            await self._state.change_states(SYSTEM, COPIES, changes[first : first + _ENTRIES_AT_ONCE])

    def _place(self, key: bytes) -> str:
        return f"{self._name}:{key.hex()}"
