"""Connecting to a server and authenticating."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from tenuto.stores.redis._connection import Connection
from tenuto.stores.redis._resp import Reply, check, pack
from tenuto.stores.redis._url import Credential, Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionPolicy:
    """Timeouts in seconds, and the name that operators see."""

    connect_timeout: float = 0.5
    call_timeout: float = 1.0
    client_name: str = "tenuto"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """Credentials and policy, the same for every server of one address."""

    credential: Credential = field(default_factory=Credential)
    db: int = 0
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    policy: ConnectionPolicy = field(default_factory=ConnectionPolicy)


async def open_connection(
    endpoint: Endpoint,
    options: ConnectOptions,
    *,
    on_lost: Callable[[Connection], None] | None = None,
    on_message: Callable[[Reply], None] | None = None,
) -> Connection:
    """Connect and sign in. Raises `OSError`, `CallFailed`, or `ResponseError` if the server refuses."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        lambda: Connection(silence=options.policy.call_timeout, on_lost=on_lost, on_message=on_message),
        endpoint.host,
        endpoint.port,
        ssl=options.tls,
    )
    try:
        enable_keepalive(connection.socket)
        await _authenticate(connection, options)
    except BaseException:
        connection.abort()
        raise
    return connection


async def _authenticate(connection: Connection, options: ConnectOptions) -> None:
    deadline = asyncio.get_running_loop().time() + options.policy.connect_timeout
    needed = [connection.send(pack(call), deadline) for call in sign_in(options)]
    courtesies = [connection.send(pack(call), deadline) for call in introduction(options)]
    for waiting in needed:
        check(await waiting)
    # Refused or not, the reply shows that a server is there: a peer that accepts and closes is no open connection.
    await asyncio.gather(*courtesies)


def sign_in(options: ConnectOptions) -> list[tuple[str, ...]]:
    """The calls that must succeed first."""
    calls: list[tuple[str, ...]] = []
    user, password = options.credential.username, options.credential.password
    if password is not None:
        calls.append(("AUTH", user, password) if user else ("AUTH", password))
    if options.db:
        calls.append(("SELECT", str(options.db)))
    return calls


def introduction(options: ConnectOptions) -> list[tuple[str, ...]]:
    """Calls that name the client for operators. Proxies and older servers may refuse them."""
    return [("CLIENT", "SETNAME", options.policy.client_name), ("CLIENT", "SETINFO", "LIB-NAME", "tenuto")]


def enable_keepalive(sock: socket.socket) -> None:
    """Let the kernel detect a dead peer within about half a minute."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
