"""A connection on which a server reports changed keys, of any client.

It is a plain socket beside the event loop, since a cache must read what the kernel has received without waiting.
Servers write invalidations before they answer the client that made the change, so every change acknowledged before the
read is in that buffer, or the connection is in doubt.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import NamedTuple

import hiredis

from tenuto.background import run_in_background
from tenuto.pauses import Backoff
from tenuto.stores.redis._auth import ConnectOptions
from tenuto.stores.redis._resp import CallFailed, Reply, pack
from tenuto.stores.redis._socket import NOTHING, dial
from tenuto.stores.redis._url import Endpoint

BEAT = 1.0
"""Seconds between two pings."""
DOUBT = 2.0
"""Seconds without any data after which the connection is in doubt."""

_CHUNK = 65536


class NoteChannel(NamedTuple):
    """A channel to subscribe to on the connection that listens."""

    channel: bytes
    on_note: Callable[[bytes], None]


class InvalidationListener:
    """Listens to one server. Used from the event loop's thread only."""

    def __init__(
        self,
        endpoint: Endpoint,
        options: ConnectOptions,
        *,
        prefix: bytes,
        beat: bytes,
        drop: Callable[[list[bytes] | None], None],
        answered: Callable[[Reply], bool],
        notes: NoteChannel | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._options = options
        self._greeting = (("HELLO", "3"), ("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", prefix))
        self._beat = beat
        self._drop = drop
        self._answered = answered
        self._notes = notes
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._reader = hiredis.Reader(notEnoughData=NOTHING)
        self._heard = 0.0
        self._sure = False
        self._deaf = asyncio.Event()
        self.tried = asyncio.Event()
        """Set once it listens, or a first attempt failed."""
        self._work = run_in_background(self._run(), "redis invalidation")

    def listen(self) -> bool:
        """Read all that has arrived. False if changes of this server may be missing."""
        self._drain()
        return self._socket is not None and self._sure and self._loop.time() - self._heard < DOUBT

    def close(self) -> None:
        """Stop listening."""
        self._work.cancel()
        self._disconnect()
        self.tried.set()

    async def _run(self) -> None:
        """Connect and listen until the connection is lost, repeatedly."""
        backoff = Backoff(BEAT / 20, BEAT)
        while True:
            try:
                async with asyncio.timeout(self._options.policy.connect_timeout):
                    sock, reader = await dial(self.endpoint, self._options, self._greeting)
            except (OSError, CallFailed, hiredis.HiredisError):
                self.tried.set()
                await backoff.wait()
                continue
            backoff.reset()
            self._attach(sock, reader)
            self.tried.set()
            await self._ping_until_lost()

    def _attach(self, sock: socket.socket, reader: hiredis.Reader) -> None:
        self._socket, self._reader = sock, reader
        self._heard, self._sure = self._loop.time(), True
        self._deaf.clear()
        self._loop.add_reader(sock.fileno(), self._drain)
        # Anything cached before may have changed meanwhile.
        self._drop(None)
        if self._notes is not None:
            self._send(pack(("SUBSCRIBE", self._notes.channel)))
        self._drain()

    async def _ping_until_lost(self) -> None:
        while self._socket is not None:
            try:
                async with asyncio.timeout(BEAT):
                    await self._deaf.wait()
            except TimeoutError:
                self._send_ping()

    def _send_ping(self) -> None:
        self._drain()
        if self._socket is None:
            return
        if self._loop.time() - self._heard >= DOUBT:
            self._disconnect()
            return
        self._send(self._beat)

    def _send(self, packed: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.send(packed)
        except (OSError, ValueError):
            self._disconnect()

    def _drain(self) -> None:
        while self._socket is not None:
            try:
                data = self._socket.recv(_CHUNK)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError:
                data = b""
            if not data:
                self._disconnect()
                break
            self._heard = self._loop.time()
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (message := self._reader.gets()) is not NOTHING:
                self._handle_message(message)
        except hiredis.HiredisError:
            self._disconnect()

    def _handle_message(self, message: Reply) -> None:
        if not isinstance(message, hiredis.PushNotification):
            sure = self._answered(message)
            if self._sure and not sure:
                self._drop(None)
            self._sure = sure
        elif message[0] == b"invalidate":
            # No keys means that the server was flushed.
            self._drop(message[1])
        elif message[0] == b"message" and self._notes is not None:
            self._notes.on_note(message[2])

    def _disconnect(self) -> None:
        if self._socket is None:
            return
        sock, self._socket = self._socket, None
        self._loop.remove_reader(sock.fileno())
        sock.close()
        self._drop(None)
        self._deaf.set()
