"""State values as records without a log: the `StateStore` port as a view of `RecordStore`."""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Sequence
from contextlib import AsyncExitStack
from hashlib import blake2b
from random import Random
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from tenuto.errors import DecryptionFailed, MasterKeyMissing, StateCorrupt, VersionConflict
from tenuto.model import Scope, StateChange, StateEntry, StateLocation
from tenuto.model.privacy import ENCRYPTION_NAMESPACE, KEYS_NAMESPACE, TENANTS_NAMESPACE, VAULT
from tenuto.model.scope import KEY_BYTES, SYSTEM, owner_key, owner_scope, site_key, state_key
from tenuto.model.session import check_changes
from tenuto.model.stored import (
    KEY_GROUP,
    Action,
    FoundRecord,
    IndexColumns,
    IndexOrder,
    IndexQuery,
    Kind,
    RecordChange,
    StoredRecord,
    ValuePlace,
)
from tenuto.model.values import Json
from tenuto.pauses import Backoff
from tenuto.ports import RecordStore
from tenuto.stores.copy_reports import COPIES
from tenuto.stores.encoding import Undecodable
from tenuto.stores.engine.codec import PLAIN, Codec, Codecs, UnknownFormat


class _Held(NamedTuple):
    """A value as it is stored: its revision, its public version, and itself; 0 and `None` if there is none."""

    revision: int
    version: int
    value: Json


_NOTHING: Final = _Held(0, 0, None)
# What is read before there is a key, and what holds digests alone.
_UNSEALED: Final = frozenset({KEYS_NAMESPACE, TENANTS_NAMESPACE, ENCRYPTION_NAMESPACE, VAULT})
_DIGESTS: Final = frozenset({"api-keys", "rates", "streams", COPIES})
_FIRST_PAUSE: Final = 0.004
_LONGEST_PAUSE: Final = 0.25


class EngineState:
    """The `StateStore` port."""

    def __init__(self, records: RecordStore, codecs: Codecs, chance: Random) -> None:
        self._records = records
        self._codecs = codecs
        self._chance = chance
        self._turns: WeakValueDictionary[bytes, Lock] = WeakValueDictionary()

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        return (await self.read_states(scope, namespace, (key,)))[0]

    async def read_states(self, scope: Scope, namespace: str, keys: Sequence[str]) -> tuple[StateEntry | None, ...]:
        held = await self._load(scope, namespace, keys)
        return tuple(
            StateEntry(key=key, value=one.value, version=one.version) if one.revision else None
            for key, one in zip(keys, held, strict=True)
        )

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        change = StateChange(key=key, value=value, if_version=if_version)
        (version,) = await self.change_states(scope, namespace, (change,))
        return StateEntry(key=key, value=value, version=version)

    async def delete_state(self, scope: Scope, namespace: str, key: str, if_version: int | None = None) -> bool:
        change = StateChange(key=key, removes=True, if_version=if_version)
        return any(await self.change_states(scope, namespace, (change,)))

    async def change_states(self, scope: Scope, namespace: str, changes: Sequence[StateChange]) -> tuple[int, ...]:
        check_changes(changes)
        codec = await self._codec(scope, namespace, writing=True)
        replaced = frozenset(change.key for change in changes if change.if_version is None)
        if all(change.if_version == 0 and not change.removes for change in changes):
            # What must not be there yet is not looked for first: the store refuses it if it is.
            made = await self._commit(scope, namespace, changes, [_NOTHING] * len(changes), codec)
        else:
            made = await self._change(scope, namespace, changes, replaced, codec)
        if made is not None:
            return made
        async with AsyncExitStack() as turns:
            # Writers that compare nothing would refuse each other again and again: those of a process take turns. Not
            # before they met, so that a store that is slow to fail is not waited for by one after another.
            for key in sorted([record_key(scope, namespace, name) for name in replaced]):
                await turns.enter_async_context(self._turns.setdefault(key, Lock()))
            backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, jitter=1, chance=self._chance.random)
            while (made := await self._change(scope, namespace, changes, replaced, codec)) is None:
                await backoff.wait()
            return made

    async def _change(
        self, scope: Scope, namespace: str, changes: Sequence[StateChange], replaced: frozenset[str], codec: Codec
    ) -> tuple[int, ...] | None:
        """Make all changes to what stands, or none: `None` if that has changed meanwhile."""
        held = await self._load(scope, namespace, [change.key for change in changes], replaced)
        return await self._commit(scope, namespace, changes, held, codec)

    async def _commit(
        self, scope: Scope, namespace: str, changes: Sequence[StateChange], held: Sequence[_Held], codec: Codec
    ) -> tuple[int, ...] | None:
        pairs = list(zip(changes, held, strict=True))
        for change, one in pairs:
            if change.if_version is not None and change.if_version != one.version:
                raise VersionConflict(change.if_version, one.version)
        made = [
            self._to_record_change(scope, namespace, change, one, codec)
            for change, one in pairs
            if one.revision or not change.removes
        ]
        if made and await self._records.commit(made) is not None:
            return None
        return tuple(int(one.revision > 0) if change.removes else one.version + 1 for change, one in pairs)

    def _to_record_change(
        self, scope: Scope, namespace: str, change: StateChange, held: _Held, codec: Codec
    ) -> RecordChange:
        key = record_key(scope, namespace, change.key)
        if change.removes:
            return RecordChange(key=key, if_revision=held.revision, action=Action.REMOVE)
        place = (state_key(scope, namespace).hex(), change.key)
        index = IndexColumns(
            space=site_key(scope),
            owner=owner_key(scope),
            kind=Kind.VALUE,
            scope=owner_scope(scope) if scope.owner else None,
            drawer=state_key(scope, namespace),
            namespace=namespace,
            name=change.key,
        )
        return RecordChange(
            key=key,
            if_revision=held.revision,
            revision=held.revision + 1 if held.revision else self._chance.getrandbits(48) + 1,
            head=codec.encode_value((held.version + 1, change.value), place),
            deadline=None,
            index=None if held.revision else index,
        )

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        found = await self._list(scope, namespace, after, limit)
        held = await self._decode(scope, namespace, [(one.index.name, one.record) for one in found])
        return tuple(
            StateEntry(key=key.index.name, value=one.value, version=one.version)
            for key, one in zip(found, held, strict=True)
        )

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        return tuple(found.index.name for found in await self._list(scope, namespace, after, limit))

    async def list_state_locations(
        self, scope: Scope, after: StateLocation | None = None, limit: int = 100
    ) -> tuple[StateLocation, ...]:
        behind = None
        if after is not None:
            behind = ValuePlace(owner_key(after.scope), state_key(after.scope, after.namespace), after.key)
        query = IndexQuery(
            order=IndexOrder.PLACE,
            kind=Kind.VALUE,
            space=site_key(scope),
            owner=owner_key(scope) if scope.owner else None,
            named=True,
            behind=behind,
            limit=max(0, limit),
        )
        return tuple(
            StateLocation(scope=found.index.scope, namespace=found.index.namespace, key=found.index.name)
            for found in await self._records.list(query)
            if found.index.scope is not None
        )

    async def _list(self, scope: Scope, namespace: str, after: str, limit: int) -> tuple[FoundRecord, ...]:
        owner, drawer = owner_key(scope), state_key(scope, namespace)
        query = IndexQuery(
            order=IndexOrder.PLACE,
            kind=Kind.VALUE,
            space=site_key(scope),
            owner=owner,
            drawer=drawer,
            behind=ValuePlace(owner, drawer, after) if after else None,
            limit=max(0, limit),
        )
        return await self._records.list(query)

    async def _load(
        self, scope: Scope, namespace: str, keys: Sequence[str], replaced: frozenset[str] = frozenset()
    ) -> list[_Held]:
        stored = await self._records.load_all([record_key(scope, namespace, key) for key in keys])
        return await self._decode(scope, namespace, list(zip(keys, stored, strict=True)), replaced)

    async def _decode(
        self,
        scope: Scope,
        namespace: str,
        stored: Sequence[tuple[str, StoredRecord | None]],
        replaced: frozenset[str] = frozenset(),
    ) -> list[_Held]:
        """Values by their keys; once more with fresh keys if one does not open: another process may have added one.

        Those that are `replaced` whatever they are need not open, unless their key or a newer release may come back.
        """
        drawer = state_key(scope, namespace).hex()
        codec = await self._codec(scope, namespace)
        try:
            return [_decode(one, drawer, key, codec) for key, one in stored]
        except (DecryptionFailed, StateCorrupt):
            codec = await self._codec(scope, namespace, refresh=True)
            return [_decode(one, drawer, key, codec, is_replaced=key in replaced) for key, one in stored]

    async def _codec(self, scope: Scope, namespace: str, *, writing: bool = False, refresh: bool = False) -> Codec:
        if is_always_plain(scope, namespace):
            return PLAIN
        return await self._codecs.load(scope, writing=writing, refresh=refresh)


def is_always_plain(scope: Scope, namespace: str) -> bool:
    """Whether state is never sealed as a whole: keys, vaults, and digests of API keys, callers and copied records."""
    return namespace in _UNSEALED or (namespace in _DIGESTS and scope.tenant == SYSTEM.tenant)


def record_key(scope: Scope, namespace: str, key: str) -> bytes:
    """The key of a value's record. Values of one drawer are changed together, so their keys begin alike."""
    drawer = state_key(scope, namespace)
    named = drawer + key.encode(errors="surrogatepass")
    return drawer[:KEY_GROUP] + blake2b(named, digest_size=KEY_BYTES - KEY_GROUP, person=b"tenuto value").digest()


def _decode(stored: StoredRecord | None, drawer: str, key: str, codec: Codec, *, is_replaced: bool = False) -> _Held:
    if stored is None:
        return _NOTHING
    try:
        version, value = codec.decode_value(stored.head, (drawer, key))
    except (Undecodable, ValueError, TypeError, msgspec.MsgspecError) as exc:
        if not is_replaced or isinstance(exc, UnknownFormat):
            raise StateCorrupt("state value", "cannot be decoded") from exc
    except DecryptionFailed as error:
        if not is_replaced or isinstance(error, MasterKeyMissing):
            raise
    else:
        return _Held(stored.revision, version, value)
    # A number above all that its version can have been.
    return _Held(stored.revision, stored.revision, None)
