"""What the runs of a copy have written, kept in the target: a record that differs from it was changed there since."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from tenuto.model.records import StatePlace, StoredHead, StoredState, record_digest
from tenuto.model.scope import SYSTEM, owner_key, site_key, state_key
from tenuto.ports import Backend
from tenuto.stores.copy_reports import COPIES

_ID_BYTES: Final = 16
_HOME: Final = (site_key(SYSTEM), owner_key(SYSTEM), state_key(SYSTEM, COPIES))
Copied = StoredHead | StoredState


class Entry(NamedTuple):
    """The run that wrote a record, the digest of what was there before (empty if nothing), and of what it wrote."""

    run: int
    before: str
    written: str


_entries: Final = msgspec.json.Decoder(Entry)


class Baseline:
    """The digests of copied records in `target`; `run` counts the runs, one that resumes another has its number.

    An entry is stored before its record. So after a kill the record is one of the two that the entry names, and after
    a whole run it is the second.
    """

    def __init__(self, target: Backend, *, name: str, run: int) -> None:
        self._target = target
        self._name = name
        self._run = run

    async def find(self, records: Iterable[Copied]) -> dict[bytes, Entry]:
        """The entries of those records that were copied, by `record_id`."""
        asked = {self._place(found): found for found in map(record_id, records)}
        stored = await self._target.bulk.read_state([_to_row(place) for place in asked])
        return {asked[place]: _entries.decode(row.value) for place, row in stored.items()}

    def is_unchanged(self, entry: Entry | None, there: Copied | None) -> bool:
        """Whether what is in the target now is what the copy left there."""
        if entry is None:
            return there is None
        digest = _digest(there)
        return digest == entry.written or (entry.run == self._run and digest == entry.before)

    async def note(self, pairs: Iterable[tuple[Copied, Copied | None]]) -> None:
        """Store the entries of records that are about to be written, each with the one that is there."""
        rows = [
            _to_row(self._place(record_id(here)), Entry(self._run, _digest(there), _digest(here)))
            for here, there in pairs
        ]
        if rows:
            await self._target.bulk.write_state(rows)

    async def forget(self, records: Sequence[Copied]) -> None:
        """Remove the entries of records that were deleted."""
        await self._target.bulk.delete_state([_to_row(self._place(record_id(record))) for record in records])

    def _place(self, found: bytes) -> StatePlace:
        return StatePlace(*_HOME, f"{self._name}:{found.hex()}")


def record_id(record: Copied) -> bytes:
    """What identifies a record: a session that was deleted and begun anew is another one."""
    if isinstance(record, StoredHead):
        parts = record.key, record.session.incarnation
    else:
        parts = record.place.drawer, record.place.key
    return blake2b(parts[0] + parts[1].encode(), digest_size=_ID_BYTES).digest()


def is_current(entry: Entry | None, record: Copied) -> bool:
    """Whether the entry names this record as the written one."""
    return entry is not None and entry.written == _digest(record)


def _digest(record: Copied | None) -> str:
    return "" if record is None else record_digest(record).hex()


def _to_row(place: StatePlace, entry: Entry | None = None) -> StoredState:
    return StoredState(place=place, value=msgspec.json.encode(entry), version=1)
