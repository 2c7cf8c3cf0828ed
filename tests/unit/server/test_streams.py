"""Answers that take a while: what fails on the way is told from where it failed."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Message

from tenuto.chat import ChatEvent, ToolStarted
from tenuto.server.chat import encode_event
from tenuto.server.streams import cancel_on_disconnect, event_stream


def _asked() -> Request:
    """A request whose client stays and whose credential holds."""
    stays = asyncio.Event().wait
    app = Starlette()
    app.state.service = SimpleNamespace(gate=SimpleNamespace(wait_until_lapsed=lambda _: stays()))
    return Request({"type": "http", "app": app}, receive=stays)  # type: ignore[arg-type]


async def _broken() -> None:
    raise ZeroDivisionError


async def _breaking() -> AsyncIterator[ChatEvent]:
    yield ToolStarted(name="look")
    await _broken()


def _places(raised: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(raised.__traceback__)]


async def test_a_fault_of_the_work_keeps_where_it_came_from() -> None:
    """The answer sends people to the log, and the log names these places."""
    with pytest.raises(ZeroDivisionError) as excinfo:
        await cancel_on_disconnect(_asked(), _broken())

    assert _places(excinfo.value)[-1] == "_broken"


async def test_a_fault_in_the_middle_of_a_stream_keeps_where_it_came_from() -> None:
    stream = await event_stream(_asked(), _breaking(), encode_event)
    assert isinstance(stream, StreamingResponse)

    with pytest.raises(ZeroDivisionError) as excinfo:
        async for _ in stream.body_iterator:
            pass

    assert _places(excinfo.value)[-1] == "_broken"


async def test_a_stream_whose_client_left_before_it_began_is_closed() -> None:
    """What it counts for is released in any case."""

    async def leave(message: Message) -> None:
        raise OSError

    class Counted(AsyncIterator[ChatEvent]):
        closed = False

        async def __anext__(self) -> ChatEvent:
            return ToolStarted(name="look")

        async def aclose(self) -> None:
            self.closed = True

    request, events = _asked(), Counted()
    stream = await event_stream(request, events, encode_event, endless=True)
    with pytest.raises(ClientDisconnect):
        await stream({"type": "http", "asgi": {"spec_version": "2.4"}}, request.receive, leave)

    assert events.closed
