"""A plain non-blocking socket to a server, authenticated, with or without TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence

import hiredis

from tenuto.stores.redis._auth import ConnectOptions, enable_keepalive, introduction, sign_in
from tenuto.stores.redis._resp import Part, RedisConnectionLost, Reply, check, pack
from tenuto.stores.redis._url import Endpoint

NOTHING = object()
"""Returned by the reader if no whole message has arrived."""
_CHUNK = 65536


async def dial(
    endpoint: Endpoint, options: ConnectOptions, greeting: Sequence[tuple[Part, ...]]
) -> tuple[socket.socket, hiredis.Reader]:
    """Connect, sign in and make the calls of `greeting`, which must succeed. Raises `OSError` or `CallFailed`."""
    sock = await _connect(endpoint)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        enable_keepalive(sock)
        if options.tls is not None:
            sock = await _wrap_tls(sock, options.tls, endpoint.host)
        reader = hiredis.Reader(notEnoughData=NOTHING)
        for needed in (*sign_in(options), *greeting):
            check(await _exchange(sock, reader, pack(needed)))
        for courtesy in introduction(options):
            await _exchange(sock, reader, pack(courtesy))
    except BaseException:
        sock.close()
        raise
    return sock, reader


async def _connect(endpoint: Endpoint) -> socket.socket:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, place in found:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, place)
        except OSError:
            sock.close()
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise RedisConnectionLost(f"cannot connect to {endpoint}")


async def _wrap_tls(sock: socket.socket, tls: ssl.SSLContext, host: str) -> socket.socket:
    secure = tls.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    try:
        while True:
            try:
                secure.do_handshake()
            except ssl.SSLWantReadError:
                await _wait_readable(secure)
            except ssl.SSLWantWriteError:
                # A hello fits into any socket buffer: try again in the next iteration.
                await asyncio.sleep(0)
            else:
                return secure
    except BaseException:
        secure.close()
        raise


async def _exchange(sock: socket.socket, reader: hiredis.Reader, packed: bytes) -> Reply:
    sock.send(packed)
    while (reply := _next_reply(reader)) is NOTHING:
        try:
            data = sock.recv(_CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError):
            await _wait_readable(sock)
            continue
        if not data:
            raise RedisConnectionLost("the server closed the connection")
        reader.feed(data)
    return reply


def _next_reply(reader: hiredis.Reader) -> Reply:
    """The next whole reply, skipping pushed messages."""
    while isinstance(reply := reader.gets(), hiredis.PushNotification):
        pass
    return reply


async def _wait_readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sock.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock.fileno())
