"""What the doctor looks at about private data: the policy, the key, encryption, the outside detector."""

from __future__ import annotations

from contextlib import suppress

from tenuto.app import Tenuto
from tenuto.cli.checks import Finding, State
from tenuto.cli.effective import without_password
from tenuto.cli.screen import counted
from tenuto.errors import InvalidSetting, PrivateData, TenutoError
from tenuto.model import Scope
from tenuto.model.privacy import Mode, Sink
from tenuto.privacy.sheet import Slot
from tenuto.stores.encrypted import holds_sealed


async def findings(app: Tenuto, scope: Scope) -> list[Finding]:
    """One line for each."""
    found = [_policy(app, scope), _key(app), await _encryption(app)]
    return [*found, await _detector(app, scope)] if app.screen.outside is not None else found


def refused(error: TenutoError) -> Finding | None:
    """A setting about private data that stops every start; `None` for any other error."""
    if not isinstance(error, InvalidSetting) or not error.setting.startswith(("privacy", "encryption")):
        return None
    advice = f"correct or unset TENUTO_{error.setting.upper()}, or what it names"
    return Finding(name="privacy", state=State.WRONG, says=str(error), advice=advice)


def _policy(app: Tenuto, scope: Scope) -> Finding:
    policies = app.screen.policies
    by_mode = {mode: [sink.value for sink in Sink if policies.of(scope).mode(sink) is mode] for mode in Mode}
    says = "; ".join(f"{mode}: {', '.join(sinks)}" for mode, sinks in by_mode.items() if sinks)
    own = f" ({counted(len(policies.tenants), 'tenant')} with a policy of its own)" if policies.tenants else ""
    return Finding(name="privacy", state=State.OK, says=f"{says}{own}")


def _key(app: Tenuto) -> Finding:
    settings = app.settings
    if settings.privacy_key_file is not None:
        says = f"in {settings.privacy_key_file}"
    elif settings.privacy_key is not None:
        says = "in the settings"
    else:
        says = "none; pseudonyms and encryption would need one (tenuto privacy new-key)"
    return Finding(name="privacy key", state=State.OK, says=says)


async def _encryption(app: Tenuto) -> Finding:
    if app.settings.encryption:
        return Finding(name="encryption", state=State.OK, says="on: what is said is sealed before it is stored")
    if not await holds_sealed(app.stores.backend):
        return Finding(name="encryption", state=State.OK, says="off: whoever reads the store reads what was said")
    says = "off, but the store holds records that were sealed; they are read as before"
    advice = "set TENUTO_ENCRYPTION=true again, or keep the key for as long as they are needed"
    return Finding(name="encryption", state=State.NOTE, says=says, advice=advice)


async def _detector(app: Tenuto, scope: Scope) -> Finding:
    with suppress(PrivateData):
        await app.screen.refuse(scope, [Slot("Is anybody there?")])
    where = without_password(app.settings.privacy_detector or "")
    if app.screen.degraded:
        advice = "start it, or unset TENUTO_PRIVACY_DETECTOR; until then our own detector stands alone"
        return Finding(name="detector", state=State.WRONG, says=f"{where} does not answer", advice=advice)
    return Finding(name="detector", state=State.OK, says=f"{where} answers")
