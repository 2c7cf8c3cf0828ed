"""The gate: from a credential and the headers beside it to the scope a request acts in.

With keys or tokens configured, the credential decides and what the request names must agree with it. With neither, the
server is open to this machine alone, and scopes are taken as named.

Keys live in the store. While the store is unavailable, the gate keeps its last state and the keys that it verified
lately, so that routes that need no store go on answering.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from typing import Final, Protocol, Self, TypeVar
from urllib.parse import urlsplit

from msgspec.structs import replace
from starlette.requests import Request

from tenuto.access import ApiKeys, Caller, JwtVerifier, People
from tenuto.app import Tenuto
from tenuto.chat import Chat, LiveTurns, SentTurns
from tenuto.errors import DecryptionFailed, InvalidText, PersonFull, Unavailable
from tenuto.lru_cache import LruCache
from tenuto.model import Scope
from tenuto.model.policy import TaskPolicy
from tenuto.model.scope import check_tenant_id, user_scope
from tenuto.model.urls import is_loopback
from tenuto.model.values import Value
from tenuto.ports import Clock
from tenuto.server.apps.by_history import SessionsByHistory
from tenuto.server.apps.presets import AppRules
from tenuto.server.problems import Forbidden, HostNotAllowed, InvalidCredential, ScopeMismatch
from tenuto.server.rates import RateLimiter
from tenuto.sessions import Sessions
from tenuto.settings import Settings
from tenuto.task_errors import KeyProtected

_log = logging.getLogger(__name__)
OPEN: Final = "open: loopback only, tenant local"
DEFAULT_TENANT: Final = "local"
_TRUSTED_FOR: Final = 2.0
# How long a confirmed key stays valid while it cannot be looked up: long enough to repair a store, short enough that a
# key revoked meanwhile is soon refused.
_HELD_FOR: Final = 900.0
_REMEMBERED: Final = 10_000
# Seconds between checks of the credential of a stream that goes on.
_RECHECK_EVERY: Final = 15.0
_SAFE_METHODS: Final = ("GET", "HEAD")
_OWN_PAGES: Final = ("none", "same-origin")
# What a credential of an agent may read and write; all that others do with tasks is done by people.
_AGENTS_READ: Final = ("/v1/tasks", "/v1/scope")
_AGENTS_WRITE: Final = tuple(f"/v1/tasks/{{task_id}}/{part}/" for part in ("board", "locks", "agents", "steps"))
# What any query may name beside the parameters of its route.
SCOPE_PARAMETERS: Final = {"tenant_id": "tenant", "site_id": "site"}
_NAMING: Final = {
    b"x-tenant-id": "tenant",
    b"x-site-id": "site",
    b"x-user-id": "user",
    b"x-channel": "channel",
    b"x-chat-id": "chat",
    b"x-thread-id": "thread",
}


class _HasExceptions(Protocol):
    def without_exceptions(self) -> Self: ...


_Record = TypeVar("_Record", bound=_HasExceptions)


class AuthContext(Value, frozen=True, kw_only=True):
    """An admitted request: its caller (`None` where the server is open) and the scope parts that it names."""

    caller: Caller | None
    tenant: str | None = None
    site: str | None = None
    user: str | None = None
    channel: str | None = None
    chat: str | None = None
    thread: str | None = None

    @property
    def sees_internals(self) -> bool:
        """Whether it may see what is the operator's: an assistant's prompt and tools, and what code raised."""
        return self.caller is None or self.caller.can_act_for_users

    def visible(self, record: _Record) -> _Record:
        """A trace or a task as far as the caller may see it."""
        return record if self.sees_internals else record.without_exceptions()

    def check_board_writer(self, policy: TaskPolicy, key: str) -> None:
        """Check that the caller may write a key of a board in an agent's name.

        Raises:
            KeyProtected: the key is for one agent, and the credential is that of a user, who is no agent.
        """
        if policy.protects(key) and not (self.caller is None or self.caller.agent or self.caller.can_act_for_users):
            raise KeyProtected(key)

    def scope(self, tenant: str | None = None, site: str | None = None) -> Scope:
        """The scope of the request. A body may name tenant and site too; they must agree with the headers.

        Raises:
            ScopeMismatch: headers, body and credential contradict each other.
        """
        named_tenant = _single_value("tenant", self.tenant, tenant, self.caller.tenant if self.caller else None)
        named_site = _single_value("site", self.site, site, self.caller.site if self.caller else None)
        user = self.user or None
        if self.caller is not None and not self.caller.can_act_for_users:
            if any(place is not None for place in (self.channel, self.chat, self.thread)):
                raise ScopeMismatch("chat")
            user = _single_value("user", self.user, self.caller.user)
        elif self.caller is not None and self.user is None:
            # A user that is named but empty is the tenant itself, for an admin whose credential carries a user.
            user = self.caller.user
        return Scope(
            tenant=DEFAULT_TENANT if named_tenant is None else check_tenant_id(named_tenant),
            site=named_site or "",
            user=user,
            channel=self.channel or None,
            chat=self.chat or None,
            thread=self.thread or None,
        )


class _CachedCaller(Value, frozen=True, kw_only=True):
    """The caller of a key, when the store last confirmed it, and until when no new lookup is needed."""

    caller: Caller
    seen_at: float
    trusted_until: float


class Gate:
    """Admits requests. A key is looked up every two seconds at most, so a revoked one is refused within them.

    While the store is unavailable, keys that it confirmed within the last 15 minutes stay valid; any other key raises
    `Unavailable`, as it may be wrong. A server that was open at the last check stays open.
    """

    def __init__(
        self,
        *,
        keys: ApiKeys,
        people: People,
        tokens: JwtVerifier | None,
        may_be_open: bool,
        origins: frozenset[str] = frozenset(),
        hosts: frozenset[str] = frozenset(),
        rates: RateLimiter,
        open_rates: RateLimiter,
        wrong_rates: RateLimiter,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.keys = keys
        self._people = people
        # The claims of users that were taken up last.
        self._claims = LruCache[Scope, str](_REMEMBERED)
        self._tokens = tokens
        self._may_be_open = may_be_open
        # Whose pages may call an open server, too.
        self._origins = origins
        # What a proxy on this machine may call it.
        self._hosts = hosts
        self._rates = rates
        self._open_rates = open_rates
        self._wrong_rates = wrong_rates
        self._now = now
        # By the digests of their secrets, so that the memory of the process holds no keys.
        self._callers = LruCache[bytes, _CachedCaller](_REMEMBERED)
        self._closed = tokens is not None
        self._looked_at: float | None = None
        # Set, and replaced, when a credential may no longer hold.
        self._changed = asyncio.Event()

    async def admit(self, request: Request) -> AuthContext:
        """Admit a request, with its caller.

        Raises:
            InvalidCredential: a credential is needed and none is valid.
            HostNotAllowed: the server is open, and this request does not come from this machine.
            Forbidden: the credential is that of an agent, and this is not for agents.
            ScopeMismatch: the request names another agent than the credential.
            RateLimited: the caller asks too often, or too many wrong credentials came from its address.
        """
        address = request.client.host if request.client else ""
        if await self.is_open():
            _check_local_request(request, self._origins, self._hosts)
            await self._open_rates.acquire(address)
            request.state.caller = None
            return _read_auth_context(None, request)
        credential = credential_of(request)
        caller = await self._find_caller(credential)
        if caller is None:
            # Counted after the lookup, and only for wrong credentials: clients behind a proxy share an address, and one
            # of them must not block the others. Secrets are too long to be found by trying.
            if credential is None:
                raise InvalidCredential
            await self._wrong_rates.acquire(_client_network(address))
            raise InvalidCredential(self._tokens.why_refused(credential) if self._tokens is not None else "")
        await self._rates.acquire(caller.key_id or (caller.tenant, caller.user))
        if caller.agent is not None:
            _bind_agent(request, caller.agent)
        request.state.caller = caller
        context = _read_auth_context(caller, request)
        if caller.person is not None and caller.user is not None and caller.agent is None:
            await self._link_claimed(replace(context, user=caller.user).scope(), caller.person)
        return context

    async def _link_claimed(self, scope: Scope, claim: str) -> None:
        """Link the user of a token with those whose tokens make the same claim. The request goes on in any case."""
        user = user_scope(scope)
        if self._claims.get(user) == claim:
            return
        try:
            await self._people.claim(user, claim)
            self._claims.put(user, claim)
        except PersonFull:
            self._claims.put(user, claim)
            _log.warning("a user was not linked as a token claims: the person has too many identities")
        except Unavailable as error:
            _log.warning("a claim of a token was not looked at: %s", error.code)

    async def wait_until_lapsed(self, request: Request, *, allow_expired: bool = False) -> None:
        """Return when the credential of an admitted request no longer holds: at once if it was revoked here.

        With `allow_expired`, a token may expire meanwhile.
        """
        while True:
            changed = self._changed
            if not await self._still_admits(request, allow_expired):
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), _RECHECK_EVERY)

    async def _still_admits(self, request: Request, allow_expired: bool) -> bool:
        caller: Caller | None = request.state.caller
        try:
            if await self.is_open():
                return caller is None
            credential = credential_of(request)
            return caller is not None and await self._find_caller(credential, allow_expired=allow_expired) == caller
        except Unavailable:
            return False

    def _recheck(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def is_open(self) -> bool:
        """Whether requests need no credential. Once a key exists, they always do."""
        if self._closed or not self._may_be_open:
            return False
        now = self._now()
        if self._looked_at is None or now - self._looked_at >= _TRUSTED_FOR:
            if await self._has_keys():
                self.close()
            self._looked_at = now
        return not self._closed

    def close(self) -> None:
        """Ask for credentials from now on: a key was created."""
        if self._closed:
            return
        self._closed = True
        if self._looked_at is not None:
            _log.info("closed: the first API key was made, so requests need a credential")
        self._recheck()

    def forget(self, key_id: str) -> None:
        """Look a key up again at its next use, and end its streams: it was revoked."""
        for digest in [digest for digest, known in self._callers.items() if known.caller.key_id == key_id]:
            self._callers.pop(digest)
        self._recheck()

    def forget_tenant(self, tenant: str) -> None:
        """The same for all keys of a tenant: a user was erased, with all identities."""
        for digest in [digest for digest, known in self._callers.items() if known.caller.tenant == tenant]:
            self._callers.pop(digest)
        self._recheck()

    async def _has_keys(self) -> bool:
        try:
            return await self.keys.any_exist()
        except DecryptionFailed:
            raise
        except Unavailable:
            if self._looked_at is None:
                raise
            # It was open at the last check. A first key made meanwhile closes it as soon as the store is back, and
            # until then no data can be read.
            return False

    def works_without_store(self) -> bool:
        """Whether any caller can be admitted while the store is unavailable."""
        if self._tokens is not None or (self._looked_at is not None and not self._closed):
            return True
        now = self._now()
        return any(now - known.seen_at < _HELD_FOR for _, known in self._callers.items())

    async def mode(self) -> str:
        """How requests are admitted, for the log."""
        if await self.is_open():
            return OPEN
        return "closed: API keys" if self._tokens is None else "closed: API keys and tokens"

    async def _find_caller(self, credential: str | None, *, allow_expired: bool = False) -> Caller | None:
        if credential is None:
            return None
        now = self._now()
        digest = sha256(credential.encode(errors="replace")).digest()
        known = self._callers.get(digest)
        if known is not None and now < known.trusted_until:
            return known.caller
        try:
            key = await self.keys.verify(credential)
        except Unavailable as error:
            if known is None or isinstance(error, DecryptionFailed) or now - known.seen_at >= _HELD_FOR:
                raise
            # The store confirmed the key lately, so it stays trusted a little longer.
            held = replace(known, trusted_until=min(now + _TRUSTED_FOR, known.seen_at + _HELD_FOR))
            self._callers.put(digest, held)
            return held.caller
        if key is None:
            self._callers.pop(digest)
            # Tokens expire by themselves and need no lookup in the store: they are verified each time.
            return self._tokens.verify(credential, allow_expired=allow_expired) if self._tokens is not None else None
        caller = Caller.from_key(key)
        self._callers.put(digest, _CachedCaller(caller=caller, seen_at=now, trusted_until=now + _TRUSTED_FOR))
        return caller


@lru_cache(maxsize=1024)
def _client_network(address: str) -> str:
    """The unit for counting wrong credentials: an IPv4 address, or the IPv6 network of one customer."""
    try:
        host = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(host, ipaddress.IPv4Address):
        return address
    return str(host.ipv4_mapped or ipaddress.ip_network((host, 64), strict=False))


@lru_cache(maxsize=64)
def _is_local(client: str, host: str, hosts: frozenset[str]) -> bool:
    """Whether a request comes from this machine, and is for this machine or one of these hosts."""
    named = urlsplit(f"//{host}").hostname or ""
    return is_loopback(client) and (is_loopback(named) or named in hosts or f"[{named}]" in hosts)


def _check_local_request(request: Request, origins: frozenset[str], hosts: frozenset[str]) -> None:
    """Refuse other machines, and web pages that send requests through the user's browser, but those of `origins`.
    `hosts` are names under which a proxy on this machine may pass requests on.

    A page can resolve its own name to 127.0.0.1 (visible in `Host`), or post across origins, also from another port of
    this machine (visible in `Origin` and `Sec-Fetch-Site`).
    """
    client = request.client.host if request.client else "127.0.0.1"
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    try:
        local = _is_local(client, host, hosts)
        own = origin is None or urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # An unfinished IPv6 address.
        raise HostNotAllowed from None
    if not local:
        raise HostNotAllowed
    if origin in origins:
        return
    foreign = request.headers.get("sec-fetch-site", "none") not in _OWN_PAGES
    if not own or (foreign and request.method not in _SAFE_METHODS):
        raise HostNotAllowed


def credential_of(request: Request) -> str | None:
    """The key or token that a request carries."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip()
    return request.headers.get("x-api-key") or None


def _read_auth_context(caller: Caller | None, request: Request) -> AuthContext:
    named: dict[str, list[str]] = {}
    for header, value in request.scope["headers"]:
        what = _NAMING.get(header)
        if what is not None:
            try:
                # HTTP hands over bytes; ids are text of any language.
                named.setdefault(what, []).append(value.decode())
            except UnicodeDecodeError:
                raise InvalidText(f"the {what} in the headers is not UTF-8") from None
    query: bytes = request.scope["query_string"]
    if b"_id" in query or b"%" in query:  # Else it names none of them.
        for parameter, what in SCOPE_PARAMETERS.items():
            named.setdefault(what, []).extend(request.query_params.getlist(parameter))
    return AuthContext(caller=caller, **{what: _single_value(what, *values) for what, values in named.items()})


def _bind_agent(request: Request, agent: str) -> None:
    """Have the request act as this agent, if it is one that agents may make and names no other."""
    path, reads = request.scope["route"].path, request.method in _SAFE_METHODS
    if not path.startswith(_AGENTS_READ if reads else _AGENTS_WRITE):
        raise Forbidden(
            "an agent's credential may read tasks and write boards, locks, its own notes and steps, and nothing else"
        )
    named = request.headers.get("tenuto-agent")
    if named is not None and named.encode("latin-1") != agent.encode():
        raise ScopeMismatch("agent")
    request.state.agent = agent


def bound_agent(request: Request) -> str | None:
    """The agent that the credential of an admitted request is bound to."""
    agent: str | None = getattr(request.state, "agent", None)
    return agent


def _single_value(what: str, *named: str | None) -> str | None:
    """The value that all sources agree on."""
    values = {value for value in named if value is not None}
    if len(values) > 1:
        raise ScopeMismatch(what)
    return values.pop() if values else None


def with_user(admission: AuthContext, user: str | None) -> AuthContext:
    """The same request with the user that its body names.

    Raises:
        ScopeMismatch: headers and body name different users.
    """
    return replace(admission, user=_single_value("user", admission.user, user))


def visiting(scope: Scope) -> Scope:
    """The scope on a public route: a request that names no user is a visitor, not the tenant itself."""
    return scope if scope.owner else replace(scope, visitor=True)


async def authenticate_request(request: Request) -> AuthContext:
    """Admit the request."""
    return await service(request).gate.admit(request)


async def authenticate_operator(request: Request, what: str) -> None:
    """Admit a request about the whole installation: by `metrics_token`, by the role operator, or on an open server.

    Raises:
        Forbidden: the credential is one of a tenant.
    """
    token, given = service(request).settings.metrics_token, credential_of(request)
    if token is not None and given is not None and compare_digest(given.encode(), token.encode()):
        return
    admission = await authenticate_request(request)
    admission.scope()  # It plays no part here, but a wrong one is refused as elsewhere.
    if admission.caller is not None and not admission.caller.operates:
        raise Forbidden(f"{what} for metrics_token, or a credential with the role operator")


async def scope_of(request: Request) -> Scope:
    """Admit the request and return its scope."""
    return (await authenticate_request(request)).scope()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """The open application that the server serves."""

    settings: Settings
    tenuto: Tenuto
    chat: Chat
    live: LiveTurns
    sent_turns: SentTurns
    gate: Gate
    clock: Clock
    embedding_rates: RateLimiter
    apps: AppRules
    by_history: SessionsByHistory

    @property
    def sessions(self) -> Sessions:
        """The sessions of the application."""
        return self.tenuto.sessions


def service(request: Request) -> ServerContext:
    """The context of the server that received this request."""
    context: ServerContext = request.app.state.service
    return context


def sessions(request: Request) -> Sessions:
    """The sessions of the server that received this request."""
    return service(request).sessions
