"""Memories as state of their owner: a row for each memory, a row for its vector, and a log of the last changes.

State is stored, encrypted, scanned, erased and scoped alike on every backend, and so are memories. The log names the
memories of the last changes, and its version counts them: one small read tells a process whether its copy is current,
and which rows it lacks. Vectors are stored apart from the texts, under the name of their embedder: texts are never
compared across two embedders.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from tenuto.errors import StateCorrupt, VersionConflict
from tenuto.model import Scope, StateEntry
from tenuto.model.memory import MEMORIES, MEMORY_CHANGES, VECTORS, Memory
from tenuto.model.values import Json
from tenuto.ports import StateStore

Vector: TypeAlias = Sequence[float]

# The key of the log, and how many changes it names: a process further behind loads everything.
_LOG: Final = "log"
_NAMED: Final = 64
_PAGE: Final = 500
_TRIES: Final = 20
# Vectors are stored as bytes of this many steps to each side of zero.
_STEPS: Final = 127
_log = logging.getLogger(__name__)


class LogMark(NamedTuple):
    """How far a log of changes is known. A log that was erased and begun anew has another `epoch`."""

    epoch: str = ""
    version: int = 0


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
        self._new_id = new_id

    async def changed_since(self, scope: Scope, known: LogMark) -> tuple[LogMark, tuple[str, ...] | None]:
        """How far the log goes now, and the ids that changed since; `None` where it does not reach back."""
        entry = await self._state.read_state(scope, MEMORY_CHANGES, _LOG)
        if entry is None:
            return LogMark(), () if known == LogMark() else None
        log = _decode_log(entry)
        mark = LogMark(log.epoch, entry.version)
        missed = mark.version - known.version
        if mark.epoch != known.epoch or not 0 <= missed <= len(log.changes):
            return mark, None
        return mark, tuple(dict.fromkeys(one for ids in log.changes[len(log.changes) - missed :] for one in ids))

    async def load(self, scope: Scope) -> AsyncIterator[StoredMemory]:
        """Every memory of the owner, in order of ids."""
        vectors = {entry.key: entry.value async for entry in self._entries(scope, VECTORS)}
        async for entry in self._entries(scope, MEMORIES):
            stored = self._decode(entry, vectors.get(entry.key))
            if stored is not None:
                yield stored

    async def read(self, scope: Scope, memory_id: str) -> StoredMemory | None:
        """One memory, `None` if there is none."""
        entry, vector = await asyncio.gather(
            self._state.read_state(scope, MEMORIES, memory_id), self._state.read_state(scope, VECTORS, memory_id)
        )
        return None if entry is None else self._decode(entry, vector.value if vector is not None else None)

    async def write(self, scope: Scope, memory: Memory, if_version: int | None) -> Memory | None:
        """Store a memory; returns it as the policy lets it be stored.

        `None` if its row has another version by now: with `if_version` 0, that there is one already.
        """
        value = msgspec.to_builtins(memory)
        try:
            entry = await self._state.write_state(scope, MEMORIES, memory.id, value, if_version)
        except VersionConflict:
            return None
        return msgspec.convert(entry.value, Memory)

    async def write_vector(self, scope: Scope, memory_id: str, vector: Vector | None) -> None:
        """Store the vector of a memory, or remove one that does not fit its text any more."""
        if vector is None:
            await self._state.delete_state(scope, VECTORS, memory_id)
        else:
            value = {"embedder": self._embedder, **encode_vector(vector)}
            await self._state.write_state(scope, VECTORS, memory_id, value)

    async def remove(self, scope: Scope, memory_ids: Iterable[str]) -> int:
        """Remove memories with their vectors; returns how many there were."""
        gone = 0
        for memory_id in memory_ids:
            await self._state.delete_state(scope, VECTORS, memory_id)
            gone += await self._state.delete_state(scope, MEMORIES, memory_id)
        return gone

    async def log_change(self, scope: Scope, memory_ids: Sequence[str]) -> LogMark:
        """Tell other processes which memories changed; returns how far the log goes now."""
        for _ in range(_TRIES):
            entry = await self._state.read_state(scope, MEMORY_CHANGES, _LOG)
            log = _decode_log(entry) if entry is not None else _Log(epoch=self._new_id())
            log = _Log(epoch=log.epoch, changes=[*log.changes, list(memory_ids)][-_NAMED:])
            try:
                told = await self._write_log(scope, log, entry.version if entry is not None else 0)
            except VersionConflict:
                continue
            return LogMark(log.epoch, told.version)
        return await self.restart_log(scope)

    async def restart_log(self, scope: Scope) -> LogMark:
        """Begin the log anew: every process loads everything, which is right at any time, and no id stays in it."""
        log = _Log(epoch=self._new_id())
        return LogMark(log.epoch, (await self._write_log(scope, log, None)).version)

    async def _write_log(self, scope: Scope, log: _Log, if_version: int | None) -> StateEntry:
        return await self._state.write_state(scope, MEMORY_CHANGES, _LOG, msgspec.to_builtins(log), if_version)

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
        fits = isinstance(vector, Mapping) and vector.get("embedder") == self._embedder
        return StoredMemory(memory, decode_vector(vector) if fits else None, entry.version)


def encode_vector(vector: Vector) -> dict[str, Json]:
    """A vector as JSON: a byte for each number, and what the largest stands for."""
    largest = max(map(abs, vector), default=0.0) or 1.0
    steps = array("b", [round(number / largest * _STEPS) for number in vector])
    return {"largest": largest, "steps": b64encode(steps.tobytes()).decode()}


def decode_vector(value: Mapping[str, Json]) -> Vector | None:
    """The vector of such JSON; `None` if it is damaged."""
    try:
        steps, scale = array("b", b64decode(value["steps"], validate=True)), float(value["largest"]) / _STEPS
    except (KeyError, TypeError, ValueError):
        return None
    return array("f", [step * scale for step in steps])


class _Log(msgspec.Struct):
    epoch: str = ""
    changes: list[list[str]] = []


def _decode_log(entry: StateEntry) -> _Log:
    try:
        return msgspec.convert(entry.value, _Log)
    except msgspec.ValidationError:
        return _Log()
