"""The scope of data, which every port takes first, and the storage keys derived from it.

Keys are digests over length-prefixed parts, so that no id can collide with one of another scope.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Final

from tenuto.errors import Invalid
from tenuto.model.values import Value, check_id

KEY_BYTES: Final = 16
"""The length of every key below."""
# A key that is cached costs a third of a digest, and a turn asks for twenty.
_CACHED_KEYS: Final = 4096
_CACHED_SESSION_KEYS: Final = 10_000
# Longer ids, which callers may choose, are not worth the memory.
_LONG_ID: Final = 256


class Scope(Value, frozen=True, kw_only=True):
    """The caller of an operation.

    `tenant` and `site` isolate data. Inside them a scope with a `chat` stands for all members of that chat (and
    thread), one with a `user` for that user, and one with neither for the tenant itself, which has access to all of
    its data; or for an anonymous `visitor`, with access to sessions of visitors. `persona` is who answers; it isolates
    nothing.
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
            raise Invalid("a visitor is neither a user nor in a chat")

    @property
    def owner(self) -> tuple[str, ...]:
        """The owner of data created in this scope: a chat, a user, visitors, or (empty) the tenant."""
        if self.chat is not None:
            return ("chat", self.channel or "", self.chat, self.thread or "")
        if self.user is not None:
            return ("user", self.user)
        return ("visitor",) if self.visitor else ()

    def reaches(self, other: Scope) -> bool:
        """Whether data created in `other` is visible to this scope."""
        if self == other:
            return True
        if self.tenant != other.tenant or self.site != other.site:
            return False
        owner = self.owner
        return not owner or owner == other.owner


def user_scope(scope: Scope) -> Scope:
    """The scope of the user without the chat.

    Raises:
        Invalid: the scope names no user.
    """
    if scope.user is None:
        raise Invalid("the scope names no user")
    return Scope(tenant=scope.tenant, site=scope.site, user=scope.user)


def user_digest(tenant: str, user: str) -> str:
    """The digest of a user in receipts and journals; it can be computed from the user's id."""
    return sha256(f"{len(tenant)}:{tenant}{user}".encode()).hexdigest()


def speaker_tag(tenant: str, user: str) -> str:
    """What tells a user from others of the same name in a prompt: six hexadecimal digits."""
    return user_digest(tenant, user)[:6]


def owner_scope(scope: Scope) -> Scope:
    """The scope of the owner: a chat without the speaker, or a user without the place."""
    if scope.persona is None and (scope.channel if scope.chat is None else scope.user) is None:
        return scope
    if scope.chat is not None:
        return Scope(tenant=scope.tenant, site=scope.site, channel=scope.channel, chat=scope.chat, thread=scope.thread)
    return Scope(tenant=scope.tenant, site=scope.site, user=scope.user, visitor=scope.visitor)


def site_scope(scope: Scope) -> Scope:
    """The scope of the tenant's site, without user or chat."""
    return Scope(tenant=scope.tenant, site=scope.site)


# Data of the installation and no tenant, such as API keys. HTTP and CLI refuse tenant ids that start with "~".
SYSTEM: Final = Scope(tenant="~tenuto")


def check_tenant_id(tenant: str) -> str:
    """Return a tenant id that a credential or request may name."""
    if tenant.startswith("~"):
        raise Invalid("a tenant id may not start with '~'")
    return check_id(tenant, "the tenant id")


def session_key(scope: Scope, session_id: str) -> bytes:
    """The key of a session. The owner is no part of it: a session id is unique within a tenant's site."""
    if type(session_id) is not str or len(session_id) > _LONG_ID:
        return _session_key.__wrapped__(scope.tenant, scope.site, session_id)
    return _session_key(scope.tenant, scope.site, session_id)


@lru_cache(maxsize=_CACHED_SESSION_KEYS)
def _session_key(tenant: str, site: str, session_id: str) -> bytes:
    return _digest("session", tenant, site, check_id(session_id, "the session id"))


@lru_cache(maxsize=_CACHED_KEYS)
def site_key(scope: Scope) -> bytes:
    """The key of a tenant's site."""
    return _digest("space", scope.tenant, scope.site)


@lru_cache(maxsize=_CACHED_KEYS)
def owner_key(scope: Scope) -> bytes:
    """The key of the list of an owner's sessions."""
    return _digest("owner", scope.tenant, scope.site, *scope.owner)


@lru_cache(maxsize=_CACHED_KEYS)
def state_key(scope: Scope, namespace: str) -> bytes:
    """The key of a namespace of state, which differs by owner."""
    return _digest("state", scope.tenant, scope.site, check_id(namespace, "the namespace"), *scope.owner)


def _digest(*parts: str) -> bytes:
    return blake2b(b"".join(map(_length_prefixed, parts)), digest_size=KEY_BYTES).digest()


def _length_prefixed(part: str) -> bytes:
    raw = part.encode()
    return len(raw).to_bytes(4, "big") + raw
