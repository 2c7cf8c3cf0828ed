"""Log lines behind the privacy policy: a second wall, since no line of ours carries what users say.

Whoever writes a line must not fail for it: a text that cannot be looked at is withheld, and where a policy is no good,
which the start says in a line as well, the default holds.
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
from tenuto.privacy.redactor import WITHHELD, Redactor, TenantPolicies

_REMEMBERED: Final = 512
_SHORT: Final = 120


class LogRedactor:
    """Applies the policy of the tenant that a line is about, or everybody's; it is asked for with the first line."""

    def __init__(self, policies: Callable[[], TenantPolicies]) -> None:
        self._policies = policies
        # The same few sentences and routes make up most of a log, one for every request.
        self._known = lru_cache(maxsize=_REMEMBERED)(self._redact)

    def __call__(self, text: str) -> str:
        """The text as a log may have it."""
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
