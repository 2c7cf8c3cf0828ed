"""Log lines behind the privacy policy: a second line of defence, since no log call of ours carries user text.

Logging must not fail for it: a text that cannot be redacted is withheld, and where the policy file is invalid, which
the start reports as well, the default policy applies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Final

from tenuto.errors import TenutoError
from tenuto.logs import about
from tenuto.model import Scope
from tenuto.model.privacy import PrivacyPolicy, Sink
from tenuto.model.scope import SYSTEM
from tenuto.privacy.redactor import WITHHELD, Redactor
from tenuto.privacy.tenant_policies import TenantPolicies

_REMEMBERED: Final = 512
_SHORT: Final = 120


class LogRedactor:
    """Applies the policy of the tenant that a line is about, or the general one; loaded with the first line."""

    def __init__(self, policies: Callable[[], TenantPolicies]) -> None:
        self._policies = policies
        # A few messages and routes, repeated for every request, make up most of a log.
        self._known = lru_cache(maxsize=_REMEMBERED)(self._redact)

    def __call__(self, text: str) -> str:
        """The text as it may be logged."""
        try:
            tenant = about().get("tenant", "")
            whose = tenant if tenant in self._redactor.policies.tenants else SYSTEM.tenant
            return (self._known if len(text) <= _SHORT else self._redact)(whose, text)
        except Exception:
            return WITHHELD

    def _redact(self, tenant: str, text: str) -> str:
        return self._redactor.redact(Sink.LOG, Scope(tenant=tenant), text)

    @cached_property
    def _redactor(self) -> Redactor:
        try:
            return Redactor(policies=self._policies())
        except TenutoError:
            return Redactor(policies=TenantPolicies(PrivacyPolicy()))
