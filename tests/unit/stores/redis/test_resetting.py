"""What a connection that was given up has left undelivered is dropped, and does not arrive later."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing

import pytest
import uvloop

from tenuto.stores.redis._connection import Connection
from tenuto.stores.sockets import reset_on_close
from tests.timeouts import LONG

MUCH = b"x" * 1_000_000


def _listening() -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


def _read_all(peer: socket.socket) -> int:
    """How many bytes come before the end."""
    read = 0
    while got := peer.recv(65536):
        read += len(got)
    return read


@pytest.mark.parametrize("given_up", [False, True], ids=["closed", "reset"])
async def test_what_the_other_side_has_not_got_is_dropped(given_up: bool) -> None:
    """Of one that is closed alone, it still arrives."""
    loop = asyncio.get_running_loop()
    with closing(_listening()) as listener:
        transport, _ = await loop.create_connection(asyncio.Protocol, *listener.getsockname())
        with closing(listener.accept()[0]) as peer:
            transport.write(MUCH)
            if given_up:
                reset_on_close(transport)
            transport.abort()
            await asyncio.sleep(0)  # The loop closes it in its next turn.

            if given_up:
                with pytest.raises(ConnectionResetError):
                    await asyncio.to_thread(_read_all, peer)
            else:
                assert await asyncio.to_thread(_read_all, peer) > 0


async def test_a_redis_connection_with_an_unanswered_call_is_reset() -> None:
    loop = asyncio.get_running_loop()
    with closing(_listening()) as listener:
        _, connection = await loop.create_connection(lambda: Connection(silence=60.0), *listener.getsockname())
        with closing(listener.accept()[0]) as peer:
            answer = connection.send(b"*1\r\n$4\r\nPING\r\n", loop.time() + 60)
            await asyncio.sleep(0)
            connection.abort()
            await asyncio.sleep(0)

            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(_read_all, peer)
            assert answer.exception() is not None


def test_a_connection_that_uvloop_has_closed_is_no_fault() -> None:
    """What is told of the outage is the outage, not that its connection cannot be reset any more."""

    async def reset_when_gone() -> None:
        with closing(_listening()) as listener:
            transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, *listener.getsockname())
            transport.abort()
            async with asyncio.timeout(LONG):
                while transport.get_extra_info("socket").fileno() >= 0:  # noqa: ASYNC110
                    await asyncio.sleep(0)

            reset_on_close(transport)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(reset_when_gone())


class _Deaf(asyncio.BaseTransport):
    """One that has nothing good to say."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        raise RuntimeError("the handler is closed")


def test_whatever_closing_says_is_no_fault() -> None:
    reset_on_close(_Deaf())


def test_nothing_to_reset_is_no_fault() -> None:
    reset_on_close(None)
