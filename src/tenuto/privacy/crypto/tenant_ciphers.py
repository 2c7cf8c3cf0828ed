"""Encryption with AES-256-GCM under each tenant's own data keys, which are wrapped with master keys.

A tenant's wrapped data keys are stored in its state. Rotating master keys wraps them again; destroying them makes
everything sealed with them unreadable at once. A backup of the store still holds the wrapped keys: to make it
unreadable, destroy the master key, which is why a tenant can have its own.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hmac
import os
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from tenuto.compare_and_set import Update, update_state
from tenuto.errors import DataKeysDamaged, DecryptionFailed, MasterKeyMissing
from tenuto.model import Scope, StateEntry
from tenuto.model.privacy import (
    DATA_KEY_LENGTH,
    ENCRYPTION_NAMESPACE,
    KEYS_ENTRY,
    KEYS_NAMESPACE,
    RESEALING_ENTRY,
    SEAL_MARK,
    TENANTS_NAMESPACE,
    body_of,
    data_key_id,
    is_sealed,
)
from tenuto.model.scope import SYSTEM
from tenuto.model.values import Value
from tenuto.ports import Clock, Place, StateStore, utc_now
from tenuto.privacy.crypto.keyring import KEY_BYTES, KeyRing

_LOOK_UP: Final = "look-up"
_NONCE_BYTES: Final = 12
_NAME_BYTES: Final = DATA_KEY_LENGTH // 2
_BODY_AT: Final = _NAME_BYTES + _NONCE_BYTES
_PAGE: Final = 100
# How long cached keys are used: another process may renew or destroy them.
_FRESH: Final = timedelta(minutes=1)
_MOST_TENANTS: Final = 10_000
_HOT_BYTES: Final = 32 * 1024 * 1024
_LARGEST_HOT: Final = 256 * 1024


class _WrappedKey(Value, frozen=True, kw_only=True):
    """A data key sealed with a master key."""

    master: str
    text: str


class _StoredKeys(Value, frozen=True, kw_only=True):
    """A tenant's keys as stored: data keys by name, and the key of digests.

    Names of destroyed keys stay, so that data sealed with them is told from plain text.
    """

    current: str = ""
    data: dict[str, _WrappedKey] = {}
    look_up: _WrappedKey | None = None
    gone: tuple[str, ...] = ()


# No repr: it would show keys.
@dataclass(frozen=True, slots=True, repr=False)
class _TenantKeys:
    """A tenant's unwrapped keys; `stored` is `None` if it has none yet.

    Keys in `missing` need the master key of that fingerprint.
    """

    stored: _StoredKeys | None
    read_at: datetime
    data: dict[str, AESGCM] = field(default_factory=dict)
    look_up: bytes | None = None
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def current(self) -> str:
        """The name of the data key to seal with; empty if there is none."""
        return self.stored.current if self.stored is not None else ""

    @property
    def destroyed(self) -> tuple[str, ...]:
        """The names of destroyed keys."""
        return self.stored.gone if self.stored is not None else ()


class _PlaintextCache:
    """Recently sealed or opened plaintexts: every turn reads the window of the turn before again.

    It is read only after the key was found, so that data of destroyed keys cannot be read from it.
    """

    __slots__ = ("_kept", "_size")

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[bytes, bytes]] = OrderedDict()
        self._size = 0

    def get(self, sealed: str, bound: bytes) -> bytes | None:
        """The plaintext, if it was sealed or opened recently with this associated data."""
        found = self._kept.get(sealed)
        if found is None or found[0] != bound:
            return None
        self._kept.move_to_end(sealed)
        return found[1]

    def put(self, sealed: str, bound: bytes, plain: bytes) -> None:
        """Add a plaintext; the least recently used are evicted."""
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

    __slots__ = ("_current", "_hot", "_keys", "_name", "_prefix", "_whose", "fresh")

    def __init__(self, scope: Scope, keys: _TenantKeys, hot: _PlaintextCache, *, fresh: bool = False) -> None:
        self.fresh = fresh
        self._whose = _length_prefixed(scope.tenant, scope.site)
        self._keys = keys
        self._name = keys.current
        self._current = keys.data.get(self._name)
        self._prefix = b"" if self._current is None else bytes.fromhex(self._name)
        self._hot = hot

    @property
    def whole(self) -> bool:
        return not self._keys.missing and not self._keys.destroyed

    @property
    def read_at(self) -> datetime:
        return self._keys.read_at

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

    @property
    def can_seal(self) -> bool:
        return self._current is not None

    def seal_bytes(self, plain: bytes, place: Place) -> bytes:
        if self._current is None:
            raise _missing_key_error(self._keys, self._name)
        nonce = os.urandom(_NONCE_BYTES)
        return self._prefix + nonce + self._current.encrypt(nonce, plain, self._whose + _length_prefixed(*place))

    def open_bytes(self, sealed: bytes, place: Place) -> bytes:
        name, nonce, body = sealed[:_NAME_BYTES].hex(), sealed[_NAME_BYTES:_BODY_AT], sealed[_BODY_AT:]
        key = self._keys.data.get(name)
        if key is None:
            raise _missing_key_error(self._keys, name)
        try:
            return key.decrypt(nonce, body, self._whose + _length_prefixed(*place))
        except (InvalidTag, ValueError):
            raise _changed_error() from None

    def is_current(self, sealed: bytes) -> bool:
        return self._current is not None and sealed.startswith(self._prefix)


class TenantCiphers:
    """The `Ciphers` port: data keys in the store, cached unwrapped in memory for a minute."""

    def __init__(self, *, store: StateStore, ring: KeyRing, clock: Clock = utc_now) -> None:
        self._store = store
        self._ring = ring
        self._clock = clock
        self._known: OrderedDict[str, _TenantKeys] = OrderedDict()
        self._hot = _PlaintextCache()

    async def cipher_for_sealing(self, scope: Scope) -> TenantCipher:
        keys = await self._cached_keys(scope)
        if not keys.current:
            keys = await self._create_keys(scope)
        if keys.current in keys.missing:
            raise _missing_key_error(keys, keys.current)
        return TenantCipher(scope, keys, self._hot)

    async def check(self, scope: Scope) -> None:
        """Check that the tenant's data keys can be unwrapped, if it has any.

        Raises:
            DecryptionFailed: they cannot.
        """
        keys = await self._cached_keys(scope)
        if keys.current and keys.current in keys.missing:
            raise _missing_key_error(keys, keys.current)

    async def missing_master_keys(self, scope: Scope) -> tuple[str, ...]:
        """Fingerprints of master keys that the tenant's keys need and the ring lacks.

        Raises:
            DataKeysDamaged: a key cannot be unwrapped although its master key is there.
        """
        return tuple(sorted(set((await self._cached_keys(scope)).missing.values())))

    async def cipher_for_opening(self, scope: Scope, *, refresh: bool = False) -> TenantCipher:
        keys = await (self._load_keys(scope) if refresh else self._cached_keys(scope))
        return TenantCipher(scope, keys, self._hot, fresh=refresh)

    async def tenants(self) -> AsyncIterator[str]:
        """Every tenant that has data keys, by id."""
        after = ""
        while True:
            page = await self._store.list_state(SYSTEM, TENANTS_NAMESPACE, after=after, limit=_PAGE)
            for entry in page:
                yield entry.key
            if len(page) < _PAGE:
                return
            after = page[-1].key

    async def rewrap(self, scope: Scope) -> int:
        """Wrap the tenant's keys with its current master key; returns how many had another one.

        Sealed data is not rewritten. Afterwards older master keys are no longer needed for this tenant.

        Raises:
            MasterKeyMissing: a key needs a master key that is not in the ring; nothing was changed.
        """
        wanted = self._ring.current(scope.tenant).fingerprint

        def rewrap_keys(stored: _StoredKeys) -> _StoredKeys | None:
            if stored.look_up is None or not _count_outdated(stored, wanted):
                return None
            data = {name: self._rewrap_key(scope, name, key) for name, key in stored.data.items()}
            return replace(stored, data=data, look_up=self._rewrap_key(scope, _LOOK_UP, stored.look_up))

        made = await self._change_keys(scope, rewrap_keys)
        return _count_outdated(made.before, wanted) if made.changed else 0

    async def renew(self, scope: Scope) -> str:
        """Create a new data key for data sealed from now on; older keys still open theirs.

        Other processes follow within a minute.
        """

        def add_key(stored: _StoredKeys) -> _StoredKeys | None:
            if not stored.current:
                return None
            name, key = self._new_data_key(scope)
            return replace(stored, current=name, data={**stored.data, name: key})

        made = await self._change_keys(scope, add_key)
        # A run that seals records again begins anew: it has passed some that the older key sealed.
        await self._store.delete_state(SYSTEM, ENCRYPTION_NAMESPACE, RESEALING_ENTRY)
        return made.after.current if made.changed else (await self._create_keys(scope)).current

    async def destroy(self, scope: Scope) -> bool:
        """Destroy the tenant's keys: data sealed with them can never be read again. Returns whether there were any.

        Other processes drop them from memory within a minute.
        """

        def drop_keys(stored: _StoredKeys) -> _StoredKeys | None:
            return _StoredKeys(gone=(*stored.gone, *stored.data)) if stored.data else None

        made = await self._change_keys(scope, drop_keys)
        await self._store.delete_state(SYSTEM, TENANTS_NAMESPACE, scope.tenant)
        self._known.pop(scope.tenant, None)
        self._hot.clear()
        return made.changed

    async def _cached_keys(self, scope: Scope) -> _TenantKeys:
        keys = self._known.get(scope.tenant)
        if keys is not None and timedelta(0) <= self._clock() - keys.read_at < _FRESH:
            return keys
        return await self._load_keys(scope)

    async def _load_keys(self, scope: Scope) -> _TenantKeys:
        entry = await self._read_entry(scope)
        return self._cache_keys(scope, None if entry is None else _decode_keys(entry, scope.tenant))

    async def _create_keys(self, scope: Scope) -> _TenantKeys:
        """Create the tenant's first keys; if several processes do so at once, all use those of the first."""

        def create(stored: _StoredKeys) -> _StoredKeys | None:
            if stored.current:
                return None
            name, key = self._new_data_key(scope)
            look_up = self._wrap_key(scope, _LOOK_UP, secrets.token_bytes(KEY_BYTES))
            return replace(stored, current=name, data={name: key}, look_up=look_up)

        # The list of tenants comes first: a rotation of master keys must reach every tenant with keys.
        await self._store.write_state(SYSTEM, TENANTS_NAMESPACE, scope.tenant, True)
        await self._change_keys(scope, create)
        keys = await self._load_keys(scope)
        if not keys.current:
            raise DecryptionFailed("lost its key while it was being made")
        return keys

    async def _read_entry(self, scope: Scope) -> StateEntry | None:
        return await self._store.read_state(_tenant_scope(scope), KEYS_NAMESPACE, KEYS_ENTRY)

    async def _change_keys(
        self, scope: Scope, change: Callable[[_StoredKeys], _StoredKeys | None]
    ) -> Update[_StoredKeys]:
        """Change the stored keys, and cache those that were written."""
        decode = partial(_decode_keys, tenant=scope.tenant)
        made = await update_state(self._store, _tenant_scope(scope), KEYS_NAMESPACE, KEYS_ENTRY, decode, change)
        if made.changed:
            self._cache_keys(scope, made.after)
        return made

    def _cache_keys(self, scope: Scope, stored: _StoredKeys | None) -> _TenantKeys:
        known = self._known.pop(scope.tenant, None)
        # Compared by content: versions restart after keys were destroyed.
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
    """The scope of the tenant itself: its sites and users share the keys."""
    return Scope(tenant=scope.tenant)


def _count_outdated(stored: _StoredKeys, master: str) -> int:
    """How many keys another master key wraps."""
    return sum(key is not None and key.master != master for key in (*stored.data.values(), stored.look_up))


def _decode_keys(entry: StateEntry | None, tenant: str) -> _StoredKeys:
    if entry is None:
        return _StoredKeys()
    try:
        return msgspec.convert(entry.value, _StoredKeys)
    except msgspec.ValidationError:
        raise DataKeysDamaged(tenant) from None


def _decrypt(key: AESGCM, text: str, bound: bytes) -> bytes:
    try:
        body = _decode_base64(text)
        return key.decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], bound)
    except (InvalidTag, ValueError):
        raise _changed_error() from None


def _changed_error() -> DecryptionFailed:
    return DecryptionFailed("does not open: it was changed, or moved after it was encrypted")


def _missing_key_error(keys: _TenantKeys, name: str) -> DecryptionFailed:
    if name in keys.missing:
        return MasterKeyMissing(keys.missing[name])
    return DecryptionFailed("cannot be opened: its data key is not among the tenant's keys")


def _length_prefixed(*parts: str) -> bytes:
    """The parts joined with length prefixes, so that different lists never give the same bytes."""
    return "".join([f"{len(part)}:{part}" for part in parts]).encode()


def _encode_base64(body: bytes) -> str:
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as exc:
        raise ValueError("not base64") from exc
