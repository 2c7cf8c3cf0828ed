"""Store URLs: servers, deployment mode and credentials."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from tenuto.errors import InvalidSetting

DEFAULT_PORT = 6379
DEFAULT_SENTINEL_PORT = 26379
_OPTIONS = frozenset({"prefix", "tls", "ca", "cert", "key", "verify", "sentinel_username", "sentinel_password"})


class DeploymentMode(StrEnum):
    """The deployment mode of an address."""

    STANDALONE = "standalone"
    CLUSTER = "cluster"
    SENTINEL = "sentinel"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Host and port of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """User name and password."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAddress:
    """A parsed store URL.

    `redis://user:password@host:6379/0`, `rediss://` for TLS, `redis+cluster://a:1,b:2`,
    `redis+sentinel://a:26379,b:26379/service/0`; `valkey` may replace `redis` everywhere. `?prefix=` separates
    installations that share a server.
    """

    shape: DeploymentMode
    endpoints: tuple[Endpoint, ...]
    db: int = 0
    service: str = ""
    prefix: str = "tenuto"
    credential: Credential = field(default_factory=Credential)
    sentinel_credential: Credential = field(default_factory=Credential)
    tls: ssl.SSLContext | None = field(default=None, repr=False)


def parse(url: str) -> RedisAddress:
    """Parse a store URL. Raises `InvalidSetting`, without the password in its message."""
    parts = urlsplit(url)
    scheme, _, mode = parts.scheme.partition("+")
    if scheme not in ("redis", "rediss", "valkey", "valkeys") or mode not in ("", "cluster", "sentinel"):
        raise InvalidSetting("store", f"unknown scheme {parts.scheme!r}")
    shape = DeploymentMode(mode or "standalone")
    options = _options(parts.query)
    service, db = _path(shape, parts.path)
    port = DEFAULT_SENTINEL_PORT if shape is DeploymentMode.SENTINEL else DEFAULT_PORT
    hosts = parts.netloc.rpartition("@")[2] or "localhost"
    secure = scheme in ("rediss", "valkeys") or options.get("tls") in ("1", "true", "yes")
    return RedisAddress(
        shape=shape,
        endpoints=tuple(_endpoint(host, port) for host in hosts.split(",") if host),
        db=db,
        service=service,
        prefix=options.get("prefix", "tenuto"),
        credential=_credential(parts),
        sentinel_credential=Credential(
            username=options.get("sentinel_username"), password=options.get("sentinel_password")
        ),
        tls=_tls(options) if secure else None,
    )


def _options(query: str) -> dict[str, str]:
    options = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        raise InvalidSetting("store", f"unknown option {unknown[0]!r}")
    return options


def _path(shape: DeploymentMode, path: str) -> tuple[str, int]:
    steps = [unquote(step) for step in path.split("/") if step]
    service = ""
    if shape is DeploymentMode.SENTINEL:
        if not steps:
            raise InvalidSetting("store", "a sentinel address names its service, as in /mymaster")
        service = steps.pop(0)
    db = steps.pop(0) if steps else "0"
    if steps or not (db.isascii() and db.isdecimal()):
        raise InvalidSetting("store", "the path is a database number")
    if shape is DeploymentMode.CLUSTER and db != "0":
        raise InvalidSetting("store", "a cluster has database 0 only")
    return service, int(db)


def _endpoint(text: str, default_port: int) -> Endpoint:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, str(default_port)
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise InvalidSetting("store", "a port is a number between 1 and 65535")
    return Endpoint(host.strip("[]") or "localhost", int(port))


def _credential(parts: SplitResult) -> Credential:
    secret, at, _ = parts.netloc.rpartition("@")
    if not at:
        return Credential()
    username, _, password = secret.partition(":")
    return Credential(username=unquote(username) or None, password=unquote(password) or None)


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("ca"))
    if options.get("verify") in ("0", "false", "no"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "cert" in options:
        context.load_cert_chain(options["cert"], options.get("key"))
    return context
