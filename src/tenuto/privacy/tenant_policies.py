"""The policies of all tenants, each with its finder, and what a policy comes to in a scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from tenuto.model import Scope
from tenuto.model.policy import PRESETS
from tenuto.model.privacy import ATTACHMENT_SINKS, AttachmentMode, CustomPattern, Mode, PrivacyPolicy, Sink
from tenuto.privacy.rules.span import PiiType

if TYPE_CHECKING:
    from tenuto.privacy.detection.finder import PiiFinder


class TenantPolicies:
    """The policy of each tenant, and its finder, built on first use; `forms` are patterns of built-in types."""

    def __init__(
        self,
        general: PrivacyPolicy,
        tenants: Mapping[str, PrivacyPolicy] | None = None,
        forms: Sequence[CustomPattern] = (),
    ) -> None:
        self._general = general
        self._tenants = dict(tenants or {})
        self._forms = forms
        self._finders: dict[str, PiiFinder] = {}

    @property
    def general(self) -> PrivacyPolicy:
        """The policy of every other tenant."""
        return self._general

    @property
    def tenants(self) -> tuple[str, ...]:
        """Tenants with a policy of their own."""
        return tuple(sorted(self._tenants))

    def of(self, scope: Scope) -> PrivacyPolicy:
        """The policy of this tenant."""
        return self._tenants.get(scope.tenant, self._general)

    def finder(self, scope: Scope) -> PiiFinder:
        """The finder of this tenant's policy."""
        name = scope.tenant if scope.tenant in self._tenants else ""
        finder = self._finders.get(name)
        if finder is None:
            # Imported late: programs that keep texts as they are never need the detector's tables.
            from tenuto.privacy.detection.finder import PiiFinder

            finder = self._finders[name] = PiiFinder(self.of(scope), self._forms)
        return finder

    def widened(self, types: frozenset[PiiType]) -> TenantPolicies:
        """These policies with more types to look for, except those that a policy never looks for.

        They are found in the forms of every preset: which assistants took part in a session is not known here.
        """

        def widen(policy: PrivacyPolicy) -> PrivacyPolicy:
            return replace(policy, also=tuple({*policy.also, *types.difference(policy.never)}))

        forms = [form for preset in PRESETS.values() for form in preset.privacy_patterns if form.name in types]
        return TenantPolicies(widen(self._general), {name: widen(one) for name, one in self._tenants.items()}, forms)

    @property
    def any_uses_vault(self) -> bool:
        """Whether any policy needs a vault."""
        return any(policy.vaulted for policy in (self._general, *self._tenants.values()))


class ScopePolicy(NamedTuple):
    """What a tenant's policy comes to: the mode of each sink, and whether values go into a vault.

    `has_typed_placeholders` says that placeholders in stored messages were typed by users, since messages are stored
    unchanged. `attachments` are the modes of pictures, sounds and files.
    """

    modes: Mapping[Sink, Mode]
    uses_vault: bool
    has_typed_placeholders: bool
    attachments: Mapping[Sink, AttachmentMode]

    @classmethod
    def of(cls, policy: PrivacyPolicy, *, has_vault: bool) -> ScopePolicy:
        uses_vault = has_vault and policy.vaulted
        modes = {sink: policy.mode(sink) for sink in Sink}
        attachments = {sink: policy.attachment_mode(sink) for sink in ATTACHMENT_SINKS}
        return cls(modes, uses_vault, uses_vault and policy.message is not Mode.PSEUDONYM, attachments)
