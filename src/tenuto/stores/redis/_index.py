"""The places of records in the indexes: written before or with a record, removed after it, checked when they are read.

A place without a record is skipped and removed. While places are removed, `gone` in place of the record keeps others
from creating it. Who wrote its places before that and creates it after that has lost them, and writes them once more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET

from tenuto.model.scope import KEY_BYTES
from tenuto.model.stored import Action, IndexColumns, Kind, RecordChange
from tenuto.stores.columns import split_words
from tenuto.stores.redis._keys import RecordKeys, part_of, value_place
from tenuto.stores.redis._resp import Part as Word
from tenuto.stores.redis._resp import Reply
from tenuto.stores.redis._servers import Servers
from tenuto.stores.redis._wire import decode_columns, word_place

Call: TypeAlias = tuple[Word, ...]
_log = logging.getLogger(__name__)
_HELD_MS: Final = 3000
_AT_ONCE: Final = 500


def readable_columns(stored: bytes | None) -> IndexColumns | None:
    """The columns of a record, if it has some that tell its places."""
    if not stored:
        return None
    with suppress(msgspec.MsgspecError, ValueError):
        columns = decode_columns(stored)
        if columns.kind in tuple(Kind):
            return columns
    _log.warning("the index columns of a record cannot be decoded: its places stay as they are")
    return None


class Places:
    """The places of records in the indexes."""

    def __init__(self, servers: Servers, keys: RecordKeys) -> None:
        self._servers = servers
        self._keys = keys

    def of_change(self, change: RecordChange, *, lowered: bool) -> tuple[list[Call], list[Call]]:
        """What to add before a change: places of the record itself, and then of lists in lists of lists."""
        if change.action is not Action.WRITE:
            return [], []
        is_new = change.index is not None and (change.if_revision == 0 or change.replaces)
        deadline = change.deadline if (is_new or lowered) and change.deadline is not UNSET else None
        return self.of_record(change.key, change.index, deadline, is_new=is_new)

    def of_record(
        self, key: bytes, index: IndexColumns | None, deadline: int | None, *, is_new: bool = True
    ) -> tuple[list[Call], list[Call]]:
        """The places of a record with these columns; those that only a new one lacks, if it is."""
        own, above = list[Call](), list[Call]()
        if index is not None and index.kind is Kind.SESSION:
            names = (self._keys.site(index.space), self._keys.owner(index.owner))
            own += [("ZADD", name, "GT", index.listed_at, key) for name in names]
        elif index is not None:
            own.append(("ZADD", self._keys.drawer(index.drawer), 0, value_place(index.name, key)))
            above.append(("ZADD", self._keys.drawers(index.space), 0, index.owner + index.drawer))
        if index is not None and is_new:
            own.append(("ZADD", self._keys.all[part_of(key)], 0, key))
            if index.scope is not None:
                above.append(("ZADD", self._keys.sites, 0, index.space))
        if deadline is not None:
            # One that is too early is corrected when it is met.
            own.append(("ZADD", self._keys.due[part_of(key)], "LT", deadline, key))
        return own, above

    def of_words(self, key: bytes, index: IndexColumns | None, words: Sequence[bytes]) -> list[Call]:
        """The places of a session in the index of words."""
        if index is None or not words:
            return []
        return [("ZADD", self._keys.words(index.space), 0, word_place(word, index.owner, key)) for word in words]

    async def add(self, places: Iterable[tuple[Sequence[Call], Sequence[Call]]]) -> None:
        """Add places of several records; one call adds all those in an index."""
        merged = dict[Call, list[Word]](), dict[Call, list[Word]]()
        for pair in places:
            for calls, into in zip(pair, merged, strict=True):
                for call in calls:
                    into.setdefault(call[:-2], []).extend(call[-2:])
        for into in merged:
            await self._call_all([(*start, *places) for start, places in into.items()])

    def of_aside(self, name: bytes, columns: bytes | None) -> Call:
        """The place of a record that is set aside under a name, by the columns it has, if any can be read."""
        index = readable_columns(columns)
        owner = bytes(KEY_BYTES) if index is None else index.owner
        return ("ZADD", self._keys.asides, 0, owner + name)

    async def remove(self, key: bytes, index: IndexColumns | None, words: Sequence[bytes] = ()) -> None:
        """Remove the places of a record that `gone` keeps absent, and let it be created again."""
        part = part_of(key)
        calls: list[Call] = [("ZREM", self._keys.all[part], key), ("ZREM", self._keys.due[part], key)]
        if index is None:
            pass  # The others are removed when they are read.
        elif index.kind is Kind.SESSION:
            calls += [("ZREM", name, key) for name in (self._keys.site(index.space), self._keys.owner(index.owner))]
            calls += self._leaving_words(key, index, words)
        else:
            calls.append(("ZREM", self._keys.drawer(index.drawer), value_place(index.name, key)))
        await self._call_all(calls)
        await self._release(key)

    async def leave_owner(self, key: bytes, index: IndexColumns) -> None:
        """Remove a session from the list of an owner that it had before."""
        await self._servers.call("ZREM", self._keys.owner(index.owner), key)

    def _leaving_words(self, key: bytes, index: IndexColumns, words: Sequence[bytes]) -> list[Call]:
        places = [word_place(word, index.owner, key) for word in words]
        name = self._keys.words(index.space)
        return [("ZREM", name, *places[at : at + _AT_ONCE]) for at in range(0, len(places), _AT_ONCE)]

    async def leave_words(self, key: bytes, index: IndexColumns, words: Sequence[bytes]) -> None:
        """Remove a session's places in the index of words. Those that it has been given again get them back."""
        await self._call_all(self._leaving_words(key, index, words))
        ((columns, held),) = await self._servers.fields([self._keys.record(key)], ("i", "w"))
        again = set(split_words(held)).intersection(words)
        await self.add([(self.of_words(key, readable_columns(columns), sorted(again)), ())])

    async def remove_stale(self, name: bytes, places: Iterable[tuple[bytes, bytes]]) -> None:
        """Remove places without a record from one index: pairs of member and key."""

        async def remove(member: bytes, key: bytes) -> None:
            if await self._hold(key, _HELD_MS):
                await self._servers.call("ZREM", name, member)
                await self._release(key)

        await asyncio.gather(*(remove(member, key) for member, key in places))

    async def remove_empty(self, name: bytes, member: bytes, *lists: bytes) -> None:
        """Remove a list from a list of lists if it is empty; it is written after its first entry, so look again."""
        await self._servers.call("ZREM", name, member)
        if any(await self._call_all([("EXISTS", entry) for entry in lists])):
            await self._servers.call("ZADD", name, 0, member)

    async def correct_deadlines(self, late: Sequence[tuple[int, bytes, int]]) -> None:
        """Move records in the index of deadlines from where they were found to where they belong."""
        await asyncio.gather(
            *(self._servers.run("rescore", [self._keys.due[part_of(key)]], key, at, to) for at, key, to in late)
        )
        # A change may have lowered a deadline meanwhile.
        rows = await self._servers.fields([self._keys.record(key) for _, key, _ in late], ("d",))
        await self._call_all(
            [
                ("ZADD", self._keys.due[part_of(key)], "LT", deadline, key)
                for (_, key, to), (deadline,) in zip(late, rows, strict=True)
                if deadline and int(deadline) < to
            ]
        )

    async def _hold(self, key: bytes, milliseconds: int) -> bool:
        """Keep a missing record from being created, or let it; whether it is missing."""
        return bool(await self._servers.run("hold", (self._keys.record(key),), milliseconds))

    async def _release(self, key: bytes) -> None:
        """Let a missing record be created; one that is there since the mark ended by itself gets its places back."""
        if await self._hold(key, 0):
            return
        ((columns, deadline, words),) = await self._servers.fields([self._keys.record(key)], ("i", "d", "w"))
        index = readable_columns(columns)
        await self.add(
            [
                self.of_record(key, index, int(deadline) if deadline else None),
                (self.of_words(key, index, split_words(words)), ()),
            ]
        )

    async def _call_all(self, calls: Sequence[Call]) -> list[Reply]:
        return await asyncio.gather(*(self._servers.call(*call) for call in calls))
