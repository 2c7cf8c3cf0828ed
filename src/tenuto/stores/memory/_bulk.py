"""Whole records of the memory store."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import msgspec

from tenuto.errors import Invalid
from tenuto.model import Message, StateEntry
from tenuto.model.records import (
    StatePlace,
    StoredHead,
    StoredLease,
    StoredMessage,
    StoredSession,
    StoredState,
    StoredTrace,
    StoredWrite,
)
from tenuto.model.scope import site_key
from tenuto.model.turn import Trace
from tenuto.stores.codec import Undecodable, decode_trace, digest_id, encode_draft, encode_trace, from_micros, to_micros
from tenuto.stores.memory.record import KeyedWrite, MemoryTables, SessionRecord, digested


class MemoryBulk:
    """The `BulkStore` port over plain dictionaries."""

    unreadable = 0

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def iter_heads(self) -> AsyncIterator[Sequence[StoredHead]]:
        yield [_to_head(record) for record in self._tables.records.values()]

    async def read_heads(self, keys: Sequence[bytes]) -> dict[bytes, StoredHead]:
        return {key: _to_head(self._tables.records[key]) for key in keys if key in self._tables.records}

    async def read_sessions(self, keys: Sequence[bytes]) -> dict[bytes, StoredSession]:
        return {key: _to_stored(self._tables.records[key]) for key in keys if key in self._tables.records}

    async def write_sessions(self, records: Sequence[StoredSession]) -> None:
        self._tables.records.update({record.head.key: _from_stored(record) for record in records})

    async def delete_sessions(self, heads: Sequence[StoredHead]) -> None:
        for head in heads:
            self._tables.records.pop(head.key, None)

    async def iter_state(self) -> AsyncIterator[Sequence[StoredState]]:
        owned = [
            (site_key(scope), owner, drawer)
            for owner, drawers in self._tables.drawers.items()
            for drawer, (scope, _) in drawers.items()
        ]
        homes = [(*home, drawer) for drawer, home in self._tables.homes.items()]
        for drawer in owned + homes:
            entries = self._tables.state[drawer[2]].values()
            yield [self._to_state(StatePlace(*drawer, entry.key), entry) for entry in entries]

    async def read_state(self, records: Sequence[StoredState]) -> dict[StatePlace, StoredState]:
        places = [record.place for record in records]
        found = ((place, self._tables.state.get(place.drawer, {}).get(place.key)) for place in places)
        return {place: self._to_state(place, entry) for place, entry in found if entry is not None}

    async def write_state(self, records: Sequence[StoredState]) -> None:
        for record in records:
            space, owner, drawer, key = record.place
            entry = StateEntry(key=key, value=msgspec.json.decode(record.value), version=record.version)
            self._tables.state.setdefault(drawer, {})[key] = entry
            if record.scope is not None and record.namespace is not None:
                self._tables.drawers.setdefault(owner, {})[drawer] = (record.scope, record.namespace)
            else:
                self._tables.homes[drawer] = (space, owner)

    async def delete_state(self, records: Sequence[StoredState]) -> None:
        for record in records:
            _, owner, drawer, key = record.place
            entries = self._tables.state.get(drawer, {})
            if entries.pop(key, None) is not None and not entries:
                self._tables.remove_drawer(owner, drawer)

    def _to_state(self, place: StatePlace, entry: StateEntry) -> StoredState:
        scope, namespace = self._tables.drawers.get(place.owner, {}).get(place.drawer, (None, None))
        value = msgspec.json.encode(entry.value)
        return StoredState(place=place, value=value, version=entry.version, scope=scope, namespace=namespace)


def _to_head(record: SessionRecord) -> StoredHead:
    lease = None
    if record.lease is not None and record.lease_until is not None:
        key = None if record.lease_key is None else _digest(record.lease_key)
        lease = StoredLease(turn_id=record.lease, until=to_micros(record.lease_until), key=key)
    return StoredHead(session=record.session, lease=lease, closed=record.closed)


def _digest(name: str) -> bytes:
    """The digest of a name, which may be known by its digest alone."""
    return bytes.fromhex(name[1:]) if name.startswith("\0") else digest_id(name)


def _to_stored(record: SessionRecord) -> StoredSession:
    return StoredSession(
        head=_to_head(record),
        writes=tuple(
            StoredWrite(
                key=_digest(key),
                fingerprint=_digest(write.fingerprint),
                turn_id=write.turn_id,
                number=write.number,
                words=write.words,
                reply=write.reply,
                finished=write.finished,
            )
            for key, write in record.keyed.items()
        ),
        producers=tuple(sorted((_digest(name), seq) for name, seq in record.marks.items())),
        messages=tuple(StoredMessage(message.seq, message.turn, _encode_message(message)) for message in record.log),
        traces=tuple(StoredTrace(number, encode_trace(trace)) for number, trace in sorted(record.traces.items())),
    )


def _encode_message(message: Message) -> bytes:
    return b'{"seq":%d,"turn":%d,%b' % (message.seq, message.turn, encode_draft(message)[1:])


def _from_stored(stored: StoredSession) -> SessionRecord:
    lease = stored.head.lease
    until: datetime | None = None if lease is None else from_micros(lease.until)
    return SessionRecord(
        session=stored.head.session,
        log=[_decode_message(message) for message in stored.messages],
        keyed=OrderedDict(
            (
                digested(write.key),
                KeyedWrite(
                    digested(write.fingerprint), write.turn_id, write.number, write.words, write.reply, write.finished
                ),
            )
            for write in stored.writes
        ),
        marks={digested(name): seq for name, seq in stored.producers},
        lease=None if lease is None else lease.turn_id,
        lease_until=until,
        lease_key=None if lease is None or lease.key is None else digested(lease.key),
        closed=stored.head.closed,
        traces={trace.number: _decode_trace(trace) for trace in stored.traces},
    )


def _decode_message(message: StoredMessage) -> Message:
    try:
        return msgspec.json.decode(message.body, type=Message)
    except (msgspec.MsgspecError, ValueError) as exc:
        raise Invalid("a message cannot be decoded") from exc


def _decode_trace(trace: StoredTrace) -> Trace:
    try:
        return decode_trace(trace.body)
    except Undecodable as exc:
        raise Invalid("a trace cannot be decoded") from exc
