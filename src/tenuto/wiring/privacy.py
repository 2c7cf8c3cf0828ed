"""The wiring of privacy: policies, the vault of pseudonyms, encryption, and an external detector."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tenuto.errors import InvalidSetting, MasterKeyMissing, PackageMissing
from tenuto.lazy_imports import lazy_module
from tenuto.model.scope import SYSTEM
from tenuto.ports import Clock, Detector, SessionStore, StateStore
from tenuto.privacy.crypto.machine_key import MachineKey
from tenuto.privacy.crypto.vault import Vault
from tenuto.privacy.redactor import Redactor
from tenuto.privacy.tenant_policies import TenantPolicies
from tenuto.settings import Settings
from tenuto.stores.sealed_state import has_sealed_records, mark_sealed

if TYPE_CHECKING:
    from importlib import metadata

    from tenuto.privacy import policy_file
    from tenuto.privacy.crypto import keyring, tenant_ciphers
    from tenuto.privacy.detection import external
else:
    metadata = lazy_module("importlib.metadata")
    policy_file = lazy_module("tenuto.privacy.policy_file")
    keyring = lazy_module("tenuto.privacy.crypto.keyring")
    tenant_ciphers = lazy_module("tenuto.privacy.crypto.tenant_ciphers")
    external = lazy_module("tenuto.privacy.detection.external")


def open_redactor(
    stack: AsyncExitStack,
    settings: Settings,
    *,
    state: StateStore,
    sessions: SessionStore,
    clock: Clock,
    detector: Detector | None = None,
) -> Redactor:
    """The redactor of the settings, with the `detector` given instead of theirs; the stack closes what it opens.

    `state` is the one below the encryption: vaults and data keys are there.

    Raises:
        InvalidSetting: a policy is not valid, or uses pseudonyms without a key to seal their values; or no package
            offers the detector that the settings name.
    """
    policies = open_policies(settings)
    refuse_keyless(settings, policies)
    ciphers = open_ciphers(settings, state, clock)
    vault = None if ciphers is None else Vault(state=state, sessions=sessions, ciphers=ciphers)
    # What is in memory alone ends with the process, and so may its key.
    machine_key = MachineKey(None if settings.store.startswith("memory:") else settings.journals())
    return Redactor(
        policies=policies, vault=vault, machine_key=machine_key, outside=_open_detector(stack, settings, detector)
    )


def refuse_keyless(settings: Settings, policies: TenantPolicies) -> None:
    """Refuse policies that need a key where there is none.

    Raises:
        InvalidSetting: one uses pseudonyms, and there is no key to seal their values.
    """
    if policies.any_uses_vault and settings.privacy_key is None and settings.privacy_key_file is None:
        raise InvalidSetting("privacy_key", "is needed for pseudonyms: set it, or privacy_key_file")


async def open_encryption(
    settings: Settings, state: StateStore, clock: Clock, read_only: bool
) -> tenant_ciphers.TenantCiphers | None:
    """The ciphers of a store whose records are or were sealed; `None` for a plain one.

    Raises:
        InvalidSetting: the store holds sealed records, and there is no key to open them.
    """
    has_sealed = await has_sealed_records(state)
    if not (settings.encryption or has_sealed):
        return None
    ciphers = open_ciphers(settings, state, clock)
    if ciphers is None:
        raise InvalidSetting("privacy_key", "is needed: the store holds encrypted records. Set it, or privacy_key_file")
    await _check_key(ciphers, create=settings.encryption and not read_only)
    if settings.encryption and not has_sealed and not read_only:
        await mark_sealed(state)
    return ciphers


async def _check_key(ciphers: tenant_ciphers.TenantCiphers, *, create: bool) -> None:
    """Refuse a master key other than the one this store was sealed with.

    The data key of the installation, created with the first sealed record, is the test.
    """
    try:
        if create:
            await ciphers.cipher_for_sealing(SYSTEM)
        else:
            await ciphers.check(SYSTEM)
    except MasterKeyMissing as error:
        why = f"the store was encrypted with another master key, with the fingerprint {error.fingerprint}"
        raise InvalidSetting("privacy_key", why) from None


def open_policies(settings: Settings) -> TenantPolicies:
    """The policies of all tenants. A file is validated at once, so that a bad policy fails the start."""
    general = settings.privacy()
    if settings.privacy_file is None:
        return TenantPolicies(general)
    general, tenants = policy_file.load_policy_file(Path(settings.privacy_file), general)
    return TenantPolicies(general, tenants)


def open_ciphers(settings: Settings, state: StateStore, clock: Clock) -> tenant_ciphers.TenantCiphers | None:
    """The tenants' ciphers under the master key of the settings; `None` without one."""
    if settings.privacy_key is None and settings.privacy_key_file is None:
        return None
    ring = keyring.load_key_ring(key=settings.privacy_key, file=settings.privacy_key_file)
    assert ring is not None
    return tenant_ciphers.TenantCiphers(store=state, ring=ring, clock=clock)


def _open_detector(
    stack: AsyncExitStack, settings: Settings, given: Detector | None
) -> external.ExternalDetector | None:
    detector = given
    if detector is None and settings.privacy_detector is not None:
        detector = _find_detector(settings.privacy_detector) or _open_presidio(stack, settings)
    if detector is None:
        return None
    if not callable(getattr(detector, "find", None)):
        raise InvalidSetting("detector", f"{type(detector).__name__} has no method find(scope, text, language)")
    languages = tuple(name.strip() for name in settings.privacy_detector_languages.split(","))
    policy = external.ExternalDetectorPolicy(timeout=settings.privacy_detector_timeout, languages=languages)
    return external.ExternalDetector(detector, policy=policy)


def _find_detector(name: str) -> Detector | None:
    """The detector that an installed package offers under this name."""
    for entry_point in metadata.entry_points(group="tenuto.detectors", name=name):
        detector: Detector = entry_point.load()()
        return detector
    return None


def _open_presidio(stack: AsyncExitStack, settings: Settings) -> Detector:
    try:
        from tenuto.privacy.detection.presidio import PresidioDetector
    except ImportError:
        raise PackageMissing("privacy_detector", "presidio", extra="presidio") from None
    assert settings.privacy_detector is not None
    service = PresidioDetector(settings.privacy_detector, timeout=settings.privacy_detector_timeout)
    stack.push_async_callback(service.close)
    return service
