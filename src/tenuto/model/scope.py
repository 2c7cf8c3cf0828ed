"""Whose data it is: the scope every port asks for first, and the storage keys that derive from it.

Keys are digests over length-prefixed parts, so that no id, however odd, reaches outside its scope.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Final

from tenuto.errors import Invalid
from tenuto.model.values import Value, check_id

KEY_BYTES: Final = 16
"""The length of every key below."""


class Scope(Value, frozen=True, kw_only=True):
    """Who is asking, and from where.

    `tenant` and `site` are walls. Inside them a scope with a `chat` stands for everyone in that chat (and
    thread), one with a `user` for that user, and one with neither for the tenant itself, which reaches
    everything of its own; or for an anonymous `visitor`, who reaches only what visitors opened.
    `persona` names who answers; it is no wall.
    """

    tenant: str
    site: str = ""
    user: str | None = None
    channel: str | None = None
    chat: str | None = None
    thread: str | None = None
    persona: str | None = None
    visitor: bool = False

    def __post_init__(self) -> None:
        check_id(self.tenant, "the tenant id")
        if self.site != "":
            check_id(self.site, "the site id")
        for what in ("user", "channel", "chat", "thread", "persona"):
            value = getattr(self, what)
            if value is not None:
                check_id(value, f"the {what} id")
        if self.thread is not None and self.chat is None:
            raise Invalid("a thread id needs a chat id")
        if self.visitor and not (self.user is None and self.chat is None):
            raise Invalid("a visitor is no user, and in no chat")

    @property
    def owner(self) -> tuple[str, ...]:
        """Who owns what is created in this scope: a chat, a user, visitors, or (empty) the tenant."""
        if self.chat is not None:
            return ("chat", self.channel or "", self.chat, self.thread or "")
        if self.user is not None:
            return ("user", self.user)
        return ("visitor",) if self.visitor else ()

    def reaches(self, other: Scope) -> bool:
        """Whether what was created in `other` exists for this scope."""
        if self == other:
            return True
        if self.tenant != other.tenant or self.site != other.site:
            return False
        owner = self.owner
        return not owner or owner == other.owner


def user_scope(scope: Scope) -> Scope:
    """The scope of the user alone, whatever chat they speak in.

    Raises:
        Invalid: the scope names no user.
    """
    if scope.user is None:
        raise Invalid("the scope names no user")
    return Scope(tenant=scope.tenant, site=scope.site, user=scope.user)


def user_digest(tenant: str, user: str) -> str:
    """The digest of a user in receipts and journals; it can be computed from the user's id."""
    return sha256(f"{len(tenant)}:{tenant}{user}".encode()).hexdigest()


def owner_scope(scope: Scope) -> Scope:
    """The scope of the owner alone: of a chat without who speaks there, of a user wherever they are."""
    if scope.chat is not None:
        return Scope(tenant=scope.tenant, site=scope.site, channel=scope.channel, chat=scope.chat, thread=scope.thread)
    return Scope(tenant=scope.tenant, site=scope.site, user=scope.user, visitor=scope.visitor)


def site_scope(scope: Scope) -> Scope:
    """The scope of the tenant's site, without user or chat."""
    return Scope(tenant=scope.tenant, site=scope.site)


# What belongs to the installation and to no tenant, such as API keys. Doors refuse tenant ids that start with "~".
SYSTEM: Final = Scope(tenant="~tenuto")


def check_tenant_id(tenant: str) -> str:
    """Return a tenant id that a credential or request may name."""
    if tenant.startswith("~"):
        raise Invalid("a tenant id may not start with '~'")
    return check_id(tenant, "the tenant id")


def session_key(scope: Scope, session_id: str) -> bytes:
    """Where a session is stored. The owner is not part of it: two users of a tenant cannot hold one id twice."""
    check_id(session_id, "the session id")
    digest = _digest_prefix("session", scope.tenant, scope.site).copy()
    digest.update(_length_prefixed(session_id))
    return digest.digest()


def site_key(scope: Scope) -> bytes:
    """The tenant's site as a whole."""
    return _digest("space", scope.tenant, scope.site)


def owner_key(scope: Scope) -> bytes:
    """The shelf on which the scope's sessions stand."""
    return _digest("owner", scope.tenant, scope.site, *scope.owner)


def state_key(scope: Scope, namespace: str) -> bytes:
    """The drawer of a scope's key/value state; values of different owners never meet."""
    check_id(namespace, "the namespace")
    return _digest("state", scope.tenant, scope.site, namespace, *scope.owner)


def _digest(*parts: str) -> bytes:
    return _digest_prefix(*parts).copy().digest()


@lru_cache(maxsize=4096)
def _digest_prefix(*parts: str) -> blake2b:
    """A digest over these parts that others may follow; to be copied before use."""
    return blake2b(b"".join(map(_length_prefixed, parts)), digest_size=KEY_BYTES)


def _length_prefixed(part: str) -> bytes:
    raw = part.encode()
    return len(raw).to_bytes(4, "big") + raw
