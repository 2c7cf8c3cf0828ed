"""API keys: shown once, stored as a hash, revocable.

A secret has 256 random bits, so a plain, fast hash is enough.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from tenuto.compare_and_set import update_state, write_if_unchanged
from tenuto.errors import ApiKeyNotFound, Invalid, Unavailable
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
# How exactly the last use is stored: often enough to find unused keys, too seldom to cost a request anything.
_USE_NOTED_EVERY: Final = timedelta(hours=1)


class KeyRole(StrEnum):
    """What a key may do: act for its own user or tenant, or (`admin`) for any user of its tenant and manage its keys.

    `privacy.reveal` is a member who may also see the values behind pseudonyms, `operator` one who may also see status
    and metrics of the whole installation; an admin of a tenant may neither.
    """

    MEMBER = "member"
    ADMIN = "admin"
    REVEAL = "privacy.reveal"
    OPERATOR = "operator"


class ApiKey(Value, frozen=True, kw_only=True):
    """A key without its secret. `site` of `None` means any site; a `user` binds the key to that user.

    An `agent` binds it to that agent: it acts on tasks in this name, and on nothing else. `last_used_at` is exact to an
    hour, and `None` before the first use.
    """

    id: str
    tenant: str
    created_at: datetime
    site: str | None = None
    user: str | None = None
    role: KeyRole = KeyRole.MEMBER
    name: str = ""
    agent: str | None = None
    last_used_at: datetime | None = None
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
        """The key of this secret; `None` when it is unknown, malformed or revoked. Its use is noted once an hour."""
        # `tnt_<id>_<random>`
        parts = secret.split("_", 2) if len(secret) <= _LONGEST_SECRET and secret.isascii() else []
        if len(parts) != 3 or parts[0] != _MARK or not parts[1].isalnum() or not parts[2]:
            return None
        entry = await self._store.read_state(SYSTEM, _NAMESPACE, parts[1])
        record = _decode_record(entry)
        # Compare for an unknown id, too, so that both take the same time.
        right = hmac.compare_digest(_hash(secret), record.hash if record is not None else _NO_HASH)
        if entry is None or record is None or not right or record.key.revoked:
            return None
        await self._note_use(record, entry.version)
        return record.key

    async def _note_use(self, record: _ApiKeyRecord, version: int) -> None:
        now, last = self._clock(), record.key.last_used_at
        if last is not None and now - last < _USE_NOTED_EVERY:
            return
        # Another process has just noted it, or the key was just revoked, or the store is read-only now: the key holds.
        with suppress(Unavailable):
            used = replace(record, key=replace(record.key, last_used_at=now))
            await write_if_unchanged(self._write(used, if_version=version))

    async def revoke(self, key_id: str, *, tenant: str | None = None, site: str | None = None) -> ApiKey:
        """Revoke a key for good; repeating it has no effect. With a tenant or a site, keys of others do not exist.

        Raises:
            ApiKeyNotFound: there is no such key.
        """

        def end(key: ApiKey) -> ApiKey:
            if not _belongs(key, tenant, site):
                raise ApiKeyNotFound
            return key if key.revoked else replace(key, revoked_at=self._clock())

        revoked = await self._change(key_id, end) if key_id else None
        if revoked is None:
            raise ApiKeyNotFound
        return revoked

    async def revoke_user_keys(
        self,
        scope: Scope,
        *,
        site: str | None = None,
        roles: Collection[KeyRole] = tuple(KeyRole),
        spare: str | None = None,
    ) -> tuple[int, int]:
        """Revoke the keys of the scope's user with these roles, but for the id `spare`, with a `site` only those bound
        to it, and remove the user from them; returns their number, and that of the user's keys which still hold there.

        The records stay: without any key the server would accept callers without a credential.
        """

        def blank(key: ApiKey) -> ApiKey:
            revoked_at = key.revoked_at or self._clock()
            return replace(key, user=None, name="", role=KeyRole.MEMBER, last_used_at=None, revoked_at=revoked_at)

        theirs = [key for key in await self.list(scope.tenant) if key.user == scope.user]
        ended = [key for key in theirs if key.role in roles and site in (None, key.site) and key.id != spare]
        for key in ended:
            await self._change(key.id, blank)
        there = [key for key in theirs if not key.revoked and (site is None or key.site in (None, site))]
        return len(ended), sum(key not in ended for key in there)

    async def _change(self, key_id: str, change: Callable[[ApiKey], ApiKey]) -> ApiKey | None:
        """Change a stored key; `None` where there is no such key."""

        def change_record(record: _ApiKeyRecord | None) -> _ApiKeyRecord | None:
            if record is None or (new_key := change(record.key)) == record.key:
                return None
            return replace(record, key=new_key)

        update = await update_state(self._store, SYSTEM, _NAMESPACE, key_id, _decode_record, change_record)
        return None if update.after is None else update.after.key

    async def list(self, tenant: str | None = None, site: str | None = None) -> tuple[ApiKey, ...]:
        """All keys, of one tenant or site if given, oldest first, revoked ones included."""
        records = [record async for entry in self._entries() if (record := _decode_record(entry)) is not None]
        keys = [record.key for record in records if _belongs(record.key, tenant, site)]
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


def _belongs(key: ApiKey, tenant: str | None, site: str | None) -> bool:
    """Whether a key is one of this tenant and of this site, where they are given."""
    return tenant in (None, key.tenant) and site in (None, key.site)


def _hash(secret: str) -> str:
    return sha256(secret.encode(errors="replace")).hexdigest()


def _decode_record(entry: StateEntry | None) -> _ApiKeyRecord | None:
    if entry is None:
        return None
    try:
        return msgspec.convert(entry.value, _ApiKeyRecord)
    except msgspec.ValidationError:
        # Such a key is not valid, but still counts in `any_exist`, so damage does not open the server.
        _log.error("the stored API key %s cannot be read", entry.key)
        return None


class Caller(Value, frozen=True, kw_only=True):
    """A caller whose credential was verified. A `site` of `None` means any site of the tenant.

    With a `user` it is that user and no other, unless its role is `admin`; without one it is the tenant's backend,
    which may name the user it acts for. One that `reveals` may see the values behind pseudonyms, one that `operates`
    the status of the whole installation. With an `agent` it is that agent, on tasks alone.
    `person` is what a token claims of whom the user is, for the linking of identities.
    """

    tenant: str
    site: str | None = None
    user: str | None = None
    role: KeyRole = KeyRole.MEMBER
    reveals: bool = False
    operates: bool = False
    key_id: str | None = None
    agent: str | None = None
    person: str | None = None

    @classmethod
    def from_key(cls, key: ApiKey) -> Self:
        """The caller of this key."""
        return cls(
            tenant=key.tenant,
            site=key.site,
            user=key.user,
            role=key.role,
            reveals=key.role is KeyRole.REVEAL,
            operates=key.role is KeyRole.OPERATOR,
            key_id=key.id,
            agent=key.agent,
        )

    def may_grant(self, role: KeyRole) -> bool:
        """Whether it may make a key with this role, if it may make keys at all."""
        permissions = {KeyRole.REVEAL: self.reveals, KeyRole.OPERATOR: self.operates}
        return permissions.get(role, True)

    @property
    def can_act_for_users(self) -> bool:
        """Whether it may name the user it acts for."""
        return self.user is None or self.role is KeyRole.ADMIN
