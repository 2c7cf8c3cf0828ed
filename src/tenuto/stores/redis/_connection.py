"""One connection that every task of the process shares.

Calls made in one iteration of the event loop are written together, and replies are matched to calls in order. A call
that timed out or was cancelled keeps its place in the row, and its late reply is discarded.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

import hiredis

from tenuto.stores.redis._resp import CallTimeout, RedisConnectionLost, Reply, Unsent
from tenuto.stores.sockets import reset_on_close

# Callers wait while more bytes are unsent: a slow server must not fill the memory.
_HIGH_WATER = 4 * 1024 * 1024
# The least expected throughput of a server and its network, in bytes per second.
_SLOWEST = 2_000_000
_TICK = 0.05
# This many calls are sent without waiting for the end of the iteration, so that the server can begin.
_HANDFUL = 8
# The reader moves its whole buffer after each reply, so it is fed in pieces of this size.
_MORSEL = 16384
_NOTHING = object()


class Receiver(Protocol):
    """Gets the outcome of one call: a future, or what makes something of the reply at once."""

    def done(self) -> bool:
        """Whether there is no use for an outcome any more."""
        ...

    def set_result(self, result: Reply, /) -> None:
        """The reply; error replies come as values."""
        ...

    def set_exception(self, exception: Exception, /) -> None:
        """There will be no reply."""
        ...


class Connection(asyncio.Protocol):
    """A multiplexed connection, opened by `asyncio.loop.create_connection`.

    It is closed if the server sends nothing for `silence` seconds while calls wait.
    """

    def __init__(
        self,
        *,
        silence: float,
        on_lost: Callable[[Connection], None] | None = None,
        on_message: Callable[[Reply], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._silence = silence
        self._on_lost = on_lost
        self._on_message = on_message
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._transport: asyncio.Transport | None = None
        self._row: deque[tuple[Receiver, float, int]] = deque()
        self._owed = 0
        self._unsent: list[bytes] = []
        self._heard = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._excused = 0.0
        self._writable: asyncio.Future[None] | None = None
        self.closed = False

    @property
    def socket(self) -> socket.socket:
        """The socket below, for its options only."""
        assert self._transport is not None
        # asyncio returns a wrapper that has the methods for options only.
        return cast(socket.socket, self._transport.get_extra_info("socket"))

    @property
    def busy(self) -> bool:
        """True while calls wait for replies."""
        return bool(self._row)

    @property
    def congested(self) -> bool:
        """True while the kernel takes no more bytes: wait for `wait_writable` before sending."""
        return self._writable is not None

    async def wait_writable(self) -> None:
        """Wait until the server takes bytes again, or the connection is gone."""
        while self._writable is not None:
            await asyncio.shield(self._writable)

    def send(self, packed: bytes, deadline: float) -> asyncio.Future[Reply]:
        """Queue one packed call. The future gets the reply; error replies come as values."""
        future: asyncio.Future[Reply] = self._loop.create_future()
        self.send_for(future, packed, deadline)
        return future

    def send_for(self, receiver: Receiver, packed: bytes, deadline: float) -> None:
        """Queue one packed call, whose outcome the receiver gets.

        Raises:
            Unsent: the connection is closed.
        """
        if self.closed:
            raise Unsent("the connection is closed")
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(packed)
        if len(self._unsent) >= _HANDFUL:
            self._flush()
        if not self._row:
            self._heard = self._loop.time()
            if self._watch is None:
                self._watch = self._loop.call_later(_TICK, self._check_timeouts)
        self._owed += len(packed)
        # The time for the bytes before it and its own.
        self._row.append((receiver, deadline - self._excused + self._owed / _SLOWEST, len(packed)))

    def abort(self) -> None:
        """Close now; pending calls fail with `RedisConnectionLost`."""
        if self._transport is not None:
            if self._row:
                reset_on_close(self._transport)
            self._transport.abort()
        self._fail_pending("the connection was closed")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio declares a wider type than create_connection passes.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        reader, row, size = self._reader, self._row, len(data)
        gets = reader.gets
        try:
            for start in range(0, size, _MORSEL):
                reader.feed(data, start, min(_MORSEL, size - start))
                while (reply := gets()) is not _NOTHING:
                    if not row:
                        if self._on_message is None:
                            # Calls and replies are out of step: every later match would be wrong.
                            raise hiredis.ProtocolError("an unexpected reply")
                        self._on_message(reply)
                        continue
                    receiver, _, length = row.popleft()
                    self._owed -= length
                    if not receiver.done():
                        receiver.set_result(reply)
        except hiredis.HiredisError:
            self.abort()

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail_pending("the server closed the connection")

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self._transport is not None and not self.closed:
            self._transport.write(b"".join(unsent))

    def _check_timeouts(self) -> None:
        """Fail overdue calls, and the whole connection if the server sends nothing at all."""
        watch, self._watch = self._watch, None
        if self.closed or not self._row or watch is None:
            return
        now = self._loop.time()
        # A busy event loop could not read replies either: do not blame the server.
        late = max(0.0, now - watch.when() - _TICK)
        self._excused += late
        self._heard += late
        for receiver, deadline, _ in self._row:
            if deadline <= now - self._excused and not receiver.done():
                receiver.set_exception(CallTimeout("no answer in time"))
        if now - self._heard >= self._silence + self._owed / _SLOWEST:
            self.abort()
            return
        self._watch = self._loop.call_later(_TICK, self._check_timeouts)

    def _fail_pending(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self.resume_writing()
        if self._watch is not None:
            self._watch.cancel()
        row, self._row = self._row, deque()
        for receiver, _, _ in row:
            if not receiver.done():
                receiver.set_exception(RedisConnectionLost(reason))
        if self._on_lost is not None:
            self._on_lost(self)
