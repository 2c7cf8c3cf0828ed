"""What the doctor looks at about private data: the policy, the keys, encryption, the external detector."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tenuto.app import Tenuto
from tenuto.cli.checks import Finding, damaged_keys_advice, fail, ok, warn
from tenuto.cli.effective_settings import mask_password
from tenuto.cli.terminal import pluralize
from tenuto.errors import DataKeysDamaged, DecryptionFailed, InvalidSetting, PrivateData, TenutoError
from tenuto.model import Scope
from tenuto.model.privacy import Mode, Sink
from tenuto.ports import utc_now
from tenuto.privacy.json_texts import Slot
from tenuto.stores.sealed_state import has_sealed_records
from tenuto.wiring.privacy import open_ciphers

if TYPE_CHECKING:
    from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers

# With more tenants than this, only the first ones are checked.
_MOST_TENANTS: Final = 1000
_HELLO: Final = {"en": "Is anybody there?", "zh": "请问有人在吗？", "ja": "だれかいますか。", "ko": "누구 계세요?"}
"""A text in each language that the external detector may be sent."""


async def findings(app: Tenuto, scope: Scope) -> list[Finding]:
    """One line for each."""
    result = [_check_policy(app, scope), _check_key(app), *await _check_tenant_keys(app), await _check_encryption(app)]
    return [*result, await _check_detector(app, scope)] if app.redactor.outside is not None else result


def privacy_settings_error(error: TenutoError) -> Finding | None:
    """A setting about private data that stops every start; `None` for any other error."""
    if not isinstance(error, InvalidSetting) or not error.setting.startswith(("privacy", "encryption")):
        return None
    advice = f"correct or unset TENUTO_{error.setting.upper()}, or what it names"
    return fail("privacy", str(error), advice)


def _check_policy(app: Tenuto, scope: Scope) -> Finding:
    policies = app.redactor.policies
    by_mode = {mode: [sink.value for sink in Sink if policies.of(scope).mode(sink) is mode] for mode in Mode}
    says = "; ".join(f"{mode}: {', '.join(sinks)}" for mode, sinks in by_mode.items() if sinks)
    own = f" ({pluralize(len(policies.tenants), 'tenant')} with a policy of its own)" if policies.tenants else ""
    return ok("privacy", f"{says}{own}")


def _check_key(app: Tenuto) -> Finding:
    settings = app.settings
    if settings.privacy_key_file is not None:
        says = f"in {settings.privacy_key_file}"
    elif settings.privacy_key is not None:
        says = "in the settings"
    else:
        says = "none; pseudonyms and encryption would need one (tenuto privacy new-key)"
    return ok("privacy key", says)


async def why_keys_closed(ciphers: TenantCiphers, tenant: str) -> str | None:
    """Why a tenant's keys do not open; `None` where they do, and where it has none."""
    try:
        return await _missing_master_keys(ciphers, tenant)
    except DecryptionFailed as error:
        return str(error)


async def _missing_master_keys(ciphers: TenantCiphers, tenant: str) -> str | None:
    """Which master keys a tenant's keys wait for."""
    missing = await ciphers.missing_master_keys(Scope(tenant=tenant))
    if not missing:
        return None
    noun = "fingerprint" if len(missing) == 1 else "fingerprints"
    return f"its keys need a master key that the key ring does not have, with the {noun} {', '.join(missing)}"


async def _check_tenant_keys(app: Tenuto) -> list[Finding]:
    """A line for every tenant whose keys do not open, and one for all others."""
    ciphers = open_ciphers(app.settings, app.stores.plain_state, utc_now)
    if ciphers is None:
        return []
    name, wrong, count = "tenant keys", list[Finding](), 0
    async for tenant in ciphers.tenants():
        if count == _MOST_TENANTS:
            break
        count += 1
        advice = f"put that key back under [tenants.{tenant}.keys] in the key file, or among the others"
        try:
            why = await _missing_master_keys(ciphers, tenant)
        except DataKeysDamaged as error:
            why, advice = str(error), damaged_keys_advice(tenant)
        if why is not None:
            wrong.append(fail(name, f"tenant {tenant}: {why}", advice))
    well = count - len(wrong)
    return [*wrong, ok(name, f"usable for {pluralize(well, 'tenant')}")]


async def _check_encryption(app: Tenuto) -> Finding:
    if app.settings.encryption:
        return ok("encryption", "on: text is encrypted before it is stored")
    if not await has_sealed_records(app.stores.plain_state):
        return ok("encryption", "off: whatever can read the store can read its text")
    says = "off, but the store holds encrypted records, which can still be read"
    advice = "set TENUTO_ENCRYPTION=true again, or keep the key for as long as they are needed"
    return warn("encryption", says, advice)


async def _check_detector(app: Tenuto, scope: Scope) -> Finding:
    assert app.redactor.outside is not None
    where = mask_password(app.settings.privacy_detector or "")
    for place, language in enumerate(app.redactor.outside.languages):
        with suppress(PrivateData):
            await app.redactor.refuse(scope, [Slot(_HELLO[language])])
        if app.redactor.degraded and not place:
            advice = "start it, or unset TENUTO_PRIVACY_DETECTOR; until then only the built-in detector runs"
            return fail("detector", f"{where} does not answer", advice)
        if app.redactor.degraded:
            advice = f"give it a model for {language}, or remove {language} from TENUTO_PRIVACY_DETECTOR_LANGUAGES"
            return fail("detector", f"{where} fails on {language} text", advice)
    return ok("detector", f"{where} answers")
