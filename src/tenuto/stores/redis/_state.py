"""Small JSON values by scope, namespace and key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tenuto.errors import StateCorrupt, VersionConflict
from tenuto.model import Scope, StateChange, StateEntry, StateLocation
from tenuto.model.scope import state_key
from tenuto.model.session import check_changes
from tenuto.model.values import Json
from tenuto.stores.redis._failures import WHAT
from tenuto.stores.redis._keys import listing_digests
from tenuto.stores.redis._resp import Part, Reply
from tenuto.stores.redis._runner import ScriptRunner
from tenuto.stores.redis._scripts import script
from tenuto.stores.redis._state_owners import StateOwners, note

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder()


class RedisState:
    """The `StateStore` port over Redis or Valkey.

    One drawer per scope and namespace. All drawers of an owner share one hash of values, a sorted set of names, and a
    hash of notes; a name is prefixed by the digest of its drawer.
    """

    def __init__(self, asking: ScriptRunner, owners: StateOwners) -> None:
        self._asking = asking
        self._owners = owners

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        values, *_ = self._asking.keys.state(scope, namespace)
        raw = await self._asking.call("HGET", values, _hash_field(scope, namespace, key), key=values)
        return None if raw is None else _decode_entry(key, raw)

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        change = StateChange(key=key, value=value, if_version=if_version)
        (version,) = await self.change_states(scope, namespace, (change,))
        return StateEntry(key=key, value=value, version=version)

    async def delete_state(self, scope: Scope, namespace: str, key: str, if_version: int | None = None) -> bool:
        change = StateChange(key=key, removes=True, if_version=if_version)
        return any(await self.change_states(scope, namespace, (change,)))

    async def read_states(self, scope: Scope, namespace: str, keys: Sequence[str]) -> tuple[StateEntry | None, ...]:
        if not keys:
            return ()
        values, *_ = self._asking.keys.state(scope, namespace)
        fields = (_hash_field(scope, namespace, key) for key in keys)
        found = await self._asking.call("HMGET", values, *fields, key=values)
        return tuple(None if raw is None else _decode_entry(key, raw) for key, raw in zip(keys, found, strict=True))

    async def change_states(self, scope: Scope, namespace: str, changes: Sequence[StateChange]) -> tuple[int, ...]:
        check_changes(changes)
        reply = await self._run_changes(scope, namespace, changes)
        if reply[0] == b"new":
            await self._owners.add(scope)
            reply = await self._run_changes(scope, namespace, changes, listed=True)
        if reply[0] == b"version":
            raise VersionConflict(changes[reply[1]].if_version or 0, reply[2])
        if reply[0] != b"ok":
            raise _corrupt_error()
        if scope.owner and reply[1]:
            await self._owners.add(scope)
        return tuple(reply[2:])

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        keys = self._asking.keys.state(scope, namespace)
        asked = (state_key(scope, namespace), _encode_key(after), max(0, limit))
        flat = await self._asking.run_script(script("list_state"), keys, asked)
        return tuple(_decode_entry(flat[at].decode(), flat[at + 1]) for at in range(0, len(flat), 2))

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        _, names, *_ = self._asking.keys.state(scope, namespace)
        drawer = state_key(scope, namespace)
        # No name is empty, and none holds the byte 255.
        stretch = (b"(" + drawer + _encode_key(after), b"(" + drawer + b"\xff", "BYLEX", "LIMIT", 0, max(0, limit))
        found = await self._asking.call("ZRANGE", names, *stretch, key=names)
        return tuple(name[len(drawer) :].decode() for name in found)

    async def list_state_locations(
        self, scope: Scope, after: StateLocation | None = None, limit: int = 100
    ) -> tuple[StateLocation, ...]:
        return await self._owners.names(scope, after, limit)

    async def _run_changes(
        self, scope: Scope, namespace: str, changes: Sequence[StateChange], *, listed: bool = False
    ) -> Reply:
        """Write into a known drawer, or one whose owner was `listed`; else reply `new` without writing.

        The tenant's own drawers are in no list.
        """
        listed = listed or not scope.owner
        drawer = state_key(scope, namespace)
        asked: list[Part] = [drawer, note(scope, namespace), b"1" if listed else b""]
        for change in changes:
            asked += (
                drawer + _encode_key(change.key),
                b"" if change.removes else _encoder.encode(change.value),
                b"" if change.if_version is None else change.if_version,
            )
        # A repeated conditional write would conflict with its own first attempt, and a repeated removal find nothing.
        safe = all(change.if_version is None and not change.removes for change in changes)
        keys = self._asking.keys.state(scope, namespace)
        return await self._asking.run_script(script("change_states"), keys, asked, safe=safe)

    async def erase_owner(self, person: Scope) -> int:
        """Remove all state of an owner; returns the number of values."""
        space, owner = listing_digests(person)
        erased: int = await self._asking.run_script(
            script("erase_state"), self._asking.keys.owner_state_keys(owner), ()
        )
        await self._owners.leave(space, owner)
        return erased


def _hash_field(scope: Scope, namespace: str, key: str) -> bytes:
    return state_key(scope, namespace) + _encode_key(key)


def _encode_key(key: str) -> bytes:
    # Keys that no write accepts do not exist, whatever characters they hold.
    return key.encode(errors="surrogatepass")


def _decode_entry(key: str, raw: Reply) -> StateEntry:
    try:
        _, version, value = raw.split(b":", 2)
        return StateEntry(key=key, value=_decoder.decode(value), version=int(version))
    except (ValueError, AttributeError, msgspec.MsgspecError) as exc:
        raise _corrupt_error() from exc


def _corrupt_error() -> StateCorrupt:
    return StateCorrupt(WHAT, "holds a value that cannot be read")
