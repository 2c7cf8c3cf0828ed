"""API keys: shown once, stored as a hash, revocable.

A secret has 256 random bits, so a plain, fast hash is enough.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import AsyncIterator
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from tenuto.errors import ApiKeyNotFound, Invalid, VersionConflict
from tenuto.model import Scope, StateEntry
from tenuto.model.plan import HUMAN
from tenuto.model.scope import SYSTEM, check_tenant_id
from tenuto.model.values import Json, Value, check_id, check_text
from tenuto.ports import Clock, StateStore

_log = logging.getLogger(__name__)
_NAMESPACE: Final = "api-keys"
_MARK: Final = "tnt"
_PAGE: Final = 100
_LONGEST_SECRET: Final = 256
_NO_HASH: Final = sha256(b"").hexdigest()


class KeyRole(StrEnum):
    """What a key may do: act for its own user or tenant, or (`admin`) for any user of its tenant and as operator.

    `privacy.reveal` is a member who may also see the values behind pseudonyms; an admin may not.
    """

    MEMBER = "member"
    ADMIN = "admin"
    REVEAL = "privacy.reveal"


class ApiKey(Value, frozen=True, kw_only=True):
    """A key without its secret. `site` of `None` means any site; a `user` binds the key to that user.

    An `agent` binds it to that agent: it acts on tasks in this name, and on nothing else.
    """

    id: str
    tenant: str
    created_at: datetime
    site: str | None = None
    user: str | None = None
    role: KeyRole = KeyRole.MEMBER
    name: str = ""
    agent: str | None = None
    revoked_at: datetime | None = None

    @property
    def revoked(self) -> bool:
        """Whether it is no longer valid."""
        return self.revoked_at is not None


class _ApiKeyRecord(Value, frozen=True, kw_only=True):
    """A key as it is stored: the hash of its secret, never the secret."""

    hash: str
    key: ApiKey


class ApiKeys:
    """The installation's keys, kept in its own store."""

    def __init__(self, *, store: StateStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(
        self,
        *,
        tenant: str,
        site: str | None = None,
        user: str | None = None,
        role: KeyRole = KeyRole.MEMBER,
        name: str = "",
        agent: str | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key; its secret is returned only here and is not stored.

        Raises:
            Invalid: an id is not valid, or the tenant's starts with "~".
        """
        check_tenant_id(tenant)
        if site:
            check_id(site, "the site id")
        if user is not None:
            check_id(user, "the user id")
        check_text(name, "the key's name")
        if agent is not None:
            check_agent_credential(agent, role)
        key_id = secrets.token_hex(8)
        secret = f"{_MARK}_{key_id}_{secrets.token_urlsafe(32)}"
        key = ApiKey(
            id=key_id, tenant=tenant, site=site, user=user, role=role, name=name, agent=agent, created_at=self._clock()
        )
        await self._write(_ApiKeyRecord(hash=_hash(secret), key=key), if_version=0)
        return key, secret

    async def verify(self, secret: str) -> ApiKey | None:
        """The key of this secret; `None` when it is unknown, malformed or revoked."""
        # `tnt_<id>_<random>`
        parts = secret.split("_", 2) if len(secret) <= _LONGEST_SECRET and secret.isascii() else []
        if len(parts) != 3 or parts[0] != _MARK or not parts[1].isalnum() or not parts[2]:
            return None
        entry = await self._store.read_state(SYSTEM, _NAMESPACE, parts[1])
        record = _decode_record(entry) if entry is not None else None
        # Compare for an unknown id, too, so that both take the same time.
        right = hmac.compare_digest(_hash(secret), record.hash if record is not None else _NO_HASH)
        return record.key if record is not None and right and not record.key.revoked else None

    async def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key for good; repeating it has no effect.

        Raises:
            ApiKeyNotFound: there is no such key.
        """
        while True:
            entry = await self._store.read_state(SYSTEM, _NAMESPACE, key_id) if key_id else None
            record = _decode_record(entry) if entry is not None else None
            if entry is None or record is None:
                raise ApiKeyNotFound(key_id)
            if record.key.revoked:
                return record.key
            revoked = replace(record.key, revoked_at=self._clock())
            try:
                await self._write(replace(record, key=revoked), if_version=entry.version)
            except VersionConflict:
                continue
            return revoked

    async def revoke_user_keys(self, scope: Scope) -> int:
        """Revoke every key of the scope's user and remove the user from it; returns their number.

        The records stay: without any key the server would accept callers without a credential.
        """
        total = 0
        async for entry in self._entries():
            record = _decode_record(entry)
            if record is None or (record.key.tenant, record.key.user) != (scope.tenant, scope.user):
                continue
            revoked_at = record.key.revoked_at or self._clock()
            blanked = replace(record.key, user=None, name="", role=KeyRole.MEMBER, revoked_at=revoked_at)
            await self._write(replace(record, key=blanked), if_version=entry.version)
            total += 1
        return total

    async def list(self, tenant: str | None = None) -> tuple[ApiKey, ...]:
        """All keys, of one tenant if given, oldest first, revoked ones included."""
        records = [record async for entry in self._entries() if (record := _decode_record(entry)) is not None]
        keys = [record.key for record in records if tenant is None or record.key.tenant == tenant]
        return tuple(sorted(keys, key=lambda key: (key.created_at, key.id)))

    async def any_exist(self) -> bool:
        """Whether callers need a credential: as soon as a key was created.

        Revoked ones count: revoking the last key must not open the server.
        """
        return bool(await self._store.list_state(SYSTEM, _NAMESPACE, limit=1))

    async def _entries(self) -> AsyncIterator[StateEntry]:
        after = ""
        while True:
            page = await self._store.list_state(SYSTEM, _NAMESPACE, after=after, limit=_PAGE)
            for entry in page:
                yield entry
            if len(page) < _PAGE:
                return
            after = page[-1].key

    async def _write(self, record: _ApiKeyRecord, if_version: int) -> None:
        value: Json = msgspec.to_builtins(record)
        await self._store.write_state(SYSTEM, _NAMESPACE, record.key.id, value, if_version=if_version)


def check_agent_credential(agent: str, role: KeyRole) -> None:
    """Check what a credential of an agent says.

    Raises:
        Invalid: the name is not valid or that of human input, or an agent would have the rights of a person.
    """
    check_id(agent, "the agent's name")
    if agent == HUMAN:
        raise Invalid(f"no agent may be named {HUMAN}: it is the writer of human input")
    if role is not KeyRole.MEMBER:
        raise Invalid(f"a credential of an agent cannot have the role {role}")


def _hash(secret: str) -> str:
    return sha256(secret.encode(errors="replace")).hexdigest()


def _decode_record(entry: StateEntry) -> _ApiKeyRecord | None:
    try:
        return msgspec.convert(entry.value, _ApiKeyRecord)
    except msgspec.ValidationError:
        # Such a key is not valid, but still counts in `any_exist`, so damage does not open the server.
        _log.error("the stored API key %s cannot be read", entry.key)
        return None


class Caller(Value, frozen=True, kw_only=True):
    """A caller whose credential was verified. A `site` of `None` means any site of the tenant.

    With a `user` it is that user and no other, unless its role is `admin`; without one it is the tenant's backend,
    which may name the user it acts for. One that `reveals` may see the values behind pseudonyms. With an `agent` it is
    that agent, on tasks alone.
    """

    tenant: str
    site: str | None = None
    user: str | None = None
    role: KeyRole = KeyRole.MEMBER
    reveals: bool = False
    key_id: str | None = None
    agent: str | None = None

    @classmethod
    def from_key(cls, key: ApiKey) -> Self:
        """The caller of this key."""
        return cls(
            tenant=key.tenant,
            site=key.site,
            user=key.user,
            role=key.role,
            reveals=key.role is KeyRole.REVEAL,
            key_id=key.id,
            agent=key.agent,
        )

    @property
    def can_act_for_users(self) -> bool:
        """Whether it may name the user it acts for."""
        return self.user is None or self.role is KeyRole.ADMIN
