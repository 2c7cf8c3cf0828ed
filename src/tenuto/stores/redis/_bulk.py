"""Whole records of Redis or Valkey: found by SCAN on every primary, read and written by scripts of one slot each."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from tenuto.errors import Invalid, Unavailable
from tenuto.model.records import StatePlace, StoredHead, StoredSession, StoredState
from tenuto.model.scope import KEY_BYTES, Scope, owner_key, site_key, site_scope
from tenuto.stores.codec import Undecodable
from tenuto.stores.redis._bulk_records import HEAD_FIELDS, log_parts, pair_up, restore_args, to_head, to_session
from tenuto.stores.redis._failures import WHAT, failure
from tenuto.stores.redis._listing import SessionListing
from tenuto.stores.redis._resp import CallFailed, Part, Reply
from tenuto.stores.redis._runner import ScriptRunner
from tenuto.stores.redis._scripts import script
from tenuto.stores.redis._state_owners import StateOwners

_SCANNED: Final = 500
# Messages and values that one call carries: a call must end well within its timeout.
_AT_ONCE: Final = 500
# A long session is more than a call commonly carries.
_DUMP_SECONDS: Final = 30.0
_notes: Final = msgspec.json.Decoder(tuple[Scope, str])


class RedisBulk:
    """The `BulkStore` port over Redis or Valkey. A record that a failover or a moved slot hides comes with the next
    pass."""

    def __init__(self, asking: ScriptRunner, shelves: SessionListing, owners: StateOwners) -> None:
        self._asking = asking
        self._keys = asking.keys
        self._shelves = shelves
        self._owners = owners
        self.unreadable = 0

    # Sessions

    async def iter_heads(self) -> AsyncIterator[Sequence[StoredHead]]:
        async for found in self._scan(self._keys.heads):
            heads = await self.read_heads([self._keys.parse_session_key(stored) for stored in found])
            self.unreadable += len(found) - len(heads)
            yield list(heads.values())

    async def read_heads(self, keys: Sequence[bytes]) -> dict[bytes, StoredHead]:
        heads = await asyncio.gather(*map(self._read_head, keys))
        return {key: head for key, head in zip(keys, heads, strict=True) if head is not None}

    async def read_sessions(self, keys: Sequence[bytes]) -> dict[bytes, StoredSession]:
        sessions = await asyncio.gather(*map(self._read_session, keys))
        return {key: session for key, session in zip(keys, sessions, strict=True) if session is not None}

    async def write_sessions(self, records: Sequence[StoredSession]) -> None:
        await asyncio.gather(*map(self._write_session, records))

    async def delete_sessions(self, heads: Sequence[StoredHead]) -> None:
        await asyncio.gather(*map(self._delete_session, heads))

    # State

    async def iter_state(self) -> AsyncIterator[Sequence[StoredState]]:
        async for found in self._scan(self._keys.values):
            for stored in found:
                async for page in self._iter_owner_state(self._keys.parse_state_owner(stored)):
                    yield page

    async def read_state(self, records: Sequence[StoredState]) -> dict[StatePlace, StoredState]:
        found = await asyncio.gather(*map(self._read_state, records))
        return {record.place: record for record in found if record is not None}

    async def write_state(self, records: Sequence[StoredState]) -> None:
        # As `StateOwners` has it: an entry too many is harmless, one too few hides the owner's state.
        await self._owners.add_all(record.scope for record in records if record.scope is not None)
        by_owner = defaultdict(list)
        for record in records:
            by_owner[_owner_tag(record)].append(record)
        await asyncio.gather(*(self._put_state(tag, some) for tag, some in by_owner.items()))

    async def delete_state(self, records: Sequence[StoredState]) -> None:
        for record in records:
            keys, drawer = self._keys.owner_state_keys(_owner_tag(record)), record.place.drawer
            removal = (drawer, b"", b"", _field(record.place), b"", b"")
            await self._asking.run_script(script("change_states"), keys, removal)

    # What the methods share

    async def _scan(self, start: bytes) -> AsyncIterator[list[bytes]]:
        """Keys that begin so, of all primaries, each once: while it resizes its table, a server may repeat some."""
        seen: set[bytes] = set()
        try:
            for endpoint in await self._asking.link.primaries():
                cursor = b"0"
                while True:
                    cursor, found = await self._asking.link.call_node(
                        endpoint, "SCAN", cursor, "MATCH", start + b"*", "COUNT", _SCANNED
                    )
                    if new := [key for key in found if key not in seen]:
                        seen.update(new)
                        yield new
                    if cursor == b"0":
                        break
        except CallFailed as exc:
            raise failure(exc) from exc

    async def _dump(self, key: bytes, part: bytes) -> Reply:
        try:
            return await self._asking.link.eval_script(
                script("dump"), self._keys.session(key), (part,), timeout=_DUMP_SECONDS
            )
        except CallFailed as exc:
            raise failure(exc) from exc

    async def _read_head(self, key: bytes) -> StoredHead | None:
        try:
            reply = await self._dump(key, b"")
            known = dict(zip(HEAD_FIELDS, reply[0], strict=True)) if reply else {}
            fields = {name: value for name, value in known.items() if value is not None}
            return to_head(fields, reply[1]) if reply else None
        except Undecodable:
            return None

    async def _read_session(self, key: bytes) -> StoredSession | None:
        try:
            reply = await self._dump(key, b"1")
            return to_session(reply) if reply else None
        except Undecodable:
            return None

    async def _write_session(self, record: StoredSession) -> None:
        """Store a session; most messages of a long one are staged first, so that no call carries them all."""
        session, key = record.head.session, record.head.key
        stage = self._keys.stage(key)
        staged = (len(record.messages) - 1) // _AT_ONCE * _AT_ONCE if record.messages else 0
        if staged:
            await self._asking.call("UNLINK", stage, key=stage)
        for at in range(0, staged, _AT_ONCE):
            parts = log_parts(record.messages[at : at + _AT_ONCE])
            await self._asking.run_script(script("stage"), (stage,), parts)
        if await self._asking.session("restore", key, session.scope, restore_args(record, staged)) != b"ok":
            raise Unavailable(WHAT, "lost messages that were being copied: run the copy again")
        if staged:
            await self._asking.call("UNLINK", stage, key=stage)
        if self._asking.sharded:
            await self._shelves.repair(key, session, expiry=True, space=True)

    async def _delete_session(self, head: StoredHead) -> None:
        # A time before all deadlines: expired ones go, too.
        reply = await self._asking.session("delete", head.key, site_scope(head.session.scope), now=-1)
        if reply[0] == b"ok":
            await self._shelves.clear(head.key, reply[2])

    async def _iter_owner_state(self, tag: str) -> AsyncIterator[list[StoredState]]:
        values, _, drawers = self._keys.owner_state_keys(tag)
        notes = pair_up(await self._asking.call("HGETALL", drawers, key=drawers))
        cursor, seen = b"0", set[bytes]()
        while True:
            cursor, flat = await self._asking.call("HSCAN", values, cursor, "COUNT", _SCANNED, key=values)
            page = {field: raw for field, raw in pair_up(flat).items() if field not in seen}
            seen.update(page)
            found = [_to_state(tag, field, raw, notes) for field, raw in page.items()]
            records = [record for record in found if record is not None]
            self.unreadable += len(found) - len(records)
            yield records
            if cursor == b"0":
                break

    async def _read_state(self, like: StoredState) -> StoredState | None:
        tag, field = _owner_tag(like), _field(like.place)
        values, _, drawers = self._keys.owner_state_keys(tag)
        raw, noted = await asyncio.gather(
            self._asking.call("HGET", values, field, key=values),
            self._asking.call("HGET", drawers, like.place.drawer, key=drawers),
        )
        return None if raw is None else _to_state(tag, field, raw, {like.place.drawer: noted or b""})

    async def _put_state(self, tag: str, records: Sequence[StoredState]) -> None:
        for at in range(0, len(records), _AT_ONCE):
            parts: list[Part] = []
            for record in records[at : at + _AT_ONCE]:
                value = b"1:%d:%b" % (record.version, record.value)
                parts += (_field(record.place), value, record.place.drawer, _to_note(record))
            await self._asking.run_script(script("put_state"), self._keys.owner_state_keys(tag), parts)


def _owner_tag(record: StoredState) -> str:
    """The tag of the keys that hold a value: its owner's, or the drawer of the tenant's own."""
    return (record.place.drawer if record.scope is None else record.place.owner).hex()


def _field(place: StatePlace) -> bytes:
    return place.drawer + place.key.encode()


def _to_note(record: StoredState) -> bytes:
    if record.scope is None:
        return record.place.space + record.place.owner
    return msgspec.json.encode((record.scope, record.namespace))


def _to_state(tag: str, field: bytes, raw: bytes, notes: dict[bytes, bytes]) -> StoredState | None:
    """A value; `None` if it or its name cannot be decoded, or its drawer has no note."""
    drawer, name = field[:KEY_BYTES], field[KEY_BYTES:]
    noted = notes.get(drawer, b"")
    try:
        _, version, value = raw.split(b":", 2)
        if drawer.hex() == tag:
            home, scope, namespace = (noted[:KEY_BYTES], noted[KEY_BYTES:]), None, None
        else:
            scope, namespace = _notes.decode(noted)
            home = site_key(scope), owner_key(scope)
        if not all(home):
            return None
        place = StatePlace(*home, drawer, name.decode())
        return StoredState(place=place, value=value, version=int(version), scope=scope, namespace=namespace)
    except (ValueError, msgspec.MsgspecError, Invalid):
        return None
