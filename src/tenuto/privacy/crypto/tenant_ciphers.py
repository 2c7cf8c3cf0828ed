"""Sealed text: AES-256-GCM under data keys that each tenant has of its own, and that master keys protect.

A tenant's data keys stand in its own state, wrapped. To rotate master keys is to wrap them again; to destroy them is to
make everything sealed with them unreadable at once. (A backup of the store holds them still, wrapped: there it takes
the end of the master key, which is why a tenant can have its own.)
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hmac
import os
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from tenuto.errors import DataKeysDamaged, DecryptionFailed, MasterKeyMissing, VersionConflict
from tenuto.model import Scope, StateEntry
from tenuto.model.privacy import (
    DATA_KEY_LENGTH,
    KEYS_NAMESPACE,
    SEAL_MARK,
    TENANTS_NAMESPACE,
    body_of,
    data_key_id,
    is_sealed,
)
from tenuto.model.scope import SYSTEM
from tenuto.model.values import Json, Value
from tenuto.ports import Clock, Place, StateStore, utc_now
from tenuto.privacy.crypto.keyring import KEY_BYTES, KeyRing

_ENTRY: Final = "data"
_LOOK_UP: Final = "look-up"
_NONCE_BYTES: Final = 12
_PAGE: Final = 100
# Another process may renew or destroy keys: for so long, at most, is what was read of them taken to hold.
_FRESH: Final = timedelta(minutes=1)
_MOST_TENANTS: Final = 10_000
_HOT_BYTES: Final = 32 * 1024 * 1024
_LARGEST_HOT: Final = 256 * 1024


class _WrappedKey(Value, frozen=True, kw_only=True):
    """A key that a master key has sealed."""

    master: str
    text: str


class _StoredKeys(Value, frozen=True, kw_only=True):
    """A tenant's keys as its state holds them: data keys by name, and the one that digests are made with.

    Of those that were destroyed the names stay: what names one is lost, and not somebody's plain words.
    """

    current: str = ""
    data: dict[str, _WrappedKey] = {}
    look_up: _WrappedKey | None = None
    gone: tuple[str, ...] = ()


# No repr: it would show keys.
@dataclass(frozen=True, slots=True, repr=False)
class _TenantKeys:
    """A tenant's keys at hand; `stored` is `None` where it has none yet.

    Those in `missing` wait for the master key of that fingerprint.
    """

    stored: _StoredKeys | None
    read_at: datetime
    data: dict[str, AESGCM] = field(default_factory=dict)
    look_up: bytes | None = None
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def current(self) -> str:
        """The name of the data key to write with; empty where there is none yet, or no more."""
        return self.stored.current if self.stored is not None else ""

    @property
    def destroyed(self) -> tuple[str, ...]:
        """The names of keys that were destroyed."""
        return self.stored.gone if self.stored is not None else ()


class _PlaintextCache:
    """What was sealed or opened last: every turn reads the window again that the turn before has read.

    Asked only by whoever has the key, so that what is destroyed opens no more, hot or not.
    """

    __slots__ = ("_kept", "_size")

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[bytes, bytes]] = OrderedDict()
        self._size = 0

    def get(self, sealed: str, bound: bytes) -> bytes | None:
        """The bytes inside, if they were seen lately in this place."""
        found = self._kept.get(sealed)
        if found is None or found[0] != bound:
            return None
        self._kept.move_to_end(sealed)
        return found[1]

    def put(self, sealed: str, bound: bytes, plain: bytes) -> None:
        """Remember; the least recently used go first."""
        if len(sealed) > _LARGEST_HOT:
            return
        self._kept[sealed] = bound, plain
        self._size += 2 * len(sealed)
        while self._size > _HOT_BYTES:
            self._size -= 2 * len(self._kept.popitem(last=False)[0])

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._size = 0


class TenantCipher:
    """The `Cipher` port for one tenant's site."""

    __slots__ = ("_current", "_hot", "_keys", "_name", "_whose", "fresh")

    def __init__(self, scope: Scope, keys: _TenantKeys, hot: _PlaintextCache, *, fresh: bool = False) -> None:
        self.fresh = fresh
        self._whose = _length_prefixed(scope.tenant, scope.site)
        self._keys = keys
        self._name = keys.current
        self._current = keys.data.get(self._name)
        self._hot = hot

    @property
    def whole(self) -> bool:
        return not self._keys.missing and not self._keys.destroyed

    def knows(self, sealed: str) -> bool:
        name = data_key_id(sealed)
        return name in self._keys.data or name in self._keys.missing or name in self._keys.destroyed

    def seal(self, plain: bytes, place: Place) -> str:
        if self._current is None:
            raise _missing_key_error(self._keys, self._name)
        bound = self._whose + _length_prefixed(*place)
        nonce = os.urandom(_NONCE_BYTES)
        sealed = f"{SEAL_MARK}{self._name}.{_encode_base64(nonce + self._current.encrypt(nonce, plain, bound))}"
        self._hot.put(sealed, bound, plain)
        return sealed

    def open(self, sealed: str, place: Place) -> bytes:
        name = data_key_id(sealed) if is_sealed(sealed) else ""
        key = self._keys.data.get(name)
        if key is None:
            raise _missing_key_error(self._keys, name)
        bound = self._whose + _length_prefixed(*place)
        plain = self._hot.get(sealed, bound)
        if plain is None:
            plain = _decrypt(key, body_of(sealed), bound)
            self._hot.put(sealed, bound, plain)
        return plain

    def digest(self, value: bytes, place: Place) -> str:
        if self._keys.look_up is None:
            raise _missing_key_error(self._keys, _LOOK_UP)
        named = self._whose + _length_prefixed(*place)
        return hmac.digest(self._keys.look_up, len(named).to_bytes(4, "big") + named + value, "sha256").hex()


class TenantCiphers:
    """The `Ciphers` port: data keys in the store, unwrapped in this process's memory for a minute at a time."""

    def __init__(self, *, store: StateStore, ring: KeyRing, clock: Clock = utc_now) -> None:
        self._store = store
        self._ring = ring
        self._clock = clock
        self._known: OrderedDict[str, _TenantKeys] = OrderedDict()
        self._hot = _PlaintextCache()

    async def to_seal(self, scope: Scope) -> TenantCipher:
        keys = await self._cached_keys(scope)
        if not keys.current:
            keys = await self._create_keys(scope)
        if keys.current in keys.missing:
            raise _missing_key_error(keys, keys.current)
        return TenantCipher(scope, keys, self._hot)

    async def check(self, scope: Scope) -> None:
        """Look whether the tenant's data keys open, where it has any.

        Raises:
            Sealed: they do not.
        """
        keys = await self._cached_keys(scope)
        if keys.current and keys.current in keys.missing:
            raise _missing_key_error(keys, keys.current)

    async def missing_master_keys(self, scope: Scope) -> tuple[str, ...]:
        """The fingerprints of master keys that the ring lacks and some of the tenant's keys need.

        Raises:
            Sealed: a key does not open although its master key is there.
        """
        return tuple(sorted(set((await self._cached_keys(scope)).missing.values())))

    async def to_open(self, scope: Scope, *, anew: bool = False) -> TenantCipher:
        keys = await (self._load_keys(scope) if anew else self._cached_keys(scope))
        return TenantCipher(scope, keys, self._hot, fresh=anew)

    async def tenants(self) -> AsyncIterator[str]:
        """Every tenant that has data keys, in the order of their ids."""
        after = ""
        while True:
            page = await self._store.list_state(SYSTEM, TENANTS_NAMESPACE, after=after, limit=_PAGE)
            for entry in page:
                yield entry.key
            if len(page) < _PAGE:
                return
            after = page[-1].key

    async def rewrap(self, scope: Scope) -> int:
        """Wrap the tenant's keys with its current master key; tells how many were wrapped with another one.

        Nothing that they sealed is rewritten. Afterwards the older master keys are no longer needed for this tenant.

        Raises:
            Sealed: a key waits for a master key that is not in the ring; nothing was changed.
        """
        while (entry := await self._read_entry(scope)) is not None:
            stored = _decode_keys(entry, scope.tenant)
            if stored.look_up is None:
                break
            wanted = self._ring.current(scope.tenant).fingerprint
            old = sum(key.master != wanted for key in (*stored.data.values(), stored.look_up))
            if not old:
                break
            data = {name: self._rewrap_key(scope, name, key) for name, key in stored.data.items()}
            again = replace(stored, data=data, look_up=self._rewrap_key(scope, _LOOK_UP, stored.look_up))
            if await self._write_keys(scope, again, entry.version):
                return old
        return 0

    async def renew(self, scope: Scope) -> str:
        """Make a new data key for what is sealed from now on; older ones still open what they sealed.

        Other processes follow within a minute.
        """
        while (entry := await self._read_entry(scope)) is not None:
            stored = _decode_keys(entry, scope.tenant)
            if not stored.current:
                break
            name, key = self._new_data_key(scope)
            if await self._write_keys(
                scope, replace(stored, current=name, data={**stored.data, name: key}), entry.version
            ):
                return name
        return (await self._create_keys(scope)).current

    async def destroy(self, scope: Scope) -> bool:
        """Destroy the tenant's keys: what they sealed can never be read again. Tells whether there were any.

        Other processes that have them in memory forget them within a minute.
        """
        there = False
        while (entry := await self._read_entry(scope)) is not None:
            stored = _decode_keys(entry, scope.tenant)
            there = bool(stored.data)
            if not there or await self._write_keys(
                scope, _StoredKeys(gone=(*stored.gone, *stored.data)), entry.version
            ):
                break
        await self._store.delete_state(SYSTEM, TENANTS_NAMESPACE, scope.tenant)
        self._known.pop(scope.tenant, None)
        self._hot.clear()
        return there

    # What is inside

    async def _cached_keys(self, scope: Scope) -> _TenantKeys:
        keys = self._known.get(scope.tenant)
        if keys is not None and timedelta(0) <= self._clock() - keys.read_at < _FRESH:
            return keys
        return await self._load_keys(scope)

    async def _load_keys(self, scope: Scope) -> _TenantKeys:
        entry = await self._read_entry(scope)
        return self._cache_keys(scope, None if entry is None else _decode_keys(entry, scope.tenant))

    async def _create_keys(self, scope: Scope) -> _TenantKeys:
        """The tenant's first keys; of several processes that make them at once, one wins and all use its keys."""
        entry = await self._read_entry(scope)
        before = _StoredKeys() if entry is None else _decode_keys(entry, scope.tenant)
        if not before.current:
            name, key = self._new_data_key(scope)
            look_up = self._wrap_key(scope, _LOOK_UP, secrets.token_bytes(KEY_BYTES))
            # First the list of tenants: whoever rotates master keys must meet every tenant that has keys.
            await self._store.write_state(SYSTEM, TENANTS_NAMESPACE, scope.tenant, True)
            made = replace(before, current=name, data={name: key}, look_up=look_up)
            await self._write_keys(scope, made, 0 if entry is None else entry.version)
        keys = await self._load_keys(scope)
        if not keys.current:
            raise DecryptionFailed("lost its key while it was being made")
        return keys

    async def _read_entry(self, scope: Scope) -> StateEntry | None:
        return await self._store.read_state(_tenant_scope(scope), KEYS_NAMESPACE, _ENTRY)

    async def _write_keys(self, scope: Scope, stored: _StoredKeys, if_version: int) -> bool:
        """Store the keys, unless somebody else changed them meanwhile; then what is known of them is forgotten."""
        value: Json = msgspec.to_builtins(stored)
        try:
            await self._store.write_state(_tenant_scope(scope), KEYS_NAMESPACE, _ENTRY, value, if_version=if_version)
        except VersionConflict:
            self._known.pop(scope.tenant, None)
            return False
        self._cache_keys(scope, stored)
        return True

    def _cache_keys(self, scope: Scope, stored: _StoredKeys | None) -> _TenantKeys:
        known = self._known.pop(scope.tenant, None)
        # By content: versions begin anew when keys were destroyed and others made.
        if known is not None and known.stored == stored:
            keys = dataclasses.replace(known, read_at=self._clock())
        else:
            keys = self._unwrap_keys(scope, stored)
        self._known[scope.tenant] = keys
        if len(self._known) > _MOST_TENANTS:
            self._known.popitem(last=False)
        return keys

    def _unwrap_keys(self, scope: Scope, stored: _StoredKeys | None) -> _TenantKeys:
        if stored is None:
            return _TenantKeys(stored=None, read_at=self._clock())
        wrapped = {**stored.data, _LOOK_UP: stored.look_up} if stored.look_up is not None else stored.data
        missing = {
            name: key.master for name, key in wrapped.items() if self._ring.find(scope.tenant, key.master) is None
        }
        plain = {name: self._unwrap_secret(scope, name, key) for name, key in wrapped.items() if name not in missing}
        look_up = plain.pop(_LOOK_UP, None)
        data = {name: AESGCM(secret) for name, secret in plain.items()}
        return _TenantKeys(stored=stored, read_at=self._clock(), data=data, look_up=look_up, missing=missing)

    def _new_data_key(self, scope: Scope) -> tuple[str, _WrappedKey]:
        name = secrets.token_hex(DATA_KEY_LENGTH // 2)
        return name, self._wrap_key(scope, name, secrets.token_bytes(KEY_BYTES))

    def _wrap_key(self, scope: Scope, name: str, secret: bytes) -> _WrappedKey:
        master = self._ring.current(scope.tenant)
        nonce = os.urandom(_NONCE_BYTES)
        body = nonce + AESGCM(master.secret).encrypt(
            nonce, secret, _length_prefixed(KEYS_NAMESPACE, scope.tenant, name)
        )
        return _WrappedKey(master=master.fingerprint, text=_encode_base64(body))

    def _rewrap_key(self, scope: Scope, name: str, key: _WrappedKey) -> _WrappedKey:
        return self._wrap_key(scope, name, self._unwrap_secret(scope, name, key))

    def _unwrap_secret(self, scope: Scope, name: str, key: _WrappedKey) -> bytes:
        master = self._ring.find(scope.tenant, key.master)
        if master is None:
            raise MasterKeyMissing(key.master)
        try:
            body = _decode_base64(key.text)
            bound = _length_prefixed(KEYS_NAMESPACE, scope.tenant, name)
            return AESGCM(master.secret).decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], bound)
        except (InvalidTag, ValueError):
            raise DataKeysDamaged(scope.tenant) from None


def _tenant_scope(scope: Scope) -> Scope:
    """Keys are the tenant's own, whichever of its sites and users asks."""
    return Scope(tenant=scope.tenant)


def _decode_keys(entry: StateEntry, tenant: str) -> _StoredKeys:
    try:
        return msgspec.convert(entry.value, _StoredKeys)
    except msgspec.ValidationError:
        raise DataKeysDamaged(tenant) from None


def _decrypt(key: AESGCM, text: str, bound: bytes) -> bytes:
    try:
        body = _decode_base64(text)
        return key.decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], bound)
    except (InvalidTag, ValueError):
        raise DecryptionFailed("does not open: it was changed, or stood elsewhere when it was sealed") from None


def _missing_key_error(keys: _TenantKeys, name: str) -> DecryptionFailed:
    if name in keys.missing:
        return MasterKeyMissing(keys.missing[name])
    return DecryptionFailed("cannot be opened: its data key is not among the tenant's keys")


def _length_prefixed(*parts: str) -> bytes:
    """Parts one after the other, each behind its length, so that no two lists of parts look the same."""
    return "".join([f"{len(part)}:{part}" for part in parts]).encode()


def _encode_base64(body: bytes) -> str:
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as exc:
        raise ValueError("not base64") from exc
