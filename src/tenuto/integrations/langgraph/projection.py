"""The state of one namespace of a thread, folded from the records of its log in their order.

Each checkpoint is what its writer knew plus what others had stored before it. So runs that work on one thread at the
same time lose nothing of each other's lists, such as messages; of other values the last writer's counts. A checkpoint
whose writer went back to an older one on purpose is stored whole, and begins a line of its own: runs that continue
another line keep what they know.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from tenuto.integrations.langgraph.records import Blob, Put, Record, Snapshot, Write, Writes, size_of
from tenuto.integrations.langgraph.values import add_items

Load: TypeAlias = Callable[[Blob], Any]
Dump: TypeAlias = Callable[[Any], Blob]
# Checkpoints whose values and writes are remembered beside the newest one: those of runs at the same time.
_MOST_ENTRIES: Final = 64
# A snapshot is stored after as many bytes as the last one had, and not before this many.
_LEAST_SNAPSHOT: Final = 64 * 1024
# A snapshot has the newest line alone, so it is put off while runs may continue others; not for ever.
_FORKED_DELAY: Final = 8


@dataclass(frozen=True, slots=True)
class State:
    """The values of a checkpoint: lists as private objects, which are copied before a graph gets them; others encoded.

    Values and lists are never changed in place.
    """

    put: Put
    values: Mapping[str, Blob]
    lists: Mapping[str, Sequence[Any]]


@dataclass(slots=True)
class Projection:
    """A namespace up to `last_seq` of the log that this incarnation of its session is."""

    load: Load
    incarnation: str
    last_seq: int = 0
    head: State | None = None
    writes: OrderedDict[str, list[Writes]] = field(default_factory=OrderedDict)
    bytes_since: int = 0
    snapshot_bytes: int = 0
    # By checkpoint its line and its values without lists; by line its newest checkpoint.
    _known: OrderedDict[str, tuple[str, Mapping[str, Blob]]] = field(default_factory=OrderedDict)
    _lines: dict[str, State] = field(default_factory=dict)

    @classmethod
    def from_snapshot(cls, load: Load, snapshot: Snapshot) -> Projection:
        """The namespace as of a snapshot."""
        projection = cls(load, snapshot.incarnation, last_seq=snapshot.seq, snapshot_bytes=size_of(snapshot.head))
        projection._advance(full_state(snapshot.head, load), snapshot.head.id)
        for one in snapshot.writes:
            projection._add_writes(one)
        return projection

    def apply(self, seq: int, record: Record, lists: Mapping[str, Sequence[Any]] | None = None) -> State | None:
        """Add the next record; returns the state of its checkpoint. `lists` has its lists, if they are at hand."""
        self.last_seq = seq
        if isinstance(record, Writes):
            self.bytes_since += sum(len(one.value[1]) for one in record.writes)
            self._add_writes(record)
            return None
        self.bytes_since += _weight(record)
        if record.snapshot is not None:
            self.snapshot_bytes, self.bytes_since = size_of(record.snapshot.head), 0
            if record.snapshot.incarnation == self.incarnation:
                self._forget_lines()
            record = replace(record, snapshot=None)
        if record.full:
            state = full_state(record, self.load, lists)
            if record.rebased or self.head is None or record.id >= self.head.put.id:
                self._advance(state, self._line_of(record))
            return state
        if record.id not in self._known:  # A put that was repeated, since its answer was lost, counts once.
            line = self._line_of(record)
            self._advance(self._next_state(record, line, lists or {}), line)
        return self.head

    def pending_writes(self, checkpoint_id: str) -> list[Writes]:
        """The writes of a checkpoint's tasks."""
        return self.writes.get(checkpoint_id, [])

    def wants_snapshot(self) -> bool:
        """Whether so much was stored since the last snapshot that reading it takes longer than another one."""
        delay = _FORKED_DELAY if len(self._lines) > 1 else 1
        return self.bytes_since >= max(_LEAST_SNAPSHOT, self.snapshot_bytes) * delay

    def memory_bytes(self) -> int:
        """About the bytes in memory: the lists as they were stored, and each remembered value and write once."""
        values = {id(blob): len(blob[1]) for _, plain in self._known.values() for blob in plain.values()}
        writes = sum(
            len(one.value[1]) for step_writes in self.writes.values() for record in step_writes for one in record.writes
        )
        return self.snapshot_bytes + self.bytes_since + sum(values.values()) + writes

    def snapshot(self, dump: Dump) -> Snapshot | None:
        """The newest checkpoint, whole."""
        if self.head is None:
            return None
        # Writes may be stored before their checkpoint.
        newest = self.head.put.id
        writes = [one for name in self.writes if name == newest or name not in self._known for one in self.writes[name]]
        return Snapshot(
            seq=self.last_seq, head=to_full_put(self.head, dump), writes=writes, incarnation=self.incarnation
        )

    def _line_of(self, record: Put) -> str:
        """The line that a checkpoint continues: that of its parent if it is known, else that of the newest one."""
        if self.head is None:
            return record.id
        line, _ = self._known.get(record.parent or "", ("", None))
        if line not in self._lines:
            line, _ = self._known[self.head.put.id]
        went_back = record.full and not record.rebased and self._lines[line].put.id != record.parent
        return record.id if went_back else line

    def _forget_lines(self) -> None:
        """Know of lines what a reader knows that begins at a snapshot of the newest checkpoint."""
        newest = self.head.put.id if self.head is not None else ""
        for name, (_, values) in self._known.items():
            self._known[name] = (newest if name == newest else "", values)
        self._lines = {newest: self.head} if self.head is not None else {}

    def _next_state(self, record: Put, line: str, new_lists: Mapping[str, Sequence[Any]]) -> State:
        known_lists, not_continued = (
            self._lines[line].lists if line in self._lines else {},
            {*record.dropped, *record.values},
        )
        lists = {name: items for name, items in known_lists.items() if name not in not_continued}
        for name, blob in record.lists.items():
            lists[name] = new_lists[name] if name in new_lists else self.load(blob)
        for name, (length, blob) in record.added.items():
            items = new_lists[name] if name in new_lists else self.load(blob)
            lists[name] = add_items(lists.get(name, ()), length, items)
        # What others set meanwhile does not fit the versions that this writer knows.
        newest = self.head.values if self.head is not None and record.parent else {}
        not_continued = {*record.dropped, *record.lists, *record.added}
        _, base = self._known.get(record.parent or "", (line, newest))
        values = {name: blob for name, blob in base.items() if name not in not_continued}
        return State(record, {**values, **record.values}, lists)

    def _advance(self, state: State, line: str) -> None:
        self.head = self._lines[line] = state
        self._known[state.put.id] = (line, state.values)
        self._known.move_to_end(state.put.id)
        _trim(self._known)
        if len(self._lines) > 1:
            alive = {line for line, _ in self._known.values()}
            self._lines = {line: newest for line, newest in self._lines.items() if line in alive}

    def _add_writes(self, record: Writes) -> None:
        self.writes.setdefault(record.id, []).append(record)
        _trim(self.writes)


def full_state(record: Put, load: Load, known_lists: Mapping[str, Sequence[Any]] | None = None) -> State:
    """The state of a checkpoint that was stored whole."""
    known_lists = known_lists or {}
    lists = {name: known_lists[name] if name in known_lists else load(blob) for name, blob in record.lists.items()}
    return State(record, record.values, lists)


def to_full_put(state: State, dump: Dump) -> Put:
    """A checkpoint as a record that needs no other."""
    put, lists = state.put, {name: dump(list(items)) for name, items in state.lists.items()}
    return Put(
        ns=put.ns,
        id=put.id,
        parent=put.parent,
        checkpoint=put.checkpoint,
        metadata=put.metadata,
        full=True,
        values=dict(state.values),
        lists=lists,
    )


def ordered_writes(records: Iterable[Writes]) -> list[tuple[str, Write]]:
    """Writes with their tasks in the order in which a step applies them.

    Of a task's writes with the same index the first counts; of errors, interrupts and the like, the last.
    """
    by_key: dict[tuple[str, int], tuple[str, Write]] = {}
    for record in records:
        for write in record.writes:
            key = (record.task_id, write.index)
            if write.index < 0 or key not in by_key:
                by_key[key] = (record.path, write)
    keys = sorted(by_key, key=lambda key: (by_key[key][0], *key))
    return [(key[0], by_key[key][1]) for key in keys]


def _weight(record: Put) -> int:
    blobs = [record.checkpoint, record.metadata, *record.values.values(), *record.lists.values()]
    return sum(len(blob[1]) for blob in (*blobs, *[blob for _, blob in record.added.values()]))


def _trim(entries: OrderedDict[str, Any]) -> None:
    while len(entries) > _MOST_ENTRIES:
        entries.popitem(last=False)
