"""Screens over a store, for tests: a policy, and a vault with a key of its own."""

from __future__ import annotations

from base64 import b64encode

from tenuto.model.privacy import PrivacyPolicy
from tenuto.ports import Store, utc_now
from tenuto.privacy.crypto.keyring import KeyRing, MasterKey, MasterKeys, load_key_ring
from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
from tenuto.privacy.crypto.vault import Vault
from tenuto.privacy.redacting_store import RedactingStore
from tenuto.privacy.redactor import Redactor
from tenuto.privacy.tenant_policies import TenantPolicies
from tests.doubles import MemoryStore

MASTER_KEY = b64encode(bytes(range(32))).decode()


def vault_over(store: Store) -> Vault:
    """A vault whose key is the tests' own."""
    ring = load_key_ring(key=MASTER_KEY)
    assert ring is not None
    return Vault(
        state=store.state, sessions=store.sessions, ciphers=TenantCiphers(store=store.state, ring=ring, clock=utc_now)
    )


def redactor_over(store: Store, policy: PrivacyPolicy | None = None, **tenants: PrivacyPolicy) -> Redactor:
    """A redactor with that policy, the default one where none is named, and a vault."""
    return Redactor(policies=TenantPolicies(policy or PrivacyPolicy(), tenants), vault=vault_over(store))


def redacting_store(
    policy: PrivacyPolicy | None = None, **tenants: PrivacyPolicy
) -> tuple[MemoryStore, RedactingStore]:
    """A store in memory, and the same store behind a policy."""
    store = MemoryStore()
    return store, RedactingStore(store=store, redactor=redactor_over(store, policy, **tenants))


OTHER_RING = KeyRing(keys=MasterKeys(current=MasterKey(name="other", secret=bytes(range(64, 96)))))
