"""Memories as state of their owner: a row for each memory, a row for its vector, and a log of the last changes.

State is stored, encrypted, scanned, erased and scoped alike on every backend, and so are memories. The log names the
memories of the last changes, and its version counts them: one small read tells a process whether its copy is current,
and which rows it lacks. What is pushed out of it goes on in a tail, which only processes far behind read. Vectors are
stored apart from the texts, under the name of their embedder: texts are never compared across two embedders.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from tenuto.compare_and_set import update, write_if_unchanged
from tenuto.errors import StateCorrupt, VersionConflict
from tenuto.model import Scope, StateChange, StateEntry
from tenuto.model.memory import MEMORIES, MEMORY_CHANGES, MEMORY_INDEX, MEMORY_LOG, MEMORY_LOG_TAIL, VECTORS, Memory
from tenuto.model.values import Json
from tenuto.ports import StateStore
from tenuto.recall.embedding import Vector
from tenuto.recall.unread_marks import ChangeMarks, ReadThrough, UnreadMark, remove_marks

# How many memories the log names. Each turn reads it, so it is short.
_MOST_NAMES: Final = 32
# How many its tail names: a process further behind looks at all memories.
_MOST_TAIL: Final = 1_024
# Sessions whose last captured message the log knows.
_MOST_SESSIONS: Final = 100
_PAGE: Final = 500
_ADDED_AT_ONCE: Final = 100
_MOST_KEYS: Final = 10_000
_log = logging.getLogger(__name__)


class MemoryLog(msgspec.Struct, frozen=True):
    """The log of an owner's changes as it is known; `version` is that of its row.

    `changes` are the ids of the last changes, `captured` is the last message of each session that was read for
    memories, `unread` marks the sessions with more to read. A log that was erased and begun anew has another `epoch`.
    """

    epoch: str = ""
    changes: Sequence[Sequence[str]] = ()
    captured: Mapping[str, int] = {}
    unread: Mapping[str, UnreadMark] = {}
    version: int = 0

    def is_continued_by(self, later: MemoryLog) -> bool:
        """Whether nothing but one change lies between them."""
        return later.version == self.version + 1 and self.epoch in ("", later.epoch)


class _Tail(msgspec.Struct, frozen=True):
    """The changes before those that the log itself names, the last of which made `version` of the log."""

    epoch: str
    version: int
    changes: Sequence[Sequence[str]]

    def precedes(self, log: MemoryLog) -> bool:
        """Whether no change lies between them."""
        return self.epoch == log.epoch and self.version == log.version - len(log.changes)


class StoredMemory(NamedTuple):
    """A memory, its vector if its embedder is the current one, and the version of its row."""

    memory: Memory
    vector: Vector | None
    version: int


class MemoryRecords:
    """Reads and writes the memories of owners; `embedder` is the name of the vectors' embedder."""

    def __init__(self, state: StateStore, embedder: str, new_id: Callable[[], str]) -> None:
        self._state = state
        self._embedder = embedder
        self.has_embedder = bool(embedder)
        self._new_id = new_id

    async def changed_since(self, scope: Scope, last: MemoryLog) -> tuple[MemoryLog, tuple[str, ...] | None]:
        """The log as it is now, and the ids that changed since; `None` where it does not reach back."""
        entry = await self._read_entry(scope)
        if entry is None:
            return MemoryLog(), () if last == MemoryLog() else None
        if (
            entry.version == last.version
            and isinstance(entry.value, Mapping)
            and entry.value.get("epoch") == last.epoch
        ):
            # The usual case, in which the names of the changes need not be decoded.
            return last, ()
        log = _decode_log(entry)
        changes, behind = log.changes, log.version - last.version
        if log.epoch == last.epoch and behind > len(changes):
            log, changes = await self._read_with_tail(scope)
            behind = log.version - last.version
        if log.epoch != last.epoch or not 0 <= behind <= len(changes):
            return log, None
        return log, tuple(dict.fromkeys(one for ids in changes[len(changes) - behind :] for one in ids))

    async def _read_with_tail(self, scope: Scope) -> tuple[MemoryLog, Sequence[Sequence[str]]]:
        """The log, and the changes that it and its tail name."""
        try:
            entries = await self._state.read_states(scope, MEMORY_CHANGES, (MEMORY_LOG, MEMORY_LOG_TAIL))
        except StateCorrupt:
            return await self.read_log(scope), ()
        log = MemoryLog() if entries[0] is None else _decode_log(entries[0])
        return log, [*_decode_tail(entries[1], log), *log.changes]

    async def load(self, scope: Scope) -> AsyncIterator[StoredMemory]:
        """Every memory of the owner, in order of ids."""
        vectors = {entry.key: entry.value async for entry in self._entries(scope, VECTORS)}
        async for entry in self._entries(scope, MEMORIES):
            memory = self._decode(entry, vectors.get(entry.key))
            if memory is not None:
                yield memory

    async def load_texts(self, scope: Scope) -> AsyncIterator[Memory]:
        """Every memory of the owner, in order of ids, without its vector."""
        async for entry in self._entries(scope, MEMORIES):
            if (stored := self._decode(entry, None)) is not None:
                yield stored.memory

    async def ids(self, scope: Scope) -> list[str]:
        """The ids of all memories of the owner, also of those that cannot be decoded."""
        found: list[str] = []
        while page := await self._state.state_keys(scope, MEMORIES, found[-1] if found else "", _PAGE):
            found += page
        return found

    async def read_all(self, scope: Scope, memory_ids: Sequence[str]) -> list[StoredMemory | None]:
        """Several memories in order, `None` for each that is absent."""
        try:
            entries, vectors = await asyncio.gather(
                self._state.read_states(scope, MEMORIES, memory_ids),
                self._state.read_states(scope, VECTORS, memory_ids),
            )
        except StateCorrupt:
            return list(await asyncio.gather(*(self.read(scope, one) for one in memory_ids)))
        return [
            None if entry is None else self._decode(entry, None if vector is None else vector.value)
            for entry, vector in zip(entries, vectors, strict=True)
        ]

    async def read(self, scope: Scope, memory_id: str) -> StoredMemory | None:
        """One memory, `None` if there is none."""
        try:
            entry, vector = await asyncio.gather(
                self._state.read_state(scope, MEMORIES, memory_id), self._state.read_state(scope, VECTORS, memory_id)
            )
        except StateCorrupt:
            return None
        return None if entry is None else self._decode(entry, vector.value if vector is not None else None)

    async def write(self, scope: Scope, memory: Memory, if_version: int | None) -> Memory | None:
        """Store a memory; returns it as the policy lets it be stored.

        `None` if its row has another version by now: with `if_version` 0, that there is one already.
        """
        value = msgspec.to_builtins(memory)
        entry = await write_if_unchanged(self._state.write_state(scope, MEMORIES, memory.id, value, if_version))
        return None if entry is None else msgspec.convert(entry.value, Memory)

    async def add(self, scope: Scope, memory: Memory, vector: Vector | None) -> Memory | None:
        """Store a new memory with its vector, as `write` says."""
        if vector is None:
            return await self.write(scope, memory, 0)
        # At once: a store that gathers writes makes one of both.
        stored, _ = await asyncio.gather(self.write(scope, memory, 0), self._put_vector(scope, memory, vector))
        await self._check_vector(scope, memory)
        return stored

    async def add_all(self, scope: Scope, new: Sequence[tuple[Memory, Vector | None]]) -> list[Memory | None]:
        """As `add` for each, in as few steps as there can be."""
        stored: list[Memory | None] = []
        for start in range(0, len(new), _ADDED_AT_ONCE):
            stored += await self._add_some(scope, new[start : start + _ADDED_AT_ONCE])
        return stored

    async def _add_some(self, scope: Scope, new: Sequence[tuple[Memory, Vector | None]]) -> list[Memory | None]:
        rows = [StateChange(key=one.id, value=msgspec.to_builtins(one), if_version=0) for one, _ in new]
        vectors = [
            StateChange(key=one.id, value=self._vector_value(one, vector)) for one, vector in new if vector is not None
        ]
        # At once: a store that gathers writes makes one of both.
        writes = [self._state.change_states(scope, MEMORIES, rows)]
        if vectors:
            writes.append(self._state.change_states(scope, VECTORS, vectors))
        try:
            await asyncio.gather(*writes)
        except VersionConflict:
            # Another process has stored one of them.
            return list(await asyncio.gather(*[self.add(scope, *each) for each in new]))
        entries = await self._state.read_states(scope, MEMORIES, [one.id for one, _ in new])
        for (memory, vector), entry in zip(new, entries, strict=True):
            if entry is None and vector is not None:
                # It was removed in this moment.
                await self._state.delete_state(scope, VECTORS, memory.id)
        return [None if entry is None else msgspec.convert(entry.value, Memory) for entry in entries]

    async def write_vector(self, scope: Scope, memory: Memory, vector: Vector | None) -> None:
        """Store the vector of a memory's text, or remove one that does not fit its text any more.

        A memory that was removed meanwhile takes it along.
        """
        if vector is None:
            await self._state.delete_state(scope, VECTORS, memory.id)
            return
        await self._put_vector(scope, memory, vector)
        await self._check_vector(scope, memory)

    async def _put_vector(self, scope: Scope, memory: Memory, vector: Vector) -> None:
        await self._state.write_state(scope, VECTORS, memory.id, self._vector_value(memory, vector))

    def _vector_value(self, memory: Memory, vector: Vector) -> dict[str, Json]:
        from tenuto.recall.vectors import encode_vector

        return {"embedder": self._embedder, "of": _digest(memory.text), **encode_vector(vector)}

    async def _check_vector(self, scope: Scope, memory: Memory) -> None:
        """Remove the vector of a memory that is gone."""
        if await self._state.read_state(scope, MEMORIES, memory.id) is None:
            await self._state.delete_state(scope, VECTORS, memory.id)

    async def remove_orphaned_vectors(self, scope: Scope, memory_ids: Container[str]) -> None:
        """Remove vectors whose memory is not among the known ones, nor stored."""
        after = ""
        while keys := await self._state.state_keys(scope, VECTORS, after, _PAGE):
            for after in keys:
                if after not in memory_ids and await self._state.read_state(scope, MEMORIES, after) is None:
                    await self._state.delete_state(scope, VECTORS, after)

    async def remove(self, scope: Scope, memory_ids: Iterable[str]) -> int:
        """Remove memories with their vectors; returns how many there were."""
        removals = [StateChange(key=memory_id, removes=True) for memory_id in dict.fromkeys(memory_ids)]
        count = 0
        for start in range(0, len(removals), _PAGE):
            some = removals[start : start + _PAGE]
            await self._state.change_states(scope, VECTORS, some)
            count += sum(await self._state.change_states(scope, MEMORIES, some))
        return count

    async def read_log(self, scope: Scope) -> MemoryLog:
        """The log as it is now."""
        entry = await self._read_entry(scope)
        return _decode_log(entry) if entry is not None else MemoryLog()

    async def log_change(
        self,
        scope: Scope,
        last: MemoryLog,
        memory_ids: Sequence[str],
        progress: Mapping[str, ReadThrough] | None = None,
    ) -> MemoryLog:
        """Tell other processes which memories changed; returns the log with that.

        `last` is the log as it was last seen, `progress` tells how far sessions were read for memories.
        """

        def lengthen(log: MemoryLog) -> MemoryLog:
            marks = {name: one.mark for name, one in (progress or {}).items() if one.mark}
            return MemoryLog(
                # In a new epoch every process looks at everything: there was no log, or too many names for its tail.
                epoch=log.epoch if log.epoch and len(memory_ids) <= _MOST_TAIL else self._new_id(),
                changes=[*log.changes, memory_ids],
                captured=_add_progress(log.captured, progress or {}),
                unread=remove_marks(marks)(log.unread) if marks else log.unread,
            )

        result = await update(
            lambda: self.read_log(scope),
            lengthen,
            lambda log, longer: self._write_log(scope, longer, log.version),
            guess=last,
        )
        return result.after

    async def change_marks(self, scope: Scope, last: MemoryLog, change: ChangeMarks) -> MemoryLog:
        """Change the marks of unread sessions; returns the log with that. `last` is the log as it was last seen."""

        def mark(log: MemoryLog) -> MemoryLog | None:
            marks = change(log.unread)
            if marks == log.unread:
                return None
            return replace(log, epoch=log.epoch or self._new_id(), changes=[*log.changes, ()], unread=marks)

        result = await update(
            lambda: self.read_log(scope),
            mark,
            lambda log, marked: self._write_log(scope, marked, log.version),
            guess=last,
        )
        return result.after

    async def drop_sessions(self, scope: Scope, marks: Mapping[str, int]) -> None:
        """Take sessions that are gone out of the log, with their marks of these numbers; the log goes with the last.

        Of an owner who was erased meanwhile, no log is left.
        """

        def shorten(log: MemoryLog) -> MemoryLog | None:
            captured = {name: last for name, last in log.captured.items() if name not in marks}
            unread = remove_marks(marks)(log.unread)
            if captured == log.captured and unread == log.unread:
                return None
            return replace(log, changes=[*log.changes, ()], captured=captured, unread=unread)

        result = await update(
            lambda: self.read_log(scope), shorten, lambda log, shorter: self._write_log(scope, shorter, log.version)
        )
        log = result.after
        if log.version and not (log.captured or log.unread or await self._state.state_keys(scope, MEMORIES, limit=1)):
            await self._state.delete_state(scope, MEMORY_CHANGES, MEMORY_LOG_TAIL)
            # If it is still this one: somebody may have said something meanwhile.
            await write_if_unchanged(self._state.delete_state(scope, MEMORY_CHANGES, MEMORY_LOG, log.version))

    async def restart_log(self, scope: Scope) -> MemoryLog:
        """Begin the log anew, which is right at any time: every process looks at everything, and no memory's id stays.

        What is unread stays due. The stored index, which may hold what was removed, goes as well.
        """
        for key in await self._state.state_keys(scope, MEMORY_INDEX, limit=_MOST_KEYS):
            await self._state.delete_state(scope, MEMORY_INDEX, key)
        await self._state.delete_state(scope, MEMORY_CHANGES, MEMORY_LOG_TAIL)
        result = await update(
            lambda: self.read_log(scope),
            lambda log: replace(log, epoch=self._new_id(), changes=()),
            lambda log, anew: self._write_log(scope, anew, log.version),
        )
        return result.after

    async def _read_entry(self, scope: Scope) -> StateEntry | None:
        """The log as it is stored."""
        try:
            return await self._state.read_state(scope, MEMORY_CHANGES, MEMORY_LOG)
        except StateCorrupt:
            # A log that cannot be read is begun anew, in an epoch of its own.
            await self._state.delete_state(scope, MEMORY_CHANGES, MEMORY_LOG)
            return None

    async def _write_log(self, scope: Scope, log: MemoryLog, if_version: int | None) -> MemoryLog:
        """Store the log; changes that are too many for it go to its tail in the same step."""
        tail: list[StateChange] = []
        if if_version is not None and sum(max(1, len(ids)) for ids in log.changes) > _MOST_NAMES:
            try:
                entry = await self._state.read_state(scope, MEMORY_CHANGES, MEMORY_LOG_TAIL)
            except StateCorrupt:
                entry = None
            before = replace(log, changes=log.changes[:-1], version=if_version)
            changes = _newest([*_decode_tail(entry, before), *log.changes])
            value: Json = {"epoch": log.epoch, "version": if_version + 1, "changes": [list(ids) for ids in changes]}
            tail.append(StateChange(key=MEMORY_LOG_TAIL, value=value))
            log = replace(log, changes=())
        value = {
            "epoch": log.epoch,
            "changes": [list(ids) for ids in log.changes],
            "captured": dict(log.captured),
            "unread": msgspec.to_builtins(log.unread),
        }
        change = StateChange(key=MEMORY_LOG, value=value, if_version=if_version)
        version, *_ = await self._state.change_states(scope, MEMORY_CHANGES, (change, *tail))
        return replace(log, version=version)

    async def _entries(self, scope: Scope, namespace: str) -> AsyncIterator[StateEntry]:
        after = ""
        while page := await self._page(scope, namespace, after):
            for entry in page:
                yield entry
            if len(page) < _PAGE:
                return
            after = page[-1].key

    async def _page(self, scope: Scope, namespace: str, after: str) -> Sequence[StateEntry]:
        try:
            return await self._state.list_state(scope, namespace, after, _PAGE)
        except StateCorrupt:
            # One damaged row must not hide the others.
            page: list[StateEntry] = []
            for key in await self._state.state_keys(scope, namespace, after, _PAGE):
                try:
                    entry = await self._state.read_state(scope, namespace, key)
                except StateCorrupt:
                    _log.warning("a memory cannot be decoded and is skipped")
                    entry = StateEntry(key=key, value=None, version=0)
                if entry is not None:
                    page.append(entry)
            return page

    def _decode(self, entry: StateEntry, vector: Json) -> StoredMemory | None:
        try:
            memory = msgspec.convert(entry.value, Memory)
        except (msgspec.ValidationError, ValueError):
            return None
        fits = (
            isinstance(vector, Mapping)
            and vector.get("embedder") == self._embedder
            and vector.get("of") == _digest(memory.text)
        )
        if not fits:
            return StoredMemory(memory, None, entry.version)
        from tenuto.recall.vectors import decode_vector

        return StoredMemory(memory, decode_vector(vector), entry.version)


def _add_progress(earlier: Mapping[str, int], progress: Mapping[str, ReadThrough]) -> Mapping[str, int]:
    """How far each session was read, the last ones at the end; the oldest leave."""
    if not progress:
        return earlier
    others = [(name, seq) for name, seq in earlier.items() if name not in progress]
    return dict([*others, *[(name, one.last) for name, one in progress.items()]][-_MOST_SESSIONS:])


def _newest(changes: list[Sequence[str]]) -> list[Sequence[str]]:
    """The newest changes that name few enough memories."""
    names = 0
    for place in range(len(changes) - 1, -1, -1):
        names += max(1, len(changes[place]))
        if names > _MOST_TAIL:
            return changes[place + 1 :]
    return changes


def _digest(text: str) -> str:
    """What tells that a vector is of this text and not of an earlier one; too short to guess the text from."""
    return blake2b(text.encode(), digest_size=4).hexdigest()


def _decode_log(entry: StateEntry) -> MemoryLog:
    try:
        return replace(msgspec.convert(entry.value, MemoryLog), version=entry.version)
    except msgspec.ValidationError:
        return MemoryLog(version=entry.version)


def _decode_tail(entry: StateEntry | None, log: MemoryLog) -> Sequence[Sequence[str]]:
    """The changes of the tail of this log; none if it is of another one, or damaged."""
    try:
        tail = None if entry is None else msgspec.convert(entry.value, _Tail)
    except msgspec.ValidationError:
        return ()
    return tail.changes if tail is not None and tail.precedes(log) else ()
