"""What a verified credential proves about the one who shows it."""

from __future__ import annotations

from typing import Self

from tenuto.access.api_keys import ApiKey, KeyRole
from tenuto.model.values import Value


class Caller(Value, frozen=True, kw_only=True):
    """A caller whose credential was verified. A `site` of `None` means any site of the tenant.

    With a `user` it is that user and no other, unless its role is `admin`; without one it is the tenant's backend,
    which may name the user it acts for. One that `reveals` may see the values behind pseudonyms.
    """

    tenant: str
    site: str | None = None
    user: str | None = None
    role: KeyRole = KeyRole.MEMBER
    reveals: bool = False
    key_id: str | None = None

    @classmethod
    def from_key(cls, key: ApiKey) -> Self:
        """Whoever holds this key."""
        return cls(
            tenant=key.tenant,
            site=key.site,
            user=key.user,
            role=key.role,
            reveals=key.role is KeyRole.REVEAL,
            key_id=key.id,
        )

    @property
    def can_act_for_users(self) -> bool:
        """Whether it may say for which user it acts."""
        return self.user is None or self.role is KeyRole.ADMIN
