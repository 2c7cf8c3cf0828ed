"""An encrypted store over memory, for tests that look at what lies beneath."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tenuto.model.scope import session_key
from tenuto.ports import Store
from tenuto.privacy.crypto.keyring import KeyRing, MasterKey, MasterKeys
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.stores.encrypted import EncryptedStore
from tenuto.stores.memory import MemoryStore
from tests.backends import RING
from tests.samples import ANN

OTHER_RING = KeyRing(keys=MasterKeys(current=MasterKey(name="other", secret=bytes(range(64, 96)))))


def encrypted(store: Store, ring: KeyRing = RING, *, sealing: bool = True) -> EncryptedStore:
    """The store behind its encryption."""
    return EncryptedStore(store=store, ciphers=TenantCiphers(store=store.state, ring=ring), sealing=sealing)


def key_of(session_id: str) -> bytes:
    """Where Ann's session of that id is stored."""
    return session_key(ANN, session_id)


def damaged(backend: MemoryStore, session_id: str, **values: Any) -> None:
    """An attacker who can write to the backend changes a head; what stays looks sealed."""
    record = backend.tables.records[key_of(session_id)]
    record.session = replace(record.session, **values)
