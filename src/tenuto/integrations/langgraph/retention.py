"""Histories with some checkpoints left out, copies of whole ones, and what delta channels are rebuilt from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite
from msgspec.structs import replace

from tenuto.integrations.langgraph.log import History
from tenuto.integrations.langgraph.projection import Dump, Load, State, ordered_writes, to_full_put
from tenuto.integrations.langgraph.records import Put, Record, Writes
from tenuto.integrations.langgraph.values import copy_value


def retain(history: History, checkpoints: Collection[tuple[str, str]], dump: Dump) -> dict[int, Record | None]:
    """The entries that stay if only some checkpoints do, by sequence number, each with what replaces it, if anything.

    The first checkpoint after a gap is stored whole: it was the difference to what goes. So are all after it if runs
    went back, as they may continue other lines. Writes may be stored before their checkpoint, so those of unknown ones
    stay.
    """
    puts = [record for _, record in history.entries if isinstance(record, Put)]
    branching = {record.ns for record in puts if record.full and record.parent and not record.rebased}
    stays: dict[int, Record | None] = {}
    broken: set[str] = set()
    for message, record in history.entries:
        if record is not None and (record.ns, record.id) not in checkpoints:
            if isinstance(record, Put):
                broken.add(record.ns)
            elif record.id not in history.states.get(record.ns, {}):
                stays[message.seq] = None
        elif isinstance(record, Put) and record.ns in broken and not record.full:
            broken -= {record.ns} - branching
            stays[message.seq] = _rebase(history.states[record.ns][record.id], dump)
        else:
            stays[message.seq] = None
    return stays


def copy_records(history: History, dump: Dump) -> list[Record]:
    """The records of a thread for another one, each namespace beginning with a whole checkpoint."""
    copies: list[Record] = []
    namespaces: set[str] = set()
    for _, record in history.entries:
        if isinstance(record, Writes):
            copies.append(record)
        elif record is not None:
            first = record.ns not in namespaces
            namespaces.add(record.ns)
            # A snapshot names a place in the other log.
            copies.append(
                _rebase(history.states[record.ns][record.id], dump) if first else replace(record, snapshot=None)
            )
    return copies


def _rebase(state: State, dump: Dump) -> Put:
    return replace(to_full_put(state, dump), rebased=True)


def delta_ancestors(history: History, newest: State, load: Load) -> set[str]:
    """The checkpoints before this one that its delta channels are rebuilt from: back to the last value of each."""
    counters = load(newest.put.metadata).get("counters_since_delta_snapshot") or {}
    missing = {name for name in counters if not _has_value(newest, name)}
    ancestors: set[str] = set()
    for state in _ancestors(history, newest):
        if not missing:
            break
        ancestors.add(state.put.id)
        missing = {name for name in missing if not _has_value(state, name)}
    return ancestors


def delta_history(
    history: History | None, ns: str, checkpoint_id: str | None, channels: Sequence[str], load: Load
) -> Mapping[str, DeltaChannelHistory]:
    """For each channel the last value stored before a checkpoint, and the writes since then, oldest first."""
    states = history.states.get(ns, {}) if history is not None else {}
    target = states.get(checkpoint_id) if checkpoint_id else history.heads.get(ns) if history is not None else None
    histories: dict[str, DeltaChannelHistory] = {name: {"writes": []} for name in channels}
    if history is None or target is None:
        return histories
    remaining = set(channels)
    for state in _ancestors(history, target):
        if not remaining:
            break
        for name in remaining:
            histories[name]["writes"][:0] = _writes_to(history, state, name, load)
        for name in [name for name in remaining if _has_value(state, name)]:
            histories[name]["seed"] = _value(state, name, load)
            remaining.discard(name)
    return histories


def _ancestors(history: History, state: State) -> Iterator[State]:
    by_id = history.states.get(state.put.ns, {})
    parent = state.put.parent
    while parent is not None and parent in by_id:
        yield by_id[parent]
        parent = by_id[parent].put.parent


def _writes_to(history: History, state: State, channel: str, load: Load) -> list[PendingWrite]:
    records = history.writes.get((state.put.ns, state.put.id), [])
    return [(task, channel, load(one.value)) for task, one in ordered_writes(records) if one.channel == channel]


def _has_value(state: State, name: str) -> bool:
    return name in state.values or name in state.lists


def _value(state: State, name: str, load: Load) -> Any:
    return load(state.values[name]) if name in state.values else copy_value(list(state.lists[name]))
