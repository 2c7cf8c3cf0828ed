"""Records of one kind in one namespace of the state, changed by compare-and-set."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from types import EllipsisType
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from tenuto.compare_and_set import Update, update, write_if_unchanged
from tenuto.errors import DecryptionFailed, Invalid, StateCorrupt, VersionConflict
from tenuto.model import Scope, StateEntry
from tenuto.model.values import check_int, deep_copy
from tenuto.ports import StateStore

_log = logging.getLogger(__name__)
_PAGE: Final = 100
_KEYS: Final = 1000
_Record = TypeVar("_Record", bound=msgspec.Struct)


def check_version(if_version: int | None, actual: int) -> None:
    """Check the expected version of a change, if there is one.

    Raises:
        VersionConflict: it is another.
        Invalid: it is not a version.
    """
    if if_version is None:
        return
    check_int(if_version, 0, 2**53, "if_version")
    if if_version != actual:
        raise VersionConflict(if_version, actual)


class VersionedRecord(NamedTuple, Generic[_Record]):
    """A record as it is stored."""

    key: str
    record: _Record
    version: int


class Drawer(Generic[_Record]):
    """One owner's records under one namespace.

    A record is only changed by compare-and-set on what was read, so of two concurrent changes the second sees the
    first. Listings skip damaged records.
    """

    def __init__(self, state: StateStore, scope: Scope, namespace: str, kind: type[_Record]) -> None:
        self._state = state
        self._scope = scope
        self._namespace = namespace
        self._kind = kind

    async def read_record(self, key: str) -> VersionedRecord[_Record] | None:
        """One record, `None` if there is none.

        Raises:
            StateCorrupt: it is damaged.
            DecryptionFailed: its key is missing.
        """
        try:
            entry = await self._state.read_state(self._scope, self._namespace, key)
        except DecryptionFailed as error:
            if type(error) is not DecryptionFailed:
                raise
            raise StateCorrupt("state value", "does not open") from None
        return None if entry is None else self._decode(entry)

    async def put_record(self, key: str, record: _Record, if_version: int | None = None) -> VersionedRecord[_Record]:
        """Store a record and return it.

        Raises:
            VersionConflict: `if_version` is not the stored version.
        """
        value = msgspec.to_builtins(record)
        return self._decode(await self._state.write_state(self._scope, self._namespace, key, value, if_version))

    async def update(
        self,
        key: str,
        change: Callable[[VersionedRecord[_Record] | None], _Record | None],
        check_capacity: Callable[[VersionedRecord[_Record] | None], Awaitable[None]] | None = None,
        guess: VersionedRecord[_Record] | EllipsisType | None = ...,
    ) -> Update[VersionedRecord[_Record] | None]:
        """Change a record, as `compare_and_set.update` does; `check_capacity` may refuse a new one."""

        async def write(before: VersionedRecord[_Record] | None, after: _Record) -> VersionedRecord[_Record] | None:
            if check_capacity is not None:
                await check_capacity(before)
            return await self.put_record(key, after, 0 if before is None else before.version)

        return await update(lambda: self.read_record(key), change, write, guess)

    async def revert(self, result: Update[VersionedRecord[_Record] | None], empty: _Record) -> None:
        """Undo an update, unless the record has changed since; in place of a new record an empty one is stored."""
        if result.changed and result.after is not None:
            before = empty if result.before is None else result.before.record
            await write_if_unchanged(self.put_record(result.after.key, before, result.after.version))

    async def every(self, after: str = "", beginning: str = "") -> AsyncIterator[VersionedRecord[_Record]]:
        """All undamaged records after a key whose keys have a prefix, in order of their keys."""
        after = max(after, beginning)
        while keys := await self._read_page(after):
            for key, row in keys.items():
                if not key.startswith(beginning):
                    return
                if row is not None:
                    yield row
                after = key

    async def keys(self, limit: int | None = None) -> AsyncIterator[str]:
        """All keys in order, or the first `limit`; their records are not read."""
        after, size = "", _KEYS if limit is None else limit
        while keys := await self._state.state_keys(self._scope, self._namespace, after, size):
            for key in keys:
                yield key
            if limit is not None:
                return
            after = keys[-1]

    async def remove(self, key: str) -> bool:
        """Remove a record of any version; returns whether there was one."""
        return await self._state.delete_state(self._scope, self._namespace, key)

    async def clear(self) -> None:
        """Remove everything, after the last permitted write."""
        async for key in self.keys():
            await self.remove(key)

    async def _read_page(self, after: str) -> dict[str, VersionedRecord[_Record] | None]:
        """The next records by their keys; `None` for a damaged one."""
        try:
            page = await self._state.list_state(self._scope, self._namespace, after, _PAGE)
            return {entry.key: self._decode(entry) for entry in page}
        except (StateCorrupt, DecryptionFailed):
            keys = await self._state.state_keys(self._scope, self._namespace, after, _PAGE)
            return {key: await self._read_or_skip(key) for key in keys}

    async def _read_or_skip(self, key: str) -> VersionedRecord[_Record] | None:
        try:
            return await self.read_record(key)
        except StateCorrupt:
            _log.error("skipped a damaged record in %s", self._namespace)
            return None

    def _decode(self, entry: StateEntry) -> VersionedRecord[_Record]:
        try:
            return VersionedRecord(entry.key, msgspec.convert(deep_copy(entry.value), self._kind), entry.version)
        except (msgspec.ValidationError, Invalid):
            raise StateCorrupt("state value", "is no record of a task") from None
