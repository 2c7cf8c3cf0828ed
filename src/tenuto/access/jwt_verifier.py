"""JWT: verified by one fixed algorithm and one configured key, and read into a `Caller`.

The algorithm is a setting and never taken from the token. PyJWT is imported only where tokens are configured.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenuto.access.api_keys import Caller, KeyRole, check_agent_credential
from tenuto.errors import Invalid, InvalidSetting
from tenuto.model.scope import check_tenant_id
from tenuto.model.values import JsonObject, Value, check_id

if TYPE_CHECKING:
    from jwt import PyJWK

_log = logging.getLogger(__name__)
_SHARED: Final = ("HS256", "HS384", "HS512")
_PUBLIC: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_LONGEST: Final = 16 * 1024
_LEEWAY_SECONDS: Final = 30


class JwtPolicy(Value, frozen=True, kw_only=True):
    """How tokens are verified (by a shared secret, a PEM file or a JWKS file), and the claims that name the caller."""

    secret: str | None = None
    key_file: str | None = None
    jwks_file: str | None = None
    algorithm: str | None = None
    issuer: str | None = None
    audience: str | None = None
    tenant_claim: str = "tenant_id"
    site_claim: str = "site_id"
    user_claim: str = "sub"
    role_claim: str = "role"
    agent_claim: str = "agent"
    person_claim: str | None = None

    def __post_init__(self) -> None:
        if self.algorithm is not None and not self.configured:
            raise InvalidSetting("jwt_algorithm", "is set, but there is no key to verify tokens with")
        fitting = _SHARED if self.secret is not None else _PUBLIC
        if self.algorithm is not None and self.algorithm not in fitting:
            raise InvalidSetting(
                "jwt_algorithm", f"{self.algorithm!r} does not go with this kind of key; wanted {', '.join(fitting)}"
            )

    @property
    def configured(self) -> bool:
        """Whether tokens are accepted at all."""
        return any((self.secret, self.key_file, self.jwks_file))

    @property
    def fixed_algorithm(self) -> str:
        """The one algorithm tokens must be signed with."""
        return self.algorithm or ("HS256" if self.secret is not None else "RS256")


class JwtVerifier:
    """Verifies tokens. The key is read at once, so that a bad file fails the start."""

    def __init__(self, policy: JwtPolicy) -> None:
        self._policy = policy
        self._keys: dict[str | None, PyJWK] = {}
        self._read_at: int | None = None
        self._key = self._read_key()

    def verify(self, token: str, *, allow_expired: bool = False) -> Caller | None:
        """The caller of a token; `None` if it is not valid."""
        claims = self._decode_claims(token, allow_expired=allow_expired)
        if claims is None:
            return None
        try:
            return self._build_caller(claims)
        except Invalid as error:
            _log.info("a JWT was refused: %s", error)
            return None

    def why_refused(self, token: str) -> str:
        """What the claims of a token lack that our key has signed; empty for any other token."""
        claims = self._decode_claims(token)
        try:
            if claims is not None:
                self._build_caller(claims)
        except Invalid as error:
            return str(error)
        return ""

    def _decode_claims(self, token: str, *, allow_expired: bool = False) -> JsonObject | None:
        import jwt

        policy = self._policy
        try:
            key = self._key if self._key is not None else self._find_key(token)
            if key is None or len(token) > _LONGEST:
                return None
            return jwt.decode(
                token,
                key,
                algorithms=[policy.fixed_algorithm],
                audience=policy.audience,
                issuer=policy.issuer,
                leeway=_LEEWAY_SECONDS,
                # The claims that are ours are read afterwards, where what is wrong with them can be told.
                options={"require": ["exp"], "verify_exp": not allow_expired, "verify_sub": False},
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as exc:
            # The type alone: the message may quote the token.
            _log.info("a JWT was refused: %s", type(exc).__name__)
            return None

    def _build_caller(self, claims: JsonObject) -> Caller:
        policy = self._policy
        claim = claims.get(policy.role_claim)
        roles = claim if isinstance(claim, list) else [claim]
        order = (KeyRole.ADMIN, KeyRole.REVEAL, KeyRole.OPERATOR)
        role = next((role for role in order if role in roles), KeyRole.MEMBER)
        user = _claim(claims, policy.user_claim)
        if user is None and role is not KeyRole.ADMIN:
            # A member's token without a user would act for the whole tenant.
            raise Invalid(f"it has no {policy.user_claim}, and without a user a token needs the role admin")
        agent = _claim(claims, policy.agent_claim)
        if agent is not None:
            check_agent_credential(agent, role)
        tenant = _claim(claims, policy.tenant_claim)
        if tenant is None:
            raise Invalid(f"it has no {policy.tenant_claim}")
        return Caller(
            tenant=check_tenant_id(tenant),
            site=_claim(claims, policy.site_claim),
            user=user,
            role=role,
            # A token may carry several roles, so an admin's can reveal and operate as well; by its role it cannot.
            reveals=KeyRole.REVEAL in roles,
            operates=KeyRole.OPERATOR in roles,
            agent=agent,
            person=None if policy.person_claim is None else _claim(claims, policy.person_claim),
        )

    def _read_key(self) -> str | bytes | None:
        """The one key; `None` if keys come from a JWKS file, which may hold several."""
        policy = self._policy
        if policy.secret is not None:
            return policy.secret
        if policy.key_file is not None:
            return _check_pem(_file("jwt_key_file", policy.key_file), policy.fixed_algorithm)
        self._read_jwks()
        return None

    def _find_key(self, token: str) -> PyJWK | None:
        """The key that the token names. Keys may have been rotated: for an unknown name the set is read again."""
        import jwt

        name = jwt.get_unverified_header(token).get("kid")
        if name not in self._keys:
            self._read_jwks()
        if name is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(name)

    def _read_jwks(self) -> None:
        assert self._policy.jwks_file is not None
        path = Path(self._policy.jwks_file)
        try:
            changed_at = path.stat().st_mtime_ns
            if changed_at == self._read_at:
                return
            self._keys = _parse_jwks(path.read_bytes(), self._policy.fixed_algorithm)
            self._read_at = changed_at
        except (OSError, InvalidSetting) as exc:
            if self._read_at is None:
                raise InvalidSetting("jwt_jwks_file", str(exc).removeprefix("jwt_jwks_file: ")) from exc
            _log.error("the key set cannot be read again, the old keys stay in use: %s", exc)


def _claim(claims: JsonObject, name: str) -> str | None:
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise Invalid(f"its {name} is not a string")
    return check_id(value, f"its {name}")


def _file(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        raise InvalidSetting(setting, f"cannot be read: {exc.strerror}") from exc


def _check_pem(pem: bytes, algorithm: str) -> bytes:
    import jwt

    try:
        jwt.get_algorithm_by_name(algorithm).prepare_key(pem)
    except (jwt.PyJWTError, ValueError, TypeError) as exc:
        raise InvalidSetting("jwt_key_file", f"is not a public key for {algorithm}") from exc
    return pem


def _parse_jwks(raw: bytes, algorithm: str) -> dict[str | None, PyJWK]:
    """The keys of a set that fit the fixed algorithm, by their names."""
    import jwt

    try:
        jwks = msgspec.json.decode(raw, type=dict[str, list[dict[str, Any]]])["keys"]
    except (msgspec.DecodeError, KeyError):
        raise InvalidSetting("jwt_jwks_file", "is not a JSON Web Key Set") from None
    keys: dict[str | None, PyJWK] = {}
    for entry in jwks:
        if entry.get("alg", algorithm) != algorithm or entry.get("use", "sig") != "sig":
            continue
        try:
            keys[entry.get("kid")] = jwt.PyJWK(entry, algorithm)
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
    if not keys:
        raise InvalidSetting("jwt_jwks_file", f"holds no key for {algorithm}")
    return keys
