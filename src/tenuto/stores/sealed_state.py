"""Which state is never sealed, and the mark that a store holds sealed records: both are read before there is a key."""

from __future__ import annotations

from typing import Final

from tenuto.compare_and_set import write_if_unchanged
from tenuto.model import Scope
from tenuto.model.privacy import ENCRYPTION_NAMESPACE, KEYS_NAMESPACE, TENANTS_NAMESPACE, VAULT
from tenuto.model.scope import SYSTEM
from tenuto.ports import StateStore
from tenuto.stores.copy_reports import COPIES

_MARK: Final = "in use"
_UNSEALED: Final = frozenset({KEYS_NAMESPACE, TENANTS_NAMESPACE, ENCRYPTION_NAMESPACE, VAULT})
_DIGESTS: Final = frozenset({"api-keys", COPIES})


async def has_sealed_records(store: StateStore) -> bool:
    """Whether records were ever sealed in this store, so that it must not be read without a key."""
    return await store.read_state(SYSTEM, ENCRYPTION_NAMESPACE, _MARK) is not None


async def mark_sealed(store: StateStore) -> None:
    """Mark the store as one that holds sealed records."""
    await write_if_unchanged(store.write_state(SYSTEM, ENCRYPTION_NAMESPACE, _MARK, True, if_version=0))


async def unmark_sealed(store: StateStore) -> None:
    """Remove the mark: the store holds no sealed records any more."""
    await store.delete_state(SYSTEM, ENCRYPTION_NAMESPACE, _MARK)


def is_always_plain(scope: Scope, namespace: str) -> bool:
    """Whether state is never sealed as a whole: keys, vaults, and digests of API keys and copied records."""
    return namespace in _UNSEALED or (namespace in _DIGESTS and scope.tenant == SYSTEM.tenant)
