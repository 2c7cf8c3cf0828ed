"""The mark that a store holds sealed records, which is read before there is a key."""

from __future__ import annotations

from typing import Final

from tenuto.compare_and_set import write_if_unchanged
from tenuto.model.privacy import ENCRYPTION_NAMESPACE
from tenuto.model.scope import SYSTEM
from tenuto.ports import StateStore

_MARK: Final = "in use"


async def has_sealed_records(store: StateStore) -> bool:
    """Whether records were ever sealed in this store, so that it must not be read without a key."""
    return await store.read_state(SYSTEM, ENCRYPTION_NAMESPACE, _MARK) is not None


async def mark_sealed(store: StateStore) -> None:
    """Mark the store as one that holds sealed records."""
    await write_if_unchanged(store.write_state(SYSTEM, ENCRYPTION_NAMESPACE, _MARK, True, if_version=0))


async def unmark_sealed(store: StateStore) -> None:
    """Remove the mark: the store holds no sealed records any more."""
    await store.delete_state(SYSTEM, ENCRYPTION_NAMESPACE, _MARK)
